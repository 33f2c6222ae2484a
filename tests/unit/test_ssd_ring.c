/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring against a plain reference. A "disk" of block owners is written when an entry is committed and when a copy
 * to head ends; a value is intact when all blocks of its range still name it. FLUXKV_TEST_SEED=n replays one seed.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "ssd/ring.h"

#define ALIGN 512u
#define BLOCKS 64u
#define OBJECTS 48u
#define STEPS 6000

struct object {
	bool used;
	struct ssd_key key;
	uint32_t entry;
	uint64_t len;
	unsigned pins, holds;
	bool writing, committed, commit_pin, drop;
	bool dead; /* killed or evicted: only its pins remain */
};

static struct ssd_index ix;
static struct ssd_ring ring;
static struct object objects[OBJECTS];
static uint64_t disk[BLOCKS]; /* the id whose bytes lie there */
static struct ssd_move move;
static bool moving;
static uint64_t next_id, seed, rng, gone_count, copy_count, keep_count, busy_count, held_count;

static uint64_t rnd(uint64_t n)
{
	rng += 0x9e3779b97f4a7c15ull;
	return hash_u64(rng) % n;
}

/* ck_assert() tells the parent process each time, which is slow. */
#define ok(cond)                                                                                                       \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			ck_abort_msg("line %d, FLUXKV_TEST_SEED=%llu: %s", __LINE__, (unsigned long long)seed, #cond); \
	} while (0)

static struct object *by_key(struct ssd_key key)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		if (objects[i].used && objects[i].key.id == key.id)
			return &objects[i];
	return NULL;
}

/* Tail has taken it: it must have been allowed to, and there must have been nothing older that it could have taken. */
static void on_gone(void *arg, struct ssd_key key)
{
	struct object *o = by_key(key);

	ok(o && o->committed && !o->dead);
	ok(!o->holds && !o->commit_pin);
	for (unsigned i = 0; i < OBJECTS; i++) {
		const struct object *p = &objects[i];

		if (p->used && !p->dead && p != o)
			ok(p->holds || ssd_entry(&ix, p->entry)->begin > ssd_entry(&ix, o->entry)->begin);
	}
	o->dead = true;
	gone_count++;
}

/* One that is in use, or NULL. */
static struct object *pick(void)
{
	unsigned from = (unsigned)rnd(OBJECTS);

	for (unsigned i = 0; i < OBJECTS; i++)
		if (objects[(from + i) % OBJECTS].used)
			return &objects[(from + i) % OBJECTS];
	return NULL;
}

static unsigned blocks_of(const struct object *o)
{
	return (unsigned)((o->len + ALIGN - 1) / ALIGN);
}

static unsigned first_block(const struct object *o)
{
	uint64_t off = ssd_ring_offset(&ring, ssd_entry(&ix, o->entry));

	ok(off % ALIGN == 0 && off / ALIGN + blocks_of(o) <= BLOCKS);
	return (unsigned)(off / ALIGN);
}

static void write_disk(const struct object *o)
{
	for (unsigned b = 0; b < blocks_of(o); b++)
		disk[first_block(o) + b] = o->key.id;
}

/* A range that was just given out belongs to nobody whose bytes are still needed. */
static void check_range_free(const struct object *o)
{
	unsigned from = first_block(o), to = from + blocks_of(o);

	for (unsigned i = 0; i < OBJECTS; i++) {
		const struct object *p = &objects[i];

		if (!p->used || p == o || (p->dead && !p->pins))
			continue;
		ok(first_block(p) >= to || first_block(p) + blocks_of(p) <= from);
	}
}

static void check_all(void)
{
	uint64_t used = 0, held = 0, entries = 0;

	for (unsigned i = 0; i < OBJECTS; i++) {
		struct object *o = &objects[i];

		if (!o->used)
			continue;
		if (!o->dead) {
			used += blocks_of(o) * ALIGN;
			held += o->holds ? blocks_of(o) * ALIGN : 0;
			entries++;
			ok(ssd_index_find(&ix, o->key) == o->entry);
			ok(ssd_ring_valid(&ring, o->entry));
		} else {
			ok(ssd_index_find(&ix, o->key) == SSD_NIL);
		}
		for (unsigned b = 0; o->committed && (!o->dead || o->pins) && b < blocks_of(o); b++)
			ok(disk[first_block(o) + b] == o->key.id);
		if (o->dead && !o->pins)
			o->used = false;
	}
	ok(ring.used == used);
	ok(ring.held == held);
	ok(ring.entries == entries);
	ok(ring.head - ring.tail <= ring.size);
}

