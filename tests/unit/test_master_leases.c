/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases that have a time: revokes until they are acknowledged, answers that wait for them, leases that lapse, requests
 * that come again meanwhile, and a master that has started again.
 */
#include "tests/unit/core_rig.h"
#include "tests/unit/run.h"

#define MIB (1024ull * 1024)
#define LEASE (5 * NS_PER_SEC)
#define REPEAT (2 * NS_PER_SEC)

static struct rig rg;
static uint64_t dir;

static const struct core_config config = {.auto_namespace = true,
					  .hash_seed = 7,
					  .dead_after_ns = 3600 * NS_PER_SEC,
					  .repeat_ns = REPEAT,
					  .lease_ns = LEASE,
					  .recent_answers = 4};

static void set_up(void)
{
	rig_start(&rg, &config);
	for (uint32_t n = 1; n <= 2; n++)
		ck_assert_int_eq(rig_join(&rg, n, 64 * MIB, false), 0);
	dir = rig_mkdir(&rg, MSG_ROOT_DIR, "a");
	rig_put(&rg, 1, dir, "x", 5000);
	rig_forget(&rg);
}

/* A name that more than one leases is revoked for every node: with a third one there is more to acknowledge. */
static void third(void)
{
	ck_assert_int_eq(rig_join(&rg, 3, 64 * MIB, false), 0);
}

static void tear_down(void)
{
	rig_stop(&rg);
}

static uint64_t beat(uint32_t node)
{
	struct msg *m = msg_new(MSG_HEARTBEAT);

	m->u.heartbeat.capacity = 64 * MIB;
	ck_assert_int_eq(rig_send(&rg, node, m), 0);
	return rg.answer->u.heartbeat.lease_ns;
}

/* Acknowledges; what has been answered besides is in rg.answer, if that many answers came with it. */
static void ack(uint32_t node, uint64_t seq, unsigned answers)
{
	struct msg *m = msg_new(MSG_REVOKE_ACK);

	m->u.revoke.seq = seq;
	rig_post(&rg, node, m);
	ck_assert_uint_eq(rg.answers, 1 + answers);
}

static const struct msg *revoke(uint32_t node, size_t n)
{
	const struct msg *m = rig_notice(&rg, MSG_NAME_REVOKE, node, n);

	ck_assert_ptr_nonnull(m);
	ck_assert(m->u.revoke.ack);
	return m;
}

static void leased(uint32_t node, const char *name)
{
	ck_assert_int_eq(rig_lookup(&rg, node, dir, name), 0);
}

static unsigned count_revokes(uint32_t node)
{
	unsigned n = 0;

	while (rig_notice(&rg, MSG_NAME_REVOKE, node, n))
		n++;
	return n;
}

static struct msg *delete_x(void)
{
	return rig_named(MSG_DELETE, dir, "x");
}

static struct msg *rename_x(const char *to)
{
	struct msg *m = msg_new(MSG_RENAME);

	m->u.rename.from_dir = m->u.rename.to_dir = dir;
	strcpy(m->u.rename.from, "x");
	rig_name(m->u.rename.to, sizeof(m->u.rename.to), to);
	return m;
}

static struct msg *put_done(uint32_t node, const char *name)
{
	struct rig_ticket t;

	ck_assert_int_eq(rig_put_start(&rg, node, dir, name, 5000, 0, &t), 0);
	return rig_done_msg(&t, dir, name, 5000);
}

START_TEST(an_overwrite_waits_for_those_who_leased)
{
	uint64_t req;

	third();
	leased(2, "x");
	leased(3, "x");
	ck_assert(!rig_post(&rg, 1, put_done(1, "x")));
	req = rg.req_id;
	ck_assert_uint_eq(rg.answers, 0);
	ck_assert_str_eq(revoke(2, 0)->u.revoke.name, "x");
	ck_assert_ptr_null(rig_notice(&rg, MSG_NAME_REVOKE, 1, 0));
	/* others go on, and see the new version */
	leased(3, "x");
	ack(2, revoke(2, 0)->u.revoke.seq, 0);
	ack(2, revoke(2, 0)->u.revoke.seq, 0); /* twice is once */
	ack(2, revoke(3, 0)->u.revoke.seq + 1, 0);
	ack(3, revoke(3, 0)->u.revoke.seq, 1);
	ck_assert_uint_eq(rg.answer->req_id, req);
	ck_assert_int_eq(rg.answer->status, 0);
	ck_assert(rg.after_commit);
	ck_assert_uint_ne(rg.answer->u.entry.replaced_id, 0);
}
END_TEST

