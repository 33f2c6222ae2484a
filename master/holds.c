/* SPDX-License-Identifier: Apache-2.0 */
#include "master/holds.h"

#include <errno.h>

#include "common/hash.h"
#include "master/inode.h"
#include "master/version.h"

static uint32_t put_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(hold_get(arg, h)->put_id);
}

static uint32_t *put_link(const void *arg, uint32_t h)
{
	return &hold_get(arg, h)->next;
}

static const struct table_ops put_ops = {.hash = put_hash, .link = put_link};

void holds_init(struct core *c)
{
	pool_init(&c->holds, sizeof(struct hold), 10);
	table_init(&c->holds_by_put, &put_ops, c);
}

void holds_fini(struct core *c)
{
	table_fini(&c->holds_by_put);
	pool_fini(&c->holds);
}

/* The node's hold of the version; node 0: anybody's. 0: none. */
static uint32_t find(const struct core *c, uint64_t put_id, uint32_t node)
{
	uint32_t h = table_head(&c->holds_by_put, (uint32_t)hash_u64(put_id));

	while (h && (hold_get(c, h)->put_id != put_id || (node && hold_get(c, h)->node != node)))
		h = hold_get(c, h)->next;
	return h;
}

static void hold_end(struct core *c, uint32_t h)
{
	table_remove(&c->holds_by_put, h);
	pool_free(&c->holds, h);
}

/* It is an orphan that could not be dropped: now it can. */
static void last_released(struct core *c, struct inode *i)
{
	i->flags &= (uint8_t)~INODE_HELD;
	if (i->flags & INODE_ORPHAN)
		version_drop(c, i);
}

static void release(struct core *c, uint32_t h)
{
	uint64_t put_id = hold_get(c, h)->put_id;

	hold_end(c, h);
	if (!find(c, put_id, 0))
		last_released(c, inode_get(c, inode_find(c, put_id)));
}

void holds_end(struct core *c, struct inode *i)
{
	uint32_t h;

	while (is_held(i) && (h = find(c, i->id, 0)))
		hold_end(c, h);
	i->flags &= (uint8_t)~INODE_HELD;
}

void holds_gone(struct core *c, uint32_t node)
{
	for (uint32_t h = 1; h < c->holds.top; h++)
		/* A free element has no node. */
		if (hold_get(c, h)->node == node)
			release(c, h);
}

static int hold(struct core *c, uint64_t put_id, uint32_t node)
{
	uint32_t ih = inode_find(c, put_id), h;
	struct inode *i = ih ? inode_get(c, ih) : NULL;

	if (!i || i->kind != MSG_KIND_FILE)
		return -ENOENT;
	if (is_held(i) && find(c, put_id, node))
		return 0;
	h = table_room(&c->holds_by_put) < 0 ? 0 : pool_alloc(&c->holds);
	if (!h)
		return -ENOMEM;
	hold_get(c, h)->put_id = put_id;
	hold_get(c, h)->node = (uint16_t)node;
	table_insert(&c->holds_by_put, h);
	i->flags |= INODE_HELD;
	return 0;
}

int op_hold(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++)
		m->items[k].status = hold(c, m->items[k].put_id, m->node);
	return 0;
}

int op_release(struct core *c, struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++) {
		uint32_t h = find(c, m->items[k].put_id, m->node);

		m->items[k].status = h ? 0 : -ENOENT;
		if (h)
			release(c, h);
	}
	return 0;
}
