/* SPDX-License-Identifier: Apache-2.0 */
/* The core: puts, gets, replicas, the ledger, nodes, leases. */
#include <stdio.h>

#include "master/version.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/run.h"

#define MIB (1ull << 20)
#define KIB 1024ull
#define CAPACITY (16 * MIB)

static struct rig rg;
static uint64_t dir;

static void set_up_with(bool ssd, uint32_t recent)
{
	const struct core_config cfg = {.auto_namespace = true,
					.default_block_size = MIB,
					.recent_answers = recent,
					.dead_after_ns = 5 * NS_PER_SEC,
					.repeat_ns = 2 * NS_PER_SEC};

	rig_start(&rg, &cfg);
	ck_assert_int_eq(rig_join(&rg, 1, CAPACITY, ssd), 0);
	dir = rig_mkdir(&rg, MSG_ROOT_DIR, "a");
}

static void set_up(void)
{
	set_up_with(true, 0);
}

static void tear_down(void)
{
	rig_stop(&rg);
}

static void nothing_left(void)
{
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
	ck_assert_uint_eq(rig_counts(&rg).objects + rig_counts(&rg).orphans + rig_counts(&rg).tickets +
			      rig_counts(&rg).gets + rig_counts(&rg).loose,
			  0);
}

START_TEST(grants_are_whole_pages_up_to_the_block_size)
{
	const struct {
		uint64_t guess, granted;
	} t[] = {{0, 4096}, {1, 4096}, {4096, 4096}, {4097, 8192}, {MIB, MIB}, {MIB + 1, MIB}, {UINT64_MAX, MIB}};
	struct rig_ticket tk;

	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
		struct msg *m;

		ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", t[k].guess, 0, &tk), 0);
		ck_assert(!rg.after_commit);
		ck_assert_uint_eq(tk.bytes, t[k].granted);
		ck_assert_uint_eq(tk.block_size, MIB);
		ck_assert(tk.persist);
		ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, t[k].granted);
		m = msg_new(MSG_PUT_REVOKE);
		m->u.put.ticket = tk.id;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		nothing_left();
	}
}
END_TEST

/* Whoever changes a version keeps the size of its blocks. */
START_TEST(a_block_size_may_be_asked_for)
{
	const uint64_t bad[] = {1, 2048, 12288, MIB + 1, 1ull << 41, UINT64_MAX, 1ull << 63};
	struct msg *m;

	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		m = rig_put_start_msg(dir, "x", 1, 0);
		m->u.put.block_size = bad[k];
		ck_assert_int_eq(rig_send(&rg, 1, m), -EINVAL);
		nothing_left();
	}
	m = rig_put_start_msg(dir, "x", MIB, 0);
	m->u.put.block_size = 8192;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.put.block_size, 8192);
	ck_assert_uint_eq(rg.answer->items[0].bytes, 8192);
	m = msg_new(MSG_PUT_REVOKE);
	m->u.put.ticket = rg.answer->u.put.ticket;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	nothing_left();
}
END_TEST

START_TEST(extend_raises_lowers_and_gives_back)
{
	struct rig_ticket t;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 0, 10000), 0);
	ck_assert_uint_eq(rg.answer->items[0].alloc, t.alloc);
	ck_assert_uint_eq(rg.answer->items[0].bytes, 12288);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 5, 1), 0);
	ck_assert_uint_ne(rg.answer->items[0].alloc, t.alloc);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 12288 + 4096);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 0, 4096), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 2 * 4096);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 5, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].alloc, 0);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 5, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 4096);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 0, MIB + 1), -EINVAL);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, MSG_MAX_ITEMS, 1), -EFBIG);
	ck_assert_int_eq(rig_extend(&rg, 1, 12345, 0, 1), -ESTALE);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 4096);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_the_numbers)
{
	struct rig_ticket t, u;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", MIB, 0, &t), 0);
	for (uint32_t b = 1; b < 16; b++)
		ck_assert_int_eq(rig_extend(&rg, 1, t.id, b, MIB), 0);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 16, 1), -ENOSPC);
	ck_assert_uint_eq(rg.answer->u.put.total, CAPACITY);
	ck_assert_uint_eq(rg.answer->u.put.free, 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "y", 1, 0, &u), -ENOSPC);
	ck_assert_uint_eq(rg.answer->u.put.total, CAPACITY);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 15, MIB - 4096), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "y", 4097, 0, &u), -ENOSPC);
	ck_assert_uint_eq(rg.answer->u.put.free, 4096);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "y", 4096, 0, &u), 0);
	/* what others still map is none of ours to give */
	m = msg_new(MSG_PUT_REVOKE);
	m->u.put.ticket = t.id;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	m = msg_new(MSG_HEARTBEAT);
	m->u.heartbeat.capacity = CAPACITY;
	m->u.heartbeat.zombie = CAPACITY - 8192;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "z", 8192, 0, &t), -ENOSPC);
	ck_assert_uint_eq(rg.answer->u.put.total, 8192);
	ck_assert_uint_eq(rg.answer->u.put.free, 4096);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "z", 4096, 0, &t), 0);
}
END_TEST

START_TEST(publish_takes_what_it_needs)
{
	struct rig_ticket t;
	uint64_t id;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", MIB, 0, &t), 0);
	ck_assert_int_eq(rig_extend(&rg, 1, t.id, 3, MIB), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -ENOENT);
	m = rig_done_msg(&t, dir, "x", 5000);
	m->u.put.attr.mtime_ns = 77;
	m->u.put.attr.uid = 5;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert(rg.after_commit);
	id = rg.answer->u.entry.a.id;
	ck_assert_uint_gt(id, t.id);
	ck_assert_uint_eq(rg.answer->u.entry.a.storage_id, t.id);
	ck_assert_uint_eq(rg.answer->u.entry.a.size, 5000);
	ck_assert_uint_eq(rg.answer->u.entry.a.mode, S_IFREG | 0640);
	ck_assert_int_eq(rg.answer->u.entry.a.mtime_ns, 77);
	ck_assert_int_eq(rg.answer->u.entry.a.ctime_ns, rg.real);
	ck_assert_uint_eq(rg.answer->u.entry.a.uid, 5);
	ck_assert_uint_eq(rg.answer->u.entry.replaced_id, 0);
	ck_assert_uint_ne(rg.answer->u.entry.lease, 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 5000)), -ESTALE);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, id);
}
END_TEST

