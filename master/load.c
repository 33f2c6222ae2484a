/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state from the catalogue's records, and to them. Nothing in a file is trusted: directories that hang nowhere or
 * in a circle, objects outside namespaces and names that come twice are dropped, and the namespace of everything
 * follows from where it hangs.
 */
#include "master/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "master/attrs.h"
#include "master/heap.h"
#include "master/inode.h"
#include "master/lease.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/resume.h"
#include "master/route.h"
#include "master/space.h"
#include "master/state.h"
#include "master/step.h"

/* While loading, an inode with this flag does not hang below the root (yet). */
#define UNATTACHED INODE_ORPHAN

static int remember_name(struct core *c, uint32_t h, const struct write_rec *rec)
{
	struct load_name *ln;

	if (c->n_loading == c->cap_loading) {
		size_t cap = c->cap_loading ? c->cap_loading * 2 : 256;

		ln = realloc(c->loading, cap * sizeof(*ln));
		if (!ln)
			return -ENOMEM;
		c->loading = ln;
		c->cap_loading = cap;
	}
	ln = &c->loading[c->n_loading];
	*ln = (struct load_name){
	    .parent = rec->u.inode.parent, .cookie = rec->u.inode.cookie, .inode = h, .len = rec->len};
	ln->name = malloc(rec->len);
	if (!ln->name)
		return -ENOMEM;
	memcpy(ln->name, rec->data, rec->len);
	c->n_loading++;
	return 0;
}

static bool name_is_sane(const struct write_rec *rec)
{
	char name[MSG_NAME_MAX + 1];
	size_t len;

	if (!rec->len || rec->len > MSG_NAME_MAX || memchr(rec->data, '\0', rec->len))
		return false;
	memcpy(name, rec->data, rec->len);
	name[rec->len] = '\0';
	return !name_check(name, &len);
}

static void load_attrs(struct inode *i, const struct write_inode *w, uint32_t type)
{
	i->mode = (uint16_t)(type | (w->mode & 07777));
	i->uid = w->uid;
	i->gid = w->gid;
	i->mtime_ns = w->mtime_ns;
	i->ctime_ns = w->ctime_ns;
	i->atime_ns = w->atime_ns;
}

static int load_inode(struct core *c, const struct write_rec *rec, enum msg_kind kind, uint32_t *ret)
{
	const struct write_inode *w = &rec->u.inode;
	struct inode *i;

	if (!name_is_sane(rec) || w->id <= MSG_ROOT_DIR || w->id >= c->next_id || w->cookie >= c->next_id ||
	    inode_find(c, w->id))
		return -EBADMSG;
	i = inode_new(c, w->id, kind, ret);
	if (!i)
		return -ENOMEM;
	i->flags |= UNATTACHED;
	return remember_name(c, *ret, rec);
}

static int load_dir(struct core *c, const struct write_rec *rec)
{
	uint32_t h = c->root;
	int r = 0;

	if (rec->u.inode.id != MSG_ROOT_DIR)
		r = load_inode(c, rec, MSG_KIND_DIR, &h);
	if (r < 0)
		return r;
	load_attrs(inode_get(c, h), &rec->u.inode, S_IFDIR);
	return 0;
}

static int load_space(struct core *c, const struct write_rec *rec)
{
	const struct write_ns *w = &rec->u.ns;
	const struct msg_namespace attrs = {.mask = MSG_NS_BLOCK_SIZE | MSG_NS_TTL | MSG_NS_PERSIST,
					    .kind = w->kind,
					    .block_size = w->block_size,
					    .ttl_seconds = w->ttl_seconds,
					    .persist = w->persist};
	struct space *s;
	uint32_t root;

	if (space_check(&attrs) < 0 || !w->number || space_find(c, w->number) ||
	    inode_find_dir(c, w->root_dir, &root) < 0 || root == c->root || inode_get(c, root)->dir->space)
		return -EBADMSG;
	s = space_new(c, w->number, root);
	if (!s)
		return -ENOMEM;
	s->kind = w->kind;
	s->persist = w->persist;
	s->ttl_seconds = w->ttl_seconds;
	s->block_shift = shift_of(w->block_size);
	return 0;
}

