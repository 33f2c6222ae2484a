/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persist: the master asks for a published block to be copied to the SSD tier (MSG_SSD_PERSIST). The device writes
 * straight from the mapped memory file, which is pinned meanwhile; SsdReplicaCommit makes the copy a replica, if the
 * master still wants it. Nothing here ever touches the put, which completed before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "store/impl.h"

/* So many may be queued at the devices when one more of those that were dropped goes: the queues have an end, too. */
#define AGAIN_QUEUED 2048

struct persist {
	struct node *n;
	struct block *b; /* BLOCK_PERSIST and a pin keep it */
};

/* ---- what is to be tried again ------------------------------------------------------------------------------ */

int persist_init(struct node *n)
{
	n->again.items = calloc(AGAIN_MAX, sizeof(*n->again.items));
	if (!n->again.items)
		return -ENOMEM;
	pthread_mutex_init(&n->again.lock, NULL);
	return 0;
}

void persist_fini(struct node *n)
{
	if (n->again.items)
		pthread_mutex_destroy(&n->again.lock);
	free(n->again.items);
	n->again.items = NULL;
}

/* Where there is no place for it, it stays in memory alone. */
static void again_push(struct node *n, uint64_t put_id, uint32_t index)
{
	struct again *a = &n->again;

	pthread_mutex_lock(&a->lock);
	if (a->n < AGAIN_MAX)
		a->items[(a->first + a->n++) % AGAIN_MAX] = (struct again_item){.put_id = put_id, .index = index};
	pthread_mutex_unlock(&a->lock);
}

static bool again_pop(struct node *n, struct again_item *ret)
{
	struct again *a = &n->again;
	bool some;

	pthread_mutex_lock(&a->lock);
	some = a->n > 0;
	if (some) {
		*ret = a->items[a->first];
		a->first = (a->first + 1) % AGAIN_MAX;
		a->n--;
	}
	pthread_mutex_unlock(&a->lock);
	return some;
}

/* ---- one block ---------------------------------------------------------------------------------------------- */

/* The master's word on what the ring lost: objects without any replica are gone. */
static void evict_answer(void *arg, const struct msg *answer)
{
	struct node *n = arg;

	for (size_t i = 0; i < answer->n_items; i++)
		if (answer->items[i].flags & MSG_ITEM_GONE)
			node_tell_gone(n, answer->items[i].put_id, 0, NULL);
	node_told(n);
}

/* Unless the version has gone by itself meanwhile, the master's route was stale. */
static void lost_answer(void *arg, const struct msg *answer)
{
	struct node *n = arg;

	count_add(n, stale_routes, answer->status == 0 && answer->n_items == 1 && answer->items[0].status == 0);
	evict_answer(n, answer);
}

void persist_lost(struct node *n, uint64_t put_id, uint32_t index)
{
	struct msg *m = msg_new(MSG_SSD_EVICT);

	/* Without memory for it the next who looks for that copy says so. */
	if (!m || msg_alloc_items(m, 1) < 0) {
		msg_free(m);
		return;
	}
	m->items[0] = (struct msg_item){.put_id = put_id, .block = index};
	node_tell(n, m, lost_answer);
}

void persist_begin(struct node *n)
{
	pthread_mutex_lock(&n->persist_lock);
	n->persist_running++;
	pthread_mutex_unlock(&n->persist_lock);
}

void persist_end(struct node *n)
{
	pthread_mutex_lock(&n->persist_lock);
	if (!--n->persist_running)
		pthread_cond_broadcast(&n->persist_idle);
	pthread_mutex_unlock(&n->persist_lock);
}

/* The persist is over: unpins, and frees a copy that is not wanted. committed: the master has the replica. */
static void finish(struct persist *p, bool written, bool committed)
{
	struct node *n = p->n;
	struct block *b = p->b;
	uint64_t put_id = b->put_id;
	uint32_t index = b->index;
	struct block_shard *s = block_lock(n, put_id, index);
	/* A device that failed meanwhile has given notice of it, and that found no SSD copy here yet. */
	bool there = committed && ssd_has(n->ssd, block_key(b));

	b->flags &= ~(uint32_t)BLOCK_PERSIST;
	if (there)
		block_set_ssd(n, b, true);
	if (written) {
		if (committed)
			ssd_commit_done(n->ssd, block_key(b));
		else
			ssd_drop(n->ssd, block_key(b));
	}
	b->pins--;
	pthread_mutex_lock(&n->policy_lock);
	policy_ready(n->policy, &b->policy);
	pthread_mutex_unlock(&n->policy_lock);
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
	free(p);
	if (committed && !there)
		persist_lost(n, put_id, index);
	/* Those who wait for room may find it evictable now. */
	evict_check(n);
	persist_end(n);
}

