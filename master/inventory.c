/* SPDX-License-Identifier: Apache-2.0 */
#include "master/inventory.h"

#include <errno.h>
#include <stdlib.h>

#include "common/hash.h"
#include "master/inode.h"
#include "master/lease.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/puts.h"
#include "master/resume.h"
#include "master/route.h"
#include "master/step.h"
#include "master/version.h"

/* A copy that the owner says it has, or (on no tier) an allocation that is no copy: loose, or a put's. */
struct copy {
	uint64_t put_id, alloc;
	uint32_t block, block_next, alloc_next;
	uint8_t tiers; /* TIER_* */
	bool loose;
};

#define BYTES_MAX (1ull << 60) /* of all of a node's allocations */

struct inventory {
	struct pool copies;
	struct table by_block; /* those on some tier */
	struct table by_alloc; /* those with an allocation */
	uint64_t bytes;	       /* of allocations that are confirmed or loose */
	uint64_t join_req;     /* req_id of the MSG_JOIN that began it */
	uint32_t page;	       /* which is next */
};

static struct copy *copy_get(const struct inventory *inv, uint32_t h)
{
	return pool_get(&inv->copies, h);
}

static uint32_t hash_of(uint64_t put_id, uint32_t block)
{
	return (uint32_t)hash_u64(put_id + ((uint64_t)block << 40));
}

static uint32_t block_hash(const void *arg, uint32_t h)
{
	return hash_of(copy_get(arg, h)->put_id, copy_get(arg, h)->block);
}

static uint32_t *block_link(const void *arg, uint32_t h)
{
	return &copy_get(arg, h)->block_next;
}

static uint32_t alloc_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(copy_get(arg, h)->alloc);
}

static uint32_t *alloc_link(const void *arg, uint32_t h)
{
	return &copy_get(arg, h)->alloc_next;
}

static const struct table_ops block_ops = {.hash = block_hash, .link = block_link};
static const struct table_ops alloc_ops = {.hash = alloc_hash, .link = alloc_link};

struct inventory *inventory_free(struct inventory *inv)
{
	if (!inv)
		return NULL;
	table_fini(&inv->by_block);
	table_fini(&inv->by_alloc);
	pool_fini(&inv->copies);
	free(inv);
	return NULL;
}

int inventory_begin(struct core *c, struct member *mem, uint64_t req_id)
{
	struct inventory *inv = calloc(1, sizeof(*inv));

	if (!inv)
		return -ENOMEM;
	inventory_drop(c, mem);
	mem->loaded = true; /* it may get replicas that the catalogue did not give it */
	pool_init(&inv->copies, sizeof(struct copy), 10);
	table_init(&inv->by_block, &block_ops, inv);
	table_init(&inv->by_alloc, &alloc_ops, inv);
	inv->join_req = req_id;
	mem->inventory = inv;
	return 0;
}

void inventory_drop(struct core *c, struct member *mem)
{
	tickets_gone(c, mem->node);
	looses_gone(c, mem->node);
	mem->inventory = inventory_free(mem->inventory);
}

static uint32_t find_block(const struct inventory *inv, uint64_t put_id, uint32_t block)
{
	uint32_t h = table_head(&inv->by_block, hash_of(put_id, block));

	while (h && (copy_get(inv, h)->put_id != put_id || copy_get(inv, h)->block != block))
		h = copy_get(inv, h)->block_next;
	return h;
}

static uint32_t find_alloc(const struct inventory *inv, uint64_t alloc)
{
	uint32_t h = table_head(&inv->by_alloc, (uint32_t)hash_u64(alloc));

	while (h && copy_get(inv, h)->alloc != alloc)
		h = copy_get(inv, h)->alloc_next;
	return h;
}

/* A copy that is in neither table, and room for it in both. 0: no memory. */
static uint32_t new_copy(struct inventory *inv)
{
	if (table_room(&inv->by_block) < 0 || table_room(&inv->by_alloc) < 0)
		return 0;
	return pool_alloc(&inv->copies);
}

/* Neither of something else, nor of this run: then it is a number that this owner cannot have. */
static bool is_free(const struct core *c, const struct inventory *inv, uint64_t alloc)
{
	return resume_is_old(c, alloc) && !find_alloc(inv, alloc);
}

int inventory_claim(struct core *c, struct member *mem, uint64_t alloc)
{
	struct inventory *inv = mem->inventory;
	uint32_t h;

	if (!is_free(c, inv, alloc))
		return -EINVAL;
	h = new_copy(inv);
	if (!h)
		return -ENOMEM;
	*copy_get(inv, h) = (struct copy){.alloc = alloc};
	table_insert(&inv->by_alloc, h);
	return 0;
}

