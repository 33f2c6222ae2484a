/* SPDX-License-Identifier: Apache-2.0 */
#include "master/replicas.h"

#include <errno.h>

#include "master/gets.h"
#include "master/holds.h"
#include "master/inode.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/route.h"
#include "master/step.h"
#include "master/version.h"

/* The version with that id, if it is one. 0: none. */
static uint32_t find_version(const struct core *c, uint64_t put_id)
{
	uint32_t h = inode_find(c, put_id);

	return h && inode_get(c, h)->kind == MSG_KIND_FILE ? h : 0;
}

/* A replica of the block has gone. If it was the last, so has the object (true), or perhaps the orphan. */
static bool after_loss(struct core *c, uint32_t h, uint32_t block, uint32_t asker)
{
	/* Its answer tells the asker; but where others wait until all know, nobody knows when that has come. */
	const struct version_end end = {
	    .asker = c->cfg.lease_ns ? 0 : asker, .reason = MSG_REVOKE_EVICTED, .miss = MSG_MISS_EVICTED, .say = true};
	const struct inode *i = inode_get(c, h);

	if (route_has_block(i, block))
		return false;
	if (i->flags & INODE_ORPHAN)
		return version_reap(c, h);
	/* An owner that is not back yet may have one: the end of that will tell (resume.h). */
	if (c->recovering)
		return false;
	version_end(c, h, &end);
	/* Behind the answers and notices that know the name: what ends a lease must not overtake what grants it. */
	c->answer_after_commit = true;
	return true;
}

static bool orphan(const struct inode *i)
{
	return (i->flags & INODE_ORPHAN) != 0;
}

int ssd_replica_lost(struct core *c, uint64_t put_id, uint32_t block, uint32_t node, uint32_t asker)
{
	uint32_t h = find_version(c, put_id);

	if (!h || !(route_tiers(inode_get(c, h), block, node) & TIER_SSD))
		return -ENOENT;
	if (step_room(c, 2, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	route_take(c, inode_get(c, h), block, node, TIER_SSD, !orphan(inode_get(c, h)));
	return after_loss(c, h, block, asker);
}

int op_ssd_evict(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++) {
		struct msg_item *it = &m->items[k];
		int r = ssd_replica_lost(c, it->put_id, it->block, m->node, m->node);

		it->flags = r > 0 ? MSG_ITEM_GONE : 0;
		it->status = r < 0 ? r : 0;
	}
	return 0;
}

static int ssd_commit(struct core *c, uint64_t put_id, uint32_t block, uint32_t node)
{
	uint32_t h = find_version(c, put_id);
	struct inode *i = h ? inode_get(c, h) : NULL;
	uint8_t tiers = i ? route_tiers(i, block, node) : 0;

	if (!i || orphan(i) || !(tiers & TIER_MEM))
		return -ESTALE;
	if (tiers & TIER_SSD)
		return 0; /* said twice */
	if (step_room(c, 3, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	return route_add(c, i, block, node, TIER_SSD, 0, true);
}

int op_ssd_commit(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++)
		m->items[k].status = ssd_commit(c, m->items[k].put_id, m->items[k].block, m->node);
	return 0;
}

static bool may_evict(const struct core *c, const struct inode *i, const struct msg_item *it, uint32_t node)
{
	/* Not even by force: a transfer holds what it reads. */
	if (gets_read_memory(c, i->id, it->block, node))
		return false;
	if (route_other(i, it->block, node, TIER_MEM, NULL))
		return true;
	if ((it->flags & MSG_ITEM_KEEP) || is_held(i))
		return false;
	return (it->flags & MSG_ITEM_FORCE) || orphan(i) || !(i->flags & INODE_PIN);
}

/* 1: evicted, and the object is gone with it; 0: evicted. */
static int mem_evict(struct core *c, const struct msg_item *it, uint32_t node)
{
	uint32_t h = find_version(c, it->put_id), loose;
	struct inode *i = h ? inode_get(c, h) : NULL;
	uint64_t bytes;

	if (!i || !(route_tiers(i, it->block, node) & TIER_MEM))
		return -ENOENT;
	if (!may_evict(c, i, it, node))
		return -EBUSY;
	if (step_room(c, 2, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	loose = loose_room(c);
	if (!loose)
		return -ENOMEM;
	/* The bytes are still there: the ledger falls when the owner says that the file is unlinked. */
	bytes = pages_of(block_len(i->size, i->block_shift, it->block));
	i->flags |= INODE_LOOSE;
	loose_add(c, loose, node, route_alloc(i, it->block, node), bytes, i->id);
	route_take(c, i, it->block, node, TIER_MEM, !orphan(i));
	return after_loss(c, h, it->block, node);
}

int op_mem_evict(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++) {
		struct msg_item *it = &m->items[k];
		int r = mem_evict(c, it, m->node);

		it->flags = r > 0 ? MSG_ITEM_GONE : 0;
		it->status = r < 0 ? r : 0;
	}
	return 0;
}

int op_delete_ack(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++) {
		uint32_t h = find_version(c, m->items[k].put_id);

		if (h && !orphan(inode_get(c, h))) {
			m->items[k].status = -EBUSY; /* nobody told it to drop that one */
			continue;
		}
		m->items[k].status = 0;
		if (h)
			version_acked(c, h, m->node);
		else
			loose_freed_version(c, m->node, m->items[k].put_id);
	}
	return 0;
}

int op_alloc_freed(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++)
		loose_freed(c, m->node, m->items[k].alloc);
	return 0;
}