static void commit_answer(void *arg, const struct msg *answer)
{
	struct persist *p = arg;
	bool ok = answer->status == 0 && answer->n_items == 1 && answer->items[0].status == 0;

	finish(p, true, ok);
}

static void written(void *arg, int err, uint64_t sum)
{
	struct persist *p = arg;
	struct node *n = p->n;
	struct block *b = p->b;
	struct msg *m;

	if (err < 0) {
		uint64_t put_id = b->put_id;
		uint32_t index = b->index;

		if (err == -ENOBUFS || err == -ENOSPC)
			count_add(n, persist_dropped, 1);
		else if (err != -ECANCELED)
			count_add(n, persist_failures, 1);
		finish(p, false, false);
		/* -EIO: another device may take it. */
		if (err == -ENOBUFS || err == -EIO)
			again_push(n, put_id, index);
		return;
	}
	count_add(n, persists, 1);
	count_add(n, persist_bytes, b->len);
	m = msg_new(MSG_SSD_COMMIT);
	if (m && msg_alloc_items(m, 1) == 0) {
		struct block_shard *s = block_lock(n, b->put_id, b->index);

		b->sum = sum;
		b->flags |= BLOCK_SUM;
		m->items[0] = (struct msg_item){.put_id = b->put_id, .block = b->index, .bytes = b->len};
		pthread_mutex_unlock(&s->lock);
		node_call(n, m, commit_answer, p);
	} else {
		msg_free(m);
		finish(p, true, false);
	}
}

/*
 * Never waits, and is no job: writers that wait for room may have all of those, and the room may be what this is about
 * to free.
 */
static void submit(struct persist *p)
{
	struct block *b = p->b;
	struct block_shard *s = block_lock(p->n, b->put_id, b->index);
	bool known = b->flags & BLOCK_SUM;
	uint64_t sum = b->sum;
	int r;

	pthread_mutex_unlock(&s->lock);
	/* The pin keeps map, len and the key as they are. */
	r = ssd_write(p->n->ssd, block_key(b), b->map, b->len, known ? &sum : NULL, 0, written, p);
	if (r < 0)
		written(p, r, 0);
}

/*
 * Pins the block for its way to the device; p NULL: there is no memory for that. -ENOENT: it was deleted or evicted
 * meanwhile, or is there already, or does not belong there: nothing to copy. -EBUSY: the master is asked whether it may
 * go. Call with the shard locked.
 */
static int prepare(struct node *n, struct block *b, struct persist *p)
{
	int r;

	if (b)
		b->flags &= ~(uint32_t)BLOCK_DUE;
	if (!b || !(b->flags & BLOCK_MEM) || (b->flags & (BLOCK_DROP | BLOCK_PERSIST | BLOCK_SSD)))
		return -ENOENT;
	if (!(b->flags & BLOCK_TIERED))
		return -ENOENT;
	if (b->flags & BLOCK_EVICT)
		return -EBUSY;
	r = p ? block_map(n, b) : -ENOMEM;
	if (r < 0)
		return r;
	b->pins++;
	b->flags |= BLOCK_PERSIST;
	*p = (struct persist){.n = n, .b = b};
	return 0;
}

/* 0 with the bytes that are on their way, or as prepare(). */
static int persist_one(struct node *n, uint64_t put_id, uint32_t index, uint64_t *ret_len)
{
	struct persist *p = malloc(sizeof(*p));
	struct block_shard *s = block_lock(n, put_id, index);
	struct block *b = block_find(s, put_id, index);
	int r = prepare(n, b, p);

	if (r == 0)
		*ret_len = b->len;
	pthread_mutex_unlock(&s->lock);
	if (r == -ENOMEM)
		count_add(n, persist_failures, 1);
	if (r < 0) {
		free(p);
		return r;
	}
	persist_begin(n);
	submit(p);
	return 0;
}

