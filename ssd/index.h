/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a store and the hash from key to entry, made to be small: an entry is 48 bytes in a slab that never
 * moves, named by a 32-bit number; the hash is 256 open tables of such numbers, so that growing one stalls nobody for
 * long. About 56 bytes for an entry in all. Memory of entries that went is used again, not given back before the end.
 *
 * Threads: none of this locks; the store's lock guards an index and all its entries.
 */
#ifndef SSD_INDEX_H
#define SSD_INDEX_H

#include <stdint.h>

#include "ssd/ssd.h"

#define SSD_NIL UINT32_MAX
#define SSD_LEN_BITS 44
#define SSD_SLAB 4096u

enum ssd_state {
	SSD_QUEUED,    /* in the hash, in no ring yet */
	SSD_WRITING,   /* has a range; the device may be writing it */
	SSD_COMMITTED, /* can be read */
	SSD_DEAD,      /* not in the hash; its range is passed by tail, or its owner lets it go */
};

struct ssd_entry {
	uint64_t id;
	uint64_t sum;
	uint64_t begin; /* where in its ring, counted over all laps */
	uint64_t len : SSD_LEN_BITS, ring : 12, state : 2, commit_pin : 1, drop : 1; /* drop: at the last unhold */
	uint32_t block;
	uint32_t next; /* younger neighbour in the ring; in the free list when free */
	uint32_t holds;
	uint32_t pins; /* I/O in flight on its range */
};

struct ssd_table {
	uint32_t *slot; /* SSD_NIL: free */
	uint32_t size;	/* a power of two, or 0 */
	uint32_t used;
};

struct ssd_index {
	struct ssd_entry **slabs;
	uint32_t n_slabs, max, free;
	uint64_t bytes;
	struct ssd_table tables[256];
};

/* At most max entries. -ENOMEM. */
int ssd_index_init(struct ssd_index *ix, uint32_t max);
void ssd_index_free(struct ssd_index *ix);

static inline struct ssd_entry *ssd_entry(const struct ssd_index *ix, uint32_t i)
{
	return &ix->slabs[i / SSD_SLAB][i % SSD_SLAB];
}

static inline struct ssd_key ssd_entry_key(const struct ssd_entry *e)
{
	return (struct ssd_key){.id = e->id, .block = e->block};
}

/* An entry of zeros but for the key, not in the hash. -ENOBUFS when max are in use, -ENOMEM. */
int ssd_index_new(struct ssd_index *ix, struct ssd_key key, uint32_t *ret);
/* Gives back an entry that is not in the hash. */
void ssd_index_release(struct ssd_index *ix, uint32_t i);

/* The entry of a key, or SSD_NIL. */
uint32_t ssd_index_find(const struct ssd_index *ix, struct ssd_key key);
/* Makes the entry the one of its key, which has none. -ENOMEM. */
int ssd_index_insert(struct ssd_index *ix, uint32_t i);
/* Takes an entry out of the hash. */
void ssd_index_remove(struct ssd_index *ix, uint32_t i);
/* to, of the same key, takes the place of from in the hash. */
void ssd_index_replace(struct ssd_index *ix, uint32_t from, uint32_t to);

#endif
