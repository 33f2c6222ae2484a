/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP sockets for threads that may wait, though never for longer than they said: each call ends with what was asked,
 * when nothing has moved for a while, when its time is over, or when somebody says that it is enough. The sockets do
 * not block; the waiting is poll(2)'s.
 *
 * A struct sock is one thread's at a time. What is waited for in vain is -ETIMEDOUT; a stop is -ESHUTDOWN; a peer that
 * has gone is -ECONNRESET, however it went. No SIGPIPE from what is sent here, unless by sock_sendfile().
 */
#ifndef NET_SOCK_H
#define NET_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "net/auth.h"

struct sock {
	int fd;
	int stop_fd;	      /* once it can be read, nothing is waited for any more; -1: there is none */
	uint64_t silence_ms;  /* that nothing moves */
	uint64_t deadline_ns; /* of all that is done until it is set anew, on clock_ns(); 0: none */
};

/* When what begins now is over: after the time, and so much more as len bytes take at that rate (bytes a second). */
uint64_t sock_deadline(uint64_t ms, uint64_t len, uint64_t rate);

/* A listening socket, or one that is not connected. A negative errno else. */
int sock_listen(const struct sockaddr_storage *at, uint16_t *ret_port);
int sock_new(int family);
/* For a connection that carries requests and bulk: small things go at once; a peer that has vanished shows. */
void sock_tune(int fd, uint64_t silence_ms);

/* Until it is ready for events (of poll(2)), or has ended. */
int sock_wait(const struct sock *s, short events);
int sock_connect(const struct sock *s, const struct sockaddr_storage *to);

/* What there is, at least a byte, at most len. 0: the other side has closed in good order. */
ssize_t sock_read_some(const struct sock *s, void *buf, size_t len);
/* All of it. The end of the connection is -ECONNRESET. */
int sock_read(const struct sock *s, void *buf, size_t len);
/* All of it. more: there is something to come behind it, with which it may go. */
int sock_write(const struct sock *s, const void *buf, size_t len, bool more);
/* From a file, without a copy. It raises SIGPIPE where that is not blocked. -EIO: the file ends before. */
int sock_sendfile(const struct sock *s, int fd, uint64_t off, uint64_t len);
/* Whether a connection over which nothing is to come is still as it was left. */
bool sock_is_quiet(const struct sock *s);

/*
 * The whole handshake. -EPROTO, -EACCES, ...: see auth_take(). Of what comes behind it nothing is read. A server that
 * is not content with our proof says so by leaving: -EACCES.
 */
int sock_shake(const struct sock *s, const struct auth_key *key, enum auth_purpose purpose, bool server);

#endif
