/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/ssd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/size.h"
#include "ssd/internal.h"

#define MIN_LIMIT 512u
#define MAX_IO_DEPTH 4096u
#define MAX_LEN ((UINT64_C(1) << SSD_LEN_BITS) - 1)

static int check_config(const struct ssd_config *cfg, struct errmsg *e)
{
	if (!cfg->n_roots || cfg->n_roots > SSD_MAX_ROOTS)
		return errmsg_set(e, -EINVAL, "the SSD tier takes 1 to %u paths, not %zu", SSD_MAX_ROOTS, cfg->n_roots);
	if (!cfg->cluster_name || !cfg->instance_key)
		return errmsg_set(e, -EINVAL, "the SSD tier needs a cluster name and an instance key");
	if (cfg->shards_per_device > SSD_MAX_SHARDS)
		return errmsg_set(e, -EINVAL, "the SSD tier takes at most %u shards a device, not %u", SSD_MAX_SHARDS,
				  cfg->shards_per_device);
	if (cfg->io_depth > MAX_IO_DEPTH)
		return errmsg_set(e, -EINVAL, "the SSD tier takes an I/O depth of at most %u, not %u", MAX_IO_DEPTH,
				  cfg->io_depth);
	for (size_t i = 0; i < cfg->n_roots; i++)
		if (cfg->roots[i].limit < MIN_LIMIT || cfg->roots[i].limit > INT64_MAX)
			return errmsg_set(e, -EINVAL, "%s: a limit of %" PRIu64 " bytes is out of range (at least %u)",
					  cfg->roots[i].path, cfg->roots[i].limit, MIN_LIMIT);
	return 0;
}

/* The root, among those before the n-th, that is on the same device; or NULL. */
static const char *same_device(const struct ssd_root *roots, size_t n)
{
	struct stat st, other;

	if (stat(roots[n].path, &st) < 0)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (!stat(roots[i].path, &other) && other.st_dev == st.st_dev)
			return roots[i].path;
	return NULL;
}

static int open_devices(struct ssd_store *s, const struct ssd_config *cfg, struct errmsg *e)
{
	for (size_t i = 0; i < cfg->n_roots; i++) {
		const char *other = same_device(cfg->roots, i);
		struct ssd_device *d = &s->devs[s->n_devs];
		int r;

		if (other) {
			log_warn("%s is on the same device as %s, ignoring it for the SSD tier", cfg->roots[i].path,
				 other);
			continue;
		}
		r = ssd_device_init(d, s, s->n_devs++, &cfg->roots[i]);
		if (r < 0)
			return errmsg_set(e, r, "%s: out of memory", cfg->roots[i].path);
		r = ssd_device_open(d, e);
		if (r < 0)
			return r;
		if (d->rings[0].size > s->max_len)
			s->max_len = d->rings[0].size;
	}
	if (s->max_len > MAX_LEN)
		s->max_len = MAX_LEN;
	return 0;
}

static int start(struct ssd_store *s, const struct ssd_config *cfg, struct errmsg *e)
{
	int r = ssd_notices_new(cfg->evicted, cfg->arg, &s->notices);

	for (unsigned i = 0; !r && i < s->n_devs; i++)
		r = ssd_device_start(&s->devs[i]);
	return r ? errmsg_set(e, r, "cannot start the threads of the SSD tier: %s", strerror(-r)) : 0;
}

/* The fields that only need the configuration. */
static struct ssd_store *store_new(const struct ssd_config *cfg)
{
	struct ssd_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->io = cfg->io ? cfg->io : &ssd_io_uring;
	s->direct = cfg->direct;
	s->io_depth = cfg->io_depth ? cfg->io_depth : 128;
	s->shards_per_device = cfg->shards_per_device ? cfg->shards_per_device : 4;
	s->retry_seconds = cfg->retry_seconds ? cfg->retry_seconds : 30;
	s->backlog_limit = cfg->backlog_limit ? cfg->backlog_limit : 1ull << 30;
	s->cluster = strdup(cfg->cluster_name);
	s->instance = strdup(cfg->instance_key);
	s->devs = calloc(cfg->n_roots, sizeof(*s->devs));
	r = ssd_index_init(&s->index, cfg->max_entries ? cfg->max_entries : 16u << 20);
	if (s->cluster && s->instance && s->devs && !r)
		return s;
	ssd_store_close(s);
	return NULL;
}