/* What follows an answer waits with it; a node does not know the version before. */
START_TEST(notices_stay_behind_the_answer)
{
	size_t n;

	ck_assert_int_eq(rig_join(&rg, 3, 64 * MIB, true), 0);
	leased(2, "x");
	ck_assert(!rig_post(&rg, 3, put_done(3, "x")));
	ck_assert_ptr_null(rig_notice(&rg, MSG_SSD_PERSIST, 3, 0));
	ack(2, revoke(2, 0)->u.revoke.seq, 0);
	n = rg.n_notices;
	ack(1, revoke(1, 0)->u.revoke.seq, 1);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_SSD_PERSIST, 3, 0));
	ck_assert_uint_eq(rg.n_notices, n + 1);
	ck_assert_uint_eq(rg.notices[n]->items[0].put_id, rg.answer->u.entry.a.id);
}
END_TEST

/* As long as the eviction's own answer is on its way, the one who asked for it may give what is gone. */
START_TEST(who_evicts_is_told_like_the_others)
{
	uint64_t id, seq;

	leased(1, "x");
	id = rg.answer->u.entry.a.id;
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	seq = revoke(1, 0)->u.revoke.seq;
	ck_assert(!rig_post(&rg, 2, put_done(2, "x")));
	ack(1, seq, 1);
	ck_assert_int_eq(rg.answer->status, 0);
}
END_TEST

START_TEST(rename_delete_and_rmdir_wait)
{
	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, rename_x("y")));
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
	ck_assert_int_eq(rg.answer->status, 0);
	rig_forget(&rg);
	leased(2, "y");
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "y")));
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
	rig_forget(&rg);
	ck_assert_int_eq(rig_lookup(&rg, 2, MSG_ROOT_DIR, "a"), 0);
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "a")));
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
	ck_assert_int_eq(rg.answer->status, 0);
}
END_TEST

START_TEST(a_rename_over_a_name_waits_for_both)
{
	rig_put(&rg, 1, dir, "y", 5000);
	leased(2, "x");
	leased(2, "y");
	ck_assert(!rig_post(&rg, 1, rename_x("y")));
	ck_assert_uint_eq(count_revokes(2), 2);
	ck_assert_str_eq(revoke(2, 0)->u.revoke.name, "x");
	ck_assert_str_eq(revoke(2, 1)->u.revoke.name, "y");
	ack(2, revoke(2, 1)->u.revoke.seq, 0);
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
	ck_assert_uint_ne(rg.answer->u.rename.replaced_id, 0);
	/* of one that is only leased under its old name, too */
	rig_forget(&rg);
	leased(2, "y");
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "y")));
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
}
END_TEST

START_TEST(what_nobody_leases_does_not_wait)
{
	ck_assert(rig_post(&rg, 1, put_done(1, "x")));
	ck_assert(rig_post(&rg, 1, put_done(1, "new")));
	/* whoever asks last is the only one who may have a lease of it */
	ck_assert(rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "new")));
	ck_assert_uint_eq(count_revokes(2), 0);
}
END_TEST

/* An attribute is not waited for, but its revoke is acknowledged like any. */
START_TEST(attributes_do_not_wait)
{
	struct msg *m = msg_new(MSG_SETATTR);

	leased(2, "x");
	m->u.attr.a.id = rg.answer->u.entry.a.id;
	m->u.attr.mask = MSG_SET_MODE;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(count_revokes(2), 1);
	rig_tick(&rg, REPEAT);
	ck_assert_uint_eq(count_revokes(2), 2);
	ck_assert_uint_eq(revoke(2, 0)->u.revoke.seq, revoke(2, 1)->u.revoke.seq);
	ack(2, revoke(2, 0)->u.revoke.seq, 0);
	rig_tick(&rg, 2 * REPEAT);
	ck_assert_uint_eq(count_revokes(2), 2);
}
END_TEST

/* A name that is gone, and made again before everybody knows that it was gone. */
START_TEST(a_new_name_waits_for_the_end_of_the_old)
{
	uint64_t seq;

	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, delete_x()));
	third();
	ck_assert(!rig_post(&rg, 3, put_done(3, "x")));
	ck_assert(rig_post(&rg, 1, put_done(1, "z")));
	seq = revoke(2, 0)->u.revoke.seq;
	ack(2, seq, 2);
	ck_assert_int_eq(rg.answer->status, 0);
	/* the same, where nobody waits: an evicted one */
	ck_assert_int_eq(rig_simple(&rg, 3, MSG_LEAVE), 0);
	rig_forget(&rg);
	leased(2, "z");
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, rg.answer->u.entry.a.id, 0, MSG_ITEM_FORCE), 0);
	ck_assert(!rig_post(&rg, 1, put_done(1, "z")));
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
}
END_TEST

