/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace against a directory as a KV cache would: the blocks of a request are opened and read in order until
 * the first that is not there; that one and the rest are stored. Every byte read is compared.
 */
#ifndef TESTS_BENCH_REPLAY_H
#define TESTS_BENCH_REPLAY_H

#include "tests/bench/set.h"
#include "tests/bench/stats.h"
#include "tests/bench/trace.h"

/* Zero-initialised is empty. Times are in seconds, of the system calls alone. */
struct tally {
	uint64_t hits, misses, stores, no_space; /* no_space: stores that ended with ENOSPC */
	struct samples hit, miss, store;	 /* latencies: open + read + close; the failing open; the whole store */
};

void tally_free(struct tally *t);
/* Runs the trace once. *ret_ns: from the first request to the last. 0, or -errno with the reason in b->fault. */
int replay(struct bench *b, const struct trace *trace, const struct target *t, struct tally *ret, uint64_t *ret_ns);

#endif
