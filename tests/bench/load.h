/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of one cell: values put one after the other in a shuffled order, then a warm-up and a window of reads by
 * several processes of several threads. Main thread.
 */
#ifndef TESTS_BENCH_LOAD_H
#define TESTS_BENCH_LOAD_H

#include "tests/bench/arena.h"
#include "tests/bench/backend.h"
#include "tests/bench/zipf.h"

struct load {
	const struct backend *backend;
	const struct zipf *zipf;
	struct arena *arena;
	uint64_t seed, payload;
	uint64_t pace; /* bytes per second of the bootstrap; 0: as fast as it goes */
	unsigned n_keys, processes, threads;
	enum output output;
	bool put_missing; /* a miss is put again */
	bool verify;	  /* all bytes, not both ends alone */
	uint64_t warmup_ns, window_ns;
};

/* What the bootstrap and the window were. */
struct load_result {
	double bootstrap_s, window_s; /* window_s: to the end of the last read that began in the window */
	uint64_t bootstrap_refused;
	struct hits counted; /* by the target, in the window; 0 if it does not count */
};

/* 0, or a negative errno with the reason in e. The tallies of the arena are those of the window. */
int load_run(const struct load *l, struct load_result *ret, struct errmsg *e);

#endif
