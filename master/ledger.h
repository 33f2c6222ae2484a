/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of each node's segment: grants are reserved, replicas are used, and what has lost its replica stays used
 * until its file is unlinked. A grant is made only while used + reserved <= capacity - zombie.
 */
#ifndef MASTER_LEDGER_H
#define MASTER_LEDGER_H

#include "master/state.h"

static inline uint64_t ledger_total(const struct member *mem)
{
	return mem->capacity > mem->zombie ? mem->capacity - mem->zombie : 0;
}

static inline uint64_t ledger_free(const struct member *mem)
{
	uint64_t total = ledger_total(mem), taken = mem->used + mem->reserved;

	return total > taken ? total - taken : 0;
}

/* 0, -ENOSPC. */
int ledger_reserve(struct member *mem, uint64_t bytes);
/* Also where there is no room: what an owner that comes back will turn out not to have is still in the way. */
void ledger_resume(struct member *mem, uint64_t bytes);
void ledger_unreserve(struct member *mem, uint64_t bytes);
/* Reserved bytes are used from now on. */
void ledger_use(struct member *mem, uint64_t bytes);
/* Bytes that nobody has reserved are used: an owner that comes back has them. */
void ledger_found(struct member *mem, uint64_t bytes);
void ledger_unuse(struct member *mem, uint64_t bytes);

int looses_init(struct core *c);
void looses_fini(struct core *c);
/* Makes sure that the next loose_add() cannot fail: a handle for it. 0: no memory. */
uint32_t loose_room(struct core *c);
void loose_unroom(struct core *c, uint32_t h); /* it was not needed */
/* The allocation has no replica any more, or never had one; its bytes stay used until it is freed. */
void loose_add(struct core *c, uint32_t h, uint32_t node, uint64_t alloc, uint64_t bytes, uint64_t put_id);
/* Its file is unlinked. Unknown ones, and those of other nodes, are ignored. */
void loose_freed(struct core *c, uint32_t node, uint64_t alloc);
/* All of a version's on that node are unlinked. */
void loose_freed_version(struct core *c, uint32_t node, uint64_t put_id);
/* All of the node's. */
void looses_gone(struct core *c, uint32_t node);

#endif
