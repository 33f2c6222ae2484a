/* SPDX-License-Identifier: Apache-2.0 */
#include "master/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MIN 64u
#define TABLE_MAX (1u << 31)

void table_init(struct table *t, const struct table_ops *ops, const void *arg)
{
	memset(t, 0, sizeof(*t));
	t->ops = ops;
	t->arg = arg;
}

void table_fini(struct table *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		free(t->segs[i]);
	free(t->segs);
	memset(t, 0, sizeof(*t));
}

static int add_segment(struct table *t)
{
	if (t->n_segs == t->cap_segs) {
		uint32_t cap = t->cap_segs ? t->cap_segs * 2 : 4;
		uint32_t **segs = realloc(t->segs, cap * sizeof(*segs));

		if (!segs)
			return -ENOMEM;
		t->segs = segs;
		t->cap_segs = cap;
	}
	t->segs[t->n_segs] = calloc(TABLE_SEG, sizeof(uint32_t));
	if (!t->segs[t->n_segs])
		return -ENOMEM;
	t->n_segs++;
	return 0;
}

int table_room(struct table *t)
{
	int r;

	if ((t->buckets >> TABLE_SEG_SHIFT) >= t->n_segs && t->buckets < TABLE_MAX) {
		r = add_segment(t);
		if (r < 0)
			return r;
	}
	if (!t->buckets)
		t->buckets = t->level = TABLE_MIN;
	return 0;
}

static uint32_t *bucket(const struct table *t, uint32_t b)
{
	return &t->segs[b >> TABLE_SEG_SHIFT][b & (TABLE_SEG - 1)];
}

/* Gives the elements of one bucket that belong into the next new one to it. */
static void split(struct table *t)
{
	uint32_t nb = t->buckets, mask = 2 * t->level - 1;
	uint32_t *from = bucket(t, nb - t->level), *to = bucket(t, nb);

	t->buckets++;
	if (t->buckets == 2 * t->level)
		t->level *= 2;
	/* Walks by the links' places, so that moving one out needs no look back. */
	while (*from) {
		uint32_t h = *from, *link = t->ops->link(t->arg, h);

		if ((t->ops->hash(t->arg, h) & mask) != nb) {
			from = link;
			continue;
		}
		*from = *link;
		*link = *to;
		*to = h;
	}
}

void table_insert(struct table *t, uint32_t h)
{
	uint32_t *head;

	/* One bucket for one element keeps chains near one; without a segment they only grow a little longer. */
	if (t->count >= t->buckets && (t->buckets >> TABLE_SEG_SHIFT) < t->n_segs)
		split(t);
	head = bucket(t, table_bucket(t, t->ops->hash(t->arg, h)));
	*t->ops->link(t->arg, h) = *head;
	*head = h;
	t->count++;
}

void table_remove(struct table *t, uint32_t h)
{
	uint32_t *at = bucket(t, table_bucket(t, t->ops->hash(t->arg, h)));

	while (*at != h)
		at = t->ops->link(t->arg, *at);
	*at = *t->ops->link(t->arg, h);
	*t->ops->link(t->arg, h) = 0;
	t->count--;
}

void table_clear(struct table *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		memset(t->segs[i], 0, TABLE_SEG * sizeof(uint32_t));
	t->count = 0;
}

uint64_t table_memory(const struct table *t)
{
	return (uint64_t)t->n_segs * TABLE_SEG * sizeof(uint32_t) + (uint64_t)t->cap_segs * sizeof(*t->segs);
}
