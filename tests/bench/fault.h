/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong first, when many threads may fail at once: the first message stays. Any thread.
 */
#ifndef TESTS_BENCH_FAULT_H
#define TESTS_BENCH_FAULT_H

#include <pthread.h>
#include <stdbool.h>

#include "common/errmsg.h"

struct fault {
	pthread_mutex_t lock;
	struct errmsg e; /* lock */
	bool set;	 /* lock */
};

/* Keeps the message unless there is one; returns err. */
int fault_set(struct fault *f, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
