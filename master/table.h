/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table over elements of a pool. It grows by one bucket at a time (linear hashing), so no operation ever pays
 * for a whole rehash, and costs four bytes a bucket and the chain link in the element.
 *
 * The table stores handles and knows elements only through two functions: their hash, and where their chain link is.
 * A look-up walks a chain itself: for (h = table_head(t, hash); h; h = *link(arg, h)) ...
 * The owner sees to it that one thread uses it at a time.
 */
#ifndef MASTER_TABLE_H
#define MASTER_TABLE_H

#include <stdint.h>

#define TABLE_SEG_SHIFT 12
#define TABLE_SEG (1u << TABLE_SEG_SHIFT) /* buckets a segment */

struct table_ops {
	uint32_t (*hash)(const void *arg, uint32_t h);
	uint32_t *(*link)(const void *arg, uint32_t h);
};

struct table {
	const struct table_ops *ops;
	const void *arg;
	uint32_t **segs;
	uint32_t n_segs, cap_segs;
	uint32_t level;	  /* a power of two: level <= buckets < 2 * level */
	uint32_t buckets; /* 0 before the first table_room() */
	uint32_t count;
};

void table_init(struct table *t, const struct table_ops *ops, const void *arg);
void table_fini(struct table *t);
/* Makes sure that the next insert cannot fail. 0, -ENOMEM. */
int table_room(struct table *t);
/* After table_room(). */
void table_insert(struct table *t, uint32_t h);
void table_remove(struct table *t, uint32_t h); /* it is in the table */
void table_clear(struct table *t);		/* forgets all elements, keeps the buckets */
uint64_t table_memory(const struct table *t);

static inline uint32_t table_bucket(const struct table *t, uint32_t hash)
{
	uint32_t b = hash & (2 * t->level - 1);

	return b < t->buckets ? b : b & (t->level - 1);
}

static inline uint32_t table_head(const struct table *t, uint32_t hash)
{
	uint32_t b;

	if (!t->buckets)
		return 0;
	b = table_bucket(t, hash);
	return t->segs[b >> TABLE_SEG_SHIFT][b & (TABLE_SEG - 1)];
}

#endif
