/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the worker processes of a cell share with the parent: memory that is mapped by all of them. Made before they are
 * forked; each worker writes its own tally, the parent reads them when all have ended.
 */
#ifndef TESTS_BENCH_ARENA_H
#define TESTS_BENCH_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/hist.h"

/* Versions of a key: only who has taken busy puts one, so that they are published in their order. */
struct arena_key {
	atomic_uint started;   /* the last version whose put has begun; 0: none */
	atomic_uint published; /* the last whose put has returned */
	atomic_flag busy;
	atomic_bool missed; /* by anybody, in the window */
};

struct arena_tally {
	uint64_t dram, ssd, counted; /* hits; counted: the target's counters tell where from */
	uint64_t misses, errors;
	uint64_t puts, refused; /* refused: no space */
	uint64_t ended;		/* clock_ns() after the last */
	struct hist latency;	/* ns, of the hits */
};

struct arena {
	atomic_ullong until; /* clock_ns() when the phase ends; set before its gate opens */
	atomic_flag told;    /* whoever takes it writes the text */
	char text[400];	     /* what went wrong first */
	unsigned n_keys, n_workers;
	struct arena_key *keys;
	struct arena_tally *tallies; /* n_workers */
};

/* NULL: no memory. */
struct arena *arena_new(unsigned n_keys, unsigned n_workers);
struct arena *arena_free(struct arena *a);
/* Keeps the text unless there is one. Any worker. */
void arena_tell(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
