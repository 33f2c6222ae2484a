/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSG_PUT_DONE: a ticket becomes a version, and a name comes to stand for it. Everything is checked and allocated
 * first; then nothing can fail.
 */
#include "master/puts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "master/attrs.h"
#include "master/heap.h"
#include "master/inode.h"
#include "master/ledger.h"
#include "master/lease.h"
#include "master/members.h"
#include "master/misses.h"
#include "master/resume.h"
#include "master/route.h"
#include "master/space.h"
#include "master/step.h"
#include "master/version.h"
#include "master/waits.h"

struct publish {
	struct name_arg name;
	uint32_t ticket, old; /* old: what the name stands for; 0: nothing */
	struct ticket *t;
	struct space *space;
	uint64_t size;
	uint32_t blocks;
	/* made before the change, owned until it */
	char *name_copy;
	struct route *route;
	struct msg *persist;
	uint32_t fresh; /* made last: nothing can fail behind it */
};

static int check_name(struct core *c, const struct msg *m, struct publish *p)
{
	const struct inode *old;
	uint32_t ns;

	p->old = version_find(c, p->name.dir, p->name.name, p->name.len, p->name.hash);
	ns = inode_get(c, p->name.dir)->ns;
	p->space = space_find(c, ns);
	if (!p->space)
		return -EPERM;
	if (ns != p->t->ns)
		return -EXDEV;
	old = p->old ? inode_get(c, p->old) : NULL;
	if (old && old->kind == MSG_KIND_DIR)
		return -EISDIR;
	if (!(m->u.put.flags & MSG_PUT_NOREPLACE) || (old ? old->id : 0) == m->u.put.replaces)
		return 0;
	return old ? -EEXIST : -ENOENT;
}

static int check_item(const struct publish *p, const struct msg_item *it, uint32_t block)
{
	uint64_t len = block_len(p->size, p->t->block_shift, block);
	const struct grant *g;

	if (it->block != block || it->bytes != len || !(it->flags & (MSG_ITEM_MEM | MSG_ITEM_SSD)))
		return -EINVAL;
	if (!(it->flags & MSG_ITEM_MEM))
		return 0;
	g = ticket_grant(p->t, block);
	return g && g->alloc == it->alloc && g->bytes >= pages_of(len) ? 0 : -EINVAL;
}

/* Item k is block k, each block once, all there, and in memory only where it was granted. */
static int check_items(const struct msg *m, struct publish *p)
{
	uint64_t blocks;
	int r = 0;

	p->size = m->u.put.bytes;
	blocks = blocks_of(p->size, p->t->block_shift);
	if (blocks > MSG_MAX_ITEMS)
		return -EFBIG;
	if (m->n_items != blocks || m->u.put.attr.expires_ns < 0)
		return -EINVAL;
	p->blocks = (uint32_t)blocks;
	for (uint32_t k = 0; k < p->blocks && !r; k++)
		r = check_item(p, &m->items[k], k);
	return r;
}

static bool to_persist(const struct msg_item *it)
{
	return (it->flags & MSG_ITEM_MEM) && !(it->flags & MSG_ITEM_SSD);
}

/* The notice that asks for the SSD copies. Without memory for it there will be none: persist is best effort. */
static struct msg *persist_msg(const struct msg *m)
{
	struct msg *notice = msg_new(MSG_SSD_PERSIST);
	size_t n = 0;

	if (!notice || msg_alloc_items(notice, m->n_items) < 0)
		return msg_free(notice);
	for (size_t k = 0; k < m->n_items; k++)
		if (to_persist(&m->items[k])) {
			notice->items[n].block = m->items[k].block;
			notice->items[n].alloc = m->items[k].alloc;
			notice->items[n++].bytes = m->items[k].bytes;
		}
	notice->n_items = n;
	return n ? notice : msg_free(notice);
}

static void unprepare(struct publish *p)
{
	free(p->name_copy);
	free(p->route);
	msg_free(p->persist);
}

static int prepare(struct core *c, const struct msg *m, struct publish *p)
{
	int r = xattrs_check(m->blob, m->blob_len);

	if (!r)
		r = xattrs_room(c, NULL, m->blob_len);
	if (!r)
		r = heap_room(c);
	/* the object, the one it replaces, its xattrs, and the replicas that do not fit its row */
	if (!r)
		r = step_room(c, 3 + p->blocks, p->name.len + m->blob_len);
	/* An overwrite as well: what it replaces takes its place until all nodes have let go. */
	if (!r && inodes_full(c))
		r = -ENOSPC;
	if (!r && !p->old)
		r = name_room(c, p->name.dir, p->name.name, p->name.len, &p->name_copy);
	if (r < 0)
		return r;
	if (p->blocks > 1) {
		p->route = route_new(p->blocks);
		if (!p->route)
			return -ENOMEM;
	}
	if (p->t->persist)
		p->persist = persist_msg(m);
	return inode_new(c, step_id(c), MSG_KIND_FILE, &p->fresh) ? 0 : -ENOMEM;
}

