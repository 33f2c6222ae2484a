/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cell of the pressure matrix: what was asked, what came out, and how it is written. A cell belongs to the main
 * thread.
 */
#ifndef TESTS_BENCH_CELL_H
#define TESTS_BENCH_CELL_H

#include <jansson.h>
#include <stdio.h>

#include "tests/bench/arena.h"
#include "tests/bench/backend.h"
#include "tests/bench/load.h"
#include "tests/bench/zipf.h"

#define CELL_LESS 128u /* bytes that a value has less than its size class, as a store's own header would need */
#define CELL_THETA 0.99

/* A store in one state of its SSD tier. */
struct contender {
	const struct backend_ops *ops;
	const char *dir; /* that it is in; NULL: it is started */
	bool with_ssd;
	uint64_t dram, ssd; /* bytes that it may hold; both 0: nobody knows */
};

struct cell {
	const struct contender *on;
	uint64_t size; /* the class: the payload is CELL_LESS less */
	unsigned n_keys, clients, run;
	enum output output;
	bool put_missing;

	struct arena_tally sum; /* of all workers */
	struct load_result load;
	struct hits hits;     /* by tier; together the hits of the workers */
	unsigned keys_missed; /* by anybody */
	char problem[400];    /* what the first error was */
};

/* Up to 4 clients are the threads of one process; more are processes of 4. */
void cell_layout(unsigned clients, unsigned *ret_processes, unsigned *ret_threads);
/* How many values of the size class make up the dataset. */
unsigned cell_keys(uint64_t dataset, uint64_t size);
/* How many of n_keys values fit into what the contender may hold. */
unsigned cell_fitting(const struct cell *c, bool dram_only);
/*
 * Hits by tier. Those that told themselves are taken as they are; those that the target counted must be as many as it
 * says. If they are not, or it knows not where some were, all are unknown: nothing is guessed from the rest.
 */
struct hits cell_attribute(const struct arena_tally *sum, const struct hits *counted);
/* Adds the workers' tallies up. */
void cell_sum(struct cell *c, const struct arena *a);

/* What to hold a hit rate against; -1 where nobody knows how much the contender may hold. */
struct cell_bounds {
	double best;   /* of a cache that holds the most popular values that fit, and no others */
	double dram;   /* the same, of what fits into DRAM */
	double share;  /* how much of the dataset fits */
	double newest; /* of a cache that was left with the values that were put last */
};
/* seed: of the bootstrap's order. 0 or -ENOMEM. */
int cell_bounds(const struct cell *c, const struct zipf *z, uint64_t seed, struct cell_bounds *ret);

/* Whether the object is what cell_json() made of a cell with the same question. */
bool cell_is(const struct cell *c, json_t *j);
/* NULL when there is no memory. */
json_t *cell_json(const struct cell *c, const struct cell_bounds *b);
/* These do not flush: the caller does, before a process is forked that would have it too. */
void cell_print_head(FILE *f);
void cell_print(const struct cell *c, const struct cell_bounds *b, FILE *f);

#endif
