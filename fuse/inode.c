/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/inode.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/list.h"
#include "store/put.h"

#define SHARDS 64 /* a power of two */
#define MIN_SLOTS 64

struct shard {
	pthread_mutex_t lock;
	struct inode **slots; /* lock */
	size_t n_slots, n;    /* lock */
} __attribute__((aligned(64)));

struct inode_table {
	struct shard shards[SHARDS];
	atomic_ullong count;

	pthread_mutex_t names_lock;
	struct buckets names; /* names_lock */
};

static struct shard *shard_of(struct inode_table *t, uint64_t id)
{
	return &t->shards[hash_u64(id) & (SHARDS - 1)];
}

/* The shard took the low bits of the hash. */
static size_t slot_of(const struct shard *s, uint64_t id)
{
	return (size_t)(hash_u64(id) >> 8) & (s->n_slots - 1);
}

static uint64_t name_hash(uint64_t dir, const char *name)
{
	return hash_bytes(name, strlen(name), dir);
}

struct inode_table *inode_table_new(void)
{
	struct inode_table *t = aligned_alloc(64, sizeof(*t));

	if (!t)
		return NULL;
	memset(t, 0, sizeof(*t));
	pthread_mutex_init(&t->names_lock, NULL);
	for (size_t i = 0; i < SHARDS; i++) {
		pthread_mutex_init(&t->shards[i].lock, NULL);
		t->shards[i].n_slots = MIN_SLOTS;
		t->shards[i].slots = calloc(MIN_SLOTS, sizeof(struct inode *));
		if (!t->shards[i].slots)
			goto fail;
	}
	return t;
fail:
	return inode_table_free(t);
}

static void inode_destroy(struct inode *i)
{
	if (i->i_put)
		put_unref(i->i_put);
	free(i->i_name);
	free(i);
}

struct inode_table *inode_table_free(struct inode_table *t)
{
	if (!t)
		return NULL;
	for (size_t k = 0; k < SHARDS; k++) {
		struct shard *s = &t->shards[k];

		for (size_t j = 0; s->slots && j < s->n_slots; j++)
			for (struct inode *i = s->slots[j], *next; i; i = next) {
				next = i->i_next;
				inode_destroy(i);
			}
		free(s->slots);
		if (s->n_slots)
			pthread_mutex_destroy(&s->lock);
	}
	buckets_fini(&t->names);
	pthread_mutex_destroy(&t->names_lock);
	free(t);
	return NULL;
}

/* ---- by id; call these with the shard locked ---------------------------------------------------------------- */

static struct inode *find(struct shard *s, uint64_t id)
{
	struct inode *i = s->slots[slot_of(s, id)];

	while (i && i->i_id != id)
		i = i->i_next;
	return i;
}

/* Without memory the chains get longer, no more. */
static void shard_grow(struct shard *s)
{
	struct shard bigger = {.n_slots = s->n_slots * 2};

	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return;
	for (size_t j = 0; j < s->n_slots; j++)
		for (struct inode *i = s->slots[j], *next; i; i = next) {
			size_t k = slot_of(&bigger, i->i_id);

			next = i->i_next;
			i->i_next = bigger.slots[k];
			bigger.slots[k] = i;
		}
	free(s->slots);
	s->slots = bigger.slots;
	s->n_slots = bigger.n_slots;
}

static void insert(struct shard *s, struct inode *i)
{
	size_t j;

	if (s->n >= s->n_slots)
		shard_grow(s);
	j = slot_of(s, i->i_id);
	i->i_next = s->slots[j];
	s->slots[j] = i;
	s->n++;
}

static void take_out(struct shard *s, struct inode *i)
{
	struct inode **at = &s->slots[slot_of(s, i->i_id)];

	while (*at != i)
		at = &(*at)->i_next;
	*at = i->i_next;
	s->n--;
}

/* An open moves atime here, without telling the master: its next answer must not move it back, unless it was set. */
static void set_attr(struct inode *i, const struct msg_attr *a, bool atime_set)
{
	int64_t atime = i->i_attr.atime_ns;

	i->i_attr = *a;
	if (!atime_set && i->i_attr_ns && a->kind == MSG_KIND_FILE && atime > a->atime_ns)
		i->i_attr.atime_ns = atime;
	i->i_attr_ns = clock_ns();
}

