/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may keep a name without asking. An inode remembers one node that holds a lease on its name, or that several may;
 * a revoke to a node that holds none does no harm.
 *
 * Where leases have a time (struct core_config), a revoke stays until its node has acknowledged it, and is told again
 * meanwhile; or until the node is gone, or its leases have lapsed: it has renewed none for so long. From a node that
 * does not acknowledge no lease is renewed, so nobody waits for it for much longer than one is good for. What was said
 * of one name stays in a struct moved while any node is left that may not know, and answers wait there
 * (master/waits.h).
 */
#ifndef MASTER_LEASE_H
#define MASTER_LEASE_H

#include "master/state.h"

#define REVOKES_MAX 4096u /* of a node, not acknowledged; beyond, one revoke of all its leases takes their place */

void leases_init(struct core *c);
void leases_fini(struct core *c);
/* The node holds a lease on the inode's name from now on. Returns its sequence. */
uint64_t lease_grant(struct core *c, struct inode *i, uint32_t node);
/* Ends the leases on the inode's name, but for those of node `but` (0: none is spared), which is told otherwise. */
void lease_revoke(struct core *c, struct inode *i, uint32_t but, enum msg_revoke_reason reason);
/* The node sends a heartbeat: how long its leases are good for; 0: as long as before, UINT64_MAX: for ever. */
uint64_t lease_renew(struct core *c, struct member *mem);
/*
 * A node that the catalogue knows: none of its leases is renewed before it has forgotten those that it had from the
 * master before, and no name moves while they may be good (master/waits.h).
 */
void lease_loaded(struct core *c, struct member *mem);
/* A new incarnation, which has none. */
void lease_joined(struct core *c, struct member *mem);
/* A node goes on as the incarnation that the catalogue knew: it is told to forget every lease, and waited for. */
void lease_resumed(struct core *c, struct member *mem);
/* A node has none any more, and nobody waits for it. */
void lease_gone(struct core *c, struct member *mem);
/* At the end of a step: tells the node that all its leases are over, if it is to be told. */
void lease_flush(struct core *c, struct member *mem);
/* Lapsed leases, repeats. Returns the nanoseconds until the next could be due. */
uint64_t leases_tick(struct core *c);

int op_revoke_ack(struct core *c, struct msg *m);

static inline struct moved *moved_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->moved, h);
}

static inline struct revoke *revoke_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->revokes, h);
}

/* Whether the node is the only one left that may not know. */
bool moved_only_to(const struct core *c, const struct moved *mv, uint32_t node);

#endif
