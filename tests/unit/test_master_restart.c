/* SPDX-License-Identifier: Apache-2.0 */
/* A master that is started again: its owners come back, late, changed or not at all, and nothing of theirs is lost. */
#include <stdio.h>

#include "master/catalogue.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/run.h"

#define MIB (1ull << 20)
#define KIB 1024ull
#define CAPACITY (16 * MIB)
#define RESUME_NS (30 * NS_PER_SEC)

static struct rig rg;
static uint64_t dir;

static void set_up(void)
{
	const struct core_config cfg = {.auto_namespace = true,
					.default_block_size = MIB,
					.recent_answers = 64,
					.dead_after_ns = 5 * NS_PER_SEC,
					.repeat_ns = 2 * NS_PER_SEC,
					.resume_ns = RESUME_NS,
					.id_block = 4096};

	rig_start(&rg, &cfg);
	ck_assert_int_eq(rig_join(&rg, 1, CAPACITY, true), 0);
	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	dir = rig_mkdir(&rg, MSG_ROOT_DIR, "a");
}

static void tear_down(void)
{
	rig_stop(&rg);
}

/* kill -9 of the master when the catalogue had so many bytes of what it was told, and its start. */
static void restart_at(size_t cut)
{
	struct catalogue *cat;
	struct errmsg e = {""};

	rg.core = core_free(rg.core);
	rig_forget(&rg);
	rg.log.len = cut;
	ck_assert_msg(!catalogue_open(":memory:", &cat, &e) && !catalogue_apply(cat, &rg.log, &e), "%s", e.text);
	rg.core = core_new(&rg.cfg);
	ck_assert_msg(!catalogue_load(cat, rg.core, true, &e), "%s", e.text);
	catalogue_close(cat);
	ck_assert_int_eq(core_load_end(rg.core, &rg.out), 0);
	rig_collect(&rg);
	rig_check(&rg);
	rig_tick(&rg, 1000);
}

static void restart(void)
{
	restart_at(rg.log.len);
}

static struct msg *join_msg(uint32_t node, uint64_t tag)
{
	struct msg *m = msg_new(MSG_JOIN);

	m->u.join.capacity = CAPACITY;
	m->u.join.kv_ssd_storage = true;
	m->u.join.instance_key[0] = (char)('a' + node);
	m->u.join.tomb_tag = tag;
	snprintf(m->u.join.address, sizeof(m->u.join.address), "n%u:1", node);
	return m;
}

static int beat(uint32_t node)
{
	struct msg *m = msg_new(MSG_HEARTBEAT);

	m->u.heartbeat.capacity = CAPACITY;
	return rig_send(&rg, node, m);
}

static void comes_back(uint32_t node)
{
	ck_assert_int_eq(rig_send(&rg, node, join_msg(node, rg.tags[node])), 0);
	ck_assert_uint_eq(rg.answer->u.join.tomb_tag, rg.tags[node]);
}

static struct msg_item mem(uint64_t put_id, uint32_t block, uint64_t alloc, uint64_t bytes)
{
	return (struct msg_item){
	    .put_id = put_id, .block = block, .alloc = alloc, .bytes = bytes, .flags = MSG_ITEM_MEM};
}

static struct msg_item ssd(uint64_t put_id, uint32_t block, uint64_t bytes)
{
	return (struct msg_item){.put_id = put_id, .block = block, .bytes = bytes, .flags = MSG_ITEM_SSD};
}

static struct msg_item loose(uint64_t put_id, uint64_t alloc, uint64_t bytes)
{
	return (struct msg_item){.put_id = put_id, .alloc = alloc, .bytes = bytes, .flags = MSG_ITEM_LOOSE};
}

static int page(uint32_t node, uint32_t number, bool end, size_t n, const struct msg_item *items)
{
	struct msg *m = msg_new(MSG_INVENTORY);

	m->u.inventory.page = number;
	m->u.inventory.end = end;
	msg_alloc_items(m, n);
	if (n)
		memcpy(m->items, items, n * sizeof(*items));
	return rig_send(&rg, node, m);
}

/* Status of the item in the last answer. */
static int status(size_t k)
{
	ck_assert_uint_lt(k, rg.answer->n_items);
	return rg.answer->items[k].status;
}

static void is_back(uint32_t node, size_t n, const struct msg_item *items)
{
	comes_back(node);
	ck_assert_int_eq(page(node, 0, true, n, items), 0);
}

/* A version of one block, and where it is. */
struct put {
	uint64_t id, alloc, ticket, bytes;
};

static struct put put(uint32_t node, const char *name, uint64_t bytes)
{
	struct rig_ticket t;