START_TEST(publish_checks_its_items)
{
	struct rig_ticket t;
	const struct {
		uint64_t size;
		size_t n;
		struct msg_item it[2];
		int err;
	} rows[] = {
	    {100, 0, {{0}}, -EINVAL},
	    {0, 1, {{.bytes = 0, .flags = MSG_ITEM_MEM}}, -EINVAL},
	    {100, 1, {{.bytes = 99, .flags = MSG_ITEM_MEM}}, -EINVAL},
	    {100, 1, {{.bytes = 100, .flags = 0}}, -EINVAL},
	    {100, 1, {{.bytes = 100, .block = 1, .flags = MSG_ITEM_MEM}}, -EINVAL},
	    {100, 1, {{.bytes = 100, .alloc = 99, .flags = MSG_ITEM_MEM}}, -EINVAL},
	    {100, 2, {{.bytes = 100, .flags = MSG_ITEM_MEM}, {.block = 1}}, -EINVAL},
	    {MIB + 1,
	     2,
	     {{.bytes = MIB, .flags = MSG_ITEM_MEM}, {.block = 0, .bytes = 1, .flags = MSG_ITEM_SSD}},
	     -EINVAL},
	    {MIB + 1,
	     2,
	     {{.bytes = MIB, .flags = MSG_ITEM_MEM}, {.block = 1, .bytes = 1, .flags = MSG_ITEM_MEM}},
	     -EINVAL},
	    {5000, 1, {{.bytes = 5000, .flags = MSG_ITEM_MEM}}, -EINVAL}, /* granted one page */
	    {(MSG_MAX_ITEMS + 1ull) * MIB, 0, {{0}}, -EFBIG},
	    {UINT64_MAX, 0, {{0}}, -EFBIG},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct msg *m;
		int r;

		ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
		m = rig_done_msg(&t, dir, "x", 0);
		m->u.put.bytes = rows[k].size;
		msg_alloc_items(m, rows[k].n);
		for (size_t j = 0; j < rows[k].n; j++) {
			m->items[j] = rows[k].it[j];
			if (m->items[j].flags & MSG_ITEM_MEM && !m->items[j].alloc)
				m->items[j].alloc = t.alloc;
		}
		r = rig_send(&rg, 1, m);
		ck_assert_msg(r == rows[k].err, "row %zu: %d", k, r);
		/* the ticket is as it was */
		ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 100)), 0);
	}
	ck_assert_uint_eq(rig_counts(&rg).objects, 1);
}
END_TEST

START_TEST(publish_checks_where)
{
	uint64_t other = rig_mkdir(&rg, MSG_ROOT_DIR, "b"), sub = rig_mkdir(&rg, dir, "sub"), id;
	struct rig_ticket t;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, other, "x", 1)), -EXDEV);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, MSG_ROOT_DIR, "x", 1)), -EPERM);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, 777, "x", 1)), -ENOENT);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "sub", 1)), -EISDIR);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "a/b", 1)), -EINVAL);
	m = rig_done_msg(&t, dir, "x", 1);
	m->blob = malloc(3);
	memset(m->blob, 1, 3);
	m->blob_len = 3;
	ck_assert_int_eq(rig_send(&rg, 1, m), -EINVAL);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, sub, "x", 1)), 0);
	id = rg.answer->u.entry.a.id;
	/* NOREPLACE: only over what it was made from */
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	m = rig_done_msg(&t, sub, "x", 1);
	m->u.put.flags = MSG_PUT_NOREPLACE;
	ck_assert_int_eq(rig_send(&rg, 1, m), -EEXIST);
	m = rig_done_msg(&t, sub, "y", 1);
	m->u.put.flags = MSG_PUT_NOREPLACE;
	m->u.put.replaces = id;
	ck_assert_int_eq(rig_send(&rg, 1, m), -ENOENT);
	m = rig_done_msg(&t, sub, "x", 1);
	m->u.put.flags = MSG_PUT_NOREPLACE;
	m->u.put.replaces = id;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.entry.replaced_id, id);
}
END_TEST

START_TEST(the_last_to_publish_wins)
{
	struct rig_ticket t, u;
	uint64_t first, second;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &u), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&u, dir, "x", 2)), 0);
	first = rg.answer->u.entry.a.id;
	rig_forget(&rg);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 1)), 0);
	second = rg.answer->u.entry.a.id;
	ck_assert_uint_gt(second, first);
	ck_assert_uint_eq(rg.answer->u.entry.replaced_id, first);
	/* the answer, then the notices */
	ck_assert_uint_eq(rg.before, 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_SSD_PERSIST, 1, 0));
	ck_assert_uint_eq(rig_notice(&rg, MSG_SSD_PERSIST, 1, 0)->items[0].put_id, second);
	ck_assert_uint_eq(rig_notice(&rg, MSG_SSD_PERSIST, 1, 0)->items[0].alloc, t.alloc);
	ck_assert_uint_eq(rig_notice(&rg, MSG_SSD_PERSIST, 1, 0)->items[0].bytes, 1);
	/* no lease of the asker was revoked */
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	/* the old bytes stay charged, and can be had by id, until the node lets go */
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 2 * 4096);
	ck_assert_int_eq(rig_get(&rg, 1, first, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_LOCAL);
	ck_assert_uint_eq(rg.answer->u.get.alloc, u.alloc);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, second, 0, 0), -EBUSY);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, first, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, first, 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 4096);
	ck_assert_int_eq(rig_get(&rg, 1, first, 0), -ENOENT);
}
END_TEST

START_TEST(exclusive_names_are_reserved)
{
	uint64_t sub = rig_mkdir(&rg, dir, "sub");
	struct rig_ticket t, u;
	struct msg *m;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, MSG_PUT_EXCL, &t), 0);
	ck_assert_int_eq(rig_put_start(&rg, 2, dir, "x", 1, MSG_PUT_EXCL, &u), -EEXIST);
	ck_assert_int_eq(rig_send(&rg, 2, rig_named(MSG_MKDIR, dir, "x")), -EEXIST);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "x"), -ENOENT);
	ck_assert_int_eq(rig_put_start(&rg, 2, sub, "x", 1, MSG_PUT_EXCL, &u), 0);
	/* moves */
	m = msg_new(MSG_PUT_RESERVE);
	m->u.put.ticket = t.id;
	m->u.put.dir = sub;
	strcpy(m->u.put.name, "x");
	ck_assert_int_eq(rig_send(&rg, 1, m), -EEXIST);
	m = msg_new(MSG_PUT_RESERVE);
	m->u.put.ticket = t.id;
	m->u.put.dir = sub;
	strcpy(m->u.put.name, "y");
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_int_eq(rig_send(&rg, 2, rig_named(MSG_MKDIR, sub, "y")), -EEXIST);
	ck_assert_int_eq(rig_put_start(&rg, 2, dir, "x", 1, MSG_PUT_EXCL, &u), 0);
	/* is dropped */
	m = msg_new(MSG_PUT_RESERVE);
	m->u.put.ticket = t.id;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_int_eq(rig_send(&rg, 2, rig_named(MSG_MKDIR, sub, "y")), 0);
	/* ends with the put, whatever its end */
	ck_assert_int_eq(rig_send(&rg, 2, rig_done_msg(&u, dir, "x", 0)), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, MSG_PUT_EXCL, &t), -EEXIST);
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, MSG_PUT_EXCL, &t), 0);
	rig_tick(&rg, 1);
	for (int k = 0; k < 61; k++) {
		rig_tick(&rg, NS_PER_SEC);
		rig_simple(&rg, 1, MSG_HEARTBEAT);
		rig_simple(&rg, 2, MSG_HEARTBEAT);
	}
	ck_assert_int_eq(rig_put_start(&rg, 2, dir, "x", 1, MSG_PUT_EXCL, &u), -ENOSPC); /* the heartbeat said 0 */
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 0)), -ESTALE);
}
END_TEST

