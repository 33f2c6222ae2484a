/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through the numbers below n, each once before any comes again, no two near each other. Pure. */
#ifndef TESTS_BENCH_SCATTER_H
#define TESTS_BENCH_SCATTER_H

#include <stdint.h>

struct scatter {
	uint64_t n, step, next;
};

/* n > 0, and below 2^32. */
struct scatter scatter_over(uint64_t n);
uint64_t scatter_next(struct scatter *s);

#endif
