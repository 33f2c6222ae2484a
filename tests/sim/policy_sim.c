/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays requests against store/policy.c and against well-known policies, and prints their hit rates in percent:
 *
 *   policy_sim [TRACE.jsonl]
 *
 * The trace has one JSON object a line with "hash_ids": block references. A request asks for its ids in order until
 * the first miss; that one and the rest are then stored. Deterministic: fixed seeds, no clock.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "common/list.h"
#include "store/policy.h"

#define PAGE UINT64_C(4096)
#define MIB (UINT64_C(1) << 20)
#define SKETCH_BITS 18
#define SKETCH_ROWS 4
#define LISTS 3

struct object {
	struct list link;
	struct policy_node node;
	uint64_t bytes;
	uint64_t ghost; /* s3-fifo as published: what had been evicted when this was, plus one */
	uint8_t list;
	uint8_t freq;
	bool resident;
};

struct sim {
	const struct contender *how;
	struct object *objects;
	size_t n;
	uint64_t capacity, used, evicted;
	struct list lists[LISTS];
	uint64_t list_bytes[LISTS];
	struct list *hand;     /* sieve */
	struct policy *policy; /* ours */
	uint8_t *sketch;       /* w-tinylfu */
	uint64_t sketch_added, sketch_max;
};

/* insert and hit are told of the object; evict makes room by at least one object. */
struct contender {
	const char *name;
	void (*insert)(struct sim *s, struct object *o);
	void (*hit)(struct sim *s, struct object *o);
	void (*evict)(struct sim *s, uint64_t bytes);
};

static void link_to(struct sim *s, struct object *o, uint8_t list)
{
	o->list = list;
	s->list_bytes[list] += o->bytes;
	list_add(&o->link, &s->lists[list]);
}

static void unlink_from(struct sim *s, struct object *o)
{
	s->list_bytes[o->list] -= o->bytes;
	list_del(&o->link);
}

static void relink(struct sim *s, struct object *o, uint8_t list)
{
	unlink_from(s, o);
	link_to(s, o, list);
}

static struct object *oldest(struct sim *s, uint8_t list)
{
	return list_empty(&s->lists[list]) ? NULL : container_of(s->lists[list].prev, struct object, link);
}

static void drop(struct sim *s, struct object *o)
{
	unlink_from(s, o);
	o->resident = false;
	s->used -= o->bytes;
}

/* fifo, lru */

static void insert_first(struct sim *s, struct object *o)
{
	o->freq = 0;
	link_to(s, o, 0);
}

static void hit_nothing(struct sim *s, struct object *o)
{
}

static void hit_to_front(struct sim *s, struct object *o)
{
	relink(s, o, 0);
}

static void evict_oldest(struct sim *s, uint64_t bytes)
{
	drop(s, oldest(s, 0));
}

/* clock with a counter, sieve */

static void hit_count(struct sim *s, struct object *o)
{
	if (o->freq < 3)
		o->freq++;
}

static void evict_clock(struct sim *s, uint64_t bytes)
{
	struct object *o = oldest(s, 0);

	for (; o->freq; o = oldest(s, 0)) {
		o->freq--;
		relink(s, o, 0);
	}
	drop(s, o);
}

static struct list *towards_front(struct sim *s, struct list *l)
{
	return l->prev == &s->lists[0] ? s->lists[0].prev : l->prev;
}

static void evict_sieve(struct sim *s, uint64_t bytes)
{
	struct list *l = s->hand ? s->hand : s->lists[0].prev;
	struct object *o;

	for (; (o = container_of(l, struct object, link))->freq; l = towards_front(s, l))
		o->freq = 0;
	s->hand = towards_front(s, l);
	if (s->hand == l)
		s->hand = NULL;
	drop(s, o);
}

/* s3-fifo with the parameters of its paper: 10 %, two accesses, a ghost as large as the main queue */

static void insert_s3(struct sim *s, struct object *o)
{
	bool known = o->ghost && s->evicted - (o->ghost - 1) <= s->capacity / 10 * 9;

	o->freq = 0;
	o->ghost = 0;
	link_to(s, o, known ? 1 : 0);
}

