/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a put's bytes go. Today that is the writer's own node, if it contributes memory: the only case there is on one
 * machine. Other targets need the transfers between nodes.
 */
#ifndef MASTER_PLACEMENT_H
#define MASTER_PLACEMENT_H

#include "master/state.h"

struct placement {
	struct member *target;
	bool persist; /* to the SSD tier after the put; fixed for its life */
};

/* A target with room for that many bytes. -ENOSPC: none has; ret->target is then the one whose ledger to tell. */
int placement_pick(const struct core *c, const struct space *s, uint32_t writer, uint64_t bytes, struct placement *ret);

#endif