	ck_assert_int_eq(rig_put_start(&rg, node, dir, name, bytes, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, node, rig_done_msg(&t, dir, name, bytes)), 0);
	return (struct put){rg.answer->u.entry.a.id, t.alloc, t.id, bytes};
}

/* The node gets a copy in memory: its allocation. */
static uint64_t promote(uint32_t node, uint64_t put_id)
{
	uint64_t alloc;

	ck_assert_int_eq(rig_get(&rg, node, put_id, 0), 0);
	alloc = rg.answer->u.get.alloc;
	ck_assert_int_eq(rig_get_end(&rg, node, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	ck_assert(rg.answer->u.get.promoted);
	return alloc;
}

static enum msg_miss miss_of(const char *name)
{
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, name), -ENOENT);
	return (enum msg_miss)rg.answer->u.entry.miss;
}

static void is_there(uint32_t node, const char *name, uint64_t id)
{
	ck_assert_int_eq(rig_lookup(&rg, node, dir, name), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, id);
}

START_TEST(an_owner_comes_back_with_all_it_had)
{
	struct put x = put(1, "x", 5000), y = put(2, "y", 9000), empty = put(1, "empty", 0);
	uint64_t next = rig_counts(&rg).next_id;

	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, x.id, 0, 0), 0);
	restart();
	ck_assert_uint_gt(rig_counts(&rg).next_id, next);
	ck_assert_uint_eq(rig_counts(&rg).objects, 3);
	/* whoever is awaited is told so, and nobody else */
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -EUNATCH);
	ck_assert_int_eq(beat(1), -EUNATCH);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), -EUNATCH);
	ck_assert_uint_eq(core_node_awaited(rg.core, rg.tags[1]), 1);
	ck_assert_uint_eq(core_node_awaited(rg.core, 0), 0);
	rg.tags[3] = 12345;
	ck_assert_int_eq(rig_lookup(&rg, 3, dir, "x"), -ESTALE);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_LOOKUP, dir, "x")), -EUNATCH);
	comes_back(1);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -EUNATCH);
	ck_assert_int_eq(beat(1), 0);
	ck_assert_int_eq(page(1, 0, false, 1, (struct msg_item[]){mem(x.id, 0, x.alloc, x.bytes)}), 0);
	ck_assert_int_eq(status(0), 0);
	ck_assert_int_eq(page(1, 1, true, 1, (struct msg_item[]){ssd(x.id, 0, x.bytes)}), 0);
	ck_assert_int_eq(status(0), 0);
	is_there(1, "x", x.id);
	is_there(1, "empty", empty.id);
	is_there(1, "y", y.id);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
	ck_assert_int_eq(rig_get(&rg, 1, x.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.alloc, x.alloc);
	/* the other one is still to come, and is asked for meanwhile */
	ck_assert_int_eq(rig_get(&rg, 1, y.id, 0), -EAGAIN);
	is_back(2, 1, (struct msg_item[]){mem(y.id, 0, y.alloc, y.bytes)});
	ck_assert_int_eq(rig_get(&rg, 1, y.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_REMOTE);
	/* who is back may not come back again */
	ck_assert_int_eq(rig_send(&rg, 1, join_msg(1, rg.tags[1])), -EBUSY);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), -EINVAL);
	ck_assert_uint_eq(core_node_awaited(rg.core, rg.tags[1]), 0);
}
END_TEST

START_TEST(who_does_not_come_back_is_given_up)
{
	struct put x = put(1, "x", 5000), y = put(2, "y", 9000), both;

	both = put(1, "both", 100);
	promote(2, both.id);
	put(2, "empty", 0);
	restart();
	is_back(1, 2, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000), mem(both.id, 0, both.alloc, 100)});
	for (unsigned s = 0; s < 29; s++) {
		rig_tick(&rg, NS_PER_SEC);
		ck_assert_int_eq(beat(1), 0);
		is_there(1, "y", y.id);
	}
	rig_tick(&rg, NS_PER_SEC);
	ck_assert_int_eq(miss_of("y"), MSG_MISS_LOST);
	ck_assert_int_eq(miss_of("empty"), MSG_MISS_LOST);
	is_there(1, "x", x.id);
	is_there(1, "both", both.id);
	ck_assert_int_eq(rig_get(&rg, 1, y.id, 0), -ENOENT);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 0);
	/* too late: an ordinary join */
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "x"), -ESTALE);
	ck_assert_int_eq(rig_send(&rg, 2, join_msg(2, rg.tags[2])), 0);
	ck_assert_uint_ne(rg.answer->u.join.tomb_tag, rg.tags[2]);
	/* and the next start does not wait for the one that was given up */
	ck_assert_int_eq(beat(1), 0);
	rg.tags[2] = rg.answer->u.join.tomb_tag;
	restart();
	is_back(1, 2, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000), mem(both.id, 0, both.alloc, 100)});
	ck_assert_int_eq(rig_counts(&rg).objects, 2);
}
END_TEST

