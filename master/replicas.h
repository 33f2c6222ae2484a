/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What owners say about the replicas they have: a new SSD copy, one that the ring has lost, one they want to evict, the
 * end of a dropped version, files that are unlinked.
 */
#ifndef MASTER_REPLICAS_H
#define MASTER_REPLICAS_H

#include "master/state.h"

int op_ssd_commit(struct core *c, struct msg *m);
int op_ssd_evict(struct core *c, struct msg *m);
int op_mem_evict(struct core *c, struct msg *m);
int op_delete_ack(struct core *c, struct msg *m);
int op_alloc_freed(struct core *c, struct msg *m);

/*
 * The node has no SSD copy of the block any more. asker: the node whose answer tells, should the object be gone with
 * it (0: none's does). 1 if it is gone, 0 if not, -ENOENT if there was no such copy, -ENOMEM.
 */
int ssd_replica_lost(struct core *c, uint64_t put_id, uint32_t block, uint32_t node, uint32_t asker);

#endif