static void evict_s3(struct sim *s, uint64_t bytes)
{
	for (;;) {
		bool small = s->list_bytes[0] > s->capacity / 10 || !s->list_bytes[1];
		struct object *o = oldest(s, small ? 0 : 1);

		if (o->freq > (small ? 1 : 0)) {
			o->freq = small ? 0 : (uint8_t)(o->freq - 1);
			relink(s, o, 1);
			continue;
		}
		if (small) {
			s->evicted += o->bytes;
			o->ghost = s->evicted + 1;
		}
		drop(s, o);
		return;
	}
}

/* w-tinylfu: window of 1 %, main of 20 % probation and 80 % protected, a count-min sketch that halves itself */

static uint8_t *sketch_cell(struct sim *s, const struct object *o, unsigned row)
{
	uint64_t h = hash_u64((uint64_t)(o - s->objects) * SKETCH_ROWS + row + 1);

	return s->sketch + ((uint64_t)row << SKETCH_BITS) + (h >> (64 - SKETCH_BITS));
}

static uint8_t sketch_count(struct sim *s, const struct object *o)
{
	uint8_t least = UINT8_MAX;

	for (unsigned row = 0; row < SKETCH_ROWS; row++)
		if (*sketch_cell(s, o, row) < least)
			least = *sketch_cell(s, o, row);
	return least;
}

static void sketch_add(struct sim *s, const struct object *o)
{
	uint8_t count = sketch_count(s, o);

	for (unsigned row = 0; row < SKETCH_ROWS && count < 15; row++)
		if (*sketch_cell(s, o, row) == count)
			++*sketch_cell(s, o, row);
	if (++s->sketch_added < s->sketch_max)
		return;
	s->sketch_added /= 2;
	for (size_t i = 0; i < (size_t)SKETCH_ROWS << SKETCH_BITS; i++)
		s->sketch[i] /= 2;
}

static void insert_tinylfu(struct sim *s, struct object *o)
{
	sketch_add(s, o);
	link_to(s, o, 0);
	while (s->list_bytes[0] > s->capacity / 100 && oldest(s, 0) != o)
		relink(s, oldest(s, 0), 1);
}

static void hit_tinylfu(struct sim *s, struct object *o)
{
	sketch_add(s, o);
	relink(s, o, o->list == 0 ? 0 : 2);
	while (s->list_bytes[2] > s->capacity / 100 * 79)
		relink(s, oldest(s, 2), 1);
}

static void evict_tinylfu(struct sim *s, uint64_t bytes)
{
	struct object *candidate = s->list_bytes[0] + bytes > s->capacity / 100 ? oldest(s, 0) : NULL;
	struct object *victim = oldest(s, 1) ? oldest(s, 1) : oldest(s, 2);

	if (candidate && victim && sketch_count(s, candidate) > sketch_count(s, victim)) {
		relink(s, candidate, 1);
		candidate = victim;
	}
	if (!candidate)
		candidate = victim ? victim : oldest(s, 0);
	drop(s, candidate);
}

/* ours */

static void insert_ours(struct sim *s, struct object *o)
{
	list_init(&o->link);
	policy_insert(s->policy, &o->node, hash_u64((uint64_t)(o - s->objects) + 1), o->bytes);
}

static void hit_ours(struct sim *s, struct object *o)
{
	policy_access(&o->node);
}

static enum policy_verdict take_ours(void *arg, struct policy_node *node)
{
	struct sim *s = arg;
	struct object *o = container_of(node, struct object, node);

	o->resident = false;
	s->used -= o->bytes;
	return POLICY_TAKE;
}

static void evict_ours(struct sim *s, uint64_t bytes)
{
	policy_victims(s->policy, bytes, take_ours, s);
}

static const struct contender contenders[] = {
    {"fifo", insert_first, hit_nothing, evict_oldest},
    {"lru", insert_first, hit_to_front, evict_oldest},
    {"clock (3)", insert_first, hit_count, evict_clock},
    {"sieve", insert_first, hit_count, evict_sieve},
    {"w-tinylfu 1 %", insert_tinylfu, hit_tinylfu, evict_tinylfu},
    {"s3-fifo (paper)", insert_s3, hit_count, evict_s3},
    {"FluxKV", insert_ours, hit_ours, evict_ours},
};

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "policy_sim: no memory\n");
		exit(1);
	}
	return p;
}

