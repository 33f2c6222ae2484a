/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that runs beside the benchmark for a while: a daemon that is measured. It is a child in the foreground, in
 * a process group of its own so that a ^C does not end it under its clients, and it is told to end when we die, however
 * that happens. Main thread.
 */
#ifndef TESTS_BENCH_SERVICE_H
#define TESTS_BENCH_SERVICE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/errmsg.h"

struct service {
	char name[32];
	pid_t pid; /* 0: none */
	int fd;	   /* a pidfd, readable when it has ended */
	int log;   /* what it says, in an anonymous file */
};

/* Whether the program is there: a path, or a name in PATH or in the folders of the system's daemons. */
bool service_find(const char *program);
/*
 * Starts argv and returns when ready(arg) says so. -ENOENT: no such program; -ESRCH: it ended before; -ETIMEDOUT;
 * -EINTR: asked to stop. It runs only after 0; else e says why not.
 */
int service_start(struct service *s, const char *const *argv, bool (*ready)(void *arg), void *arg, struct errmsg *e);
/* Asks it to end, kills it if it does not within 20 s, and waits. Takes one that is not running. */
void service_stop(struct service *s);
/* Whether it has ended by itself; e then has its last words. */
bool service_died(const struct service *s, struct errmsg *e);

#endif
