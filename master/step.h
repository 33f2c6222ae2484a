/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of the core puts out: messages, notices, catalogue writes, and the ids it draws. Operations ask for the
 * room first (step_room), so that nothing fails once they have begun to change the state.
 */
#ifndef MASTER_STEP_H
#define MASTER_STEP_H

#include "master/state.h"

/* Room for n records with data bytes of data. 0, -ENOMEM. */
int step_room(struct core *c, size_t n, size_t data);
/* After step_room(). */
void step_write(struct core *c, const struct write_rec *rec);
void step_write_inode(struct core *c, const struct inode *i);
/* The directory's or object's row goes. */
void step_write_gone(struct core *c, const struct inode *i);

/* Notices; the message is taken over, also when it cannot be sent (-ENOMEM). */
int step_notify(struct core *c, uint32_t node, struct msg *m);	     /* before the answer */
int step_notify_after(struct core *c, uint32_t node, struct msg *m); /* behind it */
/* The node is told to free the version, at the end of the step. If it cannot be told, it is later. */
void step_drop(struct core *c, uint32_t node, uint64_t put_id, uint32_t blocks);
/* Room for the answer; asked for before a step begins. 0, -ENOMEM. */
int step_answer_room(struct core *c);
/* After step_answer_room(). */
void step_answer(struct core *c, struct msg *answer, bool after_commit);
/* Does a request that was kept; its status tells how it went. (master/core.c) */
void step_do(struct core *c, struct msg *m);
/* Puts out what was kept for the end of the step; in is the answer, or NULL. */
void step_end(struct core *c, struct msg *in);

/* Makes sure that a step can draw ids. 0, -EIO when the catalogue has not taken the next block, -ENOMEM. */
int step_ids_ready(struct core *c);
/* After step_ids_ready(), at most STEP_IDS times. */
#define STEP_IDS 48u
uint64_t step_id(struct core *c);

#endif