/* A replica that the catalogue says an earlier incarnation had. */
static int load_replica(struct core *c, struct inode *i, const struct write_replica *w)
{
	struct member *mem;
	int r;

	if (!w->node || w->node > NODE_MAX || !w->tiers || (w->tiers & ~(TIER_MEM | TIER_SSD)) ||
	    w->block >= blocks_of(i->size, i->block_shift) || route_tiers(i, w->block, w->node))
		return -EBADMSG;
	mem = member_make(c, w->node);
	if (!mem)
		return -ENOMEM;
	mem->loaded = true;
	r = route_add(c, i, w->block, w->node, w->tiers, w->alloc, false);
	if (r < 0)
		return r;
	if (w->tiers & TIER_MEM)
		mem->used += pages_of(block_len(i->size, i->block_shift, w->block));
	return 0;
}

static int load_object(struct core *c, const struct write_rec *rec)
{
	const struct write_inode *w = &rec->u.inode;
	const struct write_replica home = {.put_id = w->id, .alloc = w->alloc, .node = w->home, .tiers = w->tiers};
	struct member *mem;
	struct inode *i;
	uint32_t h;
	int r;

	if (w->block_shift < BLOCK_SHIFT_MIN || w->block_shift > BLOCK_SHIFT_MAX || !w->home || w->home > NODE_MAX ||
	    w->expires_ns < 0 || blocks_of(w->size, w->block_shift) > MSG_MAX_ITEMS)
		return -EBADMSG;
	r = load_inode(c, rec, MSG_KIND_FILE, &h);
	if (r < 0)
		return r;
	i = inode_get(c, h);
	load_attrs(i, w, S_IFREG);
	i->flags |= w->flags & WRITE_OF_PIN ? INODE_PIN : 0;
	i->storage_id = w->storage_id;
	i->size = w->size;
	i->expires_ns = w->expires_ns;
	i->block_shift = w->block_shift;
	i->home = (uint16_t)w->home;
	/* An empty one has no replica, and goes with its home all the same. */
	mem = member_make(c, w->home);
	if (!mem)
		return -ENOMEM;
	mem->loaded = true;
	/* It stays an array, if only because it has rows of its own, which go with the flag. */
	if ((w->flags & WRITE_OF_MULTI) && route_make_array(c, i) < 0)
		return -ENOMEM;
	return w->tiers ? load_replica(c, i, &home) : 0;
}

static int load_replica_row(struct core *c, const struct write_rec *rec)
{
	uint32_t h = inode_find(c, rec->u.replica.put_id);

	if (!h || inode_get(c, h)->kind != MSG_KIND_FILE)
		return -EBADMSG;
	return load_replica(c, inode_get(c, h), &rec->u.replica);
}

static int load_xattrs(struct core *c, const struct write_rec *rec)
{
	uint32_t h = inode_find(c, rec->u.key.id);
	struct inode *i = h ? inode_get(c, h) : NULL;
	uint8_t *copy;
	int r;

	if (!i || !rec->len || xattrs_check(rec->data, rec->len) < 0)
		return -EBADMSG;
	r = xattrs_room(c, i, rec->len);
	if (r < 0)
		return r;
	copy = malloc(rec->len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, rec->data, rec->len);
	xattrs_set(c, i, copy, rec->len);
	return 0;
}

static int load_member(struct core *c, const struct write_rec *rec)
{
	struct member *mem;

	if (!rec->u.member.node || rec->u.member.node > NODE_MAX || !rec->len || rec->len > 255)
		return -EBADMSG;
	mem = member_make(c, rec->u.member.node);
	if (!mem)
		return -ENOMEM;
	free(mem->key);
	mem->key = strndup((const char *)rec->data, rec->len);
	mem->tomb_tag = rec->u.member.tomb_tag;
	lease_loaded(c, mem);
	return mem->key ? 0 : -ENOMEM;
}

