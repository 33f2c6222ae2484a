/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/zipf.h"

#include <math.h>
#include <stdlib.h>

struct zipf {
	unsigned n;
	double upto[]; /* [i]: the probability of the keys 0 to i */
};

struct zipf *zipf_new(unsigned n, double theta)
{
	struct zipf *z = n ? malloc(sizeof(*z) + n * sizeof(z->upto[0])) : NULL;
	double sum = 0;

	if (!z)
		return NULL;
	z->n = n;
	for (unsigned i = 0; i < n; i++)
		z->upto[i] = sum += pow(i + 1.0, -theta);
	for (unsigned i = 0; i < n; i++)
		z->upto[i] /= sum;
	return z;
}

struct zipf *zipf_free(struct zipf *z)
{
	free(z);
	return NULL;
}

unsigned zipf_key(const struct zipf *z, double u)
{
	unsigned low = 0, high = z->n - 1, mid;

	while (low < high) { /* the first key whose sum is above u */
		mid = low + (high - low) / 2;
		if (z->upto[mid] > u)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

double zipf_share(const struct zipf *z, uint64_t k)
{
	return !k ? 0 : k >= z->n ? 1 : z->upto[k - 1];
}
