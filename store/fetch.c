/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that go from node to node. Fetching: this node pulls one, by a plan of the master's (refill.c asks). Serving:
 * others pull one from here, from its memory file, which is pinned meanwhile, or from the SSD tier, by way of a staging
 * buffer: what is read of it is on its way while the rest is still being read.
 *
 * A plan names an allocation or the SSD, but any copy of the block is the right one: its bytes never change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "net/data_client.h"
#include "net/data_server.h"
#include "store/impl.h"
#include "store/staging.h"

int fetch_block(struct node *n, const char *address, const struct plan *plan, void *map, uint64_t *ret_sum)
{
	return data_pull(n->client, address, plan, map, ret_sum, NULL);
}

/* What one transfer from here holds. */
struct serving {
	struct node *n;
	uint64_t len;

	/* from memory: a pin */
	struct block *b;
	int fd;

	/* from the SSD */
	void *buf;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t ready; /* lock */
	uint64_t sum;	/* lock */
	int err;	/* lock */
	bool over;	/* lock: the device has answered */
	unsigned refs;	/* lock: the transfer's, the device's */
};

/* ---- from the SSD -------------------------------------------------------------------------------------------- */

/* The buffer is the device's until that has answered. */
static void put_stream(struct serving *v)
{
	bool last;

	pthread_mutex_lock(&v->lock);
	last = !--v->refs;
	pthread_mutex_unlock(&v->lock);
	if (!last)
		return;
	staging_put(v->n->staging, v->buf, v->len);
	pthread_cond_destroy(&v->cond);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

static void stream_ready(void *arg, uint64_t bytes)
{
	struct serving *v = arg;

	pthread_mutex_lock(&v->lock);
	v->ready = bytes;
	pthread_cond_signal(&v->cond);
	pthread_mutex_unlock(&v->lock);
}

static void stream_over(void *arg, int err, uint64_t sum)
{
	struct serving *v = arg;

	pthread_mutex_lock(&v->lock);
	v->err = err;
	v->sum = sum;
	v->over = true;
	pthread_cond_signal(&v->cond);
	pthread_mutex_unlock(&v->lock);
	put_stream(v);
}

/* The last bytes are told of when all of them are known to be right. */
static int stream_wait(void *arg, uint64_t have, uint64_t *ret_ready, uint64_t *ret_sum)
{
	struct serving *v = arg;
	struct timespec until = clock_timespec(clock_ns() + v->n->leg_deadline_ns);
	int r = 0;

	pthread_mutex_lock(&v->lock);
	while (!v->over && (v->ready <= have || v->ready == v->len) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&v->cond, &v->lock, &until);
	if (v->over) {
		r = v->err;
		*ret_ready = v->len;
		*ret_sum = v->sum;
	} else if (r == ETIMEDOUT) {
		r = -EIO;
	} else {
		*ret_ready = v->ready;
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int open_stream(struct serving *v, struct ssd_key key, struct data_source *ret)
{
	struct node *n = v->n;
	int r = staging_get(n->staging, v->len, clock_ns() + n->leg_deadline_ns, &v->buf);

	if (r < 0)
		return r == -ETIMEDOUT ? -EAGAIN : r;
	pthread_mutex_init(&v->lock, NULL);
	clock_cond_init(&v->cond);
	v->refs = 2;
	ret->buf = v->buf;
	ret->wait = stream_wait;
	ret->arg = v;
	r = ssd_read_progress(n->ssd, key, v->buf, segment_charge(v->len), v->len, stream_ready, stream_over, v);
	if (r == 0)
		return 0;
	staging_put(n->staging, v->buf, v->len);
	pthread_cond_destroy(&v->cond);
	pthread_mutex_destroy(&v->lock);
	return r;
}

/* ---- from memory --------------------------------------------------------------------------------------------- */

/* Pins the block. Its sum is taken once, as it is sent for the first time. Call with the shard locked. */
static int open_memory(struct serving *v, struct block *b, struct data_source *ret)
{
	struct node *n = v->n;
	bool known = b->flags & BLOCK_SUM;
	int r = known ? 0 : block_map(n, b);

	if (r == 0)
		r = segment_open_file(n->seg, b->alloc, &v->fd);
	if (r < 0)
		return r;
	b->pins++;
	v->b = b;
	ret->fd = v->fd;
	ret->buf = known ? NULL : b->map;
	ret->has_sum = known;
	ret->sum = b->sum;
	ret->arg = v;
	return 0;
}

static void close_memory(struct serving *v, const struct data_source *src, int err)
{
	struct node *n = v->n;
	struct block_shard *s = block_lock(n, v->b->put_id, v->b->index);

	if (!src->has_sum && err == 0) {
		v->b->sum = src->sum;
		v->b->flags |= BLOCK_SUM;
	}
	v->b->pins--;
	block_settle(n, s, v->b);
	pthread_mutex_unlock(&s->lock);
	close(v->fd);
	free(v);
}

/* ---- the server's callbacks ---------------------------------------------------------------------------------- */

/* -EAGAIN: it is not here. */
static int look(struct serving *v, const struct plan *p, struct data_source *ret)
{
	struct node *n = v->n;
	struct block_shard *s = block_lock(n, p->put_id, p->block);
	struct block *b = block_find(s, p->put_id, p->block);
	struct ssd_key key = {0};
	bool stream = false;
	int r = -EAGAIN;

	if (b && b->len == p->len && (b->flags & BLOCK_MEM)) {
		r = open_memory(v, b, ret);
	} else if (b && b->len == p->len && (b->flags & (BLOCK_SSD | BLOCK_HELD))) {
		key = block_key(b);
		stream = true;
	}
	pthread_mutex_unlock(&s->lock);
	return stream ? open_stream(v, key, ret) : r;
}

/*
 * The master names a version before the node that put it has the answer: then it is about to be here. The answer may
 * wait for other nodes as long as their leases hold.
 */
static int look_patiently(struct serving *v, const struct plan *p, struct data_source *ret)
{
	uint64_t until = clock_ns() + v->n->leg_deadline_ns;
	int r;

	while ((r = look(v, p, ret)) == -EAGAIN && atomic_load(&v->n->publishing) && clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
	return r == -EAGAIN ? -ENOENT : r;
}

static int source_open(void *arg, const struct plan *p, struct data_source *ret)
{
	struct node *n = arg;
	struct serving *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->n = n;
	v->len = p->len;
	r = look_patiently(v, p, ret);
	if (r == 0)
		return 0;
	count_add(n, serve_failures, 1);
	free(v);
	return r;
}

static void source_close(void *arg, struct data_source *src, int err)
{
	struct serving *v = src->arg;
	struct node *n = arg;

	count_add(n, serves, err == 0);
	count_add(n, serve_bytes, err == 0 ? v->len : 0);
	count_add(n, serve_failures, err < 0);
	if (v->b)
		close_memory(v, src, err);
	else
		put_stream(v);
	/* A pin may have been in the way of somebody who waits for room. */
	evict_check(n);
}

static uint64_t master_ns(void *arg)
{
	return member_master_ns(arg);
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

int serve_start(struct node *n, const struct node_config *cfg, struct errmsg *e)
{
	const struct data_client_config client = {.key_file = cfg->key_file, .silence_ms = cfg->leg_deadline_ms};
	const struct data_server_config server = {
	    .listen = cfg->data_listen,
	    .key_file = cfg->key_file,
	    .silence_ms = cfg->leg_deadline_ms,
	    .master_ns = master_ns,
	    .open = source_open,
	    .close = source_close,
	    .arg = n,
	};
	int r;

	n->staging = staging_new(cfg->staging ? cfg->staging : STAGING_BOUND_DEFAULT);
	if (!n->staging)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = data_client_start(&client, &n->client, e);
	/* Nothing is served before the node has joined. */
	return r ? r : data_server_start(&server, 0, &n->server, e);
}

uint16_t serve_port(const struct node *n)
{
	return data_server_port(n->server);
}

void serve_as(struct node *n, uint64_t tag)
{
	data_server_set_tag(n->server, tag);
}

void serve_stop(struct node *n)
{
	n->server = data_server_stop(n->server);
	if (n->client)
		data_client_stop(n->client);
}

void serve_fini(struct node *n)
{
	n->client = data_client_free(n->client);
	n->staging = staging_free(n->staging);
}
