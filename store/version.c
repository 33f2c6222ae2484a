/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/impl.h"

/* Where the blocks of a version are. */
struct seen {
	bool ssd, away;
};

/* -ESTALE: there is no replica of it here, nor elsewhere. Call with the shard locked; b may be gone then. */
static int hold_block(struct node *n, struct block_shard *s, struct block *b, struct seen *seen)
{
	if (!b || (b->flags & BLOCK_DROP) || (!n->member && !(b->flags & (BLOCK_MEM | BLOCK_SSD))))
		return -ESTALE;
	if (!(b->flags & BLOCK_MEM)) {
		/* From here on the ring may not overwrite it. */
		bool held = block_hold_ssd(n, b);

		if (!held)
			block_set_ssd(n, b, false);
		if (!held && !n->member) {
			block_settle(n, s, b);
			return -ESTALE;
		}
		if (held)
			seen->ssd = true;
		else
			seen->away = true;
	}
	b->holders++;
	policy_access(&b->policy);
	return 0;
}

void version_release_block(struct node *n, struct block *b)
{
	/* The holder keeps b alive until it has the lock. */
	struct block_shard *s = block_lock(n, b->put_id, b->index);

	b->holders--;
	if (!b->holders && (b->flags & BLOCK_MEM)) {
		pthread_mutex_lock(&n->policy_lock);
		policy_ready(n->policy, &b->policy);
		pthread_mutex_unlock(&n->policy_lock);
	}
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
}

struct version *version_new(struct node *n, const struct msg_attr *a, uint32_t blocks)
{
	struct version *v = malloc(sizeof(*v) + blocks * sizeof(v->blocks[0]));

	if (!v)
		return NULL;
	v->n = n;
	v->put_id = a->id;
	v->size = a->size;
	v->block_size = a->block_size;
	v->n_blocks = 0;
	atomic_init(&v->refs, 1);
	atomic_init(&v->away, false);
	v->held = false;
	count_add(n, open_versions, 1);
	return v;
}

/*
 * That the tier lost a block is told by a notice, and a notice can be lost: then the master still names the version,
 * and whoever finds out tells it, or nobody ever would. But the master names a version also before the put that made
 * it has its answer, and only then are its blocks known here: the answers come in the order of the ids.
 */
static void tell_lost(struct version *v, uint32_t i)
{
	struct node *n = v->n;
	bool early = v->put_id > atomic_load(&n->newest_known), lost;
	struct block_shard *s = block_lock(n, v->put_id, i);
	const struct block *b = block_find(s, v->put_id, i);

	lost = b ? !(b->flags & (BLOCK_MEM | BLOCK_SSD | BLOCK_DROP)) : !early;
	pthread_mutex_unlock(&s->lock);
	if (lost)
		persist_lost(n, v->put_id, i);
}

