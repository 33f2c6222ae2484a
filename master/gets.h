/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets from their plan to their end: a source, and a target that is granted on the requester.
 */
#ifndef MASTER_GETS_H
#define MASTER_GETS_H

#include "master/state.h"

int gets_init(struct core *c);
void gets_fini(struct core *c);

int op_get_start(struct core *c, struct msg *m);
int op_get_done(struct core *c, struct msg *m);
int op_get_revoke(struct core *c, struct msg *m);

/* Whether a get reads the node's memory copy of the block. */
bool gets_read_memory(const struct core *c, uint64_t put_id, uint32_t block, uint32_t node);
/* The gets of the node, and those that it is the source of, end, and their grants with them. */
void gets_gone(struct core *c, uint32_t node);
/* Those that have run for too long end. Returns the nanoseconds until the next could. */
uint64_t gets_tick(struct core *c);
static inline struct get *get_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->gets, h);
}

#endif
