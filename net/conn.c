/* SPDX-License-Identifier: Apache-2.0 */
#include "net/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/buf.h"

#define READ_BYTES (64u * 1024)
#define KEPT_BYTES (2 * READ_BYTES) /* one message was long; not every connection keeps that much for ever */
#define KEEPALIVE_SECONDS 10u

struct conn {
	uv_tcp_t tcp;
	uv_timer_t timer; /* of the handshake */
	uv_connect_t connect;
	uv_write_t write;
	const struct conn_ops *ops;
	void *arg;
	struct auth auth;
	struct wire_reader reader;
	struct buf in;	    /* come and not taken */
	struct buf out;	    /* to be sent behind writing */
	struct buf writing; /* the kernel's, or on its way there */
	size_t backlog;
	uint64_t handshake_ms;
	unsigned open; /* handles whose close callback has not run */
	bool server, up, paused, reading, busy, closing;
	bool taking; /* take() runs: what a callback does to paused is heeded there */
};

struct conn *conn_new(uv_loop_t *loop, const struct conn_config *cfg, const struct conn_ops *ops, void *arg)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ops = ops;
	c->arg = arg;
	c->server = cfg->server;
	c->backlog = cfg->backlog;
	c->handshake_ms = cfg->handshake_ms;
	c->auth.key = *cfg->key;
	/* Neither of them fails: the socket is made when it is connected. */
	uv_tcp_init(loop, &c->tcp);
	uv_timer_init(loop, &c->timer);
	c->tcp.data = c->timer.data = c->write.data = c->connect.data = c;
	c->open = 2;
	return c;
}

static void handle_closed(uv_handle_t *h)
{
	struct conn *c = h->data;

	if (--c->open)
		return;
	auth_end(&c->auth);
	wire_reader_fini(&c->reader);
	buf_free(&c->in);
	buf_free(&c->out);
	buf_free(&c->writing);
	free(c);
}

void conn_close(struct conn *c, int err)
{
	if (!c || c->closing)
		return;
	c->closing = true;
	uv_close((uv_handle_t *)&c->timer, handle_closed);
	uv_close((uv_handle_t *)&c->tcp, handle_closed);
	c->ops->closed(c->arg, err);
}

