/* SPDX-License-Identifier: Apache-2.0 */
#include "common/lockfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

long lockfile_pid(int fd)
{
	char buf[32];
	ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);
	long pid;

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	pid = strtol(buf, NULL, 10);
	return pid > 0 ? pid : 0;
}

int lockfile_write_pid(int fd)
{
	char buf[32];
	int n = snprintf(buf, sizeof(buf), "%ld\n", (long)getpid());
	ssize_t written;

	if (ftruncate(fd, 0))
		return -errno;
	written = pwrite(fd, buf, (size_t)n, 0);
	if (written < 0)
		return -errno;
	return written == n ? 0 : -ENOSPC;
}

bool lockfile_is_at(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
