/* SPDX-License-Identifier: Apache-2.0 */
#include "master/waits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/lease.h"
#include "master/members.h"
#include "master/recent.h"
#include "master/step.h"

static struct wait *wait_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->waiting, h);
}

static uint32_t req_hash(uint64_t req_id, uint32_t node)
{
	return (uint32_t)hash_u64(req_id + ((uint64_t)node << 48));
}

static uint32_t by_req_hash(const void *arg, uint32_t h)
{
	return req_hash(wait_get(arg, h)->req_id, wait_get(arg, h)->node);
}

static uint32_t *by_req_link(const void *arg, uint32_t h)
{
	return &wait_get(arg, h)->req_next;
}

static const struct table_ops req_ops = {.hash = by_req_hash, .link = by_req_link};

void waits_init(struct core *c)
{
	pool_init(&c->waiting, sizeof(struct wait), 6);
	table_init(&c->waits_by_req, &req_ops, c);
	list_init(&c->waits);
	list_init(&c->held);
	list_init(&c->ready);
}

static void free_after(struct wait *w)
{
	for (size_t k = 0; k < w->n_after; k++)
		msg_free(w->after[k].msg);
	free(w->after);
	w->after = NULL;
	w->n_after = 0;
}

void waits_fini(struct core *c)
{
	for (uint32_t h = 1; h < c->waiting.top; h++) {
		free_after(wait_get(c, h));
		msg_free(wait_get(c, h)->m);
	}
	table_fini(&c->waits_by_req);
	pool_fini(&c->waiting);
}

/* The first of it, or its twins behind; *h: from where in the chain. NULL: none. */
static struct wait *find(const struct core *c, const struct msg *in, uint64_t req_id, uint32_t h)
{
	for (; h; h = wait_get(c, h)->req_next) {
		struct wait *w = wait_get(c, h);

		if (w->req_id == req_id && w->node == in->node && w->tag == in->tomb_tag && w->m->type == in->type)
			return w;
	}
	return NULL;
}

static uint32_t chain(const struct core *c, uint64_t req_id, uint32_t node)
{
	return table_head(&c->waits_by_req, req_hash(req_id, node));
}

bool waits_has(const struct core *c, const struct msg *in)
{
	return c->waits_by_req.count && find(c, in, in->req_id, chain(c, in->req_id, in->node));
}

int wait_room(struct core *c)
{
	if (table_room(&c->waits_by_req) < 0)
		return -ENOMEM;
	if (!c->spare)
		c->spare = pool_alloc(&c->waiting);
	return c->spare ? 0 : -ENOMEM;
}

/* After wait_room(). */
static struct wait *wait_begin(struct core *c, struct msg *m)
{
	struct wait *w = wait_get(c, c->spare);

	*w = (struct wait){.self = c->spare, .m = m, .req_id = m->req_id, .tag = m->tomb_tag, .node = m->node};
	list_init(&w->list);
	for (unsigned k = 0; k < 2; k++) {
		w->on[k].wait = w;
		list_init(&w->on[k].list);
	}
	table_insert(&c->waits_by_req, c->spare);
	c->spare = 0;
	return w;
}

int wait_with_first(struct core *c, struct msg *in)
{
	if (wait_room(c) < 0)
		return -ENOMEM;
	wait_begin(c, in)->twin = true;
	return 0;
}

void wait_for_name(struct core *c, uint32_t hash)
{
	if (c->cfg.lease_ns)
		c->names[c->n_names++] = hash;
}

/* ---- what is waited for -------------------------------------------------------------------------------------- */

/* Waits for something that was said of the name, if there is such. */
static void attach(struct core *c, struct wait *w, struct wait_on *on)
{
	uint32_t h = on->hash ? table_head(&c->moved_by_hash, on->hash) : 0;

	for (; h; h = moved_get(c, h)->next) {
		struct moved *mv = moved_get(c, h);

		if (mv->hash != on->hash || mv->seq > w->seq || moved_only_to(c, mv, w->node))
			continue;
		list_add_tail(&on->list, &mv->waits);
		return;
	}
}

static bool waits_for_all(const struct core *c, const struct wait *w)
{
	for (uint32_t n = 1; c->n_alls && n < c->n_members; n++) {
		const struct member *mem = member_live(c, n);

		if (mem && n != w->node && mem->all_from && !mem->lapsed && mem->all_from <= w->seq)
			return true;
	}
	return false;
}

static void look(struct core *c, struct wait *w)
{
	if (!list_empty(&w->on[0].list) || !list_empty(&w->on[1].list) || waits_for_all(c, w))
		return;
	list_del(&w->list);
	list_add_tail(&w->list, &c->ready);
}

void waits_look_again(struct core *c, struct list *ons)
{
	struct list *pos, *tmp, mine;

	list_init(&mine);
	list_splice_tail(ons, &mine);
	list_for_each(pos, tmp, &mine)
	{
		struct wait_on *on = container_of(pos, struct wait_on, list);

		list_del(&on->list);
		attach(c, on->wait, on);
		look(c, on->wait);
	}
}

