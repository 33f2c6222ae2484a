/* SPDX-License-Identifier: Apache-2.0 */
#include "master/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/inode.h"
#include "master/members.h"
#include "master/lease.h"
#include "master/recent.h"
#include "master/waits.h"

#define DROP_ITEMS 4096u /* in one message */

/* Makes sure of room for two more: a notice never takes the place that the answer needs. */
static int msgs_room(struct core_msg **msgs, size_t n, size_t *cap)
{
	struct core_msg *more;
	size_t want = *cap ? *cap * 2 : 64;

	if (n + 2 <= *cap)
		return 0;
	more = realloc(*msgs, want * sizeof(*more));
	if (!more)
		return -ENOMEM;
	*msgs = more;
	*cap = want;
	return 0;
}

int step_room(struct core *c, size_t n, size_t data)
{
	return writes_room(&c->out->writes, n, data);
}

void step_write(struct core *c, const struct write_rec *rec)
{
	/* Cannot fail: step_room() has been asked. */
	writes_add(&c->out->writes, rec);
}

void step_write_inode(struct core *c, const struct inode *i)
{
	struct write_rec rec;

	inode_record(c, i, &rec);
	step_write(c, &rec);
}

void step_write_gone(struct core *c, const struct inode *i)
{
	struct write_rec rec = {.u.key.id = i->id};

	rec.type = i->kind == MSG_KIND_DIR ? WRITE_DIR_GONE : WRITE_OBJECT_GONE;
	rec.u.key.flags = inode_write_flags(i);
	step_write(c, &rec);
}

static int push_notice(struct core *c, uint32_t node, struct msg *m)
{
	struct core_out *out = c->out;

	if (msgs_room(&out->msgs, out->n_msgs, &out->cap_msgs) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	out->msgs[out->n_msgs++] = (struct core_msg){.node = node, .after_commit = true, .msg = m};
	c->said++;
	return 0;
}

int step_notify(struct core *c, uint32_t node, struct msg *m)
{
	m->node = node;
	return push_notice(c, node, m);
}

int step_notify_after(struct core *c, uint32_t node, struct msg *m)
{
	m->node = node;
	if (msgs_room(&c->after, c->n_after, &c->cap_after) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	c->after[c->n_after++] = (struct core_msg){.node = node, .after_commit = true, .msg = m};
	return 0;
}

int step_answer_room(struct core *c)
{
	return msgs_room(&c->out->msgs, c->out->n_msgs, &c->out->cap_msgs);
}

void step_answer(struct core *c, struct msg *answer, bool after_commit)
{
	struct core_out *out = c->out;

	out->msgs[out->n_msgs++] = (struct core_msg){.node = answer->node, .after_commit = after_commit, .msg = answer};
	c->said += after_commit;
}

void step_drop(struct core *c, uint32_t node, uint64_t put_id, uint32_t blocks)
{
	struct member *mem = member_live(c, node);

	if (!mem)
		return;
	c->flush = true;
	if (mem->n_drops == mem->cap_drops) {
		size_t cap = mem->cap_drops ? mem->cap_drops * 2 : 16;
		struct drop *drops = realloc(mem->drops, cap * sizeof(*drops));

		if (!drops) {
			c->drops_lost = true;
			return;
		}
		mem->drops = drops;
		mem->cap_drops = cap;
	}
	mem->drops[mem->n_drops++] = (struct drop){.put_id = put_id, .blocks = blocks};
}

static int drops_msg(const struct drop *drops, size_t n, struct msg **ret)
{
	struct msg *m = msg_new(MSG_DROP);

	if (!m || msg_alloc_items(m, n) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		m->items[i].put_id = drops[i].put_id;
		m->items[i].block = drops[i].blocks;
	}
	*ret = m;
	return 0;
}

static void flush_drops(struct core *c, struct member *mem)
{
	struct msg *m;
	size_t at, n;

	for (at = 0; at < mem->n_drops; at += n) {
		n = mem->n_drops - at < DROP_ITEMS ? mem->n_drops - at : DROP_ITEMS;
		if (drops_msg(mem->drops + at, n, &m) < 0 || step_notify(c, mem->node, m) < 0)
			c->drops_lost = true;
	}
	mem->n_drops = 0;
}

static void flush_members(struct core *c)
{
	c->flush = false;
	for (uint32_t n = 1; n < c->n_members; n++) {
		struct member *mem = member_live(c, n);

		if (mem && mem->n_drops)
			flush_drops(c, mem);
		if (mem)
			lease_flush(c, mem);
	}
}

void step_end(struct core *c, struct msg *in)
{
	if (in && !wait_if_need_be(c, in)) {
		recent_remember(c, in, in->req_id, c->answer_after_commit);
		step_answer(c, in, c->answer_after_commit);
	}
	for (size_t i = 0; i < c->n_after; i++)
		push_notice(c, c->after[i].node, c->after[i].msg);
	c->n_after = 0;
	c->n_names = 0;
	if (c->flush)
		flush_members(c);
	waits_give(c);
}

int step_ids_ready(struct core *c)
{
	struct write_rec rec = {.type = WRITE_COUNTER};
	int r;

	if (c->id_limit - c->next_id < c->cfg.id_block / 2) {
		r = step_room(c, 1, 0);
		if (r < 0)
			return r;
		rec.u.counter = c->id_limit = c->next_id + c->cfg.id_block;
		step_write(c, &rec);
	}
	return c->id_safe - c->next_id < STEP_IDS ? -EIO : 0;
}

uint64_t step_id(struct core *c)
{
	return c->next_id++;
}

void core_committed(struct core *c, uint64_t counter)
{
	if (counter > c->id_safe)
		c->id_safe = counter;
}

void core_given(struct core *c, uint64_t n)
{
	if (n > c->given)
		c->given = n;
}

void core_out_clear(struct core_out *out)
{
	for (size_t i = 0; i < out->n_msgs; i++)
		msg_free(out->msgs[i].msg);
	free(out->msgs);
	writes_free(&out->writes);
	memset(out, 0, sizeof(*out));
}
