/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start of the master: the owners of the earlier run come back, or do not.
 *
 * The catalogue says what each of them had, up to some moment. Each is awaited: its MSG_JOIN with the tomb_tag it had
 * makes it one that is coming back, which tells what it really has (inventory.h), and then it is live. Those that have
 * not come back within resume_ns of the first step are given up, and what they had is dropped, of all of them in one
 * walk.
 *
 * Until each is back or given up (core.recovering) no object is lost for want of a replica: what the catalogue did not
 * hear of in its last moments, a copy that moved, may be told by an owner that is still to come. Such an object stays
 * without one, a MSG_GET_START of it is to be asked again (-EAGAIN), and the end of the waiting decides.
 *
 * A MSG_PUT_DONE that was committed, but not answered, comes again. So which ticket has become which version is
 * remembered, of what was put last before the start, until a minute after the waiting.
 */
#ifndef MASTER_RESUME_H
#define MASTER_RESUME_H

#include "master/state.h"

/* At the end of loading: whoever the catalogue knows is awaited, if resume_ns says so. 0, -ENOMEM. */
int resume_begin(struct core *c);
void resume_fini(struct core *c);
/* Gives up who has not come in time. Returns the nanoseconds until it wants to look again. */
uint64_t resume_tick(struct core *c);

/* Whether the MSG_JOIN is that of an incarnation which may come back. */
bool resume_wanted(const struct member *mem, const struct msg *m);
/* It is coming back: its inventory begins, also if it had begun before. 0, -ENOMEM with nothing changed. */
int resume_start(struct core *c, struct member *mem, const struct msg *m);
/* Nobody waits for it any more, be it that it is back or that it never will be. */
void resume_over(struct core *c, struct member *mem);
/* After resume_over(): if that was the last, what has no replica left is lost. Without memory it is for the next tick.
 */
void resume_settle(struct core *c);

/* Whether an id may be one of the earlier run's. */
bool resume_is_old(const struct core *c, uint64_t id);
/* The version that a ticket of the node's has become before the start; 0: none that is remembered. */
uint64_t resume_put_id(const struct core *c, uint64_t ticket, uint32_t node);
/* Answers a MSG_PUT_DONE that was done before the start. False: it was not. */
bool resume_answer_put(struct core *c, struct msg *m);

#endif