/* One block more. In a cluster one that is not here gets its place all the same: a get brings it. */
static int hold_next(struct version *v, struct seen *seen)
{
	struct node *n = v->n;
	uint32_t i = v->n_blocks;
	struct block_shard *s = block_lock(n, v->put_id, i);
	struct block *b = block_find(s, v->put_id, i);
	int r = 0;

	if (!b && n->member) {
		b = block_get(n, s, v->put_id, i, block_len(v->size, v->block_size, i));
		r = b ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = hold_block(n, s, b, seen);

	if (r == 0)
		v->blocks[v->n_blocks++] = b;
	pthread_mutex_unlock(&s->lock);
	if (r == -ESTALE && n->has_ssd && !n->member)
		tell_lost(v, i);
	return r;
}

static int hold(struct node *n, const struct msg_attr *a, struct version **ret, struct seen *seen)
{
	uint64_t blocks = a->block_size ? block_count(a->size, a->block_size) : 0;
	struct version *v;
	int r = 0;

	if (blocks > UINT32_MAX)
		return -EFBIG;
	v = version_new(n, a, (uint32_t)blocks);
	if (!v)
		return -ENOMEM;
	while (v->n_blocks < blocks && !r)
		r = hold_next(v, seen);
	if (r < 0)
		version_close(v);
	else
		*ret = v;
	return r;
}

int version_hold(struct node *n, const struct msg_attr *a, struct version **ret)
{
	struct seen seen = {0};

	return hold(n, a, ret, &seen);
}

bool version_block_on_ssd(struct version *v, uint32_t i, struct ssd_key *ret)
{
	const struct block *b = v->blocks[i];
	struct block_shard *s = block_lock(v->n, b->put_id, b->index);
	/* Held for those who have the version open, and not asked of a device that is silent. */
	bool there = (b->flags & (BLOCK_MEM | BLOCK_HELD | BLOCK_LATE)) == BLOCK_HELD;

	if (there)
		*ret = block_key(b);
	pthread_mutex_unlock(&s->lock);
	return there;
}

int version_open(struct node *n, const struct msg_attr *a, struct version **ret)
{
	struct seen seen = {0};
	int r = hold(n, a, ret, &seen);

	if (r < 0 || !a->size)
		return r;
	if (seen.away)
		atomic_store(&(*ret)->away, true);
	else if (seen.ssd)
		count_add(n, hits_ssd_local, 1);
	else
		count_add(n, hits_mem_local, 1);
	return 0;
}

bool version_is_away(const struct version *v)
{
	return atomic_load_explicit(&v->away, memory_order_relaxed);
}

struct version *version_ref(struct version *v)
{
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	return v;
}

struct version *version_close(struct version *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	for (uint32_t i = 0; i < v->n_blocks; i++)
		version_release_block(v->n, v->blocks[i]);
	if (v->held)
		holds_release(v->n->holds, v->put_id);
	count_sub(v->n, open_versions, 1);
	free(v);
	return NULL;
}

uint64_t version_size(const struct version *v)
{
	return v->size;
}

/* A read that met a block which is not in memory. */
struct read_op {
	struct block_wait wait;
	struct version *v;
	uint64_t off;
	size_t left;
	version_read_fn fn;
	void *arg;
	struct version_read r;
};

void version_read_done(struct version_read *r)
{
	for (int i = 0; i < r->n_iov; i++)
		block_unpin(r->node, r->pins[i]);
	r->n_iov = 0;
}

/* Adds a pinned block's part of the read. */
static void take_block(struct read_op *op, struct block *b)
{
	uint64_t in = op->off % op->v->block_size;
	size_t len = op->left < b->len - in ? op->left : (size_t)(b->len - in);
	struct version_read *r = &op->r;

	/* map and len do not change while b is pinned. */
	r->iov[r->n_iov] = (struct iovec){.iov_base = (char *)b->map + in, .iov_len = len};
	r->pins[r->n_iov++] = b;
	r->len += len;
	op->off += len;
	op->left -= len;
}

/* Adds the parts that are in memory, up to the first that is not: nothing is pinned while something is waited for. */
static void take_there(struct read_op *op)
{
	while (op->left && op->r.n_iov < VERSION_READ_IOV) {
		struct block *b = op->v->blocks[op->off / op->v->block_size];

		if (block_pin(op->v->n, b, true, NULL) <= 0)
			return;
		take_block(op, b);
	}
}

static struct read_op read_of(struct version *v, uint64_t off, size_t len)
{
	struct read_op op = {.v = v, .off = off, .r.node = v->n};

	if (off < v->size)
		op.left = len < v->size - off ? len : (size_t)(v->size - off);
	return op;
}

bool version_read_now(struct version *v, uint64_t off, size_t len, struct version_read *ret)
{
	struct read_op op = read_of(v, off, len);

	if (op.left) {
		take_there(&op);
		if (!op.r.n_iov)
			return false;
		count_add(v->n, gets_bytes, op.r.len);
	}
	*ret = op.r;
	return true;
}

static void read_finish(struct read_op *op, int err)
{
	struct node *n = op->v->n;
	struct version *v = op->v;

	count_sub(n, parked, 1);
	if (err == 0) {
		take_block(op, v->blocks[op->off / v->block_size]);
		take_there(op);
		count_add(n, gets_bytes, op->r.len);
	}
	/* What was opened has gone from all nodes. */
	op->fn(op->arg, err == -ESTALE ? -EIO : err, err < 0 ? NULL : &op->r);
	free(op);
	version_close(v);
}

static void read_waited(struct block_wait *w, int err)
{
	read_finish(container_of(w, struct read_op, wait), err);
}

void version_read(struct version *v, uint64_t off, size_t len, version_read_fn fn, void *arg)
{
	struct version_read now;
	struct read_op *op;
	int r;

	if (version_read_now(v, off, len, &now)) {
		fn(arg, 0, &now);
		return;
	}
	op = malloc(sizeof(*op));
	if (!op) {
		fn(arg, -ENOMEM, NULL);
		return;
	}
	*op = read_of(v, off, len);
	op->fn = fn;
	op->arg = arg;
	op->wait.fn = read_waited;
	/* The caller may close its handle when it is interrupted. */
	version_ref(v);
	count_add(v->n, parked, 1);
	r = block_pin(v->n, v->blocks[off / v->block_size], true, &op->wait);
	if (r)
		read_finish(op, r < 0 ? r : 0);
}

/* ---- the file itself ---------------------------------------------------------------------------------------- */

bool version_is_one_block(const struct version *v)
{
	return v->n_blocks == 1;
}

bool version_pin_now(struct version *v)
{
	return block_pin(v->n, v->blocks[0], false, NULL) > 0;
}

struct pin_op {
	struct block_wait wait;
	struct node *n;
	void (*fn)(void *arg, int err);
	void *arg;
};

static void pin_waited(struct block_wait *w, int err)
{
	struct pin_op *op = container_of(w, struct pin_op, wait);

	count_sub(op->n, parked, 1);
	op->fn(op->arg, err);
	free(op);
}

void version_pin(struct version *v, void (*fn)(void *arg, int err), void *arg)
{
	struct pin_op *op = malloc(sizeof(*op));
	int r;

	if (!op) {
		fn(arg, -ENOMEM);
		return;
	}
	*op = (struct pin_op){.wait.fn = pin_waited, .n = v->n, .fn = fn, .arg = arg};
	count_add(v->n, parked, 1);
	r = block_pin(v->n, v->blocks[0], false, &op->wait);
	if (r)
		pin_waited(&op->wait, r < 0 ? r : 0);
}

/* Where the first block came from is where the whole is counted to have been got from. Once. */
static void count_arrival(struct version *v)
{
	const struct block *b = v->blocks[0];
	struct node *n = v->n;
	struct block_shard *s;
	uint32_t source;

	if (!atomic_exchange(&v->away, false))
		return;
	s = block_lock(n, b->put_id, b->index);
	source = b->source;
	pthread_mutex_unlock(&s->lock);
	if (source == MSG_SOURCE_MEM_REMOTE)
		count_add(n, hits_mem_remote, 1);
	else if (source == MSG_SOURCE_SSD_REMOTE)
		count_add(n, hits_ssd_remote, 1);
	else if (source == MSG_SOURCE_SSD_LOCAL)
		count_add(n, hits_ssd_local, 1);
	else
		count_add(n, hits_mem_local, 1);
}

struct fetch_op {
	struct version *v;
	void (*fn)(void *arg, int err);
	void *arg;
};

static void fetched(void *arg, int err)
{
	struct fetch_op *op = arg;

	if (!err) {
		count_arrival(op->v);
		version_unpin(op->v);
	}
	op->fn(op->arg, err);
	free(op);
}

static void held(void *arg, int err)
{
	struct fetch_op *op = arg;

	op->v->held = !err;
	if (err)
		fetched(op, err);
	else
		version_pin(op->v, fetched, op);
}

/* What is left elsewhere when the open is over must stay there until it has come. */
void version_fetch(struct version *v, void (*fn)(void *arg, int err), void *arg)
{
	struct fetch_op *op = malloc(sizeof(*op));

	if (!op) {
		fn(arg, -ENOMEM);
		return;
	}
	*op = (struct fetch_op){v, fn, arg};
	if (v->n_blocks > 1 && !v->held)
		holds_take(v->n->holds, v->put_id, held, op);
	else
		version_pin(v, fetched, op);
}

void version_unpin(struct version *v)
{
	block_unpin(v->n, v->blocks[0]);
}

int version_share(struct version *v, int *ret_fd)
{
	struct block *b = v->blocks[0];
	struct block_shard *s = block_lock(v->n, b->put_id, b->index);
	struct stat st;
	int fd, r;

	r = segment_open_file(v->n->seg, b->alloc, &fd);
	if (r == 0)
		b->flags |= BLOCK_SHARED;
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	/* A kernel that reads it knows no other end than the file's own. */
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != v->size) {
		close(fd);
		return -EIO;
	}
	*ret_fd = fd;
	return 0;
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

struct read_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	int err;   /* lock */
	char *buf;
	size_t n;
};

