/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/ring.h"

#include <errno.h>

void ssd_ring_init(struct ssd_ring *r, struct ssd_index *ix, unsigned id, uint64_t size, uint64_t align,
		   ssd_gone_fn gone, void *arg)
{
	*r = (struct ssd_ring){
	    .ix = ix,
	    .size = size,
	    .align = align,
	    .first = SSD_NIL,
	    .last = SSD_NIL,
	    .id = id,
	    .gone = gone,
	    .arg = arg,
	};
}

static struct ssd_entry *entry(const struct ssd_ring *r, uint32_t i)
{
	return ssd_entry(r->ix, i);
}

/* Takes the oldest entry off the list; tail moves to the next. */
static uint32_t unlink_first(struct ssd_ring *r)
{
	uint32_t i = r->first;

	r->first = entry(r, i)->next;
	if (r->first == SSD_NIL) {
		/* Empty: begin a lap, so that whatever is not longer than the file fits. */
		r->last = SSD_NIL;
		r->head = r->tail = (r->head + r->size - 1) / r->size * r->size;
	} else {
		r->tail = entry(r, r->first)->begin;
	}
	return i;
}

static void append(struct ssd_ring *r, uint32_t i, uint64_t begin)
{
	struct ssd_entry *e = entry(r, i);

	e->begin = begin;
	e->next = SSD_NIL;
	if (r->last == SSD_NIL) {
		r->first = i;
		r->tail = begin;
	} else {
		entry(r, r->last)->next = i;
	}
	r->last = i;
	r->head = begin + ssd_ring_alen(r, e);
}

/* Passes the dead at tail. */
static void trim(struct ssd_ring *r)
{
	while (r->first != SSD_NIL) {
		const struct ssd_entry *e = entry(r, r->first);

		if (e->state != SSD_DEAD || e->pins)
			return;
		ssd_index_release(r->ix, unlink_first(r));
	}
}

/* Where n bytes would go at head, if that is free. */
static bool place(const struct ssd_ring *r, uint64_t n, uint64_t *ret)
{
	uint64_t begin = r->head, off = begin % r->size;

	if (n > r->size - off)
		begin += r->size - off;
	if (begin + n > r->tail + r->size)
		return false;
	*ret = begin;
	return true;
}

/* Out of the hash and the accounts. */
static void forget(struct ssd_ring *r, uint32_t i)
{
	struct ssd_entry *e = entry(r, i);
	uint64_t n = ssd_ring_alen(r, e);

	ssd_index_remove(r->ix, i);
	e->state = SSD_DEAD;
	r->used -= n;
	r->entries--;
	if (e->holds)
		r->held -= n;
	e->holds = 0;
}

static void forget_gone(struct ssd_ring *r, uint32_t i)
{
	struct ssd_key key = ssd_entry_key(entry(r, i));

	forget(r, i);
	r->gone(r->arg, key);
}

void ssd_ring_kill(struct ssd_ring *r, uint32_t i)
{
	forget(r, i);
	trim(r);
}

void ssd_ring_evict(struct ssd_ring *r, uint32_t i)
{
	forget_gone(r, i);
	trim(r);
}

void ssd_ring_unpin(struct ssd_ring *r, uint32_t i)
{
	entry(r, i)->pins--;
	trim(r);
}

bool ssd_ring_valid(const struct ssd_ring *r, uint32_t i)
{
	return entry(r, i)->begin >= r->tail;
}

static void start_move(struct ssd_ring *r, uint32_t to, uint64_t begin, struct ssd_move *ret)
{
	struct ssd_entry *from = entry(r, r->first), *e = entry(r, to);

	e->len = from->len;
	e->ring = r->id;
	e->state = SSD_WRITING;
	e->pins = 1;
	from->pins++;
	r->moving = true;
	*ret = (struct ssd_move){.from = r->first, .to = to};
	append(r, to, begin);
}

/* The bytes stay, and count as the youngest from now on. */
static void keep_in_place(struct ssd_ring *r)
{
	uint64_t begin = entry(r, r->first)->begin + r->size;
	uint32_t i = unlink_first(r);

	append(r, i, begin);
	r->kept_in_place++;
	trim(r);
}

bool ssd_ring_may_take(const struct ssd_ring *r, uint64_t n, bool force)
{
	return n <= r->size - r->held && (force || r->held <= r->size / 2);
}

