/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSG_PUT_RESUME: a put that was on its way when the master went goes on, with the ticket and the grants it had. Or it
 * was done, and only the answer was lost: then its grants are replicas, and no ticket is made.
 */
#include "master/puts.h"

#include <errno.h>

#include "master/inode.h"
#include "master/inventory.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/resume.h"
#include "master/route.h"
#include "master/space.h"

/* What is wanted, after the checks. */
struct want {
	struct member *mem;
	struct space *space;
	struct name_arg name;
	uint64_t bytes; /* of all grants */
	bool excl;
};

/* The grant that the sender says it has of a block, or NULL. */
static const struct msg_item *said_grant(const struct msg *m, const struct replica *rep)
{
	for (size_t k = 0; k < m->n_items; k++)
		if (m->items[k].block == rep->block)
			return &m->items[k];
	return NULL;
}

/* The put is done: what the version has on the node is not in its inventory, for the node does not know that it is. */
static int confirm_version(struct core *c, const struct msg *m, uint64_t put_id)
{
	uint32_t h = inode_find(c, put_id), pos = 0;
	struct replica rep;
	int r = 0;

	while (h && !r && route_next(inode_get(c, h), &pos, &rep)) {
		const struct msg_item *it = said_grant(m, &rep);

		if (rep.node != m->node)
			continue;
		if ((rep.tiers & TIER_MEM) && (!it || it->alloc != rep.alloc)) {
			rep.tiers &= (uint8_t)~TIER_MEM;
			rep.alloc = 0;
		}
		if (rep.tiers)
			r = inventory_confirm(c->members[m->node], inode_get(c, h), &rep);
	}
	return r;
}

/* Whole pages of a block each, ascending; bytes is what they are together. */
static int check_grants(const struct msg *m, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;

	for (size_t k = 0; k < m->n_items; k++) {
		const struct msg_item *it = &m->items[k];

		if (it->block >= MSG_MAX_ITEMS || (k && it->block <= it[-1].block) || !it->bytes || it->bytes % PAGE ||
		    it->bytes > m->u.put.block_size)
			return -EINVAL;
		/* 2^16 blocks of 2^40 bytes at most. */
		bytes += it->bytes;
	}
	*ret_bytes = bytes;
	return 0;
}

/* A name that is no longer free is not reserved, and the put goes on without. */
static int check_name(struct core *c, const struct msg *m, struct want *w)
{
	int r;

	if (!(m->u.put.flags & MSG_PUT_EXCL))
		return 0;
	r = put_name_free(c, m, &w->name);
	w->excl = !r;
	return r == -EEXIST ? 0 : r;
}

static int check(struct core *c, const struct msg *m, struct want *w)
{
	uint32_t dir;
	int r;

	if (!resume_is_old(c, m->u.put.ticket) || ticket_find(c, m->u.put.ticket) ||
	    !is_block_size(m->u.put.block_size))
		return -EINVAL;
	r = inode_find_dir(c, m->u.put.dir, &dir);
	if (r < 0)
		return r;
	w->space = space_find(c, inode_get(c, dir)->ns);
	if (!w->space)
		return -EPERM;
	r = check_grants(m, &w->bytes);
	if (!r)
		r = check_name(c, m, w);
	if (r < 0)
		return r;
	return w->bytes > inventory_room(w->mem) ? -ENOSPC : 0;
}

static int add_grant(struct core *c, struct member *mem, struct ticket *t, const struct msg_item *it)
{
	int r = inventory_claim(c, mem, it->alloc);

	if (r < 0)
		return r;
	r = ticket_take_grant(t, it);
	if (r < 0)
		inventory_unclaim(mem, it->alloc);
	return r;
}

/* All grants, or none. */
static int add_grants(struct core *c, const struct msg *m, const struct want *w, struct ticket *t)
{
	int r = 0;

	for (size_t k = 0; k < m->n_items && !r; k++)
		r = add_grant(c, w->mem, t, &m->items[k]);
	for (uint32_t k = 0; r < 0 && k < t->n; k++)
		inventory_unclaim(w->mem, t->grants[k].alloc);
	return r;
}

static int make(struct core *c, const struct msg *m, const struct want *w)
{
	uint32_t h;
	int r = ticket_new(c, m->u.put.ticket, m->node, &h);

	if (r < 0)
		return r;
	if (w->excl)
		r = ticket_reserve(c, h, &w->name);
	if (!r)
		r = add_grants(c, m, w, ticket_get(c, h));
	if (r < 0) {
		ticket_end(c, h);
		return r;
	}
	ticket_get(c, h)->ns = w->space->number;
	ticket_get(c, h)->block_shift = shift_of(m->u.put.block_size);
	ticket_get(c, h)->persist = m->u.put.persist_to_ssd && w->mem->ssd;
	ledger_resume(w->mem, w->bytes);
	return 0;
}

int op_put_resume(struct core *c, struct msg *m)
{
	struct want w = {.mem = c->members[m->node]};
	uint64_t put_id;
	int r;

	if (!inventory_asked(w.mem, m))
		return -EINVAL;
	put_id = resume_put_id(c, m->u.put.ticket, m->node);
	if (put_id)
		return confirm_version(c, m, put_id);
	r = check(c, m, &w);
	if (!r)
		r = make(c, m, &w);
	return !r && !w.excl && (m->u.put.flags & MSG_PUT_EXCL) ? -EEXIST : r;
}
