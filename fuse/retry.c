/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens that are sent back to look their name up again.
 *
 * A writable open of a published version, or an open of a version that has just been replaced, is answered ESTALE: the
 * kernel walks the path once more, asking us for each name, and opens what it then finds. It does so once. So the
 * lookup must find something that the open will surely get: it opens that itself (a private version that it makes from
 * the old bytes, or a published one) and keeps it here until the same thread's open has come.
 *
 * The record of what the thread needs stays until then, since the kernel may look the name up twice (once to find out
 * that the old inode is no longer it), and find another thing, or nothing at first: whatever the last lookup answered
 * is held. There are as many records as opens in that state, so a list will do. The thread is 0 for callers of another
 * pid namespace: then the name and the inode tell them apart well enough, as whoever opens the same thing may take the
 * same hold.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "fuse/task.h"

#define EXPIRE_NS (10 * NS_PER_SEC)
#define EXPIRE_NOTHING_NS (100 * NS_PER_MS) /* there was no such name: only a second lookup may still come */

/* What a thread needs (need is not 0), or what is held for it. */
struct retry {
	struct list link;
	pid_t tid;
	uint64_t id;  /* needed: what was to be opened (0: nothing yet). Held: what the open will come for */
	uint64_t dir; /* with name */
	uint64_t deadline_ns;
	unsigned need; /* enum retry_need */
	bool looked;   /* needed: a lookup has come */
	struct hold hold;
	char name[MSG_NAME_MAX + 1]; /* "": not known */
};

struct retries {
	pthread_mutex_t lock;
	struct list list; /* lock */
	atomic_size_t n;  /* so that the many who find nothing take no lock */
};

struct retries *retries_new(void)
{
	struct retries *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	list_init(&r->list);
	return r;
}

void hold_give_up(const struct hold *h)
{
	if (h->put && h->writer)
		put_abandon(h->put);
	hold_release(h);
}

void hold_release(const struct hold *h)
{
	if (h->version)
		version_close(h->version);
	if (h->put) {
		put_release(h->put, h->writer);
		put_unref(h->put);
	}
}

struct retries *retries_free(struct retries *r)
{
	if (!r)
		return NULL;
	retry_expire(r, UINT64_MAX);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return NULL;
}

/* Call with r locked. */
static void take_out(struct retries *r, struct retry *t)
{
	list_del(&t->link);
	atomic_fetch_sub_explicit(&r->n, 1, memory_order_relaxed);
}

static void add(struct fs *fs, struct retry *t)
{
	struct retries *r = fs->retries;

	t->deadline_ns = clock_ns() + EXPIRE_NS;
	pthread_mutex_lock(&r->lock);
	list_add_tail(&t->link, &r->list);
	/* Seen by the thread's next request: the kernel orders it behind this one's answer. */
	atomic_fetch_add_explicit(&r->n, 1, memory_order_relaxed);
	pthread_mutex_unlock(&r->lock);
	keeper_kick(fs->keeper);
}

static bool names_same(const struct retry *t, uint64_t dir, const char *name)
{
	return t->name[0] && t->dir == dir && !strcmp(t->name, name);
}

/* What the thread needs of the inode or the name. Call with r locked. */
static struct retry *find_needed(struct retries *r, pid_t tid, uint64_t id, uint64_t dir, const char *name)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (t->need && t->tid == tid && ((id && t->id == id) || (name[0] && names_same(t, dir, name))))
			return t;
	}
	return NULL;
}

/*
 * The thread has been sent back there before, and comes again. Without a lookup in between the kernel will not look
 * now either (but callers that all look like thread 0 may well be several). Call with r locked.
 */
static bool come_again(struct retries *r, struct retry *t, unsigned need)
{
	if (!t->looked && t->tid) {
		take_out(r, t);
		free(t);
		return false;
	}
	t->need = t->tid ? need : (t->need | need) & ~(unsigned)RETRY_TRUNCATE;
	t->looked = false;
	t->deadline_ns = clock_ns() + EXPIRE_NS;
	return true;
}

static bool expect(struct fs *fs, pid_t tid, uint64_t id, uint64_t dir, const char *name, unsigned need)
{
	struct retries *r = fs->retries;
	struct retry *t;
	bool ok = true;

	pthread_mutex_lock(&r->lock);
	t = find_needed(r, tid, id, dir, name);
	if (t)
		ok = come_again(r, t, need);
	pthread_mutex_unlock(&r->lock);
	if (ok)
		count_add(fs, estale, 1);
	if (t)
		return ok;
	t = calloc(1, sizeof(*t));
	if (!t)
		return true; /* the open may fail; it is not worse than that */
	t->tid = tid;
	t->id = id;
	t->dir = dir;
	t->need = need;
	strcpy(t->name, name);
	add(fs, t);
	return true;
}