int ssd_store_open(const struct ssd_config *cfg, struct ssd_store **ret, struct errmsg *e)
{
	struct ssd_store *s;
	int r = check_config(cfg, e);

	if (r < 0)
		return r;
	s = store_new(cfg);
	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory for the SSD tier");
	r = open_devices(s, cfg, e);
	if (!r)
		r = start(s, cfg, e);
	if (r < 0) {
		ssd_store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct ssd_store *ssd_store_close(struct ssd_store *s)
{
	if (!s)
		return NULL;
	for (unsigned i = 0; i < s->n_devs; i++)
		ssd_device_stop(&s->devs[i]);
	ssd_notices_free(s->notices);
	for (unsigned i = 0; i < s->n_devs; i++)
		ssd_device_free(&s->devs[i]);
	ssd_index_free(&s->index);
	pthread_mutex_destroy(&s->lock);
	free(s->devs);
	free(s->cluster);
	free(s->instance);
	free(s);
	return NULL;
}

uint64_t ssd_max_len(const struct ssd_store *s)
{
	return s->max_len;
}

static struct ssd_device *device_of(struct ssd_store *s, const struct ssd_entry *e)
{
	return &s->devs[e->ring / SSD_MAX_SHARDS];
}

static uint64_t backlog_of(struct ssd_device *d)
{
	uint64_t bytes;

	pthread_mutex_lock(&d->lock);
	bytes = d->backlog;
	pthread_mutex_unlock(&d->lock);
	return bytes;
}

static bool any_ring_may_take(const struct ssd_device *d, uint64_t len, bool force)
{
	for (unsigned i = 0; i < d->n_rings; i++)
		if (ssd_ring_may_take(&d->rings[i], align_up(len, d->align), force))
			return true;
	return false;
}

/*
 * Of the devices that work and can take len bytes the one with the least to write, in turn: a slow one gets no more
 * than it can do, and a silent one nothing. One that would refuse it, for what is held there, has nothing to write for
 * that very reason: it comes behind all others. NULL when there is none. Call with s locked.
 */
static struct ssd_device *pick_device(struct ssd_store *s, uint64_t len, bool force)
{
	struct ssd_device *best = NULL;
	uint64_t least = 0;
	bool best_takes = false;

	for (unsigned i = 0; i < s->n_devs; i++) {
		struct ssd_device *d = &s->devs[(s->next_dev + i) % s->n_devs];
		uint64_t backlog;
		bool takes;

		if (d->failed || align_up(len, d->align) > d->rings[0].size)
			continue;
		backlog = backlog_of(d);
		takes = any_ring_may_take(d, len, force);
		if (best && takes == best_takes ? backlog < least : takes || !best) {
			best = d;
			least = backlog;
			best_takes = takes;
		}
	}
	if (best)
		s->next_dev = (best->id + 1) % s->n_devs;
	return best;
}

/* Makes the entries fewer by one; the next ring in turn that can. Call with s locked. */
static bool evict_any(struct ssd_store *s)
{
	unsigned n = s->n_devs * SSD_MAX_SHARDS;

	for (unsigned i = 0; i < n; i++) {
		struct ssd_ring *r = s->rings[s->next_evict];

		s->next_evict = (s->next_evict + 1) % n;
		if (r && ssd_ring_evict_oldest(r))
			return true;
	}
	return false;
}

/* Call with s locked. */
static int entry_new(struct ssd_store *s, struct ssd_key key, uint64_t len, uint32_t *ret)
{
	uint32_t i;
	int r = ssd_index_new(&s->index, key, &i);

	if (r == -ENOBUFS && evict_any(s))
		r = ssd_index_new(&s->index, key, &i);
	if (r < 0)
		return r;
	ssd_entry(&s->index, i)->len = len;
	r = ssd_index_insert(&s->index, i);
	if (r < 0) {
		ssd_index_release(&s->index, i);
		return r;
	}
	*ret = i;
	return 0;
}

/* The oldest queued write that may be dropped, out of the queue; or NULL. Call with d locked. */
static struct ssd_op *pop_droppable(struct ssd_device *d)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &d->writes)
	{
		struct ssd_op *op = container_of(pos, struct ssd_op, list);

		if (op->flags & SSD_WAIT)
			continue;
		list_del(&op->list);
		d->n_writes--;
		return op;
	}
	return NULL;
}

