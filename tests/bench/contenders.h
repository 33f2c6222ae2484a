/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part in a pressure run, as the options say: each store in each state of its SSD tier. Main thread. */
#ifndef TESTS_BENCH_CONTENDERS_H
#define TESTS_BENCH_CONTENDERS_H

#include "tests/bench/cell.h"
#include "tests/bench/set.h"

#define CONTENDERS_MAX 12

struct contenders {
	struct contender v[CONTENDERS_MAX];
	unsigned n;
};

/*
 * Those that can run here; a note in b->report for each that was asked for and cannot. 0, or a negative errno with the
 * reason in b->fault: also when nobody is left.
 */
int contenders_choose(struct bench *b, struct contenders *ret);

#endif
