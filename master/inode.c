/* SPDX-License-Identifier: Apache-2.0 */
#include "master/inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/hash.h"
#include "master/attrs.h"
#include "master/heap.h"
#include "master/holds.h"
#include "master/space.h"

static uint32_t id_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(inode_get(arg, h)->id);
}

static uint32_t *id_link(const void *arg, uint32_t h)
{
	return &inode_get(arg, h)->id_next;
}

static uint32_t by_name_hash(const void *arg, uint32_t h)
{
	return inode_get(arg, h)->name_hash;
}

static uint32_t *by_name_link(const void *arg, uint32_t h)
{
	return &inode_get(arg, h)->name_next;
}

static const struct table_ops id_ops = {.hash = id_hash, .link = id_link};
static const struct table_ops name_ops = {.hash = by_name_hash, .link = by_name_link};

int inodes_init(struct core *c)
{
	_Static_assert(sizeof(struct inode) == 128, "an object's memory is a promise");

	pool_init(&c->inodes, sizeof(struct inode), 14);
	table_init(&c->by_id, &id_ops, c);
	table_init(&c->by_name, &name_ops, c);
	list_init(&c->dirty);
	return inode_new(c, MSG_ROOT_DIR, MSG_KIND_DIR, &c->root) ? 0 : -ENOMEM;
}

void inodes_fini(struct core *c)
{
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		struct inode *i = inode_get(c, h);

		if (i->kind == MSG_KIND_DIR) {
			free(i->dir->slots);
			free(i->dir);
		}
		if (i->kind == MSG_KIND_FILE && (i->flags & INODE_MULTI))
			free(i->route);
		if (i->kind)
			free(i->name);
	}
	table_fini(&c->by_id);
	table_fini(&c->by_name);
	pool_fini(&c->inodes);
}

bool inodes_full(const struct core *c)
{
	return c->inodes.used >= c->cfg.max_inodes;
}

static struct dir *dir_new(uint32_t self)
{
	struct dir *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->self = self;
	list_init(&d->dirty);
	return d;
}

struct inode *inode_new(struct core *c, uint64_t id, enum msg_kind kind, uint32_t *ret_handle)
{
	struct inode *i;
	uint32_t h;

	if (inodes_full(c) || table_room(&c->by_id) < 0)
		return NULL;
	h = pool_alloc(&c->inodes);
	if (!h)
		return NULL;
	i = inode_get(c, h);
	i->id = id;
	if (kind == MSG_KIND_DIR) {
		i->dir = dir_new(h);
		if (!i->dir) {
			pool_free(&c->inodes, h);
			return NULL;
		}
		c->n_dirs++;
	}
	i->kind = (uint8_t)kind;
	table_insert(&c->by_id, h);
	*ret_handle = h;
	return i;
}

void inode_free(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);

	if (i->flags & INODE_XATTRS)
		xattrs_remove(c, i);
	if (i->flags & INODE_HELD)
		holds_end(c, i);
	if (i->kind == MSG_KIND_DIR) {
		list_del(&i->dir->dirty);
		c->slot_bytes -= (uint64_t)i->dir->cap * sizeof(struct slot);
		free(i->dir->slots);
		free(i->dir);
		c->n_dirs--;
	} else {
		heap_remove(c, h);
		if (i->flags & INODE_MULTI) {
			c->route_bytes -= sizeof(struct route) + i->route->cap * sizeof(struct replica);
			free(i->route);
		}
	}
	table_remove(&c->by_id, h);
	pool_free(&c->inodes, h);
}

uint32_t inode_find(const struct core *c, uint64_t id)
{
	uint32_t h = table_head(&c->by_id, (uint32_t)hash_u64(id));

	while (h && inode_get(c, h)->id != id)
		h = inode_get(c, h)->id_next;
	return h;
}

int inode_find_dir(const struct core *c, uint64_t id, uint32_t *ret)
{
	uint32_t h = inode_find(c, id);

	if (!h)
		return -ENOENT;
	if (inode_get(c, h)->kind != MSG_KIND_DIR)
		return -ENOTDIR;
	*ret = h;
	return 0;
}