void waits_look_at_all(struct core *c)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &c->waits) look(c, container_of(pos, struct wait, list));
}

/* The request has been done; the notices that follow its answer wait with it. */
static void wait_done(struct core *c, struct wait *w)
{
	w->seq = c->lease_seq;
	w->after_commit = c->answer_after_commit;
	w->after = c->after;
	w->n_after = c->n_after;
	c->after = NULL;
	c->n_after = c->cap_after = 0;
	list_del(&w->list);
	list_add_tail(&w->list, &c->waits);
	for (unsigned k = 0; k < c->n_names && !w->m->status; k++) {
		w->on[k].hash = c->names[k];
		attach(c, w, &w->on[k]);
	}
	look(c, w);
}

bool wait_if_need_be(struct core *c, struct msg *answer)
{
	bool any = c->n_alls != 0;

	for (unsigned k = 0; k < c->n_names; k++)
		any |= table_head(&c->moved_by_hash, c->names[k]) != 0;
	if (!any || !c->n_names || answer->status || !c->spare)
		return false;
	wait_done(c, wait_begin(c, answer));
	return true;
}

/* ---- after a start ------------------------------------------------------------------------------------------- */

/* Every node of before has come back, and forgets its leases, or its leases are over by time. */
static bool may_move(struct core *c)
{
	bool all = true;

	for (uint32_t n = 1; c->no_moves && n < c->n_members; n++)
		all &= !c->members[n] || !c->members[n]->unsettled;
	if (c->no_moves && (all || c->now_ns >= c->hold_ns))
		c->no_moves = false;
	return !c->no_moves;
}

bool wait_held(struct core *c, struct msg *in)
{
	/* What was held before goes first. */
	if (may_move(c) && list_empty(&c->held))
		return false;
	list_add_tail(&wait_begin(c, in)->list, &c->held);
	return true;
}

uint64_t waits_tick(struct core *c)
{
	if (!list_empty(&c->ready))
		return NS_TICK_MAX; /* there was no memory for them */
	if (list_empty(&c->held))
		return UINT64_MAX;
	if (!may_move(c))
		return c->hold_ns - c->now_ns;
	while (!list_empty(&c->held)) {
		struct wait *w = list_first(&c->held, struct wait, list);

		step_do(c, w->m);
		wait_done(c, w);
	}
	return UINT64_MAX;
}

/* ---- giving -------------------------------------------------------------------------------------------------- */

static void wait_end(struct core *c, struct wait *w)
{
	list_del(&w->list);
	table_remove(&c->waits_by_req, w->self);
	free(w->after);
	pool_free(&c->waiting, w->self);
}

/* The twin gets what the first has got. 0, -ENOMEM: nothing has changed. */
static int fill(struct wait *twin, const struct msg *answer)
{
	uint64_t req_id = twin->m->req_id;
	int r = recent_become(twin->m, answer);

	twin->m->req_id = req_id;
	return r;
}

/* Each twin is answered before the first, so that what is left when memory runs out is still one that waits. */
static int give_twins(struct core *c, struct wait *first)
{
	uint32_t h = chain(c, first->req_id, first->node), next;

	for (; h; h = next) {
		struct wait *w = find(c, first->m, first->req_id, h);

		if (!w)
			break;
		next = w->req_next;
		if (!w->twin)
			continue;
		if (step_answer_room(c) < 0 || fill(w, first->m) < 0)
			return -ENOMEM;
		step_answer(c, w->m, first->after_commit);
		wait_end(c, w);
	}
	return 0;
}

static bool is_of_live(const struct core *c, const struct wait *w)
{
	const struct member *mem = member_live(c, w->node);

	return mem && mem->tomb_tag == w->tag;
}

static void give_after(struct core *c, struct wait *w)
{
	bool live = is_of_live(c, w);

	for (size_t k = 0; k < w->n_after; k++)
		if (live)
			step_notify(c, w->after[k].node, w->after[k].msg);
		else
			msg_free(w->after[k].msg);
	w->n_after = 0;
}

void waits_give(struct core *c)
{
	while (!list_empty(&c->ready)) {
		struct wait *w = list_first(&c->ready, struct wait, list);

		if (give_twins(c, w) < 0 || step_answer_room(c) < 0)
			return;
		if (is_of_live(c, w))
			recent_remember(c, w->m, w->req_id, w->after_commit);
		step_answer(c, w->m, w->after_commit);
		give_after(c, w);
		wait_end(c, w);
	}
}

void waits_give_up(struct core *c)
{
	for (uint32_t h = 1; h < c->waiting.top; h++) {
		struct wait *w = wait_get(c, h);

		if (!w->m || step_answer_room(c) < 0)
			continue;
		w->m->status = -ESHUTDOWN;
		step_answer(c, w->m, false);
		for (unsigned k = 0; k < 2; k++)
			list_del(&w->on[k].list);
		w->m = NULL;
		free_after(w);
		wait_end(c, w);
	}
}