int core_load(struct core *c, const struct write_rec *rec)
{
	switch (rec->type) {
	case WRITE_COUNTER:
		if (rec->u.counter < c->next_id || rec->u.counter > INT64_MAX)
			return -EBADMSG;
		c->next_id = c->id_limit = c->id_safe = rec->u.counter;
		return 0;
	case WRITE_DIR:
		return load_dir(c, rec);
	case WRITE_NAMESPACE:
		return load_space(c, rec);
	case WRITE_OBJECT:
		return load_object(c, rec);
	case WRITE_REPLICA:
		return load_replica_row(c, rec);
	case WRITE_XATTRS:
		return load_xattrs(c, rec);
	case WRITE_MEMBER:
		return load_member(c, rec);
	default:
		return -EBADMSG;
	}
}

static int by_cookie(const void *a, const void *b)
{
	const struct load_name *x = a, *y = b;

	return (x->cookie > y->cookie) - (x->cookie < y->cookie);
}

/* One pass over what hangs nowhere: true if it found a place for something. Parents usually come before children. */
static bool attach_pass(struct core *c)
{
	bool progress = false;

	for (size_t k = 0; k < c->n_loading; k++) {
		const struct load_name *ln = &c->loading[k];
		struct inode *i = inode_get(c, ln->inode);
		uint32_t parent = i->flags & UNATTACHED ? inode_find(c, ln->parent) : 0;

		if (!parent || inode_get(c, parent)->kind != MSG_KIND_DIR || (inode_get(c, parent)->flags & UNATTACHED))
			continue;
		i->flags &= (uint8_t)~UNATTACHED;
		progress = true;
	}
	return progress;
}

static uint32_t space_above(const struct core *c, uint32_t dir)
{
	for (; dir && dir != c->root; dir = inode_get(c, dir)->parent)
		if (inode_get(c, dir)->dir->space)
			return inode_get(c, dir)->dir->space->number;
	return 0;
}

static void count_object(struct core *c, const struct inode *i)
{
	struct space *s = space_find(c, i->ns);

	s->objects++;
	s->bytes += i->size;
	c->n_objects++;
	c->live_bytes += pages_of(i->size);
}

/* What could not be hung in; a directory has nothing below it then. */
static void reject(struct core *c, const struct load_name *ln)
{
	struct inode *i = inode_get(c, ln->inode);
	struct write_rec rec = {.type = WRITE_NAMESPACE_GONE};
	struct replica rep;
	uint32_t pos = 0;

	if (i->kind == MSG_KIND_DIR && i->dir->space) {
		rec.u.key.id = i->dir->space->number;
		step_write(c, &rec);
		space_free(c, i->dir->space);
	}
	while (i->kind == MSG_KIND_FILE && route_next(i, &pos, &rep))
		if (rep.tiers & TIER_MEM)
			ledger_unuse(c->members[rep.node], pages_of(block_len(i->size, i->block_shift, rep.block)));
	step_write_gone(c, i);
	inode_free(c, ln->inode);
}

static int hang_in(struct core *c, struct load_name *ln)
{
	struct inode *i = inode_get(c, ln->inode);
	uint32_t parent, hash;
	char *copy;

	if (i->flags & UNATTACHED)
		return -EBADMSG;
	parent = inode_find(c, ln->parent);
	hash = name_hash(c, parent, ln->name, ln->len);
	if (name_find(c, parent, ln->name, ln->len, hash))
		return -EEXIST;
	if (heap_room(c) < 0 || name_room(c, parent, ln->name, ln->len, &copy) < 0)
		return -ENOMEM;
	name_link(c, ln->inode, parent, copy, ln->len, hash, ln->cookie);
	return 0;
}

