/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/list.h"

/* The node has deadlines of its own; these only see to it that a connection ends. */
#define CALL_TIMEOUT (60 * NS_PER_SEC)
#define PREFETCH_TIMEOUT (600 * NS_PER_SEC)

struct calls {
	struct node *node;
	pthread_mutex_t lock; /* taken before a call's */
	bool cancelled;	      /* lock */
	struct list waiting;  /* lock; of struct call */
};

/* One call. Two references: the waiter's and the answer's. */
struct call {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned refs;	/* lock */
	bool over;	/* lock: the answer is here */
	bool cancelled; /* lock */
	bool abandoned; /* lock: nobody waits any more */
	int err;	/* lock, as all below: the answer */
	struct msg_attr attr;
	struct put *put;
	void *items; /* dirents or namespaces, malloc'ed */
	size_t n_items;
	bool end;
	struct node_dir *dir; /* closed by the answer when abandoned: it is in use until then */
	struct list link;     /* calls.lock */
};

struct calls *calls_new(struct node *node)
{
	struct calls *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return NULL;
	cs->node = node;
	pthread_mutex_init(&cs->lock, NULL);
	list_init(&cs->waiting);
	return cs;
}

struct calls *calls_free(struct calls *cs)
{
	if (!cs)
		return NULL;
	pthread_mutex_destroy(&cs->lock);
	free(cs);
	return NULL;
}

struct node *calls_node(struct calls *cs)
{
	return cs->node;
}

void calls_cancel(struct calls *cs)
{
	struct list *pos, *tmp;

	pthread_mutex_lock(&cs->lock);
	cs->cancelled = true;
	list_for_each(pos, tmp, &cs->waiting)
	{
		struct call *c = container_of(pos, struct call, link);

		pthread_mutex_lock(&c->lock);
		c->cancelled = true;
		pthread_cond_signal(&c->cond);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&cs->lock);
}

static struct call *call_new(void)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->cond);
	c->refs = 2;
	return c;
}

/* Call with c locked; unlocks it. */
static void call_unref(struct call *c)
{
	bool last = !--c->refs;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	if (c->put)
		put_unref(c->put);
	free(c->items);
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* One that was never sent. */
static void call_drop(struct call *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->refs = 1;
	call_unref(c);
}

/* The end of every answer; call with c locked; unlocks it. */
static void call_answered(struct call *c, int err)
{
	struct node_dir *dir = c->abandoned ? c->dir : NULL;

	c->err = err;
	c->over = true;
	pthread_cond_signal(&c->cond);
	call_unref(c);
	if (dir)
		node_dir_close(dir);
}

static void on_done(void *arg, int err)
{
	struct call *c = arg;

	pthread_mutex_lock(&c->lock);
	call_answered(c, err);
}

static void on_entry(void *arg, int err, const struct node_entry *e)
{
	struct call *c = arg;

	pthread_mutex_lock(&c->lock);
	if (!err) {
		c->attr = e->attr;
		c->put = e->put;
	}
	call_answered(c, err);
}

/* Call with c locked. 0 or -ENOMEM. */
static int keep_items(struct call *c, const void *items, size_t n, size_t size)
{
	c->items = calloc(n ? n : 1, size);
	if (!c->items)
		return -ENOMEM;
	if (n)
		memcpy(c->items, items, n * size);
	c->n_items = n;
	return 0;
}

static void on_dir(void *arg, int err, const struct msg_dirent *ents, size_t n, bool end)
{
	struct call *c = arg;

	pthread_mutex_lock(&c->lock);
	c->end = end;
	if (!err)
		err = keep_items(c, ents, n, sizeof(*ents));
	call_answered(c, err);
}

static void on_message(void *arg, const struct msg *answer)
{
	struct call *c = arg;
	int err = answer->status;

	pthread_mutex_lock(&c->lock);
	if (!err)
		err = keep_items(c, answer->namespaces, answer->n_namespaces, sizeof(*answer->namespaces));
	call_answered(c, err);
}

/* Call with c locked. The answer's error, or why there is none. */
static int call_wait_locked(struct call *c, uint64_t timeout)
{
	struct timespec until = clock_timespec(clock_ns() + timeout);
	int r = 0;

	while (!c->over && !c->cancelled && !r)
		r = pthread_cond_timedwait(&c->cond, &c->lock, &until);
	if (c->over)
		return c->err;
	c->abandoned = true;
	return c->cancelled ? -ESHUTDOWN : -ETIMEDOUT;
}

/* Waits; afterwards c is locked, and the waiter ends it with call_unref(). */
static int call_wait(struct calls *cs, struct call *c, uint64_t timeout)
{
	int r;

	pthread_mutex_lock(&cs->lock);
	c->cancelled = cs->cancelled;
	list_add_tail(&c->link, &cs->waiting);
	pthread_mutex_unlock(&cs->lock);

	pthread_mutex_lock(&c->lock);
	r = call_wait_locked(c, timeout);
	pthread_mutex_unlock(&c->lock);

	pthread_mutex_lock(&cs->lock);
	list_del(&c->link);
	pthread_mutex_unlock(&cs->lock);
	pthread_mutex_lock(&c->lock);
	return r;
}

static int finish_done(struct calls *cs, struct call *c, uint64_t timeout)
{
	int r = call_wait(cs, c, timeout);

	call_unref(c);
	return r;
}

static int finish_entry(struct calls *cs, struct call *c, struct msg_attr *ret, struct put **ret_put)
{
	int r = call_wait(cs, c, CALL_TIMEOUT);

	if (!r) {
		*ret = c->attr;
		if (ret_put) {
			*ret_put = c->put;
			c->put = NULL;
		}
	}
	call_unref(c);
	return r;
}

int calls_lookup(struct calls *cs, uint64_t dir, const char *name, struct msg_attr *ret, struct put **ret_put)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_lookup(cs->node, dir, name, on_entry, c);
	return finish_entry(cs, c, ret, ret_put);
}

