/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rpc_server.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/clock.h"
#include "common/list.h"
#include "net/conn.h"
#include "net/listen.h"

#define LISTEN_BACKLOG 512

struct peer {
	struct rpc_server *s;
	struct conn *conn;
	uint64_t id;
	uint32_t requests;   /* not answered yet */
	bool known;	     /* has proved itself */
	struct list strange; /* in rpc_server.strangers until then; oldest first */
	struct list dirty;   /* in rpc_server.dirty while something is to be flushed */
};

/* What another thread wants of the loop. */
struct order {
	struct order *next;
	uint64_t conn;
	bool answers, closes;
	struct buf frames;
};

struct rpc_server {
	struct rpc_server_config cfg;
	struct auth_key key;
	uv_loop_t loop;
	uv_tcp_t listener;
	uv_async_t async;
	pthread_t thread;
	uint16_t port;

	pthread_mutex_t lock;
	struct order *orders, **orders_end; /* lock */
	bool over;			    /* lock */

	/* the loop's */
	struct peer **peers; /* by slot */
	uint32_t n_strangers;
	uint64_t generation;
	struct list strangers, dirty;
	bool stopping;

	struct {
		atomic_ullong accepted, refused, strangers, malformed, slow, connections, requests;
	} stats;
};

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static struct peer *find(struct rpc_server *s, uint64_t id)
{
	uint32_t slot = rpc_slot(id);
	struct peer *p = slot < s->cfg.max_connections ? s->peers[slot] : NULL;

	return p && p->id == id ? p : NULL;
}

/* ---- a connection -------------------------------------------------------------------------------------------- */

static void peer_ready(void *arg)
{
	struct peer *p = arg;

	p->known = true;
	list_del(&p->strange);
	p->s->n_strangers--;
	count(&p->s->stats.connections);
}

static void peer_got(void *arg, struct wire_msg *w)
{
	struct peer *p = arg;
	struct rpc_server *s = p->s;
	uint64_t now = clock_ns(), wait_ns = w->timeout_us < UINT64_MAX / 2000 ? w->timeout_us * 1000 : 0;

	if (w->kind != WIRE_REQUEST) {
		msg_free(w->m);
		conn_close(p->conn, -EBADMSG);
		return;
	}
	count(&s->stats.requests);
	if (++p->requests >= s->cfg.max_requests)
		conn_pause(p->conn, true);
	s->cfg.request(s->cfg.arg, p->id, w->m, wait_ns ? now + wait_ns : 0);
}

static void count_end(struct rpc_server *s, int err)
{
	switch (err) {
	case -EPROTO:
	case -EACCES:
		count(&s->stats.strangers);
		break;
	case -EBADMSG:
		count(&s->stats.malformed);
		break;
	case -ENOBUFS:
		count(&s->stats.slow);
		break;
	case -ETIMEDOUT:
	case -EMFILE:
		count(&s->stats.refused);
		break;
	}
}

static void peer_closed(void *arg, int err)
{
	struct peer *p = arg;
	struct rpc_server *s = p->s;

	count_end(s, err);
	s->peers[rpc_slot(p->id)] = NULL;
	list_del(&p->strange);
	list_del(&p->dirty);
	if (p->known)
		atomic_fetch_sub_explicit(&s->stats.connections, 1, memory_order_relaxed);
	else
		s->n_strangers--;
	if (p->known && !s->stopping)
		s->cfg.closed(s->cfg.arg, p->id);
	free(p);
}

static const struct conn_ops peer_ops = {.ready = peer_ready, .got = peer_got, .closed = peer_closed};

static struct peer *peer_new(struct rpc_server *s)
{
	const struct conn_config cfg = {
	    .key = &s->key, .server = true, .handshake_ms = s->cfg.handshake_ms, .backlog = s->cfg.backlog};
	struct peer *p = calloc(1, sizeof(*p));
	uint32_t slot = 0;

	while (slot < s->cfg.max_connections && s->peers[slot])
		slot++;
	if (p && slot < s->cfg.max_connections)
		p->conn = conn_new(&s->loop, &cfg, &peer_ops, p);
	if (!p || !p->conn) {
		free(p);
		return NULL;
	}
	p->s = s;
	p->id = ++s->generation << RPC_SLOT_BITS | slot;
	list_init(&p->dirty);
	list_add_tail(&p->strange, &s->strangers);
	s->n_strangers++;
	s->peers[slot] = p;
	return p;
}

