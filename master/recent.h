/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers a node got last, so that a request that comes again is answered the same and does nothing twice. Only
 * requests that change something are remembered; the others are simply done again. With recent_answers 0 in the
 * configuration all of this does nothing.
 */
#ifndef MASTER_RECENT_H
#define MASTER_RECENT_H

#include "master/state.h"

struct recent *recent_free(struct recent *r); /* takes NULL, returns NULL */
/* Keeps a copy of the answer (in it stands the request's node and req_id). Without memory it is not remembered. */
void recent_remember(struct core *c, const struct msg *answer);
/* Whether the request had an answer that is remembered. */
bool recent_has(const struct core *c, const struct msg *in);
/* Makes the request the answer it had: 1. 0: it is new. -ENOMEM. */
int recent_answer(struct core *c, struct msg *in);

#endif
