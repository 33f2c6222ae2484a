/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The law of Zipf over a finite set: key i of 0..n-1 is asked for with a probability that is proportional to
 * 1 / (i + 1)^theta. The table is made once and read-only after; any thread.
 */
#ifndef TESTS_BENCH_ZIPF_H
#define TESTS_BENCH_ZIPF_H

#include <stdint.h>

struct zipf;

/* NULL: no memory, or n is 0. */
struct zipf *zipf_new(unsigned n, double theta);
struct zipf *zipf_free(struct zipf *z);
/* The key for a uniform u of [0, 1). */
unsigned zipf_key(const struct zipf *z, double u);
/* The probability that one of the k most popular keys is asked for: what a cache that holds just these hits. */
double zipf_share(const struct zipf *z, uint64_t k);

#endif
