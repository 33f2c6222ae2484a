/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that says who runs something: the lock on it is what counts, for it goes with the process, however that dies;
 * the pid in it is for people. One thread.
 */
#ifndef COMMON_LOCKFILE_H
#define COMMON_LOCKFILE_H

#include <stdbool.h>

/* The pid in it; 0: none, or nonsense. */
long lockfile_pid(int fd);
/* Writes our own. 0 or a negative errno. */
int lockfile_write_pid(int fd);
/* Whoever leaves unlinks the file, perhaps while somebody else waits with the old one open. */
bool lockfile_is_at(int fd, const char *path);

#endif
