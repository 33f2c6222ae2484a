/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file system a directory is on, from /proc/self/mountinfo. No state; any thread.
 */
#ifndef TESTS_BENCH_MOUNTINFO_H
#define TESTS_BENCH_MOUNTINFO_H

#include <limits.h>

struct mountinfo {
	char type[64];	     /* "tmpfs", "fuse.fluxkv" */
	char root[PATH_MAX]; /* where it is mounted */
};

/* 0 or a negative errno; -ENOENT if the table does not list the mount. */
int mountinfo_get(int fd, struct mountinfo *ret);

/*
 * One line of the table. 1: it is the mount with that id and *ret is filled, 0: another one, -EBADMSG. Pure; changes
 * the line.
 */
int mountinfo_parse(char *line, unsigned long long id, struct mountinfo *ret);

#endif