START_TEST(who_left_or_died_is_not_awaited)
{
	put(2, "y", 9000);
	ck_assert_int_eq(rig_simple(&rg, 2, MSG_LEAVE), 0);
	restart();
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "y"), -ESTALE);
	ck_assert_int_eq(rig_send(&rg, 2, join_msg(2, rg.tags[2])), 0);
	ck_assert_uint_ne(rg.answer->u.join.tomb_tag, rg.tags[2]);
	is_back(1, 0, NULL);
	ck_assert_int_eq(rig_get(&rg, 1, 77, 0), -ENOENT); /* nobody is waited for */
}
END_TEST

START_TEST(another_one_in_its_place)
{
	struct put x = put(1, "x", 5000), y = put(2, "y", 100);
	uint64_t old = rg.tags[1];

	restart();
	/* its tag with another's key, a tag that is none, none at all */
	ck_assert_int_eq(rig_send(&rg, 3, join_msg(3, old)), 0);
	ck_assert_uint_ne(rg.answer->u.join.tomb_tag, old);
	is_back(2, 1, (struct msg_item[]){mem(y.id, 0, y.alloc, 100)});
	is_there(2, "x", x.id);
	ck_assert_int_eq(rig_send(&rg, 1, join_msg(1, old + 1)), 0);
	ck_assert_uint_ne(rg.answer->u.join.tomb_tag, old);
	rg.tags[1] = rg.answer->u.join.tomb_tag;
	ck_assert_int_eq(miss_of("x"), MSG_MISS_LOST);
	is_there(2, "y", y.id);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	rg.tags[1] = old;
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "y"), -ESTALE);
}
END_TEST

START_TEST(an_awaited_one_may_leave)
{
	struct put x = put(1, "x", 5000), y = put(2, "y", 100);

	restart();
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_LEAVE), 0);
	ck_assert_int_eq(beat(1), -ESTALE);
	is_back(2, 1, (struct msg_item[]){mem(y.id, 0, y.alloc, 100)});
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "x"), -ENOENT);
	ck_assert_int_eq(rig_get(&rg, 2, x.id, 0), -ENOENT);
}
END_TEST

START_TEST(what_the_owner_says_is_compared)
{
	struct put x = put(1, "x", 5000), gone = put(1, "gone", 100), z = put(1, "z", 4096), two = put(1, "two", 100);
	struct msg_item items[] = {
	    mem(x.id, 0, z.alloc, 5000),	   /* the file of z, which the owner says is that of x */
	    mem(z.id, 0, z.alloc, 4096),	   /* twice, then */
	    mem(z.id, 0, x.alloc, 4096),	   /* that of x is free now */
	    mem(z.id, 0, two.alloc, 4096),	   /* a second file of one block */
	    mem(z.id, 1, two.alloc, 4096),	   /* no such block */
	    mem(two.id, 0, two.alloc, 5000),	   /* that is not its length */
	    mem(two.id, 0, two.alloc, UINT64_MAX), /* nor that */
	    mem(two.id, 0, 1ull << 40, 100),	   /* an allocation of the future */
	    mem(two.id, 0, 0, 100),
	    {.put_id = two.id, .alloc = two.alloc, .bytes = 100},
	    mem(dir, 0, two.alloc, 100),
	    mem(gone.id, 0, gone.alloc, 100), /* deleted */
	    ssd(two.id, 0, 100),	      /* not known, and true: a commit that the catalogue has missed */
	    mem(two.id, 0, two.alloc, 4096),  /* whole pages are a length, too */
	    mem(two.id, 0, two.alloc, 100),
	};
	const int expected[] = {0,	 -ENOENT, 0,	   -ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT,
				-ENOENT, -ENOENT, -ENOENT, -ENOENT, 0,	     0,	      0};

	ck_assert_int_eq(rig_delete(&rg, 2, dir, "gone"), 0);
	restart();
	is_back(1, sizeof(items) / sizeof(items[0]), items);
	for (size_t k = 0; k < sizeof(items) / sizeof(items[0]); k++)
		ck_assert_msg(status(k) == expected[k], "item %zu: %d", k, status(k));
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192 + 4096 + 4096);
	ck_assert_int_eq(rig_get(&rg, 1, x.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.alloc, z.alloc);
	ck_assert_int_eq(rig_get(&rg, 1, z.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.alloc, x.alloc);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "gone"), -ENOENT);
	/* the copy that was taken in is one: the file may go */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, two.id, 0, 0), 0);
	is_there(1, "two", two.id);
	/* and all of that is in the catalogue */
	ck_assert_int_eq(rig_freed(&rg, 1, two.alloc), 0);
	restart();
	is_back(1, 3,
		(struct msg_item[]){mem(x.id, 0, z.alloc, 5000), mem(z.id, 0, x.alloc, 4096), ssd(two.id, 0, 100)});
	for (size_t k = 0; k < 3; k++)
		ck_assert_int_eq(status(k), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192 + 4096);
}
END_TEST

