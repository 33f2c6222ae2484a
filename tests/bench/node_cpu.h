/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor time of the daemon behind a mount, which says who does the work of a read: it, or the kernel alone.
 * Found by the main thread; its time may be read by any.
 */
#ifndef TESTS_BENCH_NODE_CPU_H
#define TESTS_BENCH_NODE_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/errmsg.h"
#include "tests/bench/target.h"

/* Zeroed: nobody's. */
struct node_cpu {
	clockid_t clock;
	bool known;
};

/* Of the daemon that serves the target, a FluxKV mount. 0, or a negative errno with the reason in e. */
int node_cpu_find(struct node_cpu *n, const struct target *t, struct errmsg *e);
/* Nanoseconds of all its threads so far; 0 where it is not known. */
uint64_t node_cpu_ns(const struct node_cpu *n);

#endif
