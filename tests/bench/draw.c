/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/draw.h"

#include "common/hash.h"

#define SHUFFLE UINT32_MAX /* a stream that no worker has */

static uint64_t draw(uint64_t seed, unsigned stream, uint64_t i)
{
	return hash_u64(hash_u64(hash_u64(seed + 1) + stream) ^ (i + 1) * 0x9e3779b97f4a7c15ull);
}

double draw_uniform(uint64_t seed, unsigned stream, uint64_t i)
{
	return (double)(draw(seed, stream, i) >> 11) * 0x1p-53;
}

void draw_shuffle(uint64_t seed, unsigned *ret, unsigned n)
{
	unsigned j, t;

	for (unsigned i = 0; i < n; i++)
		ret[i] = i;
	for (unsigned i = n; i > 1; i--) { /* Fisher and Yates */
		j = (unsigned)(draw(seed, SHUFFLE, i) % i);
		t = ret[i - 1];
		ret[i - 1] = ret[j];
		ret[j] = t;
	}
}
