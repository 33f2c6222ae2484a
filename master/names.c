/* SPDX-License-Identifier: Apache-2.0 */
#include "master/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "master/inode.h"
#include "master/lease.h"
#include "master/misses.h"
#include "master/puts.h"
#include "master/space.h"
#include "master/step.h"
#include "master/version.h"
#include "master/waits.h"

#define READDIR_MAX 1024u

int name_arg(const struct core *c, uint64_t dir, const char name[MSG_NAME_MAX + 1], struct name_arg *ret)
{
	int r = name_check(name, &ret->len);

	if (!r)
		r = inode_find_dir(c, dir, &ret->dir);
	if (r < 0)
		return r;
	memcpy(ret->name, name, ret->len + 1);
	ret->hash = name_hash(c, ret->dir, ret->name, ret->len);
	return 0;
}

static uint32_t find_arg(struct core *c, const struct name_arg *n)
{
	return version_find(c, n->dir, n->name, n->len, n->hash);
}

void answer_entry(const struct core *c, struct msg *m, uint32_t h, uint64_t lease)
{
	memset(&m->u.entry, 0, sizeof(m->u.entry));
	inode_attr(c, inode_get(c, h), &m->u.entry.a);
	m->u.entry.lease = lease;
}

int op_lookup(struct core *c, struct msg *m)
{
	struct name_arg n;
	uint32_t h;
	int r = name_arg(c, m->u.name.dir, m->u.name.name, &n);

	if (r < 0) {
		/* With -ENOENT, here the directory's, the answer says why: nothing of the question may be left there. */
		memset(&m->u.entry, 0, sizeof(m->u.entry));
		return r;
	}
	h = find_arg(c, &n);
	if (!h) {
		memset(&m->u.entry, 0, sizeof(m->u.entry));
		m->u.entry.miss = miss_get(c, n.hash);
		return -ENOENT;
	}
	answer_entry(c, m, h, lease_grant(c, inode_get(c, h), m->node));
	return 0;
}

static void fill_dirent(const struct core *c, const struct inode *i, struct msg_dirent *e)
{
	e->cookie = i->cookie;
	inode_attr(c, i, &e->attr);
	memcpy(e->name, i->name, i->name_len);
	e->name[i->name_len] = '\0';
}

int op_readdir(struct core *c, struct msg *m)
{
	uint32_t h, k, max = m->u.readdir.max < READDIR_MAX ? m->u.readdir.max : READDIR_MAX;
	const struct dir *d;
	int r = inode_find_dir(c, m->u.readdir.dir, &h);

	if (r < 0)
		return r;
	if (!max)
		return -EINVAL;
	d = inode_get(c, h)->dir;
	if (max > d->live)
		max = d->live;
	free(m->ents);
	m->n_ents = 0;
	m->ents = malloc((max ? max : 1) * sizeof(*m->ents));
	if (!m->ents)
		return -ENOMEM;
	m->u.readdir.next_cookie = m->u.readdir.cookie;
	for (k = dir_seek(d, m->u.readdir.cookie); k < d->n && m->n_ents < max; k++) {
		const struct inode *i = inode_get(c, d->slots[k].inode);

		if (!d->slots[k].inode || version_expired(c, i))
			continue;
		fill_dirent(c, i, &m->ents[m->n_ents++]);
		m->u.readdir.next_cookie = i->cookie;
	}
	while (k < d->n && !d->slots[k].inode)
		k++;
	m->u.readdir.end = k == d->n;
	return 0;
}

int dir_make(struct core *c, const struct name_arg *n, const struct dir_want *want, uint32_t *ret)
{
	struct inode *i;
	char *copy;
	uint32_t h;

	if (inodes_full(c))
		return -ENOSPC;
	if (name_room(c, n->dir, n->name, n->len, &copy) < 0)
		return -ENOMEM;
	i = inode_new(c, step_id(c), MSG_KIND_DIR, &h);
	if (!i) {
		free(copy);
		return -ENOMEM;
	}
	i->mode = (uint16_t)(S_IFDIR | (want->mode & 07777));
	i->uid = want->uid;
	i->gid = want->gid;
	i->ns = inode_get(c, n->dir)->ns;
	i->mtime_ns = i->ctime_ns = i->atime_ns = c->real_ns;
	name_link(c, h, n->dir, copy, n->len, n->hash, i->id);
	dir_touch(c, n->dir);
	miss_set(c, n->hash, MSG_MISS_NEVER);
	*ret = h;
	return 0;
}