void inventory_unclaim(struct member *mem, uint64_t alloc)
{
	struct inventory *inv = mem->inventory;
	uint32_t h = find_alloc(inv, alloc);

	table_remove(&inv->by_alloc, h);
	pool_free(&inv->copies, h);
}

/* After new_copy(). */
static void note(struct inventory *inv, uint32_t h, const struct copy *k)
{
	*copy_get(inv, h) = *k;
	table_insert(&inv->by_block, h);
	if (k->alloc)
		table_insert(&inv->by_alloc, h);
}

int inventory_confirm(struct member *mem, const struct inode *i, const struct replica *rep)
{
	struct inventory *inv = mem->inventory;
	uint32_t h = find_block(inv, i->id, rep->block);

	if (h || (rep->alloc && find_alloc(inv, rep->alloc)))
		return 0; /* said before */
	h = new_copy(inv);
	if (!h)
		return -ENOMEM;
	note(inv, h, &(struct copy){.put_id = i->id, .alloc = rep->alloc, .block = rep->block, .tiers = rep->tiers});
	if (rep->tiers & TIER_MEM)
		inv->bytes += pages_of(block_len(i->size, i->block_shift, rep->block));
	return 0;
}

uint64_t inventory_room(const struct member *mem)
{
	uint64_t taken = mem->inventory->bytes + mem->reserved;

	return mem->capacity > taken ? mem->capacity - taken : 0;
}

bool inventory_asked(const struct member *mem, const struct msg *m)
{
	return mem->inventory && m->req_id > mem->inventory->join_req;
}

/* ---- one item ------------------------------------------------------------------------------------------------ */

/* A file without a replica: charged until the owner says that it is unlinked. */
static int take_loose(struct core *c, struct member *mem, const struct msg_item *it)
{
	struct inventory *inv = mem->inventory;
	uint32_t h = find_alloc(inv, it->alloc), loose, version;
	uint64_t bytes = pages_of(it->bytes);

	if (h && copy_get(inv, h)->loose && copy_get(inv, h)->put_id == it->put_id)
		return 0; /* said twice */
	/* More than fits in all is no reason to refuse it: the bytes are there, and nothing is granted until they go.
	 */
	if (!is_free(c, inv, it->alloc) || !bytes || bytes > mem->capacity || bytes > BYTES_MAX - inv->bytes)
		return -ENOENT;
	h = new_copy(inv);
	if (!h)
		return -ENOMEM;
	loose = loose_room(c);
	if (!loose) {
		pool_free(&inv->copies, h);
		return -ENOMEM;
	}
	*copy_get(inv, h) = (struct copy){.put_id = it->put_id, .alloc = it->alloc, .loose = true};
	table_insert(&inv->by_alloc, h);
	loose_add(c, loose, mem->node, it->alloc, bytes, it->put_id);
	ledger_found(mem, bytes);
	inv->bytes += bytes;
	version = inode_find(c, it->put_id);
	if (version)
		inode_get(c, version)->flags |= INODE_LOOSE;
	return 0;
}

static uint8_t tiers_of(const struct msg_item *it)
{
	return (uint8_t)((it->flags & MSG_ITEM_MEM ? TIER_MEM : 0) | (it->flags & MSG_ITEM_SSD ? TIER_SSD : 0));
}

/* The version whose block that could be a copy of; 0: none. */
static uint32_t version_of(const struct core *c, const struct msg_item *it)
{
	uint32_t h = inode_find(c, it->put_id);
	const struct inode *i = h ? inode_get(c, h) : NULL;

	if (!i || i->kind != MSG_KIND_FILE || it->block >= blocks_of(i->size, i->block_shift) ||
	    pages_of(it->bytes) != pages_of(block_len(i->size, i->block_shift, it->block)))
		return 0;
	return h;
}

/* The route says what the owner says, from now on; what it had is the owner's all the same. After step_room(). */
static int correct_route(struct core *c, struct member *mem, struct inode *i, const struct msg_item *it, uint8_t tiers)
{
	uint8_t had = route_tiers(i, it->block, mem->node);
	bool other = (tiers & had & TIER_MEM) && route_alloc(i, it->block, mem->node) != it->alloc;
	int r;

	if (!(tiers & ~had) && !other)
		return 0;
	r = route_add(c, i, it->block, mem->node, tiers, it->alloc, !(i->flags & INODE_ORPHAN));
	if (!r && (tiers & ~had & TIER_MEM))
		ledger_found(mem, pages_of(it->bytes));
	return r;
}

