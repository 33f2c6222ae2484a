/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/task.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PF_EXITING_FLAG 0x4ul /* the kernel's PF_EXITING */
#define FIELD_FLAGS 9
#define FIELD_EXIT_CODE 52
#define WAIT_SIGNAL_MASK 0x7f /* of an exit code: the signal */

/* The decimal number at *pos, which moves behind it and the blank that follows. */
static int next_number(const char *s, size_t len, size_t *pos, bool *ret_negative, unsigned long *ret)
{
	size_t i = *pos;
	unsigned long v = 0;
	bool negative = i < len && s[i] == '-';

	if (negative)
		i++;
	if (i >= len || !isdigit((unsigned char)s[i]))
		return -EBADMSG;
	for (; i < len && isdigit((unsigned char)s[i]); i++)
		v = v * 10 + (unsigned long)(s[i] - '0'); /* wraps for the "unlimited" ones, which nobody reads */
	if (i < len && s[i] != ' ' && s[i] != '\n')
		return -EBADMSG;
	*pos = i + 1;
	*ret_negative = negative;
	*ret = v;
	return 0;
}

int task_parse_stat(const char *line, size_t len, unsigned long *ret_flags, int *ret_exit_code)
{
	const char *end = memrchr(line, ')', len);
	unsigned long v, flags = 0;
	bool negative;
	size_t pos;

	/* Behind the name: " S 1 2 ...", field 3 is a letter. */
	if (!end)
		return -EBADMSG;
	pos = (size_t)(end - line) + 1;
	if (len - pos < 4 || line[pos] != ' ' || line[pos + 2] != ' ')
		return -EBADMSG;
	pos += 3;
	for (int field = 4; field <= FIELD_EXIT_CODE; field++) {
		int r = next_number(line, len, &pos, &negative, &v);

		if (r < 0)
			return r;
		if (field == FIELD_FLAGS)
			flags = v;
	}
	if (negative || v > 0xffff)
		return -EBADMSG;
	*ret_flags = flags;
	*ret_exit_code = (int)v;
	return 0;
}

int task_parse_status(const char *text, size_t len, bool *ret_killed)
{
	static const char key[] = "\nSigPnd:\t";
	const char *at = memmem(text, len, key, strlen(key));
	unsigned long long mask = 0;
	const char *p;

	if (!at)
		return -EBADMSG;
	for (p = at + strlen(key); p < text + len && isxdigit((unsigned char)*p); p++)
		mask = mask << 4 | (unsigned)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 0x20) - 'a' + 10);
	if (p == at + strlen(key))
		return -EBADMSG;
	*ret_killed = mask >> (SIGKILL - 1) & 1;
	return 0;
}

/* The length that was read, or a negative errno. */
static ssize_t read_proc(pid_t tid, const char *file, char *buf, size_t size)
{
	char path[64];
	size_t n = 0;
	ssize_t r = 1;
	int fd;

	if (tid <= 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (n < size && r > 0) {
		r = read(fd, buf + n, size - n);
		if (r > 0)
			n += (size_t)r;
		else if (r < 0 && errno == EINTR)
			r = 1;
	}
	close(fd);
	return r < 0 ? -EIO : (ssize_t)n;
}

bool task_parse_has_memory(const char *text, size_t len)
{
	static const char key[] = "\nVmSize:";

	return memmem(text, len, key, strlen(key));
}

/*
 * A task that is in execve(2) flushes its close-on-exec files with a lock held that reading its "stat" takes (since
 * Linux 6.18): asking there would wait for the very task that waits for our answer. One that exits has given back its
 * memory before it closes its files, and "status", which takes no such lock, shows that.
 */
static bool task_exits(pid_t tid)
{
	char buf[4096];
	ssize_t n = read_proc(tid, "status", buf, sizeof(buf));

	return n > 0 && !task_parse_has_memory(buf, (size_t)n);
}

bool task_dies_by_signal(pid_t tid)
{
	unsigned long flags;
	char buf[2048];
	int exit_code;
	ssize_t n;

	if (!task_exits(tid))
		return false;
	n = read_proc(tid, "stat", buf, sizeof(buf));
	if (n < 0 || task_parse_stat(buf, (size_t)n, &flags, &exit_code) < 0)
		return false;
	return (flags & PF_EXITING_FLAG) && (exit_code & WAIT_SIGNAL_MASK);
}

bool task_is_killed(pid_t tid)
{
	char buf[4096];
	ssize_t n = read_proc(tid, "status", buf, sizeof(buf));
	bool killed;

	return n >= 0 && task_parse_status(buf, (size_t)n, &killed) == 0 && killed;
}

bool task_is_gone(pid_t tid)
{
	return kill(tid, 0) < 0 && errno == ESRCH;
}

bool task_is_ending(pid_t pid)
{
	char buf[4096];
	ssize_t n = read_proc(pid, "status", buf, sizeof(buf));
	bool killed;

	if (n <= 0 || !task_parse_has_memory(buf, (size_t)n))
		return true;
	return task_parse_status(buf, (size_t)n, &killed) == 0 && killed;
}
