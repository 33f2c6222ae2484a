/* SPDX-License-Identifier: Apache-2.0 */
#include "master/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/ledger.h"
#include "master/step.h"

struct route *route_new(uint32_t n)
{
	struct route *r = malloc(sizeof(*r) + n * sizeof(r->r[0]));

	if (!r)
		return NULL;
	r->n = 0;
	r->cap = n;
	return r;
}

bool route_next(const struct inode *i, uint32_t *pos, struct replica *ret)
{
	if (i->flags & INODE_MULTI) {
		if (*pos >= i->route->n)
			return false;
		*ret = i->route->r[(*pos)++];
		return true;
	}
	if (*pos || !i->tiers)
		return false;
	*ret = (struct replica){.alloc = i->alloc, .node = i->home, .tiers = i->tiers};
	*pos = 1;
	return true;
}

/* The index of the first replica that is not before (block, node). */
static uint32_t route_index(const struct route *r, uint32_t block, uint32_t node)
{
	uint32_t lo = 0, hi = r->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct replica *p = &r->r[mid];

		if (p->block < block || (p->block == block && p->node < node))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t route_block(const struct inode *i, uint32_t block)
{
	return i->flags & INODE_MULTI ? route_index(i->route, block, 0) : 0;
}

static bool route_find(const struct inode *i, uint32_t block, uint32_t node, struct replica *ret)
{
	uint32_t pos = 0;

	if (i->flags & INODE_MULTI)
		pos = route_index(i->route, block, node);
	return route_next(i, &pos, ret) && ret->block == block && ret->node == node;
}

uint8_t route_tiers(const struct inode *i, uint32_t block, uint32_t node)
{
	struct replica rep;

	return route_find(i, block, node, &rep) ? rep.tiers : 0;
}

uint64_t route_alloc(const struct inode *i, uint32_t block, uint32_t node)
{
	struct replica rep;

	return route_find(i, block, node, &rep) ? rep.alloc : 0;
}

uint8_t route_other(const struct inode *i, uint32_t block, uint32_t node, uint8_t tier, uint32_t *ret_node)
{
	uint32_t pos = route_block(i, block);
	struct replica rep;

	while (route_next(i, &pos, &rep) && rep.block == block) {
		uint8_t tiers = rep.node == node ? rep.tiers & (uint8_t)~tier : rep.tiers;

		if (!tiers)
			continue;
		if (ret_node)
			*ret_node = rep.node;
		return tiers;
	}
	return 0;
}

bool route_has_block(const struct inode *i, uint32_t block)
{
	return route_other(i, block, 0, 0, NULL) != 0;
}

bool route_has_node(const struct inode *i, uint32_t node)
{
	uint32_t pos = 0;
	struct replica rep;

	while (route_next(i, &pos, &rep))
		if (rep.node == node)
			return true;
	return false;
}

/* The catalogue's row of what the node has of the block. */
static void say_replica(struct core *c, const struct inode *i, const struct replica *rep)
{
	struct write_rec rec = {
	    .type = rep->tiers ? WRITE_REPLICA : WRITE_REPLICA_GONE,
	    .u.replica =
		{.put_id = i->id, .alloc = rep->alloc, .block = rep->block, .node = rep->node, .tiers = rep->tiers},
	};

	step_write(c, &rec);
}

static void say_change(struct core *c, const struct inode *i, const struct replica *rep)
{
	if (i->flags & INODE_MULTI)
		say_replica(c, i, rep);
	else
		step_write_inode(c, i);
}

int route_make_array(struct core *c, struct inode *i)
{
	struct route *r = route_new(2);
	struct replica rep;
	uint32_t pos = 0;

	if (!r)
		return -ENOMEM;
	if (route_next(i, &pos, &rep))
		r->r[r->n++] = rep;
	i->route = r;
	i->tiers = 0;
	i->flags |= INODE_MULTI;
	c->route_bytes += sizeof(*r) + r->cap * sizeof(r->r[0]);
	return 0;
}

static int become_array(struct core *c, struct inode *i, bool say)
{
	int r = route_make_array(c, i);

	if (r < 0 || !say)
		return r;
	step_write_inode(c, i);
	if (i->route->n)
		say_replica(c, i, &i->route->r[0]);
	return 0;
}

static int insert(struct core *c, struct inode *i, uint32_t at, const struct replica *rep)
{
	struct route *r = i->route;

	if (r->n == r->cap) {
		uint32_t cap = r->cap + r->cap / 2 + 2;

		r = realloc(r, sizeof(*r) + cap * sizeof(r->r[0]));
		if (!r)
			return -ENOMEM;
		c->route_bytes += (cap - r->cap) * sizeof(r->r[0]);
		r->cap = cap;
		i->route = r;
	}
	memmove(&r->r[at + 1], &r->r[at], (r->n - at) * sizeof(r->r[0]));
	r->r[at] = *rep;
	r->n++;
	return 0;
}

static int add_to_array(struct core *c, struct inode *i, struct replica *rep)
{
	uint32_t at = route_index(i->route, rep->block, rep->node);
	struct replica *have = &i->route->r[at];

	if (at == i->route->n || have->block != rep->block || have->node != rep->node)
		return insert(c, i, at, rep);
	have->tiers |= rep->tiers;
	if (rep->tiers & TIER_MEM)
		have->alloc = rep->alloc;
	*rep = *have;
	return 0;
}

int route_add(struct core *c, struct inode *i, uint32_t block, uint32_t node, uint8_t tier, uint64_t alloc, bool say)
{
	struct replica rep = {.alloc = alloc, .block = block, .node = (uint16_t)node, .tiers = tier};
	/* Only its home's replica of a one-block version has its place in the inode. */
	bool fits = !block && i->home == node && blocks_of(i->size, i->block_shift) == 1;
	int r;

	if (!(i->flags & INODE_MULTI) && !fits) {
		r = become_array(c, i, say);
		if (r < 0)
			return r;
	}
	if (i->flags & INODE_MULTI) {
		r = add_to_array(c, i, &rep);
		if (r < 0)
			return r;
	} else {
		i->tiers |= tier;
		if (tier & TIER_MEM)
			i->alloc = alloc;
	}
	if (say)
		say_change(c, i, &rep);
	return 0;
}

static void take_from_array(struct core *c, struct inode *i, uint32_t block, uint32_t node, uint8_t tiers, bool say)
{
	struct route *r = i->route;
	uint32_t at = route_index(r, block, node);
	struct replica *rep = &r->r[at];

	if (at == r->n || rep->block != block || rep->node != node)
		return;
	rep->tiers &= (uint8_t)~tiers;
	if (tiers & TIER_MEM)
		rep->alloc = 0;
	if (say)
		say_replica(c, i, rep);
	if (rep->tiers)
		return;
	r->n--;
	memmove(rep, rep + 1, (r->n - at) * sizeof(*rep));
}

void route_take(struct core *c, struct inode *i, uint32_t block, uint32_t node, uint8_t tiers, bool say)
{
	if (i->flags & INODE_MULTI) {
		take_from_array(c, i, block, node, tiers, say);
		return;
	}
	if (block || i->home != node || !i->tiers)
		return;
	i->tiers &= (uint8_t)~tiers;
	if (tiers & TIER_MEM)
		i->alloc = 0;
	if (say)
		step_write_inode(c, i);
}

uint32_t route_count(const struct inode *i)
{
	return i->flags & INODE_MULTI ? i->route->n : i->tiers != 0;
}

static void charge_ends(const struct inode *i, const struct replica *rep, struct member *ledger)
{
	if (ledger && (rep->tiers & TIER_MEM))
		ledger_unuse(ledger, pages_of(block_len(i->size, i->block_shift, rep->block)));
}

void route_take_node(struct core *c, struct inode *i, uint32_t node, struct member *ledger, bool say)
{
	uint32_t pos = 0, n = 0;
	struct replica rep;

	while (route_next(i, &pos, &rep)) {
		if (rep.node != node) {
			if (i->flags & INODE_MULTI)
				i->route->r[n++] = rep;
			continue;
		}
		charge_ends(i, &rep, ledger);
		if (!(i->flags & INODE_MULTI)) {
			route_take(c, i, 0, node, TIER_MEM | TIER_SSD, say);
			return;
		}
		rep.tiers = 0;
		if (say)
			say_replica(c, i, &rep);
	}
	if (i->flags & INODE_MULTI)
		i->route->n = n;
}
