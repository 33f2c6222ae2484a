/* SPDX-License-Identifier: Apache-2.0 */
#include "master/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/hash.h"
#include "master/inode.h"
#include "master/inventory.h"
#include "master/lease.h"
#include "master/members.h"
#include "master/names.h"
#include "master/step.h"
#include "master/version.h"
#include "master/waits.h"

/*
 * Versions so many ids back are remembered by their tickets. Each put draws four ids or more, so this is a million
 * puts at most; a request without an answer is a few seconds old when its connection is left, and its node is dead
 * soon behind that.
 */
#define SPENT_IDS (4ull << 20)
#define SPENT_NS (60 * NS_PER_SEC)

/* A ticket that has become a version. */
struct spent {
	uint64_t ticket, put_id;
	uint32_t next;
	uint16_t node;
};

struct recovery {
	uint64_t first_id;  /* what was drawn before the start is below it */
	uint64_t until_ns;  /* who has not come by then is given up; 0: time has not begun */
	uint64_t forget_ns; /* when not recovering any more: the tickets are not needed behind it */
	uint32_t waiting;   /* members that are awaited */
	struct pool spents;
	struct table by_ticket;
};

static struct spent *spent_get(const struct recovery *rec, uint32_t h)
{
	return pool_get(&rec->spents, h);
}

static uint32_t spent_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(spent_get(arg, h)->ticket);
}

static uint32_t *spent_link(const void *arg, uint32_t h)
{
	return &spent_get(arg, h)->next;
}

static const struct table_ops spent_ops = {.hash = spent_hash, .link = spent_link};

static struct recovery *recovery_new(uint64_t first_id)
{
	struct recovery *rec = calloc(1, sizeof(*rec));

	if (!rec)
		return NULL;
	rec->first_id = first_id;
	pool_init(&rec->spents, sizeof(struct spent), 10);
	table_init(&rec->by_ticket, &spent_ops, rec);
	return rec;
}

void resume_fini(struct core *c)
{
	if (!c->recovery)
		return;
	table_fini(&c->recovery->by_ticket);
	pool_fini(&c->recovery->spents);
	free(c->recovery);
	c->recovery = NULL;
}

static int remember_ticket(struct recovery *rec, const struct inode *i)
{
	uint32_t h = table_room(&rec->by_ticket) < 0 ? 0 : pool_alloc(&rec->spents);

	if (!h)
		return -ENOMEM;
	*spent_get(rec, h) = (struct spent){.ticket = i->storage_id, .put_id = i->id, .node = i->home};
	table_insert(&rec->by_ticket, h);
	return 0;
}

static int remember_tickets(struct core *c, struct recovery *rec)
{
	uint64_t from = rec->first_id > SPENT_IDS ? rec->first_id - SPENT_IDS : 0;
	int r = 0;

	for (uint32_t h = 1; h < c->inodes.top && !r; h++) {
		const struct inode *i = inode_get(c, h);

		if (i->kind == MSG_KIND_FILE && i->id >= from)
			r = remember_ticket(rec, i);
	}
	return r;
}

int resume_begin(struct core *c)
{
	uint32_t loaded = 0;
	struct recovery *rec;

	if (!c->cfg.resume_ns)
		return 0;
	rec = c->recovery = recovery_new(c->next_id);
	if (!rec)
		return -ENOMEM;
	for (uint32_t n = 1; n < c->n_members; n++) {
		struct member *mem = c->members[n];

		if (!mem)
			continue;
		mem->awaited = mem->key && mem->tomb_tag;
		mem->ended = !mem->awaited;
		rec->waiting += mem->awaited;
		loaded += mem->loaded;
	}
	c->recovering = rec->waiting || loaded;
	if (c->recovering)
		return remember_tickets(c, rec);
	resume_fini(c);
	return 0;
}

bool resume_is_old(const struct core *c, uint64_t id)
{
	return c->recovery && id > MSG_ROOT_DIR && id < c->recovery->first_id;
}

/* ---- coming back --------------------------------------------------------------------------------------------- */

bool resume_wanted(const struct member *mem, const struct msg *m)
{
	return mem->awaited && m->u.join.tomb_tag == mem->tomb_tag && !strcmp(m->u.join.instance_key, mem->key);
}

int resume_start(struct core *c, struct member *mem, const struct msg *m)
{
	return inventory_begin(c, mem, m->req_id);
}

void resume_over(struct core *c, struct member *mem)
{
	mem->inventory = inventory_free(mem->inventory);
	c->recovery->waiting -= mem->awaited;
	mem->awaited = false;
}