START_TEST(puts_end_by_their_deadline)
{
	struct rig_ticket t, u;
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "y", 1, 0, &u), 0);
	for (int k = 0; k < 100; k++) {
		uint64_t left = rig_tick(&rg, NS_PER_SEC);

		ck_assert_uint_le(left, NS_PER_SEC);
		m = msg_new(MSG_PUT_RENEW);
		m->u.put.ticket = t.id;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	}
	ck_assert_int_eq(rig_extend(&rg, 1, u.id, 0, 1), -ESTALE);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 4096);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 1)), 0);
}
END_TEST

START_TEST(a_quiet_core_wants_no_ticks)
{
	rig_put(&rg, 1, dir, "x", 1);
	rg.cfg.dead_after_ns = 0;
	rig_simple(&rg, 1, MSG_LEAVE);
	rig_tick(&rg, 2 * NS_PER_SEC); /* times of directories go to the catalogue */
	ck_assert_uint_eq(rig_tick(&rg, 2 * NS_PER_SEC), UINT64_MAX);
}
END_TEST

START_TEST(eviction_keeps_what_it_must)
{
	static const struct {
		bool pin, ssd;
		uint32_t flags;
		int err;
		bool gone;
	} t[] = {
	    {false, false, 0, 0, true},
	    {false, false, MSG_ITEM_KEEP, -EBUSY, false},
	    {false, false, MSG_ITEM_KEEP | MSG_ITEM_FORCE, -EBUSY, false},
	    {false, true, MSG_ITEM_KEEP, 0, false},
	    {true, false, 0, -EBUSY, false},
	    {true, true, 0, 0, false},
	    {true, false, MSG_ITEM_FORCE, 0, true},
	    {false, true, 0, 0, false},
	};

	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
		uint64_t id = rig_put(&rg, 1, dir, "x", 5000), alloc = rg.answer->u.entry.a.id - 1;
		struct msg *m;
		int r;

		alloc = rig_notice(&rg, MSG_SSD_PERSIST, 1, 0)->items[0].alloc;
		rig_forget(&rg);
		m = msg_new(MSG_SETATTR);
		m->u.attr.a.id = id;
		m->u.attr.mask = MSG_SET_PIN;
		m->u.attr.a.flags = t[k].pin ? MSG_ATTR_PIN : 0;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		if (t[k].ssd)
			ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
		r = rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, t[k].flags);
		ck_assert_msg(r == t[k].err, "row %zu: %d", k, r);
		ck_assert_int_eq(rg.answer->items[0].flags & MSG_ITEM_GONE, t[k].gone ? MSG_ITEM_GONE : 0);
		ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), t[k].gone ? -ENOENT : 0);
		/* the bytes stay charged until the file is unlinked */
		ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
		ck_assert_int_eq(rig_freed(&rg, 1, alloc + 100), 0);
		ck_assert_int_eq(rig_freed(&rg, 1, alloc), 0);
		ck_assert_uint_eq(rig_ledger(&rg, 1).used, r ? 8192 : 0);
		ck_assert_int_eq(rig_freed(&rg, 1, alloc), 0);
		if (!t[k].gone) {
			ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
			ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
		}
		rig_forget(&rg);
		nothing_left();
	}
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, 4711, 0, 0), -ENOENT);
}
END_TEST

START_TEST(the_ring_evicts_too)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);

	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 0, 0), -ENOENT);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 1, 0), -ESTALE);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 0, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	/* not in memory any more: a late commit is ignored */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), -ESTALE);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 0, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, MSG_ITEM_GONE);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -ENOENT);
	/* a commit for a version that is no longer current */
	id = rig_put(&rg, 1, dir, "x", 5000);
	rig_put(&rg, 1, dir, "x", 5000);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), -ESTALE);
}
END_TEST

/* An object of n blocks of 1 MiB and one of a byte; those that ssd names lie there and not in memory. */
static uint64_t put_blocks(const char *name, uint32_t n, uint32_t ssd)
{
	struct rig_ticket t;
	uint64_t allocs[32];
	struct msg *m;

	ck_assert_int_eq(rig_put_start(&rg, 1, dir, name, MIB, 0, &t), 0);
	allocs[0] = t.alloc;
	for (uint32_t b = 1; b <= n; b++) {
		ck_assert_int_eq(rig_extend(&rg, 1, t.id, b, b < n ? MIB : 1), 0);
		allocs[b] = rg.answer->items[0].alloc;
	}
	for (uint32_t b = 0; b <= n; b++)
		if (ssd & 1u << b)
			ck_assert_int_eq(rig_extend(&rg, 1, t.id, b, 0), 0);
	m = rig_done_msg(&t, dir, name, 0);
	m->u.put.bytes = n * MIB + 1;
	msg_alloc_items(m, n + 1);
	for (uint32_t b = 0; b <= n; b++) {
		bool on_ssd = ssd & 1u << b;

		m->items[b] = (struct msg_item){.block = b,
						.bytes = b < n ? MIB : 1,
						.alloc = on_ssd ? 0 : allocs[b],
						.flags = on_ssd ? MSG_ITEM_SSD : MSG_ITEM_MEM};
	}
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	return rg.answer->u.entry.a.id;
}

START_TEST(objects_of_several_blocks)
{
	uint64_t id = put_blocks("big", 4, 1u << 1 | 1u << 4);
	struct msg *p = rig_notice(&rg, MSG_SSD_PERSIST, 1, 0);

	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 3 * MIB);
	ck_assert_uint_eq(p->n_items, 3);
	ck_assert_uint_eq(p->items[1].block, 2);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, MSG_ITEM_KEEP), 0);
	ck_assert_int_eq(rig_get(&rg, 1, id, 5), -EINVAL);
	ck_assert_int_eq(rig_get(&rg, 1, id, 4), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_SSD_LOCAL);
	ck_assert_uint_eq(rg.answer->u.get.bytes, 4096);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	ck_assert(rg.answer->u.get.promoted);
	rig_forget(&rg);
	/* one block lost everywhere, and all of it is gone */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 1, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, MSG_ITEM_GONE);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "big"), -ENOENT);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_uint_eq(rig_notice(&rg, MSG_DROP, 1, 0)->items[0].block, 5);
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	/* the freed file of block 0 and all else end with the acknowledgement */
	ck_assert_uint_eq(rig_counts(&rg).loose, 1);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	nothing_left();
}
END_TEST

