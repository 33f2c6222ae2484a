/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects that expire, soonest first: a binary heap of inode handles; each inode knows its place.
 */
#ifndef MASTER_HEAP_H
#define MASTER_HEAP_H

#include "master/state.h"

/* Makes sure that the next heap_set() cannot fail. 0, -ENOMEM. */
int heap_room(struct core *c);
/* Puts the inode where its expires_ns belongs; takes it out when that is 0. After heap_room(). */
void heap_set(struct core *c, uint32_t h);
void heap_remove(struct core *c, uint32_t h); /* harmless when it is not there */
static inline uint32_t heap_top(const struct core *c)
{
	return c->heap_n ? c->heap[1] : 0;
}

#endif
