/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command of those that work on targets, from making the targets to removing them; it prints nothing. Main thread.
 */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include "tests/bench/set.h"

/*
 * Runs the command (one bit) in b->dir and in what b->o says to compare with; the results are added to b->report.
 * Returns 0 or a negative errno, with the reason in b->fault. b->targets are closed, but can still be asked what they
 * were.
 */
int bench_measure(struct bench *b, unsigned command, int (*run)(struct bench *b));

#endif
