/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rpc_client.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#include "common/clock.h"
#include "common/list.h"
#include "common/log.h"
#include "net/addr.h"
#include "net/conn.h"

#define TICK_MS 50u
#define BUCKETS 4096u
#define BACKLOG SIZE_MAX /* ours is what waits to be sent; it is bounded by the calls themselves */

struct call {
	struct list calls;  /* in rpc_client.waiting, .first or .sent */
	struct list bucket; /* in rpc_client.buckets, by id */
	struct call *next;  /* in rpc_client.queue */
	struct msg *req;
	channel_done_fn done;
	void *arg;
	uint64_t caller_id, id;
	uint64_t deadline_ns, sent_ns;
	bool is_sent, ever_sent; /* over this connection; over any */
	bool first;		 /* msg_goes_first() */
};

struct rpc_client {
	struct channel channel; /* first: the callers know nothing else */
	struct rpc_client_config cfg;
	struct addr addr;
	char *name; /* as it was given, for the log */
	struct auth_key key;
	uv_loop_t loop;
	uv_async_t async;
	uv_timer_t tick, retry;
	pthread_t thread;

	pthread_mutex_t lock;
	struct call *queue, **queue_end; /* lock */
	bool over;			 /* lock */
	bool given_up;			 /* lock: no call has an answer any more */
	char local[64];			 /* lock: this end's address, while there is a connection */
	pthread_cond_t turned;		 /* the connection came up, or an attempt failed */

	pthread_mutex_t notice_lock; /* held while a notice is delivered: none runs when set_notice() has returned */
	channel_notice_fn notice;    /* notice_lock */
	void *notice_arg;	     /* notice_lock */

	/* the loop's */
	/* Not answered, each in the order of the calls, so also by deadline; those in sent came before those in
	 * waiting and first. */
	struct list waiting, first, sent; /* first: those that go first; sent: over this connection */
	unsigned n_sent, n_first;	  /* of sent: of those that go first, and of the others */
	struct list *buckets;
	struct conn *conn; /* being made, or there */
	uv_getaddrinfo_t lookup;
	bool up, looking_up, stopping;
	bool held; /* the master waits for the node to say what it has */
	uint64_t next_id;
	uint64_t heard_ns; /* when something came last */
	uint64_t back_off_ms;
	unsigned attempts;

	struct {
		atomic_bool up;
		atomic_int error;
		atomic_ullong connects, breaks, resent, timed_out;
	} stats;
};

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static uint64_t draw(void)
{
	uint64_t v;

	/* Without it attempts come at regular times, and ids begin where others do: neither is wrong within one life.
	 */
	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != (ssize_t)sizeof(v))
		v = clock_ns();
	return v;
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

/* What counts it while it is sent and not answered. */
static unsigned *window(struct rpc_client *c, const struct call *call)
{
	return call->first ? &c->n_first : &c->n_sent;
}

static struct list *bucket(struct rpc_client *c, uint64_t id)
{
	return &c->buckets[id % BUCKETS];
}

static struct call *find(struct rpc_client *c, uint64_t id)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, bucket(c, id))
	{
		struct call *call = container_of(pos, struct call, bucket);

		if (call->id == id)
			return call;
	}
	return NULL;
}

/* Gives the caller its answer, under the number it knows. */
static void finish(struct rpc_client *c, struct call *call, struct msg *answer)
{
	*window(c, call) -= call->is_sent;
	list_del(&call->calls);
	list_del(&call->bucket);
	answer->req_id = call->caller_id;
	if (call->done)
		call->done(call->arg, answer);
	if (answer != call->req)
		msg_free(answer);
	msg_free(call->req);
	free(call);
}

static void fail(struct rpc_client *c, struct call *call, int err)
{
	call->req->status = err;
	finish(c, call, call->req);
}