static void end_move(bool good)
{
	struct object *o = by_key(ssd_entry_key(ssd_entry(&ix, move.from)));
	const struct ssd_entry *from = ssd_entry(&ix, move.from), *to = ssd_entry(&ix, move.to);
	uint64_t n = ssd_ring_alen(&ring, from) / ALIGN, a = ssd_ring_offset(&ring, from) / ALIGN,
		 b = ssd_ring_offset(&ring, to) / ALIGN;

	if (good)
		memmove(&disk[b], &disk[a], n * sizeof(disk[0]));
	if (good && o && !o->dead && o->entry == move.from) {
		/* Readers that pinned the old place keep it; this model has them unpin first. */
		ok(o->pins == 0);
		o->entry = move.to;
	}
	ssd_ring_moved(&ring, &move, good);
	moving = false;
}

static bool anything_pins(void)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		if (objects[i].used && (objects[i].pins || objects[i].commit_pin || objects[i].writing))
			return true;
	return moving;
}

static uint64_t random_len(void)
{
	switch (rnd(8)) {
	case 0:
		return 1 + rnd(BLOCKS * ALIGN);
	case 1:
		return (1 + rnd(8)) * ALIGN;
	default:
		return 1 + rnd(6 * ALIGN);
	}
}

static int try_reserve(struct object *o, bool force)
{
	int r = ssd_ring_reserve(&ring, o->entry, force, &move);

	if (r == 1) {
		moving = true;
		copy_count++;
	} else if (r == -EBUSY) {
		busy_count++;
		ok(anything_pins());
	} else if (r == -ENOSPC) {
		held_count++;
		ok(ring.held > 0);
		if (force && !anything_pins())
			ok(blocks_of(o) * ALIGN * 2 + ring.held * 2 > ring.size);
	} else {
		ok(r == 0);
	}
	return r;
}

static void step_write(void)
{
	struct object *o = NULL;
	bool force = rnd(2);

	for (unsigned i = 0; i < OBJECTS && !o; i++)
		o = objects[i].used ? NULL : &objects[i];
	if (!o)
		return;
	*o = (struct object){.key = {.id = ++next_id}, .len = random_len()};
	ok(!ssd_index_new(&ix, o->key, &o->entry));
	ssd_entry(&ix, o->entry)->len = o->len;
	ok(!ssd_index_insert(&ix, o->entry));
	for (int r; (r = try_reserve(o, force));) {
		if (r == 1 && rnd(2)) {
			struct object *m = by_key(ssd_entry_key(ssd_entry(&ix, move.from)));

			if (m && !m->pins) {
				end_move(rnd(4));
				check_all();
				continue;
			}
		}
		ssd_index_remove(&ix, o->entry);
		ssd_index_release(&ix, o->entry);
		return;
	}
	o->used = o->writing = true;
	o->pins = 1;
	check_range_free(o);
}

static void step_end_write(struct object *o)
{
	if (!o->writing)
		return;
	o->writing = false;
	o->pins--;
	if (!o->dead && rnd(8)) {
		write_disk(o);
		ssd_ring_commit(&ring, o->entry, o->key.id);
		o->committed = o->commit_pin = true;
	} else if (!o->dead) {
		ssd_ring_kill(&ring, o->entry);
		o->dead = true;
	}
	ssd_ring_unpin(&ring, o->entry);
}

static void step_read(struct object *o)
{
	if (o->committed && !o->dead && !o->pins) {
		ssd_entry(&ix, o->entry)->pins++;
		o->pins++;
	} else if (o->committed && o->pins) {
		o->pins--;
		ssd_ring_unpin(&ring, o->entry);
	}
}

static void step_hold(struct object *o)
{
	if (!o->committed || o->dead)
		return;
	if (o->holds && rnd(4)) {
		ssd_ring_unhold(&ring, o->entry);
		if (!--o->holds && o->drop)
			o->dead = true;
	} else if (!rnd(3) && (ring.held < ring.size / 2 || !rnd(4))) {
		ssd_ring_hold(&ring, o->entry);
		o->holds++;
	}
}

static void step_drop(struct object *o)
{
	if (o->dead || rnd(4))
		return;
	if (o->holds) {
		ssd_entry(&ix, o->entry)->drop = 1;
		o->drop = true;
		return;
	}
	ssd_ring_kill(&ring, o->entry);
	o->dead = true;
}

static void step(void)
{
	struct object *o = pick();
	uint64_t what = rnd(16);

	if (what < 4) {
		step_write();
	} else if (moving && what == 4) {
		struct object *m = by_key(ssd_entry_key(ssd_entry(&ix, move.from)));

		if (!m || !m->pins)
			end_move(rnd(4));
	} else if (!o) {
		return;
	} else if (what < 8) {
		step_end_write(o);
	} else if (what < 10 && (o->pins || rnd(2))) {
		step_read(o);
	} else if (what == 10) {
		step_hold(o);
	} else if (what < 15 && o->commit_pin && !o->dead) {
		ssd_entry(&ix, o->entry)->commit_pin = 0;
		o->commit_pin = false;
	} else if (what == 15) {
		step_drop(o);
	}
}

