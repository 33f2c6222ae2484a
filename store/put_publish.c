/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing: PutDone makes a private version's files the memory replica of an immutable version, which the name stands
 * for from then on. And the end of a private version.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "store/impl.h"

/* ---- PutDone ------------------------------------------------------------------------------------------------ */

static struct msg *put_done_msg(struct put *p)
{
	size_t blocks = p->size ? block_count(p->size, p->block_size) : 0;
	struct msg *m = msg_new(MSG_PUT_DONE);

	if (!m || msg_alloc_items(m, blocks) < 0)
		return msg_free(m);
	for (size_t i = 0; i < blocks; i++)
		m->items[i] = (struct msg_item){
		    .block = (uint32_t)i,
		    .alloc = p->blocks[i].alloc,
		    .bytes = block_len(p->size, p->block_size, i),
		    .flags = p->blocks[i].spilled ? MSG_ITEM_SSD : MSG_ITEM_MEM,
		};
	m->u.put.ticket = p->ticket;
	m->u.put.dir = p->dir;
	m->u.put.bytes = p->size;
	m->u.put.attr = p->attr;
	memcpy(m->u.put.name, p->name, strlen(p->name) + 1);
	if (p->xattrs_len) {
		m->blob = malloc(p->xattrs_len);
		if (!m->blob)
			return msg_free(m);
		memcpy(m->blob, p->xattrs, p->xattrs_len);
		m->blob_len = p->xattrs_len;
	}
	return m;
}

/* The hold that kept it for the put is the block's now; it goes with the last handle. Call with the shard locked. */
static void index_spilled(struct put *p, struct block *b)
{
	b->ssd_id = p->ticket;
	b->flags |= BLOCK_HELD;
	block_set_ssd(p->n, b, true);
}

/* A device that failed has taken its spilled blocks along. */
static bool spilled_are_there(const struct put *p)
{
	for (size_t i = 0; i < p->n_blocks; i++)
		if (p->blocks[i].spilled &&
		    !ssd_has(p->n->ssd, (struct ssd_key){.id = p->ticket, .block = (uint32_t)i}))
			return false;
	return true;
}

/* So many blocks lie under the ticket's key. */
static uint64_t spilled_blocks(const struct put *p)
{
	uint64_t count = 0;

	for (size_t i = 0; i < p->n_blocks; i++)
		count += p->blocks[i].spilled;
	return count;
}

/*
 * Whether all of the version can lie in the rings at once. One that is larger has a part there already, which the rest
 * would overwrite on its way: that stays in memory then, and the object whole.
 */
static bool fits_ssd(const struct put *p)
{
	uint64_t least = UINT64_MAX;
	unsigned working = 0;
	struct ssd_stats st;

	if (!spilled_blocks(p))
		return true;
	ssd_stats(p->n->ssd, &st);
	for (unsigned i = 0; i < st.n_devices; i++) {
		const struct ssd_device_stats *d = &st.dev[i];
		/* At the end of a ring a block may be missing, where the next one does not fit. */
		uint64_t lost = d->shards * p->block_size;

		if (d->failed)
			continue;
		working++;
		least = d->capacity < lost ? 0 : d->capacity - lost < least ? d->capacity - lost : least;
	}
	return working && p->size / working <= least;
}

/* One file is a block of the published version now; -ENOMEM: its bytes are gone. Returns it with a holder. */
static int index_block(struct put *p, const struct msg_attr *a, uint32_t i, bool tiered, struct block **ret)
{
	struct block_shard *s = block_lock(p->n, a->id, i);
	struct block *b = block_get(p->n, s, a->id, i, block_len(p->size, p->block_size, i));

	if (b) {
		policy_rekey(&b->policy, block_hash(node_name_hash(p->dir, p->name), i));
		if (p->blocks[i].spilled)
			index_spilled(p, b);
		else
			block_has_memory(p->n, b, p->blocks[i].alloc);
		if (tiered)
			b->flags |= p->blocks[i].spilled ? BLOCK_TIERED : BLOCK_DUE | BLOCK_TIERED;
		if (a->flags & MSG_ATTR_PIN)
			b->flags |= BLOCK_PIN;
		b->holders++;
		*ret = b;
	} else if (p->blocks[i].spilled) {
		spill_drop(p->n, p->ticket, i);
	} else {
		segment_unlink(p->n->seg, p->blocks[i].alloc);
	}
	pthread_mutex_unlock(&s->lock);
	return b ? 0 : -ENOMEM;
}

