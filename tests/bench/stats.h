/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples and what is said about them: median, spread, percentiles. A struct samples belongs to one thread at a time.
 */
#ifndef TESTS_BENCH_STATS_H
#define TESTS_BENCH_STATS_H

#include <stddef.h>

/* Zero-initialised is empty. */
struct samples {
	double *v;
	size_t n, cap;
};

/* 0 or -ENOMEM. */
int samples_add(struct samples *s, double value);
/* Appends all of from, which stays as it is. 0 or -ENOMEM. */
int samples_merge(struct samples *s, const struct samples *from);
/* Makes room for n in all, so that samples_add() does not allocate while something is timed. 0 or -ENOMEM. */
int samples_reserve(struct samples *s, size_t n);
void samples_free(struct samples *s);

/* The functions below are 0 for no samples and never reorder them. NAN is not allowed among them. */
double samples_min(const struct samples *s);
double samples_max(const struct samples *s);
/* The middle one, or the mean of the two in the middle. 0, or -ENOMEM. */
int samples_median(const struct samples *s, double *ret);
/*
 * Nearest rank: ret[i] is the least sample that at least q[i] (0 to 1) of all samples do not exceed. 0, or -ENOMEM.
 */
int samples_percentiles(const struct samples *s, const double *q, size_t nq, double *ret);

/* The quotients of two series taken in turn, pair by pair, as far as both go. 0 or -ENOMEM. */
int samples_ratios(const struct samples *a, const struct samples *b, struct samples *ret);

#endif
