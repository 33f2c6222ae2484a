/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "tests/bench/draw.h"

#define THREADS 4u
#define KEYS_MAX 1000000u
#define GIB 1073741824.0

static const char *const output_names[OUTPUTS] = {[OUTPUT_HOLDER] = "holder", [OUTPUT_BYTES] = "bytes"};

void cell_layout(unsigned clients, unsigned *ret_processes, unsigned *ret_threads)
{
	*ret_threads = clients < THREADS ? clients : THREADS;
	*ret_processes = clients / *ret_threads;
}

unsigned cell_keys(uint64_t dataset, uint64_t size)
{
	uint64_t n = dataset / size;

	return n > KEYS_MAX ? KEYS_MAX : (unsigned)n;
}

unsigned cell_fitting(const struct cell *c, bool dram_only)
{
	uint64_t bytes = c->on->dram + (dram_only ? 0 : c->on->ssd), n = bytes / (c->size - CELL_LESS);

	return n > c->n_keys ? c->n_keys : (unsigned)n;
}

struct hits cell_attribute(const struct arena_tally *sum, const struct hits *counted)
{
	struct hits h = {.dram = sum->dram, .ssd = sum->ssd};

	if (!sum->counted)
		return h;
	if (counted->unknown || counted->dram + counted->ssd != sum->counted) {
		h.unknown = sum->counted;
		return h;
	}
	h.dram += counted->dram;
	h.ssd += counted->ssd;
	return h;
}

void cell_sum(struct cell *c, const struct arena *a)
{
	const struct arena_tally *t;

	for (unsigned i = 0; i < a->n_workers; i++) {
		t = &a->tallies[i];
		c->sum.dram += t->dram;
		c->sum.ssd += t->ssd;
		c->sum.counted += t->counted;
		c->sum.misses += t->misses;
		c->sum.errors += t->errors;
		c->sum.puts += t->puts;
		c->sum.refused += t->refused;
		hist_merge(&c->sum.latency, &t->latency);
	}
	for (unsigned i = 0; i < a->n_keys; i++)
		c->keys_missed += atomic_load(&a->keys[i].missed);
	c->hits = cell_attribute(&c->sum, &c->load.counted);
	memcpy(c->problem, a->text, sizeof(c->problem));
}

static uint64_t hits_of(const struct cell *c)
{
	return c->hits.dram + c->hits.ssd + c->hits.unknown;
}

static double rate(const struct cell *c, uint64_t hits)
{
	return c->load.window_s > 0 ? (double)hits * (double)(c->size - CELL_LESS) / c->load.window_s : 0;
}

/* Of the reads that were answered. */
static double hit_rate(const struct cell *c)
{
	uint64_t hits = hits_of(c), all = hits + c->sum.misses;

	return all ? (double)hits / (double)all : 0;
}

static const char *tiers_of(const struct cell *c)
{
	if (c->on->ops == &backend_dir)
		return "as-is";
	return c->on->with_ssd ? c->on->ops->only_ssd ? "cache+ssd" : "dram+ssd" : "dram";
}

/* The probability of the k keys that are put last. */
static int newest_share(const struct zipf *z, uint64_t seed, unsigned n, unsigned k, double *ret)
{
	unsigned *order = calloc(n, sizeof(*order));
	double sum = 0;

	if (!order)
		return -ENOMEM;
	draw_shuffle(seed, order, n);
	for (unsigned i = n - k; i < n; i++)
		sum += zipf_share(z, order[i] + 1) - zipf_share(z, order[i]);
	free(order);
	*ret = sum;
	return 0;
}

int cell_bounds(const struct cell *c, const struct zipf *z, uint64_t seed, struct cell_bounds *ret)
{
	unsigned fit = cell_fitting(c, false);
	struct cell_bounds b = {
	    .best = zipf_share(z, fit), .dram = zipf_share(z, cell_fitting(c, true)), .share = (double)fit / c->n_keys};
	int r;

	if (!c->on->dram && !c->on->ssd) {
		*ret = (struct cell_bounds){-1, -1, -1, -1};
		return 0;
	}
	r = newest_share(z, seed, c->n_keys, fit, &b.newest);
	if (r == 0)
		*ret = b;
	return r;
}

static json_t *bounds_json(const struct cell_bounds *b)
{
	if (b->best < 0)
		return json_null();
	return json_pack("{s:f, s:f, s:f, s:f}", "static", b->best, "dram", b->dram, "share", b->share, "newest",
			 b->newest);
}

static json_t *latency_json(const struct hist *h)
{
	const double s = 1e-9;

	return json_pack("{s:f, s:f, s:f, s:f}", "p50", s * (double)hist_percentile(h, 0.5), "p95",
			 s * (double)hist_percentile(h, 0.95), "p99", s * (double)hist_percentile(h, 0.99), "max",
			 s * (double)h->max);
}

#define I(v) ((json_int_t)(v))

