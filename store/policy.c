/* SPDX-License-Identifier: Apache-2.0 */
#include "store/policy.h"

#include <stdlib.h>

#define PAGE_SHIFT 12
/*
 * The share of the capacity that new values wait in. 1/40 hits 0.1 points more, but one that is put and soon read
 * should still be here when the cache is small and the values are large.
 */
#define SMALL_DIVISOR 20
/* How many accesses a victim may still show before it is taken all the same: bounds one walk under the lock. */
#define PROMOTE_MAX 1024
/* Parked nodes that each walk looks at again, so that one that was busy for a moment is not forgotten. */
#define REOFFER 4

#define GHOST_WAYS 8
/* The ghost remembers what left during the last so many capacities: more helps traces, less helps a pure Zipf law. */
#define GHOST_CAPACITIES 3
/* Time, counted in evicted pages, is cut into units: at most so many, at least half, for what is remembered. */
#define GHOST_UNITS 4096

enum queue {
	QUEUE_NONE,
	QUEUE_SMALL,	    /* came in not long ago */
	QUEUE_MAIN,	    /* was asked for again while in QUEUE_SMALL, or soon after it left */
	QUEUE_PARKED_SMALL, /* busy when it was offered; where it came from */
	QUEUE_PARKED_MAIN,
};

/* Head is the youngest; victims come from the tail. */
struct fifo {
	struct policy_node head;
	uint64_t pages;
};

/* Fingerprint in the upper half, time in the lower; 0 is empty. */
struct ghost_bucket {
	uint32_t entry[GHOST_WAYS];
};

struct ghost {
	struct ghost_bucket *buckets;
	uint64_t mask;
};

struct policy {
	struct fifo small, main, parked;
	uint64_t small_target; /* pages */
	uint64_t count;
	uint64_t skips; /* offered and skipped since the last one that was taken */

	struct ghost ghost;	/* buckets may be NULL: no memory for it, so nothing is remembered */
	struct ghost old_ghost; /* what was there before it grew; not written to, fades away */
	uint64_t evicted;	/* pages that left from small: the ghost's clock */
	unsigned unit_shift;	/* pages to units */
	uint16_t max_age;	/* units */
};

static void fifo_init(struct fifo *q)
{
	q->head.pn_next = q->head.pn_prev = &q->head;
	q->pages = 0;
}

static bool fifo_empty(const struct fifo *q)
{
	return q->head.pn_next == &q->head;
}

static void fifo_link(struct fifo *q, struct policy_node *n, struct policy_node *after)
{
	n->pn_prev = after;
	n->pn_next = after->pn_next;
	after->pn_next->pn_prev = n;
	after->pn_next = n;
	q->pages += n->pn_pages;
}

static void fifo_push(struct fifo *q, struct policy_node *n)
{
	fifo_link(q, n, &q->head);
}

static void fifo_push_oldest(struct fifo *q, struct policy_node *n)
{
	fifo_link(q, n, q->head.pn_prev);
}

static void fifo_remove(struct fifo *q, struct policy_node *n)
{
	n->pn_prev->pn_next = n->pn_next;
	n->pn_next->pn_prev = n->pn_prev;
	q->pages -= n->pn_pages;
}

static struct policy_node *fifo_oldest(struct fifo *q)
{
	return q->head.pn_prev;
}

static struct fifo *fifo_of(struct policy *p, const struct policy_node *n)
{
	switch ((enum queue)n->pn_queue) {
	case QUEUE_SMALL:
		return &p->small;
	case QUEUE_MAIN:
		return &p->main;
	case QUEUE_PARKED_SMALL:
	case QUEUE_PARKED_MAIN:
		return &p->parked;
	case QUEUE_NONE:
		break;
	}
	return NULL;
}

static uint32_t ghost_fingerprint(uint64_t hash)
{
	uint32_t fp = (uint32_t)(hash >> 48);

	return (fp ? fp : 1) << 16;
}

static uint16_t ghost_now(const struct policy *p)
{
	return (uint16_t)(p->evicted >> p->unit_shift);
}

static uint16_t ghost_age(const struct policy *p, uint32_t entry)
{
	return (uint16_t)(ghost_now(p) - (uint16_t)entry);
}

