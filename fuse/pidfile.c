/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "fuse/task.h"

#define DYING_TIMEOUT (10 * NS_PER_SEC)

struct pidfile {
	int fd;
	char *path;
};

static long read_pid(int fd)
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

/* A leaving daemon unlinks the file while somebody else waits with the old one open. */
static bool still_there(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int busy_error(int fd, const char *path, const char *instance, struct errmsg *e)
{
	long pid = read_pid(fd);

	if (!pid)
		return errmsg_set(e, -EBUSY, "instance %s is starting or running already (%s is locked)", instance,
				  path);
	return errmsg_set(
	    e, -EBUSY,
	    "instance %s is running already, as pid %ld (%s); stop it, or give this one another instance_key", instance,
	    pid, path);
}

/* The lock of a process that was killed goes with its last thread, which may take a while with much memory. */
static int lock_file(int fd)
{
	uint64_t until = clock_ns() + DYING_TIMEOUT;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		long pid = read_pid(fd);

		if (errno != EWOULDBLOCK)
			return -errno;
		if (!pid || !task_is_ending((pid_t)pid) || clock_ns() > until)
			return -EBUSY;
		poll(NULL, 0, 5);
	}
	return 0;
}

static int open_locked(const char *path, const char *instance, int *ret, struct errmsg *e)
{
	for (;;) {
		int r, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

		if (fd < 0)
			return errmsg_set(e, -errno, "%s: %s", path, strerror(errno));
		r = lock_file(fd);
		if (r) {
			r = r == -EBUSY ? busy_error(fd, path, instance, e)
					: errmsg_set(e, r, "%s: cannot lock it: %s", path, strerror(-r));
			close(fd);
			return r;
		}
		if (still_there(fd, path)) {
			*ret = fd;
			return 0;
		}
		close(fd);
	}
}

/*
 * A process that dies closes its descriptors from the lowest on. With a high one this lock goes last, so who gets it
 * finds the other locks of the instance (segment, SSD roots) free as well.
 */
static int move_up(int fd)
{
	for (int to = 4095; to > fd; to /= 2) {
		int high = fcntl(fd, F_DUPFD_CLOEXEC, to);

		if (high < 0)
			continue; /* above the limit */
		close(fd);
		return high;
	}
	return fd;
}

static int write_pid(int fd)
{
	char buf[32];
	int n = snprintf(buf, sizeof(buf), "%ld\n", (long)getpid());

	if (ftruncate(fd, 0))
		return -errno;
	if (pwrite(fd, buf, (size_t)n, 0) != n)
		return errno ? -errno : -ENOSPC;
	return 0;
}

int pidfile_lock(const char *path, const char *instance, struct pidfile **ret, struct errmsg *e)
{
	struct pidfile *p = calloc(1, sizeof(*p));
	int r;

	if (!p || !(p->path = strdup(path))) {
		free(p);
		return errmsg_set(e, -ENOMEM, "out of memory");
	}
	r = open_locked(path, instance, &p->fd, e);
	if (r)
		goto free_p;
	p->fd = move_up(p->fd);
	r = write_pid(p->fd);
	if (r) {
		errmsg_set(e, r, "%s: %s", path, strerror(-r));
		pidfile_unlock(p);
		return r;
	}
	*ret = p;
	return 0;
free_p:
	free(p->path);
	free(p);
	return r;
}

struct pidfile *pidfile_unlock(struct pidfile *p)
{
	if (!p)
		return NULL;
	unlink(p->path);
	close(p->fd);
	free(p->path);
	free(p);
	return NULL;
}