/*
 * The files are blocks of the published version now. Returns a hold on it for the put's handles; NULL: no memory. A
 * block that is missing then is a replica that the master knows and this node cannot find: an open of it says so.
 */
static struct version *index_blocks(struct put *p, const struct msg_attr *a)
{
	uint32_t blocks = p->size ? (uint32_t)block_count(p->size, p->block_size) : 0;
	struct version *v = version_new(p->n, a, blocks);
	bool whole = v, tiered = p->persist && p->n->ssd && fits_ssd(p);

	for (uint32_t i = 0; i < blocks; i++) {
		struct block *b;

		if (index_block(p, a, i, tiered, &b) < 0)
			whole = false;
		else if (v)
			v->blocks[v->n_blocks++] = b;
		else
			version_release_block(p->n, b);
	}
	if (!whole)
		log_error("out of memory for the index of version %llu: bytes of it are lost",
			  (unsigned long long)a->id);
	return whole ? v : version_close(v);
}

/* Call with overlay.lock and p->lock held. */
static void become_clean(struct put *p, const struct msg_attr *a)
{
	uint64_t spilled = spilled_blocks(p);

	/* Without memory for it the notices of these blocks are not understood: reads find them gone. */
	if (spilled)
		alias_add(p->n, p->ticket, a->id, spilled);
	p->base = index_blocks(p, a);
	p->base_id = a->id;
	/* One answer at a time. */
	if (a->id > atomic_load(&p->n->newest_known))
		atomic_store(&p->n->newest_known, a->id);
	put_forget_files(p);
	p->dirty = p->born = p->abandoned = false;
	p->exposed = false;
	p->on_master = p->named;
	p->attr.ctime_ns = a->ctime_ns;
	p->block_size = a->block_size;
	/* Without memory for the hold the handles have nothing to read: an I/O error, never zeros. */
	if (!p->base)
		p->size = 0;
}

static void wake_flushers(struct put_waiter *w, int err)
{
	while (w) {
		struct put_waiter *next = w->next;

		w->fn(w->arg, err);
		free(w);
		w = next;
	}
}

static void late_attr_done(void *arg, int err, const struct node_entry *e)
{
}

static void late_xattrs_done(void *arg, int err)
{
}

/*
 * What was changed between PutDone and its answer goes to the new version after it, before anybody can ask for it. Call
 * with overlay.lock and p->lock held.
 */
static void send_late(struct put *p)
{
	struct msg_attr a = p->attr;

	a.id = p->base_id;
	if (p->late_mask)
		names_send_attr(p->n, &a, p->late_mask, late_attr_done, NULL);
	if (p->late_xattrs)
		node_setxattrs(p->n, a.id, p->xattrs, p->xattrs_len, late_xattrs_done, NULL);
	p->late_mask = 0;
	p->late_xattrs = false;
	/* From now on they are changed under the published version's inode, too. */
	p->xattrs_known = false;
}

static void publish_answer(void *arg, const struct msg *m)
{
	struct put *p = arg;
	struct node *n = p->n;
	struct put_waiter *w;
	uint64_t bytes = p->size;

	pthread_mutex_lock(&n->overlay.lock);
	pthread_mutex_lock(&p->lock);
	if (m->status == 0) {
		become_clean(p, &m->u.entry.a);
		names_insert(n, p->dir, p->name, &m->u.entry.a, m->u.entry.lease, m->tomb_tag);
		send_late(p);
		if (bytes)
			atomic_store_explicit(&n->guess[p->dir % GUESS_SLOTS], bytes, memory_order_relaxed);
	} else {
		p->state = PUT_OPEN;
	}
	w = p->flushers;
	p->flushers = NULL;
	pthread_cond_broadcast(&p->settled);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&n->overlay.lock);
	atomic_fetch_sub(&n->publishing, 1);
	if (m->status == 0) {
		count_add(n, puts, 1);
		count_add(n, put_bytes, bytes);
		/* What was granted beyond the length is free again. */
		space_freed(n);
		evict_check(n);
	}
	wake_flushers(w, m->status);
	put_unref(p);
}

