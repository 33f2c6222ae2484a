/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may keep a name without asking. An inode remembers one node that holds a lease on its name, or that several may;
 * a revoke to a node that holds none does no harm.
 */
#ifndef MASTER_LEASE_H
#define MASTER_LEASE_H

#include "master/state.h"

/* The node holds a lease on the inode's name from now on. Returns its sequence. */
uint64_t lease_grant(struct core *c, struct inode *i, uint32_t node);
/* Ends the leases on the inode's name, but for those of node `but` (0: none is spared), which is told otherwise. */
void lease_revoke(struct core *c, struct inode *i, uint32_t but, enum msg_revoke_reason reason);

#endif
