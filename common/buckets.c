/* SPDX-License-Identifier: Apache-2.0 */
#include "common/buckets.h"

#include <stdlib.h>
#include <string.h>

#define MIN_SLOTS 8u
#define MAX_SLOTS (1u << 31)

_Static_assert(BUCKET_GROUPS == 1u << (64 - 54), "ten bits of a hash choose among them");

static struct bucket_group *group_of(struct buckets *b, uint64_t hash)
{
	return &b->groups[hash >> 54];
}

static struct bucket_link **slot_of(struct bucket_group *g, uint64_t hash)
{
	return g->slots ? &g->slots[hash & (g->n_slots - 1)] : &g->one;
}

static uint32_t places(const struct bucket_group *g)
{
	return g->slots ? g->n_slots : 1;
}

void buckets_fini(struct buckets *b)
{
	for (uint32_t i = 0; i < BUCKET_GROUPS; i++)
		free(b->groups[i].slots);
	memset(b, 0, sizeof(*b));
}

static void push(struct bucket_group *g, struct bucket_link *l)
{
	struct bucket_link **slot = slot_of(g, l->hash);

	l->next = *slot;
	*slot = l;
}

static void grow(struct bucket_group *g)
{
	struct bucket_group bigger = {.n_slots = g->slots ? g->n_slots * 2 : MIN_SLOTS, .n = g->n};

	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return;
	for (uint32_t i = 0; i < places(g); i++)
		for (struct bucket_link *l = *slot_of(g, i), *next; l; l = next) {
			next = l->next;
			push(&bigger, l);
		}
	free(g->slots);
	*g = bigger;
}

void buckets_insert(struct buckets *b, struct bucket_link *l, uint64_t hash)
{
	struct bucket_group *g = group_of(b, hash);

	if (g->n >= places(g) && places(g) < MAX_SLOTS)
		grow(g);
	l->hash = hash;
	push(g, l);
	g->n++;
	b->n++;
}

void buckets_remove(struct buckets *b, struct bucket_link *l)
{
	struct bucket_group *g = group_of(b, l->hash);
	struct bucket_link **at = slot_of(g, l->hash);

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	g->n--;
	b->n--;
}

void buckets_each(struct buckets *b, void (*fn)(void *arg, struct bucket_link *l), void *arg)
{
	for (uint32_t i = 0; i < BUCKET_GROUPS; i++)
		for (uint32_t k = 0; k < places(&b->groups[i]); k++)
			for (struct bucket_link *l = *slot_of(&b->groups[i], k), *next; l; l = next) {
				next = l->next;
				fn(arg, l);
			}
}

struct bucket_link *buckets_any(struct buckets *b, uint64_t *hand)
{
	uint32_t group = (uint32_t)(*hand >> 32) % BUCKET_GROUPS, place = (uint32_t)*hand;
	struct bucket_link *l = NULL;

	while (b->n && !l) {
		struct bucket_group *g = &b->groups[group];

		if (g->n && place < places(g)) {
			l = *slot_of(g, place++);
		} else {
			group = (group + 1) % BUCKET_GROUPS;
			place = 0;
		}
	}
	*hand = (uint64_t)group << 32 | place;
	return l;
}