START_TEST(gets_promote_or_not)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get, old;

	ck_assert_int_eq(rig_get(&rg, 1, 4711, 0), -ENOENT);
	ck_assert_int_eq(rig_get(&rg, 1, dir, 0), -ENOENT);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	old = rig_notice(&rg, MSG_SSD_PERSIST, 1, 0)->items[0].alloc;
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_int_eq(rig_freed(&rg, 1, old), 0);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	get = rg.answer->u.get.get_id;
	ck_assert_uint_eq(rg.answer->u.get.bytes, 8192);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 8192);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_REVOKE, get, false), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, get, false), -ESTALE);
	/* promoted */
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	ck_assert(rg.answer->u.get.promoted);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 8192);
	ck_assert_uint_eq(rig_counts(&rg).loose, 0);
	/* overwritten while it runs: temporary, charged until its file is freed */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	get = rg.answer->u.get.get_id;
	old = rg.answer->u.get.alloc;
	rig_put(&rg, 1, dir, "x", 1);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, get, false), 0);
	ck_assert(!rg.answer->u.get.promoted);
	ck_assert_uint_eq(rig_counts(&rg).loose, 2);
	ck_assert_int_eq(rig_freed(&rg, 1, old), 0);
	ck_assert_uint_eq(rig_counts(&rg).loose, 1);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	ck_assert_uint_eq(rig_counts(&rg).loose, 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 4096);
}
END_TEST

START_TEST(a_bad_source_is_dropped)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);

	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	rig_forget(&rg);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_REVOKE, rg.answer->u.get.get_id, true), 0);
	/* that was the last: the answer cannot tell, so a notice does */
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	ck_assert_uint_eq(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0)->u.revoke.reason, MSG_REVOKE_EVICTED);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -ENOENT);
}
END_TEST

START_TEST(gets_end_by_their_deadline)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get;
	struct msg *m;

	rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0);
	rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	get = rg.answer->u.get.get_id;
	for (int k = 0; k < 61; k++) {
		rig_tick(&rg, NS_PER_SEC);
		m = msg_new(MSG_HEARTBEAT);
		m->u.heartbeat.capacity = CAPACITY;
		rig_send(&rg, 1, m);
	}
	ck_assert_uint_eq(rig_ledger(&rg, 1).reserved, 0);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, get, false), -ESTALE);
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_REVOKE, get, false), -ESTALE);
	/* what does not fit now is told with the numbers */
	m = msg_new(MSG_HEARTBEAT);
	m->u.heartbeat.capacity = 12288;
	rig_send(&rg, 1, m);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), -ENOSPC);
	ck_assert_uint_eq(rg.answer->u.get.total, 12288);
	ck_assert_uint_eq(rg.answer->u.get.free, 4096);
	/* a bad copy is one, also when the get that found it is over */
	m = msg_new(MSG_GET_REVOKE);
	m->u.get = (__typeof__(m->u.get)){.get_id = get, .put_id = id, .drop_ssd_source = true};
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -ENOENT);
}
END_TEST

START_TEST(expiry_is_a_delete)
{
	struct rig_ticket t;
	uint64_t id, left;
	struct msg *m;

	m = msg_new(MSG_NS_SET);
	strcpy(m->u.ns.name, "a");
	m->u.ns.mask = MSG_NS_TTL;
	m->u.ns.ttl_seconds = 3;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	id = rig_put(&rg, 1, dir, "ns", 10);
	ck_assert_int_eq(rg.answer->u.entry.a.expires_ns, rg.real + 3 * (int64_t)NS_PER_SEC);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "own", 10, 0, &t), 0);
	m = rig_done_msg(&t, dir, "own", 10);
	m->u.put.attr.expires_ns = rg.real + (int64_t)NS_PER_SEC;
	m->u.put.attr.flags = MSG_ATTR_PIN; /* keeps it from eviction, not from its end */
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	rig_forget(&rg);
	left = rig_tick(&rg, NS_PER_MS);
	ck_assert_uint_le(left, NS_PER_SEC);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "own"), 0);
	rig_tick(&rg, NS_PER_SEC);
	ck_assert_uint_eq(rig_counts(&rg).objects, 1);
	/* the holder of the lease is told, and the bytes are dropped */
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	ck_assert_str_eq(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0)->u.revoke.name, "own");
	ck_assert_uint_eq(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0)->u.revoke.reason, MSG_REVOKE_EXPIRED);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	rig_tick(&rg, 2 * NS_PER_SEC);
	ck_assert_uint_eq(rig_counts(&rg).objects, 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
}
END_TEST

START_TEST(a_thousand_expire_in_order)
{
	uint64_t ids[1000];
	struct msg *m;
	char name[16];

	for (int k = 0; k < 1000; k++) {
		snprintf(name, sizeof(name), "%d", k);
		ids[k] = rig_put(&rg, 1, dir, name, 0);
		m = msg_new(MSG_SETATTR);
		m->u.attr.a.id = ids[k];
		m->u.attr.mask = MSG_SET_TTL;
		m->u.attr.a.expires_ns = 1700000100 * (int64_t)NS_PER_SEC + (k * 7919 % 1000) * (int64_t)NS_PER_MS;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		rig_forget(&rg);
	}
	rg.real = 1700000100 * (int64_t)NS_PER_SEC - 1;
	for (unsigned k = 0; k <= 1000; k++) {
		ck_assert_uint_eq(rig_counts(&rg).objects, 1000 - k);
		rg.real += (int64_t)NS_PER_MS;
		rig_tick(&rg, 0);
		rig_forget(&rg);
	}
}
END_TEST

/* One step does not take longer the more expire at once. */
START_TEST(many_expire_a_batch_at_a_time)
{
	enum { OBJECTS = 2 * EXPIRE_BATCH + 100 };
	struct rig_ticket t;
	struct msg *m;
	char name[16];
	uint64_t left = 0;

	for (int k = 0; k < OBJECTS; k++) {
		snprintf(name, sizeof(name), "%d", k);
		ck_assert_int_eq(rig_put_start(&rg, 1, dir, name, 0, 0, &t), 0);
		m = rig_done_msg(&t, dir, name, 0);
		m->u.put.attr.expires_ns = 1700000100 * (int64_t)NS_PER_SEC;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		rig_forget(&rg);
	}
	rg.real = 1700000100 * (int64_t)NS_PER_SEC;
	for (unsigned k = 1; k <= 2; k++) {
		ck_assert_uint_eq(rig_tick(&rg, 0), 0); /* more of it, at once */
		ck_assert_uint_eq(rig_counts(&rg).objects, OBJECTS - k * EXPIRE_BATCH);
		rig_forget(&rg);
	}
	/* those that are left for later are gone for whoever asks */
	snprintf(name, sizeof(name), "%d", OBJECTS - 1);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, name), -ENOENT);
	left = rig_tick(&rg, 0);
	ck_assert_uint_gt(left, 0);
	ck_assert_uint_eq(rig_counts(&rg).objects, 0);
}
END_TEST