static int end_lost(struct core *c)
{
	const struct version_end end = {.reason = MSG_REVOKE_LOST, .miss = MSG_MISS_LOST, .say = true};

	for (uint32_t h = 1; h < c->inodes.top; h++) {
		const struct inode *i = inode_get(c, h);

		if (i->kind != MSG_KIND_FILE || (i->flags & INODE_ORPHAN) || !version_is_lost(i))
			continue;
		if (step_room(c, 2, MSG_NAME_MAX) < 0)
			return -ENOMEM;
		version_end(c, h, &end);
	}
	return 0;
}

static bool any_loaded(const struct core *c)
{
	for (uint32_t n = 1; n < c->n_members; n++)
		if (c->members[n] && c->members[n]->loaded)
			return true;
	return false;
}

void resume_settle(struct core *c)
{
	if (!c->recovering || c->recovery->waiting || any_loaded(c) || end_lost(c) < 0)
		return;
	c->recovering = false;
	c->recovery->forget_ns = c->now_ns + SPENT_NS;
	/* Names end here that a request of this very step may grant. */
	c->answer_after_commit = true;
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

static bool is_silent(const struct core *c, const struct member *mem)
{
	return c->cfg.dead_after_ns && c->now_ns - mem->sign_ns >= c->cfg.dead_after_ns;
}

/* Who has begun to come back and says nothing more has to begin again, or another one in its place. */
static void forget_silent(struct core *c, struct member *mem)
{
	if (mem->inventory && is_silent(c, mem))
		inventory_drop(c, mem);
}

/* Returns whether some are to be dropped. */
static bool give_up(struct core *c, bool in_time)
{
	bool any = false;

	for (uint32_t n = 1; n < c->n_members; n++) {
		struct member *mem = c->members[n];

		if (!mem || mem->live)
			continue;
		forget_silent(c, mem);
		/* One that the catalogue gives replicas and no tomb_tag cannot come back. */
		if ((mem->loaded && !mem->awaited) || (mem->awaited && !mem->inventory && !in_time))
			mem->over = true;
		any |= mem->over;
	}
	return any;
}

static uint64_t wait_tick(struct core *c)
{
	struct recovery *rec = c->recovery;
	bool in_time;

	if (!rec->until_ns)
		rec->until_ns = c->now_ns + c->cfg.resume_ns;
	in_time = c->now_ns < rec->until_ns;
	if (give_up(c, in_time) && members_drop(c) < 0)
		return NS_TICK_MAX;
	resume_settle(c);
	if (!c->recovering || !in_time || !rec->waiting)
		return NS_TICK_MAX;
	return rec->until_ns - c->now_ns;
}

uint64_t resume_tick(struct core *c)
{
	if (!c->recovery)
		return UINT64_MAX;
	if (c->recovering)
		return wait_tick(c);
	if (c->now_ns < c->recovery->forget_ns)
		return c->recovery->forget_ns - c->now_ns;
	resume_fini(c);
	return UINT64_MAX;
}

/* ---- puts that were done ------------------------------------------------------------------------------------- */

uint64_t resume_put_id(const struct core *c, uint64_t ticket, uint32_t node)
{
	const struct recovery *rec = c->recovery;
	uint32_t h = rec ? table_head(&rec->by_ticket, (uint32_t)hash_u64(ticket)) : 0;

	while (h && (spent_get(rec, h)->ticket != ticket || spent_get(rec, h)->node != node))
		h = spent_get(rec, h)->next;
	return h ? spent_get(rec, h)->put_id : 0;
}

/* Whether the request's name still stands for the version: a lease on another its sender does not know how to keep. */
static bool has_name(const struct core *c, const struct inode *i, const struct msg *m)
{
	uint32_t dir;

	return !(i->flags & INODE_ORPHAN) && !inode_find_dir(c, m->u.put.dir, &dir) && i->parent == dir &&
	       strnlen(m->u.put.name, sizeof(m->u.put.name)) == i->name_len &&
	       !memcmp(m->u.put.name, i->name, i->name_len);
}

bool resume_answer_put(struct core *c, struct msg *m)
{
	uint64_t ticket = m->u.put.ticket, bytes = m->u.put.bytes, put_id = resume_put_id(c, ticket, m->node);
	uint32_t h = put_id ? inode_find(c, put_id) : 0;
	struct inode *i = h ? inode_get(c, h) : NULL;
	struct name_arg name;

	if (!put_id)
		return false;
	/* It is done, but not everybody may know. */
	if (!name_arg(c, m->u.put.dir, m->u.put.name, &name))
		wait_for_name(c, name.hash);
	if (i) {
		answer_entry(c, m, h, has_name(c, i, m) ? lease_grant(c, i, m->node) : 0);
	} else {
		memset(&m->u.entry, 0, sizeof(m->u.entry));
		m->u.entry.a =
		    (struct msg_attr){.id = put_id, .size = bytes, .storage_id = ticket, .kind = MSG_KIND_FILE};
	}
	c->answer_after_commit = true;
	return true;
}
