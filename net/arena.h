/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what lives as long as one frame is looked at: nothing is freed alone, everything at once, and there is a
 * limit, so that a few bytes from a stranger cannot become a lot of memory. One thread's.
 */
#ifndef NET_ARENA_H
#define NET_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks; /* newest first */
	uint8_t *at, *end;	    /* what is left of the newest, or of first */
	size_t left;		    /* bytes that may still be given out */
	bool no_memory;		    /* malloc() failed; else it was the limit */
	/* Enough for most frames, so that they need no malloc(). */
	_Alignas(max_align_t) uint8_t first[2048];
};

void arena_init(struct arena *a, size_t limit);
void arena_fini(struct arena *a);
/* Not zeroed; NULL without memory, or above the limit. */
void *arena_alloc(struct arena *a, size_t n);

#endif
