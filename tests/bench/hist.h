/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies, counted in buckets no wider than 1/128 of what they hold, so that millions take a fixed amount of memory,
 * which several processes can share. One thread adds to a histogram; it is read when that thread is done.
 */
#ifndef TESTS_BENCH_HIST_H
#define TESTS_BENCH_HIST_H

#include <stdint.h>

#define HIST_FINE 7 /* bits of a value that are kept behind the leading one */
#define HIST_BUCKETS ((64 - HIST_FINE + 1) << HIST_FINE)

/* Zero-initialised is empty. */
struct hist {
	uint64_t n, max;
	uint64_t count[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t value);
void hist_merge(struct hist *h, const struct hist *from);
/* Nearest rank: a value that at least q (0 to 1) of all do not exceed, at most 1/128 too much. 0 for none. */
uint64_t hist_percentile(const struct hist *h, double q);

#endif
