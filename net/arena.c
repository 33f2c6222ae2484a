/* SPDX-License-Identifier: Apache-2.0 */
#include "net/arena.h"

#include <stdlib.h>

#include "common/size.h"

#define CHUNK (32u * 1024)

struct arena_chunk {
	struct arena_chunk *next;
	_Alignas(max_align_t) uint8_t data[];
};

void arena_init(struct arena *a, size_t limit)
{
	a->chunks = NULL;
	a->at = a->first;
	a->end = a->first + sizeof(a->first);
	a->left = limit;
	a->no_memory = false;
}

void arena_fini(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *next = a->chunks->next;

		free(a->chunks);
		a->chunks = next;
	}
}

static bool new_chunk(struct arena *a, size_t n)
{
	size_t size = n > CHUNK ? n : CHUNK;
	struct arena_chunk *c = malloc(sizeof(*c) + size);

	if (!c) {
		a->no_memory = true;
		return false;
	}
	c->next = a->chunks;
	a->chunks = c;
	a->at = c->data;
	a->end = c->data + size;
	return true;
}

void *arena_alloc(struct arena *a, size_t n)
{
	void *ret;

	if (n > a->left)
		return NULL;
	n = align_up(n ? n : 1, _Alignof(max_align_t));
	if (n > (size_t)(a->end - a->at) && !new_chunk(a, n))
		return NULL;
	a->left -= n < a->left ? n : a->left;
	ret = a->at;
	a->at += n;
	return ret;
}
