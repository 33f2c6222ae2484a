/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "net/utf8.h"

struct ctl_stream {
	int fd;
	char *buf; /* max + 1 bytes at most, grown as needed */
	size_t len, cap, max;
};

struct ctl_stream *ctl_stream_new(int fd, size_t max_line)
{
	struct ctl_stream *s = calloc(1, sizeof(*s));

	if (!s) {
		close(fd);
		return NULL;
	}
	s->fd = fd;
	s->max = max_line;
	return s;
}

struct ctl_stream *ctl_stream_free(struct ctl_stream *s)
{
	if (!s)
		return NULL;
	close(s->fd);
	free(s->buf);
	free(s);
	return NULL;
}

int ctl_stream_fd(const struct ctl_stream *s)
{
	return s->fd;
}

/* Waits until the socket is ready for events, or the deadline. */
static int stream_wait(const struct ctl_stream *s, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd p = {.fd = s->fd, .events = events};
		int timeout = -1, r;

		if (deadline) {
			uint64_t now = clock_ns();

			if (now >= deadline)
				return -ETIMEDOUT;
			/* Rounded up, or the last millisecond would be spent spinning. */
			timeout = (int)((deadline - now) / NS_PER_MS) + 1;
		}
		r = poll(&p, 1, timeout);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

static int stream_grow(struct ctl_stream *s)
{
	size_t cap = s->cap ? 2 * s->cap : 4096;
	char *buf;

	if (s->len < s->cap)
		return 0;
	if (s->cap > s->max)
		return -EMSGSIZE;
	if (cap > s->max + 1)
		cap = s->max + 1;
	buf = realloc(s->buf, cap);
	if (!buf)
		return -ENOMEM;
	s->buf = buf;
	s->cap = cap;
	return 0;
}

/* One read(2) more into the buffer. */
static int stream_fill(struct ctl_stream *s, uint64_t deadline)
{
	ssize_t n;
	int r;

	r = stream_grow(s);
	if (r)
		return r;
	do {
		r = stream_wait(s, POLLIN, deadline);
		if (r)
			return r;
		n = recv(s->fd, s->buf + s->len, s->cap - s->len, MSG_DONTWAIT);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < 0)
		return -errno;
	if (n == 0)
		return s->len ? -ECONNRESET : -ENODATA;
	s->len += (size_t)n;
	return 0;
}

#define DEPTH_MAX 32u

/* The parser takes stack for each level, thousands of them; no message has more than a few. */
static bool too_deep(const char *text, size_t len)
{
	bool quoted = false;
	unsigned depth = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '[' || c == '{') && ++depth > DEPTH_MAX)
			return true;
		else if (!quoted && (c == ']' || c == '}') && depth)
			depth--;
	}
	return false;
}

int ctl_recv(struct ctl_stream *s, uint64_t deadline, json_t **ret)
{
	size_t seen = 0, line;
	char *nl = NULL;
	json_t *m = NULL;

	while (!s->len || !(nl = memchr(s->buf + seen, '\n', s->len - seen))) {
		int r;

		seen = s->len;
		r = stream_fill(s, deadline);
		if (r)
			return r;
	}
	line = (size_t)(nl - s->buf);
	if (!too_deep(s->buf, line))
		m = json_loadb(s->buf, line, JSON_REJECT_DUPLICATES, NULL);
	s->len -= line + 1;
	memmove(s->buf, nl + 1, s->len);
	if (!json_is_object(m)) {
		json_decref(m);
		return -EBADMSG;
	}
	*ret = m;
	return 0;
}

int ctl_send(struct ctl_stream *s, uint64_t deadline, const json_t *message)
{
	char *text = json_dumps(message, JSON_COMPACT);
	size_t len, done = 0;
	int r = 0;

	if (!text)
		return -ENOMEM;
	len = strlen(text);
	text[len++] = '\n'; /* in the place of the NUL: the length is known */
	while (done < len && !r) {
		ssize_t n = send(s->fd, text + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n >= 0)
			done += (size_t)n;
		else if (errno == EAGAIN)
			r = stream_wait(s, POLLOUT, deadline);
		else if (errno != EINTR)
			r = errno == ECONNRESET ? -EPIPE : -errno;
	}
	free(text);
	return r;
}

