/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chance that repeats: what is drawn follows from the seed alone, so two targets are asked for the same keys in the
 * same order. Pure functions; any thread.
 */
#ifndef TESTS_BENCH_DRAW_H
#define TESTS_BENCH_DRAW_H

#include <stdint.h>

/* A uniform number of [0, 1): draw number i of one stream (a worker's). */
double draw_uniform(uint64_t seed, unsigned stream, uint64_t i);
/* The numbers 0 to n-1 in an order of their own. */
void draw_shuffle(uint64_t seed, unsigned *ret, unsigned n);

#endif
