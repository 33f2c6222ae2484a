/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each allocation of the core fails in turn: a request is refused as a whole and can be made again, nothing leaks, and
 * what cannot be told now is told later. Linked with --wrap for the allocators.
 */
#include <stdio.h>

#include "net/xattr.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/run.h"

#define MIB (1ull << 20)

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static long fail_at = -1; /* so many more succeed; < 0: all do */
static bool armed;	  /* only inside the core */
static long allocations;

static bool fails(void)
{
	if (!armed)
		return false;
	allocations++;
	return fail_at >= 0 && fail_at-- == 0;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return fails() ? NULL : __real_aligned_alloc(align, n);
}

static struct rig rg;
static uint64_t dir, ids[4], tickets[4], allocs[4], get_id;

/* Sends; what fails for want of memory is sent again. */
static int send_again(uint32_t node, struct msg *(*make)(void))
{
	for (int k = 0; k < 3; k++) {
		struct msg *m = make();
		int r;

		m->node = node;
		m->req_id = ++rg.req_id;
		m->tomb_tag = m->type == MSG_JOIN ? 0 : rg.tags[node];
		rg.now += 1000;
		rg.real += 1000;
		armed = true;
		r = core_handle(rg.core, m, rg.now, rg.real, &rg.out);
		armed = false;
		if (r == -ENOMEM) {
			msg_free(m);
			continue;
		}
		ck_assert_int_eq(r, 0);
		rig_collect(&rg);
		rig_check(&rg);
		if (rg.answer->status != -ENOMEM)
			return rg.answer->status;
	}
	ck_abort_msg("more than one allocation failed");
	return 0;
}

static struct msg *join(uint32_t n)
{
	struct msg *m = msg_new(MSG_JOIN);

	m->u.join.capacity = 64 * MIB;
	m->u.join.kv_ssd_storage = true;
	m->u.join.instance_key[0] = (char)('a' + n);
	rig_name(m->u.join.address, sizeof(m->u.join.address), "somewhere:7000");
	return m;
}

static struct msg *join_1(void)
{
	return join(1);
}

static struct msg *join_2(void)
{
	return join(2);
}

static struct msg *mkdir_a(void)
{
	return rig_named(MSG_MKDIR, MSG_ROOT_DIR, "a");
}

static struct msg *mkdir_sub(void)
{
	return rig_named(MSG_MKDIR, dir, "sub");
}

static struct msg *ns_create(void)
{
	struct msg *m = msg_new(MSG_NS_CREATE);

	strcpy(m->u.ns.name, "kv/cache/v1");
	return m;
}

static int next; /* the object that is being put */

static struct msg *put_start(void)
{
	struct msg *m = msg_new(MSG_PUT_START);

	m->u.put.dir = dir;
	m->u.put.bytes = 10000;
	m->u.put.flags = next ? 0 : MSG_PUT_EXCL;
	snprintf(m->u.put.name, sizeof(m->u.put.name), "o%d", next % 3);
	return m;
}

static struct msg *extend(void)
{
	struct msg *m = msg_new(MSG_PUT_EXTEND);

	m->u.put.ticket = tickets[next];
	msg_alloc_items(m, 1);
	m->items[0].block = 1;
	m->items[0].bytes = 1;
	return m;
}

static uint64_t second_block;

/* With xattrs; the one of index 1 has two blocks, the one of index 3 goes over that of index 0. */
static struct msg *put_done(void)
{
	const struct rig_ticket t = {.id = tickets[next], .alloc = allocs[next]};
	char name[16];
	struct msg *m;

	snprintf(name, sizeof(name), "o%d", next % 3);
	m = rig_done_msg(&t, dir, name, 5000);
	m->u.put.attr.expires_ns = next == 2 ? 1700001000 * (int64_t)NS_PER_SEC : 0;
	ck_assert(!xattr_set(NULL, 0, "user.x", "value", 5, 0, &m->blob, &m->blob_len));
	if (next != 1)
		return m;
	m->u.put.bytes = MIB + 1;
	msg_alloc_items(m, 2);
	m->items[0] = (struct msg_item){.alloc = allocs[next], .bytes = MIB, .flags = MSG_ITEM_SSD};
	m->items[1] = (struct msg_item){.alloc = second_block, .bytes = 1, .block = 1, .flags = MSG_ITEM_MEM};
	return m;
}

