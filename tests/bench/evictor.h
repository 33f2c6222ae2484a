/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon's control socket, as the fluxkv tool uses it, without a process for each request: evicts single files from
 * memory, and finds the clock of the daemon's processor time. Main thread.
 */
#ifndef TESTS_BENCH_EVICTOR_H
#define TESTS_BENCH_EVICTOR_H

#include <limits.h>
#include <time.h>

#include "common/errmsg.h"
#include "net/ctl.h"
#include "tests/bench/target.h"

struct evictor {
	struct ctl_stream *stream; /* NULL: not open */
	clockid_t cpu;		   /* of the daemon's process: cpu_time_of() */
	char root[PATH_MAX];	   /* the directory, as its daemon names it */
};

/*
 * Connects to the socket of the daemon whose mount dir is on. -EINVAL if it is another's. It must be used within a
 * minute, or the daemon closes it. 0 or a negative errno with the reason in e.
 */
int evictor_open(struct evictor *ev, const char *socket, const struct target *dir, struct errmsg *e);
/* Takes one that is not open. */
void evictor_close(struct evictor *ev);
/* Drops the copy in memory, also the last one, of a file in the directory. -EBUSY while somebody has it open. */
int evictor_evict(struct evictor *ev, const char *name, struct errmsg *e);

#endif
