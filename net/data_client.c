/* SPDX-License-Identifier: Apache-2.0 */
#include "net/data_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "net/data_pool.h"
#include "net/data_wire.h"
#include "net/lookup.h"

#define PIECE_BYTES (256u * 1024) /* hashed while the core's cache still has them */

struct data_client {
	struct data_client_config cfg;
	struct auth_key key;
	struct data_pool *pool;
	int stop_fd; /* can be read once it has been stopped */
	atomic_bool stopped;

	pthread_mutex_t lock;
	pthread_cond_t quiet; /* n_pulls has become 0 */
	unsigned n_pulls;     /* lock */

	struct {
		atomic_ullong pulls, bytes, connects, replaced, unreachable, denied, missing, timed_out, broken,
		    malformed, checksum, other;
	} stats;
};

struct pull {
	struct data_client *c;
	const char *address;
	const struct plan *plan;
	uint8_t *buf;
	struct data_answer answer;
	XXH3_state_t hash;
	struct data_timing timing;
	bool connecting; /* what fails now fails there */
};

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* ---- a connection -------------------------------------------------------------------------------------------- */

/* To one of an address's hosts. On failure there is none. */
static int connect_to(struct data_client *c, struct sock *s, const struct sockaddr_storage *to)
{
	int r;

	s->fd = sock_new(to->ss_family);
	if (s->fd < 0)
		return s->fd;
	sock_tune(s->fd, c->cfg.silence_ms);
	r = sock_connect(s, to);
	if (!r)
		r = sock_shake(s, &c->key, AUTH_DATA, false);
	if (r < 0) {
		close(s->fd);
		s->fd = -1;
	}
	return r;
}

/* A name may stand for several: the first one that answers, all within one time. */
static int connect_link(struct data_client *c, struct data_link *l)
{
	struct sockaddr_storage at[LOOKUP_MAX];
	size_t n = 0;
	int r;

	l->sock.stop_fd = c->stop_fd;
	l->sock.silence_ms = c->cfg.connect_ms;
	l->sock.deadline_ns = sock_deadline(c->cfg.connect_ms, 0, 1);
	r = lookup(l->address, &l->sock, at, &n);
	for (size_t k = 0; k < n; k++) {
		r = connect_to(c, &l->sock, &at[k]);
		if (!r || r == -ESHUTDOWN)
			break;
	}
	return r;
}

static int make_link(struct pull *p, struct data_link **ret)
{
	struct data_link *l = data_link_new(p->address);
	uint64_t began = clock_ns();
	int r;

	if (!l)
		return -ENOMEM;
	p->connecting = true;
	r = connect_link(p->c, l);
	if (r < 0) {
		data_link_free(l);
		return r;
	}
	p->connecting = false;
	p->timing.connect_ns = clock_ns() - began;
	count(&p->c->stats.connects);
	*ret = l;
	return 0;
}

/* ---- a transfer ---------------------------------------------------------------------------------------------- */

/* Bytes of payload, to the place behind those that are there. */
static int take_payload(struct pull *p, struct sock *s, uint64_t len)
{
	uint8_t *to = p->buf + (p->answer.got - len);
	int r = 0;

	while (!r && len) {
		size_t n = len < PIECE_BYTES ? len : PIECE_BYTES;

		/* Where the source is the faster one nothing is ever waited for. */
		r = atomic_load_explicit(&p->c->stopped, memory_order_relaxed) ? -ESHUTDOWN : sock_read(s, to, n);
		if (!r)
			XXH3_64bits_update(&p->hash, to, n);
		to += n;
		len -= n;
	}
	return r;
}

static int take_answer(struct pull *p, struct sock *s, uint8_t part[DATA_PART_BYTES])
{
	uint64_t n = 0;
	int r;

	data_answer_begin(&p->answer, p->plan);
	XXH3_64bits_reset(&p->hash);
	for (;;) {
		r = data_answer_take(&p->answer, part, &n);
		if (r)
			break;
		r = take_payload(p, s, n);
		if (!r)
			r = sock_read(s, part, DATA_PART_BYTES);
		if (r < 0)
			return r;
	}
	/* There is one word for bytes that are damaged, and it is told by their sum alone. */
	return r == -EBADMSG ? -EPROTO : r;
}