/* Notes the tiers in what is known of the block: h, or fresh if it is 0. */
static void note_copy(struct inventory *inv, uint32_t h, uint32_t fresh, const struct msg_item *it, uint8_t tiers)
{
	uint64_t alloc = tiers & TIER_MEM ? it->alloc : 0;

	if (tiers & TIER_MEM)
		inv->bytes += pages_of(it->bytes);
	if (!h) {
		note(inv, fresh,
		     &(struct copy){.put_id = it->put_id, .alloc = alloc, .block = it->block, .tiers = tiers});
		return;
	}
	pool_free(&inv->copies, fresh);
	copy_get(inv, h)->tiers |= tiers;
	if (!alloc)
		return;
	copy_get(inv, h)->alloc = alloc;
	table_insert(&inv->by_alloc, h);
}

static int take_copy(struct core *c, struct member *mem, const struct msg_item *it)
{
	struct inventory *inv = mem->inventory;
	uint32_t version = version_of(c, it), h = find_block(inv, it->put_id, it->block), fresh;
	uint8_t tiers = tiers_of(it), said = h ? copy_get(inv, h)->tiers : 0;
	int r;

	if (!version || !tiers)
		return -ENOENT;
	/* Of two files of one block one is enough. */
	if ((tiers & TIER_MEM) &&
	    (said & TIER_MEM ? copy_get(inv, h)->alloc != it->alloc : !is_free(c, inv, it->alloc)))
		return -ENOENT;
	if (!(tiers & ~said))
		return 0;
	fresh = new_copy(inv);
	if (!fresh)
		return -ENOMEM;
	r = step_room(c, 3, MSG_NAME_MAX);
	if (!r)
		r = correct_route(c, mem, inode_get(c, version), it, tiers);
	if (r < 0) {
		pool_free(&inv->copies, fresh);
		return r;
	}
	note_copy(inv, h, fresh, it, tiers & (uint8_t)~said);
	return 0;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* The version loses what the owner has not said it has of it. */
static int version_loses_unsaid(struct core *c, struct member *mem, uint32_t h)
{
	struct inode *i = inode_get(c, h);
	bool orphan = (i->flags & INODE_ORPHAN) != 0;
	uint32_t pos = 0, had;
	struct replica rep;

	while (had = pos, route_next(i, &pos, &rep)) {
		uint32_t k = rep.node == mem->node ? find_block(mem->inventory, i->id, rep.block) : 0;
		uint8_t lost =
		    rep.node == mem->node ? rep.tiers & (uint8_t) ~(k ? copy_get(mem->inventory, k)->tiers : 0) : 0;

		if (!lost)
			continue;
		if (step_room(c, 1, MSG_NAME_MAX) < 0)
			return -ENOMEM;
		if (lost & TIER_MEM)
			ledger_unuse(mem, pages_of(block_len(i->size, i->block_shift, rep.block)));
		route_take(c, i, rep.block, mem->node, lost, !orphan);
		/* What comes behind it has moved to its place. */
		if (lost == rep.tiers)
			pos = had;
	}
	if (orphan)
		version_reap(c, h);
	return 0;
}

static int drop_unsaid(struct core *c, struct member *mem)
{
	for (uint32_t h = 1; h < c->inodes.top; h++)
		if (inode_get(c, h)->kind == MSG_KIND_FILE && version_loses_unsaid(c, mem, h) < 0)
			return -ENOMEM;
	return 0;
}

/* It is back. */
static int end(struct core *c, struct member *mem)
{
	struct write_rec rec;

	if (drop_unsaid(c, mem) < 0 || step_room(c, 1, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	resume_over(c, mem);
	mem->live = true;
	mem->loaded = false;
	lease_resumed(c, mem);
	member_record(mem, &rec);
	step_write(c, &rec);
	resume_settle(c);
	return 0;
}

int op_inventory(struct core *c, struct msg *m)
{
	struct member *mem = c->members[m->node];
	bool last = m->u.inventory.end;
	int r = 0;

	if (!inventory_asked(mem, m) || m->u.inventory.page != mem->inventory->page)
		return -EINVAL;
	for (size_t k = 0; k < m->n_items && r != -ENOMEM; k++) {
		struct msg_item *it = &m->items[k];

		r = it->flags & MSG_ITEM_LOOSE ? take_loose(c, mem, it) : take_copy(c, mem, it);
		it->status = r;
	}
	/* Without memory the page may come again as it is: what has been taken is known. */
	if (r == -ENOMEM)
		return r;
	if (last)
		return end(c, mem);
	mem->inventory->page++;
	return 0;
}