/* All objects of the same size, or of 1, 2, 4, 8 and 16 MiB in turn by hash. */
static void sim_init(struct sim *s, const struct contender *how, size_t n, bool mixed, double share)
{
	uint64_t total = 0;

	*s = (struct sim){.how = how, .n = n, .objects = must(calloc(n, sizeof(*s->objects)))};
	for (size_t i = 0; i < n; i++)
		total += s->objects[i].bytes = mixed ? MIB << hash_u64(i + 1) % 5 : 4 * MIB;
	s->capacity = (uint64_t)((double)total * share) / PAGE * PAGE;
	for (int i = 0; i < LISTS; i++)
		list_init(&s->lists[i]);
	s->sketch = must(calloc(SKETCH_ROWS, (size_t)1 << SKETCH_BITS));
	s->sketch_max = (uint64_t)((double)n * share * 10) + 100;
	s->policy = must(policy_new(s->capacity));
}

static void sim_done(struct sim *s)
{
	policy_free(s->policy);
	free(s->sketch);
	free(s->objects);
}

static void sim_put(struct sim *s, size_t id)
{
	struct object *o = &s->objects[id];

	if (o->bytes > s->capacity)
		return;
	while (s->used + o->bytes > s->capacity)
		s->how->evict(s, s->used + o->bytes - s->capacity);
	s->how->insert(s, o);
	o->resident = true;
	s->used += o->bytes;
}

/* One request; true: a hit. A miss is stored. */
static bool sim_get(struct sim *s, size_t id)
{
	if (s->objects[id].resident) {
		s->how->hit(s, &s->objects[id]);
		return true;
	}
	sim_put(s, id);
	return false;
}

/* A reproducible Zipf law over a shuffled id space. */
struct zipf {
	double *sum; /* cumulated probability by rank */
	size_t *id;  /* id of a rank */
	size_t n;
	uint64_t state;
};

static double uniform(struct zipf *z)
{
	return (double)(hash_u64(++z->state * 0x9e3779b97f4a7c15ull) >> 11) * 0x1p-53;
}

static void zipf_init(struct zipf *z, size_t n, double exponent, uint64_t seed)
{
	double total = 0;

	*z = (struct zipf){must(calloc(n, sizeof(*z->sum))), must(calloc(n, sizeof(*z->id))), n, seed << 40};
	for (size_t i = 0; i < n; i++) {
		z->sum[i] = total += pow((double)(i + 1), -exponent);
		z->id[i] = i;
	}
	for (size_t i = 0; i < n; i++)
		z->sum[i] /= total;
	for (size_t i = n; i-- > 1;) {
		size_t j = (size_t)(uniform(z) * (double)(i + 1)), id = z->id[i];

		z->id[i] = z->id[j];
		z->id[j] = id;
	}
}

static void zipf_done(struct zipf *z)
{
	free(z->sum);
	free(z->id);
}

