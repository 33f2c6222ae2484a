/* SPDX-License-Identifier: Apache-2.0 */
#include "master/gets.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/hash.h"
#include "master/inode.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/replicas.h"
#include "master/route.h"
#include "master/step.h"

#define FAILED_NS (5 * NS_PER_SEC) /* a source that failed is not the first choice for so long */

static uint32_t block_hash(uint64_t put_id, uint32_t block)
{
	return (uint32_t)hash_u64(put_id + ((uint64_t)block << 40));
}

static uint32_t by_id_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(get_get(arg, h)->id);
}

static uint32_t *by_id_link(const void *arg, uint32_t h)
{
	return &get_get(arg, h)->id_next;
}

static uint32_t by_block_hash(const void *arg, uint32_t h)
{
	return block_hash(get_get(arg, h)->put_id, get_get(arg, h)->block);
}

static uint32_t *by_block_link(const void *arg, uint32_t h)
{
	return &get_get(arg, h)->block_next;
}

static const struct table_ops id_ops = {.hash = by_id_hash, .link = by_id_link};
static const struct table_ops block_ops = {.hash = by_block_hash, .link = by_block_link};

int gets_init(struct core *c)
{
	pool_init(&c->gets, sizeof(struct get), 8);
	table_init(&c->gets_by_id, &id_ops, c);
	table_init(&c->gets_by_block, &block_ops, c);
	list_init(&c->gets_fifo);
	return 0;
}

void gets_fini(struct core *c)
{
	table_fini(&c->gets_by_id);
	table_fini(&c->gets_by_block);
	pool_fini(&c->gets);
}

static uint32_t find(const struct core *c, uint64_t id)
{
	uint32_t h = table_head(&c->gets_by_id, (uint32_t)hash_u64(id));

	while (h && get_get(c, h)->id != id)
		h = get_get(c, h)->id_next;
	return h;
}

bool gets_read_memory(const struct core *c, uint64_t put_id, uint32_t block, uint32_t node)
{
	uint32_t h = table_head(&c->gets_by_block, block_hash(put_id, block));

	for (; h; h = get_get(c, h)->block_next) {
		const struct get *g = get_get(c, h);

		if (g->put_id == put_id && g->block == block && g->source_node == node &&
		    g->source == MSG_SOURCE_MEM_REMOTE)
			return true;
	}
	return false;
}

static bool from_elsewhere(const struct get *g)
{
	return g->source == MSG_SOURCE_MEM_REMOTE || g->source == MSG_SOURCE_SSD_REMOTE;
}

/* The record goes; its target's grant is no longer its concern. */
static void get_end(struct core *c, uint32_t h)
{
	struct get *g = get_get(c, h);

	if (from_elsewhere(g))
		c->members[g->source_node]->sources--;
	list_del(&g->fifo);
	table_remove(&c->gets_by_id, h);
	table_remove(&c->gets_by_block, h);
	pool_free(&c->gets, h);
}

static void get_revoke(struct core *c, uint32_t h)
{
	struct get *g = get_get(c, h);

	ledger_unreserve(c->members[g->node], g->bytes);
	get_end(c, h);
}

void gets_gone(struct core *c, uint32_t node)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &c->gets_fifo)
	{
		struct get *g = container_of(pos, struct get, fifo);

		if (g->node == node || (from_elsewhere(g) && g->source_node == node))
			get_revoke(c, find(c, g->id));
	}
}

uint64_t gets_tick(struct core *c)
{
	while (!list_empty(&c->gets_fifo)) {
		struct get *g = list_first(&c->gets_fifo, struct get, fifo);
		uint64_t age = c->now_ns - g->start_ns;

		if (age < c->cfg.get_deadline_ns)
			return c->cfg.get_deadline_ns - age;
		get_revoke(c, find(c, g->id));
	}
	return UINT64_MAX;
}

/* ---- where from ---------------------------------------------------------------------------------------------- */

static struct failed *failed_slot(struct core *c, uint64_t put_id, uint32_t block, uint32_t node)
{
	uint64_t hash = hash_u64(put_id + ((uint64_t)block << 40) + ((uint64_t)node << 24));

	return &c->failed[hash & (FAILED_MAX - 1)];
}

static void source_failed(struct core *c, const struct get *g)
{
	if (from_elsewhere(g))
		*failed_slot(c, g->put_id, g->block, g->node) = (struct failed){.put_id = g->put_id,
										.until_ns = c->now_ns + FAILED_NS,
										.block = g->block,
										.node = g->node,
										.source = g->source_node};
}

