/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

/* One cell, as far as a picture needs it; the strings are the JSON's. */
struct entry {
	const char *target, *tiers, *output, *on_miss;
	json_int_t size, clients, dram_limit, ssd_limit;
	double dram, ssd, unknown, hit_rate, bound;
};

static int read_entry(const json_t *cell, struct entry *ret)
{
	struct entry x = {.bound = -1};
	double total;

	if (json_unpack((json_t *)(uintptr_t)cell, "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:{s:F, s:F, s:F}, s:F}",
			"target", &x.target, "tiers", &x.tiers, "output", &x.output, "on_miss", &x.on_miss, "size",
			&x.size, "clients", &x.clients, "dram", &x.dram_limit, "ssd", &x.ssd_limit, "bytes_per_s",
			"dram", &x.dram, "ssd", &x.ssd, "total", &total, "hit_rate", &x.hit_rate) < 0)
		return -EBADMSG;
	x.unknown = total - x.dram - x.ssd;
	if (x.unknown < 1)
		x.unknown = 0; /* rounding */
	if (x.size <= 0 || x.clients <= 0 || x.dram_limit < 0 || x.ssd_limit < 0 || !(x.dram >= 0) || !(x.ssd >= 0) ||
	    !(x.hit_rate >= 0 && x.hit_rate <= 1))
		return -EBADMSG;
	/* Without it, the bound stays as it is. */
	json_unpack((json_t *)(uintptr_t)cell, "{s:{s:F}}", "bound", "static", &x.bound);
	*ret = x;
	return 0;
}

/* The index of the number in the list, where it is put if it is not there. */
static int place_number(uint64_t *list, unsigned *n, uint64_t v)
{
	unsigned i = 0;

	while (i < *n && list[i] != v)
		i++;
	if (i == CHART_MAX)
		return -E2BIG;
	list[i] = v;
	*n += i == *n;
	return (int)i;
}

static int place_output(struct chart *c, const char *output)
{
	unsigned i = 0;

	while (i < c->n_outputs && strcmp(c->outputs[i], output))
		i++;
	if (i == CHART_OUTPUTS)
		return -E2BIG;
	snprintf(c->outputs[i], sizeof(c->outputs[i]), "%s", output);
	c->n_outputs += i == c->n_outputs;
	return (int)i;
}

static int place_series(struct chart *c, const char *target, const char *tiers)
{
	struct chart_series *s = c->series;
	unsigned i = 0;

	while (i < c->n_series && (strcmp(s[i].target, target) || strcmp(s[i].tiers, tiers)))
		i++;
	if (i == CHART_MAX)
		return -E2BIG;
	snprintf(s[i].target, sizeof(s[i].target), "%s", target);
	snprintf(s[i].tiers, sizeof(s[i].tiers), "%s", tiers);
	c->n_series += i == c->n_series;
	return (int)i;
}

static struct chart_bar *bar_of(const struct chart *c, unsigned output, unsigned size, unsigned client, unsigned series)
{
	return &c->bars[((output * CHART_MAX + size) * CHART_MAX + client) * CHART_MAX + series];
}

static int place_axes(struct chart *c, const struct entry *x)
{
	return place_number(c->sizes, &c->n_sizes, (uint64_t)x->size) < 0 ||
		       place_number(c->clients, &c->n_clients, (uint64_t)x->clients) < 0
		   ? -E2BIG
		   : 0;
}

static int add_entry(struct chart *c, const struct entry *x)
{
	int output = place_output(c, x->output), series = place_series(c, x->target, x->tiers), r;
	int size = place_number(c->sizes, &c->n_sizes, (uint64_t)x->size);
	int client = place_number(c->clients, &c->n_clients, (uint64_t)x->clients);
	struct chart_bar *bar;

	if (output < 0 || size < 0 || client < 0 || series < 0)
		return -E2BIG;
	bar = bar_of(c, (unsigned)output, (unsigned)size, (unsigned)client, (unsigned)series);
	bar->bound = x->bound;
	c->dram = (uint64_t)x->dram_limit > c->dram ? (uint64_t)x->dram_limit : c->dram;
	c->ssd = (uint64_t)x->ssd_limit > c->ssd ? (uint64_t)x->ssd_limit : c->ssd;
	r = samples_add(&bar->dram, x->dram);
	if (r == 0)
		r = samples_add(&bar->ssd, x->ssd);
	if (r == 0)
		r = samples_add(&bar->unknown, x->unknown);
	c->any_unknown |= x->unknown > 0;
	return r < 0 ? r : samples_add(&bar->hit_rate, x->hit_rate);
}