/* The oldest entry is held, and a writer needs n bytes. */
static int keep_first(struct ssd_ring *r, uint64_t n, bool force, struct ssd_move *ret_move)
{
	const struct ssd_entry *e = entry(r, r->first);
	uint64_t m = ssd_ring_alen(r, e), begin;
	uint32_t to;

	if (!ssd_ring_may_take(r, n, force))
		return -ENOSPC;
	r->kept += m;
	if (r->kept > r->size) {
		/* All the way round, and still no n bytes in one piece. */
		r->kept = 0;
		return -ENOSPC;
	}
	if (place(r, m, &begin) && !ssd_index_new(r->ix, ssd_entry_key(e), &to)) {
		start_move(r, to, begin, ret_move);
		return 1;
	}
	keep_in_place(r);
	return 0;
}

/* One step of tail for a writer that needs n bytes. */
static int make_room(struct ssd_ring *r, uint64_t n, bool force, struct ssd_move *ret_move)
{
	struct ssd_entry *e = entry(r, r->first);

	if (e->state != SSD_COMMITTED)
		return -EBUSY;
	if (e->holds)
		return keep_first(r, n, force, ret_move);
	if (e->commit_pin)
		return -EBUSY;
	if (e->pins) {
		/* No new readers: else a value that is always being read would stop the ring for ever. */
		forget_gone(r, r->first);
		return -EBUSY;
	}
	ssd_ring_evict(r, r->first);
	return 0;
}

int ssd_ring_reserve(struct ssd_ring *r, uint32_t i, bool force, struct ssd_move *ret_move)
{
	struct ssd_entry *e = entry(r, i);
	uint64_t n = ssd_ring_alen(r, e), begin;

	if (n > r->size)
		return -ENOSPC;
	if (r->moving)
		return -EBUSY;
	while (!place(r, n, &begin)) {
		int err = make_room(r, n, force, ret_move);

		if (err)
			return err;
	}
	r->kept = 0;
	e->ring = r->id;
	e->state = SSD_WRITING;
	e->pins = 1;
	append(r, i, begin);
	r->used += n;
	r->entries++;
	return 0;
}

void ssd_ring_moved(struct ssd_ring *r, const struct ssd_move *m, bool ok)
{
	struct ssd_entry *from = entry(r, m->from), *to = entry(r, m->to);

	r->moving = false;
	if (ok && from->state == SSD_COMMITTED) {
		/* The accounts do not change: to stands for what from was. */
		ssd_index_replace(r->ix, m->from, m->to);
		to->sum = from->sum;
		to->holds = from->holds;
		to->commit_pin = from->commit_pin;
		to->drop = from->drop;
		to->state = SSD_COMMITTED;
		from->state = SSD_DEAD;
	} else {
		to->state = SSD_DEAD;
	}
	to->pins--;
	from->pins--;
	trim(r);
}

void ssd_ring_commit(struct ssd_ring *r, uint32_t i, uint64_t sum)
{
	struct ssd_entry *e = entry(r, i);

	e->state = SSD_COMMITTED;
	e->commit_pin = 1;
	e->sum = sum;
}

void ssd_ring_hold(struct ssd_ring *r, uint32_t i)
{
	struct ssd_entry *e = entry(r, i);

	if (!e->holds++)
		r->held += ssd_ring_alen(r, e);
}

void ssd_ring_unhold(struct ssd_ring *r, uint32_t i)
{
	struct ssd_entry *e = entry(r, i);

	if (--e->holds)
		return;
	r->held -= ssd_ring_alen(r, e);
	if (e->drop)
		ssd_ring_kill(r, i);
}

bool ssd_ring_evict_oldest(struct ssd_ring *r)
{
	const struct ssd_entry *e;

	if (r->first == SSD_NIL)
		return false;
	e = entry(r, r->first);
	if (e->state != SSD_COMMITTED || e->holds || e->commit_pin || e->pins)
		return false;
	ssd_ring_evict(r, r->first);
	return true;
}

unsigned ssd_ring_lose(struct ssd_ring *r, unsigned max)
{
	unsigned n = 0;

	for (uint32_t i = r->first; i != SSD_NIL && n < max; i = entry(r, i)->next) {
		if (entry(r, i)->state != SSD_COMMITTED)
			continue;
		forget_gone(r, i);
		n++;
	}
	trim(r);
	return n;
}
