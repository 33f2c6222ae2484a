/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of the cluster: who is in, and what goes with one that leaves or dies.
 */
#ifndef MASTER_MEMBERS_H
#define MASTER_MEMBERS_H

#include "master/state.h"

static inline struct member *member_live(const struct core *c, uint32_t node)
{
	struct member *mem = node < c->n_members ? c->members[node] : NULL;

	return mem && mem->live ? mem : NULL;
}

/* One that is live, or is coming back. */
static inline struct member *member_joined(const struct core *c, uint32_t node)
{
	struct member *mem = node < c->n_members ? c->members[node] : NULL;

	return mem && (mem->live || mem->inventory) ? mem : NULL;
}

/* The record of a node, made if need be. NULL: no memory. */
struct member *member_make(struct core *c, uint32_t node);
/*
 * Its replicas, puts, gets, grants and leases go; objects that lose their last copy of something are gone. 0, or
 * -ENOMEM when some are left: to be called again.
 */
int member_gone(struct core *c, struct member *mem);
/* The same for all that are marked as over, in one walk over everything there is. */
int members_drop(struct core *c);
/* Whether some block of it has no replica. */
bool version_is_lost(const struct inode *i);
/* Its catalogue row, pointing into it. */
void member_record(const struct member *mem, struct write_rec *rec);
void members_fini(struct core *c);

/* Nodes that have given no sign of life. Returns the nanoseconds until the next could be due. */
uint64_t members_tick(struct core *c);

int op_join(struct core *c, struct msg *m);
int op_heartbeat(struct core *c, struct msg *m);
int op_leave(struct core *c, struct msg *m);
int op_statfs(struct core *c, struct msg *m);

#endif
