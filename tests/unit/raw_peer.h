/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of a connection in a test's own hands, byte by byte: blocking sockets of the loopback. */
#ifndef TESTS_UNIT_RAW_PEER_H
#define TESTS_UNIT_RAW_PEER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/auth.h"
#include "net/wire.h"

static inline struct sockaddr_in raw_loopback(uint16_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return at;
}

static inline int raw_listen(uint16_t *ret_port)
{
	struct sockaddr_in at = raw_loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*ret_port = ntohs(at.sin_port);
	return fd;
}

static inline int raw_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline int raw_connect(uint16_t port)
{
	struct sockaddr_in at = raw_loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Ends it with a reset, not in good order. */
static inline void raw_reset(int fd)
{
	const struct linger l = {.l_onoff = 1, .l_linger = 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static inline bool raw_write(int fd, const void *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

/* Exactly len bytes; false at the end of the connection. */
static inline bool raw_read(int fd, void *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = recv(fd, (char *)bytes + at, len - at, 0);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

/* Whether the other side closes, or resets, within so many milliseconds; what it says before is dropped. */
static inline bool raw_ends(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[4096];

	while (poll(&p, 1, ms) > 0)
		if (recv(fd, buf, sizeof(buf), 0) <= 0)
			return true;
	return false;
}

/* A client's handshake. */
static inline bool raw_join_for(int fd, const struct auth_key *key, enum auth_purpose purpose)
{
	uint8_t challenge[AUTH_CHALLENGE_BYTES], confirm[AUTH_CONFIRM_BYTES];
	struct buf out = {0};
	struct auth a;
	size_t used;
	bool ok;

	auth_client(&a, key, purpose);
	ok = raw_read(fd, challenge, sizeof(challenge)) && !auth_take(&a, challenge, sizeof(challenge), &used, &out) &&
	     raw_write(fd, out.data, out.len) && raw_read(fd, confirm, sizeof(confirm)) &&
	     auth_take(&a, confirm, sizeof(confirm), &used, &out) == 1;
	buf_free(&out);
	return ok;
}

static inline bool raw_join(int fd, const struct auth_key *key)
{
	return raw_join_for(fd, key, AUTH_RPC);
}

/* A server's, which sends no more than *left bytes, and takes off how many it sent. */
static inline bool raw_welcome_for(int fd, const struct auth_key *key, enum auth_purpose purpose, size_t *left)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct buf out = {0};
	struct auth a;
	size_t used, n;
	bool ok = !auth_server(&a, key, purpose, &out);

	for (int k = 0; ok && k < 2; k++) {
		n = out.len < *left ? out.len : *left;
		ok = raw_write(fd, out.data, n) && n == out.len;
		*left -= n;
		out.len = 0;
		if (ok && !k)
			ok =
			    raw_read(fd, proof, sizeof(proof)) && auth_take(&a, proof, sizeof(proof), &used, &out) == 1;
	}
	buf_free(&out);
	return ok;
}

static inline bool raw_welcome(int fd, const struct auth_key *key, size_t *left)
{
	return raw_welcome_for(fd, key, AUTH_RPC, left);
}

/* The next message, of one frame; m is the caller's. */
static inline bool raw_get(int fd, struct wire_msg *ret)
{
	struct wire_reader r = {0};
	uint8_t head[WIRE_LENGTH_BYTES];
	struct buf b = {0};
	size_t n;
	bool ok = raw_read(fd, head, sizeof(head)) && !wire_frame(head, sizeof(head), &n) && buf_room(&b, n) &&
		  raw_read(fd, b.data, n - sizeof(head)) && wire_decode(&r, b.data, n - sizeof(head), ret) == 1;

	wire_reader_fini(&r);
	buf_free(&b);
	return ok;
}

/* m is still the caller's. */
static inline bool raw_put(int fd, enum wire_kind kind, struct msg *m)
{
	struct wire_msg w = {.kind = kind, .m = m};
	struct buf b = {0};
	bool ok = !wire_encode(&w, &b) && raw_write(fd, b.data, b.len);

	buf_free(&b);
	return ok;
}

#endif
