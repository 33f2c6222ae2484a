/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a picture of a pressure run shows, taken from its JSON: for each output, payload and number of clients a bar a
 * contender. Files, and runs in them, that measured the same cell are one bar, of their medians. No drawing here. Main
 * thread.
 */
#ifndef TESTS_BENCH_CHART_H
#define TESTS_BENCH_CHART_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "tests/bench/stats.h"

#define CHART_MAX 16 /* sizes, numbers of clients, contenders */
#define CHART_OUTPUTS 2

struct chart_series {
	char target[24], tiers[16];
};

struct chart_bar {
	struct samples dram, ssd, unknown, hit_rate; /* a sample a run; bytes per second, 0 to 1 */
	double bound; /* of the hit rate: the best static cache; negative: nobody knows */
};

struct chart {
	char on_miss[16];
	char outputs[CHART_OUTPUTS][16];
	uint64_t sizes[CHART_MAX];
	uint64_t clients[CHART_MAX]; /* these two in ascending order */
	struct chart_series series[CHART_MAX];
	unsigned n_outputs, n_sizes, n_clients, n_series;
	struct chart_bar *bars;	     /* of all outputs, sizes, clients and series; see chart_at() */
	uint64_t dataset, dram, ssd; /* bytes; the greatest of the cells */
	unsigned window, cpus;
	bool any_unknown; /* hits of which nobody knows the tier */
	char kernel[64];
};

/* What is drawn of a bar. */
struct chart_value {
	double dram, ssd, unknown; /* GiB/s */
	double hit_rate, bound;
};

/*
 * The chart of the cells of these files (objects as pressure writes them) that did that with a miss. *ret is NULL if
 * there are none. 0; -EBADMSG with the reason in e; -ENOMEM; -E2BIG: more than a picture can show.
 */
int chart_new(json_t *const *files, unsigned n, const char *on_miss, struct chart **ret, struct errmsg *e);
struct chart *chart_free(struct chart *c);

/* False: nobody measured that. */
bool chart_at(const struct chart *c, unsigned output, unsigned size, unsigned client, unsigned series,
	      struct chart_value *ret);
/* The highest bar of a panel, GiB/s. */
double chart_top(const struct chart *c, unsigned output, unsigned size);
/* The step between the marks of an axis from 0 to at least top, of about n of them: 1, 2 or 5 times a power of ten. */
double chart_step(double top, unsigned n);

#endif
