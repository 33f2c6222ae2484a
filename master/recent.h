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
/*
 * Keeps a copy of the answer to the node's request of that number. Without memory it is not remembered. One that waits
 * for the catalogue is kept until it has been given, whatever is answered meanwhile.
 */
void recent_remember(struct core *c, const struct msg *answer, uint64_t req_id, bool after_commit);
/* Whether the request had an answer that is remembered. */
bool recent_has(const struct core *c, const struct msg *in);
/* Makes the request the answer it had: 1. 0: it is new. -ENOMEM. */
int recent_answer(struct core *c, struct msg *in);
/* Makes any message a copy of an answer. 0, -ENOMEM with nothing changed. */
int recent_become(struct msg *m, const struct msg *answer);

#endif
