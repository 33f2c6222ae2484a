/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"

static uint64_t key_hash(struct ssd_key key)
{
	return hash_u64(key.id + key.block * 0x9e3779b97f4a7c15ull);
}

static struct ssd_table *table_of(const struct ssd_index *ix, uint64_t hash)
{
	return (struct ssd_table *)&ix->tables[hash >> 56];
}

int ssd_index_init(struct ssd_index *ix, uint32_t max)
{
	size_t n = (size_t)max / SSD_SLAB + 1;

	*ix = (struct ssd_index){.max = max, .free = SSD_NIL};
	ix->slabs = calloc(n, sizeof(*ix->slabs));
	if (!ix->slabs)
		return -ENOMEM;
	ix->bytes = n * sizeof(*ix->slabs);
	return 0;
}

void ssd_index_free(struct ssd_index *ix)
{
	for (uint32_t i = 0; i < ix->n_slabs; i++)
		free(ix->slabs[i]);
	free(ix->slabs);
	for (unsigned i = 0; i < 256; i++)
		free(ix->tables[i].slot);
	*ix = (struct ssd_index){.free = SSD_NIL};
}

static int add_slab(struct ssd_index *ix)
{
	uint32_t first = ix->n_slabs * SSD_SLAB, n = ix->max - first < SSD_SLAB ? ix->max - first : SSD_SLAB;
	struct ssd_entry *slab;

	if (first >= ix->max)
		return -ENOBUFS;
	slab = malloc(n * sizeof(*slab));
	if (!slab)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		slab[i].next = i + 1 < n ? first + i + 1 : SSD_NIL;
	ix->slabs[ix->n_slabs++] = slab;
	ix->bytes += n * sizeof(*slab);
	ix->free = first;
	return 0;
}

int ssd_index_new(struct ssd_index *ix, struct ssd_key key, uint32_t *ret)
{
	struct ssd_entry *e;

	if (ix->free == SSD_NIL) {
		int r = add_slab(ix);

		if (r < 0)
			return r;
	}
	*ret = ix->free;
	e = ssd_entry(ix, ix->free);
	ix->free = e->next;
	*e = (struct ssd_entry){.id = key.id, .block = key.block, .next = SSD_NIL};
	return 0;
}

void ssd_index_release(struct ssd_index *ix, uint32_t i)
{
	ssd_entry(ix, i)->next = ix->free;
	ix->free = i;
}

/* Where the key's slot is, or the free one where it would go. The table has a free slot. */
static uint32_t probe(const struct ssd_index *ix, const struct ssd_table *t, struct ssd_key key, uint64_t hash)
{
	uint32_t mask = t->size - 1, at = (uint32_t)hash & mask;

	for (; t->slot[at] != SSD_NIL; at = (at + 1) & mask) {
		const struct ssd_entry *e = ssd_entry(ix, t->slot[at]);

		if (e->id == key.id && e->block == key.block)
			break;
	}
	return at;
}

uint32_t ssd_index_find(const struct ssd_index *ix, struct ssd_key key)
{
	uint64_t hash = key_hash(key);
	const struct ssd_table *t = table_of(ix, hash);

	return t->size ? t->slot[probe(ix, t, key, hash)] : SSD_NIL;
}

static void put(struct ssd_index *ix, struct ssd_table *t, uint32_t i)
{
	struct ssd_key key = ssd_entry_key(ssd_entry(ix, i));

	t->slot[probe(ix, t, key, key_hash(key))] = i;
	t->used++;
}

static int grow(struct ssd_index *ix, struct ssd_table *t)
{
	struct ssd_table bigger = {.size = t->size ? t->size * 2 : 16};

	bigger.slot = malloc(bigger.size * sizeof(*bigger.slot));
	if (!bigger.slot)
		return -ENOMEM;
	memset(bigger.slot, 0xff, bigger.size * sizeof(*bigger.slot));
	for (uint32_t at = 0; at < t->size; at++)
		if (t->slot[at] != SSD_NIL)
			put(ix, &bigger, t->slot[at]);
	ix->bytes += (bigger.size - t->size) * sizeof(*t->slot);
	free(t->slot);
	*t = bigger;
	return 0;
}

int ssd_index_insert(struct ssd_index *ix, uint32_t i)
{
	struct ssd_table *t = table_of(ix, key_hash(ssd_entry_key(ssd_entry(ix, i))));

	if (t->used + 1 > t->size / 4 * 3) {
		int r = grow(ix, t);

		if (r < 0)
			return r;
	}
	put(ix, t, i);
	return 0;
}

void ssd_index_remove(struct ssd_index *ix, uint32_t i)
{
	struct ssd_key key = ssd_entry_key(ssd_entry(ix, i));
	uint64_t hash = key_hash(key);
	struct ssd_table *t = table_of(ix, hash);
	uint32_t mask = t->size - 1, hole = probe(ix, t, key, hash), at = hole;

	/* Linear probing without tombstones: what was pushed past the hole moves into it, unless its home lies behind.
	 */
	while (t->slot[at = (at + 1) & mask] != SSD_NIL) {
		uint32_t home = (uint32_t)key_hash(ssd_entry_key(ssd_entry(ix, t->slot[at]))) & mask;

		if (((at - home) & mask) >= ((at - hole) & mask)) {
			t->slot[hole] = t->slot[at];
			hole = at;
		}
	}
	t->slot[hole] = SSD_NIL;
	t->used--;
}

void ssd_index_replace(struct ssd_index *ix, uint32_t from, uint32_t to)
{
	struct ssd_key key = ssd_entry_key(ssd_entry(ix, from));
	uint64_t hash = key_hash(key);
	struct ssd_table *t = table_of(ix, hash);

	t->slot[probe(ix, t, key, hash)] = to;
}