START_TEST(what_the_owner_does_not_say_is_dropped)
{
	struct put x = put(1, "x", 5000), y = put(1, "y", 100), z = put(1, "z", 100);
	uint64_t copy = promote(2, x.id);

	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, z.id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, x.id, 0, 0), 0);
	restart();
	is_back(2, 1, (struct msg_item[]){mem(x.id, 0, copy, 5000)});
	is_back(1, 1, (struct msg_item[]){ssd(z.id, 0, 100)});
	ck_assert_int_eq(miss_of("y"), MSG_MISS_LOST);
	is_there(1, "x", x.id);
	is_there(1, "z", z.id);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	ck_assert_int_eq(rig_get(&rg, 1, z.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_SSD_LOCAL);
	ck_assert_int_eq(rig_get(&rg, 1, x.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rig_counts(&rg).objects, 2);
	ck_assert_uint_ne(y.id, 0);
}
END_TEST

/* Copies of several blocks on several nodes, of which some are said. */
START_TEST(blocks_are_dropped_one_by_one)
{
	struct rig_ticket t;
	struct msg_item items[4];
	uint64_t id, allocs[4];
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", MIB, 0, &t), 0);
	allocs[0] = t.alloc;
	for (uint32_t b = 1; b < 4; b++) {
		ck_assert_int_eq(rig_extend(&rg, 1, t.id, b, MIB), 0);
		allocs[b] = rg.answer->items[0].alloc;
	}
	m = rig_done_msg(&t, dir, "x", 4 * MIB);
	msg_alloc_items(m, 4);
	for (uint32_t b = 0; b < 4; b++)
		m->items[b] = mem(0, b, allocs[b], MIB);
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	id = rg.answer->u.entry.a.id;
	for (uint32_t b = 0; b < 4; b++) {
		ck_assert_int_eq(rig_get(&rg, 2, id, b), 0);
		items[b] = mem(id, b, rg.answer->u.get.alloc, MIB);
		ck_assert_int_eq(rig_get_end(&rg, 2, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	}
	restart();
	/* node 1 has the first two, node 2 the others: all of it is there */
	is_back(1, 2, (struct msg_item[]){mem(id, 0, allocs[0], MIB), mem(id, 1, allocs[1], MIB)});
	is_back(2, 2, items + 2);
	is_there(1, "x", id);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 2 * MIB);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 2 * MIB);
	restart();
	/* one of them is nowhere */
	is_back(1, 2, (struct msg_item[]){mem(id, 0, allocs[0], MIB), mem(id, 1, allocs[1], MIB)});
	is_back(2, 1, items + 2);
	ck_assert_int_eq(miss_of("x"), MSG_MISS_LOST);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 2, 0));
	ck_assert_uint_eq(rig_counts(&rg).orphans, 1);
}
END_TEST

/*
 * The copy moved in the catalogue's last moments: neither the new one is in it, nor that the old one went. Whoever
 * comes back first, it is not lost.
 */