void dir_end(struct core *c, uint32_t h, uint32_t asker)
{
	struct inode *i = inode_get(c, h);
	struct write_rec rec = {.type = WRITE_NAMESPACE_GONE};
	uint32_t parent = i->parent;

	if (i->dir->space) {
		rec.u.key.id = i->dir->space->number;
		step_write(c, &rec);
		space_free(c, i->dir->space);
	}
	step_write_gone(c, i);
	lease_revoke(c, i, asker, MSG_REVOKE_MOVED);
	name_unlink(c, h);
	inode_free(c, h);
	dir_touch(c, parent);
}

static bool name_is_reserved(const struct core *c, const struct name_arg *n)
{
	return (n->dir == c->root && !strcmp(n->name, RESERVED_NAME)) || ticket_reserving(c, n);
}

int op_mkdir(struct core *c, struct msg *m)
{
	const struct msg_namespace defaults = {0};
	const struct dir_want want = {m->u.name.attr.mode, m->u.name.attr.uid, m->u.name.attr.gid};
	struct name_arg n;
	bool outside;
	uint32_t h;
	int r = name_arg(c, m->u.name.dir, m->u.name.name, &n);

	if (r < 0)
		return r;
	if (find_arg(c, &n) || name_is_reserved(c, &n))
		return -EEXIST;
	outside = !inode_get(c, n.dir)->ns;
	if (outside && !c->cfg.auto_namespace)
		return -EPERM;
	r = step_room(c, 2, n.len + MSG_NS_NAME_MAX);
	if (!r)
		r = dir_make(c, &n, &want, &h);
	if (r < 0)
		return r;
	r = outside ? space_make(c, h, &defaults) : 0;
	if (r < 0) {
		name_unlink(c, h);
		inode_free(c, h);
		return r;
	}
	step_write_inode(c, inode_get(c, h));
	c->answer_after_commit = true;
	answer_entry(c, m, h, lease_grant(c, inode_get(c, h), m->node));
	return 0;
}

int op_rmdir(struct core *c, struct msg *m)
{
	struct name_arg n;
	uint32_t h;
	int r = name_arg(c, m->u.name.dir, m->u.name.name, &n);

	if (r < 0)
		return r;
	h = find_arg(c, &n);
	if (!h)
		return -ENOENT;
	if (inode_get(c, h)->kind != MSG_KIND_DIR)
		return -ENOTDIR;
	/* What has expired keeps no directory, however much it is. */
	while (versions_expire(c) == 0)
		;
	if (inode_get(c, h)->dir->live)
		return -ENOTEMPTY;
	r = step_room(c, 2, 0);
	if (r < 0)
		return r;
	answer_entry(c, m, h, 0);
	dir_end(c, h, m->node);
	m->u.entry.lease = ++c->lease_seq;
	c->answer_after_commit = true;
	wait_for_name(c, n.hash);
	return 0;
}

int op_delete(struct core *c, struct msg *m)
{
	const struct version_end end = {.asker = m->node, .reason = MSG_REVOKE_MOVED, .say = true};
	struct name_arg n;
	uint64_t id;
	uint32_t h;
	int r = name_arg(c, m->u.name.dir, m->u.name.name, &n);

	if (r < 0)
		return r;
	h = find_arg(c, &n);
	if (!h)
		return -ENOENT;
	if (inode_get(c, h)->kind == MSG_KIND_DIR)
		return -EISDIR;
	r = step_room(c, 1, 0);
	if (r < 0)
		return r;
	id = inode_get(c, h)->id;
	answer_entry(c, m, h, 0);
	m->u.entry.replaced_id = id;
	version_end(c, h, &end);
	m->u.entry.lease = ++c->lease_seq;
	c->answer_after_commit = true;
	wait_for_name(c, n.hash);
	return 0;
}