static void put(void)
{
	ck_assert_int_eq(send_again(1, put_start), 0);
	tickets[next] = rg.answer->u.put.ticket;
	allocs[next] = rg.answer->items[0].alloc;
	if (next == 1) {
		ck_assert_int_eq(send_again(1, extend), 0);
		second_block = rg.answer->items[0].alloc;
	}
	ck_assert_int_eq(send_again(1, put_done), 0);
	ids[next] = rg.answer->u.entry.a.id;
	next++;
}

static struct msg *lookup_o0(void)
{
	return rig_named(MSG_LOOKUP, dir, "o0");
}

static struct msg *readdir_all(void)
{
	struct msg *m = msg_new(MSG_READDIR);

	m->u.readdir.dir = dir;
	m->u.readdir.max = 100;
	return m;
}

static struct msg *ns_list(void)
{
	return msg_new(MSG_NS_LIST);
}

static struct msg *set_xattrs(void)
{
	struct msg *m = msg_new(MSG_SETXATTRS);

	m->u.attr.a.id = dir;
	ck_assert(!xattr_set(NULL, 0, "user.dir", "v", 1, 0, &m->blob, &m->blob_len));
	return m;
}

static struct msg *get_xattrs(void)
{
	struct msg *m = msg_new(MSG_GETXATTRS);

	m->u.attr.a.id = dir;
	return m;
}

static struct msg *rename_sub(void)
{
	struct msg *m = msg_new(MSG_RENAME);

	m->u.rename.from_dir = m->u.rename.to_dir = dir;
	strcpy(m->u.rename.from, "sub");
	strcpy(m->u.rename.to, "renamed");
	return m;
}

static struct msg *get_start(void)
{
	struct msg *m = msg_new(MSG_GET_START);

	m->u.get.put_id = ids[3];
	return m;
}

static struct msg *get_done(void)
{
	struct msg *m = msg_new(MSG_GET_DONE);

	m->u.get.get_id = get_id;
	return m;
}

static struct msg *one_item(enum msg_type type, uint64_t put_id)
{
	struct msg *m = msg_new(type);

	msg_alloc_items(m, 1);
	m->items[0].put_id = put_id;
	return m;
}

static struct msg *commit_o3(void)
{
	return one_item(MSG_SSD_COMMIT, ids[3]);
}

static struct msg *evict_o3(void)
{
	return one_item(MSG_MEM_EVICT, ids[3]);
}

static struct msg *ack_o0(void)
{
	return one_item(MSG_DELETE_ACK, ids[0]);
}

static struct msg *delete_o1(void)
{
	return rig_named(MSG_DELETE, dir, "o1");
}

static struct msg *leave(void)
{
	return msg_new(MSG_LEAVE);
}

/* An item may be refused for want of memory, then it is sent again. */
static void item_again(uint32_t node, struct msg *(*make)(void))
{
	ck_assert_int_eq(send_again(node, make), 0);
	if (rg.answer->items[0].status == -ENOMEM)
		ck_assert_int_eq(send_again(node, make), 0);
	ck_assert_int_eq(rg.answer->items[0].status, 0);
}

static void ticks(void)
{
	for (int k = 0; k < 3; k++) {
		rg.now += 2 * NS_PER_SEC;
		rg.real += 2 * (int64_t)NS_PER_SEC;
		armed = true;
		core_tick(rg.core, rg.now, rg.real, &rg.out);
		armed = false;
		rig_collect(&rg);
		rig_check(&rg);
	}
}

static bool told_to_drop(uint64_t put_id)
{
	for (size_t k = 0; k < rg.n_notices; k++)
		for (size_t i = 0; rg.notices[k]->type == MSG_DROP && i < rg.notices[k]->n_items; i++)
			if (rg.notices[k]->items[i].put_id == put_id)
				return true;
	return false;
}

/* The holder of a lease on o0 was told, by its name or by all of them. */
static bool told_to_forget_o0(void)
{
	for (size_t k = 0; k < rg.n_notices; k++) {
		const struct msg *m = rg.notices[k];

		if (m->type == MSG_NAME_REVOKE && rg.to[k] == 2 &&
		    (!m->u.revoke.dir || (m->u.revoke.dir == dir && !strcmp(m->u.revoke.name, "o0"))))
			return true;
	}
	return false;
}

