/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker processes and the gates they start at. Who comes to a gate says so through a pipe and waits until the parent
 * opens it, by closing its end of another pipe: nothing is left locked when a process dies. procs_pass() is for any
 * thread of a child, the rest for the parent's main thread, which has no other threads when it forks.
 */
#ifndef TESTS_BENCH_PROCS_H
#define TESTS_BENCH_PROCS_H

#include <stdbool.h>
#include <sys/types.h>

#define PROCS_MAX 64
#define PROCS_GATES 2

struct procs {
	unsigned n;
	pid_t pid[PROCS_MAX];
	int fd[PROCS_MAX];	/* pidfds; -1: has been waited for */
	int arrive_r, arrive_w; /* a byte for each that came to a gate */
	int gate_r[PROCS_GATES], gate_w[PROCS_GATES];
	int service; /* a pidfd of what they talk to, -1: nothing; when it ends, waiting for them ends too */
};

/* In child i; what it returns, 0 or a negative errno, is whether procs_join() succeeds. */
typedef int (*procs_fn)(struct procs *p, unsigned i, void *arg);

int procs_start(struct procs *p, unsigned n, int service, procs_fn fn, void *arg);
/* Says "here" and waits for the gate. 0, or -EINTR if there is nothing to wait for any more. */
int procs_pass(struct procs *p, unsigned gate);
/* n threads have come to a gate. -EINTR: asked to stop; -ESRCH: the service ended; -ECHILD: a process did. */
int procs_await(struct procs *p, unsigned n);
void procs_open(struct procs *p, unsigned gate);
/* All have ended, each with 0. Errors as for procs_await(). */
int procs_join(struct procs *p);
/* Ends whoever still runs: asked, and after 10 s killed. Always the last call. */
void procs_end(struct procs *p);

#endif
