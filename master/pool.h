/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many small elements of one size, named by 32-bit handles (0 is none). Elements never move, so pointers to them stay
 * good; freed ones are used again. An element is zeroed when it is given out, and again when it is freed, but for its
 * first four bytes.
 *
 * The owner of the pool sees to it that one thread uses it at a time.
 */
#ifndef MASTER_POOL_H
#define MASTER_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool {
	size_t size;	/* of an element, 8 or more */
	unsigned shift; /* a chunk has 1 << shift elements */
	uint8_t **chunks;
	uint32_t n_chunks, cap_chunks;
	uint32_t top; /* handles below it have been given out at least once; starts at 1 */
	uint32_t free_head;
	uint32_t used;
};

/* Chunks of a multiple of 2 MiB get huge pages: random access to many elements is twice as fast with them. */
void pool_init(struct pool *p, size_t size, unsigned shift);
void pool_fini(struct pool *p);
uint32_t pool_alloc(struct pool *p); /* 0: no memory */
void pool_free(struct pool *p, uint32_t h);
uint64_t pool_memory(const struct pool *p);

static inline void *pool_get(const struct pool *p, uint32_t h)
{
	return p->chunks[h >> p->shift] + (h & ((1u << p->shift) - 1)) * p->size;
}

#endif