static void ghost_add(struct policy *p, uint64_t hash)
{
	uint32_t fp = ghost_fingerprint(hash), *bucket, *slot;

	if (!p->ghost.buckets)
		return;
	bucket = p->ghost.buckets[hash & p->ghost.mask].entry;
	slot = bucket;
	for (int i = 0; i < GHOST_WAYS; i++) {
		if (!bucket[i] || (bucket[i] & 0xffff0000u) == fp) {
			slot = &bucket[i];
			break;
		}
		if (ghost_age(p, bucket[i]) > ghost_age(p, *slot))
			slot = &bucket[i];
	}
	*slot = fp | ghost_now(p);
}

/* True when the hash is in the table and not too old; it is forgotten. */
static bool ghost_take(const struct policy *p, struct ghost *g, uint64_t hash)
{
	uint32_t fp = ghost_fingerprint(hash), *bucket;

	if (!g->buckets)
		return false;
	bucket = g->buckets[hash & g->mask].entry;
	for (int i = 0; i < GHOST_WAYS; i++)
		if ((bucket[i] & 0xffff0000u) == fp) {
			bool fresh = ghost_age(p, bucket[i]) <= p->max_age;

			bucket[i] = 0;
			return fresh;
		}
	return false;
}

static int ghost_alloc(struct ghost *g, uint64_t buckets)
{
	g->buckets = calloc(buckets, sizeof(*g->buckets));
	g->mask = buckets - 1;
	return g->buckets ? 0 : -1;
}

static void ghost_free(struct ghost *g)
{
	free(g->buckets);
	g->buckets = NULL;
}

/*
 * One entry of 4 bytes for each of the evicted blocks to remember, at most GHOST_CAPACITIES times as many as are here.
 * Nothing is copied when it grows: the old table is asked as well until the next time.
 */
static void ghost_grow(struct policy *p)
{
	uint64_t buckets = p->ghost.mask + 1;
	struct ghost bigger;

	if (p->count * GHOST_CAPACITIES <= buckets * GHOST_WAYS || ghost_alloc(&bigger, buckets * 2) < 0)
		return;
	ghost_free(&p->old_ghost);
	p->old_ghost = p->ghost;
	p->ghost = bigger;
}

struct policy *policy_new(uint64_t capacity_bytes)
{
	struct policy *p = calloc(1, sizeof(*p));

	if (!p || ghost_alloc(&p->ghost, 64) < 0)
		return policy_free(p);
	fifo_init(&p->small);
	fifo_init(&p->main);
	fifo_init(&p->parked);
	policy_resize(p, capacity_bytes);
	return p;
}

struct policy *policy_free(struct policy *p)
{
	if (!p)
		return NULL;
	ghost_free(&p->ghost);
	ghost_free(&p->old_ghost);
	free(p);
	return NULL;
}

/* Entries made with another unit of time would lie about their age. */
static void ghost_clear(struct ghost *g)
{
	for (uint64_t i = 0; g->buckets && i <= g->mask; i++)
		g->buckets[i] = (struct ghost_bucket){0};
}

void policy_resize(struct policy *p, uint64_t capacity_bytes)
{
	uint64_t pages = capacity_bytes >> PAGE_SHIFT;
	unsigned shift = 0;

	while ((pages * GHOST_CAPACITIES) >> shift > GHOST_UNITS)
		shift++;
	if (shift != p->unit_shift) {
		p->unit_shift = shift;
		ghost_clear(&p->ghost);
		ghost_free(&p->old_ghost);
	}
	p->max_age = (uint16_t)((pages * GHOST_CAPACITIES) >> shift);
	p->small_target = pages / SMALL_DIVISOR;
}

