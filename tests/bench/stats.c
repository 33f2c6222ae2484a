/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int samples_reserve(struct samples *s, size_t n)
{
	double *v;

	if (n <= s->cap)
		return 0;
	v = reallocarray(s->v, n, sizeof(*v));
	if (!v)
		return -ENOMEM;
	s->v = v;
	s->cap = n;
	return 0;
}

int samples_add(struct samples *s, double value)
{
	int r;

	if (s->n == s->cap) {
		r = samples_reserve(s, s->cap ? s->cap * 2 : 16);
		if (r < 0)
			return r;
	}
	s->v[s->n++] = value;
	return 0;
}

int samples_merge(struct samples *s, const struct samples *from)
{
	int r = samples_reserve(s, s->n + from->n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < from->n; i++)
		s->v[s->n++] = from->v[i];
	return 0;
}

void samples_free(struct samples *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

double samples_min(const struct samples *s)
{
	double least = s->n ? s->v[0] : 0;

	for (size_t i = 1; i < s->n; i++)
		if (s->v[i] < least)
			least = s->v[i];
	return least;
}

double samples_max(const struct samples *s)
{
	double most = s->n ? s->v[0] : 0;

	for (size_t i = 1; i < s->n; i++)
		if (s->v[i] > most)
			most = s->v[i];
	return most;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A sorted copy, for free(); NULL when there is no memory (or no sample). */
static double *sorted(const struct samples *s)
{
	double *v = s->n ? malloc(s->n * sizeof(*v)) : NULL;

	if (v) {
		memcpy(v, s->v, s->n * sizeof(*v));
		qsort(v, s->n, sizeof(*v), ascending);
	}
	return v;
}

int samples_median(const struct samples *s, double *ret)
{
	double *v = sorted(s);

	if (s->n && !v)
		return -ENOMEM;
	*ret = s->n ? (v[(s->n - 1) / 2] + v[s->n / 2]) / 2 : 0;
	free(v);
	return 0;
}

/* The index of the nearest rank of q among n > 0 sorted samples. */
static size_t rank_of(double q, size_t n)
{
	size_t i = q <= 0 ? 0 : (size_t)(q * (double)n);

	if (i > 0 && (double)i >= q * (double)n)
		i--;
	return i < n ? i : n - 1;
}

int samples_percentiles(const struct samples *s, const double *q, size_t nq, double *ret)
{
	double *v = sorted(s);

	if (s->n && !v)
		return -ENOMEM;
	for (size_t i = 0; i < nq; i++)
		ret[i] = s->n ? v[rank_of(q[i], s->n)] : 0;
	free(v);
	return 0;
}

int samples_ratios(const struct samples *a, const struct samples *b, struct samples *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < a->n && i < b->n; i++)
		if (b->v[i] > 0)
			r = samples_add(ret, a->v[i] / b->v[i]);
	return r;
}