static bool has_gone(int err)
{
	return err == -ECONNRESET || err == -EPIPE || err == -ECONNABORTED;
}

/* Asks, and hears the answer's first part. *ret_gone: the connection has ended before anything of it came. */
static int ask(struct pull *p, struct sock *s, uint8_t part[DATA_PART_BYTES], bool *ret_gone)
{
	uint8_t request[DATA_REQUEST_BYTES];
	ssize_t n;
	int r;

	data_encode_request(p->plan, request);
	r = sock_write(s, request, sizeof(request), false);
	n = r < 0 ? r : sock_read_some(s, part, DATA_PART_BYTES);
	if (n > 0)
		return sock_read(s, part + n, DATA_PART_BYTES - (size_t)n);
	r = n ? (int)n : -ECONNRESET;
	*ret_gone = has_gone(r);
	return r;
}

/* 1: there is an answer, whatever it says, and the connection is good for another. */
static int transfer(struct pull *p, struct sock *s, bool *ret_gone)
{
	const struct data_client_config *cfg = &p->c->cfg;
	uint8_t part[DATA_PART_BYTES];
	uint64_t asked = clock_ns(), begun;
	int r;

	s->silence_ms = cfg->silence_ms;
	s->deadline_ns = sock_deadline(cfg->silence_ms, p->plan->len, cfg->min_rate);
	r = ask(p, s, part, ret_gone);
	if (r < 0)
		return r;
	begun = clock_ns();
	r = take_answer(p, s, part);
	p->timing.wait_ns = begun - asked;
	p->timing.body_ns = clock_ns() - begun;
	return r;
}

/* What an answer that is over says. */
static int result(struct pull *p, uint64_t *ret_sum)
{
	uint64_t sum;

	if (p->answer.status)
		return p->answer.status;
	sum = XXH3_64bits_digest(&p->hash);
	if (sum != p->answer.sum)
		return -EBADMSG;
	*ret_sum = sum;
	return 0;
}

/* Over a connection that is there, or a fresh one, or both in turn. */
static int run(struct pull *p, uint64_t *ret_sum)
{
	struct data_link *l = data_pool_take(p->c->pool, p->address);
	bool kept = l, gone = false;
	int r = l ? 0 : make_link(p, &l);

	if (!r)
		r = transfer(p, &l->sock, &gone);
	if (r < 0 && kept && gone) {
		data_link_free(l);
		l = NULL;
		r = make_link(p, &l);
		if (!r) {
			count(&p->c->stats.replaced);
			r = transfer(p, &l->sock, &gone);
		}
	}
	if (r < 0) {
		data_link_free(l);
		return r;
	}
	data_pool_give(p->c->pool, l);
	return result(p, ret_sum);
}

static void count_failure(struct data_client *c, int err, bool connecting)
{
	switch (err) {
	case -EACCES:
		count(&c->stats.denied);
		break;
	case -ENOENT:
	case -ESTALE:
		count(&c->stats.missing);
		break;
	case -EPROTO:
		count(&c->stats.malformed);
		break;
	case -EBADMSG:
		count(&c->stats.checksum);
		break;
	case -ESHUTDOWN:
	case -ENOMEM:
	case -EMFILE:
		count(&c->stats.other);
		break;
	default:
		count(connecting	  ? &c->stats.unreachable
		      : err == -ETIMEDOUT ? &c->stats.timed_out
		      : has_gone(err)	  ? &c->stats.broken
					  : &c->stats.other);
	}
}

static bool enter(struct data_client *c)
{
	bool stopped;

	pthread_mutex_lock(&c->lock);
	stopped = atomic_load(&c->stopped);
	c->n_pulls += !stopped;
	pthread_mutex_unlock(&c->lock);
	return !stopped;
}