START_TEST(a_copy_that_moved_is_found)
{
	struct put x = put(1, "x", 5000);
	size_t cut = rg.log.len;
	uint64_t copy = promote(2, x.id);

	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, x.id, 0, 0), 0);
	ck_assert_int_eq(rig_freed(&rg, 1, x.alloc), 0);
	restart_at(cut);
	is_back(1, 0, NULL);
	is_there(1, "x", x.id);
	ck_assert_int_eq(rig_get(&rg, 1, x.id, 0), -EAGAIN);
	is_back(2, 1, (struct msg_item[]){mem(x.id, 0, copy, 5000)});
	ck_assert_int_eq(status(0), 0);
	ck_assert_int_eq(rig_get(&rg, 1, x.id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	/* the ring loses what an owner that is still to come may have, which is not known */
	ck_assert_int_eq(rig_item(&rg, 2, MSG_SSD_COMMIT, x.id, 0, 0), 0);
	restart();
	is_back(2, 1, (struct msg_item[]){ssd(x.id, 0, 5000)});
	ck_assert_int_eq(rig_item(&rg, 2, MSG_SSD_EVICT, x.id, 0, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, 0);
	is_there(2, "x", x.id);
	is_back(1, 0, NULL);
	ck_assert_int_eq(miss_of("x"), MSG_MISS_LOST);
}
END_TEST

START_TEST(loose_files_are_charged_until_they_go)
{
	struct put x = put(1, "x", 5000), held = put(1, "held", 9000);
	uint64_t target;

	ck_assert_int_eq(rig_get(&rg, 2, x.id, 0), 0);
	target = rg.answer->u.get.alloc;
	ck_assert_int_eq(rig_delete(&rg, 2, dir, "held"), 0);
	restart();
	comes_back(1);
	ck_assert_int_eq(
	    page(1, 0, false, 2, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000), mem(held.id, 0, held.alloc, 9000)}),
	    0);
	ck_assert_int_eq(status(1), -ENOENT);
	ck_assert_int_eq(page(1, 1, true, 5,
			      (struct msg_item[]){loose(held.id, held.alloc, 9000), loose(held.id, held.alloc, 9000),
						  loose(0, x.alloc, 5000), loose(0, 0, 5000),
						  loose(0, held.alloc - 1, CAPACITY + 1)}),
			 0);
	ck_assert_int_eq(status(0), 0);
	ck_assert_int_eq(status(1), 0);
	for (size_t k = 2; k < 5; k++)
		ck_assert_int_eq(status(k), -ENOENT);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192 + 12288);
	is_back(2, 1, (struct msg_item[]){loose(x.id, target, 5000)});
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 8192);
	/* one goes by its number, the other with its version */
	ck_assert_int_eq(rig_freed(&rg, 1, target), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 8192);
	ck_assert_int_eq(rig_freed(&rg, 1, held.alloc), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(rig_item(&rg, 2, MSG_DELETE_ACK, x.id, 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, x.id, 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	ck_assert_uint_eq(rig_counts(&rg).loose + rig_counts(&rg).orphans, 0);
}
END_TEST

/* What is deleted before its owner is back is dropped there when it is. */
START_TEST(deleted_while_its_owner_is_away)
{
	struct put x = put(1, "x", 5000), y = put(2, "y", 100);

	restart();
	is_back(2, 1, (struct msg_item[]){mem(y.id, 0, y.alloc, 100)});
	ck_assert_int_eq(rig_delete(&rg, 2, dir, "x"), 0);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 1);
	is_back(1, 1, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000)});
	ck_assert_int_eq(status(0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	rig_tick(&rg, 2 * NS_PER_SEC);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, x.id, 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used + rig_counts(&rg).orphans, 0);
}
END_TEST

START_TEST(pages_come_in_order_and_may_begin_again)
{
	struct put x = put(1, "x", 5000);
	const struct msg_item it = mem(x.id, 0, x.alloc, 5000), away = loose(0, x.ticket, 100);
	struct msg *m;

	restart();
	comes_back(1);
	ck_assert_int_eq(page(1, 1, true, 1, &it), -EINVAL);
	ck_assert_int_eq(page(1, 0, false, 1, &away), 0);
	ck_assert_int_eq(page(1, 0, false, 1, &it), -EINVAL);
	ck_assert_uint_eq(rig_counts(&rg).loose, 1);
	/* another one with its key meanwhile; it itself, once more */
	ck_assert_int_eq(rig_send(&rg, 1, join_msg(1, 0)), -EBUSY);
	ck_assert_int_eq(rig_send(&rg, 3, join_msg(1, rg.tags[1])), -EBUSY);
	comes_back(1);
	ck_assert_uint_eq(rig_counts(&rg).loose, 0);
	/* a page of the time before says nothing now */
	m = msg_new(MSG_INVENTORY);
	m->u.inventory.end = true;
	rg.req_id -= 3;
	ck_assert_int_eq(rig_send(&rg, 1, m), -EINVAL);
	rg.req_id += 3;
	ck_assert_int_eq(page(1, 0, true, 1, &it), 0);
	is_there(1, "x", x.id);
}
END_TEST

START_TEST(the_same_join_is_answered_the_same)
{
	struct put x = put(1, "x", 5000);
	const struct msg_item it = mem(x.id, 0, x.alloc, 5000);

	restart();
	comes_back(1);
	rg.req_id--;
	comes_back(1);
	ck_assert_int_eq(page(1, 0, true, 1, &it), 0);
	rg.req_id--;
	ck_assert_int_eq(page(1, 0, true, 1, &it), 0);
	rg.req_id -= 2;
	comes_back(1);
	rg.req_id += 1;
	is_there(1, "x", x.id);
}
END_TEST

/* The same request, with the number it had, is done when its sender is back. */
START_TEST(what_was_refused_meanwhile_is_not_remembered)
{
	restart();
	comes_back(1);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, dir, "sub")), -EUNATCH);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), 0);
	rg.req_id -= 2;
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, dir, "sub")), 0);
	rg.req_id += 1;
}
END_TEST