bool retry_expect(struct fs *fs, pid_t tid, struct inode *i, unsigned need)
{
	char name[MSG_NAME_MAX + 1] = "";
	uint64_t dir = 0;

	inode_get_last_name(fs->inodes, i, &dir, name);
	return expect(fs, tid, i->i_id, dir, name, need);
}

bool retry_expect_name(struct fs *fs, pid_t tid, uint64_t dir, const char *name, unsigned need)
{
	struct retries *r = fs->retries;
	bool known;

	pthread_mutex_lock(&r->lock);
	known = find_needed(r, tid, 0, dir, name);
	pthread_mutex_unlock(&r->lock);
	return !known && expect(fs, tid, 0, dir, name, need);
}

/*
 * The thread was sent back from an inode whose name we do not know, or know wrongly: the kernel moves its own entry of
 * a name that meanwhile stands for another version. What it asks next is the path that it walks again, whose only file
 * is the last. Call with r locked.
 */
static struct retry *find_nameless(struct retries *r, pid_t tid)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (t->need && tid && t->tid == tid && !t->looked)
			return t;
	}
	return NULL;
}

unsigned retry_match(struct fs *fs, pid_t tid, uint64_t dir, const char *name, uint64_t id, bool file)
{
	struct retries *r = fs->retries;
	unsigned need = 0;
	struct retry *t;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&r->lock);
	t = find_needed(r, tid, id, dir, name);
	if (!t && file)
		t = find_nameless(r, tid);
	if (t) {
		/* The caller may write this version; of another one that is to be seen. */
		need = t->id == id ? t->need : t->need & ~(unsigned)RETRY_TRUNCATE;
		t->looked = true;
		t->dir = dir;
		strcpy(t->name, name);
		t->deadline_ns = clock_ns() + (id ? EXPIRE_NS : EXPIRE_NOTHING_NS);
	}
	pthread_mutex_unlock(&r->lock);
	return need;
}

/* What is held for the thread. Call with r locked. */
static struct retry *find_held(struct retries *r, pid_t tid, uint64_t id)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (!t->need && t->tid == tid && t->id == id)
			return t;
	}
	return NULL;
}

bool retry_is_held(struct fs *fs, pid_t tid, uint64_t id)
{
	struct retries *r = fs->retries;
	struct retry *t;

	pthread_mutex_lock(&r->lock);
	t = find_held(r, tid, id);
	if (t)
		t->deadline_ns = clock_ns() + EXPIRE_NS;
	pthread_mutex_unlock(&r->lock);
	return t;
}

int retry_hold(struct fs *fs, pid_t tid, uint64_t dir, const char *name, const struct hold *h)
{
	struct retry *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->tid = tid;
	t->id = h->id;
	t->dir = dir;
	strcpy(t->name, name);
	t->hold = *h;
	add(fs, t);
	return 0;
}

/* Lets go of records that are off the list. */
static void drop_all(struct list *old)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, old)
	{
		struct retry *t = container_of(l, struct retry, link);

		hold_give_up(&t->hold); /* the thread never came */
		free(t);
	}
}

bool retry_take(struct fs *fs, pid_t tid, uint64_t id, struct hold *ret)
{
	struct retries *r = fs->retries;
	struct list old, *l, *tmp;
	struct retry *found;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return false;
	list_init(&old);
	pthread_mutex_lock(&r->lock);
	found = find_held(r, tid, id);
	if (found)
		take_out(r, found);
	/* The thread has what it came for; with it goes what earlier lookups of the name found, and what it needed. */
	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (!found || t->tid != tid || !tid || !names_same(t, found->dir, found->name))
			continue;
		take_out(r, t);
		list_add_tail(&t->link, &old);
	}
	pthread_mutex_unlock(&r->lock);
	drop_all(&old);
	if (!found)
		return false;
	*ret = found->hold;
	free(found);
	return true;
}

size_t retry_expire(struct retries *r, uint64_t now_ns)
{
	struct list old, *l, *tmp;
	size_t left;

	list_init(&old);
	pthread_mutex_lock(&r->lock);
	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		/* A thread that is no more comes for nothing, and what is held for it may be most of the memory. */
		if (t->deadline_ns > now_ns && (!t->tid || !task_is_gone(t->tid)))
			continue;
		take_out(r, t);
		list_add_tail(&t->link, &old);
	}
	left = atomic_load_explicit(&r->n, memory_order_relaxed);
	pthread_mutex_unlock(&r->lock);
	drop_all(&old);
	return left;
}