/* What the caption says. Files that do not have it are taken all the same. */
static void read_head(struct chart *c, json_t *file)
{
	json_int_t dataset = 0;
	const char *kernel = "";
	int window = 0, cpus = 0;

	json_unpack(file, "{s:{s:I, s:i}}", "workload", "dataset", &dataset, "window", &window);
	json_unpack(file, "{s:{s:s, s:i}}", "machine", "kernel", &kernel, "cpus", &cpus);
	c->dataset = dataset > 0 ? (uint64_t)dataset : 0;
	c->window = window > 0 ? (unsigned)window : 0;
	c->cpus = cpus > 0 ? (unsigned)cpus : 0;
	snprintf(c->kernel, sizeof(c->kernel), "%s", kernel);
}

/* Does that with each cell of the file that the chart is about. */
static int each_cell(struct chart *c, json_t *file, int (*fn)(struct chart *c, const struct entry *x), struct errmsg *e)
{
	struct entry x;
	json_t *cell;
	size_t i;
	int r = 0;

	json_array_foreach (json_object_get(file, "cells"), i, cell) {
		if (read_entry(cell, &x) < 0)
			return errmsg_set(e, -EBADMSG, "cell %zu is not as fluxkv-bench writes it", i);
		if (strcmp(x.on_miss, c->on_miss))
			continue;
		read_head(c, file);
		r = fn(c, &x);
		if (r < 0)
			return errmsg_set(e, r, r == -E2BIG ? "more of a kind than a picture can show" : "no memory");
	}
	return r;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int chart_new(json_t *const *files, unsigned n, const char *on_miss, struct chart **ret, struct errmsg *e)
{
	struct chart *c = calloc(1, sizeof(*c));
	int r = 0;

	if (c)
		c->bars = calloc(CHART_OUTPUTS * CHART_MAX * CHART_MAX * CHART_MAX, sizeof(*c->bars));
	if (!c || !c->bars) {
		free(c);
		return errmsg_set(e, -ENOMEM, "no memory");
	}
	snprintf(c->on_miss, sizeof(c->on_miss), "%s", on_miss);
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = each_cell(c, files[i], place_axes, e);
	qsort(c->sizes, c->n_sizes, sizeof(c->sizes[0]), ascending);
	qsort(c->clients, c->n_clients, sizeof(c->clients[0]), ascending);
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = each_cell(c, files[i], add_entry, e);
	if (r < 0 || !c->n_series)
		c = chart_free(c);
	if (r == 0)
		*ret = c;
	return r;
}

struct chart *chart_free(struct chart *c)
{
	struct chart_bar *bar;

	if (!c)
		return NULL;
	for (unsigned i = 0; i < CHART_OUTPUTS * CHART_MAX * CHART_MAX * CHART_MAX; i++) {
		bar = &c->bars[i];
		samples_free(&bar->dram);
		samples_free(&bar->ssd);
		samples_free(&bar->unknown);
		samples_free(&bar->hit_rate);
	}
	free(c->bars);
	free(c);
	return NULL;
}

bool chart_at(const struct chart *c, unsigned output, unsigned size, unsigned client, unsigned series,
	      struct chart_value *ret)
{
	const struct chart_bar *bar = bar_of(c, output, size, client, series);
	struct chart_value v = {.bound = bar->bound};

	if (!bar->hit_rate.n || samples_median(&bar->dram, &v.dram) < 0 || samples_median(&bar->ssd, &v.ssd) < 0 ||
	    samples_median(&bar->unknown, &v.unknown) < 0 || samples_median(&bar->hit_rate, &v.hit_rate) < 0)
		return false;
	v.dram /= GIB;
	v.ssd /= GIB;
	v.unknown /= GIB;
	*ret = v;
	return true;
}

double chart_top(const struct chart *c, unsigned output, unsigned size)
{
	struct chart_value v;
	double top = 0;

	for (unsigned client = 0; client < c->n_clients; client++)
		for (unsigned series = 0; series < c->n_series; series++)
			if (chart_at(c, output, size, client, series, &v) && v.dram + v.ssd + v.unknown > top)
				top = v.dram + v.ssd + v.unknown;
	return top;
}

double chart_step(double top, unsigned n)
{
	double step = top > 0 ? top / n : 1, power = pow(10, floor(log10(step)));

	/* A little more than what is needed is not more steps: 0.1 + 0.2 is. */
	step /= power * (1 + 1e-9);
	return power * (step <= 1 ? 1 : step <= 2 ? 2 : step <= 5 ? 5 : 10);
}