static void read_wait_done(void *arg, int err, struct version_read *r)
{
	struct read_wait *w = arg;

	if (!err) {
		for (int i = 0; i < r->n_iov; i++) {
			if (w->buf)
				memcpy(w->buf + w->n, r->iov[i].iov_base, r->iov[i].iov_len);
			w->n += r->iov[i].iov_len;
		}
		version_read_done(r);
	}
	pthread_mutex_lock(&w->lock);
	w->over = true;
	w->err = err;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

/* One version_read(), waited for; buf NULL: only brings the bytes into memory. *n: what was read. */
static int read_once(struct version *v, uint64_t off, char *buf, size_t len, size_t *n)
{
	struct read_wait w = {.buf = buf};

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.cond, NULL);
	version_read(v, off, len, read_wait_done, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	*n = w.n;
	return w.err;
}

int version_read_wait(struct version *v, uint64_t off, void *buf, size_t len)
{
	while (len) {
		size_t n;
		int r = read_once(v, off, buf, len, &n);

		if (r < 0)
			return r;
		if (!n)
			return -EIO; /* beyond the end: the caller's mistake, but never an endless loop */
		off += n;
		buf = (char *)buf + n;
		len -= n;
	}
	return 0;
}

int version_prefetch_wait(struct version *v)
{
	for (uint32_t i = 0; i < v->n_blocks; i++) {
		size_t n;
		int r = read_once(v, i * v->block_size, NULL, 1, &n);

		if (r < 0)
			return r;
	}
	return 0;
}