static int add_flusher(struct put *p, node_done_fn fn, void *arg)
{
	struct put_waiter *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct put_waiter){p->flushers, fn, arg};
	p->flushers = w;
	return 0;
}

/*
 * Sends PutDone; fn runs with its answer. Call with p->lock held and state PUT_OPEN, users 0; unlocks it. From here to
 * the answer nobody else touches the files: the state keeps them off.
 */
static void publish_send(struct put *p, node_done_fn fn, void *arg)
{
	struct put_waiter *w;
	struct msg *m = NULL;
	int r = p->lost ? p->lost : add_flusher(p, fn, arg);

	if (r < 0) {
		pthread_mutex_unlock(&p->lock);
		fn(arg, r);
		return;
	}
	p->state = PUT_PUBLISHING;
	pthread_mutex_unlock(&p->lock);
	r = spilled_are_there(p) ? put_trim(p, p->size) : -EIO;
	if (r == 0) {
		/* Attributes change at any time. */
		pthread_mutex_lock(&p->lock);
		m = put_done_msg(p);
		pthread_mutex_unlock(&p->lock);
	}
	if (m) {
		put_ref(p);
		atomic_fetch_add(&p->n->publishing, 1);
		node_call(p->n, m, publish_answer, p);
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->state = PUT_OPEN;
	w = p->flushers;
	p->flushers = NULL;
	pthread_cond_broadcast(&p->settled);
	pthread_mutex_unlock(&p->lock);
	wake_flushers(w, r ? r : -ENOMEM);
}

/* ---- waiting for it ----------------------------------------------------------------------------------------- */

struct publish_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	int err;   /* lock */
};

static void publish_over(void *arg, int err)
{
	struct publish_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	w->err = err;
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void blob_over(void *arg, int err, const uint8_t *blob, size_t len)
{
	publish_over(arg, err);
}

static int wait_over(struct publish_wait *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->over)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	return w->err;
}

static void wait_init(struct publish_wait *w)
{
	*w = (struct publish_wait){0};
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
}

/* The xattrs of what it was made from go with the new version. */
static int fetch_xattrs(struct put *p)
{
	struct publish_wait w;

	if (p->xattrs_known)
		return 0;
	wait_init(&w);
	put_getxattrs(p, blob_over, &w);
	return wait_over(&w);
}

int put_publish_wait(struct put *p)
{
	struct publish_wait w;
	int r = fetch_xattrs(p);

	if (r < 0)
		return r;
	if (p->state == PUT_CLEAN) {
		/* Emptied or never written: a ticket is all that it lacks. */
		r = p->size ? -EIO : put_start_wait(p, SEGMENT_PAGE, 0);
		if (r < 0)
			return r;
	}
	wait_init(&w);
	pthread_mutex_lock(&p->lock);
	publish_send(p, publish_over, &w);
	return wait_over(&w);
}

/* ---- flush -------------------------------------------------------------------------------------------------- */

struct flush_op {
	struct work work;
	struct put *p; /* a reference */
	bool sync;
	node_done_fn fn;
	void *arg;
};

/* Call with p->lock held. */
static bool must_publish(const struct put *p, bool sync)
{
	return p->exposed && !p->over && (p->dirty || (sync && p->born));
}

static void flush_job(struct work *w)
{
	struct flush_op *op = container_of(w, struct flush_op, work);
	struct put *p = op->p;
	bool must;
	int r = 0;

	pthread_mutex_lock(&p->work);
	put_freeze(p);
	pthread_mutex_lock(&p->lock);
	must = must_publish(p, op->sync);
	pthread_mutex_unlock(&p->lock);
	if (must)
		r = put_publish_wait(p);
	put_thaw(p);
	pthread_mutex_unlock(&p->work);
	op->fn(op->arg, r);
	put_unref(p);
	free(op);
}