/* The sender's own lease, which somebody else ended, is no reason to wait. */
START_TEST(nobody_waits_for_himself)
{
	leased(2, "x");
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, rg.answer->u.entry.a.id, 0, MSG_ITEM_FORCE), 0);
	ck_assert_uint_eq(count_revokes(2), 1);
	ack(1, revoke(1, 0)->u.revoke.seq, 0);
	ck_assert(rig_post(&rg, 2, put_done(2, "x")));
}
END_TEST

START_TEST(revokes_are_told_again_in_order)
{
	rig_put(&rg, 1, dir, "y", 5000);
	leased(2, "x");
	leased(2, "y");
	ck_assert(!rig_post(&rg, 1, delete_x()));
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "y")));
	rig_forget(&rg);
	rig_tick(&rg, REPEAT / 2);
	ck_assert_uint_eq(count_revokes(2), 0);
	rig_tick(&rg, REPEAT / 2);
	ck_assert_uint_eq(count_revokes(2), 2);
	ck_assert_str_eq(revoke(2, 0)->u.revoke.name, "x");
	ck_assert_str_eq(revoke(2, 1)->u.revoke.name, "y");
	ack(2, revoke(2, 1)->u.revoke.seq, 1);
	ack(2, revoke(2, 0)->u.revoke.seq, 1);
	rig_forget(&rg);
	rig_tick(&rg, REPEAT);
	ck_assert_uint_eq(count_revokes(2), 0);
}
END_TEST

START_TEST(leases_lapse_and_come_back)
{
	uint64_t req, all, late;

	ck_assert_uint_eq(beat(2), LEASE);
	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, delete_x()));
	req = rg.req_id;
	late = revoke(2, 0)->u.revoke.seq;
	/* one that is just on its way is no reason to end its leases; one that does not come is */
	ck_assert_uint_eq(beat(2), LEASE);
	rig_tick(&rg, LEASE / 2);
	ck_assert_uint_eq(beat(2), 0);
	rig_tick(&rg, LEASE / 2 - NS_PER_SEC / 2);
	ck_assert_uint_eq(rg.answers, 0);
	rig_forget(&rg);
	ck_assert_uint_le(rig_tick(&rg, NS_PER_SEC / 2), LEASE);
	ck_assert_uint_eq(rg.answers, 1);
	ck_assert_uint_eq(rg.answer->req_id, req);
	ck_assert_uint_eq(revoke(2, 0)->u.revoke.dir, 0);
	all = revoke(2, 0)->u.revoke.seq;
	/* it gets none before it has said that all are over */
	ck_assert_uint_eq(beat(2), 0);
	ack(2, late, 0);
	ck_assert_uint_eq(beat(2), 0);
	rig_tick(&rg, REPEAT);
	ck_assert_uint_eq(count_revokes(2), 2);
	ack(2, revoke(2, 1)->u.revoke.seq, 0);
	ck_assert_uint_eq(revoke(2, 1)->u.revoke.seq, all);
	ck_assert_uint_eq(beat(2), LEASE);
}
END_TEST

/* What a lapsed node is granted is of no use before it is back, so nobody waits for it, and it is told when it is. */
START_TEST(a_lapsed_node_keeps_nobody_waiting)
{
	uint64_t all;

	rig_tick(&rg, LEASE);
	leased(2, "x");
	beat(1);
	ck_assert(rig_post(&rg, 1, put_done(1, "x")));
	all = revoke(2, 0)->u.revoke.seq;
	ck_assert_uint_eq(revoke(2, 0)->u.revoke.dir, 0);
	leased(2, "x");
	ck_assert(rig_post(&rg, 1, put_done(1, "x")));
	/* the lease in between was behind what it acknowledges: it is told again */
	rig_forget(&rg);
	ack(2, all, 0);
	ck_assert_uint_eq(beat(2), 0);
	ck_assert_uint_gt(revoke(2, 0)->u.revoke.seq, all);
	ack(2, revoke(2, 0)->u.revoke.seq, 0);
	ck_assert_uint_eq(beat(2), LEASE);
}
END_TEST

