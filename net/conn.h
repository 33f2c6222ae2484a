/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection that carries messages: the handshake (net/auth.h), then frames (net/wire.h), over a TCP socket of
 * libuv. net/rpc_server.c and net/rpc_client.c are built on it.
 *
 * Everything here is the loop's thread's, and every callback runs on it. A connection is made with its memory, ends
 * once (by conn_close(), which may be called at any moment, also from its callbacks, or by itself), tells that by
 * closed() before anything else happens, and is freed by the loop behind that: whoever has a pointer forgets it in
 * closed().
 */
#ifndef NET_CONN_H
#define NET_CONN_H

#include <stdbool.h>
#include <uv.h>

#include "net/auth.h"
#include "net/wire.h"

struct conn;

struct conn_ops {
	void (*ready)(void *arg); /* the handshake is over: messages may be sent */
	/* A message; w->m is the callee's. */
	void (*got)(void *arg, struct wire_msg *w);
	/*
	 * It has ended. err: what conn_close() was given; -EPROTO, -EACCES: see auth_take(); -EBADMSG: a malformed
	 * frame; -ETIMEDOUT: no handshake in time; -ENOBUFS: the other side does not read; -ECONNRESET or another
	 * error of the socket: it has gone.
	 */
	void (*closed)(void *arg, int err);
};

struct conn_config {
	const struct auth_key *key; /* used only until conn_new() returns */
	bool server;
	uint64_t handshake_ms;
	size_t backlog; /* bytes that may wait for the other side to read; a message that comes on top is its end */
};

/* Not connected yet. NULL without memory. */
struct conn *conn_new(uv_loop_t *loop, const struct conn_config *cfg, const struct conn_ops *ops, void *arg);
/*
 * Connects to somebody, or is one that a listener has: then the handshake begins. The time for it runs from here on.
 * Where that fails at once, closed() has been called when this returns.
 */
void conn_connect(struct conn *c, const struct sockaddr *to);
void conn_accept(struct conn *c, uv_stream_t *listener);
/* This end's address, without the port: 0, or a negative errno. */
int conn_local(const struct conn *c, char *ret, size_t size);
/* Appends a message to what is to be sent: 0, or see wire_encode(). It goes at the next conn_flush(). */
int conn_send(struct conn *c, const struct wire_msg *w);
/* The same for frames as wire_encode() has made them. 0, -ENOMEM. */
int conn_send_frames(struct conn *c, const uint8_t *frames, size_t len);
void conn_flush(struct conn *c);
/* No more messages until it is told so: what comes meanwhile stays with the sender. */
void conn_pause(struct conn *c, bool pause);
/* err goes to closed(). Takes NULL. */
void conn_close(struct conn *c, int err);

#endif
