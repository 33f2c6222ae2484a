/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/hist.h"

#define FINE_MASK ((1ull << HIST_FINE) - 1)

/* Values below 2^HIST_FINE have a bucket each; above, each power of two has 2^HIST_FINE of them. */
static unsigned bucket_of(uint64_t v)
{
	unsigned shift;

	if (v <= FINE_MASK)
		return (unsigned)v;
	shift = 63 - HIST_FINE - (unsigned)__builtin_clzll(v);
	return (shift + 1) << HIST_FINE | (unsigned)(v >> shift & FINE_MASK);
}

/* The greatest value of the bucket. */
static uint64_t bucket_top(unsigned b)
{
	unsigned shift;

	if (b <= FINE_MASK)
		return b;
	shift = (b >> HIST_FINE) - 1;
	return ((FINE_MASK + 1 + (b & FINE_MASK)) << shift) + ((1ull << shift) - 1);
}

void hist_add(struct hist *h, uint64_t value)
{
	h->n++;
	h->count[bucket_of(value)]++;
	if (value > h->max)
		h->max = value;
}

void hist_merge(struct hist *h, const struct hist *from)
{
	h->n += from->n;
	if (from->max > h->max)
		h->max = from->max;
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		h->count[i] += from->count[i];
}

uint64_t hist_percentile(const struct hist *h, double q)
{
	uint64_t seen = 0, top;

	for (unsigned i = 0; h->n && i < HIST_BUCKETS; i++) {
		seen += h->count[i];
		if (seen && (double)seen >= q * (double)h->n) {
			top = bucket_top(i);
			return top < h->max ? top : h->max;
		}
	}
	return 0;
}
