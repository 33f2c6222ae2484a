/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why names that stand for nothing do so: a small table of recent ones by hash. What is forgotten, or was never known,
 * is MSG_MISS_NEVER; two names that share a hash share a reason, which only ever shows in a metric.
 */
#ifndef MASTER_MISSES_H
#define MASTER_MISSES_H

#include "master/state.h"

#define MISS_SLOTS (1u << 18)

int misses_init(struct core *c); /* 0, -ENOMEM */
/* MSG_MISS_NEVER forgets the name. */
void miss_set(struct core *c, uint32_t hash, enum msg_miss reason);
enum msg_miss miss_get(const struct core *c, uint32_t hash);

#endif