static void flush(struct put *p, bool sync, node_done_fn fn, void *arg)
{
	struct flush_op *op;
	int r;

	pthread_mutex_lock(&p->lock);
	p->abandoned = false;
	if (p->state == PUT_PUBLISHING && !p->frozen) {
		/* Nothing can have been written since it was sent. */
		r = add_flusher(p, fn, arg);
		pthread_mutex_unlock(&p->lock);
		if (r < 0)
			fn(arg, r);
		return;
	}
	if (!p->frozen && !must_publish(p, sync)) {
		pthread_mutex_unlock(&p->lock);
		fn(arg, 0);
		return;
	}
	if (p->state == PUT_OPEN && !p->frozen && !p->users && p->xattrs_known) {
		publish_send(p, fn, arg);
		return;
	}
	pthread_mutex_unlock(&p->lock);
	op = malloc(sizeof(*op));
	if (!op) {
		fn(arg, -ENOMEM);
		return;
	}
	*op = (struct flush_op){.p = put_ref(p), .sync = sync, .fn = fn, .arg = arg};
	workq_submit(p->n->ends, &op->work, flush_job);
}

void put_flush(struct put *p, bool killed, node_done_fn fn, void *arg)
{
	if (killed) {
		pthread_mutex_lock(&p->lock);
		p->abandoned = p->dirty || p->born;
		pthread_mutex_unlock(&p->lock);
		fn(arg, 0);
		return;
	}
	flush(p, false, fn, arg);
}

void put_abandon(struct put *p)
{
	pthread_mutex_lock(&p->lock);
	if (p->writers <= 1)
		p->abandoned = p->dirty || p->born;
	pthread_mutex_unlock(&p->lock);
}

void put_sync(struct put *p, node_done_fn fn, void *arg)
{
	flush(p, true, fn, arg);
}

/* ---- release ------------------------------------------------------------------------------------------------ */

/* Takes the put away from its name if no writer has come meanwhile. Call with overlay.lock and p->lock held. */
static void leave_name(struct put *p)
{
	if (p->writers || p->over)
		return;
	p->over = true;
	p->exposed = false;
	p->on_master = false;
	overlay_remove(p->n, p);
}

static void release_job(struct work *w)
{
	struct flush_op *op = container_of(w, struct flush_op, work);
	struct put *p = op->p;
	bool publish, discard;
	int r;

	pthread_mutex_lock(&p->work);
	put_freeze(p);
	pthread_mutex_lock(&p->lock);
	publish = !p->writers && !p->over && !p->abandoned && must_publish(p, true);
	pthread_mutex_unlock(&p->lock);
	r = publish ? put_publish_wait(p) : 0;
	if (r < 0)
		log_warn("the last close of \"%s\" could not publish it: %s, its bytes are given up", p->name,
			 strerror(-r));
	pthread_mutex_lock(&p->n->overlay.lock);
	pthread_mutex_lock(&p->lock);
	leave_name(p);
	discard = !p->handles && p->over;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->n->overlay.lock);
	if (discard)
		put_discard(p);
	put_thaw(p);
	pthread_mutex_unlock(&p->work);
	put_unref(p);
	free(op);
}

/*
 * What a release has to do, as far as that needs no job: a put that is clean and quiet, the usual case after a flush.
 * False: a job is needed. Call with overlay.lock and p->lock held.
 */
static bool release_now(struct put *p, struct version **ret_base)
{
	if (p->handles && (p->writers || p->over))
		return true;
	if (p->state != PUT_CLEAN || p->dirty || p->born || p->frozen)
		return false;
	leave_name(p);
	if (!p->handles && p->over) {
		*ret_base = p->base;
		p->base = NULL;
	}
	return true;
}

void put_release(struct put *p, bool writer)
{
	struct node *n = p->n;
	struct version *base = NULL;
	struct flush_op *op;
	bool done;

	pthread_mutex_lock(&n->overlay.lock);
	pthread_mutex_lock(&p->lock);
	p->handles--;
	p->writers -= writer;
	done = release_now(p, &base);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&n->overlay.lock);
	version_close(base);
	if (done) {
		put_unref(p);
		return;
	}
	/* The handle's reference goes to the job. */
	while (!(op = malloc(sizeof(*op))))
		;
	*op = (struct flush_op){.p = p};
	workq_submit(n->ends, &op->work, release_job);
}
