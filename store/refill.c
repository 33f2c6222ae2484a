/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refill: a block that only the SSD tier has is read into a new file of the segment. Many readers of one missing
 * block are one refill: the first starts it, all of them wait on the block.
 *
 * GetStart grants the target, the device reads straight into the pages of its file, the checksum is verified, and only
 * then do the readers see it. GetDone makes it a replica; where the version is not current any more it is temporary
 * and goes with its last holder. Jobs wait for refills, so these have threads of their own.
 *
 * A device may take longer than a reader can wait: nothing at all has come from it in that time, so that a long queue
 * is no fault. At the deadline the readers get their error and the thread goes, but
 * the memory stays as it is until the device has answered, since it may still write there: the refill is late then, and
 * ends on the device's thread. So long whoever wants the block is refused at once: each try would take memory again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "store/impl.h"

struct refill {
	struct work work;
	struct node *n;
	uint64_t put_id;
	uint32_t index;
	uint64_t len;
	struct ssd_key key;
	int device; /* that has the key */
	uint64_t get_id, alloc;
	void *map; /* of the target file */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	bool late; /* lock: read_over() ends it */
	int err;   /* lock */
};

static void end(struct refill *f, int err);

static struct msg *make_get_start(void *arg)
{
	struct refill *f = arg;
	struct msg *m = msg_new(MSG_GET_START);

	if (m) {
		m->u.get.put_id = f->put_id;
		m->u.get.block = f->index;
		m->u.get.bytes = f->len;
	}
	return m;
}

static uint64_t progress(struct node *n, int device)
{
	return device < 0 ? 0 : ssd_progress(n->ssd, (unsigned)device);
}

void tier_wait(struct node *n, int device, pthread_mutex_t *lock, pthread_cond_t *cond, const bool *over)
{
	uint64_t before, now = progress(n, device);

	do {
		struct timespec until = clock_timespec(clock_ns() + n->leg_deadline_ns);
		int r = 0;

		before = now;
		while (!*over && r != ETIMEDOUT)
			r = pthread_cond_timedwait(cond, lock, &until);
		now = progress(n, device);
	} while (!*over && now != before);
}

static void read_over(void *arg, int err, uint64_t sum)
{
	struct refill *f = arg;
	bool late;

	pthread_mutex_lock(&f->lock);
	f->over = true;
	f->err = err;
	late = f->late;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
	if (late)
		end(f, err);
}

/* Whoever waits for the block goes, and nobody comes. Call with f->lock held. */
static struct block_wait *make_late(struct refill *f)
{
	struct block_shard *s = block_lock(f->n, f->put_id, f->index);
	struct block *b = block_find(s, f->put_id, f->index);
	struct block_wait *w = b->waiters;

	b->waiters = NULL;
	b->flags |= BLOCK_LATE;
	pthread_mutex_unlock(&s->lock);
	f->late = true;
	return w;
}

static void wake(struct block_wait *w, int err)
{
	while (w) {
		struct block_wait *next = w->next;

		w->fn(w, err);
		w = next;
	}
}

/* -EINPROGRESS: it is late, and not ours any more. */
static int wait_device(struct refill *f)
{
	struct node *n = f->n;
	uint64_t put_id = f->put_id;
	struct block_wait *w = NULL;
	uint32_t index = f->index;
	int r;

	pthread_mutex_lock(&f->lock);
	tier_wait(n, f->device, &f->lock, &f->cond, &f->over);
	r = f->over ? f->err : -EINPROGRESS;
	if (!f->over)
		w = make_late(f);
	pthread_mutex_unlock(&f->lock);
	if (r == -EINPROGRESS) {
		count_add(n, miss_timeout, 1);
		log_warn("an SSD device is silent, block %u of version %llu waited %llu ms: its readers get an error",
			 index, (unsigned long long)put_id, (unsigned long long)(n->leg_deadline_ns / NS_PER_MS));
		wake(w, -EIO);
	}
	return r;
}

