/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are answered later. One that moves names waits until every other node that leased them knows
 * (master/lease.h); what it says is done by then, and the catalogue is told. After a start of the master it waits
 * before it is done, until no lease of before can be good any more.
 *
 * A request that comes again meanwhile is answered with the first one, and as it.
 */
#ifndef MASTER_WAITS_H
#define MASTER_WAITS_H

#include "master/state.h"

void waits_init(struct core *c);
void waits_fini(struct core *c);

/* Whether the first of this request waits. */
bool waits_has(const struct core *c, const struct msg *in);
/* The first of it waits: it waits with it. 0, -ENOMEM. */
int wait_with_first(struct core *c, struct msg *in);
/* Before a request that may have to wait. 0, -ENOMEM. */
int wait_room(struct core *c);
/* The step moves the name of that hash: its answer waits for what was said of it. At most two of them. */
void wait_for_name(struct core *c, uint32_t hash);
/* The answer is kept if it has to wait; then this is true, and it is not the caller's any more. */
bool wait_if_need_be(struct core *c, struct msg *answer);
/* Whether no name may move yet; then the request is kept, and done later. */
bool wait_held(struct core *c, struct msg *in);

/* Takes struct wait_ons out of the list that wait for nothing in it any more. */
void waits_look_again(struct core *c, struct list *ons);
/* A node's revoke of all leases is over. */
void waits_look_at_all(struct core *c);
/* At the end of a step: gives the answers that are ready. */
void waits_give(struct core *c);
/* Does what was held, if it may be done. Returns the nanoseconds until that. */
uint64_t waits_tick(struct core *c);
/* Gives back everything that waits, with -ESHUTDOWN. */
void waits_give_up(struct core *c);

#endif