static void scenario(void)
{
	next = 0;
	ck_assert_int_eq(send_again(1, join_1), 0);
	rg.tags[1] = rg.answer->u.join.tomb_tag;
	ck_assert_int_eq(send_again(1, mkdir_a), 0);
	dir = rg.answer->u.entry.a.id;
	ck_assert_int_eq(send_again(1, mkdir_sub), 0);
	ck_assert_int_eq(send_again(1, ns_create), 0);
	ck_assert_int_eq(send_again(1, set_xattrs), 0);
	put();
	put();
	put();
	ck_assert_int_eq(send_again(2, join_2), 0);
	rg.tags[2] = rg.answer->u.join.tomb_tag;
	ck_assert_int_eq(send_again(2, lookup_o0), 0);
	put();
	ck_assert_int_eq(send_again(2, readdir_all), 0);
	ck_assert_uint_eq(rg.answer->n_ents, 4);
	ck_assert_int_eq(send_again(2, ns_list), 0);
	ck_assert_int_eq(send_again(2, get_xattrs), 0);
	ck_assert_int_eq(send_again(1, rename_sub), 0);
	ck_assert_int_eq(send_again(2, get_start), 0);
	get_id = rg.answer->u.get.get_id;
	ck_assert_int_eq(send_again(2, get_done), 0);
	item_again(1, commit_o3);
	item_again(1, evict_o3);
	ck_assert_int_eq(send_again(1, delete_o1), 0);
	ticks();
	ck_assert(told_to_drop(ids[0]));
	ck_assert(told_to_drop(ids[1]));
	ck_assert(told_to_forget_o0());
	item_again(1, ack_o0);
	rg.real = 1700001001 * (int64_t)NS_PER_SEC;
	ticks();
	ck_assert(told_to_drop(ids[2]));
	ck_assert_int_eq(send_again(2, leave), 0);
	ck_assert_int_eq(send_again(1, leave), 0);
	rig_forget(&rg);
	ck_assert_uint_eq(rig_counts(&rg).directories, 6);
	ck_assert_uint_eq(rig_counts(&rg).namespaces, 2);
	ck_assert_uint_eq(rig_counts(&rg).objects + rig_counts(&rg).orphans, 0);
}

static void start(void)
{
	const struct core_config cfg = {.auto_namespace = true, .default_block_size = MIB, .recent_answers = 16};

	rig_start(&rg, &cfg);
}

START_TEST(each_allocation_fails_once)
{
	long total;

	start();
	allocations = 0;
	scenario();
	total = allocations;
	rig_stop(&rg);
	ck_assert_int_gt(total, 100);
	for (long k = 0; k < total; k++) {
		start();
		fail_at = k;
		scenario();
		fail_at = -1;
		rig_stop(&rg);
	}
}
END_TEST

/* ---- answers that wait ---------------------------------------------------------------------------------------- */

static unsigned answered;
static int last_status; /* of what waits, not of an acknowledgement */

static void count_answers(void)
{
	answered += rg.answers;
	if (rg.answers && rg.answer->type != MSG_REVOKE_ACK)
		last_status = rg.answer->status;
}

/* Under a number of the caller's; what the core could not even take is sent again. What it answers is counted. */
static void post(uint32_t node, struct msg *(*make)(void), uint64_t req_id)
{
	int r = -ENOMEM;

	for (int k = 0; k < 3 && r == -ENOMEM; k++) {
		struct msg *m = make();

		m->node = node;
		m->req_id = req_id;
		m->tomb_tag = rg.tags[node];
		armed = true;
		r = core_handle(rg.core, m, rg.now += 1000, rg.real, &rg.out);
		armed = false;
		if (r == -ENOMEM)
			msg_free(m);
	}
	ck_assert_int_eq(r, 0);
	rig_collect(&rg);
	rig_check(&rg);
	count_answers();
}

static uint64_t ack_seq;

static struct msg *ack(void)
{
	struct msg *m = msg_new(MSG_REVOKE_ACK);

	m->u.revoke.seq = ack_seq;
	return m;
}

static struct msg *hold_o0(void)
{
	return one_item(MSG_HOLD, ids[0]);
}

static struct msg *delete_o0(void)
{
	return rig_named(MSG_DELETE, dir, "o0");
}

/* Each revoke that has been told is acknowledged. */
static void acknowledge(void)
{
	while (rg.n_notices) {
		struct msg *m = rg.notices[--rg.n_notices];
		uint32_t to = rg.to[rg.n_notices];

		ack_seq = m->type == MSG_NAME_REVOKE ? m->u.revoke.seq : 0;
		msg_free(m);
		if (!ack_seq)
			continue;
		post(to, ack, ++rg.req_id);
		answered--;
	}
}

