/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device: its I/O thread, how it is taken out when it fails, and how it comes back.
 */
#include "ssd/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/log.h"

#define REAP_MAX 32u
#define ENGINE_PAUSE_NS (10 * NS_PER_MS)
#define LOSE_BATCH SSD_NOTICE_BATCH

void ssd_device_kick(struct ssd_device *d)
{
	if (d->kicked)
		return;
	d->kicked = true;
	if (d->io)
		d->store->io->wake(d->io);
	else
		pthread_cond_signal(&d->cond);
}

void ssd_device_unblock(struct ssd_device *d)
{
	if (!d->stalled)
		return;
	d->stalled = false;
	ssd_device_kick(d);
}

/* Says whether to stop. What is queued after this kicks again. */
static bool look(struct ssd_device *d)
{
	bool stop;

	pthread_mutex_lock(&d->lock);
	d->kicked = false;
	stop = d->stop;
	pthread_mutex_unlock(&d->lock);
	return stop;
}

/* Ends everything queued with err. */
static void flush_queues(struct ssd_device *d, int err)
{
	struct list all;

	list_init(&all);
	pthread_mutex_lock(&d->lock);
	list_splice_tail(&d->reads, &all);
	list_splice_tail(&d->writes, &all);
	d->n_reads = d->n_writes = 0;
	pthread_mutex_unlock(&d->lock);
	while (!list_empty(&all)) {
		struct ssd_op *op = list_first(&all, struct ssd_op, list);

		list_del(&op->list);
		op->err = err;
		ssd_finish_op(d, op);
	}
}

static void reap(struct ssd_device *d)
{
	struct timespec pause = {.tv_nsec = ENGINE_PAUSE_NS};
	struct ssd_io_req *reqs[REAP_MAX];
	int n = d->store->io->wait(d->io, reqs, REAP_MAX);

	if (n < 0) {
		/* The engine is broken, and still the kernel may write where it was told to: wait on, but not hotly. */
		if (!d->bad)
			d->bad = n;
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < n; i++)
		ssd_transfer_ended(d, reqs[i]);
}

/* Returns when the device is to stop (true) or has failed; nothing is begun or in flight then. */
static bool serve(struct ssd_device *d)
{
	bool stop;

	while (!(stop = look(d)) && !d->bad) {
		while (ssd_transfer_next(d))
			;
		reap(d);
	}
	if (d->bad) {
		/* Before the queues are emptied: from here on nothing new is let in. */
		pthread_mutex_lock(&d->store->lock);
		d->failed = true;
		d->failures++;
		pthread_mutex_unlock(&d->store->lock);
		log_error(
		    "%s: the SSD device failed (%s): taking it out, its entries are lost; trying it again every %u s",
		    d->path, strerror(-d->bad), d->store->retry_seconds);
	}
	ssd_transfer_abort(d, d->bad ? -EIO : -ECANCELED);
	flush_queues(d, d->bad ? -EIO : -ECANCELED);
	while (atomic_load(&d->reads_in_flight) + atomic_load(&d->writes_in_flight))
		reap(d);
	return stop;
}

static void close_engine(struct ssd_device *d)
{
	void *io;

	pthread_mutex_lock(&d->lock);
	io = d->io;
	d->io = NULL;
	pthread_mutex_unlock(&d->lock);
	if (io)
		d->store->io->close(io);
}

/* While there is no engine: sleeps until kicked, or until the time has come. Says whether to stop. */
static bool sleep_until(struct ssd_device *d, uint64_t ns)
{
	struct timespec until = clock_timespec(ns);
	int r = 0;
	bool stop;

	pthread_mutex_lock(&d->lock);
	while (!d->kicked && !d->stop && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&d->cond, &d->lock, &until);
	d->kicked = false;
	stop = d->stop;
	pthread_mutex_unlock(&d->lock);
	return stop;
}

/* Evicts all that the device had, a batch at a time, as fast as the notices of it go out. */
static void lose_entries(struct ssd_device *d)
{
	struct ssd_store *s = d->store;
	bool wait = true;

	for (unsigned i = 0; i < d->n_rings; i++) {
		unsigned n = LOSE_BATCH;

		while (n == LOSE_BATCH) {
			/* Whoever does not take notices for 100 ms is not waited for a second time. */
			wait = wait && ssd_notices_wait_room(s->notices);
			pthread_mutex_lock(&s->lock);
			n = ssd_ring_lose(&d->rings[i], LOSE_BATCH);
			pthread_mutex_unlock(&s->lock);
		}
	}
}

