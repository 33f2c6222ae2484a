/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/scatter.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* Steps that have no divisor in common with n come to every number; those of about the golden section spread best. */
struct scatter scatter_over(uint64_t n)
{
	struct scatter s = {.n = n, .step = (uint64_t)((double)n * 0.618) | 1};

	while (gcd(s.step, n) != 1)
		s.step++;
	return s;
}

uint64_t scatter_next(struct scatter *s)
{
	return s->next++ % s->n * s->step % s->n;
}