static void leave(struct data_client *c)
{
	pthread_mutex_lock(&c->lock);
	if (!--c->n_pulls)
		pthread_cond_broadcast(&c->quiet);
	pthread_mutex_unlock(&c->lock);
}

int data_pull(struct data_client *c, const char *address, const struct plan *plan, void *buf, uint64_t *ret_sum,
	      struct data_timing *timing)
{
	struct pull p = {.c = c, .address = address, .plan = plan, .buf = buf};
	int r;

	if (!plan_is_sane(plan))
		return -EINVAL;
	if (!enter(c))
		return -ESHUTDOWN;
	r = run(&p, ret_sum);
	if (r < 0) {
		count_failure(c, r, p.connecting);
	} else {
		count(&c->stats.pulls);
		atomic_fetch_add_explicit(&c->stats.bytes, plan->len, memory_order_relaxed);
	}
	leave(c);
	if (!r && timing)
		*timing = p.timing;
	return r;
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

static void set_defaults(struct data_client_config *c)
{
	c->connect_ms = c->connect_ms ? c->connect_ms : 5000;
	c->silence_ms = c->silence_ms ? c->silence_ms : 5000;
	c->min_rate = c->min_rate ? c->min_rate : 1u << 20;
	c->idle_ms = c->idle_ms ? c->idle_ms : 30000;
	c->max_idle = c->max_idle ? c->max_idle : 64;
	c->max_idle_each = c->max_idle_each ? c->max_idle_each : 4;
}

static int set_up(struct data_client *c, struct errmsg *e)
{
	const struct data_pool_config pool = {
	    .max = c->cfg.max_idle, .max_each = c->cfg.max_idle_each, .idle_ms = c->cfg.idle_ms};
	int r = auth_key_load(c->cfg.key_file, &c->key, e);

	c->cfg.key_file = NULL;
	if (r < 0)
		return r;
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (c->stop_fd < 0)
		return errmsg_set(e, -errno, "cannot make an eventfd: %s", strerror(errno));
	return data_pool_start(&pool, &c->pool, e);
}

int data_client_start(const struct data_client_config *cfg, struct data_client **ret, struct errmsg *e)
{
	struct data_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return errmsg_set(e, -ENOMEM, "out of memory");
	c->cfg = *cfg;
	c->stop_fd = -1;
	set_defaults(&c->cfg);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->quiet, NULL);
	r = set_up(c, e);
	if (r < 0) {
		data_client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void data_client_stop(struct data_client *c)
{
	pthread_mutex_lock(&c->lock);
	atomic_store(&c->stopped, true);
	if (c->stop_fd >= 0)
		eventfd_write(c->stop_fd, 1);
	while (c->n_pulls)
		pthread_cond_wait(&c->quiet, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

struct data_client *data_client_free(struct data_client *c)
{
	if (!c)
		return NULL;
	data_client_stop(c);
	data_pool_stop(c->pool);
	if (c->stop_fd >= 0)
		close(c->stop_fd);
	pthread_cond_destroy(&c->quiet);
	pthread_mutex_destroy(&c->lock);
	sodium_memzero(&c->key, sizeof(c->key));
	free(c);
	return NULL;
}

static uint64_t get(atomic_ullong *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

void data_client_get_stats(struct data_client *c, struct data_client_stats *ret)
{
	*ret = (struct data_client_stats){
	    .pulls = get(&c->stats.pulls),
	    .bytes = get(&c->stats.bytes),
	    .connects = get(&c->stats.connects),
	    .replaced = get(&c->stats.replaced),
	    .idle = data_pool_count(c->pool),
	    .unreachable = get(&c->stats.unreachable),
	    .denied = get(&c->stats.denied),
	    .missing = get(&c->stats.missing),
	    .timed_out = get(&c->stats.timed_out),
	    .broken = get(&c->stats.broken),
	    .malformed = get(&c->stats.malformed),
	    .checksum = get(&c->stats.checksum),
	    .other = get(&c->stats.other),
	};
}