int calls_getattr(struct calls *cs, uint64_t id, struct msg_attr *ret)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_getattr(cs->node, id, on_entry, c);
	return finish_entry(cs, c, ret, NULL);
}

int calls_setattr(struct calls *cs, struct put *put, const struct msg_attr *a, uint32_t mask)
{
	struct call *c = call_new();
	struct msg_attr unused;

	if (!c)
		return -ENOMEM;
	if (put) {
		put_setattr(put, a, mask, on_done, c);
		return finish_done(cs, c, CALL_TIMEOUT);
	}
	node_setattr(cs->node, a, mask, on_entry, c);
	return finish_entry(cs, c, &unused, NULL);
}

int calls_unlink(struct calls *cs, uint64_t dir, const char *name)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_unlink(cs->node, dir, name, on_done, c);
	return finish_done(cs, c, CALL_TIMEOUT);
}

int calls_rmdir(struct calls *cs, uint64_t dir, const char *name)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_rmdir(cs->node, dir, name, on_done, c);
	return finish_done(cs, c, CALL_TIMEOUT);
}

int calls_evict(struct calls *cs, const struct msg_attr *a, enum node_tier tier, bool force)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_evict(cs->node, a, tier, force, on_done, c);
	return finish_done(cs, c, CALL_TIMEOUT);
}

int calls_prefetch(struct calls *cs, const struct msg_attr *a)
{
	struct call *c = call_new();

	if (!c)
		return -ENOMEM;
	node_prefetch(cs->node, a, on_done, c);
	return finish_done(cs, c, PREFETCH_TIMEOUT);
}

int calls_dir_read(struct calls *cs, struct node_dir **d, uint64_t cookie, uint32_t max, struct msg_dirent **ret,
		   size_t *ret_n, bool *ret_end)
{
	struct call *c = call_new();
	int r;

	if (!c)
		return -ENOMEM;
	c->dir = *d;
	node_dir_read(*d, cookie, max, on_dir, c);
	r = call_wait(cs, c, CALL_TIMEOUT);
	if (!r) {
		*ret = c->items;
		*ret_n = c->n_items;
		*ret_end = c->end;
		c->items = NULL;
	} else if (c->abandoned) {
		*d = NULL; /* the answer closes it, or has done so since the wait ended */
	}
	call_unref(c);
	return r;
}

int calls_namespace(struct calls *cs, enum msg_type type, const struct msg_namespace *ns, struct msg_namespace **ret,
		    size_t *ret_n)
{
	struct msg *req = msg_new(type);
	struct call *c = call_new();
	int r;

	if (!req || !c) {
		call_drop(c);
		msg_free(req);
		return -ENOMEM;
	}
	if (ns)
		req->u.ns = *ns;
	node_call(cs->node, req, on_message, c);
	r = call_wait(cs, c, CALL_TIMEOUT);
	if (!r && ret) {
		*ret = c->items;
		*ret_n = c->n_items;
		c->items = NULL;
	}
	call_unref(c);
	return r;
}