START_TEST(one_that_falls_silent_while_it_comes_back)
{
	struct put x = put(1, "x", 5000);
	const struct msg_item it = mem(x.id, 0, x.alloc, 5000);

	restart();
	comes_back(1);
	ck_assert_int_eq(page(1, 0, false, 1, (struct msg_item[]){loose(0, x.ticket, 100)}), 0);
	rig_tick(&rg, 5 * NS_PER_SEC);
	ck_assert_uint_eq(rig_counts(&rg).loose, 0);
	ck_assert_int_eq(page(1, 1, true, 1, &it), -EUNATCH);
	/* it may begin again, and takes longer than others may wait */
	comes_back(1);
	for (unsigned s = 0; s < 40; s++) {
		rig_tick(&rg, NS_PER_SEC);
		ck_assert_int_eq(beat(1), 0);
	}
	ck_assert_int_eq(page(1, 0, true, 1, &it), 0);
	is_there(1, "x", x.id);
	/* the other one has been given up meanwhile */
	ck_assert_int_eq(beat(2), -ESTALE);
	/* silent, and the time is over */
	restart();
	comes_back(1);
	rig_tick(&rg, 31 * NS_PER_SEC);
	ck_assert_int_eq(beat(1), -ESTALE);
	ck_assert_uint_eq(rig_counts(&rg).objects, 0);
}
END_TEST

/* ---- puts ---------------------------------------------------------------------------------------------------- */

static struct msg *resume_msg(const struct rig_ticket *t, uint32_t flags, const char *name, size_t n,
			      const struct msg_item *items)
{
	struct msg *m = msg_new(MSG_PUT_RESUME);

	m->u.put.ticket = t->id;
	m->u.put.dir = dir;
	m->u.put.block_size = t->block_size;
	m->u.put.persist_to_ssd = t->persist;
	m->u.put.flags = flags;
	rig_name(m->u.put.name, sizeof(m->u.put.name), name);
	msg_alloc_items(m, n);
	memcpy(m->items, items, n * sizeof(*items));
	return m;
}

static struct msg_item grant(uint32_t block, uint64_t alloc, uint64_t bytes)
{
	return (struct msg_item){.block = block, .alloc = alloc, .bytes = bytes};
}

START_TEST(a_put_goes_on)
{
	struct put x = put(1, "x", 5000);
	struct msg_item g[2];
	struct rig_ticket t;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "new", MIB, MSG_PUT_EXCL, &t), 0);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 2, 8192), 0);
	g[0] = grant(0, t.alloc, MIB);
	g[1] = grant(2, rg.answer->items[0].alloc, 8192);
	restart();
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, MSG_PUT_EXCL, "new", 2, g)), -EUNATCH);
	comes_back(1);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, MSG_PUT_EXCL, "new", 2, g)), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, MIB + 8192);
	ck_assert_int_eq(page(1, 0, true, 1, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000)}), 0);
	is_back(2, 0, NULL);
	/* it has its name, its grants, its length of blocks */
	ck_assert_int_eq(rig_send(&rg, 2, rig_put_start_msg(dir, "new", 1, MSG_PUT_EXCL)), -EEXIST);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 2, MIB), 0);
	ck_assert_uint_eq(rg.answer->items[0].alloc, g[1].alloc);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 1, MIB), 0);
	m = rig_done_msg(&t, dir, "new", 2 * MIB + 1);
	msg_alloc_items(m, 3);
	m->items[0] = mem(0, 0, t.alloc, MIB);
	m->items[1] = mem(0, 1, rg.answer->items[0].alloc, MIB);
	m->items[2] = mem(0, 2, g[1].alloc, 1);
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_gt(rg.answer->u.entry.a.id, x.id);
	ck_assert_uint_eq(rg.answer->u.entry.a.storage_id, t.id);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_SSD_PERSIST, 1, 0));
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192 + 2 * MIB + 4096);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
}
END_TEST