/* Everything lets go: the ledger is 0, and the largest value fits. */
static void wind_down(void)
{
	struct object *o;

	for (unsigned i = 0; i < OBJECTS; i++) {
		o = &objects[i];
		if (o->used && o->writing)
			step_end_write(o);
		while (o->used && o->pins)
			step_read(o);
	}
	if (moving)
		end_move(true);
	check_all();
	for (unsigned i = 0; i < OBJECTS; i++) {
		o = &objects[i];
		while (o->used && !o->dead && o->holds) {
			ssd_ring_unhold(&ring, o->entry);
			o->dead = !--o->holds && o->drop;
		}
		if (o->used && !o->dead) {
			ssd_ring_kill(&ring, o->entry);
			o->dead = true;
		}
	}
	check_all();
	ok(ssd_ring_empty(&ring) && !ring.used && !ring.held && !ring.entries);
	o = &objects[0];
	*o = (struct object){.key = {.id = ++next_id}, .len = BLOCKS * ALIGN};
	ok(!ssd_index_new(&ix, o->key, &o->entry));
	ssd_entry(&ix, o->entry)->len = o->len;
	ok(!ssd_index_insert(&ix, o->entry));
	ok(ssd_ring_reserve(&ring, o->entry, false, &move) == 0);
}

static void run_seed(uint64_t n)
{
	seed = n;
	rng = hash_u64(n);
	memset(objects, 0, sizeof(objects));
	memset(disk, 0, sizeof(disk));
	moving = false;
	ck_assert_int_eq(ssd_index_init(&ix, 8192), 0);
	ssd_ring_init(&ring, &ix, 0, BLOCKS * ALIGN, ALIGN, on_gone, NULL);
	for (int i = 0; i < STEPS; i++) {
		step();
		check_all();
	}
	keep_count += ring.kept_in_place;
	wind_down();
	ssd_index_free(&ix);
}

START_TEST(model)
{
	const char *one = getenv("FLUXKV_TEST_SEED");
	const char *count = getenv("FLUXKV_TEST_SEEDS");
	uint64_t n = count ? strtoull(count, NULL, 10) : 60;

	if (one) {
		run_seed(strtoull(one, NULL, 10));
		return;
	}
	for (uint64_t i = 1; i <= n; i++)
		run_seed(i);
	/* Each way of going on was gone often enough to be worth something. */
	ck_assert_uint_gt(gone_count, n * 50);
	ck_assert_uint_gt(busy_count, n * 50);
	ck_assert_uint_gt(copy_count, n * 5);
	ck_assert_uint_gt(keep_count, n * 5);
	ck_assert_uint_gt(held_count, n / 2);
}
END_TEST

static uint32_t put_entry(uint64_t id, uint64_t len, bool committed)
{
	struct ssd_move m;
	uint32_t i;

	ck_assert_int_eq(ssd_index_new(&ix, (struct ssd_key){.id = id}, &i), 0);
	ssd_entry(&ix, i)->len = len;
	ck_assert_int_eq(ssd_index_insert(&ix, i), 0);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, false, &m), 0);
	if (committed) {
		ssd_ring_commit(&ring, i, 0);
		ssd_entry(&ix, i)->commit_pin = 0;
		ssd_ring_unpin(&ring, i);
	}
	return i;
}

static uint64_t last_gone;

static void note_gone(void *arg, struct ssd_key key)
{
	last_gone = key.id;
}

/* A value that does not fit before the end begins again at 0, and tail takes what it needs and no more. */
START_TEST(wrap)
{
	uint32_t i;

	ck_assert_int_eq(ssd_index_init(&ix, 100), 0);
	ssd_ring_init(&ring, &ix, 0, 10 * ALIGN, ALIGN, note_gone, NULL);
	put_entry(1, 4 * ALIGN, true);
	put_entry(2, 4 * ALIGN, true);
	i = put_entry(3, 3 * ALIGN - 5, true);
	ck_assert_uint_eq(ssd_ring_offset(&ring, ssd_entry(&ix, i)), 0);
	ck_assert_uint_eq(last_gone, 1);
	ck_assert_uint_ne(ssd_index_find(&ix, (struct ssd_key){.id = 2}), SSD_NIL);
	ck_assert_uint_eq(ring.used, 7 * ALIGN);
	ssd_index_free(&ix);
}
END_TEST

