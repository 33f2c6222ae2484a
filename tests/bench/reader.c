/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/bench/draw.h"
#include "tests/bench/ident.h"
#include "tests/bench/stop.h"

int reader_init(struct reader *r, const struct load *l, struct session *s, unsigned worker)
{
	*r = (struct reader){.l = l, .s = s, .tally = &l->arena->tallies[worker], .stream = worker};
	r->buf = l->put_missing ? malloc(l->payload) : NULL;
	return l->put_missing && !r->buf ? -ENOMEM : 0;
}

void reader_free(struct reader *r)
{
	free(r->buf);
}

int reader_put(const struct load *l, struct session *s, unsigned key, char *buf, struct arena_tally *t)
{
	struct arena_key *k = &l->arena->keys[key];
	struct ident id = {.key = key, .version = atomic_fetch_add(&k->started, 1) + 1};
	int r;

	ident_fill(buf, l->payload, l->seed, &id);
	r = l->backend->ops->put(s, key, buf, l->payload);
	if (r == -ENOSPC) {
		t->refused++;
		return 0;
	}
	if (r < 0)
		return r;
	t->puts++;
	atomic_store(&k->published, (unsigned)id.version);
	return 0;
}

static void wrong(struct reader *r, unsigned key, const char *what, unsigned long long a, unsigned long long b)
{
	r->tally->errors++;
	arena_tell(r->l->arena, "key %u: %s %llu, not %llu", key, what, a, b);
}

/*
 * Whether these are the bytes of that key, of a version that a reader may see: none older than what was published
 * before it asked, none that nobody has begun to put.
 */
static bool is_right(struct reader *r, unsigned key, const struct got *g, unsigned published)
{
	const struct load *l = r->l;
	unsigned started = atomic_load(&l->arena->keys[key].started);
	struct ident id;

	if (g->len != l->payload)
		wrong(r, key, "the length is", g->len, l->payload);
	else if (ident_read(g->data, g->len, l->seed, &id) < 0)
		wrong(r, key, "the first and the last bytes are not those of one value of length", g->len, g->len);
	else if (id.key != key)
		wrong(r, key, "the bytes are those of key", id.key, key);
	else if (id.version < published)
		wrong(r, key, "an old version,", id.version, published);
	else if (id.version > started)
		wrong(r, key, "a version that was never put,", id.version, started);
	else
		return true;
	return false;
}

static void count_hit(struct arena_tally *t, const struct got *g, uint64_t ns)
{
	t->dram += g->from == FROM_DRAM;
	t->ssd += g->from == FROM_SSD;
	t->counted += g->from == FROM_COUNTED;
	hist_add(&t->latency, ns);
}

/* With --verify: all bytes, off the clock. */
static bool is_whole(struct reader *r, unsigned key, const struct got *g)
{
	struct ident id;
	uint64_t bad = 0;

	if (!r->l->verify)
		return true;
	if (ident_read(g->data, g->len, r->l->seed, &id) == 0 && ident_check(g->data, g->len, r->l->seed, &id, &bad))
		return true;
	wrong(r, key, "a wrong byte at offset", bad, g->len);
	return false;
}

/* One of those who miss a key puts it; the others go on meanwhile. */
static void put_missing(struct reader *r, unsigned key)
{
	struct arena_key *k = &r->l->arena->keys[key];
	int err;

	if (atomic_flag_test_and_set(&k->busy))
		return;
	err = reader_put(r->l, r->s, key, r->buf, r->tally);
	atomic_flag_clear(&k->busy);
	if (err < 0) {
		r->tally->errors++;
		arena_tell(r->l->arena, "key %u: cannot be put again: %s", key, strerror(-err));
	}
}

/* The clock stops when both ends of the value were looked at: then it is surely there. */
static void read_key(struct reader *r, unsigned key)
{
	unsigned published = atomic_load(&r->l->arena->keys[key].published);
	struct got g = {0};
	uint64_t start = clock_ns(), ns;
	int err = r->l->backend->ops->get(r->s, key, r->l->output, &g);
	bool right = err == 0 && is_right(r, key, &g, published);

	ns = clock_ns() - start;
	if (right && is_whole(r, key, &g))
		count_hit(r->tally, &g, ns);
	if (err == 0)
		r->l->backend->ops->release(r->s, &g);
	if (err == -ENOENT) {
		r->tally->misses++;
		atomic_store(&r->l->arena->keys[key].missed, true);
		if (r->l->put_missing)
			put_missing(r, key);
	} else if (err < 0) {
		r->tally->errors++;
		arena_tell(r->l->arena, "key %u: cannot be read: %s", key, strerror(-err));
	}
}

void reader_run(struct reader *r)
{
	const struct load *l = r->l;

	while (!stop_wanted() && clock_ns() < atomic_load(&l->arena->until))
		read_key(r, zipf_key(l->zipf, draw_uniform(l->seed, r->stream, r->drawn++)));
	r->tally->ended = clock_ns();
}
