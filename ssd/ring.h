/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring over one shard file: which entry has which range, what may be overwritten, what must be kept. No I/O.
 *
 * Positions count over all laps, so head and tail only grow and head - tail never exceeds the size; the file offset is
 * the position modulo the size. The entries form a list from the oldest (at tail) to the youngest (before head). New
 * ranges are contiguous and aligned; one that does not fit before the end of the file starts again at offset 0.
 *
 * What tail meets when a writer needs room:
 *   Committed, not pinned      is evicted, with a notice
 *   Committed, being read      leaves the hash, with a notice, so that its readers run out; the writer waits
 *   Writing, or commit pinned  the writer waits (BlockedByBusyIo)
 *   held                       moves to head. When there is room between head and tail it is copied there; else it
 *                              stays where it is and head jumps behind it, which costs nothing but the gap, which is
 *                              then smaller than the entry: what holds waste is never more than what they hold
 *   Dead                       is passed
 *
 * Threads: none of this locks; the store's lock guards all rings and their index.
 */
#ifndef SSD_RING_H
#define SSD_RING_H

#include <stdbool.h>

#include "ssd/index.h"

/* Called with the store's lock held for each entry that goes without the caller's wish. */
typedef void (*ssd_gone_fn)(void *arg, struct ssd_key key);

struct ssd_ring {
	struct ssd_index *ix;
	uint64_t size, align;
	uint64_t head, tail;
	uint32_t first, last;	      /* oldest and youngest entry */
	uint64_t used, held, entries; /* aligned bytes, and number, of Writing and Committed entries */
	uint64_t kept;		      /* bytes moved to head since the last range was given out */
	uint64_t kept_in_place;	      /* a count */
	bool moving;		      /* a copy to head is in flight */
	unsigned id;
	ssd_gone_fn gone;
	void *arg;
};

/* A copy to head: from is pinned and goes on being read, to is Writing and has its range. */
struct ssd_move {
	uint32_t from, to;
};

void ssd_ring_init(struct ssd_ring *r, struct ssd_index *ix, unsigned id, uint64_t size, uint64_t align,
		   ssd_gone_fn gone, void *arg);

static inline uint64_t ssd_ring_alen(const struct ssd_ring *r, const struct ssd_entry *e)
{
	return (e->len + r->align - 1) & ~(r->align - 1);
}

static inline uint64_t ssd_ring_offset(const struct ssd_ring *r, const struct ssd_entry *e)
{
	return e->begin % r->size;
}

/* Whether held entries leave n bytes to a writer, and as many as one that can be dropped may take (force is false). */
bool ssd_ring_may_take(const struct ssd_ring *r, uint64_t n, bool force);
/*
 * Gives a Queued entry of at most size bytes its range: it is Writing then, and pinned. Else -EBUSY: ask again when a
 * pin has gone; -ENOSPC: held entries are in the way; 1: do the copy in *ret_move, ssd_ring_moved(), then ask again.
 * A write that can be dropped (force is false) gives way when more than half of the ring is held.
 */
int ssd_ring_reserve(struct ssd_ring *r, uint32_t i, bool force, struct ssd_move *ret_move);

/* The copy has ended; ok: the bytes are there. */
void ssd_ring_moved(struct ssd_ring *r, const struct ssd_move *m, bool ok);

/* Writing to Committed with a commit pin. The caller's pin is not touched. */
void ssd_ring_commit(struct ssd_ring *r, uint32_t i, uint64_t sum);
/* A Writing or Committed entry is wanted no longer; tail passes it when its pins are gone. */
void ssd_ring_kill(struct ssd_ring *r, uint32_t i);
/* The same, with a notice. */
void ssd_ring_evict(struct ssd_ring *r, uint32_t i);
/* One pin less. The entry may be freed by this. */
void ssd_ring_unpin(struct ssd_ring *r, uint32_t i);
/* The range of a pinned entry has not been given to another. */
bool ssd_ring_valid(const struct ssd_ring *r, uint32_t i);

void ssd_ring_hold(struct ssd_ring *r, uint32_t i);
void ssd_ring_unhold(struct ssd_ring *r, uint32_t i);

/* Evicts the oldest entry if it may be overwritten: for an index that is full. Says whether it freed one. */
bool ssd_ring_evict_oldest(struct ssd_ring *r);
/* Evicts up to max Committed entries, held or not: their device is lost. Returns how many. */
unsigned ssd_ring_lose(struct ssd_ring *r, unsigned max);

static inline bool ssd_ring_empty(const struct ssd_ring *r)
{
	return r->first == SSD_NIL;
}

#endif