/* Comes twice, waits for node 2, and is answered twice and done once, whatever there is no memory for. */
static void waits(struct msg *(*make)(void))
{
	uint64_t req = ++rg.req_id;
	int status = -ENOMEM;

	for (int k = 0; k < 3 && status == -ENOMEM; k++, req = ++rg.req_id) {
		answered = 0;
		post(1, make, req);
		post(1, make, req);
		for (int n = 0; n < 8 && answered < 2; n++) {
			acknowledge();
			rg.now += NS_PER_SEC;
			armed = true;
			core_tick(rg.core, rg.now, rg.real, &rg.out);
			armed = false;
			rig_collect(&rg);
			rig_check(&rg);
			count_answers();
		}
		ck_assert_uint_eq(answered, 2);
		status = last_status;
	}
	ck_assert_int_eq(status, 0);
}

static void waiting_scenario(void)
{
	static const struct core_config cfg = {.auto_namespace = true,
					       .default_block_size = MIB,
					       .recent_answers = 16,
					       .repeat_ns = NS_PER_SEC,
					       .lease_ns = 4 * NS_PER_SEC};
	struct rig_ticket t;

	rig_start(&rg, &cfg);
	ck_assert_int_eq(rig_join(&rg, 1, 64 * MIB, true), 0);
	ck_assert_int_eq(rig_join(&rg, 2, 64 * MIB, true), 0);
	dir = rig_mkdir(&rg, MSG_ROOT_DIR, "a");
	ids[0] = rig_put(&rg, 1, dir, "o0", 4096);
	ck_assert_int_eq(rig_put_start(&rg, 1, dir, "o0", 5000, 0, &t), 0);
	next = 0;
	tickets[0] = t.id;
	allocs[0] = t.alloc;
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "o0"), 0);
	rig_forget(&rg);
	item_again(2, hold_o0);
	waits(put_done);
	rig_forget(&rg);
	ck_assert_uint_eq(rig_counts(&rg).objects, 1);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 1);
	ck_assert_int_eq(rig_lookup(&rg, 2, dir, "o0"), 0);
	waits(delete_o0);
	ck_assert_uint_eq(rig_counts(&rg).objects, 0);
	ck_assert_uint_eq(rig_counts(&rg).waiting, 0);
}

START_TEST(each_allocation_of_what_waits_fails_once)
{
	long total;

	allocations = 0;
	waiting_scenario();
	total = allocations;
	rig_stop(&rg);
	ck_assert_int_gt(total, 20);
	for (long k = 0; k < total; k++) {
		fail_at = k;
		waiting_scenario();
		fail_at = -1;
		rig_stop(&rg);
	}
}
END_TEST

/* All the records of a state, into a core that may not get all the memory it asks for. */
static int load_from(const struct writes *w)
{
	const struct core_config cfg = {0};
	struct core_out out = {0};
	struct core *c;
	const struct write_rec *rec;
	size_t pos = 0;
	char why[128];
	int r = 0;

	armed = true;
	c = core_new(&cfg);
	/* the order of core_load(): the kinds one after the other */
	static const enum write_type order[] = {WRITE_COUNTER, WRITE_DIR,    WRITE_NAMESPACE, WRITE_OBJECT,
						WRITE_REPLICA, WRITE_XATTRS, WRITE_MEMBER};
	for (size_t k = 0; c && k < sizeof(order) / sizeof(order[0]) && !r; k++, pos = 0)
		while (!r && (rec = writes_next(w, &pos)))
			if (rec->type == order[k])
				r = core_load(c, rec);
	if (c && !r)
		r = core_load_end(c, &out);
	armed = false;
	if (c && !r)
		ck_assert_msg(!core_check(c, why, sizeof(why)), "%s", why);
	core_free(c);
	core_out_clear(&out);
	return c ? r : -ENOMEM;
}

START_TEST(each_allocation_of_a_load_fails_once)
{
	struct writes w = {0};
	long total;

	start();
	ck_assert_int_eq(send_again(1, join_1), 0);
	rg.tags[1] = rg.answer->u.join.tomb_tag;
	ck_assert_int_eq(send_again(1, mkdir_a), 0);
	dir = rg.answer->u.entry.a.id;
	ck_assert_int_eq(send_again(1, set_xattrs), 0);
	next = 0;
	put();
	put();
	put();
	ck_assert(!core_dump(rg.core, &w));
	rig_stop(&rg);
	allocations = 0;
	ck_assert_int_eq(load_from(&w), 0);
	total = allocations;
	for (long k = 0; k < total; k++) {
		fail_at = k;
		ck_assert_int_eq(load_from(&w), -ENOMEM);
		fail_at = -1;
	}
	writes_free(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master/nomem");
	TCase *tc = tcase_create("nomem");

	tcase_add_test(tc, each_allocation_fails_once);
	tcase_add_test(tc, each_allocation_of_what_waits_fails_once);
	tcase_add_test(tc, each_allocation_of_a_load_fails_once);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
