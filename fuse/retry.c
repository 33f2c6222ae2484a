/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens that are sent back to look their name up again.
 *
 * A writable open of a published version, or an open of a version that has just been replaced, is answered ESTALE: the
 * kernel walks the path once more, asking us for each name, and opens what it then finds. It does so once. So the
 * lookup must find something that the open will surely get: it opens that itself (the old bytes of a version that it
 * makes a private copy of, or the hold of a version) and keeps it here until the same thread's open has come.
 *
 * A record is first expected (the open has been sent back), then held (the lookup has come). The kernel may look a name
 * up twice before it opens what it stands for (once to find out that the old inode is no longer it): a lookup of a held
 * name gets the same answer. There are as many records as opens in that state, so a list will do. The thread is 0 for
 * callers of another pid namespace: then the name and the inode tell them apart well enough, as whoever opens the same
 * thing may take the same hold.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

#define EXPIRE_NS (10 * NS_PER_SEC)

struct retry {
	struct list link;
	pid_t tid;
	uint64_t id;  /* expected: what was to be opened (0: nothing yet). Held: what the open will come for */
	uint64_t dir; /* with name */
	uint64_t deadline_ns;
	unsigned need; /* enum retry_need; 0: held */
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

static void ignore_err(void *arg, int err)
{
}

/* The thread never came: a private version that was made for it alone is given up, not published. */
static void hold_expire(const struct hold *h)
{
	if (h->put)
		put_flush(h->put, true, ignore_err, NULL);
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

/* The record that the thread expects for the inode or the name. Call with r locked. */
static struct retry *find_expected(struct retries *r, pid_t tid, uint64_t id, uint64_t dir, const char *name)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (t->need && t->tid == tid && ((id && t->id == id) || (name && names_same(t, dir, name))))
			return t;
	}
	return NULL;
}

/* Whether the thread was sent back there already; the record goes. */
static bool forget_expected(struct retries *r, pid_t tid, uint64_t id, uint64_t dir, const char *name)
{
	struct retry *t;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&r->lock);
	t = find_expected(r, tid, id, dir, name);
	if (t)
		take_out(r, t);
	pthread_mutex_unlock(&r->lock);
	free(t);
	return t != NULL;
}

bool retry_expect(struct fs *fs, pid_t tid, struct inode *i, unsigned need)
{
	struct retry *t;

	/* Callers that all look like thread 0 may well be several. */
	if (forget_expected(fs->retries, tid, i->i_id, 0, NULL) && tid)
		return false;
	t = calloc(1, sizeof(*t));
	if (t) {
		t->tid = tid;
		t->id = i->i_id;
		t->need = need;
		if (inode_get_last_name(fs->inodes, i, &t->dir, t->name) < 0)
			t->name[0] = '\0';
		add(fs, t);
	}
	count_add(fs, estale, 1);
	return true;
}

bool retry_expect_name(struct fs *fs, pid_t tid, uint64_t dir, const char *name, unsigned need)
{
	struct retry *t;

	if (forget_expected(fs->retries, tid, 0, dir, name) && tid)
		return false;
	t = calloc(1, sizeof(*t));
	if (t) {
		t->tid = tid;
		t->dir = dir;
		t->need = need;
		strcpy(t->name, name);
		add(fs, t);
	}
	count_add(fs, estale, 1);
	return true;
}

unsigned retry_match(struct fs *fs, pid_t tid, uint64_t dir, const char *name, uint64_t id)
{
	struct retries *r = fs->retries;
	struct retry *t;
	unsigned need;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&r->lock);
	t = find_expected(r, tid, id, dir, name);
	if (t)
		take_out(r, t);
	pthread_mutex_unlock(&r->lock);
	need = t ? t->need : 0;
	free(t);
	return need;
}

int retry_hold(struct fs *fs, pid_t tid, uint64_t dir, const char *name, const struct hold *h)
{
	struct retry *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->tid = tid;
	t->id = h->attr.id;
	t->dir = dir;
	strcpy(t->name, name);
	t->hold = *h;
	add(fs, t);
	return 0;
}

bool retry_held(struct fs *fs, pid_t tid, uint64_t dir, const char *name, struct msg_attr *ret, struct put **ret_put)
{
	struct retries *r = fs->retries;
	struct list *l, *tmp;
	bool found = false;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&r->lock);
	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (t->need || t->tid != tid || !names_same(t, dir, name))
			continue;
		*ret = t->hold.attr;
		*ret_put = t->hold.put ? put_ref(t->hold.put) : NULL;
		found = true;
		break;
	}
	pthread_mutex_unlock(&r->lock);
	if (found && *ret_put)
		put_getattr(*ret_put, ret);
	return found;
}

bool retry_take(struct fs *fs, pid_t tid, uint64_t id, struct hold *ret)
{
	struct retries *r = fs->retries;
	struct retry *found = NULL;
	struct list *l, *tmp;

	if (!atomic_load_explicit(&r->n, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&r->lock);
	list_for_each(l, tmp, &r->list)
	{
		struct retry *t = container_of(l, struct retry, link);

		if (!t->need && t->tid == tid && t->id == id) {
			take_out(r, t);
			found = t;
			break;
		}
	}
	pthread_mutex_unlock(&r->lock);
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

		if (t->deadline_ns > now_ns)
			continue;
		take_out(r, t);
		list_add_tail(&t->link, &old);
	}
	left = atomic_load_explicit(&r->n, memory_order_relaxed);
	pthread_mutex_unlock(&r->lock);
	list_for_each(l, tmp, &old)
	{
		struct retry *t = container_of(l, struct retry, link);

		hold_expire(&t->hold);
		free(t);
	}
	return left;
}
