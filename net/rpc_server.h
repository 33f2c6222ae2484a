/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master's side of the network: takes connections, and passes on what comes over them. It knows nothing of what the
 * messages mean.
 *
 * A connection is named by a number that is never used again, so whoever answers needs no care for whether it is still
 * there: what is sent to one that has gone is dropped. Requests of a connection are passed on in their order; they may
 * be answered in any, from any thread.
 *
 * Bounds: connections in all; those that have not proved themselves yet (the oldest makes place for another); requests
 * of a connection that have no answer yet (no more are read meanwhile); bytes that wait for a connection to read (it is
 * closed).
 *
 * Threads: one of its own runs the callbacks, which must not block. The functions may be called from any.
 */
#ifndef NET_RPC_SERVER_H
#define NET_RPC_SERVER_H

#include <stdint.h>

#include "common/errmsg.h"
#include "net/auth.h"
#include "net/wire.h"

#define RPC_SLOT_BITS 24

struct rpc_server;

/* Connections that are there at one time have different ones, below max_connections. */
static inline uint32_t rpc_slot(uint64_t conn)
{
	return (uint32_t)(conn & ((1u << RPC_SLOT_BITS) - 1));
}

struct rpc_server_config {
	const char *listen;	  /* "ADDR:PORT", a number; port 0: any */
	const char *key_file;	  /* NULL: none, and then listen must be on the loopback */
	uint32_t max_connections; /* 0: 4096 */
	uint32_t max_strangers;	  /* 0: 64 */
	uint32_t max_requests;	  /* of a connection; 0: 1024 */
	uint64_t handshake_ms;	  /* 0: 5 s */
	size_t backlog;		  /* bytes; 0: 16 MiB */

	/* A request: m is the callee's. deadline_ns: on clock_ns(), until then the sender waits; 0: not said. */
	void (*request)(void *arg, uint64_t conn, struct msg *m, uint64_t deadline_ns);
	void (*closed)(void *arg, uint64_t conn); /* only of those that have proved themselves */
	void *arg;
};

struct rpc_server_stats {
	uint64_t accepted, refused;	/* refused: there were too many, or they took too long */
	uint64_t strangers;		/* without the key, or not FluxKV */
	uint64_t malformed;		/* connections closed for what they sent */
	uint64_t slow;			/* connections closed because they did not read */
	uint64_t connections, requests; /* now: connections that have proved themselves; requests so far */
};

/* Listens when it returns 0. On failure e says why in one line. */
int rpc_server_start(const struct rpc_server_config *cfg, struct rpc_server **ret, struct errmsg *e);
/* Closes all connections, without closed(). No callback runs behind it. Takes NULL, returns NULL. */
struct rpc_server *rpc_server_stop(struct rpc_server *s);
/* The port that it listens on. */
uint16_t rpc_server_port(const struct rpc_server *s);

/*
 * Sends an answer or a notice, by the time this returns or soon; w->m stays the caller's. To one connection they keep
 * their order as far as the calls have one. 0, also when the connection has gone; or see wire_encode(): nothing is
 * sent then.
 */
int rpc_server_send(struct rpc_server *s, uint64_t conn, const struct wire_msg *w);
/* Closes a connection; closed() follows. */
void rpc_server_close(struct rpc_server *s, uint64_t conn);

void rpc_server_get_stats(struct rpc_server *s, struct rpc_server_stats *ret);

#endif