/* Makes the target file and maps it. */
static int make_file(struct refill *f)
{
	struct node *n = f->n;
	int fd, r;

	r = segment_create(n->seg, f->alloc, &fd);
	if (r < 0)
		return r;
	r = segment_reserve(n->seg, fd, f->len);
	if (r == 0)
		r = segment_map(n->seg, fd, f->len, PROT_READ | PROT_WRITE, &f->map);
	close(fd);
	if (r < 0)
		segment_unlink(n->seg, f->alloc);
	return r;
}

/* The file stays only on success. */
static void settle_file(struct refill *f, int err)
{
	if (!f->map)
		return;
	if (err == 0)
		segment_zero_tail(f->map, f->len);
	segment_unmap(f->map, f->len);
	if (err < 0)
		segment_unlink(f->n->seg, f->alloc);
}

static void get_revoke(struct refill *f, bool drop_source)
{
	struct msg *m = msg_new(MSG_GET_REVOKE);

	if (m) {
		m->u.get.get_id = f->get_id;
		m->u.get.put_id = f->put_id;
		m->u.get.block = f->index;
		m->u.get.drop_ssd_source = drop_source;
		node_call(f->n, m, NULL, NULL);
	}
	space_freed(f->n);
}

struct done_ctx {
	struct node *n;
	uint64_t put_id, alloc;
	uint32_t index;
};

/* GetDone's answer. Not promoted: the copy goes with its holders. */
static void done_answer(void *arg, const struct msg *answer)
{
	struct done_ctx *c = arg;
	struct node *n = c->n;

	if (answer->status < 0 || !answer->u.get.promoted) {
		struct block_shard *s = block_lock(c->n, c->put_id, c->index);
		struct block *b = block_find(s, c->put_id, c->index);

		/* Its refill has not come to its end yet: it will find the mark. */
		if (b && (b->flags & BLOCK_REFILL)) {
			b->flags |= BLOCK_TEMP;
		} else if (b && (b->flags & BLOCK_MEM) && b->alloc == c->alloc) {
			b->flags |= BLOCK_TEMP;
			block_settle(c->n, s, b);
		}
		pthread_mutex_unlock(&s->lock);
	}
	free(c);
	persist_end(n);
}

static void send_done(struct refill *f)
{
	struct done_ctx *c = malloc(sizeof(*c));
	struct msg *m = msg_new(MSG_GET_DONE);

	if (m) {
		m->u.get.get_id = f->get_id;
		m->u.get.put_id = f->put_id;
		m->u.get.block = f->index;
		if (c) {
			*c = (struct done_ctx){f->n, f->put_id, f->alloc, f->index};
			persist_begin(f->n);
		}
		node_call(f->n, m, c ? done_answer : NULL, c);
	} else {
		free(c);
	}
}

/* The copy itself is no good: not that there was no memory for it. */
static bool bad_source(int err)
{
	return err == -EIO || err == -ENOENT || err == -EBADMSG;
}

/* Ends the refill: takes the waiters off and tells them. err 0: each gets a pin. */
static void finish(struct refill *f, int err)
{
	struct node *n = f->n;
	struct block_shard *s = block_lock(n, f->put_id, f->index);
	struct block *b = block_find(s, f->put_id, f->index);
	struct block_wait *w = b->waiters;

	b->waiters = NULL;
	b->flags &= ~(uint32_t)(BLOCK_REFILL | BLOCK_LATE);
	if (err == 0) {
		block_has_memory(n, b, f->alloc);
		err = block_map(n, b);
		if (err == 0)
			for (const struct block_wait *next = w; next; next = next->next)
				b->pins++;
	} else if (bad_source(err)) {
		/* That copy is no good; it was the last one here. */
		if (b->flags & BLOCK_HELD)
			ssd_unhold(n->ssd, block_key(b));
		b->flags &= ~(uint32_t)BLOCK_HELD;
		block_set_ssd(n, b, false);
		err = -EIO;
	}
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
	wake(w, err);
}