/* Appends it to what is to be sent. False when the connection has ended over it. */
static bool send_call(struct rpc_client *c, struct call *call, uint64_t now)
{
	struct wire_msg w = {.kind = WIRE_REQUEST, .m = call->req};
	int r;

	if (call->deadline_ns > now)
		w.timeout_us = (call->deadline_ns - now) / 1000;
	r = conn_send(c->conn, &w);
	if (r == -ENOMEM) {
		conn_close(c->conn, r); /* memory comes back, and so do we */
		return false;
	}
	if (r < 0) {
		fail(c, call, r);
		return true;
	}
	if (call->ever_sent)
		count(&c->stats.resent);
	call->is_sent = call->ever_sent = true;
	call->sent_ns = now;
	list_del(&call->calls);
	list_add_tail(&call->calls, &c->sent);
	++*window(c, call);
	return true;
}

/* What a master takes from a node that it waits for. */
static bool attaches(enum msg_type type)
{
	switch (type) {
	case MSG_JOIN:
	case MSG_HEARTBEAT:
	case MSG_LEAVE:
	case MSG_INVENTORY:
	case MSG_PUT_RESUME:
		return true;
	default:
		return false;
	}
}

/* Of those that wait there. False when the connection has ended over it. */
static bool send_attaching(struct rpc_client *c, struct list *calls, uint64_t now)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, calls)
	{
		struct call *call = container_of(pos, struct call, calls);

		if (attaches(call->req->type) && !send_call(c, call, now))
			return false;
	}
	return true;
}

static void send_held(struct rpc_client *c, uint64_t now)
{
	if (send_attaching(c, &c->first, now) && send_attaching(c, &c->waiting, now))
		conn_flush(c->conn);
}

/* As many as may be without an answer. */
static void send_some(struct rpc_client *c)
{
	uint64_t now = clock_ns();

	if (c->up && c->held) {
		send_held(c, now);
		return;
	}
	while (c->up && c->n_first < RPC_BEYOND && !list_empty(&c->first))
		if (!send_call(c, list_first(&c->first, struct call, calls), now))
			return;
	while (c->up && c->n_sent < RPC_WINDOW && !list_empty(&c->waiting))
		if (!send_call(c, list_first(&c->waiting, struct call, calls), now))
			return;
	if (c->up)
		conn_flush(c->conn);
}

static struct list *line(struct rpc_client *c, const struct call *call)
{
	return call->first ? &c->first : &c->waiting;
}

/* The connection has gone: all of them wait again, before those that have waited so far. */
static void unsend_all(struct rpc_client *c)
{
	while (!list_empty(&c->sent)) {
		struct call *call = container_of(c->sent.prev, struct call, calls);

		call->is_sent = false;
		list_del(&call->calls);
		list_add(&call->calls, line(c, call));
	}
	c->n_sent = c->n_first = 0;
}

static void fail_all(struct rpc_client *c)
{
	unsend_all(c);
	while (!list_empty(&c->first))
		fail(c, list_first(&c->first, struct call, calls), -ESHUTDOWN);
	while (!list_empty(&c->waiting))
		fail(c, list_first(&c->waiting, struct call, calls), -ESHUTDOWN);
}

static void add_call(struct rpc_client *c, struct call *call)
{
	call->id = call->req->req_id = c->next_id++;
	call->first = msg_goes_first(call->req->type);
	list_add_tail(&call->calls, line(c, call));
	list_add(&call->bucket, bucket(c, call->id));
}

static bool may_expire(const struct call *call)
{
	return !call->ever_sent || msg_only_reads(call->req->type);
}

/* What is over, as far as it can be said that nothing has happened. */
static void expire(struct rpc_client *c, struct list *calls, uint64_t now)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, calls)
	{
		struct call *call = container_of(pos, struct call, calls);

		if (call->deadline_ns > now)
			return;
		if (!may_expire(call))
			continue;
		count(&c->stats.timed_out);
		fail(c, call, -ETIMEDOUT);
	}
}

/* Whether the connection is silent though the first that went out over it has waited long enough. */
static bool is_silent(const struct rpc_client *c, uint64_t now)
{
	uint64_t wait_ns = c->cfg.silence_ms * NS_PER_MS;

	return !list_empty(&c->sent) && now - list_first(&c->sent, struct call, calls)->sent_ns > wait_ns &&
	       now - c->heard_ns > wait_ns;
}