/* The node that failed this one not long ago; 0: none. */
static uint32_t failed_source(struct core *c, uint64_t put_id, uint32_t block, uint32_t node)
{
	const struct failed *f = failed_slot(c, put_id, block, node);
	bool is_it = f->put_id == put_id && f->block == block && f->node == node;

	return is_it && c->now_ns < f->until_ns ? f->source : 0;
}

/* The one that has less to do; of two, the one whose turn was longer ago. 0 is no node. */
static uint32_t less_busy(const struct core *c, uint32_t a, uint32_t b)
{
	const struct member *x = c->members[a], *y = c->members[b];

	if (!a || !b)
		return a ? a : b;
	if (x->sources != y->sources)
		return x->sources < y->sources ? a : b;
	return x->picked <= y->picked ? a : b;
}

/* Nodes that have the block on a tier and that another can get it from. 0: none. */
struct elsewhere {
	uint32_t mem, ssd;
};

static void look_elsewhere(const struct core *c, const struct inode *i, uint32_t block, uint32_t node, uint32_t but,
			   struct elsewhere *ret)
{
	uint32_t pos = route_block(i, block);
	struct replica rep;

	*ret = (struct elsewhere){0};
	while (route_next(i, &pos, &rep) && rep.block == block) {
		const struct member *mem = member_live(c, rep.node);

		if (rep.node == node || rep.node == but || !mem || !mem->address)
			continue;
		if (rep.tiers & TIER_MEM)
			ret->mem = less_busy(c, ret->mem, rep.node);
		if (rep.tiers & TIER_SSD)
			ret->ssd = less_busy(c, ret->ssd, rep.node);
	}
}

/* In this order: memory here, memory elsewhere, the SSD here, an SSD elsewhere; what has failed comes behind them. */
static enum msg_source pick_source(struct core *c, const struct inode *i, uint32_t block, uint32_t node,
				   uint32_t *ret_node)
{
	uint32_t failed = failed_source(c, i->id, block, node);
	uint8_t here = route_tiers(i, block, node);
	struct elsewhere e;

	*ret_node = node;
	if (here & TIER_MEM)
		return MSG_SOURCE_MEM_LOCAL;
	look_elsewhere(c, i, block, node, failed, &e);
	if (failed && !e.mem && !e.ssd && !(here & TIER_SSD))
		look_elsewhere(c, i, block, node, 0, &e);
	if (!e.mem && (here & TIER_SSD))
		return MSG_SOURCE_SSD_LOCAL;
	*ret_node = e.mem ? e.mem : e.ssd;
	if (e.mem)
		return MSG_SOURCE_MEM_REMOTE;
	return e.ssd ? MSG_SOURCE_SSD_REMOTE : MSG_SOURCE_NONE;
}

/* ---- start, end ---------------------------------------------------------------------------------------------- */

static int nospace(struct msg *m, const struct member *mem)
{
	m->u.get.total = ledger_total(mem);
	m->u.get.free = ledger_free(mem);
	return -ENOSPC;
}

static struct get *get_new(struct core *c)
{
	struct get *g;
	uint32_t h;

	if (table_room(&c->gets_by_id) < 0 || table_room(&c->gets_by_block) < 0)
		return NULL;
	h = pool_alloc(&c->gets);
	if (!h)
		return NULL;
	g = get_get(c, h);
	g->id = step_id(c);
	list_init(&g->fifo);
	table_insert(&c->gets_by_id, h);
	return g;
}

/* What is hashed by the block is known only now. */
static void get_plan(struct core *c, struct get *g, const struct msg *m)
{
	g->put_id = m->u.get.put_id;
	g->block = m->u.get.block;
	g->source = (uint8_t)m->u.get.source;
	g->source_node = (uint16_t)m->u.get.source_node;
	g->node = (uint16_t)m->node;
	g->alloc = step_id(c);
	g->bytes = m->u.get.bytes;
	g->start_ns = c->now_ns;
	list_add_tail(&g->fifo, &c->gets_fifo);
	table_insert(&c->gets_by_block, find(c, g->id));
	ledger_reserve(c->members[g->node], g->bytes);
}

/* What the source is shown, and where it is. */
static void tell_source(struct core *c, struct msg *m, const struct inode *i)
{
	struct member *mem = c->members[m->u.get.source_node];

	m->u.get.expires_ns = c->now_ns + c->cfg.get_deadline_ns;
	m->u.get.source_tag = mem->tomb_tag;
	if (m->u.get.source == MSG_SOURCE_MEM_REMOTE)
		m->u.get.source_alloc = route_alloc(i, m->u.get.block, mem->node);
	memcpy(m->u.get.source_address, mem->address, strlen(mem->address));
	mem->sources++;
	mem->picked = ++c->picks;
}

