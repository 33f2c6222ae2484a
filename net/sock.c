/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "common/clock.h"

#define LISTEN_BACKLOG 512
#define KEEPALIVE_SECONDS 10
#define KEEPALIVE_PROBES 3
#define SENDFILE_MAX (1u << 30) /* of one call; the kernel's own bound is a little below 2 GiB */

static void set(int fd, int level, int name, int value)
{
	/* Each of them only makes things better: without it the connection works. */
	setsockopt(fd, level, name, &value, sizeof(value));
}

int sock_new(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int listen_at(int fd, const struct sockaddr_storage *at, uint16_t *ret_port)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	/* A node that starts again wants its port back, though old connections of it linger. */
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind(fd, (const struct sockaddr *)at, address_len(at)) < 0 || listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&name, &len) < 0)
		return -errno;
	/* The port is at the same place in both families. */
	*ret_port = ntohs(((const struct sockaddr_in *)&name)->sin_port);
	return 0;
}

int sock_listen(const struct sockaddr_storage *at, uint16_t *ret_port)
{
	int fd = sock_new(at->ss_family), r;

	if (fd < 0)
		return fd;
	r = listen_at(fd, at, ret_port);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

void sock_tune(int fd, uint64_t silence_ms)
{
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	/* Bytes that nobody acknowledges, and a window that stays shut. */
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms < INT_MAX ? (int)silence_ms : INT_MAX);
	/* And a peer that vanishes while nothing is on its way. */
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_SECONDS);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_SECONDS / KEEPALIVE_PROBES);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

uint64_t sock_deadline(uint64_t ms, uint64_t len, uint64_t rate)
{
	uint64_t seconds = len / rate + (len % rate != 0);

	/* Enough for anybody, and it does not overflow. */
	if (seconds > UINT32_MAX)
		seconds = UINT32_MAX;
	if (ms > UINT32_MAX)
		ms = UINT32_MAX;
	return clock_ns() + ms * NS_PER_MS + seconds * NS_PER_SEC;
}

/* ---- waiting ------------------------------------------------------------------------------------------------- */

/* For how long from now on; 0: that time is over. Above 0 is never cut down to 0. */
static int wait_ms(const struct sock *s)
{
	uint64_t ms = s->silence_ms < INT_MAX ? s->silence_ms : INT_MAX, now, left;

	if (!s->deadline_ns)
		return (int)ms;
	now = clock_ns();
	if (now >= s->deadline_ns)
		return 0;
	left = (s->deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
	return (int)(left < ms ? left : ms);
}

int sock_wait(const struct sock *s, short events)
{
	struct pollfd p[2] = {{.fd = s->fd, .events = events}, {.fd = s->stop_fd, .events = POLLIN}};
	int ms, n;

	do {
		ms = wait_ms(s);
		n = ms ? poll(p, 2, ms) : 0;
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n && p[1].revents)
		return -ESHUTDOWN;
	return n ? 0 : -ETIMEDOUT;
}

/* What to do about a call that has failed: 0 is to try it again. */
static int wait_after(const struct sock *s, int err, short events)
{
	switch (err) {
	case EINTR:
		return 0;
	case EAGAIN:
		return sock_wait(s, events);
	case EPIPE:
		return -ECONNRESET;
	default:
		return -err;
	}
}

int sock_connect(const struct sock *s, const struct sockaddr_storage *to)
{
	int err = 0, r;
	socklen_t len = sizeof(err);

	if (connect(s->fd, (const struct sockaddr *)to, address_len(to)) == 0)
		return 0;
	/* Interrupted, it goes on by itself, as one that takes longer does. */
	if (errno != EINPROGRESS && errno != EINTR)
		return -errno;
	r = sock_wait(s, POLLOUT);
	if (!r && getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		r = -errno;
	return r < 0 ? r : -err;
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

ssize_t sock_read_some(const struct sock *s, void *buf, size_t len)
{
	ssize_t n;
	int r;

	for (;;) {
		n = recv(s->fd, buf, len, MSG_DONTWAIT);
		if (n >= 0)
			return n;
		r = wait_after(s, errno, POLLIN);
		if (r < 0)
			return r;
	}
}

int sock_read(const struct sock *s, void *buf, size_t len)
{
	ssize_t n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = sock_read_some(s, (char *)buf + at, len - at);
		if (n <= 0)
			return n < 0 ? (int)n : -ECONNRESET;
	}
	return 0;
}

int sock_write(const struct sock *s, const void *buf, size_t len, bool more)
{
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0), r;

	for (size_t at = 0; at < len;) {
		ssize_t n = send(s->fd, (const char *)buf + at, len - at, flags);

		if (n >= 0) {
			at += (size_t)n;
			continue;
		}
		r = wait_after(s, errno, POLLOUT);
		if (r < 0)
			return r;
	}
	return 0;
}

int sock_sendfile(const struct sock *s, int fd, uint64_t off, uint64_t len)
{
	off_t at = (off_t)off, end = (off_t)(off + len);
	int r;

	while (at < end) {
		uint64_t left = (uint64_t)(end - at);
		ssize_t n = sendfile(s->fd, fd, &at, left < SENDFILE_MAX ? left : SENDFILE_MAX);

		if (n > 0)
			continue;
		r = n ? wait_after(s, errno, POLLOUT) : -EIO;
		if (r < 0)
			return r;
	}
	return 0;
}

bool sock_is_quiet(const struct sock *s)
{
	char c;

	return recv(s->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* ---- the handshake ------------------------------------------------------------------------------------------- */

static int say(const struct sock *s, struct buf *out)
{
	int r = sock_write(s, out->data, out->len, false);

	out->len = 0;
	return r;
}

/* Takes some of the message that is awaited. 1: that was all. */
static int hear(const struct sock *s, struct auth *a, struct buf *out)
{
	uint8_t bytes[AUTH_PROOF_BYTES];
	size_t used;
	ssize_t n = sock_read_some(s, bytes, auth_lacks(a));
	int r, more;

	if (n <= 0)
		return n < 0 ? (int)n : a->state == AUTH_WAITS_CONFIRM ? -EACCES : -ECONNRESET;
	more = auth_take(a, bytes, (size_t)n, &used, out);
	r = more < 0 ? more : say(s, out);
	return r < 0 ? r : more;
}

int sock_shake(const struct sock *s, const struct auth_key *key, enum auth_purpose purpose, bool server)
{
	struct buf out = {0};
	struct auth a;
	int r = 0;

	if (server)
		r = auth_server(&a, key, purpose, &out);
	else
		auth_client(&a, key, purpose);
	if (!r)
		r = say(s, &out);
	while (!r)
		r = hear(s, &a, &out);
	auth_end(&a);
	buf_free(&out);
	return r < 0 ? r : 0;
}