static bool rings_empty(struct ssd_device *d)
{
	bool empty = true;

	pthread_mutex_lock(&d->store->lock);
	for (unsigned i = 0; i < d->n_rings; i++)
		empty = empty && ssd_ring_empty(&d->rings[i]);
	pthread_mutex_lock(&d->lock);
	d->stalled = !empty;
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_unlock(&d->store->lock);
	return empty;
}

/* Tries until the device is back (true) or is to stop. */
static bool retry(struct ssd_device *d)
{
	uint64_t period = d->store->retry_seconds * NS_PER_SEC, next = clock_ns() + period;
	struct errmsg e;

	while (!sleep_until(d, next)) {
		flush_queues(d, -EIO);
		if (clock_ns() < next)
			continue;
		if (!ssd_device_open(d, &e))
			return true;
		log_debug("the SSD device is still out: %s", e.text);
		next = clock_ns() + period;
	}
	return false;
}

/* The device has failed, and nothing of it is in flight. Returns whether it is back; else it is to stop. */
static bool come_back(struct ssd_device *d)
{
	close_engine(d);
	lose_entries(d);
	/* The finisher may still have requests, and those pins on entries. */
	while (!rings_empty(d)) {
		if (sleep_until(d, UINT64_MAX))
			return false;
		flush_queues(d, -EIO);
	}
	ssd_shards_close(&d->dir, &d->shards);
	ssd_dir_close(&d->dir);
	if (!retry(d))
		return false;
	d->bad = 0;
	pthread_mutex_lock(&d->store->lock);
	d->failed = false;
	pthread_mutex_unlock(&d->store->lock);
	log_info("%s: the SSD device is back, and empty", d->path);
	return true;
}

static void *io_thread(void *arg)
{
	struct ssd_device *d = arg;

	while (!serve(d))
		if (!come_back(d))
			break;
	flush_queues(d, -ECANCELED);
	return NULL;
}

static void entry_gone(void *arg, struct ssd_key key)
{
	struct ssd_store *s = arg;

	s->st.evicted++;
	ssd_notices_put(s->notices, key);
}

static int make_rings(struct ssd_device *d, const struct ssd_shards *sh)
{
	struct ssd_store *s = d->store;

	d->rings = calloc(sh->n, sizeof(*d->rings));
	d->moves = aligned_alloc(_Alignof(struct ssd_op), sh->n * sizeof(*d->moves));
	if (!d->rings || !d->moves) {
		free(d->rings);
		d->rings = NULL;
		return -ENOMEM;
	}
	for (unsigned i = 0; i < sh->n; i++) {
		unsigned id = d->id * SSD_MAX_SHARDS + i;

		ssd_ring_init(&d->rings[i], &s->index, id, sh->size, sh->align, entry_gone, s);
		s->rings[id] = &d->rings[i];
	}
	d->n_rings = sh->n;
	d->align = sh->align;
	d->mem_align = sh->mem_align;
	d->dev = d->dir.dev;
	return 0;
}

static int check_same(const struct ssd_device *d, const struct ssd_shards *sh, struct errmsg *e)
{
	if (sh->n != d->n_rings || sh->size != d->rings[0].size || sh->align != d->align ||
	    sh->mem_align != d->mem_align)
		return errmsg_set(e, -EXDEV, "%s: the device has another alignment now", d->path);
	return 0;
}