/* Whom there is no place for is let in and shown out, or it would wait at the door. */
static void refuse_closed(uv_handle_t *h)
{
	free(h);
}

static void refuse(struct rpc_server *s)
{
	uv_tcp_t *tcp = malloc(sizeof(*tcp));

	count(&s->stats.refused);
	if (!tcp)
		return;
	uv_tcp_init(&s->loop, tcp);
	uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)tcp);
	uv_close((uv_handle_t *)tcp, refuse_closed);
}

/* The oldest: its place is free when this returns. */
static void drop_stranger(struct rpc_server *s)
{
	conn_close(list_first(&s->strangers, struct peer, strange)->conn, -EMFILE);
}

static void knocked(uv_stream_t *listener, int err)
{
	struct rpc_server *s = listener->data;
	struct peer *p;

	if (err < 0)
		return;
	if (s->n_strangers >= s->cfg.max_strangers)
		drop_stranger(s);
	p = peer_new(s);
	if (!p && s->n_strangers) {
		drop_stranger(s);
		p = peer_new(s);
	}
	if (!p) {
		refuse(s);
		return;
	}
	count(&s->stats.accepted);
	conn_accept(p->conn, listener);
}

/* ---- what other threads want --------------------------------------------------------------------------------- */

static void carry_out(struct rpc_server *s, struct order *o)
{
	struct peer *p = find(s, o->conn);

	if (!p || !p->known)
		return;
	if (o->closes) {
		conn_close(p->conn, -ECONNABORTED);
		return;
	}
	list_del(&p->dirty);
	list_add_tail(&p->dirty, &s->dirty);
	if (o->answers && p->requests)
		p->requests--;
	if (conn_send_frames(p->conn, o->frames.data, o->frames.len) < 0)
		conn_close(p->conn, -ENOMEM); /* it will ask again */
}

static void flush_dirty(struct rpc_server *s)
{
	while (!list_empty(&s->dirty)) {
		struct peer *p = list_first(&s->dirty, struct peer, dirty);
		uint64_t id = p->id;

		list_del(&p->dirty);
		conn_flush(p->conn);
		p = find(s, id); /* unless that was its end */
		if (p && p->requests < s->cfg.max_requests)
			conn_pause(p->conn, false);
	}
}

static void end(struct rpc_server *s)
{
	s->stopping = true;
	for (uint32_t k = 0; k < s->cfg.max_connections; k++)
		if (s->peers[k])
			conn_close(s->peers[k]->conn, -ESHUTDOWN);
	uv_close((uv_handle_t *)&s->listener, NULL);
	uv_close((uv_handle_t *)&s->async, NULL);
}

static void woken(uv_async_t *async)
{
	struct rpc_server *s = async->data;
	struct order *o, *next;
	bool over;

	pthread_mutex_lock(&s->lock);
	o = s->orders;
	s->orders = NULL;
	s->orders_end = &s->orders;
	over = s->over;
	pthread_mutex_unlock(&s->lock);
	for (; o; o = next) {
		next = o->next;
		carry_out(s, o);
		buf_free(&o->frames);
		free(o);
	}
	flush_dirty(s);
	if (over && !s->stopping)
		end(s);
}

static void give_order(struct rpc_server *s, struct order *o)
{
	o->next = NULL;
	pthread_mutex_lock(&s->lock);
	*s->orders_end = o;
	s->orders_end = &o->next;
	pthread_mutex_unlock(&s->lock);
	uv_async_send(&s->async);
}

int rpc_server_send(struct rpc_server *s, uint64_t conn, const struct wire_msg *w)
{
	struct order *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->conn = conn;
	o->answers = w->kind == WIRE_ANSWER;
	r = wire_encode(w, &o->frames);
	if (r < 0) {
		buf_free(&o->frames);
		free(o);
		return r;
	}
	give_order(s, o);
	return 0;
}

