/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round of growth on one tree of files: puts new files, reads and stats some that nobody has asked for since they
 * were made, and evicts as many as were put, so that their number stays. Each operation is timed over the round's
 * number of them, by the wall clock and by the processor time of both sides. Main thread.
 */
#ifndef TESTS_BENCH_GROWTH_ROUND_H
#define TESTS_BENCH_GROWTH_ROUND_H

#include "tests/bench/grown.h"

struct growth_round {
	struct grown *g;
	const char *target;  /* what the report calls it */
	const char *control; /* the socket of its daemon; NULL: none, files are removed where they would be evicted */
	uint64_t objects;    /* about so many are there */
	unsigned ops;	     /* of one kind */
	bool counts;	     /* false: a round of the warm-up */
};

/* 0 or a negative errno with the reason in b->fault. */
int growth_round(const struct growth_round *round);

#endif