static bool has_calls(const struct rpc_client *c)
{
	return !list_empty(&c->sent) || !list_empty(&c->waiting) || !list_empty(&c->first);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static bool good_answer(const struct msg *req, const struct msg *m)
{
	if (m->type != req->type)
		return false;
	if (m->status)
		return true;
	switch (m->type) {
	case MSG_PUT_START:
	case MSG_PUT_EXTEND:
		return m->n_items == 1;
	case MSG_SSD_COMMIT:
	case MSG_SSD_EVICT:
	case MSG_MEM_EVICT:
	case MSG_DELETE_ACK:
	case MSG_ALLOC_FREED:
	case MSG_INVENTORY:
	case MSG_HOLD:
	case MSG_RELEASE:
		return m->n_items == req->n_items;
	default:
		return true;
	}
}

/* Back to those that wait, where it was among them. Nothing has come of it. */
static void hold_back(struct rpc_client *c, struct call *call)
{
	struct list *calls = line(c, call), *pos = calls->next;

	call->is_sent = call->ever_sent = false;
	--*window(c, call);
	list_del(&call->calls);
	while (pos != calls && container_of(pos, struct call, calls)->id < call->id)
		pos = pos->next;
	list_add_tail(&call->calls, pos);
}

static void be_held(struct rpc_client *c)
{
	if (c->held)
		return;
	c->held = true;
	c->cfg.unattached(c->cfg.arg);
}

/* Whether this answer is the end of the waiting. */
static bool lets_go(const struct msg *req, const struct msg *answer)
{
	/* It lives there already: what was refused is late. */
	if (req->type == MSG_JOIN && req->u.join.tomb_tag && answer->status == -EBUSY)
		return true;
	if (answer->status)
		return false;
	if (req->type == MSG_JOIN)
		return answer->u.join.tomb_tag != req->u.join.tomb_tag;
	return req->type == MSG_INVENTORY && req->u.inventory.end;
}

static void got_answer(struct rpc_client *c, struct msg *m)
{
	struct call *call = find(c, m->req_id);

	/* One that has had its time out is answered late. */
	if (!call) {
		msg_free(m);
		return;
	}
	if (!good_answer(call->req, m)) {
		msg_free(m);
		conn_close(c->conn, -EBADMSG);
		return;
	}
	if (m->status == -EUNATCH && c->cfg.unattached) {
		be_held(c);
		if (!attaches(m->type)) {
			hold_back(c, call);
			msg_free(m);
			return;
		}
	}
	if (lets_go(call->req, m))
		c->held = false;
	finish(c, call, m);
	send_some(c);
}

static void got_notice(struct rpc_client *c, struct msg *m)
{
	pthread_mutex_lock(&c->notice_lock);
	if (c->notice)
		c->notice(c->notice_arg, m);
	pthread_mutex_unlock(&c->notice_lock);
	msg_free(m);
}

static void conn_got(void *arg, struct wire_msg *w)
{
	struct rpc_client *c = arg;

	c->heard_ns = clock_ns();
	switch (w->kind) {
	case WIRE_ANSWER:
		got_answer(c, w->m);
		break;
	case WIRE_NOTICE:
		got_notice(c, w->m);
		break;
	default:
		msg_free(w->m);
		conn_close(c->conn, -EBADMSG);
	}
}

/* ---- the connection ------------------------------------------------------------------------------------------ */

static void look_up(struct rpc_client *c);

static void retry(uv_timer_t *t)
{
	look_up(t->data);
}

/* Later, at a time that the others who have lost the same master do not choose, too. */
static void try_again(struct rpc_client *c, int err)
{
	uint64_t wait = c->back_off_ms / 2 + draw() % (c->back_off_ms + 1);

	pthread_mutex_lock(&c->lock);
	c->local[0] = '\0';
	atomic_store(&c->stats.error, err);
	pthread_cond_broadcast(&c->turned);
	pthread_mutex_unlock(&c->lock);
	if (c->stopping)
		return;
	c->back_off_ms = c->back_off_ms * 2 < c->cfg.max_back_off_ms ? c->back_off_ms * 2 : c->cfg.max_back_off_ms;
	uv_timer_start(&c->retry, retry, wait, 0);
}

static void conn_ready(void *arg)
{
	struct rpc_client *c = arg;

	c->up = true;
	c->heard_ns = clock_ns();
	c->back_off_ms = c->cfg.back_off_ms;
	if (atomic_load(&c->stats.connects))
		log_info("the master at %s is there again", c->name);
	count(&c->stats.connects);
	pthread_mutex_lock(&c->lock);
	if (conn_local(c->conn, c->local, sizeof(c->local)) < 0)
		c->local[0] = '\0';
	atomic_store(&c->stats.error, 0);
	pthread_cond_broadcast(&c->turned);
	pthread_mutex_unlock(&c->lock);
	atomic_store(&c->stats.up, true);
	send_some(c);
}

static void conn_closed(void *arg, int err)
{
	struct rpc_client *c = arg;

	if (c->up) {
		count(&c->stats.breaks);
		if (!c->stopping)
			log_warn("the connection to the master at %s has ended (%s), trying again", c->name,
				 strerror(-err));
	}
	c->conn = NULL;
	c->up = false;
	atomic_store(&c->stats.up, false);
	unsend_all(c);
	try_again(c, err);
}

static const struct conn_ops ops = {.ready = conn_ready, .got = conn_got, .closed = conn_closed};

/* Attempts take the addresses of a name in turn. */
static const struct sockaddr *choose(const struct addrinfo *list, unsigned attempt)
{
	unsigned n = 0;

	for (const struct addrinfo *a = list; a; a = a->ai_next)
		n++;
	for (attempt %= n; attempt; attempt--)
		list = list->ai_next;
	return list->ai_addr;
}

static void connect_to(struct rpc_client *c, const struct sockaddr *at)
{
	const struct conn_config cfg = {.key = &c->key, .handshake_ms = c->cfg.connect_ms, .backlog = BACKLOG};

	c->conn = conn_new(&c->loop, &cfg, &ops, c);
	if (c->conn)
		conn_connect(c->conn, at);
	else
		try_again(c, -ENOMEM);
}

static void looked_up(uv_getaddrinfo_t *req, int err, struct addrinfo *list)
{
	struct rpc_client *c = req->data;

	c->looking_up = false;
	if (err < 0 || !list)
		try_again(c, err == UV_EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH);
	else if (!c->stopping)
		connect_to(c, choose(list, c->attempts++));
	uv_freeaddrinfo(list);
}

static void look_up(struct rpc_client *c)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	int r = uv_getaddrinfo(&c->loop, &c->lookup, looked_up, c->addr.host, c->addr.port, &hints);

	if (r < 0)
		try_again(c, r == UV_ENOMEM ? -ENOMEM : -EHOSTUNREACH);
	else
		c->looking_up = true;
}