START_TEST(a_put_that_cannot_be_is_not_resumed)
{
	struct put x = put(1, "x", 5000);
	struct rig_ticket t, u;
	const struct msg_item good = grant(0, x.alloc, 4096);
	struct {
		struct msg_item g[2];
		size_t n;
		int err;
	} rows[] = {
	    {{grant(0, 0, 4096)}, 1, -EINVAL},
	    {{grant(0, 1ull << 40, 4096)}, 1, -EINVAL},
	    {{grant(0, x.alloc, 4097)}, 1, -EINVAL},
	    {{grant(0, x.alloc, 0)}, 1, -EINVAL},
	    {{grant(0, x.alloc, 2 * MIB)}, 1, -EINVAL},
	    {{grant(MSG_MAX_ITEMS, x.alloc, 4096)}, 1, -EINVAL},
	    {{grant(0, x.alloc, 4096), grant(0, x.ticket, 4096)}, 2, -EINVAL},
	    {{grant(1, x.alloc, 4096), grant(0, x.ticket, 4096)}, 2, -EINVAL},
	    {{grant(0, x.ticket, 4096), grant(1, x.ticket, 4096)}, 2, -EINVAL},
	    {{grant(0, x.alloc, 4096)}, 1, 0},
	};
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "new", MIB, 0, &t), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "other", MIB, 0, &u), 0);
	restart();
	comes_back(1);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, 0, "new", rows[k].n, rows[k].g)), rows[k].err);
		ck_assert_uint_eq(rig_counts(&rg).tickets, rows[k].err == 0);
		ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, rows[k].err ? 0 : 4096);
	}
	/* a second time; what the first has; other bad numbers */
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, 0, "new", 0, &good)), -EINVAL);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&u, 0, "new", 1, &good)), -EINVAL);
	for (unsigned k = 0; k < 5; k++) {
		struct rig_ticket bad = u;
		int err = -EINVAL;

		m = resume_msg(&bad, k == 4 ? MSG_PUT_EXCL : 0, k == 4 ? ".." : "new", 0, &good);
		if (k == 0)
			m->u.put.ticket = 1ull << 40;
		if (k == 1)
			m->u.put.block_size = 5000;
		if (k == 2) {
			m->u.put.dir = 99999;
			err = -ENOENT;
		}
		if (k == 3) {
			m->u.put.dir = MSG_ROOT_DIR;
			err = -EPERM;
		}
		ck_assert_int_eq(rig_send(&rg, 1, m), err);
	}
	/* all of it is more than there is */
	{
		struct msg_item many[16];

		for (uint32_t b = 0; b < 16; b++)
			many[b] = grant(b, dir + 1 + b, MIB);
		ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&u, 0, "new", 16, many)), -ENOSPC);
	}
	ck_assert_uint_eq(rig_counts(&rg).tickets, 1);
	/* its file is a put's now, and no copy of what it was */
	ck_assert_int_eq(page(1, 0, true, 1, (struct msg_item[]){mem(x.id, 0, x.alloc, 5000)}), 0);
	ck_assert_int_eq(status(0), -ENOENT);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&u, 0, "new", 0, &good)), -EINVAL);
}
END_TEST

START_TEST(a_name_that_was_taken_meanwhile)
{
	struct rig_ticket t;
	struct put other;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "new", 100, MSG_PUT_EXCL, &t), 0);
	restart();
	is_back(2, 0, NULL);
	other = put(2, "new", 100);
	comes_back(1);
	ck_assert_int_eq(
	    rig_send(&rg, 1, resume_msg(&t, MSG_PUT_EXCL, "new", 1, (struct msg_item[]){grant(0, t.alloc, 4096)})),
	    -EEXIST);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), 0);
	/* the put is there, and may say that it does not want to replace anything */
	m = rig_done_msg(&t, dir, "new", 100);
	m->u.put.flags = MSG_PUT_NOREPLACE;
	ck_assert_int_eq(rig_send(&rg, 1, m), -EEXIST);
	is_there(1, "new", other.id);
	m = msg_new(MSG_PUT_REVOKE);
	m->u.put.ticket = t.id;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
}
END_TEST

/* The catalogue had the version, and the node did not hear of it. */
START_TEST(a_put_that_was_done_is_not_done_twice)
{
	struct rig_ticket t, e;
	struct put x;
	struct msg_item g;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "empty", 0, 0, &e), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&e, dir, "empty", 0)), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 5000, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	x.id = rg.answer->u.entry.a.id;
	restart();
	is_back(2, 0, NULL);
	ck_assert_int_eq(rig_send(&rg, 2, rig_done_msg(&t, dir, "x", 5000)), -ESTALE);
	ck_assert_int_eq(rig_delete(&rg, 2, dir, "empty"), 0);
	comes_back(1);
	g = grant(0, t.alloc, 8192);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, 0, "x", 1, &g)), 0);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&e, 0, "empty", 0, &g)), 0);
	ck_assert_uint_eq(rig_counts(&rg).tickets, 0);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, x.id);
	ck_assert_uint_eq(rg.answer->u.entry.a.storage_id, t.id);
	ck_assert_uint_ne(rg.answer->u.entry.lease, 0);
	/* renamed: its new name was not asked about */
	ck_assert_int_eq(rig_rename(&rg, 2, dir, "x", dir, "y", false), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, x.id);
	ck_assert_uint_eq(rg.answer->u.entry.lease, 0);
	ck_assert_int_eq(rig_rename(&rg, 2, dir, "y", dir, "x", false), 0);
	/* deleted meanwhile: it was there all the same */
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&e, dir, "empty", 0)), 0);
	ck_assert_uint_eq(rg.answer->u.entry.lease, 0);
	ck_assert_uint_eq(rig_counts(&rg).objects, 1);
	ck_assert_int_eq(rig_delete(&rg, 2, dir, "x"), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, x.id);
	ck_assert_uint_eq(rg.answer->u.entry.lease, 0);
	/* that is not remembered for ever */
	for (unsigned s = 0; s < 61; s++) {
		rig_tick(&rg, NS_PER_SEC);
		ck_assert_int_eq(beat(1), 0);
	}
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), -ESTALE);
}
END_TEST

