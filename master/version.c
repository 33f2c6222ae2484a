/* SPDX-License-Identifier: Apache-2.0 */
#include "master/version.h"

#include <stdlib.h>

#include "master/inode.h"
#include "master/heap.h"
#include "master/holds.h"
#include "master/ledger.h"
#include "master/lease.h"
#include "master/members.h"
#include "master/misses.h"
#include "master/route.h"
#include "master/space.h"
#include "master/step.h"

static void orphans_append(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	i->orphan_prev = c->orphan_tail;
	i->orphan_next = 0;
	if (c->orphan_tail)
		inode_get(c, c->orphan_tail)->orphan_next = h;
	else
		c->orphan_head = h;
	c->orphan_tail = h;
}

static void orphans_remove(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	if (i->orphan_prev)
		inode_get(c, i->orphan_prev)->orphan_next = i->orphan_next;
	else
		c->orphan_head = i->orphan_next;
	if (i->orphan_next)
		inode_get(c, i->orphan_next)->orphan_prev = i->orphan_prev;
	else
		c->orphan_tail = i->orphan_prev;
	i->orphan_prev = i->orphan_next = 0;
}

/* Tells each node that has a replica, once; unless somebody holds it. */
static void tell_drop(struct core *c, const struct inode *i)
{
	uint32_t blocks = (uint32_t)blocks_of(i->size, i->block_shift);

	if (is_held(i))
		return;
	if (!(i->flags & INODE_MULTI)) {
		step_drop(c, i->home, i->id, blocks);
		return;
	}
	for (uint32_t n = 1; n < c->n_members; n++)
		if (member_live(c, n) && route_has_node(i, n))
			step_drop(c, n, i->id, blocks);
}

void version_drop(struct core *c, struct inode *i)
{
	i->orphan_ns = c->now_ns;
	tell_drop(c, i);
}

/* The version has lost its name, its place in the counts and the catalogue; what is left of it is an orphan. */
static void orphan_make(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	heap_remove(c, h);
	if (route_empty(i)) {
		inode_free(c, h);
		return;
	}
	i->flags |= INODE_ORPHAN;
	i->orphan_ns = c->now_ns;
	orphans_append(c, h);
	c->n_orphans++;
	c->orphan_bytes += pages_of(i->size);
	tell_drop(c, i);
}

/* It counts no longer for its namespace and for statfs; an orphan's bytes are counted apart until they are gone. */
static void uncount(struct core *c, const struct inode *i)
{
	struct space *s = space_find(c, i->ns);

	c->n_objects--;
	c->live_bytes -= pages_of(i->size);
	if (!s)
		return;
	s->objects--;
	s->bytes -= i->size;
}

void version_end(struct core *c, uint32_t h, const struct version_end *end)
{
	struct inode *i = inode_get(c, h);
	uint32_t dir = i->parent;

	miss_set(c, i->name_hash, end->miss);
	lease_revoke(c, i, end->asker, end->reason);
	if (end->say)
		step_write_gone(c, i);
	name_unlink(c, h);
	dir_touch(c, dir);
	uncount(c, i);
	orphan_make(c, h);
}

void version_replace(struct core *c, uint32_t old, uint32_t fresh, uint32_t asker)
{
	struct inode *i = inode_get(c, old);

	lease_revoke(c, i, asker, MSG_REVOKE_MOVED);
	step_write_gone(c, i);
	name_move(c, old, fresh);
	uncount(c, i);
	orphan_make(c, old);
}

bool version_reap(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	if (!(i->flags & INODE_ORPHAN) || !route_empty(i))
		return false;
	orphans_remove(c, h);
	c->n_orphans--;
	c->orphan_bytes -= pages_of(i->size);
	inode_free(c, h);
	return true;
}

void version_acked(struct core *c, uint32_t h, uint32_t node)
{
	struct inode *i = inode_get(c, h);

	if (i->flags & INODE_LOOSE)
		loose_freed_version(c, node, i->id);
	route_take_node(c, i, node, member_live(c, node), false);
	version_reap(c, h);
}

uint32_t version_find(struct core *c, uint32_t dir, const char *name, size_t len, uint32_t hash)
{
	const struct version_end end = {.reason = MSG_REVOKE_EXPIRED, .miss = MSG_MISS_EXPIRED, .say = true};
	uint32_t h = name_find(c, dir, name, len, hash);

	if (!h || !version_expired(c, inode_get(c, h)))
		return h;
	if (!step_room(c, 1, 0))
		version_end(c, h, &end);
	return 0;
}

uint64_t versions_expire(struct core *c)
{
	const struct version_end end = {.reason = MSG_REVOKE_EXPIRED, .miss = MSG_MISS_EXPIRED, .say = true};
	uint32_t h;

	/* Those behind are not waited for: whoever looks for one finds it expired (version_find). */
	for (uint32_t n = 0; (h = heap_top(c)) && version_expired(c, inode_get(c, h)); n++) {
		if (n == EXPIRE_BATCH)
			return 0;
		if (step_room(c, 1, 0) < 0)
			return NS_TICK_MAX;
		version_end(c, h, &end);
	}
	return h ? (uint64_t)(inode_get(c, h)->expires_ns - c->real_ns) : UINT64_MAX;
}

uint64_t versions_repeat(struct core *c)
{
	/* Each goes to the end of the list as it is told, so it ends with what is the last one now. */
	uint32_t last = c->orphan_tail, h;
	bool all = c->drops_lost;

	c->drops_lost = false;
	if (!c->orphan_head || (!all && !c->cfg.repeat_ns))
		return UINT64_MAX;
	do {
		struct inode *i;

		h = c->orphan_head;
		i = inode_get(c, h);
		if (!all && c->now_ns - i->orphan_ns < c->cfg.repeat_ns)
			return c->cfg.repeat_ns - (c->now_ns - i->orphan_ns);
		orphans_remove(c, h);
		i->orphan_ns = c->now_ns;
		orphans_append(c, h);
		tell_drop(c, i);
	} while (h != last);
	return c->cfg.repeat_ns ? c->cfg.repeat_ns : UINT64_MAX;
}

/* Frees what an inode has without mending the tables, which are cleared as a whole. */
static void discard(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	if (!(i->flags & INODE_ORPHAN))
		miss_set(c, i->name_hash, MSG_MISS_LOST);
	c->name_bytes -= i->name_len;
	free(i->name);
	i->name = NULL;
	i->heap_pos = 0;
	inode_free(c, h);
}

static void spaces_empty(struct core *c)
{
	for (uint32_t k = 0; k < c->n_spaces; k++)
		c->spaces[k]->objects = c->spaces[k]->bytes = 0;
}

void versions_clear(struct core *c)
{
	const struct write_rec rec = {.type = WRITE_OBJECTS_CLEAR};

	step_write(c, &rec);
	c->heap_n = 0;
	table_clear(&c->by_name);
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		struct inode *i = inode_get(c, h);

		if (i->kind == MSG_KIND_FILE)
			discard(c, h);
	}
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		struct inode *i = inode_get(c, h);

		if (i->kind != MSG_KIND_DIR)
			continue;
		dir_sweep(c, i->dir);
		if (h != c->root)
			table_insert(&c->by_name, h);
	}
	c->orphan_head = c->orphan_tail = 0;
	c->n_objects = c->n_orphans = 0;
	c->live_bytes = c->orphan_bytes = 0;
	spaces_empty(c);
}
