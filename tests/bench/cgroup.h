/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control group of our own with a limit on memory, page cache included: version 1 or 2, wherever one may be made.
 * Main thread; cgroup_enter() also in a child.
 */
#ifndef TESTS_BENCH_CGROUP_H
#define TESTS_BENCH_CGROUP_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/errmsg.h"

struct cgroup {
	char dir[PATH_MAX]; /* empty: none */
};

/* -EPERM or another negative errno with the reason in e. */
int cgroup_new(struct cgroup *g, uint64_t bytes, struct errmsg *e);
/* The calling process goes in. What it allocated before is not charged to the group. 0 or a negative errno. */
int cgroup_enter(const struct cgroup *g);
/* The same for another process, all its threads. */
int cgroup_take(const struct cgroup *g, pid_t pid);
/* Its members have ended. Takes one that is none. */
void cgroup_remove(struct cgroup *g);

#endif
