/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core with a clock and a catalogue that takes everything at once, for unit tests. Each request is followed by
 * core_check(). The answer stays until the next request, notices until rig_forget().
 */
#ifndef TESTS_CORE_RIG_H
#define TESTS_CORE_RIG_H

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "master/core.h"

#define RIG_NODES 4
#define RIG_NOTICES 2048

struct rig {
	struct core *core;
	struct core_config cfg;
	uint64_t now;
	int64_t real;
	uint64_t tags[RIG_NODES + 1], req_id;
	struct core_out out;
	struct msg *answer;
	bool after_commit; /* the last answer's */
	unsigned answers;  /* of the last step */
	uint64_t given;	   /* messages with after_commit */
	bool gives_none;   /* the core is not told of them */
	struct msg *notices[RIG_NOTICES];
	uint32_t to[RIG_NOTICES];
	size_t n_notices, before; /* before: notices of the last step that came before the answer */
	struct writes log;	  /* all writes so far */
};

/* Into a name field of `size` bytes; a name that fills it has no end, as a bad one from outside might. */
static inline void rig_name(char *dst, size_t size, const char *name)
{
	size_t len = strlen(name) + 1;

	memcpy(dst, name, len < size ? len : size);
}

static inline bool rig_is_notice(const struct msg *m)
{
	return !m->req_id;
}

static inline void rig_check(struct rig *rg)
{
	char why[256];

	ck_assert_msg(!core_check(rg->core, why, sizeof(why)), "%s", why);
}

/* Takes what the step put out. */
static inline void rig_collect(struct rig *rg)
{
	rg->before = 0;
	rg->answers = 0;
	for (size_t k = 0; k < rg->out.n_msgs; k++) {
		struct core_msg *cm = &rg->out.msgs[k];

		rg->given += cm->after_commit;
		if (!rig_is_notice(cm->msg)) {
			rg->answers++;
			msg_free(rg->answer);
			rg->answer = cm->msg;
			rg->after_commit = cm->after_commit;
			rg->before = k;
			continue;
		}
		ck_assert(cm->after_commit);
		ck_assert_uint_lt(rg->n_notices, RIG_NOTICES);
		rg->to[rg->n_notices] = cm->node;
		rg->notices[rg->n_notices++] = cm->msg;
	}
	rg->out.n_msgs = 0;
	if (!rg->gives_none)
		core_given(rg->core, rg->given);
	if (rg->out.writes.counter)
		core_committed(rg->core, rg->out.writes.counter);
	ck_assert(!writes_move(&rg->log, &rg->out.writes));
}

static inline void rig_forget(struct rig *rg)
{
	while (rg->n_notices)
		msg_free(rg->notices[--rg->n_notices]);
}

static inline void rig_start(struct rig *rg, const struct core_config *cfg)
{
	memset(rg, 0, sizeof(*rg));
	rg->cfg = *cfg;
	rg->now = NS_PER_SEC;
	rg->real = 1700000000 * (int64_t)NS_PER_SEC;
	rg->core = core_new(cfg);
	ck_assert_ptr_nonnull(rg->core);
	ck_assert(!core_load_end(rg->core, &rg->out));
	rig_collect(rg);
}

static inline void rig_stop(struct rig *rg)
{
	rig_forget(rg);
	msg_free(rg->answer);
	core_free(rg->core);
	core_out_clear(&rg->out);
	writes_free(&rg->log);
}

/* Sends as the node, under that number; true if the step has answered it. */
static inline bool rig_post_as(struct rig *rg, uint32_t node, struct msg *m, uint64_t req_id)
{
	m->node = node;
	m->req_id = req_id;
	if (m->type != MSG_JOIN && !m->tomb_tag)
		m->tomb_tag = rg->tags[node];
	rg->now += 1000;
	rg->real += 1000;
	ck_assert(!core_handle(rg->core, m, rg->now, rg->real, &rg->out));
	rig_collect(rg);
	rig_check(rg);
	return rg->answers && rg->answer->req_id == req_id;
}