START_TEST(a_node_that_is_gone_is_not_waited_for)
{
	uint64_t tag = rg.tags[2], seq;
	struct msg *m = msg_new(MSG_REVOKE_ACK);

	third();
	leased(2, "x");
	leased(3, "x");
	ck_assert(!rig_post(&rg, 1, put_done(1, "x")));
	rig_post(&rg, 2, msg_new(MSG_LEAVE));
	ck_assert_uint_eq(rg.answers, 1);
	/* an acknowledgement of an incarnation that is over is none of the next one */
	ck_assert_int_eq(rig_join(&rg, 2, 64 * MIB, false), 0);
	leased(2, "x");
	ack(3, revoke(3, 0)->u.revoke.seq, 1);
	rig_forget(&rg);
	ck_assert(!rig_post(&rg, 1, put_done(1, "x")));
	ack(3, revoke(3, 0)->u.revoke.seq, 0);
	seq = revoke(2, 0)->u.revoke.seq;
	m->tomb_tag = tag;
	m->u.revoke.seq = seq;
	ck_assert_int_eq(rig_send(&rg, 2, m), -ESTALE);
	ck_assert_uint_eq(rg.answers, 1);
	ack(2, seq, 1);
}
END_TEST

/* The sender dies: its answer is given all the same, once, for somebody holds a place for it. */
START_TEST(an_answer_outlives_its_sender)
{
	uint64_t seq;

	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, put_done(1, "x")));
	seq = revoke(2, 0)->u.revoke.seq;
	rig_post(&rg, 1, msg_new(MSG_LEAVE));
	ck_assert_uint_eq(rg.answers, 1);
	ack(2, seq, 1);
}
END_TEST

START_TEST(what_comes_again_while_it_waits)
{
	struct msg *done = put_done(1, "x"), *again[2];
	uint64_t req, seq;

	for (unsigned k = 0; k < 2; k++) {
		again[k] = msg_new(MSG_PUT_DONE);
		*again[k] = *done;
		again[k]->items = NULL;
		msg_alloc_items(again[k], 1);
		again[k]->items[0] = done->items[0];
	}
	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, done));
	req = rg.req_id;
	/* others in great number push out nothing that waits */
	for (unsigned k = 0; k < 20; k++)
		rig_put(&rg, 1, dir, "other", 5000);
	ck_assert(!rig_post_as(&rg, 1, again[0], req));
	ck_assert_uint_eq(rg.answers, 0);
	seq = revoke(2, 0)->u.revoke.seq;
	ack(2, seq, 2);
	ck_assert_uint_eq(rg.answer->req_id, req);
	ck_assert_int_eq(rg.answer->status, 0);
	/* and behind it, as any */
	ck_assert(rig_post_as(&rg, 1, again[1], req));
	ck_assert_int_eq(rg.answer->status, 0);
	ck_assert_uint_eq(rig_counts(&rg).objects, 2);
}
END_TEST

/* An answer that the catalogue does not have yet is remembered, whatever is answered meanwhile. */
START_TEST(what_is_not_given_is_not_forgotten)
{
	uint64_t req, id;

	rg.gives_none = true;
	id = rig_mkdir(&rg, dir, "d");
	req = rg.req_id;
	for (unsigned k = 0; k < 20; k++)
		rig_put(&rg, 1, dir, "other", 5000);
	ck_assert(rig_post_as(&rg, 1, rig_named(MSG_MKDIR, dir, "d"), req));
	ck_assert_uint_eq(rg.answer->u.entry.a.id, id);
	/* and what has been given is, in time */
	rg.gives_none = false;
	for (unsigned k = 0; k < 20; k++)
		rig_put(&rg, 1, dir, "other", 5000);
	ck_assert(rig_post_as(&rg, 1, rig_named(MSG_MKDIR, dir, "d"), req));
	ck_assert_int_eq(rg.answer->status, -EEXIST);
}
END_TEST

/* More than are kept: one revoke of all leases takes their place, and the answers wait for that. */
START_TEST(too_many_revokes_become_one)
{
	uint64_t id = rig_put(&rg, 1, dir, "f0", 5000), all;

	rig_put(&rg, 1, dir, "f1", 5000);
	leased(2, "x");
	leased(2, "f1");
	ck_assert(!rig_post(&rg, 1, delete_x()));
	for (unsigned k = 0; k < 4096; k++) {
		struct msg *m = msg_new(MSG_SETATTR);

		leased(2, "f0");
		m->u.attr.a.id = id;
		m->u.attr.mask = MSG_SET_MODE;
		ck_assert_int_eq(rig_send(&rg, 1, m), 0);
		if (k < 4095)
			rig_forget(&rg);
	}
	ck_assert_uint_eq(count_revokes(2), 1);
	ck_assert_uint_eq(revoke(2, 0)->u.revoke.dir, 0);
	all = revoke(2, 0)->u.revoke.seq;
	/* what was leased meanwhile is told by name, and waits for both */
	ck_assert(!rig_post(&rg, 1, rig_named(MSG_DELETE, dir, "f1")));
	ack(2, revoke(2, 1)->u.revoke.seq, 0);
	ck_assert_uint_eq(beat(2), 0);
	ack(2, all, 2);
	ck_assert_uint_eq(beat(2), LEASE);
}
END_TEST

