/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an owner that is coming back says it has. It is compared with the catalogue as the pages come: a copy of a
 * version that is still one is taken in, also where the catalogue did not hear of that copy (it may be the last one:
 * the catalogue may have missed that the others went), under the allocation that the owner says, for it is the owner's
 * file; anything else is refused, and the owner frees it. At the end the owner loses in the catalogue whatever it has
 * not said, and is live.
 *
 * All of it is the member's, made by its MSG_JOIN and gone at the end.
 */
#ifndef MASTER_INVENTORY_H
#define MASTER_INVENTORY_H

#include "master/state.h"

/* A new one, from nothing. What the member has said before is forgotten. 0, -ENOMEM with nothing changed. */
int inventory_begin(struct core *c, struct member *mem, uint64_t req_id);
struct inventory *inventory_free(struct inventory *inv); /* takes NULL, returns NULL */
/* The member has to begin again: its puts and loose allocations go, too. */
void inventory_drop(struct core *c, struct member *mem);

/*
 * The allocation is that of a put's block: 0, -EINVAL when it cannot be, or is something else's, -ENOMEM. unclaim takes
 * that back.
 */
int inventory_claim(struct core *c, struct member *mem, uint64_t alloc);
void inventory_unclaim(struct member *mem, uint64_t alloc);
/* The member has this copy of a version that is its own: what the catalogue says of it is true. 0, -ENOMEM. */
int inventory_confirm(struct member *mem, const struct inode *i, const struct replica *rep);
/* Bytes of the segment that nobody is known to have. */
uint64_t inventory_room(const struct member *mem);
/* Whether the request belongs to the resume that runs, and not to one that the member has begun before. */
bool inventory_asked(const struct member *mem, const struct msg *m);

int op_inventory(struct core *c, struct msg *m);
int op_put_resume(struct core *c, struct msg *m); /* master/put_resume.c */

#endif