/* ---- names; call these with names_lock held ----------------------------------------------------------------- */

static struct inode *name_find(struct inode_table *t, uint64_t dir, const char *name)
{
	for (struct bucket_link *l = buckets_find(&t->names, name_hash(dir, name)); l; l = bucket_next(l)) {
		struct inode *i = container_of(l, struct inode, i_by_name);

		if (i->i_dir == dir && !strcmp(i->i_name, name))
			return i;
	}
	return NULL;
}

static void name_clear(struct inode_table *t, struct inode *i)
{
	if (i->i_named)
		buckets_remove(&t->names, &i->i_by_name);
	i->i_named = false;
}

static struct inode *name_holder(struct inode_table *t, uint64_t dir, const char *name, uint64_t id)
{
	struct inode *i = name_find(t, dir, name);

	return i && i->i_id == id ? i : NULL;
}

/* The inode loses its name by a removal on this mount. Takes NULL. */
static void name_unlink(struct inode_table *t, struct inode *i)
{
	if (!i)
		return;
	atomic_store_explicit(&i->i_unlinked, true, memory_order_relaxed);
	name_clear(t, i);
}

/* i gets the name, which nobody has. Without memory i has no name: its next open is sent back to look it up. */
static void name_give(struct inode_table *t, struct inode *i, uint64_t dir, const char *name)
{
	name_clear(t, i);
	free(i->i_name);
	i->i_name = strdup(name);
	if (!i->i_name)
		return;
	i->i_named = true;
	i->i_dir = dir;
	buckets_insert(&t->names, &i->i_by_name, name_hash(dir, name));
}

/* ---- what others call --------------------------------------------------------------------------------------- */

struct inode *inode_get(struct inode_table *t, uint64_t id)
{
	struct shard *s = shard_of(t, id);
	struct inode *i;

	pthread_mutex_lock(&s->lock);
	i = find(s, id);
	if (i)
		i->i_refs++;
	pthread_mutex_unlock(&s->lock);
	return i;
}

/* Gives back refs and lookups; the last of both frees the inode. */
static void drop(struct inode_table *t, struct shard *s, struct inode *i, unsigned refs, uint64_t lookups)
{
	bool last;

	pthread_mutex_lock(&s->lock);
	i->i_refs -= refs;
	i->i_nlookup -= lookups < i->i_nlookup ? lookups : i->i_nlookup;
	last = !i->i_refs && !i->i_nlookup;
	if (last)
		take_out(s, i);
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	/* Nobody can find it by id any more, and by name only under names_lock. */
	pthread_mutex_lock(&t->names_lock);
	name_clear(t, i);
	pthread_mutex_unlock(&t->names_lock);
	atomic_fetch_sub_explicit(&t->count, 1, memory_order_relaxed);
	inode_destroy(i);
}

struct inode *inode_unref(struct inode_table *t, struct inode *i)
{
	if (i)
		drop(t, shard_of(t, i->i_id), i, 1, 0);
	return NULL;
}

void inode_forget(struct inode_table *t, uint64_t id, uint64_t n)
{
	struct inode *i = inode_get(t, id);

	if (i)
		drop(t, shard_of(t, id), i, 1, n);
}

/* A new inode with its first lookup and one reference, or one more of both for the one that is there. */
static struct inode *know(struct inode_table *t, const struct msg_attr *a, struct put *put)
{
	struct inode *fresh = calloc(1, sizeof(*fresh)), *i;
	struct shard *s = shard_of(t, a->id);

	pthread_mutex_lock(&s->lock);
	i = find(s, a->id);
	if (!i && fresh) {
		i = fresh;
		fresh = NULL;
		i->i_id = a->id;
		i->i_put = put;
		put = NULL;
		insert(s, i);
		atomic_fetch_add_explicit(&t->count, 1, memory_order_relaxed);
	}
	if (i) {
		i->i_refs++;
		i->i_nlookup++;
		atomic_store(&i->i_gone, false);
		set_attr(i, a, false);
	}
	pthread_mutex_unlock(&s->lock);
	free(fresh);
	if (put)
		put_unref(put);
	return i;
}