/* ---- the channel --------------------------------------------------------------------------------------------- */

static void client_call(struct channel *ch, struct msg *req, channel_done_fn done, void *arg)
{
	struct rpc_client *c = (struct rpc_client *)ch;
	struct call *call;

	/* The caller cannot be told of a failure in here, so there must be none: memory comes back. */
	while (!(call = calloc(1, sizeof(*call))))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	*call = (struct call){.req = req, .done = done, .arg = arg, .caller_id = req->req_id};
	call->deadline_ns = clock_ns() + c->cfg.timeout_ms * NS_PER_MS;
	pthread_mutex_lock(&c->lock);
	*c->queue_end = call;
	c->queue_end = &call->next;
	pthread_mutex_unlock(&c->lock);
	uv_async_send(&c->async);
}

static void client_set_notice(struct channel *ch, channel_notice_fn fn, void *arg)
{
	struct rpc_client *c = (struct rpc_client *)ch;

	pthread_mutex_lock(&c->notice_lock);
	c->notice = fn;
	c->notice_arg = arg;
	pthread_mutex_unlock(&c->notice_lock);
}

/* Whom a LEAVE is said for. */
struct farewell {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
};

static void farewell_answered(void *arg, const struct msg *answer)
{
	struct farewell *f = arg;

	pthread_mutex_lock(&f->lock);
	f->over = true;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

static void give_up(struct rpc_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->given_up = true;
	pthread_mutex_unlock(&c->lock);
	uv_async_send(&c->async);
}

static void client_last(struct channel *ch, struct msg *req, uint64_t wait_ns)
{
	struct rpc_client *c = (struct rpc_client *)ch;
	struct timespec until = clock_timespec(clock_ns() + wait_ns);
	struct farewell f = {.over = false};
	int r = 0;

	pthread_mutex_init(&f.lock, NULL);
	clock_cond_init(&f.cond);
	client_call(ch, req, farewell_answered, &f);
	pthread_mutex_lock(&f.lock);
	while (!f.over && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&f.cond, &f.lock, &until);
	pthread_mutex_unlock(&f.lock);
	give_up(c);
	/* It has its answer now, from the master or from here. */
	pthread_mutex_lock(&f.lock);
	while (!f.over)
		pthread_cond_wait(&f.cond, &f.lock);
	pthread_mutex_unlock(&f.lock);
	pthread_cond_destroy(&f.cond);
	pthread_mutex_destroy(&f.lock);
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

static void ticked(uv_timer_t *t)
{
	struct rpc_client *c = t->data;
	uint64_t now = clock_ns();

	if (is_silent(c, now))
		conn_close(c->conn, -ETIMEDOUT);
	expire(c, &c->sent, now);
	expire(c, &c->waiting, now);
	expire(c, &c->first, now);
	send_some(c);
	if (!has_calls(c))
		uv_timer_stop(t);
}

static void end(struct rpc_client *c)
{
	c->stopping = true;
	conn_close(c->conn, -ESHUTDOWN);
	fail_all(c);
	if (c->looking_up)
		uv_cancel((uv_req_t *)&c->lookup);
	uv_close((uv_handle_t *)&c->tick, NULL);
	uv_close((uv_handle_t *)&c->retry, NULL);
	uv_close((uv_handle_t *)&c->async, NULL);
}

/* Takes the calls in, and sends them where there is a connection. */
static void take_in(struct rpc_client *c, struct call *call, bool given_up)
{
	struct call *next;

	for (; call; call = next) {
		next = call->next;
		add_call(c, call);
	}
	if (given_up)
		fail_all(c);
	send_some(c);
	if (has_calls(c) && !uv_is_active((uv_handle_t *)&c->tick))
		uv_timer_start(&c->tick, ticked, TICK_MS, TICK_MS);
}

static void woken(uv_async_t *async)
{
	struct rpc_client *c = async->data;
	struct call *queue;
	bool over, given_up;

	pthread_mutex_lock(&c->lock);
	queue = c->queue;
	c->queue = NULL;
	c->queue_end = &c->queue;
	over = c->over;
	given_up = c->given_up;
	pthread_mutex_unlock(&c->lock);
	take_in(c, queue, given_up);
	if (over && !c->stopping)
		end(c);
}

static void *loop_main(void *arg)
{
	struct rpc_client *c = arg;

	look_up(c);
	uv_run(&c->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

static void set_defaults(struct rpc_client_config *c)
{
	c->timeout_ms = c->timeout_ms ? c->timeout_ms : 30000;
	c->connect_ms = c->connect_ms ? c->connect_ms : 5000;
	c->silence_ms = c->silence_ms ? c->silence_ms : 5000;
	c->back_off_ms = c->back_off_ms ? c->back_off_ms : 20;
	c->max_back_off_ms = c->max_back_off_ms ? c->max_back_off_ms : 2000;
}

static void client_free(struct rpc_client *c)
{
	pthread_cond_destroy(&c->turned);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->notice_lock);
	free(c->buckets);
	free(c->name);
	sodium_memzero(&c->key, sizeof(c->key));
	free(c);
}

/* A loop whose handles are there, and its thread. On failure it is gone again. */
static int run(struct rpc_client *c, struct errmsg *e)
{
	int r = uv_loop_init(&c->loop);

	if (!r && (r = uv_async_init(&c->loop, &c->async, woken)) < 0)
		uv_loop_close(&c->loop);
	if (r < 0)
		return errmsg_set(e, r, "cannot start the network's loop: %s", strerror(-r));
	uv_timer_init(&c->loop, &c->tick);
	uv_timer_init(&c->loop, &c->retry);
	c->async.data = c->tick.data = c->retry.data = c->lookup.data = c;
	r = pthread_create(&c->thread, NULL, loop_main, c);
	if (r) {
		end(c);
		uv_run(&c->loop, UV_RUN_DEFAULT);
		uv_loop_close(&c->loop);
		return errmsg_set(e, -r, "cannot start the network's thread: %s", strerror(r));
	}
	pthread_setname_np(c->thread, "fkv-rpc");
	return 0;
}

static int set_up(struct rpc_client *c, const struct rpc_client_config *cfg, struct errmsg *e)
{
	int r;

	c->channel = (struct channel){.call = client_call, .set_notice = client_set_notice, .last = client_last};
	c->cfg = *cfg;
	set_defaults(&c->cfg);
	c->back_off_ms = c->cfg.back_off_ms;
	c->queue_end = &c->queue;
	c->next_id = (draw() >> 1) + 1;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->turned);
	pthread_mutex_init(&c->notice_lock, NULL);
	list_init(&c->waiting);
	list_init(&c->first);
	list_init(&c->sent);
	c->buckets = malloc(BUCKETS * sizeof(*c->buckets));
	if (!c->buckets)
		return errmsg_set(e, -ENOMEM, "out of memory");
	for (size_t k = 0; k < BUCKETS; k++)
		list_init(&c->buckets[k]);
	c->name = strdup(cfg->master);
	if (!c->name)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = addr_parse(cfg->master, &c->addr, e);
	return r < 0 ? r : auth_key_load(cfg->key_file, &c->key, e);
}

int rpc_client_start(const struct rpc_client_config *cfg, struct rpc_client **ret, struct errmsg *e)
{
	struct rpc_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = set_up(c, cfg, e);
	if (!r)
		r = run(c, e);
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct rpc_client *rpc_client_stop(struct rpc_client *c)
{
	if (!c)
		return NULL;
	pthread_mutex_lock(&c->lock);
	c->over = true;
	pthread_mutex_unlock(&c->lock);
	uv_async_send(&c->async);
	pthread_join(c->thread, NULL);
	uv_loop_close(&c->loop);
	client_free(c);
	return NULL;
}

struct channel *rpc_client_channel(struct rpc_client *c)
{
	return &c->channel;
}

int rpc_client_wait_up(struct rpc_client *c, uint64_t wait_ms, char *ret, size_t size)
{
	struct timespec until = clock_timespec(clock_ns() + wait_ms * NS_PER_MS);
	int r = 0, error;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		error = atomic_load(&c->stats.error);
		if (c->local[0] || error == -EACCES || error == -EPROTO || r == ETIMEDOUT)
			break;
		r = pthread_cond_timedwait(&c->turned, &c->lock, &until);
	}
	if (c->local[0])
		snprintf(ret, size, "%s", c->local);
	r = c->local[0] ? 0 : error ? error : -ETIMEDOUT;
	pthread_mutex_unlock(&c->lock);
	return r;
}

void rpc_client_get_stats(struct rpc_client *c, struct rpc_client_stats *ret)
{
	*ret = (struct rpc_client_stats){
	    .up = atomic_load(&c->stats.up),
	    .error = atomic_load(&c->stats.error),
	    .connects = atomic_load(&c->stats.connects),
	    .breaks = atomic_load(&c->stats.breaks),
	    .resent = atomic_load(&c->stats.resent),
	    .timed_out = atomic_load(&c->stats.timed_out),
	};
}
