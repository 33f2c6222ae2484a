/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way from a node to the master. The master's side implements it (in one process: a queue to the master's
 * thread, master/local.h; between machines: net/rpc_client.h); the node only sees this.
 *
 * Threads: call() may be used from any thread and never blocks on the master. `done` runs exactly once, on a thread
 * of the channel (never inside call()), with an answer that belongs to the channel and is gone when done returns;
 * it must not block. Every request is answered truly: an error means that nothing has happened. It is answered within a
 * deadline, but for a change that the master may have made and not yet confirmed: over a network its answer comes when the
 * master can be asked again (net/rpc_client.h).
 */
#ifndef NET_CHANNEL_H
#define NET_CHANNEL_H

#include "net/msg.h"

typedef void (*channel_done_fn)(void *arg, const struct msg *answer);
/* A notice from the master; belongs to the channel. Runs on a thread of the channel; must not block. */
typedef void (*channel_notice_fn)(void *arg, const struct msg *notice);

struct channel {
	/* Takes over req. done may be NULL when the answer does not matter. */
	void (*call)(struct channel *ch, struct msg *req, channel_done_fn done, void *arg);
	/* Where notices go from now on: set before MSG_JOIN, to NULL behind MSG_LEAVE; when it returns no earlier one
	 * runs any more. Never from a notice. */
	void (*set_notice)(struct channel *ch, channel_notice_fn fn, void *arg);
	/*
	 * Between machines alone, else NULL: sends what the node has to say last, a MSG_LEAVE, which it takes over, waits
	 * for its answer so long, and is of no more use then: what has no answer yet, and what is called from now on, gets
	 * -ESHUTDOWN.
	 */
	void (*last)(struct channel *ch, struct msg *req, uint64_t wait_ns);
};

static inline void channel_call(struct channel *ch, struct msg *req, channel_done_fn done, void *arg)
{
	ch->call(ch, req, done, arg);
}

#endif