/* One that may have to wait. */
static inline bool rig_post(struct rig *rg, uint32_t node, struct msg *m)
{
	return rig_post_as(rg, node, m, ++rg->req_id);
}

/* Sends as the node; returns the answer's status. */
static inline int rig_send(struct rig *rg, uint32_t node, struct msg *m)
{
	ck_assert(rig_post(rg, node, m));
	ck_assert_uint_eq(rg->answer->req_id, rg->req_id);
	rig_check(rg);
	return rg->answer->status;
}

/* The same at once again, with the same req_id. */
static inline uint64_t rig_tick(struct rig *rg, uint64_t ns)
{
	uint64_t left;

	rg->now += ns;
	rg->real += (int64_t)ns;
	left = core_tick(rg->core, rg->now, rg->real, &rg->out);
	rig_collect(rg);
	rig_check(rg);
	return left;
}

static inline int rig_join(struct rig *rg, uint32_t node, uint64_t capacity, bool ssd)
{
	struct msg *m = msg_new(MSG_JOIN);
	int r;

	m->u.join.capacity = capacity;
	m->u.join.ssd_capacity = ssd ? capacity * 4 : 0;
	m->u.join.kv_ssd_storage = ssd;
	m->u.join.instance_key[0] = (char)('a' + node);
	snprintf(m->u.join.address, sizeof(m->u.join.address), "node%u:7000", node);
	r = rig_send(rg, node, m);
	if (!r)
		rg->tags[node] = rg->answer->u.join.tomb_tag;
	return r;
}

static inline int rig_simple(struct rig *rg, uint32_t node, enum msg_type type)
{
	return rig_send(rg, node, msg_new(type));
}

static inline struct msg *rig_named(enum msg_type type, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(type);

	m->u.name.dir = dir;
	rig_name(m->u.name.name, sizeof(m->u.name.name), name);
	m->u.name.attr.mode = 0755;
	return m;
}

static inline int rig_lookup(struct rig *rg, uint32_t node, uint64_t dir, const char *name)
{
	return rig_send(rg, node, rig_named(MSG_LOOKUP, dir, name));
}

static inline uint64_t rig_mkdir(struct rig *rg, uint64_t dir, const char *name)
{
	ck_assert_int_eq(rig_send(rg, 1, rig_named(MSG_MKDIR, dir, name)), 0);
	return rg->answer->u.entry.a.id;
}

static inline int rig_delete(struct rig *rg, uint32_t node, uint64_t dir, const char *name)
{
	return rig_send(rg, node, rig_named(MSG_DELETE, dir, name));
}

struct rig_ticket {
	uint64_t id, alloc, bytes, block_size;
	bool persist;
};

static inline struct msg *rig_put_start_msg(uint64_t dir, const char *name, uint64_t guess, uint32_t flags)
{
	struct msg *m = msg_new(MSG_PUT_START);

	m->u.put.dir = dir;
	m->u.put.bytes = guess;
	m->u.put.flags = flags;
	rig_name(m->u.put.name, sizeof(m->u.put.name), name);
	return m;
}

static inline int rig_put_start(struct rig *rg, uint32_t node, uint64_t dir, const char *name, uint64_t guess,
				uint32_t flags, struct rig_ticket *ret)
{
	int r = rig_send(rg, node, rig_put_start_msg(dir, name, guess, flags));

	if (!r)
		*ret = (struct rig_ticket){rg->answer->u.put.ticket, rg->answer->items[0].alloc,
					   rg->answer->items[0].bytes, rg->answer->u.put.block_size,
					   rg->answer->u.put.persist_to_ssd};
	return r;
}

static inline int rig_extend(struct rig *rg, uint32_t node, uint64_t ticket, uint32_t block, uint64_t bytes)
{
	struct msg *m = msg_new(MSG_PUT_EXTEND);

	m->u.put.ticket = ticket;
	msg_alloc_items(m, 1);
	m->items[0].block = block;
	m->items[0].bytes = bytes;
	return rig_send(rg, node, m);
}

