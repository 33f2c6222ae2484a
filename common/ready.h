/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a daemon tells whoever started it that it serves, or why not: in the foreground through standard error and
 * systemd's notify socket; in the background to the process that was started first, which waits for it, prints the
 * one line and leaves with its status. One thread at a time.
 */
#ifndef COMMON_READY_H
#define COMMON_READY_H

#include <stdbool.h>

struct ready {
	const char *program; /* its name, for messages */
	int pipe;	     /* to the waiting parent; -1 in the foreground and once something was told */
	bool background;     /* this is the child */
};

/* Stays in the foreground: nothing is waiting but perhaps systemd. */
void ready_foreground(struct ready *r, const char *program);
/*
 * Forks into the background. In the child it returns -1, in a session of its own, with no standard input and output;
 * standard error is left alone. In the parent it returns the status to exit with, when the child has told. Before any
 * thread is started.
 */
int ready_background(struct ready *r, const char *program);

void ready_serving(struct ready *r, const char *status);
/* Prints "program: line" once where the person looks. Returns status, for exit. */
int ready_failed(struct ready *r, int status, const char *line);

#endif
