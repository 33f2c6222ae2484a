/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many small files in one directory tree, spread over partition directories by hash as caches do it, and their names.
 * File number n is the n-th that was made; its name and its bytes follow from the seed and n. Main thread, which makes
 * a crew for the filling.
 */
#ifndef TESTS_BENCH_GROWN_H
#define TESTS_BENCH_GROWN_H

#include <stdint.h>

#include "tests/bench/scatter.h"
#include "tests/bench/set.h"
#include "tests/bench/value.h"

struct grown {
	struct bench *b;
	const struct target *dir; /* the caller's */
	uint64_t size;		  /* bytes of a file */
	uint64_t made;		  /* numbers below it have been made */
	uint64_t gone;		  /* so many of them are gone again: the caller counts */
	uint64_t first, n;	  /* the numbers of the last filling */
	struct scatter unseen;	  /* how grown_unseen() goes through them */
};

#define GROWN_NAME_LEN 40
/* The name of a file, in its partition directory. */
void grown_name(const struct grown *g, uint64_t number, char name[static GROWN_NAME_LEN]);
/* File number as a value, with the name in the buffer. */
struct value grown_value(const struct grown *g, uint64_t number, char name[static GROWN_NAME_LEN]);

/* Makes the partition directories in dir. 0 or a negative errno with the reason in b->fault. */
int grown_open(struct grown *g, struct bench *b, const struct target *dir, uint64_t size);
/* Makes files until so many are there. b->bufs hold a file. 0 or a negative errno with the reason in b->fault. */
int grown_fill(struct grown *g, uint64_t objects);
/* The number of a file of the last filling that it has not given out yet, no two near each other; g->n in all. */
uint64_t grown_unseen(struct grown *g);

#endif