START_TEST(leases_of_others_are_revoked)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 10), seq;
	struct msg *r;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_join(&rg, 3, CAPACITY, true), 0);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "x"), 0);
	seq = rg.answer->u.entry.lease;
	rig_forget(&rg);
	/* put by one of two holders: the other one is told, the one that holds none perhaps too, the asker never */
	rig_put(&rg, 1, dir, "x", 20);
	r = rig_notice(&rg, MSG_NAME_REVOKE, 2, 0);
	ck_assert_ptr_nonnull(r);
	ck_assert_uint_eq(r->u.revoke.dir, dir);
	ck_assert_uint_eq(r->u.revoke.id, id);
	ck_assert_uint_ge(r->u.revoke.seq, seq);
	ck_assert_uint_lt(r->u.revoke.seq, rg.answer->u.entry.lease);
	ck_assert_uint_ge(rg.before, 1); /* revoked before the writer hears */
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	rig_forget(&rg);
	/* only the first holds one now */
	ck_assert_int_eq(rig_rename(&rg, 3, dir, "x", dir, "y", false), 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	ck_assert_str_eq(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0)->u.revoke.name, "x");
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 2, 0));
	rig_forget(&rg);
	ck_assert_int_eq(rig_delete(&rg, 2, dir, "y"), 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_NAME_REVOKE, 3, 0));
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
}
END_TEST

START_TEST(a_second_node_gets_and_loses)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_get(&rg, 2, id, 0), 0);
	get = rg.answer->u.get.get_id;
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rg.answer->u.get.source_node, 1);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, MSG_ITEM_FORCE), -EBUSY); /* being read */
	ck_assert_int_eq(rig_get_end(&rg, 1, MSG_GET_DONE, get, false), -ESTALE);	  /* not its own */
	ck_assert_int_eq(rig_get_end(&rg, 2, MSG_GET_DONE, get, false), 0);
	ck_assert(rg.answer->u.get.promoted);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 8192);
	/* not the last copy any more */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, MSG_ITEM_KEEP), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, 0);
	rig_forget(&rg);
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 2, 0));
	/* the acknowledgement of one that has none changes nothing */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 1);
	ck_assert_int_eq(rig_item(&rg, 2, MSG_DELETE_ACK, id, 0, 0), 0);
	nothing_left();
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, 0);
}
END_TEST

static uint64_t get_from(uint32_t node, uint64_t id, uint32_t source)
{
	ck_assert_int_eq(rig_get(&rg, node, id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, source);
	return rg.answer->u.get.get_id;
}

static void get_there(uint32_t node, uint64_t id)
{
	uint64_t get = get_from(node, id, MSG_SOURCE_MEM_REMOTE);

	ck_assert_int_eq(rig_get_end(&rg, node, MSG_GET_DONE, get, false), 0);
	ck_assert(rg.answer->u.get.promoted);
}

START_TEST(a_plan_tells_what_the_source_is_shown)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), alloc = rig_put(&rg, 1, dir, "y", 5000);

	ck_assert_int_eq(rig_get(&rg, 1, id, 0), 0);
	alloc = rg.answer->u.get.alloc;
	ck_assert_uint_eq(rg.answer->u.get.source_tag, 0);
	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	get_from(2, id, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rg.answer->u.get.source_node, 1);
	ck_assert_uint_eq(rg.answer->u.get.source_tag, rg.tags[1]);
	ck_assert_uint_eq(rg.answer->u.get.source_alloc, alloc);
	ck_assert_str_eq(rg.answer->u.get.source_address, "node1:7000");
	ck_assert_uint_eq(rg.answer->u.get.len, 5000);
	ck_assert_uint_eq(rg.answer->u.get.bytes, 8192);
	ck_assert_uint_eq(rg.answer->u.get.expires_ns, rg.now + 60 * NS_PER_SEC);
	/* from its SSD there is no allocation to show */
	ck_assert_int_eq(rig_get_end(&rg, 2, MSG_GET_REVOKE, rg.answer->u.get.get_id, false), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	get_from(2, id, MSG_SOURCE_SSD_REMOTE);
	ck_assert_uint_eq(rg.answer->u.get.source_alloc, 0);
	ck_assert_uint_eq(rg.answer->u.get.source_tag, rg.tags[1]);
}
END_TEST

START_TEST(a_node_without_an_address_is_no_source)
{
	struct msg *m = msg_new(MSG_JOIN);
	uint64_t id;

	m->u.join.capacity = CAPACITY;
	m->u.join.instance_key[0] = 'z';
	ck_assert_int_eq(rig_send(&rg, 2, m), 0);
	rg.tags[2] = rg.answer->u.join.tomb_tag;
	id = rig_put(&rg, 2, dir, "x", 5000);
	ck_assert_int_eq(rig_get(&rg, 1, id, 0), -ENOENT);
	ck_assert_int_eq(rig_get(&rg, 2, id, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_LOCAL);
}
END_TEST

START_TEST(sources_take_turns)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), other = rig_put(&rg, 1, dir, "y", 5000);
	unsigned of[RIG_NODES + 1] = {0};

	for (uint32_t n = 2; n <= 4; n++)
		ck_assert_int_eq(rig_join(&rg, n, CAPACITY, true), 0);
	get_there(2, id);
	get_there(3, id);
	/* those that have nothing to do take turns */
	for (unsigned k = 0; k < 6; k++) {
		uint64_t get = get_from(4, id, MSG_SOURCE_MEM_REMOTE), alloc = rg.answer->u.get.alloc;

		of[rg.answer->u.get.source_node]++;
		ck_assert_int_eq(rig_get_end(&rg, 4, MSG_GET_DONE, get, false), 0);
		ck_assert_int_eq(rig_item(&rg, 4, MSG_MEM_EVICT, id, 0, 0), 0);
		ck_assert_int_eq(rig_freed(&rg, 4, alloc), 0);
	}
	ck_assert(of[1] == 2 && of[2] == 2 && of[3] == 2);
	/* and one that has something to do has a rest, whatever it is */
	get_from(2, other, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rg.answer->u.get.source_node, 1);
	get_from(3, other, MSG_SOURCE_MEM_REMOTE);
	for (unsigned k = 0; k < 4; k++) {
		get_from(4, id, MSG_SOURCE_MEM_REMOTE);
		ck_assert_uint_ne(rg.answer->u.get.source_node, 1);
	}
}
END_TEST

START_TEST(a_source_that_failed_is_not_asked_first)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get;
	uint32_t first, second;

	for (uint32_t n = 2; n <= 4; n++)
		ck_assert_int_eq(rig_join(&rg, n, CAPACITY, true), 0);
	get_there(2, id);
	get = get_from(4, id, MSG_SOURCE_MEM_REMOTE);
	first = rg.answer->u.get.source_node;
	/* the other one has much to do, and is asked all the same */
	second = 3 - first;
	for (unsigned k = 0; k < 4; k++)
		get_from(3, id, MSG_SOURCE_MEM_REMOTE);
	ck_assert_int_eq(rig_get_end(&rg, 4, MSG_GET_REVOKE, get, false), 0);
	for (unsigned k = 0; k < 5; k++) {
		get_from(4, id, MSG_SOURCE_MEM_REMOTE);
		ck_assert_uint_eq(rg.answer->u.get.source_node, second);
	}
	/* without another it is asked again; and a few seconds later it is as good as any */
	ck_assert_int_eq(rig_simple(&rg, second, MSG_LEAVE), 0);
	get_from(4, id, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rg.answer->u.get.source_node, first);
}
END_TEST