static void start_again(struct rig *r, uint32_t members)
{
	struct writes w = {0};
	const struct write_rec *rec;
	size_t pos = 0;

	ck_assert(!core_dump(rg.core, &w));
	memset(r, 0, sizeof(*r));
	r->cfg = config;
	r->now = rg.now;
	r->real = rg.real;
	r->core = core_new(&config);
	while ((rec = writes_next(&w, &pos)))
		if (rec->type != WRITE_MEMBER || members)
			ck_assert(!core_load(r->core, rec));
	writes_free(&w);
	ck_assert(!core_load_end(r->core, &r->out));
	rig_collect(r);
}

START_TEST(a_master_that_starts_moves_no_name)
{
	struct rig again;

	start_again(&again, 3);
	ck_assert_int_eq(rig_join(&again, 2, 64 * MIB, false), 0);
	/* what moves nothing is done at once */
	ck_assert_int_eq(rig_send(&again, 2, rig_named(MSG_MKDIR, MSG_ROOT_DIR, "b")), 0);
	ck_assert(!rig_post(&again, 2, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "b")));
	ck_assert_int_eq(rig_lookup(&again, 2, MSG_ROOT_DIR, "b"), 0);
	rig_tick(&again, LEASE / 2);
	ck_assert_uint_eq(again.answers, 0);
	/* and again */
	ck_assert(!rig_post_as(&again, 2, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "b"), again.req_id - 1));
	ck_assert_uint_le(rig_tick(&again, 0), LEASE / 2);
	rig_tick(&again, LEASE / 2);
	ck_assert_uint_eq(again.answers, 2);
	ck_assert_int_eq(again.answer->status, 0);
	ck_assert_int_eq(rig_lookup(&again, 2, MSG_ROOT_DIR, "b"), -ENOENT);
	rig_stop(&again);
}
END_TEST

START_TEST(a_new_master_moves_names_at_once)
{
	struct rig again;

	start_again(&again, 0);
	ck_assert_int_eq(rig_join(&again, 2, 64 * MIB, false), 0);
	ck_assert_int_eq(rig_send(&again, 2, rig_named(MSG_MKDIR, MSG_ROOT_DIR, "b")), 0);
	ck_assert_int_eq(rig_send(&again, 2, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "b")), 0);
	rig_stop(&again);
}
END_TEST

START_TEST(an_orderly_end_gives_all_back)
{
	leased(2, "x");
	ck_assert(!rig_post(&rg, 1, delete_x()));
	rg.out.n_msgs = 0;
	core_flush(rg.core, &rg.out);
	rig_collect(&rg);
	ck_assert_uint_eq(rg.answers, 1);
	ck_assert_int_eq(rg.answer->status, -ESHUTDOWN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leases");
	TCase *tc = tcase_create("leases");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_overwrite_waits_for_those_who_leased);
	tcase_add_test(tc, notices_stay_behind_the_answer);
	tcase_add_test(tc, who_evicts_is_told_like_the_others);
	tcase_add_test(tc, rename_delete_and_rmdir_wait);
	tcase_add_test(tc, a_rename_over_a_name_waits_for_both);
	tcase_add_test(tc, what_nobody_leases_does_not_wait);
	tcase_add_test(tc, attributes_do_not_wait);
	tcase_add_test(tc, a_new_name_waits_for_the_end_of_the_old);
	tcase_add_test(tc, nobody_waits_for_himself);
	tcase_add_test(tc, revokes_are_told_again_in_order);
	tcase_add_test(tc, leases_lapse_and_come_back);
	tcase_add_test(tc, a_lapsed_node_keeps_nobody_waiting);
	tcase_add_test(tc, a_node_that_is_gone_is_not_waited_for);
	tcase_add_test(tc, an_answer_outlives_its_sender);
	tcase_add_test(tc, what_comes_again_while_it_waits);
	tcase_add_test(tc, what_is_not_given_is_not_forgotten);
	tcase_add_test(tc, too_many_revokes_become_one);
	tcase_add_test(tc, a_master_that_starts_moves_no_name);
	tcase_add_test(tc, a_new_master_moves_names_at_once);
	tcase_add_test(tc, an_orderly_end_gives_all_back);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