void persist_items(struct node *n, const struct msg_item *items, size_t n_items)
{
	uint64_t len;

	if (!n->ssd || atomic_load(&n->stopping))
		return;
	for (size_t i = 0; i < n_items; i++)
		persist_one(n, items[i].put_id, items[i].block, &len);
}

static void remember_all(struct node *n)
{
	const uint32_t settled = BLOCK_SSD | BLOCK_DROP | BLOCK_TEMP | BLOCK_DUE | BLOCK_PERSIST;

	for (size_t i = 0; i < BLOCK_SHARDS; i++) {
		struct block_shard *s = &n->shards[i];

		pthread_mutex_lock(&s->lock);
		for (size_t k = 0; k < s->n_slots; k++)
			for (const struct block *b = s->slots[k]; b; b = b->next)
				if ((b->flags & BLOCK_MEM) && (b->flags & BLOCK_TIERED) && !(b->flags & settled))
					again_push(n, b->put_id, b->index);
		pthread_mutex_unlock(&s->lock);
	}
}

/* Half the share of those devices that work: as much as leaves the newer ones their place. */
static uint64_t room_again(const struct node *n, const struct ssd_stats *st)
{
	unsigned working = 0;

	for (unsigned i = 0; i < st->n_devices; i++)
		working += !st->dev[i].failed;
	return n->persist_backlog / st->n_devices * working / 2;
}

/* What a device that was taken out had is in memory alone now, and where one is back it has place for it. */
static bool devices_changed(struct node *n, const struct ssd_stats *st)
{
	uint64_t failures = 0;
	bool changed;

	for (unsigned i = 0; i < st->n_devices; i++)
		failures += st->dev[i].failures;
	changed = failures != n->ssd_failures || st->capacity > n->ssd_capacity;
	n->ssd_failures = failures;
	n->ssd_capacity = st->capacity;
	return changed;
}

static size_t again_count(struct node *n)
{
	size_t count;

	pthread_mutex_lock(&n->again.lock);
	count = n->again.n;
	pthread_mutex_unlock(&n->again.lock);
	return count;
}

bool persist_again(struct node *n)
{
	struct again_item it;
	struct ssd_stats st;
	uint64_t room, len;
	size_t tries;
	int r;

	if (!n->ssd || atomic_load(&n->stopping))
		return false;
	ssd_stats(n->ssd, &st);
	if (devices_changed(n, &st))
		remember_all(n);
	room = room_again(n, &st);
	for (tries = again_count(n); tries && st.backlog < room && st.queued < AGAIN_QUEUED; tries--) {
		if (!again_pop(n, &it))
			break;
		r = persist_one(n, it.put_id, it.index, &len);
		if (r == 0) {
			st.backlog += len;
			st.queued++;
		} else if (r != -ENOENT) {
			again_push(n, it.put_id, it.index);
		}
	}
	return again_count(n) > 0;
}

void persist_drain(struct node *n)
{
	pthread_mutex_lock(&n->persist_lock);
	while (n->persist_running)
		pthread_cond_wait(&n->persist_idle, &n->persist_lock);
	pthread_mutex_unlock(&n->persist_lock);
}

void persist_evicted(void *arg, const struct ssd_key *keys, size_t n_keys)
{
	struct node *n = arg;
	struct msg *m = msg_new(MSG_SSD_EVICT);
	size_t k = 0;

	/* Without memory for it they stay as they are here, too: the next hold or read of one finds out. */
	if (!m || msg_alloc_items(m, n_keys) < 0) {
		msg_free(m);
		return;
	}
	for (size_t i = 0; i < n_keys; i++) {
		uint64_t put_id = alias_resolve(n, keys[i].id);
		struct block_shard *s = block_lock(n, put_id, keys[i].block);
		struct block *b = block_find(s, put_id, keys[i].block);

		if (b && (b->flags & BLOCK_SSD)) {
			block_set_ssd(n, b, false);
			b->flags &= ~(uint32_t)BLOCK_HELD;
			count_add(n, evictions_ssd, 1);
			if (!(b->flags & BLOCK_DROP))
				m->items[k++] = (struct msg_item){.put_id = b->put_id, .block = b->index};
			block_settle(n, s, b);
		}
		pthread_mutex_unlock(&s->lock);
	}
	if (k) {
		m->n_items = k;
		node_tell(n, m, evict_answer);
	} else {
		msg_free(m);
	}
}
