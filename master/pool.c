/* SPDX-License-Identifier: Apache-2.0 */
#include "master/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)

void pool_init(struct pool *p, size_t size, unsigned shift)
{
	memset(p, 0, sizeof(*p));
	p->size = size;
	p->shift = shift;
	p->top = 1;
}

void pool_fini(struct pool *p)
{
	for (uint32_t i = 0; i < p->n_chunks; i++)
		free(p->chunks[i]);
	free(p->chunks);
	memset(p, 0, sizeof(*p));
}

static uint8_t *new_chunk(const struct pool *p)
{
	size_t bytes = p->size << p->shift;
	uint8_t *chunk;

	if (bytes % HUGE_PAGE)
		return calloc(1, bytes);
	chunk = aligned_alloc(HUGE_PAGE, bytes);
	if (!chunk)
		return NULL;
	madvise(chunk, bytes, MADV_HUGEPAGE); /* or not, where there are none */
	memset(chunk, 0, bytes);
	return chunk;
}

static int add_chunk(struct pool *p)
{
	if (p->n_chunks == p->cap_chunks) {
		uint32_t cap = p->cap_chunks ? p->cap_chunks * 2 : 16;
		uint8_t **chunks = realloc(p->chunks, cap * sizeof(*chunks));

		if (!chunks)
			return -ENOMEM;
		p->chunks = chunks;
		p->cap_chunks = cap;
	}
	p->chunks[p->n_chunks] = new_chunk(p);
	if (!p->chunks[p->n_chunks])
		return -ENOMEM;
	p->n_chunks++;
	return 0;
}

uint32_t pool_alloc(struct pool *p)
{
	uint32_t h = p->free_head;

	if (h) {
		uint32_t *link = pool_get(p, h);

		p->free_head = *link;
		*link = 0;
	} else {
		if (p->top == UINT32_MAX)
			return 0;
		if ((p->top >> p->shift) >= p->n_chunks && add_chunk(p) < 0)
			return 0;
		h = p->top++;
	}
	p->used++;
	return h;
}

void pool_free(struct pool *p, uint32_t h)
{
	void *e = pool_get(p, h);

	memset(e, 0, p->size);
	memcpy(e, &p->free_head, sizeof(p->free_head));
	p->free_head = h;
	p->used--;
}

uint64_t pool_memory(const struct pool *p)
{
	return ((uint64_t)p->n_chunks * p->size << p->shift) + (uint64_t)p->cap_chunks * sizeof(*p->chunks);
}