/* After everything hangs: the namespaces, and what may not be outside them. */
static void settle(struct core *c, const struct load_name *ln)
{
	struct inode *i = inode_get(c, ln->inode);

	i->ns = space_above(c, i->kind == MSG_KIND_DIR ? ln->inode : i->parent);
	if (i->kind == MSG_KIND_DIR)
		return;
	if (!i->ns) {
		name_unlink(c, ln->inode);
		reject(c, ln);
		return;
	}
	heap_set(c, ln->inode);
	count_object(c, i);
}

static int hang_all(struct core *c)
{
	size_t n = 0;

	if (c->n_loading)
		qsort(c->loading, c->n_loading, sizeof(*c->loading), by_cookie);
	while (attach_pass(c))
		;
	for (size_t k = 0; k < c->n_loading; k++) {
		struct load_name ln = c->loading[k];
		int r = step_room(c, 4, 0) < 0 ? -ENOMEM : hang_in(c, &ln);

		if (r == -ENOMEM)
			return r;
		free(ln.name);
		ln.name = c->loading[k].name = NULL;
		if (r == -EEXIST && inode_get(c, ln.inode)->kind == MSG_KIND_DIR)
			return -EBADMSG;
		if (r < 0)
			reject(c, &ln);
		else
			c->loading[n++] = ln;
	}
	for (size_t k = 0; k < n; k++)
		settle(c, &c->loading[k]);
	return 0;
}

int core_load_end(struct core *c, struct core_out *out)
{
	int r;

	c->out = out;
	r = hang_all(c);
	if (r < 0)
		return r;
	free(c->loading);
	c->loading = NULL;
	c->n_loading = c->cap_loading = 0;
	/* A lease's sequence must be above all of earlier runs: each run begins a block of ids later. */
	c->lease_seq = c->next_id << 20;
	r = resume_begin(c);
	if (r < 0)
		return r;
	r = step_ids_ready(c);
	return r == -EIO ? 0 : r;
}

static int dump_object(struct core *c, const struct inode *i, struct writes *ret)
{
	struct write_rec rec;
	struct replica rep;
	uint32_t pos = 0;
	int r = 0;

	while (!r && (i->flags & INODE_MULTI) && route_next(i, &pos, &rep)) {
		rec = (struct write_rec){
		    .type = WRITE_REPLICA,
		    .u.replica = {i->id, rep.alloc, rep.block, rep.node, rep.tiers},
		};
		r = writes_add(ret, &rec);
	}
	return r;
}

static int dump_inode(struct core *c, const struct inode *i, struct writes *ret)
{
	struct write_rec rec;
	char name[MSG_NS_NAME_MAX + 1];
	int r;

	inode_record(c, i, &rec);
	r = writes_add(ret, &rec);
	if (!r && (i->flags & INODE_XATTRS)) {
		xattrs_record(c, i, &rec);
		r = writes_add(ret, &rec);
	}
	if (!r && i->kind == MSG_KIND_DIR && i->dir->space) {
		space_record(c, i->dir->space, &rec, name);
		r = writes_add(ret, &rec);
	}
	return r || i->kind == MSG_KIND_DIR ? r : dump_object(c, i, ret);
}

int core_dump(struct core *c, struct writes *ret)
{
	struct write_rec rec = {.type = WRITE_COUNTER, .u.counter = c->id_limit};
	int r = writes_add(ret, &rec);

	for (uint32_t h = 1; !r && h < c->inodes.top; h++) {
		const struct inode *i = inode_get(c, h);

		if (i->kind && !(i->flags & INODE_ORPHAN))
			r = dump_inode(c, i, ret);
	}
	for (uint32_t n = 1; !r && n < c->n_members; n++)
		if (c->members[n] && c->members[n]->key) {
			member_record(c->members[n], &rec);
			r = writes_add(ret, &rec);
		}
	return r;
}