static int start(struct refill *f)
{
	struct msg *answer = NULL;
	int r = space_call(f->n, make_get_start, f, segment_charge(f->len), &answer);

	if (r == 0) {
		f->get_id = answer->u.get.get_id;
		f->alloc = answer->u.get.alloc;
		if (answer->u.get.source != MSG_SOURCE_SSD_LOCAL || answer->u.get.bytes < f->len) {
			get_revoke(f, false);
			r = -EIO;
		}
	}
	msg_free(answer);
	return r;
}

static void refill_failed(struct refill *f, int err)
{
	struct node *n = f->n;
	bool bad = bad_source(err);

	count_add(n, refill_failures, 1);
	count_add(n, stale_routes, err == -ENOENT);
	count_add(n, checksum_errors, err == -EBADMSG);
	count_add(n, miss_checksum, err == -EBADMSG);
	log_warn("refill of block %u of version %llu failed: %s%s", f->index, (unsigned long long)f->put_id,
		 strerror(-err), bad ? ", its SSD copy is given up" : "");
	get_revoke(f, bad);
	if (bad)
		node_tell_gone(n, f->put_id, 0, NULL);
}

static void free_refill(struct refill *f)
{
	struct node *n = f->n;

	pthread_cond_destroy(&f->cond);
	pthread_mutex_destroy(&f->lock);
	free(f);
	persist_end(n);
}

/* The device has answered, or was never asked; the grant is there. On the device's thread when it is late. */
static void end(struct refill *f, int err)
{
	struct node *n = f->n;

	settle_file(f, err);
	if (err == 0) {
		count_add(n, refills, 1);
		count_add(n, refill_bytes, f->len);
		send_done(f);
	} else {
		refill_failed(f, err);
	}
	finish(f, err);
	/* Its bytes are counted twice for a moment, never not at all. */
	count_sub(n, dram_reserved, segment_charge(f->len));
	evict_check(n);
	free_refill(f);
}

static void run(struct work *w)
{
	struct refill *f = container_of(w, struct refill, work);
	int r = start(f);

	if (r < 0) {
		finish(f, r == -ENOENT ? -EIO : r); /* -ENOENT: the master knows no copy any more */
		evict_check(f->n);
		free_refill(f);
		return;
	}
	count_add(f->n, dram_reserved, segment_charge(f->len));
	r = make_file(f);
	f->device = ssd_device_of(f->n->ssd, f->key);
	if (r == 0)
		r = ssd_read(f->n->ssd, f->key, f->map, segment_charge(f->len), f->len, read_over, f);
	if (r == 0)
		r = wait_device(f);
	if (r != -EINPROGRESS)
		end(f, r);
}

/* Call with the shard locked. */
static int refill_start(struct node *n, struct block *b)
{
	struct refill *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->n = n;
	f->put_id = b->put_id;
	f->index = b->index;
	f->len = b->len;
	f->key = block_key(b);
	pthread_mutex_init(&f->lock, NULL);
	clock_cond_init(&f->cond);
	persist_begin(n);
	b->flags |= BLOCK_REFILL;
	workq_submit(n->refilling, &f->work, run);
	return 0;
}

int block_pin(struct node *n, struct block *b, bool map, struct block_wait *w)
{
	struct block_shard *s = block_lock(n, b->put_id, b->index);
	int r = 0;

	if (b->flags & BLOCK_MEM) {
		r = map ? block_map(n, b) : 0;
		if (r == 0) {
			b->pins++;
			r = 1;
		}
	} else if ((b->flags & BLOCK_LATE) || !(b->flags & (BLOCK_SSD | BLOCK_REFILL))) {
		r = -EIO;
	} else if (w) {
		if (!(b->flags & BLOCK_REFILL))
			r = refill_start(n, b);
		if (r == 0) {
			w->next = b->waiters;
			b->waiters = w;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void block_unpin(struct node *n, struct block *b)
{
	struct block_shard *s = block_lock(n, b->put_id, b->index);

	b->pins--;
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
}
