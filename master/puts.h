/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts from their start to their end. A put that runs is a ticket: its grants, its deadline, perhaps a reserved name.
 */
#ifndef MASTER_PUTS_H
#define MASTER_PUTS_H

#include "master/names.h"
#include "master/state.h"

int puts_init(struct core *c);
void puts_fini(struct core *c);

int op_put_start(struct core *c, struct msg *m);
int op_put_extend(struct core *c, struct msg *m);
int op_put_reserve(struct core *c, struct msg *m);
int op_put_done(struct core *c, struct msg *m); /* master/publish.c */
int op_put_revoke(struct core *c, struct msg *m);
int op_put_renew(struct core *c, struct msg *m);

/* The ticket that has reserved the name, or NULL. */
struct ticket *ticket_reserving(const struct core *c, const struct name_arg *n);
/* Any node's with that id; 0: none. */
uint32_t ticket_find(const struct core *c, uint64_t id);
/* The sender's ticket with that id: 0 with its handle, -ESTALE. */
int ticket_of(const struct core *c, const struct msg *m, uint32_t *ret);
static inline struct ticket *ticket_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->tickets, h);
}
/* The ticket's grant for a block, or NULL. */
struct grant *ticket_grant(const struct ticket *t, uint32_t block);
uint64_t ticket_granted(const struct ticket *t); /* bytes in all */
/* A ticket without grants, namespace and block size. 0, -ENOMEM. */
int ticket_new(struct core *c, uint64_t id, uint32_t node, uint32_t *ret);
/* The ticket reserves the name, which is free, instead of what it had. 0, -ENOMEM. */
int ticket_reserve(struct core *c, uint32_t h, const struct name_arg *n);
/* The block, which has no grant, has the item's allocation and bytes; the ledger is the caller's. 0, -ENOMEM. */
int ticket_take_grant(struct ticket *t, const struct msg_item *it);
/* The name of an O_EXCL put: -EEXIST when it stands for something or is somebody's. */
int put_name_free(struct core *c, const struct msg *m, struct name_arg *ret);
/* Ends the ticket; its grants are no longer the caller's concern (they are given back or used by then). */
void ticket_end(struct core *c, uint32_t h);
/* The node's tickets end, and their grants with them. */
void tickets_gone(struct core *c, uint32_t node);
/* Those without a sign of life for too long end. Returns the nanoseconds until the next could. */
uint64_t tickets_tick(struct core *c);

#endif