static uint32_t pages_of(uint64_t bytes)
{
	uint64_t pages = (bytes >> PAGE_SHIFT) + !!(bytes & ((1u << PAGE_SHIFT) - 1));

	if (pages == 0)
		return 1;
	return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

static void enqueue(struct policy *p, struct policy_node *n, enum queue queue)
{
	n->pn_queue = (uint8_t)queue;
	fifo_push(fifo_of(p, n), n);
}

static void move(struct policy *p, struct policy_node *n, enum queue queue)
{
	fifo_remove(fifo_of(p, n), n);
	enqueue(p, n, queue);
}

void policy_insert(struct policy *p, struct policy_node *n, uint64_t key_hash, uint64_t bytes)
{
	bool known = ghost_take(p, &p->ghost, key_hash) || ghost_take(p, &p->old_ghost, key_hash);

	n->pn_hash = key_hash;
	n->pn_pages = pages_of(bytes);
	atomic_store_explicit(&n->pn_freq, 0, memory_order_relaxed);
	enqueue(p, n, known ? QUEUE_MAIN : QUEUE_SMALL);
	p->count++;
	p->skips = 0;
	ghost_grow(p);
}

void policy_remove(struct policy *p, struct policy_node *n)
{
	if (n->pn_queue == QUEUE_NONE)
		return;
	fifo_remove(fifo_of(p, n), n);
	n->pn_queue = QUEUE_NONE;
	p->count--;
}

void policy_reweigh(struct policy *p, struct policy_node *n, uint64_t bytes)
{
	struct fifo *q = fifo_of(p, n);

	if (!q)
		return;
	q->pages -= n->pn_pages;
	n->pn_pages = pages_of(bytes);
	q->pages += n->pn_pages;
}

static enum queue unparked(const struct policy_node *n)
{
	return n->pn_queue == QUEUE_PARKED_SMALL ? QUEUE_SMALL : QUEUE_MAIN;
}

void policy_ready(struct policy *p, struct policy_node *n)
{
	if (fifo_of(p, n) != &p->parked)
		return;
	/* Somebody held it until now: it is as young as a new one. */
	move(p, n, unparked(n));
	p->skips = 0;
}

/* Puts the longest parked back to where they are offered next. */
static void reoffer(struct policy *p, unsigned max)
{
	for (unsigned i = 0; i < max && !fifo_empty(&p->parked); i++) {
		struct policy_node *n = fifo_oldest(&p->parked);

		fifo_remove(&p->parked, n);
		n->pn_queue = (uint8_t)unparked(n);
		fifo_push_oldest(fifo_of(p, n), n);
	}
}

/* Gives a node that was asked for another round; false when it was not. */
static bool promote(struct policy *p, struct policy_node *n)
{
	uint8_t f = atomic_load_explicit(&n->pn_freq, memory_order_relaxed);

	if (f == 0)
		return false;
	/* A reader that counts at this moment may be lost or count double: either is harmless. */
	atomic_store_explicit(&n->pn_freq, n->pn_queue == QUEUE_SMALL ? 0 : (uint8_t)(f - 1), memory_order_relaxed);
	move(p, n, QUEUE_MAIN);
	return true;
}

/* The next in order; NULL: none that is not parked. *promotions counts down. */
static struct policy_node *next_victim(struct policy *p, unsigned *promotions)
{
	for (;;) {
		struct fifo *q = p->small.pages > p->small_target || fifo_empty(&p->main) ? &p->small : &p->main;
		struct policy_node *n = fifo_oldest(q);

		if (fifo_empty(q))
			return NULL;
		if (*promotions == 0 || !promote(p, n))
			return n;
		--*promotions;
	}
}

static void take(struct policy *p, struct policy_node *n)
{
	if (n->pn_queue == QUEUE_SMALL) {
		p->evicted += n->pn_pages;
		ghost_add(p, n->pn_hash);
	}
	policy_remove(p, n);
	p->skips = 0;
}

static void park(struct policy *p, struct policy_node *n)
{
	move(p, n, n->pn_queue == QUEUE_SMALL ? QUEUE_PARKED_SMALL : QUEUE_PARKED_MAIN);
	p->skips++;
}

uint64_t policy_victims(struct policy *p, uint64_t bytes, policy_visit_fn *visit, void *arg)
{
	uint64_t taken = 0, want = pages_of(bytes), left = p->count;
	unsigned promotions = PROMOTE_MAX, skipped = 0;

	if (bytes == 0)
		return 0;
	reoffer(p, REOFFER);
	/* left: no node is offered twice in one walk */
	for (; taken < want && left > 0 && skipped < POLICY_WALK_MAX; left--) {
		struct policy_node *n = next_victim(p, &promotions);

		if (!n) {
			reoffer(p, 1);
			n = next_victim(p, &promotions);
		}
		if (visit(arg, n) == POLICY_TAKE) {
			taken += n->pn_pages;
			take(p, n);
			skipped = 0;
		} else {
			park(p, n);
			skipped++;
		}
	}
	return taken << PAGE_SHIFT;
}

bool policy_exhausted(const struct policy *p)
{
	return fifo_empty(&p->small) && fifo_empty(&p->main) && p->skips >= p->count;
}

uint64_t policy_bytes(const struct policy *p)
{
	return (p->small.pages + p->main.pages + p->parked.pages) << PAGE_SHIFT;
}

uint64_t policy_count(const struct policy *p)
{
	return p->count;
}