START_TEST(a_bad_copy_elsewhere_is_none)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get;
	struct msg *m;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	get_there(2, id);
	ck_assert_int_eq(rig_item(&rg, 2, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 2, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 2, MSG_SSD_EVICT, id, 0, 0), 0);
	get = get_from(2, id, MSG_SOURCE_SSD_REMOTE);
	/* one that is over says nothing of another's copy, nor of our own */
	m = msg_new(MSG_GET_REVOKE);
	m->u.get = (__typeof__(m->u.get)){
	    .get_id = get + 1000, .put_id = id, .source = MSG_SOURCE_SSD_REMOTE, .drop_ssd_source = true};
	ck_assert_int_eq(rig_send(&rg, 1, m), -ESTALE);
	ck_assert_uint_eq(rig_counts(&rg).objects, 1);
	ck_assert_int_eq(rig_get_end(&rg, 2, MSG_GET_REVOKE, get, true), 0);
	ck_assert_uint_eq(rig_counts(&rg).objects, 0);
}
END_TEST

START_TEST(a_get_ends_with_its_source)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000), get;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_join(&rg, 3, CAPACITY, true), 0);
	get_there(2, id);
	get = get_from(3, id, MSG_SOURCE_MEM_REMOTE);
	ck_assert_uint_eq(rig_ledger(&rg, 3).reserved, 8192);
	ck_assert_int_eq(rig_simple(&rg, rg.answer->u.get.source_node, MSG_LEAVE), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 3).reserved, 0);
	ck_assert_uint_eq(rig_counts(&rg).gets, 0);
	ck_assert_int_eq(rig_get_end(&rg, 3, MSG_GET_DONE, get, false), -ESTALE);
	get_from(3, id, MSG_SOURCE_MEM_REMOTE);
}
END_TEST

static int hold(uint32_t node, uint64_t id)
{
	return rig_item(&rg, node, MSG_HOLD, id, 0, 0);
}

static int let_go(uint32_t node, uint64_t id)
{
	return rig_item(&rg, node, MSG_RELEASE, id, 0, 0);
}

START_TEST(what_is_held_is_not_dropped)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_join(&rg, 3, CAPACITY, true), 0);
	ck_assert_int_eq(hold(2, id + 1000), -ENOENT);
	ck_assert_int_eq(hold(2, dir), -ENOENT);
	ck_assert_int_eq(hold(2, id), 0);
	ck_assert_int_eq(hold(2, id), 0);
	ck_assert_int_eq(hold(3, id), 0);
	ck_assert_uint_eq(rig_counts(&rg).holds, 2);
	ck_assert_int_eq(let_go(1, id), -ENOENT);
	rig_forget(&rg);
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "x"), -ENOENT);
	/* nor when others are told again */
	for (unsigned k = 0; k < 4; k++) {
		rig_tick(&rg, 2 * NS_PER_SEC);
		for (uint32_t n = 1; n <= 3; n++)
			rig_simple(&rg, n, MSG_PUT_RENEW);
	}
	ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
	/* it can be got, and it may come to be somewhere else */
	get_from(3, id, MSG_SOURCE_MEM_REMOTE);
	ck_assert_int_eq(rig_get_end(&rg, 3, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	ck_assert_int_eq(let_go(3, id), 0);
	ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_int_eq(let_go(2, id), 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_int_eq(let_go(2, id), -ENOENT);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 0);
}
END_TEST

START_TEST(a_holder_that_is_gone_holds_nothing)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(hold(2, id), 0);
	rig_forget(&rg);
	rig_put(&rg, 1, dir, "x", 5000);
	ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_int_eq(rig_simple(&rg, 2, MSG_LEAVE), 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_uint_eq(rig_counts(&rg).holds, 0);
}
END_TEST

START_TEST(the_last_copy_of_what_is_held_stays)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(hold(2, id), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), -EBUSY);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, MSG_ITEM_FORCE), -EBUSY);
	/* also without a name */
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, MSG_ITEM_FORCE), -EBUSY);
	/* with another copy it may go */
	id = rig_put(&rg, 1, dir, "x", 5000);
	ck_assert_int_eq(hold(2, id), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	/* what goes all the same, goes with its holders */
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 0, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, MSG_ITEM_GONE);
	ck_assert_uint_eq(rig_counts(&rg).holds, 1);
}
END_TEST

START_TEST(expiry_asks_no_holder)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);
	struct msg *m = msg_new(MSG_SETATTR);

	ck_assert_int_eq(hold(1, id), 0);
	m->u.attr.a.id = id;
	m->u.attr.mask = MSG_SET_TTL;
	m->u.attr.a.expires_ns = rg.real + (int64_t)NS_PER_SEC;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	rig_tick(&rg, NS_PER_SEC);
	ck_assert_int_eq(rig_lookup(&rg, 1, dir, "x"), -ENOENT);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 1);
	/* the only node goes, and everything with it */
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_LEAVE), 0);
	ck_assert_uint_eq(rig_counts(&rg).holds, 0);
}
END_TEST

START_TEST(a_heartbeat_is_told_the_time)
{
	struct msg *m = msg_new(MSG_HEARTBEAT);

	m->u.heartbeat.capacity = CAPACITY;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.heartbeat.master_ns, rg.now);
	ck_assert_uint_eq(rg.answer->u.heartbeat.lease_ns, UINT64_MAX);
}
END_TEST

START_TEST(a_node_dies_with_what_only_it_had)
{
	uint64_t only = rig_put(&rg, 1, dir, "only", 5000), both = rig_put(&rg, 1, dir, "both", 5000);
	struct rig_ticket t;

	rig_put(&rg, 1, dir, "empty", 0);
	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	ck_assert_int_eq(rig_get(&rg, 2, both, 0), 0);
	ck_assert_int_eq(rig_get_end(&rg, 2, MSG_GET_DONE, rg.answer->u.get.get_id, false), 0);
	ck_assert_int_eq(rig_get(&rg, 1, only, 0), 0);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "only"), 0);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "new", 1, MSG_PUT_EXCL, &t), 0);
	rig_forget(&rg);
	for (int k = 0; k < 6; k++) {
		struct msg *m = msg_new(MSG_HEARTBEAT);

		m->u.heartbeat.capacity = CAPACITY;
		ck_assert_int_eq(rig_send(&rg, 2, m), 0);
		rig_tick(&rg, NS_PER_SEC);
	}
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_HEARTBEAT), -ESTALE);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "only"), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_LOST);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_NAME_REVOKE, 2, 0));
	ck_assert_uint_eq(rig_notice(&rg, MSG_NAME_REVOKE, 2, 0)->u.revoke.reason, MSG_REVOKE_LOST);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "empty"), -ENOENT);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "both"), 0);
	ck_assert_uint_eq(rig_counts(&rg).tickets, 0);
	ck_assert_int_eq(rig_put_start(&rg, 2, dir, "new", 1, MSG_PUT_EXCL, &t), 0);
	/* back with a new incarnation: nothing of the old one is its own */
	ck_assert_int_eq(rig_join(&rg, 1, CAPACITY, true), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	ck_assert_int_eq(rig_get(&rg, 1, both, 0), 0);
	ck_assert_uint_eq(rg.answer->u.get.source, MSG_SOURCE_MEM_REMOTE);
}
END_TEST