int name_check(const char name[MSG_NAME_MAX + 1], size_t *ret_len)
{
	size_t len = strnlen(name, MSG_NAME_MAX + 1);

	if (len > MSG_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || memchr(name, '/', len) || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	*ret_len = len;
	return 0;
}

uint32_t name_hash(const struct core *c, uint32_t dir, const char *name, size_t len)
{
	uint64_t x = hash_bytes(name, len, c->cfg.hash_seed ^ hash_u64(inode_get(c, dir)->id));

	return (uint32_t)(x ^ x >> 32);
}

uint32_t name_find(const struct core *c, uint32_t dir, const char *name, size_t len, uint32_t hash)
{
	uint32_t h = table_head(&c->by_name, hash);

	while (h) {
		const struct inode *i = inode_get(c, h);

		if (i->name_hash == hash && i->parent == dir && i->name_len == len && !memcmp(i->name, name, len))
			return h;
		h = i->name_next;
	}
	return 0;
}

static int slot_room(struct core *c, struct dir *d)
{
	struct slot *slots;
	uint32_t cap;

	if (d->n < d->cap)
		return 0;
	if (d->cap > UINT32_MAX / 2)
		return -ENOMEM;
	/* Pages of a big array that are not used yet cost nothing, and realloc() moves it by remapping. */
	cap = d->cap < 8 ? 8 : d->cap + d->cap / 2;
	slots = realloc(d->slots, cap * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	c->slot_bytes += (uint64_t)(cap - d->cap) * sizeof(*slots);
	d->slots = slots;
	d->cap = cap;
	return 0;
}

int name_room(struct core *c, uint32_t dir, const char *name, size_t len, char **ret_copy)
{
	char *copy;

	if (slot_room(c, inode_get(c, dir)->dir) < 0 || table_room(&c->by_name) < 0)
		return -ENOMEM;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	*ret_copy = copy;
	return 0;
}

void name_link(struct core *c, uint32_t h, uint32_t dir, char *copy, size_t len, uint32_t hash, uint64_t cookie)
{
	struct inode *i = inode_get(c, h);
	struct dir *d = inode_get(c, dir)->dir;

	i->name = copy;
	i->name_len = (uint8_t)len;
	i->name_hash = hash;
	i->parent = dir;
	i->cookie = cookie;
	table_insert(&c->by_name, h);
	d->slots[d->n++] =
	    (struct slot){.cookie_lo = (uint32_t)cookie, .cookie_hi = (uint32_t)(cookie >> 32), .inode = h};
	d->live++;
	if (i->kind == MSG_KIND_DIR)
		d->subdirs++;
	c->name_bytes += len;
}

uint32_t dir_seek(const struct dir *d, uint64_t cookie)
{
	uint32_t lo = 0, hi = d->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (slot_cookie(&d->slots[mid]) > cookie)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* Takes the dead slots out; cookies keep their meaning, for they are looked up by value. */
static void compact(struct core *c, struct dir *d)
{
	uint32_t n = 0, cap;
	struct slot *slots;

	for (uint32_t k = 0; k < d->n; k++)
		if (d->slots[k].inode)
			d->slots[n++] = d->slots[k];
	d->n = n;
	cap = n + n / 2 + 8;
	if (cap >= d->cap / 2)
		return;
	slots = realloc(d->slots, cap * sizeof(*slots));
	if (!slots)
		return;
	c->slot_bytes -= (uint64_t)(d->cap - cap) * sizeof(*slots);
	d->slots = slots;
	d->cap = cap;
}

/* The name's slot: cookies are unique, and a dead slot keeps its own. */
static struct slot *slot_of(struct dir *d, uint64_t cookie)
{
	return &d->slots[dir_seek(d, cookie - 1)];
}

void name_unlink(struct core *c, uint32_t h)
{
	struct inode *i = inode_get(c, h);
	struct dir *d = inode_get(c, i->parent)->dir;

	table_remove(&c->by_name, h);
	slot_of(d, i->cookie)->inode = 0;
	d->live--;
	if (i->kind == MSG_KIND_DIR)
		d->subdirs--;
	/* Half of it dead: what this costs was paid for by as many removals. */
	if (d->n > 32 && d->n - d->live > d->live)
		compact(c, d);
	c->name_bytes -= i->name_len;
	free(i->name);
	i->name = NULL;
	i->name_len = 0;
	i->parent = 0;
	i->cookie = 0;
}

void name_move(struct core *c, uint32_t from, uint32_t to)
{
	struct inode *f = inode_get(c, from), *t = inode_get(c, to);
	struct dir *d = inode_get(c, f->parent)->dir;

	table_remove(&c->by_name, from);
	t->name = f->name;
	t->name_len = f->name_len;
	t->name_hash = f->name_hash;
	t->parent = f->parent;
	t->cookie = f->cookie;
	t->lease = f->lease;
	table_insert(&c->by_name, to); /* as many as before: needs no room */
	slot_of(d, t->cookie)->inode = to;
	if (f->kind == MSG_KIND_DIR)
		d->subdirs--;
	if (t->kind == MSG_KIND_DIR)
		d->subdirs++;
	f->name = NULL;
	f->name_len = 0;
	f->parent = 0;
	f->cookie = 0;
}

void dir_sweep(struct core *c, struct dir *d)
{
	uint32_t live = 0;

	for (uint32_t k = 0; k < d->n; k++) {
		if (d->slots[k].inode && !inode_get(c, d->slots[k].inode)->kind)
			d->slots[k].inode = 0;
		live += d->slots[k].inode != 0;
	}
	d->live = live;
	compact(c, d);
}

void dir_touch(struct core *c, uint32_t dir)
{
	struct inode *i = inode_get(c, dir);

	i->mtime_ns = i->ctime_ns = c->real_ns;
	if (list_empty(&i->dir->dirty))
		list_add_tail(&i->dir->dirty, &c->dirty);
}

void inode_attr(const struct core *c, const struct inode *i, struct msg_attr *ret)
{
	/* None for a version whose namespace was removed while somebody still holds it. */
	const struct space *s = space_find(c, i->ns);

	*ret = (struct msg_attr){
	    .id = i->id,
	    .mtime_ns = i->mtime_ns,
	    .ctime_ns = i->ctime_ns,
	    .atime_ns = i->atime_ns,
	    .kind = i->kind,
	    .mode = i->mode,
	    .uid = i->uid,
	    .gid = i->gid,
	    .ns = i->ns,
	    .has_xattrs = (i->flags & INODE_XATTRS) != 0,
	};
	if (i->kind == MSG_KIND_DIR) {
		ret->nlink = 2 + i->dir->subdirs;
		ret->block_size = s ? 1ull << s->block_shift : 0;
		return;
	}
	ret->nlink = !(i->flags & INODE_ORPHAN);
	ret->size = i->size;
	ret->storage_id = i->storage_id;
	ret->expires_ns = i->expires_ns;
	ret->flags = i->flags & INODE_PIN ? MSG_ATTR_PIN : 0;
	ret->block_size = 1ull << i->block_shift;
}

uint8_t inode_write_flags(const struct inode *i)
{
	return (uint8_t)((i->kind == MSG_KIND_DIR ? WRITE_OF_DIR : 0) | (i->flags & INODE_MULTI ? WRITE_OF_MULTI : 0) |
			 (i->flags & INODE_PIN ? WRITE_OF_PIN : 0) | (i->flags & INODE_XATTRS ? WRITE_OF_XATTRS : 0));
}

void inode_record(const struct core *c, const struct inode *i, struct write_rec *rec)
{
	struct write_inode *w = &rec->u.inode;

	memset(rec, 0, sizeof(*rec));
	rec->type = i->kind == MSG_KIND_DIR ? WRITE_DIR : WRITE_OBJECT;
	rec->data = (const uint8_t *)i->name;
	rec->len = i->name_len;
	w->id = i->id;
	w->parent = i->parent ? inode_get(c, i->parent)->id : 0;
	w->cookie = i->cookie;
	w->mtime_ns = i->mtime_ns;
	w->ctime_ns = i->ctime_ns;
	w->atime_ns = i->atime_ns;
	w->ns = i->ns;
	w->mode = i->mode;
	w->uid = i->uid;
	w->gid = i->gid;
	w->flags = inode_write_flags(i);
	if (i->kind == MSG_KIND_DIR)
		return;
	w->storage_id = i->storage_id;
	w->size = i->size;
	w->expires_ns = i->expires_ns;
	w->block_shift = i->block_shift;
	w->home = i->home;
	if (!(i->flags & INODE_MULTI)) {
		w->alloc = i->alloc;
		w->tiers = i->tiers;
	}
}

uint64_t inodes_memory(const struct core *c)
{
	return pool_memory(&c->inodes) + table_memory(&c->by_id) + table_memory(&c->by_name) + c->slot_bytes +
	       (uint64_t)c->heap_cap * sizeof(*c->heap);
}
