/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that this node knows under a lease of the master's, and what they stand for: a look-up of one of them sends
 * no message.
 *
 * A name is of use only while the bytes it stands for are here, so there are never more useful ones than blocks in the
 * index, and as many are kept: nothing that is here costs a message for want of room. Names whose bytes are elsewhere
 * take that room too; what is too much goes in no order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/impl.h"

/* One name; all of it is names.lock's. A version has one at most. */
struct leased {
	struct bucket_link by_name, by_id;
	uint64_t dir, lease;
	struct msg_attr attr;
	char name[];
};

void names_init(struct node *n, uint64_t min_names)
{
	pthread_mutex_init(&n->names.lock, NULL);
	n->names.min = min_names;
}

/* ---- with names.lock held ----------------------------------------------------------------------------------- */

static void take_out(struct node *n, struct leased *e)
{
	if (!e)
		return;
	buckets_remove(&n->names.by_name, &e->by_name);
	buckets_remove(&n->names.by_id, &e->by_id);
	free(e);
}

static struct leased *find(struct node *n, uint64_t dir, const char *name, uint64_t hash)
{
	for (struct bucket_link *l = buckets_find(&n->names.by_name, hash); l; l = bucket_next(l)) {
		struct leased *e = container_of(l, struct leased, by_name);

		if (e->dir == dir && !strcmp(e->name, name))
			return e;
	}
	return NULL;
}

/* Two ids have two hashes. */
static struct leased *find_id(struct node *n, uint64_t id)
{
	struct bucket_link *l = buckets_find(&n->names.by_id, hash_u64(id));

	return l ? container_of(l, struct leased, by_id) : NULL;
}

static struct leased *any(struct node *n)
{
	struct bucket_link *l = buckets_any(&n->names.by_name, &n->names.hand);

	return l ? container_of(l, struct leased, by_name) : NULL;
}

/* What came late is refused by this; with it, rarely, what another name of the hash is newer than. */
static uint64_t *newest(struct node *n, uint64_t hash)
{
	return &n->names.newest[hash & (NAME_LEASES - 1)];
}

/* Takes out what e, which has this hash, is newer than. False: something newer than e is known. */
static bool replaces(struct node *n, const struct leased *e, uint64_t hash)
{
	struct leased *old = find(n, e->dir, e->name, hash);

	if (old && old->lease <= e->lease)
		take_out(n, old);
	old = find_id(n, e->attr.id);
	if (old && old->lease <= e->lease)
		take_out(n, old);
	return *newest(n, hash) <= e->lease && !find_id(n, e->attr.id);
}

static void limit(struct node *n)
{
	uint64_t blocks = count_get(n, blocks), most = blocks > n->names.min ? blocks : n->names.min;

	/* More than comes in with each new name, if need be: blocks go, too. */
	for (unsigned i = 0; i < 2 && n->names.by_name.n > most; i++)
		take_out(n, any(n));
}

/* ---- what others call --------------------------------------------------------------------------------------- */

void names_fini(struct node *n)
{
	for (struct leased *e; (e = any(n));)
		take_out(n, e);
	buckets_fini(&n->names.by_name);
	buckets_fini(&n->names.by_id);
	pthread_mutex_destroy(&n->names.lock);
}

static struct leased *leased_new(uint64_t dir, const char *name, const struct msg_attr *a, uint64_t lease)
{
	size_t size = strlen(name) + 1;
	struct leased *e = malloc(sizeof(*e) + size);

	if (!e)
		return NULL;
	e->dir = dir;
	e->lease = lease;
	e->attr = *a;
	memcpy(e->name, name, size);
	return e;
}