START_TEST(one_incarnation_at_a_time)
{
	uint64_t tag = rg.tags[1];
	struct msg *m;

	ck_assert_int_eq(rig_join(&rg, 1, CAPACITY, true), -EBUSY);
	m = msg_new(MSG_JOIN);
	m->u.join.instance_key[0] = 'a' + 1; /* the key of node 1 */
	ck_assert_int_eq(rig_send(&rg, 2, m), -EBUSY);
	m = msg_new(MSG_JOIN);
	ck_assert_int_eq(rig_send(&rg, 2, m), -EINVAL);
	m = msg_new(MSG_JOIN);
	memset(m->u.join.instance_key, 'x', sizeof(m->u.join.instance_key));
	ck_assert_int_eq(rig_send(&rg, 2, m), -EINVAL);
	ck_assert_int_eq(rig_simple(&rg, 2, MSG_STATFS), -ESTALE);
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_LEAVE), 0);
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_LEAVE), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, "a"), -ESTALE);
	ck_assert_int_eq(rig_join(&rg, 1, CAPACITY, true), 0);
	ck_assert_uint_gt(rg.tags[1], tag);
	m = rig_named(MSG_LOOKUP, MSG_ROOT_DIR, "a");
	m->tomb_tag = tag;
	ck_assert_int_eq(rig_send(&rg, 1, m), -ESTALE);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, "a"), 0);
	m = msg_new((enum msg_type)200);
	ck_assert_int_eq(rig_send(&rg, 1, m), -EOPNOTSUPP);
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_DROP), -EOPNOTSUPP);
}
END_TEST

/* Asking to come back is no sign of life of what was before. */
START_TEST(a_join_keeps_no_dead_incarnation_alive)
{
	int r = -EBUSY;

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	for (int k = 0; k < 12 && r == -EBUSY; k++) {
		struct msg *m = msg_new(MSG_HEARTBEAT);

		m->u.heartbeat.capacity = CAPACITY;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		rig_tick(&rg, NS_PER_SEC / 2);
		r = rig_join(&rg, 2, CAPACITY, true);
	}
	ck_assert_int_eq(r, 0);
}
END_TEST

/* What ends a lease comes behind what has granted it, and tells a sequence above. */
START_TEST(the_end_of_a_lease_does_not_overtake_it)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 10), lease, sub;

	ck_assert_int_eq(rig_rename(&rg, 1, dir, "x", dir, "y", false), 0);
	ck_assert(rg.after_commit);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert(!rg.after_commit);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_EVICT, id, 0, 0), 0);
	ck_assert(rg.answer->items[0].flags & MSG_ITEM_GONE);
	ck_assert(rg.after_commit);
	id = rig_put(&rg, 1, dir, "x", 10);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert(rg.answer->items[0].flags & MSG_ITEM_GONE);
	ck_assert(rg.after_commit);
	rig_put(&rg, 1, dir, "x", 10);
	lease = rg.answer->u.entry.lease;
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_uint_gt(rg.answer->u.entry.lease, lease);
	sub = rig_mkdir(&rg, dir, "sub");
	lease = rg.answer->u.entry.lease;
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, dir, "sub")), 0);
	ck_assert_uint_gt(rg.answer->u.entry.lease, lease);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, sub);
}
END_TEST

/* The last replica of an orphan is evicted, and then the node acknowledges the drop instead of freeing the file. */
START_TEST(an_acknowledgement_ends_what_is_loose)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 10);

	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 4096);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, 0, 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 4096);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	nothing_left();
}
END_TEST

/* Each version's and each node's loose allocations are its own, however many there are. */
START_TEST(an_acknowledgement_ends_no_other_version)
{
	enum { VERSIONS = 300 };
	uint64_t ids[2][VERSIONS];

	ck_assert_int_eq(rig_join(&rg, 2, CAPACITY, true), 0);
	for (uint32_t k = 0; k < VERSIONS; k++) {
		for (uint32_t n = 0; n < 2; n++) {
			ids[n][k] = rig_put(&rg, n + 1, dir, n ? "y" : "x", 10);
			ck_assert_int_eq(rig_item(&rg, n + 1, MSG_MEM_EVICT, ids[n][k], 0, 0), 0);
		}
		rig_forget(&rg);
	}
	ck_assert_uint_eq(rig_counts(&rg).loose, 2 * VERSIONS);
	for (uint32_t k = 0; k < VERSIONS; k++) {
		/* not that node's to say */
		ck_assert_int_eq(rig_item(&rg, 2, MSG_DELETE_ACK, ids[0][k], 0, 0), 0);
		ck_assert_uint_eq(rig_counts(&rg).loose, 2 * VERSIONS - k);
		ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, ids[0][k], 0, 0), 0);
		ck_assert_uint_eq(rig_counts(&rg).loose, 2 * VERSIONS - k - 1);
	}
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 0);
	ck_assert_uint_eq(rig_ledger(&rg, 2).used, VERSIONS * 4096);
	ck_assert_int_eq(rig_simple(&rg, 2, MSG_LEAVE), 0);
	nothing_left();
}
END_TEST

START_TEST(drops_are_repeated)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 10);
	struct msg *m;

	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	for (int k = 0; k < 3; k++) {
		rig_forget(&rg);
		m = msg_new(MSG_HEARTBEAT);
		m->u.heartbeat.capacity = CAPACITY;
		rig_send(&rg, 1, m);
		rig_tick(&rg, NS_PER_SEC);
		ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
		rig_tick(&rg, NS_PER_SEC);
		ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	}
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, id, 0, 0), 0);
	rig_forget(&rg);
	rig_tick(&rg, 3 * NS_PER_SEC);
	ck_assert_ptr_null(rig_notice(&rg, MSG_DROP, 1, 0));
}
END_TEST

static int again(struct msg *m)
{
	rg.req_id--; /* the last one's */
	return rig_send(&rg, 1, m);
}