struct inode *inode_know(struct inode_table *t, const struct msg_attr *a, struct put *put, uint64_t dir,
			 const char *name)
{
	struct inode *i = know(t, a, put), *had;

	if (i && name && a->kind == MSG_KIND_FILE) {
		pthread_mutex_lock(&t->names_lock);
		atomic_store_explicit(&i->i_unlinked, false, memory_order_relaxed);
		had = name_find(t, dir, name);
		if (had != i) {
			/* The name stands for another version now. */
			if (had)
				name_clear(t, had);
			name_give(t, i, dir, name);
		}
		pthread_mutex_unlock(&t->names_lock);
	}
	return i;
}

void inode_set_attr(struct inode_table *t, struct inode *i, const struct msg_attr *a, bool atime_set)
{
	struct shard *s = shard_of(t, i->i_id);

	pthread_mutex_lock(&s->lock);
	set_attr(i, a, atime_set);
	pthread_mutex_unlock(&s->lock);
}

void inode_get_attr(struct inode_table *t, struct inode *i, struct msg_attr *ret, uint64_t *ret_age_ns)
{
	struct shard *s = shard_of(t, i->i_id);

	pthread_mutex_lock(&s->lock);
	*ret = i->i_attr;
	if (ret_age_ns)
		*ret_age_ns = clock_ns() - i->i_attr_ns;
	pthread_mutex_unlock(&s->lock);
	if (atomic_load_explicit(&i->i_unlinked, memory_order_relaxed))
		ret->nlink = 0;
}

/* It may have some from now on. */
void inode_has_xattrs(struct inode_table *t, struct inode *i)
{
	struct shard *s = shard_of(t, i->i_id);

	pthread_mutex_lock(&s->lock);
	i->i_attr.has_xattrs = 1;
	pthread_mutex_unlock(&s->lock);
}

void inode_touch_atime(struct inode_table *t, struct inode *i, int64_t now_ns)
{
	struct shard *s = shard_of(t, i->i_id);

	pthread_mutex_lock(&s->lock);
	if (now_ns > i->i_attr.atime_ns)
		i->i_attr.atime_ns = now_ns;
	pthread_mutex_unlock(&s->lock);
}

uint64_t inode_of_name(struct inode_table *t, uint64_t dir, const char *name)
{
	struct inode *i;
	uint64_t id;

	pthread_mutex_lock(&t->names_lock);
	i = name_find(t, dir, name);
	id = i ? i->i_id : 0;
	pthread_mutex_unlock(&t->names_lock);
	return id;
}

void inode_name_moved(struct inode_table *t, const struct inode_name *from, const struct inode_name *to)
{
	struct inode *i, *old;

	pthread_mutex_lock(&t->names_lock);
	i = name_holder(t, from->dir, from->name, from->id);
	old = name_holder(t, to->dir, to->name, to->id);
	if (old != i)
		name_unlink(t, old);
	/* One that has got the name since the rename is what it stands for. */
	old = name_find(t, to->dir, to->name);
	if (i && old && old != i)
		name_clear(t, i);
	else if (i)
		name_give(t, i, to->dir, to->name);
	pthread_mutex_unlock(&t->names_lock);
}

void inode_name_removed(struct inode_table *t, const struct inode_name *n)
{
	pthread_mutex_lock(&t->names_lock);
	name_unlink(t, name_holder(t, n->dir, n->name, n->id));
	pthread_mutex_unlock(&t->names_lock);
}

static int copy_name(struct inode_table *t, struct inode *i, bool lost_too, uint64_t *ret_dir, char *ret_name)
{
	int r = -ENOENT;

	pthread_mutex_lock(&t->names_lock);
	if (i->i_named || (lost_too && i->i_name)) {
		*ret_dir = i->i_dir;
		strcpy(ret_name, i->i_name);
		r = 0;
	}
	pthread_mutex_unlock(&t->names_lock);
	return r;
}

int inode_get_name(struct inode_table *t, struct inode *i, uint64_t *ret_dir, char *ret_name)
{
	return copy_name(t, i, false, ret_dir, ret_name);
}

int inode_get_last_name(struct inode_table *t, struct inode *i, uint64_t *ret_dir, char *ret_name)
{
	return copy_name(t, i, true, ret_dir, ret_name);
}

uint64_t inode_count(const struct inode_table *t)
{
	return atomic_load_explicit(&t->count, memory_order_relaxed);
}
