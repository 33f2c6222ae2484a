/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions that nodes hold: somebody there has one open. A held version that loses its name is told to nobody to be
 * dropped until the last node has released it, and its last copy in memory is not evicted. A version that nobody holds
 * costs nothing.
 */
#ifndef MASTER_HOLDS_H
#define MASTER_HOLDS_H

#include "master/state.h"

void holds_init(struct core *c);
void holds_fini(struct core *c);
static inline bool is_held(const struct inode *i)
{
	return (i->flags & INODE_HELD) != 0;
}
/* Nobody holds the version any more, for it ends. */
void holds_end(struct core *c, struct inode *i);
/* The node holds nothing any more. */
void holds_gone(struct core *c, uint32_t node);

int op_hold(struct core *c, struct msg *m);
int op_release(struct core *c, struct msg *m);

static inline struct hold *hold_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->holds, h);
}

#endif