static void know(uint32_t node, uint64_t seq, unsigned answers)
{
	struct msg *m = msg_new(MSG_REVOKE_ACK);

	m->u.revoke.seq = seq;
	rig_post(&rg, node, m);
	ck_assert_uint_eq(rg.answers, 1 + answers);
}

/* Whoever comes back is told to forget what it had leased, and what was done waits for it, too. */
START_TEST(leases_of_before_are_over)
{
	const struct msg *told[2];
	struct rig_ticket t;
	struct msg_item g;

	rg.cfg.lease_ns = 5 * NS_PER_SEC;
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 5000, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	restart();
	is_back(2, 0, NULL);
	comes_back(1);
	g = grant(0, t.alloc, 8192);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, 0, "x", 1, &g)), 0);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), 0);
	for (uint32_t n = 1; n <= 2; n++) {
		told[n - 1] = rig_notice(&rg, MSG_NAME_REVOKE, n, 0);
		ck_assert_ptr_nonnull(told[n - 1]);
		ck_assert(told[n - 1]->u.revoke.ack && !told[n - 1]->u.revoke.dir);
	}
	ck_assert(!rig_post(&rg, 1, rig_done_msg(&t, dir, "x", 5000)));
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "x")));
	ck_assert_int_eq(beat(2), 0);
	ck_assert_uint_eq(rg.answer->u.heartbeat.lease_ns, 0);
	know(1, told[0]->u.revoke.seq, 0);
	know(2, told[1]->u.revoke.seq, 2);
	ck_assert_int_eq(rg.answer->status, 0);
	ck_assert_int_eq(beat(2), 0);
	ck_assert_uint_eq(rg.answer->u.heartbeat.lease_ns, 5 * NS_PER_SEC);
}
END_TEST

/* Its files are not those that the version was made of: it has none there. */
START_TEST(a_done_put_with_other_files)
{
	struct rig_ticket t;
	struct msg_item g;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 5000, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), 0);
	restart();
	is_back(2, 0, NULL);
	comes_back(1);
	g = grant(0, t.id, 8192);
	ck_assert_int_eq(rig_send(&rg, 1, resume_msg(&t, 0, "x", 1, &g)), 0);
	ck_assert_int_eq(page(1, 0, true, 0, NULL), 0);
	ck_assert_int_eq(miss_of("x"), MSG_MISS_LOST);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *s = suite_create("master_restart");
	TCase *t = tcase_create("restart");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, an_owner_comes_back_with_all_it_had);
	tcase_add_test(t, who_does_not_come_back_is_given_up);
	tcase_add_test(t, who_left_or_died_is_not_awaited);
	tcase_add_test(t, another_one_in_its_place);
	tcase_add_test(t, an_awaited_one_may_leave);
	tcase_add_test(t, what_the_owner_says_is_compared);
	tcase_add_test(t, what_the_owner_does_not_say_is_dropped);
	tcase_add_test(t, blocks_are_dropped_one_by_one);
	tcase_add_test(t, a_copy_that_moved_is_found);
	tcase_add_test(t, loose_files_are_charged_until_they_go);
	tcase_add_test(t, deleted_while_its_owner_is_away);
	tcase_add_test(t, pages_come_in_order_and_may_begin_again);
	tcase_add_test(t, the_same_join_is_answered_the_same);
	tcase_add_test(t, what_was_refused_meanwhile_is_not_remembered);
	tcase_add_test(t, one_that_falls_silent_while_it_comes_back);
	tcase_add_test(t, a_put_goes_on);
	tcase_add_test(t, a_put_that_cannot_be_is_not_resumed);
	tcase_add_test(t, a_name_that_was_taken_meanwhile);
	tcase_add_test(t, a_put_that_was_done_is_not_done_twice);
	tcase_add_test(t, leases_of_before_are_over);
	tcase_add_test(t, a_done_put_with_other_files);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_suite(make_suite());
}
