/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says about a task that waits for the file system. Stateless; any thread. What cannot be read (the task is
 * in another pid namespace, or gone) is answered "no".
 */
#ifndef FUSE_TASK_H
#define FUSE_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The task is exiting, and a signal made it. */
bool task_dies_by_signal(pid_t tid);
/* A fatal signal is pending: its system call has to end. */
bool task_is_killed(pid_t tid);
/* There is no such thread. */
bool task_is_gone(pid_t tid);
/* The process is on its way out, whatever it still holds: killed, exiting, a zombie, or gone. */
bool task_is_ending(pid_t pid);

/*
 * Fields 9 (flags) and 52 (exit_code) of a line of /proc/<pid>/stat. The command name, field 2, may hold anything, also
 * blanks and parentheses. Pure. 0 or -EBADMSG.
 */
int task_parse_stat(const char *line, size_t len, unsigned long *ret_flags, int *ret_exit_code);
/* Whether the text of /proc/<pid>/status is that of a task that has memory, so is not exiting. Pure. */
bool task_parse_has_memory(const char *text, size_t len);
/* Whether SIGKILL is pending for the thread in the text of /proc/<pid>/status. Pure. 0 or -EBADMSG. */
int task_parse_status(const char *text, size_t len, bool *ret_killed);

#endif