static int open_engine(struct ssd_device *d, struct errmsg *e)
{
	const struct ssd_io_ops *ops = d->store->io;
	void *io;
	int r = ops->open(ops->ctx, d->shards.fds, d->shards.n, d->store->io_depth, &io);

	if (r < 0)
		return errmsg_set(e, r, "%s: cannot set up io_uring: %s%s", d->path, strerror(-r),
				  r == -EPERM || r == -ENOSYS ? " (forbidden by kernel.io_uring_disabled or seccomp?)"
							      : "");
	pthread_mutex_lock(&d->lock);
	d->io = io;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

int ssd_device_open(struct ssd_device *d, struct errmsg *e)
{
	const struct ssd_store *s = d->store;
	int r = ssd_dir_open(d->path, s->cluster, s->instance, &d->dir, e);

	if (r < 0)
		return r;
	/* Without it, what is below the mount point of a device that went would be filled in its place. */
	if (d->rings && d->dir.dev != d->dev)
		r = errmsg_set(e, -EXDEV, "%s: another device is there now", d->path);
	else
		r = ssd_shards_open(&d->dir, d->path, d->limit, s->shards_per_device, s->direct, &d->shards, e);
	if (r < 0)
		goto close_dir;
	if (d->rings)
		r = check_same(d, &d->shards, e);
	else if (make_rings(d, &d->shards) < 0)
		r = errmsg_set(e, -ENOMEM, "%s: out of memory", d->path);
	if (!r)
		r = open_engine(d, e);
	if (!r)
		return 0;
	ssd_shards_close(&d->dir, &d->shards);
close_dir:
	ssd_dir_close(&d->dir);
	return r;
}

static int make_pieces(struct ssd_device *d, unsigned n)
{
	void *map;

	/* Twice the depth: those in flight, and those that the finisher has. */
	d->pieces = calloc(n, sizeof(*d->pieces));
	if (!d->pieces)
		return -ENOMEM;
	/* Takes no memory before it is used, and mostly it is not. */
	map = mmap(NULL, (size_t)SSD_SCRATCH * SSD_PIECE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	d->scratch = map;
	for (unsigned i = 0; i < n; i++)
		list_add_tail(&d->pieces[i].list, &d->free_pieces);
	for (unsigned i = 0; i < SSD_SCRATCH; i++)
		d->free_scratch[d->n_scratch++] = d->scratch + (size_t)i * SSD_PIECE;
	return 0;
}

static void init_lists(struct ssd_device *d)
{
	list_init(&d->reads);
	list_init(&d->writes);
	list_init(&d->todo);
	list_init(&d->sums);
	list_init(&d->free_pieces);
	list_init(&d->moving);
}

int ssd_device_init(struct ssd_device *d, struct ssd_store *s, unsigned id, const struct ssd_root *root)
{
	d->store = s;
	d->id = id;
	d->limit = root->limit;
	d->dir = SSD_DIR_CLOSED;
	for (unsigned i = 0; i < SSD_MAX_SHARDS; i++)
		d->shards.fds[i] = -1;
	init_lists(d);
	pthread_mutex_init(&d->lock, NULL);
	clock_cond_init(&d->cond);
	pthread_cond_init(&d->fin_cond, NULL);
	pthread_cond_init(&d->sum_cond, NULL);
	d->path = strdup(root->path);
	return d->path ? make_pieces(d, 2 * s->io_depth) : -ENOMEM;
}

void ssd_device_free(struct ssd_device *d)
{
	close_engine(d);
	ssd_shards_close(&d->dir, &d->shards);
	ssd_dir_close(&d->dir);
	if (d->scratch)
		munmap(d->scratch, (size_t)SSD_SCRATCH * SSD_PIECE);
	free(d->pieces);
	free(d->moves);
	free(d->rings);
	free(d->path);
	pthread_cond_destroy(&d->sum_cond);
	pthread_cond_destroy(&d->fin_cond);
	pthread_cond_destroy(&d->cond);
	pthread_mutex_destroy(&d->lock);
}

static void name_thread(pthread_t thread, const char *what, unsigned id)
{
	char name[16];

	snprintf(name, sizeof(name), "ssd-%s-%u", what, id % 100);
	pthread_setname_np(thread, name);
}

int ssd_device_start(struct ssd_device *d)
{
	int r = -pthread_create(&d->finisher, NULL, ssd_finisher, d);

	if (r < 0)
		return r;
	d->finisher_up = true;
	name_thread(d->finisher, "finish", d->id);
	r = -pthread_create(&d->summer, NULL, ssd_summer, d);
	if (r < 0)
		return r;
	d->summer_up = true;
	name_thread(d->summer, "sum", d->id);
	r = -pthread_create(&d->thread, NULL, io_thread, d);
	if (r < 0)
		return r;
	d->thread_up = true;
	name_thread(d->thread, "io", d->id);
	return 0;
}

void ssd_device_stop(struct ssd_device *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	ssd_device_kick(d);
	pthread_mutex_unlock(&d->lock);
	if (d->thread_up)
		pthread_join(d->thread, NULL);
	d->thread_up = false;
	/* What it has begun it hands over to the finisher. */
	pthread_mutex_lock(&d->lock);
	d->sum_stop = true;
	pthread_cond_signal(&d->sum_cond);
	pthread_mutex_unlock(&d->lock);
	if (d->summer_up)
		pthread_join(d->summer, NULL);
	d->summer_up = false;
	pthread_mutex_lock(&d->lock);
	d->fin_stop = true;
	pthread_cond_signal(&d->fin_cond);
	pthread_mutex_unlock(&d->lock);
	if (d->finisher_up)
		pthread_join(d->finisher, NULL);
	d->finisher_up = false;
}