static json_t *asked_json(const struct cell *c)
{
	unsigned processes, threads;

	cell_layout(c->clients, &processes, &threads);
	return json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:I, s:I, s:s}", "target",
			 c->on->ops->name, "tiers", tiers_of(c), "size", I(c->size), "payload", I(c->size - CELL_LESS),
			 "keys", (int)c->n_keys, "clients", (int)c->clients, "processes", (int)processes, "threads",
			 (int)threads, "output", output_names[c->output], "on_miss", c->put_missing ? "put" : "leave",
			 "run", (int)c->run, "dram", I(c->on->dram), "ssd", I(c->on->ssd), "attribution",
			 c->on->ops->how);
}

bool cell_is(const struct cell *c, json_t *j)
{
	json_t *asked = asked_json(c), *value;
	bool same = asked != NULL;
	const char *name;

	/* How hits are attributed is said in words, which may be put better in another version. */
	json_object_foreach (asked, name, value)
		if (strcmp(name, "attribution"))
			same = same && json_equal(value, json_object_get(j, name));
	json_decref(asked);
	return same;
}

static json_t *found_json(const struct cell *c, const struct cell_bounds *b)
{
	const struct arena_tally *s = &c->sum;

	return json_pack(
	    "{s:f, s:{s:I, s:I, s:I, s:I}, s:I, s:i, s:f, s:{s:f, s:f, s:f}, s:o, s:I, s:s, s:I, s:I, s:o, "
	    "s:{s:f, s:I}}",
	    "seconds", c->load.window_s, "hits", "total", I(hits_of(c)), "dram", I(c->hits.dram), "ssd", I(c->hits.ssd),
	    "unknown", I(c->hits.unknown), "misses", I(s->misses), "keys_missed", (int)c->keys_missed, "hit_rate",
	    hit_rate(c), "bytes_per_s", "total", rate(c, hits_of(c)), "dram", rate(c, c->hits.dram), "ssd",
	    rate(c, c->hits.ssd), "latency", latency_json(&s->latency), "errors", I(s->errors), "problem", c->problem,
	    "puts", I(s->puts), "refused", I(s->refused), "bound", bounds_json(b), "bootstrap", "seconds",
	    c->load.bootstrap_s, "refused", I(c->load.bootstrap_refused));
}

json_t *cell_json(const struct cell *c, const struct cell_bounds *b)
{
	json_t *j = asked_json(c), *found = found_json(c, b);

	if (j && (!found || json_object_update(j, found) < 0)) {
		json_decref(j);
		j = NULL;
	}
	json_decref(found);
	return j;
}

static const char *time_text(uint64_t ns, char buf[static 32])
{
	if (ns < 1000000)
		snprintf(buf, 32, "%.0f us", (double)ns / 1e3);
	else
		snprintf(buf, 32, ns < 100000000 ? "%.1f ms" : "%.0f ms", (double)ns / 1e6);
	return buf;
}

static const char *percent(double v, char buf[static 16])
{
	if (v < 0)
		return "-";
	snprintf(buf, 16, "%.1f%%", 100 * v);
	return buf;
}

void cell_print_head(FILE *f)
{
	fprintf(f, "%47s  %26s  %23s  %29s\n", "", "hit payload, GiB/s", "hit rate", "latency of a hit");
	fprintf(f, "%-9s %-9s %8s %4s %-6s %-5s  %8s %8s %8s  %7s %7s %7s  %9s %9s %9s  %6s %7s\n", "target", "tiers",
		"size", "by", "output", "miss", "all", "DRAM", "SSD", "is", "newest", "static", "p50", "p95", "p99",
		"errors", "unknown");
}

static void print_latencies(const struct hist *h, FILE *f)
{
	char p50[32], p95[32], p99[32];

	fprintf(f, "  %9s %9s %9s", time_text(hist_percentile(h, 0.5), p50), time_text(hist_percentile(h, 0.95), p95),
		time_text(hist_percentile(h, 0.99), p99));
}

void cell_print(const struct cell *c, const struct cell_bounds *b, FILE *f)
{
	char size[24], by[16], is[16], newest[16], best[16];

	snprintf(by, sizeof(by), "c%u", c->clients);
	fprintf(f, "%-9s %-9s %8s %4s %-6s %-5s", c->on->ops->name, tiers_of(c),
		size_format(c->size, size, sizeof(size)), by, output_names[c->output],
		c->put_missing ? "put" : "leave");
	fprintf(f, "  %8.3f %8.3f %8.3f", rate(c, hits_of(c)) / GIB, rate(c, c->hits.dram) / GIB,
		rate(c, c->hits.ssd) / GIB);
	fprintf(f, "  %7s %7s %7s", percent(hit_rate(c), is), percent(b->newest, newest), percent(b->best, best));
	print_latencies(&c->sum.latency, f);
	fprintf(f, "  %6llu %7llu\n", (unsigned long long)c->sum.errors, (unsigned long long)c->hits.unknown);
	if (c->load.bootstrap_refused)
		fprintf(f, "  puts of the bootstrap that were refused: %llu\n",
			(unsigned long long)c->load.bootstrap_refused);
	if (c->problem[0])
		fprintf(f, "  the first problem: %s\n", c->problem);
}