void names_insert(struct node *n, uint64_t dir, const char *name, const struct msg_attr *a, uint64_t lease,
		  uint64_t tomb_tag)
{
	uint64_t hash = node_name_hash(dir, name);
	struct leased *e = NULL;

	/* Directories change with what is in them, and an empty file has no block that would tell its end. */
	if (a->kind == MSG_KIND_FILE && a->size)
		e = leased_new(dir, name, a, lease);
	if (!e) {
		/* What the name stood for is over all the same. */
		names_forget(n, dir, name, lease);
		return;
	}
	pthread_mutex_lock(&n->names.lock);
	/* Under the lock that a new incarnation takes to forget what the old one had. */
	if (tomb_tag == n->tomb_tag && !n->names.moving[hash & (NAME_LEASES - 1)] && replaces(n, e, hash)) {
		buckets_insert(&n->names.by_name, &e->by_name, hash);
		buckets_insert(&n->names.by_id, &e->by_id, hash_u64(a->id));
		*newest(n, hash) = lease;
		limit(n);
		e = NULL;
	}
	pthread_mutex_unlock(&n->names.lock);
	free(e);
}

bool names_find(struct node *n, uint64_t dir, const char *name, struct msg_attr *ret)
{
	uint64_t hash = node_name_hash(dir, name);
	const struct leased *e;
	bool found;

	pthread_mutex_lock(&n->names.lock);
	e = find(n, dir, name, hash);
	found = e && (!e->attr.expires_ns || e->attr.expires_ns > clock_real_ns());
	if (found)
		*ret = e->attr;
	pthread_mutex_unlock(&n->names.lock);
	return found && block_all_present(n, ret) && member_has_leases(n);
}

bool names_has_id(struct node *n, uint64_t id)
{
	bool has;

	pthread_mutex_lock(&n->names.lock);
	has = find_id(n, id) != NULL;
	pthread_mutex_unlock(&n->names.lock);
	return has && member_has_leases(n);
}

bool node_is_current(struct node *n, uint64_t put_id)
{
	return !n->member || names_has_id(n, put_id);
}

void names_forget(struct node *n, uint64_t dir, const char *name, uint64_t lease)
{
	uint64_t hash = node_name_hash(dir, name);

	pthread_mutex_lock(&n->names.lock);
	take_out(n, find(n, dir, name, hash));
	if (*newest(n, hash) < lease)
		*newest(n, hash) = lease;
	pthread_mutex_unlock(&n->names.lock);
}

void names_move_begin(struct node *n, uint64_t dir, const char *name)
{
	uint64_t hash = node_name_hash(dir, name);

	pthread_mutex_lock(&n->names.lock);
	take_out(n, find(n, dir, name, hash));
	n->names.moving[hash & (NAME_LEASES - 1)]++;
	pthread_mutex_unlock(&n->names.lock);
}

void names_move_end(struct node *n, uint64_t dir, const char *name, uint64_t lease)
{
	uint64_t hash = node_name_hash(dir, name);

	pthread_mutex_lock(&n->names.lock);
	n->names.moving[hash & (NAME_LEASES - 1)]--;
	if (*newest(n, hash) < lease)
		*newest(n, hash) = lease;
	pthread_mutex_unlock(&n->names.lock);
}

void names_forget_id(struct node *n, uint64_t id)
{
	pthread_mutex_lock(&n->names.lock);
	take_out(n, find_id(n, id));
	pthread_mutex_unlock(&n->names.lock);
}

struct forget_dir {
	struct node *n;
	uint64_t dir, lease;
};

static void forget_one(void *arg, struct bucket_link *l)
{
	struct leased *e = container_of(l, struct leased, by_name);
	const struct forget_dir *f = arg;

	if ((!f->dir || e->dir == f->dir) && e->lease <= f->lease)
		take_out(f->n, e);
}

/* Rare: all of them are looked at. */
void names_forget_dir(struct node *n, uint64_t dir, uint64_t lease)
{
	struct forget_dir f = {n, dir, lease};

	pthread_mutex_lock(&n->names.lock);
	buckets_each(&n->names.by_name, forget_one, &f);
	for (size_t k = 0; k < NAME_LEASES; k++)
		if (n->names.newest[k] < lease)
			n->names.newest[k] = lease;
	pthread_mutex_unlock(&n->names.lock);
}

void names_forget_all(struct node *n)
{
	struct leased *e;

	pthread_mutex_lock(&n->names.lock);
	while ((e = any(n)))
		take_out(n, e);
	pthread_mutex_unlock(&n->names.lock);
}