/* A value that is always being read does not stop the ring: it takes no new readers, and goes with the last. */
START_TEST(read_pin_runs_out)
{
	uint32_t a, i;
	struct ssd_move m;

	ck_assert_int_eq(ssd_index_init(&ix, 100), 0);
	ssd_ring_init(&ring, &ix, 0, 4 * ALIGN, ALIGN, note_gone, NULL);
	a = put_entry(1, 4 * ALIGN, true);
	ssd_entry(&ix, a)->pins = 2;
	ck_assert_int_eq(ssd_index_new(&ix, (struct ssd_key){.id = 2}, &i), 0);
	ssd_entry(&ix, i)->len = ALIGN;
	ck_assert_int_eq(ssd_index_insert(&ix, i), 0);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, false, &m), -EBUSY);
	ck_assert_uint_eq(last_gone, 1);
	ck_assert_uint_eq(ssd_index_find(&ix, (struct ssd_key){.id = 1}), SSD_NIL);
	ck_assert(ssd_ring_valid(&ring, a));
	ssd_ring_unpin(&ring, a);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, false, &m), -EBUSY);
	ssd_ring_unpin(&ring, a);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, false, &m), 0);
	ssd_index_free(&ix);
}
END_TEST

/* With more than half held, a write that may be dropped is; one that may not takes what is left. */
START_TEST(mostly_held)
{
	struct ssd_move m;
	uint32_t i;

	ck_assert_int_eq(ssd_index_init(&ix, 100), 0);
	ssd_ring_init(&ring, &ix, 0, 10 * ALIGN, ALIGN, note_gone, NULL);
	ssd_ring_hold(&ring, put_entry(1, 6 * ALIGN, true));
	put_entry(2, 4 * ALIGN, true);
	ck_assert_int_eq(ssd_index_new(&ix, (struct ssd_key){.id = 3}, &i), 0);
	ssd_entry(&ix, i)->len = 3 * ALIGN;
	ck_assert_int_eq(ssd_index_insert(&ix, i), 0);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, false, &m), -ENOSPC);
	ck_assert_int_eq(ssd_ring_reserve(&ring, i, true, &m), 0);
	ck_assert_uint_eq(last_gone, 2);
	ck_assert_uint_eq(ring.kept_in_place, 1);
	ck_assert_uint_ne(ssd_index_find(&ix, (struct ssd_key){.id = 1}), SSD_NIL);
	ssd_index_free(&ix);
}
END_TEST

/* The hash against a plain array: a million random insertions and removals would find a hole that was closed wrongly.
 */
START_TEST(hash)
{
	enum { N = 5000 };
	static uint32_t where[N];

	memset(where, 0xff, sizeof(where));
	rng = 42;
	ck_assert_int_eq(ssd_index_init(&ix, N), 0);
	for (int step_no = 0; step_no < 400000; step_no++) {
		uint32_t k = (uint32_t)rnd(N);
		struct ssd_key key = {.id = k / 16, .block = k % 16};

		ok(ssd_index_find(&ix, key) == where[k]);
		if (where[k] == SSD_NIL) {
			ok(!ssd_index_new(&ix, key, &where[k]));
			ok(!ssd_index_insert(&ix, where[k]));
		} else {
			ssd_index_remove(&ix, where[k]);
			ssd_index_release(&ix, where[k]);
			where[k] = SSD_NIL;
		}
	}
	for (uint32_t k = 0; k < N; k++) {
		struct ssd_key key = {.id = k / 16, .block = k % 16};

		ok(ssd_index_find(&ix, key) == where[k]);
	}
	ssd_index_free(&ix);
}
END_TEST

/* What an entry costs, as ssd.h says; and the limit on their number holds. */
START_TEST(index_memory)
{
	const uint32_t n = 1000000;
	uint32_t i;

	ck_assert_int_eq(ssd_index_init(&ix, n), 0);
	for (uint32_t k = 0; k < n; k++) {
		ok(!ssd_index_new(&ix, (struct ssd_key){.id = k}, &i));
		ok(!ssd_index_insert(&ix, i));
	}
	ck_assert_int_eq(ssd_index_new(&ix, (struct ssd_key){.id = n}, &i), -ENOBUFS);
	ck_assert_uint_le(ix.bytes, (uint64_t)n * 60);
	ssd_index_free(&ix);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ssd ring");
	TCase *tc = tcase_create("ring");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, hash);
	tcase_add_test(tc, index_memory);
	tcase_add_test(tc, wrap);
	tcase_add_test(tc, read_pin_runs_out);
	tcase_add_test(tc, mostly_held);
	tcase_add_test(tc, model);
	suite_add_tcase(suite, tc);
	sr = srunner_create(suite);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