static int connect_error(int err, const char *path, struct errmsg *e)
{
	switch (-err) {
	case ENOENT:
		return errmsg_set(
		    e, err, "%s: no such socket; is fluxkvd running? Start it with: fluxkvd standalone MOUNTPOINT",
		    path);
	case ECONNREFUSED:
		return errmsg_set(e, err,
				  "%s: nobody answers, fluxkvd has died; start it again on the same mount point", path);
	case EACCES:
		return errmsg_set(e, err, "%s: permission denied; run fluxkv as the user that runs fluxkvd, or as root",
				  path);
	default:
		return errmsg_set(e, err, "%s: %s", path, strerror(-err));
	}
}

int ctl_connect(const char *path, struct ctl_stream **ret, struct errmsg *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct ctl_stream *s;
	int fd;

	if (strlen(path) >= sizeof(sa.sun_path))
		return errmsg_set(e, -ENAMETOOLONG, "%s: longer than a socket's path may be (%zu bytes)", path,
				  sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errmsg_set(e, -errno, "cannot make a socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		int err = -errno;

		close(fd);
		return connect_error(err, path, e);
	}
	s = ctl_stream_new(fd, CTL_ANSWER_MAX);
	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory");
	*ret = s;
	return 0;
}

static int answer_error(int err, struct errmsg *e)
{
	switch (-err) {
	case ETIMEDOUT:
		return errmsg_set(e, err, "fluxkvd did not answer in time");
	case ENODATA:
	case ECONNRESET:
	case EPIPE:
		return errmsg_set(e, -ECONNRESET, "fluxkvd closed the connection");
	case EBADMSG:
		return errmsg_set(e, err, "fluxkvd's answer is not JSON; are fluxkv and fluxkvd of one version?");
	default:
		return errmsg_set(e, err, "no answer from fluxkvd: %s", strerror(-err));
	}
}

int ctl_next(struct ctl_stream *s, unsigned timeout_ms, json_t **ret, struct errmsg *e)
{
	uint64_t deadline = timeout_ms ? clock_ns() + timeout_ms * NS_PER_MS : 0;
	const char *line;
	json_t *m;
	int r;

	r = ctl_recv(s, deadline, &m);
	if (r)
		return answer_error(r, e);
	if (json_is_true(json_object_get(m, "ok"))) {
		*ret = m;
		return 0;
	}
	r = -(int)json_integer_value(json_object_get(m, "errno"));
	if (r >= 0)
		r = -EIO;
	line = json_string_value(json_object_get(m, "error"));
	errmsg_set(e, r, "%s", line ? line : strerror(-r));
	json_decref(m);
	return r;
}

int ctl_call(struct ctl_stream *s, json_t *req, unsigned timeout_ms, json_t **ret, struct errmsg *e)
{
	uint64_t deadline = timeout_ms ? clock_ns() + timeout_ms * NS_PER_MS : 0;
	int r = req ? ctl_send(s, deadline, req) : -ENOMEM;

	json_decref(req);
	/* A daemon that refuses (too many connections) has answered already, and closed: its line is worth reading. */
	if (r && r != -EPIPE)
		return answer_error(r, e);
	return ctl_next(s, timeout_ms, ret, e);
}

json_t *ctl_name_to_json(const char *bytes)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t len = strlen(bytes), out = 0;
	char *text = malloc(3 * len + 1);
	json_t *j;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(bytes + i, len - i);
		unsigned char c = (unsigned char)bytes[i];

		if (!n || c < 0x20 || c == 0x7f || c == '%') {
			text[out++] = '%';
			text[out++] = hex[c >> 4];
			text[out++] = hex[c & 15];
			i++;
			continue;
		}
		memcpy(text + out, bytes + i, n);
		out += n;
		i += n;
	}
	j = json_stringn(text, out);
	free(text);
	return j;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int ctl_name_from_json(const char *text, char *out, size_t out_len)
{
	size_t n = 0;

	for (; *text; text++, n++) {
		char c = *text;

		if (n + 1 >= out_len)
			return -ENAMETOOLONG;
		if (c == '%') {
			int hi = hex_digit(text[1]), lo = hi < 0 ? -1 : hex_digit(text[2]);

			if (lo < 0 || !(hi | lo))
				return -EINVAL;
			c = (char)(hi << 4 | lo);
			text += 2;
		}
		out[n] = c;
	}
	out[n] = '\0';
	return 0;
}
