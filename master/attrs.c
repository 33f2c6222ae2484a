/* SPDX-License-Identifier: Apache-2.0 */
#include "master/attrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/heap.h"
#include "master/inode.h"
#include "master/lease.h"
#include "master/names.h"
#include "master/step.h"
#include "net/xattr.h"

#define MODE_BITS 07777u

static struct xattrs *xattrs_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->xattrs, h);
}

static uint32_t xattrs_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(xattrs_get(arg, h)->id);
}

static uint32_t *xattrs_link(const void *arg, uint32_t h)
{
	return &xattrs_get(arg, h)->next;
}

static const struct table_ops xattrs_ops = {.hash = xattrs_hash, .link = xattrs_link};

int xattrs_init(struct core *c)
{
	pool_init(&c->xattrs, sizeof(struct xattrs), 10);
	table_init(&c->xattrs_by_id, &xattrs_ops, c);
	return 0;
}

void xattrs_fini(struct core *c)
{
	for (uint32_t h = 1; h < c->xattrs.top; h++)
		free(xattrs_get(c, h)->blob);
	table_fini(&c->xattrs_by_id);
	pool_fini(&c->xattrs);
}

static uint32_t xattrs_find(const struct core *c, const struct inode *i)
{
	uint32_t h;

	if (!(i->flags & INODE_XATTRS))
		return 0;
	h = table_head(&c->xattrs_by_id, (uint32_t)hash_u64(i->id));
	while (h && xattrs_get(c, h)->id != i->id)
		h = xattrs_get(c, h)->next;
	return h;
}

int xattrs_check(const uint8_t *blob, size_t len)
{
	const uint8_t *value;
	const char *name;
	size_t pos = 0, name_len, value_len;
	int r;

	if (len > MSG_XATTRS_MAX)
		return -ENOSPC;
	do
		r = xattr_next(blob, len, &pos, &name, &name_len, &value, &value_len);
	while (r > 0);
	return r < 0 ? -EINVAL : 0;
}

int xattrs_room(struct core *c, const struct inode *i, size_t len)
{
	uint32_t h = i ? xattrs_find(c, i) : 0;
	uint64_t had = h ? xattrs_get(c, h)->len : 0;

	if (c->xattr_bytes - had + len > c->cfg.max_xattr_bytes)
		return -ENOSPC;
	if (h || !len)
		return 0;
	/* An element is given back at once: the next pool_alloc() takes it without needing memory. */
	h = pool_alloc(&c->xattrs);
	if (!h)
		return -ENOMEM;
	pool_free(&c->xattrs, h);
	return table_room(&c->xattrs_by_id);
}

void xattrs_remove(struct core *c, struct inode *i)
{
	uint32_t h = xattrs_find(c, i);

	if (!h)
		return;
	c->xattr_bytes -= xattrs_get(c, h)->len;
	free(xattrs_get(c, h)->blob);
	table_remove(&c->xattrs_by_id, h);
	pool_free(&c->xattrs, h);
	i->flags &= (uint8_t)~INODE_XATTRS;
}

void xattrs_set(struct core *c, struct inode *i, uint8_t *blob, size_t len)
{
	struct xattrs *x;
	uint32_t h;

	xattrs_remove(c, i);
	if (!len) {
		free(blob);
		return;
	}
	h = pool_alloc(&c->xattrs);
	x = xattrs_get(c, h);
	x->id = i->id;
	x->blob = blob;
	x->len = (uint32_t)len;
	table_insert(&c->xattrs_by_id, h);
	c->xattr_bytes += len;
	i->flags |= INODE_XATTRS;
}

void xattrs_record(const struct core *c, const struct inode *i, struct write_rec *rec)
{
	uint32_t h = xattrs_find(c, i);

	*rec = (struct write_rec){.type = WRITE_XATTRS, .u.key = {i->id, inode_write_flags(i)}};
	if (!h)
		return;
	rec->data = xattrs_get(c, h)->blob;
	rec->len = xattrs_get(c, h)->len;
}