int conn_local(const struct conn *c, char *ret, size_t size)
{
	struct sockaddr_storage at;
	int len = sizeof(at), r = uv_tcp_getsockname(&c->tcp, (struct sockaddr *)&at, &len);

	return r < 0 ? r : uv_ip_name((const struct sockaddr *)&at, ret, size);
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

static void written(uv_write_t *req, int err)
{
	struct conn *c = req->data;

	c->busy = false;
	c->writing.len = 0;
	if (c->writing.cap > KEPT_BYTES)
		buf_free(&c->writing);
	if (err < 0)
		conn_close(c, err == UV_ECANCELED ? -ECONNRESET : err);
	else
		conn_flush(c);
}

void conn_flush(struct conn *c)
{
	struct buf b = c->writing;
	uv_buf_t iov;
	int r;

	if (c->closing || c->busy || !c->out.len)
		return;
	c->writing = c->out;
	c->out = b;
	iov = uv_buf_init((char *)c->writing.data, (unsigned)c->writing.len);
	c->busy = true;
	r = uv_write(&c->write, (uv_stream_t *)&c->tcp, &iov, 1, written);
	if (r < 0) {
		c->busy = false;
		conn_close(c, r);
	}
}

/* Who does not read is not waited for: others are. */
static bool has_backlog(struct conn *c)
{
	if (c->out.len <= c->backlog)
		return false;
	conn_close(c, -ENOBUFS);
	return true;
}

int conn_send(struct conn *c, const struct wire_msg *w)
{
	return c->closing || has_backlog(c) ? 0 : wire_encode(w, &c->out);
}

int conn_send_frames(struct conn *c, const uint8_t *frames, size_t len)
{
	return c->closing || has_backlog(c) ? 0 : buf_add(&c->out, frames, len);
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* 1: taken, there may be more; 0: more must come first. */
static int take_handshake(struct conn *c, const uint8_t *bytes, size_t len, size_t *ret_used)
{
	int r = auth_take(&c->auth, bytes, len, ret_used, &c->out);

	if (r < 0)
		return r;
	conn_flush(c);
	if (r == 1 && !c->closing) {
		c->up = true;
		uv_timer_stop(&c->timer);
		c->ops->ready(c->arg);
	}
	return r;
}

static int take_frame(struct conn *c, const uint8_t *bytes, size_t len, size_t *ret_used)
{
	struct wire_msg w;
	size_t n = 0;
	int r = wire_frame(bytes, len, &n);

	*ret_used = 0;
	if (r == -EAGAIN || (!r && n > len))
		return 0;
	if (!r)
		r = wire_decode(&c->reader, bytes + WIRE_LENGTH_BYTES, n - WIRE_LENGTH_BYTES, &w);
	if (r < 0)
		return r == -EMSGSIZE ? -EBADMSG : r;
	*ret_used = n;
	if (r == 1)
		c->ops->got(c->arg, &w);
	return 1;
}

static void forget_taken(struct conn *c, size_t n)
{
	c->in.len -= n;
	if (c->in.len)
		memmove(c->in.data, c->in.data + n, c->in.len);
	else if (c->in.cap > KEPT_BYTES)
		buf_free(&c->in);
}

static void take(struct conn *c)
{
	size_t at = 0, used;
	int r = 1;

	c->taking = true;
	while (r == 1 && !c->closing && !c->paused && at < c->in.len) {
		r = (c->up ? take_frame : take_handshake)(c, c->in.data + at, c->in.len - at, &used);
		if (r >= 0)
			at += used;
	}
	c->taking = false;
	forget_taken(c, at);
	if (r < 0)
		conn_close(c, r);
}

static void give_room(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
	struct conn *c = h->data;
	uint8_t *room = buf_room(&c->in, READ_BYTES);

	*ret = uv_buf_init((char *)room, room ? READ_BYTES : 0); /* of no bytes: UV_ENOBUFS */
}

static int read_error(const struct conn *c, int err)
{
	if (err == UV_ENOBUFS)
		return -ENOMEM;
	/* Who is not content with our proof says so by leaving. */
	if (c->auth.state == AUTH_WAITS_CONFIRM)
		return -EACCES;
	return err == UV_EOF ? -ECONNRESET : err;
}

static void has_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct conn *c = s->data;

	if (n < 0) {
		conn_close(c, read_error(c, (int)n));
		return;
	}
	c->in.len += (size_t)n;
	take(c);
}

/* Reads, or does not, as it should. */
static void set_reading(struct conn *c)
{
	bool want = !c->paused && !c->closing;
	int r = 0;

	if (want == c->reading)
		return;
	c->reading = want;
	if (want)
		r = uv_read_start((uv_stream_t *)&c->tcp, give_room, has_read);
	else
		uv_read_stop((uv_stream_t *)&c->tcp);
	if (r < 0)
		conn_close(c, r);
}

void conn_pause(struct conn *c, bool pause)
{
	if (c->closing || c->paused == pause)
		return;
	c->paused = pause;
	if (!pause && !c->taking)
		take(c);
	set_reading(c);
}

/* ---- the beginning ------------------------------------------------------------------------------------------- */

static void too_late(uv_timer_t *t)
{
	conn_close(t->data, -ETIMEDOUT);
}

static void shake_hands(struct conn *c)
{
	int r = 0;

	/* Requests are small and somebody waits; a peer that has vanished must show. */
	uv_tcp_nodelay(&c->tcp, 1);
	uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_SECONDS);
	if (c->server)
		r = auth_server(&c->auth, &c->auth.key, AUTH_RPC, &c->out);
	else
		auth_client(&c->auth, &c->auth.key, AUTH_RPC);
	if (r < 0) {
		conn_close(c, r);
		return;
	}
	conn_flush(c);
	set_reading(c);
}

static void connected(uv_connect_t *req, int err)
{
	struct conn *c = req->data;

	if (err < 0)
		conn_close(c, err);
	else if (!c->closing)
		shake_hands(c);
}

void conn_connect(struct conn *c, const struct sockaddr *to)
{
	int r;

	uv_timer_start(&c->timer, too_late, c->handshake_ms, 0);
	r = uv_tcp_connect(&c->connect, &c->tcp, to, connected);
	if (r < 0)
		conn_close(c, r);
}

void conn_accept(struct conn *c, uv_stream_t *listener)
{
	int r;

	uv_timer_start(&c->timer, too_late, c->handshake_ms, 0);
	r = uv_accept(listener, (uv_stream_t *)&c->tcp);
	if (r < 0)
		conn_close(c, r);
	else
		shake_hands(c);
}