static void fill_inode(struct core *c, struct inode *i, const struct msg *m, const struct publish *p)
{
	const struct msg_attr *a = &m->u.put.attr;

	i->mode = (uint16_t)(S_IFREG | (a->mode & 07777));
	i->uid = a->uid;
	i->gid = a->gid;
	i->ns = p->t->ns;
	i->mtime_ns = a->mtime_ns ? a->mtime_ns : c->real_ns;
	i->atime_ns = a->atime_ns ? a->atime_ns : i->mtime_ns;
	i->ctime_ns = c->real_ns;
	i->expires_ns = a->expires_ns;
	if (!i->expires_ns && p->space->ttl_seconds)
		i->expires_ns = c->real_ns + (int64_t)(p->space->ttl_seconds * NS_PER_SEC);
	i->flags |= a->flags & MSG_ATTR_PIN ? INODE_PIN : 0;
	i->storage_id = p->t->id;
	i->size = p->size;
	i->block_shift = p->t->block_shift;
	i->home = p->t->node;
}

/* Gives the version its route; its memory copies are used from now on, the rest of the grants is given back. */
static void fill_route(struct core *c, struct inode *i, const struct msg *m, struct publish *p)
{
	struct member *mem = c->members[p->t->node];
	uint64_t granted = ticket_granted(p->t), used = 0;

	if (p->route) {
		i->route = p->route;
		i->flags |= INODE_MULTI;
		c->route_bytes += sizeof(*p->route) + p->route->cap * sizeof(p->route->r[0]);
		p->route = NULL;
	}
	for (uint32_t k = 0; k < p->blocks; k++) {
		const struct msg_item *it = &m->items[k];
		uint8_t tiers = it->flags & MSG_ITEM_SSD ? TIER_SSD : 0;

		if (it->flags & MSG_ITEM_MEM) {
			tiers |= TIER_MEM;
			used += pages_of(it->bytes);
		}
		/* Fits what was made for it. */
		route_add(c, i, k, p->t->node, tiers, it->flags & MSG_ITEM_MEM ? it->alloc : 0, false);
	}
	ledger_use(mem, used);
	ledger_unreserve(mem, granted - used);
}

static void take_name(struct core *c, struct publish *p)
{
	if (p->old) {
		version_replace(c, p->old, p->fresh, p->t->node);
	} else {
		name_link(c, p->fresh, p->name.dir, p->name_copy, p->name.len, p->name.hash,
			  inode_get(c, p->fresh)->id);
		p->name_copy = NULL;
		dir_touch(c, p->name.dir);
	}
	miss_set(c, p->name.hash, MSG_MISS_NEVER);
}

static void write_version(struct core *c, const struct inode *i)
{
	struct write_rec rec;
	struct replica rep;
	uint32_t pos = 0;

	step_write_inode(c, i);
	if (i->flags & INODE_XATTRS) {
		xattrs_record(c, i, &rec);
		step_write(c, &rec);
	}
	while ((i->flags & INODE_MULTI) && route_next(i, &pos, &rep)) {
		rec = (struct write_rec){
		    .type = WRITE_REPLICA,
		    .u.replica = {i->id, rep.alloc, rep.block, rep.node, rep.tiers},
		};
		step_write(c, &rec);
	}
}

static void send_persist(struct core *c, struct publish *p)
{
	struct msg *notice = p->persist;

	p->persist = NULL;
	if (!notice)
		return;
	for (size_t k = 0; k < notice->n_items; k++)
		notice->items[k].put_id = inode_get(c, p->fresh)->id;
	step_notify_after(c, p->t->node, notice);
}

static void apply(struct core *c, struct msg *m, struct publish *p)
{
	struct inode *i = inode_get(c, p->fresh);
	uint64_t replaced = p->old ? inode_get(c, p->old)->id : 0;

	fill_inode(c, i, m, p);
	fill_route(c, i, m, p);
	take_name(c, p);
	heap_set(c, p->fresh);
	xattrs_set(c, i, m->blob, m->blob_len);
	m->blob = NULL;
	m->blob_len = 0;
	c->n_objects++;
	c->live_bytes += pages_of(i->size);
	p->space->objects++;
	p->space->bytes += i->size;
	write_version(c, i);
	send_persist(c, p);
	answer_entry(c, m, p->fresh, lease_grant(c, i, p->t->node));
	m->u.entry.replaced_id = replaced;
	c->answer_after_commit = true;
	ticket_end(c, p->ticket);
	wait_for_name(c, p->name.hash);
}

int op_put_done(struct core *c, struct msg *m)
{
	struct publish p = {0};
	int r = ticket_of(c, m, &p.ticket);

	if (r < 0)
		return resume_answer_put(c, m) ? 0 : r;
	p.t = ticket_get(c, p.ticket);
	r = name_arg(c, m->u.put.dir, m->u.put.name, &p.name);
	if (!r)
		r = check_name(c, m, &p);
	if (!r)
		r = check_items(m, &p);
	if (!r)
		r = prepare(c, m, &p);
	if (r < 0) {
		unprepare(&p);
		return r;
	}
	apply(c, m, &p);
	return 0;
}