int op_getattr(struct core *c, struct msg *m)
{
	uint32_t h = inode_find(c, m->u.attr.a.id);

	if (!h)
		return -ENOENT;
	answer_entry(c, m, h, 0);
	return 0;
}

static int setattr_check(const struct inode *i, const struct msg *m)
{
	if (i->kind == MSG_KIND_DIR && (m->u.attr.mask & (MSG_SET_PIN | MSG_SET_TTL)))
		return -EOPNOTSUPP;
	if ((m->u.attr.mask & MSG_SET_TTL) && m->u.attr.a.expires_ns < 0)
		return -EINVAL;
	return 0;
}

static void setattr_apply(struct core *c, struct inode *i, const struct msg_attr *a, uint32_t mask)
{
	if (mask & MSG_SET_MODE)
		i->mode = (uint16_t)((i->mode & ~MODE_BITS) | (a->mode & MODE_BITS));
	if (mask & MSG_SET_UID)
		i->uid = a->uid;
	if (mask & MSG_SET_GID)
		i->gid = a->gid;
	if (mask & MSG_SET_MTIME)
		i->mtime_ns = a->mtime_ns;
	if (mask & MSG_SET_ATIME)
		i->atime_ns = a->atime_ns;
	if (mask & MSG_SET_PIN)
		i->flags = (uint8_t)((i->flags & ~INODE_PIN) | (a->flags & MSG_ATTR_PIN ? INODE_PIN : 0));
	if (mask & MSG_SET_TTL)
		i->expires_ns = a->expires_ns;
	i->ctime_ns = c->real_ns;
}

int op_setattr(struct core *c, struct msg *m)
{
	const struct msg_attr a = m->u.attr.a;
	uint32_t mask = m->u.attr.mask, h = inode_find(c, a.id);
	struct inode *i;
	int r;

	if (!h)
		return -ENOENT;
	i = inode_get(c, h);
	r = setattr_check(i, m);
	if (r < 0)
		return r;
	if (step_room(c, 1, i->name_len) < 0 || heap_room(c) < 0)
		return -ENOMEM;
	setattr_apply(c, i, &a, mask);
	if (!(i->flags & INODE_ORPHAN)) {
		if (mask & MSG_SET_TTL)
			heap_set(c, h);
		if (h != c->root)
			lease_revoke(c, i, m->node, MSG_REVOKE_MOVED);
		step_write_inode(c, i);
	}
	answer_entry(c, m, h, 0);
	return 0;
}

int op_getxattrs(struct core *c, struct msg *m)
{
	uint32_t h = inode_find(c, m->u.attr.a.id), x;
	uint8_t *copy;

	if (!h)
		return -ENOENT;
	x = xattrs_find(c, inode_get(c, h));
	free(m->blob);
	m->blob = NULL;
	m->blob_len = 0;
	if (!x)
		return 0;
	copy = malloc(xattrs_get(c, x)->len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, xattrs_get(c, x)->blob, xattrs_get(c, x)->len);
	m->blob = copy;
	m->blob_len = xattrs_get(c, x)->len;
	return 0;
}

int op_setxattrs(struct core *c, struct msg *m)
{
	uint32_t h = inode_find(c, m->u.attr.a.id);
	struct write_rec rec;
	struct inode *i;
	int r;

	if (!h)
		return -ENOENT;
	i = inode_get(c, h);
	r = xattrs_check(m->blob, m->blob_len);
	if (!r)
		r = xattrs_room(c, i, m->blob_len);
	if (!r)
		r = step_room(c, 2, i->name_len + m->blob_len);
	if (r < 0)
		return r;
	xattrs_set(c, i, m->blob, m->blob_len);
	m->blob = NULL;
	m->blob_len = 0;
	i->ctime_ns = c->real_ns;
	if (i->flags & INODE_ORPHAN)
		return 0;
	if (h != c->root)
		lease_revoke(c, i, m->node, MSG_REVOKE_MOVED);
	step_write_inode(c, i);
	xattrs_record(c, i, &rec);
	step_write(c, &rec);
	return 0;
}
