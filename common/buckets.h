/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of elements that embed a struct bucket_link; it owns none of them. Many small tables in one: each takes
 * the elements of a part of the hashes and grows by itself, so no insert pays for more than a thousandth of a rehash,
 * however many there are. Nothing fails: without memory the chains get longer.
 *
 * The link keeps the whole 64-bit hash, so growing does not look at the elements, and a look-up looks at those of an
 * equal hash only: for (l = buckets_find(b, hash); l; l = bucket_next(l)) ...
 * Not thread safe: the owner of the table says which lock guards it.
 */
#ifndef COMMON_BUCKETS_H
#define COMMON_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#define BUCKET_GROUPS 1024u /* a power of two */

struct bucket_link {
	struct bucket_link *next;
	uint64_t hash;
};

struct bucket_group {
	struct bucket_link **slots; /* n_slots, a power of two; NULL: one is all there is */
	struct bucket_link *one;
	uint32_t n_slots, n;
};

/* Zeroed memory is an empty one. */
struct buckets {
	size_t n;
	struct bucket_group groups[BUCKET_GROUPS];
};

/* Forgets all elements and frees its own memory. */
void buckets_fini(struct buckets *b);
/* Puts l, which is in no table, in front of those of an equal hash. */
void buckets_insert(struct buckets *b, struct bucket_link *l, uint64_t hash);
void buckets_remove(struct buckets *b, struct bucket_link *l); /* it is in the table */
/* Calls fn with each element, which it may remove; it must not insert. */
void buckets_each(struct buckets *b, void (*fn)(void *arg, struct bucket_link *l), void *arg);
/* An element at the next place that has any, round and round; *hand, 0 at first, remembers it. NULL: there is none. */
struct bucket_link *buckets_any(struct buckets *b, uint64_t *hand);

/* l, or the next behind it, if its hash is this one; NULL: there is none. */
static inline struct bucket_link *bucket_equal(struct bucket_link *l, uint64_t hash)
{
	while (l && l->hash != hash)
		l = l->next;
	return l;
}

static inline struct bucket_link *bucket_next(const struct bucket_link *l)
{
	return bucket_equal(l->next, l->hash);
}

/* The group took the top bits. */
static inline struct bucket_link *buckets_find(const struct buckets *b, uint64_t hash)
{
	const struct bucket_group *g = &b->groups[hash >> 54];

	return bucket_equal(g->slots ? g->slots[hash & (g->n_slots - 1)] : g->one, hash);
}

#endif
