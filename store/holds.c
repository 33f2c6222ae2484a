/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions that are open here while some of their blocks are on other nodes only. The master is told, so that those
 * keep them, also when the name moves on; and told in batches when they have been closed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "store/impl.h"

#define BATCH 256u

/* One version. All: lock. */
struct hold {
	struct bucket_link link;
	uint64_t put_id;
	unsigned count; /* who has it open; 0: to be released */
	struct list released;
};

struct holds {
	struct node *n;
	pthread_mutex_t lock;
	struct buckets by_id; /* lock */
	struct list released; /* lock: in the order they were */
	unsigned n_released;  /* lock */
};

struct holds *holds_new(struct node *n)
{
	struct holds *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->n = n;
	pthread_mutex_init(&h->lock, NULL);
	list_init(&h->released);
	return h;
}

static void free_one(void *arg, struct bucket_link *l)
{
	free(container_of(l, struct hold, link));
}

void holds_free(struct holds *h)
{
	if (!h)
		return;
	buckets_each(&h->by_id, free_one, h);
	buckets_fini(&h->by_id);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

/* Call with h locked. */
static struct hold *find(struct holds *h, uint64_t put_id)
{
	struct bucket_link *l = buckets_find(&h->by_id, hash_u64(put_id));

	return l ? container_of(l, struct hold, link) : NULL;
}

/* Call with h locked. */
static void take_out(struct holds *h, struct hold *one)
{
	buckets_remove(&h->by_id, &one->link);
	free(one);
}

/* Counts one more. 1: the master does not know of it yet. */
static int count_in(struct holds *h, uint64_t put_id)
{
	struct hold *one;
	int r = 0;

	pthread_mutex_lock(&h->lock);
	one = find(h, put_id);
	if (!one) {
		one = calloc(1, sizeof(*one));
		r = one ? 1 : -ENOMEM;
		if (one) {
			one->put_id = put_id;
			list_init(&one->released);
			buckets_insert(&h->by_id, &one->link, hash_u64(put_id));
		}
	} else if (!one->count) {
		/* It has not been said yet that it was closed. */
		list_del(&one->released);
		list_init(&one->released);
		h->n_released--;
	}
	if (one)
		one->count++;
	pthread_mutex_unlock(&h->lock);
	return r;
}

struct hold_op {
	struct holds *h;
	uint64_t put_id;
	void (*fn)(void *arg, int err);
	void *arg;
};

static void hold_answer(void *arg, const struct msg *answer)
{
	struct hold_op *op = arg;
	bool gone = !answer->status && answer->n_items == 1 && answer->items[0].status == -ENOENT;

	/* A master that cannot note it is none that others must wait for: the blocks stay for as long as they do. */
	if (gone)
		holds_release(op->h, op->put_id);
	op->fn(op->arg, gone ? -ESTALE : 0);
	free(op);
}

void holds_take(struct holds *h, uint64_t put_id, void (*fn)(void *arg, int err), void *arg)
{
	int r = count_in(h, put_id);
	struct hold_op *op = r == 1 ? malloc(sizeof(*op)) : NULL;
	struct msg *m = op ? msg_new(MSG_HOLD) : NULL;

	if (r == 0) {
		fn(arg, 0);
		return;
	}
	if (!m || msg_alloc_items(m, 1) < 0) {
		msg_free(m);
		free(op);
		if (r == 1)
			holds_release(h, put_id);
		fn(arg, -ENOMEM);
		return;
	}
	*op = (struct hold_op){h, put_id, fn, arg};
	m->items[0].put_id = put_id;
	node_call(h->n, m, hold_answer, op);
}

void holds_release(struct holds *h, uint64_t put_id)
{
	struct hold *one;

	pthread_mutex_lock(&h->lock);
	one = find(h, put_id);
	if (one && one->count && !--one->count) {
		list_add_tail(&one->released, &h->released);
		h->n_released++;
	}
	pthread_mutex_unlock(&h->lock);
}

/* A message with what has been closed; NULL: nothing was. */
static struct msg *release_msg(struct holds *h)
{
	struct msg *m;
	size_t k = 0;

	pthread_mutex_lock(&h->lock);
	m = h->n_released ? msg_new(MSG_RELEASE) : NULL;
	if (m && msg_alloc_items(m, h->n_released < BATCH ? h->n_released : BATCH) < 0)
		m = msg_free(m);
	while (m && k < m->n_items) {
		struct hold *one = list_first(&h->released, struct hold, released);

		m->items[k++].put_id = one->put_id;
		list_del(&one->released);
		h->n_released--;
		take_out(h, one);
	}
	pthread_mutex_unlock(&h->lock);
	return m;
}

void holds_flush(struct holds *h)
{
	struct msg *m;

	while ((m = release_msg(h)))
		node_call(h->n, m, NULL, NULL);
}

struct held_ids {
	uint64_t *ids;
	size_t n;
};

static void list_one(void *arg, struct bucket_link *l)
{
	struct held_ids *a = arg;

	a->ids[a->n++] = container_of(l, struct hold, link)->put_id;
}

/* All that are known, as one list. */
static int list_all(struct holds *h, struct held_ids *ret)
{
	int r = 0;

	pthread_mutex_lock(&h->lock);
	ret->ids = malloc((h->by_id.n + 1) * sizeof(*ret->ids));
	if (ret->ids)
		buckets_each(&h->by_id, list_one, ret);
	else
		r = -ENOMEM;
	pthread_mutex_unlock(&h->lock);
	return r;
}

void holds_say_again(struct holds *h)
{
	struct held_ids a = {0};
	int r = list_all(h, &a);

	for (size_t at = 0; r == 0 && at < a.n; at += BATCH) {
		size_t count = a.n - at < BATCH ? a.n - at : BATCH;
		struct msg *m = msg_new(MSG_HOLD);

		if (!m || msg_alloc_items(m, count) < 0) {
			msg_free(m);
			break;
		}
		for (size_t k = 0; k < count; k++)
			m->items[k].put_id = a.ids[at + k];
		node_call(h->n, m, NULL, NULL);
	}
	free(a.ids);
}
