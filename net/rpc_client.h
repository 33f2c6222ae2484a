/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's side of the network: a channel (net/channel.h) to a master in another process, over one connection that is
 * made again whenever it breaks.
 *
 * What "an error means that nothing has happened" costs here. A request that has not been sent is answered -ETIMEDOUT
 * when its time is over, and so is one that changes nothing. One that changes something and has been sent may have been
 * done, though the answer is lost: it gets no such answer, however long it takes. It is sent again over each new
 * connection, with the id it had, by which a master that has done it knows it and answers as it did; so the answer that
 * comes in the end is true. Its caller waits as long as the master is away. At rpc_client_stop() what has no answer
 * yet gets -ESHUTDOWN, and that alone says nothing of what has happened.
 *
 * So that a master can know all of them again, no more than RPC_WINDOW have been sent and not answered at a time; it
 * has to remember that many of a node's answers, and RPC_BEYOND more. The others wait here.
 *
 * Those that others wait for, or that keep the node alive (msg_goes_first(): heartbeats, acknowledgements of revokes,
 * holders, a join and what belongs to it), go out also when the window is full: RPC_BEYOND of them, in a window of
 * their own. So the two kinds may overtake each other, and keep their order among themselves.
 *
 * Requests go out in the order of their calls; after a break all that are not answered go out again, in that order,
 * too.
 *
 * The answer of a master is checked against its request: the type, and the number of items where they answer those of
 * the request, or are one grant. A master that answers otherwise is left, and asked again.
 *
 * Threads: one of its own runs the callbacks.
 */
#ifndef NET_RPC_CLIENT_H
#define NET_RPC_CLIENT_H

#include "common/errmsg.h"
#include "net/channel.h"

#define RPC_WINDOW 512u
#define RPC_BEYOND 64u

struct rpc_client;

struct rpc_client_config {
	const char *master;	  /* "HOST:PORT" */
	const char *key_file;	  /* NULL: none */
	uint64_t timeout_ms;	  /* of a request; 0: 30 s */
	uint64_t connect_ms;	  /* of a connection, its handshake included; 0: 5 s */
	uint64_t silence_ms;	  /* a connection over which nothing comes, though answers are due, is left; 0: 5 s */
	uint64_t back_off_ms;	  /* before the second attempt; doubles with each that fails; 0: 20 ms */
	uint64_t max_back_off_ms; /* 0: 2 s */
	/*
	 * A master that was started again waits for what the node has (-EUNATCH): told once, on the client's thread.
	 * What was called waits here, but for what says that, until the last MSG_INVENTORY has been taken, or a MSG_JOIN
	 * has made another incarnation of the node. NULL: -EUNATCH is an answer as any.
	 */
	void (*unattached)(void *arg);
	void *arg;
};

struct rpc_client_stats {
	bool up;
	int error;		    /* why it is not, or was not last: 0 or a negative errno */
	uint64_t connects, breaks;  /* connections that came up; that ended afterwards */
	uint64_t resent, timed_out; /* requests */
};

/* Does not wait for the master. On failure e says why in one line. */
int rpc_client_start(const struct rpc_client_config *cfg, struct rpc_client **ret, struct errmsg *e);
/* No callback runs behind it. Takes NULL, returns NULL. */
struct rpc_client *rpc_client_stop(struct rpc_client *c);
struct channel *rpc_client_channel(struct rpc_client *c);
/*
 * Waits up to so long for a connection. 0, with this end's address (no port) in ret; -ETIMEDOUT, or why there is none:
 * -EACCES and -EPROTO, which waiting would not mend, at once.
 */
int rpc_client_wait_up(struct rpc_client *c, uint64_t wait_ms, char *ret, size_t size);
void rpc_client_get_stats(struct rpc_client *c, struct rpc_client_stats *ret);

#endif