/* Nothing of the question is left in it but what is asked for. */
static void answer_get(struct core *c, struct msg *m, const struct inode *i)
{
	uint64_t put_id = m->u.get.put_id;
	uint32_t block = m->u.get.block;

	memset(&m->u.get, 0, sizeof(m->u.get));
	m->u.get.put_id = put_id;
	m->u.get.block = block;
	m->u.get.len = block_len(i->size, i->block_shift, block);
	m->u.get.bytes = pages_of(m->u.get.len);
	m->u.get.source = pick_source(c, i, block, m->node, &m->u.get.source_node);
}

int op_get_start(struct core *c, struct msg *m)
{
	uint32_t h = inode_find(c, m->u.get.put_id);
	struct member *mem = member_live(c, m->node);
	const struct inode *i;
	struct get *g;

	if (!h || inode_get(c, h)->kind != MSG_KIND_FILE)
		return -ENOENT;
	i = inode_get(c, h);
	if (m->u.get.block >= blocks_of(i->size, i->block_shift))
		return -EINVAL;
	answer_get(c, m, i);
	if (m->u.get.source == MSG_SOURCE_NONE)
		return c->recovering ? -EAGAIN : -ENOENT;
	if (m->u.get.source == MSG_SOURCE_MEM_LOCAL) {
		m->u.get.alloc = route_alloc(i, m->u.get.block, m->node);
		return 0;
	}
	/* The target is charged before any byte moves, like a put's. */
	if (m->u.get.bytes > ledger_free(mem))
		return nospace(m, mem);
	g = get_new(c);
	if (!g)
		return -ENOMEM;
	get_plan(c, g, m);
	m->u.get.get_id = g->id;
	m->u.get.alloc = g->alloc;
	if (from_elsewhere(g))
		tell_source(c, m, i);
	return 0;
}

static int own_get(const struct core *c, const struct msg *m, uint32_t *ret)
{
	uint32_t h = find(c, m->u.get.get_id);

	if (!h || get_get(c, h)->node != m->node)
		return -ESTALE;
	*ret = h;
	return 0;
}

/* The target becomes a memory replica, if its version is what the name stands for and has none here yet. */
static bool promote(struct core *c, const struct get *g)
{
	uint32_t h = inode_find(c, g->put_id);
	struct inode *i = h ? inode_get(c, h) : NULL;

	if (!i || (i->flags & INODE_ORPHAN) || (route_tiers(i, g->block, g->node) & TIER_MEM))
		return false;
	return route_add(c, i, g->block, g->node, TIER_MEM, g->alloc, true) == 0;
}

int op_get_done(struct core *c, struct msg *m)
{
	struct get *g;
	struct inode *i;
	uint32_t h, loose, ih;
	int r = own_get(c, m, &h);

	if (r < 0)
		return r;
	g = get_get(c, h);
	if (step_room(c, 3, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	/* Whatever promotion says, what follows must not fail: the bytes are there. */
	loose = loose_room(c);
	if (!loose)
		return -ENOMEM;
	ledger_use(c->members[g->node], g->bytes);
	m->u.get.promoted = promote(c, g);
	if (m->u.get.promoted) {
		loose_unroom(c, loose);
	} else {
		ih = inode_find(c, g->put_id);
		i = ih ? inode_get(c, ih) : NULL;
		if (i)
			i->flags |= INODE_LOOSE;
		loose_add(c, loose, g->node, g->alloc, g->bytes, g->put_id);
	}
	get_end(c, h);
	return 0;
}

int op_get_revoke(struct core *c, struct msg *m)
{
	struct get g;
	uint32_t h;
	int r = own_get(c, m, &h);

	/* The get may be over by its deadline; what it has found out about the sender's own copy holds all the same. */
	if (r < 0 && m->u.get.drop_ssd_source && m->u.get.put_id && m->u.get.source != MSG_SOURCE_SSD_REMOTE &&
	    ssd_replica_lost(c, m->u.get.put_id, m->u.get.block, m->node, 0) >= 0)
		return 0;
	if (r < 0)
		return r;
	g = *get_get(c, h);
	get_revoke(c, h);
	source_failed(c, &g);
	if (m->u.get.drop_ssd_source && (g.source == MSG_SOURCE_SSD_LOCAL || g.source == MSG_SOURCE_SSD_REMOTE))
		ssd_replica_lost(c, g.put_id, g.block, g.source_node, 0);
	return 0;
}