static size_t zipf_next(struct zipf *z)
{
	double x = uniform(z);
	size_t lo = 0, hi = z->n - 1;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (z->sum[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return z->id[lo];
}

static double zipf_rate(struct sim *s, struct zipf *z, size_t requests)
{
	size_t hits = 0;

	for (size_t i = 0; i < requests; i++)
		hits += sim_get(s, zipf_next(z));
	return 100.0 * (double)hits / (double)requests;
}

struct trace {
	size_t *ids; /* count, ids..., count, ids... */
	size_t len;
	size_t objects;
};

static void trace_add_line(struct trace *t, size_t *room, const char *line)
{
	json_t *root = json_loads(line, 0, NULL), *ids = json_object_get(root, "hash_ids"), *v;
	size_t i, n = json_array_size(ids);

	while (t->len + n + 1 > *room)
		t->ids = must(realloc(t->ids, (*room = *room * 2 + 1024) * sizeof(*t->ids)));
	t->ids[t->len++] = n;
	json_array_foreach (ids, i, v) {
		size_t id = (size_t)json_integer_value(v);

		t->ids[t->len++] = id;
		if (id >= t->objects)
			t->objects = id + 1;
	}
	json_decref(root);
}

static int trace_load(struct trace *t, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0, room = 0;

	if (!f)
		return -errno;
	while (getline(&line, &cap, f) > 0)
		trace_add_line(t, &room, line);
	free(line);
	fclose(f);
	return t->objects ? 0 : -EINVAL;
}

static double trace_rate(struct sim *s, const struct trace *t)
{
	size_t hits = 0, total = 0;

	for (size_t i = 0; i < t->len;) {
		size_t n = t->ids[i++];
		bool missed = false;

		for (size_t end = i + n; i < end; i++, total++) {
			bool hit = sim_get(s, t->ids[i]);

			missed |= !hit;
			hits += !missed;
		}
	}
	return 100.0 * (double)hits / (double)total;
}

static const double shares[] = {0.01, 0.05, 0.10, 0.25, 0.50};
#define SHARES (sizeof(shares) / sizeof(shares[0]))

static void row_trace(const struct contender *how, const void *arg)
{
	const struct trace *t = arg;
	struct sim s;

	for (size_t i = 0; i < SHARES; i++) {
		sim_init(&s, how, t->objects, false, shares[i]);
		printf(" %7.2f", trace_rate(&s, t));
		sim_done(&s);
	}
}

static void row_zipf(const struct contender *how, const void *arg)
{
	bool mixed = *(const bool *)arg;
	struct zipf z;
	struct sim s;

	for (size_t i = 0; i < SHARES; i++) {
		sim_init(&s, how, 100000, mixed, shares[i]);
		zipf_init(&z, s.n, 0.99, 1);
		printf(" %7.2f", zipf_rate(&s, &z, 2000000));
		zipf_done(&z);
		sim_done(&s);
	}
}

/* What keeping the most popular objects that fit, and never changing them, would give. */
static double best_static(const struct sim *s, const struct zipf *z)
{
	uint64_t room = s->capacity / s->objects[0].bytes;

	return room ? 100 * z->sum[room - 1] : 0;
}

/* 2.5 GiB through 2 GiB: bootstrap puts, then misses are put again; points above (below) the best static cache. */
static void row_pressure(const struct contender *how, const void *arg)
{
	static const size_t keys[] = {2560, 640, 320, 160};
	struct zipf z;
	struct sim s;

	for (size_t i = 0; i < 4; i++) {
		double diff = 0;

		for (uint64_t seed = 1; seed <= 5; seed++) {
			sim_init(&s, how, keys[i], false, 0.8);
			zipf_init(&z, s.n, 0.99, seed);
			for (size_t k = 0; k < s.n; k++)
				sim_put(&s, k);
			zipf_rate(&s, &z, 50000);
			diff += zipf_rate(&s, &z, 200000) - best_static(&s, &z);
			zipf_done(&z);
			sim_done(&s);
		}
		printf(" %7.2f", diff / 5);
	}
}

/* Before, and right after, a bulk load of twice the capacity that nobody reads. */
static void row_scan(const struct contender *how, const void *arg)
{
	struct zipf z;
	struct sim s;
	size_t n = 20000;

	/* the ids behind the Zipf law's are the bulk load's */
	sim_init(&s, how, n * 2, false, 0.1);
	zipf_init(&z, n, 0.99, 1);
	zipf_rate(&s, &z, 200000);
	printf(" %7.2f", zipf_rate(&s, &z, 50000));
	for (size_t i = 0; i < n * 2 / 5; i++)
		sim_put(&s, n + i);
	printf(" %7.2f", zipf_rate(&s, &z, 4000));
	zipf_done(&z);
	sim_done(&s);
}

static void table(const char *title, const char *columns, void (*row)(const struct contender *, const void *),
		  const void *arg)
{
	printf("\n%s\n%-16s%s\n", title, "", columns);
	for (size_t i = 0; i < sizeof(contenders) / sizeof(contenders[0]); i++) {
		printf("%-16s", contenders[i].name);
		row(&contenders[i], arg);
		printf("\n");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static const char share_columns[] = "     1 %     5 %    10 %    25 %    50 %";
	struct trace t = {0};
	bool mixed = false;
	int r;

	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		fprintf(stderr, "usage: policy_sim [TRACE.jsonl]\n");
		return 2;
	}
	if (argc == 2) {
		r = trace_load(&t, argv[1]);
		if (r < 0) {
			fprintf(stderr, "policy_sim: %s: %s\n", argv[1], strerror(-r));
			return 1;
		}
		table("conversation trace, cache as a share of the distinct blocks", share_columns, row_trace, &t);
		free(t.ids);
	}
	table("Zipf 0.99, 100,000 objects of one size, 2 million requests", share_columns, row_zipf, &mixed);
	mixed = true;
	table("the same, objects of 1 to 16 MiB", share_columns, row_zipf, &mixed);
	table("2.5 GiB through 2 GiB, points above the best static cache", "   1 MiB   4 MiB   8 MiB  16 MiB",
	      row_pressure, NULL);
	table("a bulk load of twice the cache", "  before   after", row_scan, NULL);
	return 0;
}