START_TEST(what_comes_twice_is_done_once)
{
	struct rig_ticket t, u;
	struct msg *m;
	uint64_t id;

	rig_stop(&rg);
	set_up_with(false, 8);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "x", 1, 0, &t), 0);
	m = msg_new(MSG_PUT_START);
	m->u.put.dir = dir;
	ck_assert_int_eq(again(m), 0);
	ck_assert_uint_eq(rg.answer->u.put.ticket, t.id);
	ck_assert_uint_eq(rg.answer->items[0].alloc, t.alloc);
	ck_assert_uint_eq(rig_counts(&rg).tickets, 1);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, dir, "x", 1)), 0);
	id = rg.answer->u.entry.a.id;
	ck_assert_int_eq(again(rig_done_msg(&t, dir, "x", 1)), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, id);
	ck_assert(rg.after_commit); /* the first may still wait for it */
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), 0);
	ck_assert_int_eq(again(rig_named(MSG_DELETE, dir, "x")), 0);
	/* another request may use the number of one of another type, or of one long ago */
	for (int k = 0; k < 9; k++)
		ck_assert_int_eq(rig_put_start(&rg, 1, dir, "y", 1, 0, &u), 0);
	rg.req_id -= 9;
	ck_assert_int_eq(rig_delete(&rg, 1, dir, "x"), -ENOENT);
}
END_TEST

START_TEST(statfs_counts_each_object_once)
{
	uint64_t id = rig_put(&rg, 1, dir, "x", 5000);
	struct msg *m;

	ck_assert_int_eq(rig_item(&rg, 1, MSG_SSD_COMMIT, id, 0, 0), 0);
	m = msg_new(MSG_STATFS);
	m->u.statfs.dir = dir;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.statfs.total_bytes, 5 * CAPACITY);
	ck_assert_uint_eq(rg.answer->u.statfs.used_bytes, 8192);
	ck_assert_uint_eq(rg.answer->u.statfs.objects, 1);
	/* what evicted files still occupy is not there for anybody, as in the ledger */
	m = msg_new(MSG_HEARTBEAT);
	m->u.heartbeat.capacity = CAPACITY;
	m->u.heartbeat.ssd_capacity = 4 * CAPACITY;
	m->u.heartbeat.zombie = 3 * 4096;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	m = msg_new(MSG_STATFS);
	m->u.statfs.dir = dir;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.statfs.total_bytes, 5 * CAPACITY - 3 * 4096);
	m = msg_new(MSG_STATFS);
	m->u.statfs.dir = 31337;
	ck_assert_int_eq(rig_send(&rg, 1, m), -ENOENT);
}
END_TEST

START_TEST(ids_are_given_only_when_the_catalogue_has_them)
{
	const struct core_config cfg = {.auto_namespace = true, .id_block = 256};
	struct core *c = core_new(&cfg);
	struct core_out out = {0};
	struct msg *m;
	uint64_t highest = 0, n = 0;
	int r;

	ck_assert(!core_load_end(c, &out));
	core_committed(c, out.writes.counter);
	m = msg_new(MSG_JOIN);
	m->node = 1;
	m->u.join.capacity = 1ull << 40;
	m->u.join.instance_key[0] = 'x';
	ck_assert(!core_handle(c, m, 1, 1, &out));
	do {
		m = msg_new(MSG_MKDIR);
		m->node = 1;
		m->tomb_tag = out.msgs[0].msg->tomb_tag;
		m->u.name.dir = MSG_ROOT_DIR;
		snprintf(m->u.name.name, sizeof(m->u.name.name), "%llu", (unsigned long long)n++);
		ck_assert(!core_handle(c, m, 1, 1, &out));
		r = m->status;
		if (!r) {
			ck_assert_uint_gt(m->u.entry.a.id, highest);
			highest = m->u.entry.a.id;
		}
	} while (!r && n < 10000);
	ck_assert_int_eq(r, -EIO);
	/* some were taken ahead, none above what was confirmed */
	ck_assert_uint_gt(n, 100);
	ck_assert_uint_lt(highest, 2 + 256);
	ck_assert_uint_gt(out.writes.counter, 2 + 256);
	core_free(c);
	core_out_clear(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master/puts");
	TCase *tc = tcase_create("puts");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, grants_are_whole_pages_up_to_the_block_size);
	tcase_add_test(tc, a_block_size_may_be_asked_for);
	tcase_add_test(tc, extend_raises_lowers_and_gives_back);
	tcase_add_test(tc, what_does_not_fit_is_refused_with_the_numbers);
	tcase_add_test(tc, publish_takes_what_it_needs);
	tcase_add_test(tc, publish_checks_its_items);
	tcase_add_test(tc, publish_checks_where);
	tcase_add_test(tc, the_last_to_publish_wins);
	tcase_add_test(tc, exclusive_names_are_reserved);
	tcase_add_test(tc, puts_end_by_their_deadline);
	tcase_add_test(tc, a_quiet_core_wants_no_ticks);
	tcase_add_test(tc, eviction_keeps_what_it_must);
	tcase_add_test(tc, the_ring_evicts_too);
	tcase_add_test(tc, objects_of_several_blocks);
	tcase_add_test(tc, gets_promote_or_not);
	tcase_add_test(tc, a_bad_source_is_dropped);
	tcase_add_test(tc, gets_end_by_their_deadline);
	tcase_add_test(tc, expiry_is_a_delete);
	tcase_add_test(tc, a_thousand_expire_in_order);
	tcase_add_test(tc, many_expire_a_batch_at_a_time);
	tcase_add_test(tc, leases_of_others_are_revoked);
	tcase_add_test(tc, a_second_node_gets_and_loses);
	tcase_add_test(tc, a_plan_tells_what_the_source_is_shown);
	tcase_add_test(tc, a_node_without_an_address_is_no_source);
	tcase_add_test(tc, sources_take_turns);
	tcase_add_test(tc, a_source_that_failed_is_not_asked_first);
	tcase_add_test(tc, a_bad_copy_elsewhere_is_none);
	tcase_add_test(tc, a_get_ends_with_its_source);
	tcase_add_test(tc, what_is_held_is_not_dropped);
	tcase_add_test(tc, a_holder_that_is_gone_holds_nothing);
	tcase_add_test(tc, the_last_copy_of_what_is_held_stays);
	tcase_add_test(tc, expiry_asks_no_holder);
	tcase_add_test(tc, a_heartbeat_is_told_the_time);
	tcase_add_test(tc, a_node_dies_with_what_only_it_had);
	tcase_add_test(tc, one_incarnation_at_a_time);
	tcase_add_test(tc, a_join_keeps_no_dead_incarnation_alive);
	tcase_add_test(tc, the_end_of_a_lease_does_not_overtake_it);
	tcase_add_test(tc, an_acknowledgement_ends_what_is_loose);
	tcase_add_test(tc, an_acknowledgement_ends_no_other_version);
	tcase_add_test(tc, drops_are_repeated);
	tcase_add_test(tc, what_comes_twice_is_done_once);
	tcase_add_test(tc, statfs_counts_each_object_once);
	tcase_add_test(tc, ids_are_given_only_when_the_catalogue_has_them);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