/* PUT_DONE of an object of one block in memory, or of an empty one. */
static inline struct msg *rig_done_msg(const struct rig_ticket *t, uint64_t dir, const char *name, uint64_t size)
{
	struct msg *m = msg_new(MSG_PUT_DONE);

	m->u.put.ticket = t->id;
	m->u.put.dir = dir;
	m->u.put.bytes = size;
	m->u.put.attr.mode = 0640;
	rig_name(m->u.put.name, sizeof(m->u.put.name), name);
	msg_alloc_items(m, size ? 1 : 0);
	if (size) {
		m->items[0].alloc = t->alloc;
		m->items[0].bytes = size;
		m->items[0].flags = MSG_ITEM_MEM;
	}
	return m;
}

static inline uint64_t rig_put(struct rig *rg, uint32_t node, uint64_t dir, const char *name, uint64_t size)
{
	struct rig_ticket t;

	ck_assert_int_eq(rig_put_start(rg, node, dir, name, size, 0, &t), 0);
	ck_assert_int_eq(rig_send(rg, node, rig_done_msg(&t, dir, name, size)), 0);
	return rg->answer->u.entry.a.id;
}

static inline int rig_item(struct rig *rg, uint32_t node, enum msg_type type, uint64_t put_id, uint32_t block,
			   uint32_t flags)
{
	struct msg *m = msg_new(type);
	int r;

	msg_alloc_items(m, 1);
	m->items[0].put_id = put_id;
	m->items[0].block = block;
	m->items[0].flags = flags;
	r = rig_send(rg, node, m);
	return r ? r : rg->answer->items[0].status;
}

static inline int rig_freed(struct rig *rg, uint32_t node, uint64_t alloc)
{
	struct msg *m = msg_new(MSG_ALLOC_FREED);

	msg_alloc_items(m, 1);
	m->items[0].alloc = alloc;
	return rig_send(rg, node, m);
}

static inline int rig_get(struct rig *rg, uint32_t node, uint64_t put_id, uint32_t block)
{
	struct msg *m = msg_new(MSG_GET_START);

	m->u.get.put_id = put_id;
	m->u.get.block = block;
	return rig_send(rg, node, m);
}

static inline int rig_get_end(struct rig *rg, uint32_t node, enum msg_type type, uint64_t get_id, bool drop)
{
	struct msg *m = msg_new(type);

	m->u.get.get_id = get_id;
	m->u.get.drop_ssd_source = drop;
	return rig_send(rg, node, m);
}

static inline int rig_rename(struct rig *rg, uint32_t node, uint64_t from_dir, const char *from, uint64_t to_dir,
			     const char *to, bool noreplace)
{
	struct msg *m = msg_new(MSG_RENAME);

	m->u.rename.from_dir = from_dir;
	m->u.rename.to_dir = to_dir;
	m->u.rename.noreplace = noreplace;
	rig_name(m->u.rename.from, sizeof(m->u.rename.from), from);
	rig_name(m->u.rename.to, sizeof(m->u.rename.to), to);
	return rig_send(rg, node, m);
}

static inline struct core_ledger rig_ledger(struct rig *rg, uint32_t node)
{
	struct core_ledger l = {0};

	core_ledger(rg->core, node, &l);
	return l;
}

static inline struct core_counts rig_counts(struct rig *rg)
{
	struct core_counts n;

	core_counts(rg->core, &n);
	return n;
}

/* The n-th notice of that type to that node, or NULL. */
static inline struct msg *rig_notice(struct rig *rg, enum msg_type type, uint32_t node, size_t n)
{
	for (size_t k = 0; k < rg->n_notices; k++)
		if (rg->notices[k]->type == type && rg->to[k] == node && !n--)
			return rg->notices[k];
	return NULL;
}

#endif