void rpc_server_close(struct rpc_server *s, uint64_t conn)
{
	struct order *o;

	/* Memory comes back, and nobody can be told of a failure. */
	while (!(o = calloc(1, sizeof(*o))))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	o->conn = conn;
	o->closes = true;
	give_order(s, o);
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

static void *loop_main(void *arg)
{
	struct rpc_server *s = arg;

	uv_run(&s->loop, UV_RUN_DEFAULT);
	return NULL;
}

static void set_defaults(struct rpc_server_config *c)
{
	c->max_connections = c->max_connections ? c->max_connections : 4096;
	c->max_strangers = c->max_strangers ? c->max_strangers : 64;
	c->max_requests = c->max_requests ? c->max_requests : 1024;
	c->handshake_ms = c->handshake_ms ? c->handshake_ms : 5000;
	c->backlog = c->backlog ? c->backlog : 16u << 20;
	if (c->max_connections > 1u << RPC_SLOT_BITS)
		c->max_connections = 1u << RPC_SLOT_BITS;
}

static int open_listener(struct rpc_server *s, const struct sockaddr_storage *at, struct errmsg *e)
{
	struct sockaddr_storage name;
	int r, len = sizeof(name);

	r = uv_tcp_bind(&s->listener, (const struct sockaddr *)at, 0);
	if (!r)
		r = uv_listen((uv_stream_t *)&s->listener, LISTEN_BACKLOG, knocked);
	if (!r)
		r = uv_tcp_getsockname(&s->listener, (struct sockaddr *)&name, &len);
	if (r < 0)
		return errmsg_set(e, r, "listen %s: %s", s->cfg.listen, strerror(-r));
	/* The port is at the same place in both families. */
	s->port = ntohs(((const struct sockaddr_in *)&name)->sin_port);
	return 0;
}

static int start_thread(struct rpc_server *s, struct errmsg *e)
{
	int r = pthread_create(&s->thread, NULL, loop_main, s);

	if (r)
		return errmsg_set(e, -r, "cannot start the network's thread: %s", strerror(r));
	pthread_setname_np(s->thread, "fkv-rpc");
	return 0;
}

static void server_free(struct rpc_server *s)
{
	for (struct order *o = s->orders, *next; o; o = next) {
		next = o->next;
		buf_free(&o->frames);
		free(o);
	}
	pthread_mutex_destroy(&s->lock);
	free(s->peers);
	sodium_memzero(&s->key, sizeof(s->key));
	free(s);
}

/* A loop whose handles are there. On failure it is gone again. */
static int run(struct rpc_server *s, const struct sockaddr_storage *at, struct errmsg *e)
{
	int r = uv_loop_init(&s->loop);

	if (r < 0)
		return errmsg_set(e, r, "cannot start the network's loop: %s", strerror(-r));
	r = uv_async_init(&s->loop, &s->async, woken);
	if (r < 0) {
		uv_loop_close(&s->loop);
		return errmsg_set(e, r, "cannot start the network's loop: %s", strerror(-r));
	}
	uv_tcp_init(&s->loop, &s->listener);
	s->async.data = s->listener.data = s;
	r = open_listener(s, at, e);
	if (!r)
		r = start_thread(s, e);
	if (r < 0) {
		end(s);
		uv_run(&s->loop, UV_RUN_DEFAULT);
		uv_loop_close(&s->loop);
	}
	return r;
}

int rpc_server_start(const struct rpc_server_config *cfg, struct rpc_server **ret, struct errmsg *e)
{
	struct rpc_server *s = calloc(1, sizeof(*s));
	struct sockaddr_storage at;
	int r;

	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory");
	s->cfg = *cfg;
	set_defaults(&s->cfg);
	s->orders_end = &s->orders;
	list_init(&s->strangers);
	list_init(&s->dirty);
	pthread_mutex_init(&s->lock, NULL);
	s->peers = calloc(s->cfg.max_connections, sizeof(*s->peers));
	r = s->peers ? listen_read(cfg->listen, cfg->key_file, &at, &s->key, e)
		     : errmsg_set(e, -ENOMEM, "out of memory");
	if (!r)
		r = run(s, &at, e);
	if (r < 0) {
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct rpc_server *rpc_server_stop(struct rpc_server *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->over = true;
	pthread_mutex_unlock(&s->lock);
	uv_async_send(&s->async);
	pthread_join(s->thread, NULL);
	uv_loop_close(&s->loop);
	server_free(s);
	return NULL;
}

uint16_t rpc_server_port(const struct rpc_server *s)
{
	return s->port;
}

static uint64_t get(atomic_ullong *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

void rpc_server_get_stats(struct rpc_server *s, struct rpc_server_stats *ret)
{
	*ret = (struct rpc_server_stats){
	    .accepted = get(&s->stats.accepted),
	    .refused = get(&s->stats.refused),
	    .strangers = get(&s->stats.strangers),
	    .malformed = get(&s->stats.malformed),
	    .slow = get(&s->stats.slow),
	    .connections = get(&s->stats.connections),
	    .requests = get(&s->stats.requests),
	};
}