/* Call with d locked. */
static bool drop_oldest(struct ssd_device *d)
{
	struct ssd_op *op = pop_droppable(d);

	if (!op)
		return false;
	d->backlog -= op->charge;
	op->charge = 0;
	op->err = -ENOBUFS;
	ssd_finish_op_locked(d, op);
	return true;
}

/*
 * Whether the queue is too long, or too heavy, for one more. An empty backlog takes a write of any size, and one that
 * waits for its room has no share in the weight. Call with d locked.
 */
static bool over_limit(const struct ssd_device *d, const struct ssd_op *op)
{
	if (d->n_writes >= SSD_QUEUE_MAX)
		return true;
	return !(op->flags & SSD_WAIT) && d->backlog && d->backlog + op->alen > d->store->backlog_limit;
}

/* Call with d locked. */
static int make_backlog(struct ssd_device *d, const struct ssd_op *op)
{
	while (over_limit(d, op))
		if (!drop_oldest(d))
			return -ENOBUFS;
	return 0;
}

/* Call with the store locked. */
static int queue_write(struct ssd_device *d, struct ssd_op *op)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->stop)
		r = -ENODEV;
	else
		r = make_backlog(d, op);
	if (!r) {
		op->charge = op->alen;
		d->backlog += op->charge;
		list_add_tail(&op->list, &d->writes);
		d->n_writes++;
		ssd_device_kick(d);
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* Call with s locked. */
static int admit_write(struct ssd_store *s, struct ssd_key key, struct ssd_op *op)
{
	struct ssd_device *d;
	int r;

	if (ssd_index_find(&s->index, key) != SSD_NIL)
		return -EEXIST;
	d = pick_device(s, op->len, op->flags & SSD_WAIT);
	if (!d)
		return -ENODEV;
	r = entry_new(s, key, op->len, &op->entry);
	if (r < 0)
		return r;
	op->dev = d;
	op->alen = align_up(op->len, d->align);
	/* Which of its rings, is seen later. */
	ssd_entry(&s->index, op->entry)->ring = d->id * SSD_MAX_SHARDS;
	s->queued++;
	r = queue_write(d, op);
	if (r < 0) {
		s->queued--;
		ssd_index_remove(&s->index, op->entry);
		ssd_index_release(&s->index, op->entry);
	}
	return r;
}

/* Call with s locked. */
static void count_refusal(struct ssd_store *s, int err)
{
	if (err == -ENOBUFS)
		s->st.dropped_backlog++;
	else if (err == -ENODEV)
		s->st.dropped_no_device++;
	else if (err == -ENOMEM)
		s->st.dropped_memory++;
	else if (err == -EFBIG)
		s->st.dropped_too_big++;
}

int ssd_write(struct ssd_store *s, struct ssd_key key, const void *buf, uint64_t len, const uint64_t *sum,
	      unsigned flags, ssd_done_fn done, void *arg)
{
	struct ssd_op *op = len ? ssd_op_new(NULL, SSD_OP_WRITE, done, arg) : NULL;
	int r = op ? 0 : len ? -ENOMEM : -EINVAL;

	if (op) {
		/* Never written to: a write only reads it. */
		op->buf = (unsigned char *)buf;
		op->len = len;
		op->flags = flags;
		op->summed = sum;
		op->sum = sum ? *sum : 0;
	}
	pthread_mutex_lock(&s->lock);
	if (!r)
		r = len > s->max_len ? -EFBIG : admit_write(s, key, op);
	count_refusal(s, r);
	pthread_mutex_unlock(&s->lock);
	/* Once queued it may be gone already. */
	if (r < 0)
		free(op);
	return r;
}

/* The Committed entry of a key on a device that works, or SSD_NIL. Call with s locked. */
static uint32_t find_committed(struct ssd_store *s, struct ssd_key key)
{
	uint32_t i = ssd_index_find(&s->index, key);
	const struct ssd_entry *e;

	if (i == SSD_NIL)
		return SSD_NIL;
	e = ssd_entry(&s->index, i);
	return e->state == SSD_COMMITTED && !device_of(s, e)->failed ? i : SSD_NIL;
}

/* Call with the store locked. */
static int queue_read(struct ssd_device *d, struct ssd_op *op)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->stop)
		r = -ENOENT;
	else if (d->n_reads >= SSD_QUEUE_MAX)
		r = -EAGAIN;
	if (!r) {
		list_add_tail(&op->list, &d->reads);
		d->n_reads++;
		ssd_device_kick(d);
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* Call with s locked. */
static int admit_read(struct ssd_store *s, struct ssd_key key, struct ssd_op *op)
{
	struct ssd_entry *e;
	struct ssd_ring *ring;
	int r;

	op->entry = find_committed(s, key);
	if (op->entry == SSD_NIL)
		return -ENOENT;
	e = ssd_entry(&s->index, op->entry);
	if (e->len != op->len)
		return -EINVAL;
	ring = s->rings[e->ring];
	op->dev = device_of(s, e);
	op->alen = ssd_ring_alen(ring, e);
	op->file = e->ring % SSD_MAX_SHARDS;
	op->from = ssd_ring_offset(ring, e);
	e->pins++;
	r = queue_read(op->dev, op);
	if (r < 0)
		e->pins--;
	return r;
}

int ssd_read_progress(struct ssd_store *s, struct ssd_key key, void *buf, uint64_t capacity, uint64_t len,
		      ssd_ready_fn ready, ssd_done_fn done, void *arg)
{
	struct ssd_op *op;
	int r;

	if (!len || capacity < len)
		return -EINVAL;
	op = ssd_op_new(NULL, SSD_OP_READ, done, arg);
	if (!op)
		return -ENOMEM;
	op->buf = buf;
	op->len = len;
	op->capacity = capacity;
	op->tell = ready;
	pthread_mutex_lock(&s->lock);
	r = admit_read(s, key, op);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		free(op);
	return r;
}

int ssd_read(struct ssd_store *s, struct ssd_key key, void *buf, uint64_t capacity, uint64_t len, ssd_done_fn done,
	     void *arg)
{
	return ssd_read_progress(s, key, buf, capacity, len, NULL, done, arg);
}

bool ssd_has(struct ssd_store *s, struct ssd_key key)
{
	bool has;

	pthread_mutex_lock(&s->lock);
	has = find_committed(s, key) != SSD_NIL;
	pthread_mutex_unlock(&s->lock);
	return has;
}

int ssd_hold(struct ssd_store *s, struct ssd_key key)
{
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	i = find_committed(s, key);
	if (i != SSD_NIL)
		ssd_ring_hold(s->rings[ssd_entry(&s->index, i)->ring], i);
	pthread_mutex_unlock(&s->lock);
	return i == SSD_NIL ? -ENOENT : 0;
}

/* A pin, a hold or an entry of the device has gone. Takes its lock. */
static void unblock(struct ssd_device *d)
{
	pthread_mutex_lock(&d->lock);
	ssd_device_unblock(d);
	pthread_mutex_unlock(&d->lock);
}

void ssd_unhold(struct ssd_store *s, struct ssd_key key)
{
	struct ssd_device *d = NULL;
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	i = find_committed(s, key);
	/* Not there: it was lost with its device, and the hold with it. */
	if (i != SSD_NIL && ssd_entry(&s->index, i)->holds) {
		d = device_of(s, ssd_entry(&s->index, i));
		ssd_ring_unhold(s->rings[ssd_entry(&s->index, i)->ring], i);
	}
	pthread_mutex_unlock(&s->lock);
	if (d)
		unblock(d);
}

void ssd_commit_done(struct ssd_store *s, struct ssd_key key)
{
	struct ssd_device *d = NULL;
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	i = find_committed(s, key);
	if (i != SSD_NIL) {
		ssd_entry(&s->index, i)->commit_pin = 0;
		d = device_of(s, ssd_entry(&s->index, i));
	}
	pthread_mutex_unlock(&s->lock);
	if (d)
		unblock(d);
}

/* Call with s locked. */
static void drop_entry(struct ssd_store *s, uint32_t i)
{
	struct ssd_entry *e = ssd_entry(&s->index, i);

	if (e->state == SSD_QUEUED) {
		/* Its request finds it dead and lets it go. */
		ssd_index_remove(&s->index, i);
		e->state = SSD_DEAD;
	} else if (e->holds) {
		e->drop = 1;
		e->commit_pin = 0;
	} else {
		ssd_ring_kill(s->rings[e->ring], i);
	}
}

void ssd_drop(struct ssd_store *s, struct ssd_key key)
{
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	i = ssd_index_find(&s->index, key);
	if (i != SSD_NIL)
		drop_entry(s, i);
	pthread_mutex_unlock(&s->lock);
	if (i == SSD_NIL)
		return;
	/* Gone from the index, or another's by now: any device may have waited for it. */
	for (unsigned d = 0; d < s->n_devs; d++)
		unblock(&s->devs[d]);
}

/* Call with s locked. */
static void device_stats(struct ssd_device *d, struct ssd_device_stats *ret)
{
	*ret = (struct ssd_device_stats){
	    .path = d->path,
	    .failed = d->failed,
	    .shards = d->n_rings,
	    .failures = d->failures,
	    .capacity = d->rings[0].size * d->n_rings,
	};
	for (unsigned i = 0; i < d->n_rings; i++) {
		ret->used += d->rings[i].used;
		ret->held += d->rings[i].held;
		ret->entries += d->rings[i].entries;
	}
	pthread_mutex_lock(&d->lock);
	ret->backlog = d->backlog;
	ret->queued_reads = d->n_reads;
	ret->queued_writes = d->n_writes;
	pthread_mutex_unlock(&d->lock);
	ret->io_in_flight = atomic_load(&d->reads_in_flight) + atomic_load(&d->writes_in_flight);
}

int ssd_device_of(struct ssd_store *s, struct ssd_key key)
{
	int device = -ENOENT;
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	i = ssd_index_find(&s->index, key);
	if (i != SSD_NIL)
		device = (int)device_of(s, ssd_entry(&s->index, i))->id;
	pthread_mutex_unlock(&s->lock);
	return device;
}

uint64_t ssd_progress(const struct ssd_store *s, unsigned device)
{
	return atomic_load(&s->devs[device].progress);
}

void ssd_stats(struct ssd_store *s, struct ssd_stats *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = s->st;
	ret->n_devices = s->n_devs;
	ret->queued = s->queued;
	ret->index_bytes = s->index.bytes;
	for (unsigned i = 0; i < s->n_devs; i++) {
		struct ssd_device_stats *d = &ret->dev[i];

		device_stats(&s->devs[i], d);
		ret->capacity += d->failed ? 0 : d->capacity;
		ret->used += d->used;
		ret->held += d->held;
		ret->entries += d->entries;
		ret->backlog += d->backlog;
		for (unsigned ring = 0; ring < s->devs[i].n_rings; ring++)
			ret->kept_in_place += s->devs[i].rings[ring].kept_in_place;
	}
	pthread_mutex_unlock(&s->lock);
	ssd_notices_stats(s->notices, &ret->notices_sent, &ret->notices_lost);
}
