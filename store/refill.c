/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refill: a block that is not in memory here is brought into a new file of the segment: from the SSD tier, or in a
 * cluster from another node, as the master says. Many readers of one missing block are one refill: the first starts it,
 * all of them wait on the block.
 *
 * GetStart grants the target, the device reads straight into the pages of its file (or the network does, fetch.c), the
 * checksum is verified, and only then do the readers see it. GetDone makes it a replica; where the version is not
 * current any more it is temporary and goes with its last holder. Jobs wait for refills, so these have threads of their
 * own.
 *
 * In a cluster a source that fails is given up to the master, which names another.
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
	enum msg_source source;
	struct plan plan; /* of a source elsewhere, */
	char address[MSG_ADDRESS_MAX + 1];
	unsigned tries;
	uint64_t until_ns; /* no other source is asked for behind this */
	uint64_t sum;	   /* of what has come from there */
	void *map;	   /* of the target file */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	bool late; /* lock: read_over() ends it */
	int err;   /* lock */
};

#define RECOVERY_NS (35 * NS_PER_SEC) /* a master gives up those that do not come after 30 */
#define GIVEN_UP_NS (7 * NS_PER_SEC)  /* a master gives up a node that is silent for five */
#define TRIES 6			      /* sources, one after the other */
#define AGAIN 1			      /* that one was none, and all that it was granted has been given back */

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
		m->u.get.source = f->source;
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
	bool temporary = answer->status < 0 || !answer->u.get.promoted;
	struct node *n = c->n;
	struct block_shard *s = block_lock(n, c->put_id, c->index);
	struct block *b = block_find(s, c->put_id, c->index);

	if (b)
		b->flags &= ~(uint32_t)BLOCK_ASKED;
	if (temporary) {
		/* Its refill has not come to its end yet: it will find the mark. */
		if (b && (b->flags & BLOCK_REFILL)) {
			b->flags |= BLOCK_TEMP;
		} else if (b && (b->flags & BLOCK_MEM) && b->alloc == c->alloc) {
			b->flags |= BLOCK_TEMP;
			block_settle(n, s, b);
		}
	}
	pthread_mutex_unlock(&s->lock);
	free(c);
	persist_end(n);
}

/* BLOCK_REFILL keeps the block. */
static void mark_asked(struct refill *f)
{
	struct block_shard *s = block_lock(f->n, f->put_id, f->index);

	block_find(s, f->put_id, f->index)->flags |= BLOCK_ASKED;
	pthread_mutex_unlock(&s->lock);
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
			mark_asked(f);
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

static bool is_elsewhere(const struct refill *f)
{
	return f->source == MSG_SOURCE_MEM_REMOTE || f->source == MSG_SOURCE_SSD_REMOTE;
}

/* Call with the shard locked. */
static void lose_ssd(struct node *n, struct block *b)
{
	if (b->flags & BLOCK_HELD)
		ssd_unhold(n->ssd, block_key(b));
	b->flags &= ~(uint32_t)BLOCK_HELD;
	block_set_ssd(n, b, false);
}

/* What readers are told: how the network failed is in the log. */
static int for_readers(int err)
{
	switch (err) {
	case 0:
	case -ENOMEM:
	case -ENOSPC:
	case -ESTALE:
	case -EIO:
		return err;
	default:
		return -EIO;
	}
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
		/* It may have come by itself: published here, its put's answer on the way. */
		if (!(b->flags & BLOCK_MEM)) {
			block_has_memory(n, b, f->alloc);
			b->source = f->source;
		}
		if (is_elsewhere(f)) {
			b->sum = f->sum;
			b->flags |= BLOCK_SUM;
		}
		err = block_map(n, b);
		if (err == 0)
			for (const struct block_wait *next = w; next; next = next->next)
				b->pins++;
	} else if (bad_source(err) && !is_elsewhere(f)) {
		/* That copy is no good; it was the last one here. */
		lose_ssd(n, b);
		err = -EIO;
	}
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
	wake(w, n->member ? for_readers(err) : err);
}

/* What the master says of the source. */
static void take_plan(struct refill *f, const struct msg *answer)
{
	f->get_id = answer->u.get.get_id;
	f->alloc = answer->u.get.alloc;
	f->source = (enum msg_source)answer->u.get.source;
	if (!is_elsewhere(f))
		return;
	f->plan = (struct plan){
	    .get_id = f->get_id,
	    .put_id = f->put_id,
	    .alloc = answer->u.get.source_alloc,
	    .len = f->len,
	    .source_tag = answer->u.get.source_tag,
	    .expires_ns = answer->u.get.expires_ns,
	    .block = f->index,
	    .source = answer->u.get.source,
	};
	memcpy(f->plan.mac, answer->u.get.mac, sizeof(f->plan.mac));
	memcpy(f->address, answer->u.get.source_address, sizeof(f->address));
}

/* Whether the plan is one that this node can follow. */
static bool good_plan(const struct refill *f, const struct msg *answer)
{
	if (f->source == MSG_SOURCE_MEM_LOCAL)
		return f->n->member;
	if (answer->u.get.bytes < f->len)
		return false;
	if (f->source == MSG_SOURCE_SSD_LOCAL)
		return f->n->has_ssd;
	return f->n->member && is_elsewhere(f) && f->address[0] && answer->u.get.len == f->len;
}

static int start(struct refill *f)
{
	struct msg *answer = NULL;
	int r = space_call(f->n, make_get_start, f, segment_charge(f->len), &answer);

	if (r == 0) {
		take_plan(f, answer);
		if (!good_plan(f, answer)) {
			if (f->get_id)
				get_revoke(f, false);
			r = -EIO;
		}
	}
	msg_free(answer);
	return r;
}

/* Where it was to come from, for the log. */
static const char *place(const struct refill *f)
{
	return is_elsewhere(f) ? f->address : "the SSD";
}

/* What has gone from another node since the master named it is no failure of anybody's. */
static void log_failure(const struct refill *f, int err)
{
	bool raced = is_elsewhere(f) && (err == -ENOENT || err == -ESTALE);
	bool given_up = bad_source(err) && f->source != MSG_SOURCE_MEM_REMOTE;

	log_msg(raced ? LOG_LVL_DEBUG : LOG_LVL_WARN, "block %u of version %llu does not come from %s: %s%s", f->index,
		(unsigned long long)f->put_id, place(f), strerror(-err), given_up ? ", that copy is given up" : "");
}

static void refill_failed(struct refill *f, int err)
{
	struct node *n = f->n;
	bool bad = bad_source(err);

	if (is_elsewhere(f))
		count_add(n, fetch_failures, 1);
	else
		count_add(n, refill_failures, 1);
	count_add(n, stale_routes, err == -ENOENT);
	count_add(n, checksum_errors, err == -EBADMSG);
	count_add(n, miss_checksum, err == -EBADMSG);
	count_add(n, miss_timeout, err == -ETIMEDOUT);
	log_failure(f, err);
	get_revoke(f, bad && f->source != MSG_SOURCE_MEM_REMOTE);
	if (bad && !n->member)
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

static void count_done(struct refill *f)
{
	struct node *n = f->n;

	if (is_elsewhere(f)) {
		count_add(n, fetches, 1);
		count_add(n, fetch_bytes, f->len);
	} else {
		count_add(n, refills, 1);
		count_add(n, refill_bytes, f->len);
	}
}

/* The source has answered, or was never asked; the grant is there. On the device's thread when it is late. */
static void end(struct refill *f, int err)
{
	struct node *n = f->n;

	settle_file(f, err);
	if (err == 0) {
		count_done(f);
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

/* Nothing was granted. */
static void end_without(struct refill *f, int err)
{
	struct node *n = f->n;

	finish(f, err);
	evict_check(n);
	free_refill(f);
}

/*
 * Not the source's fault, or there has been time for another: a node that is dead has been given up by then, and with
 * it what only it had.
 */
static bool is_last(const struct refill *f, int err)
{
	if (!f->n->member || err == -ENOMEM || err == -ENOSPC || err == -ESHUTDOWN || atomic_load(&f->n->stopping))
		return true;
	return f->tries >= TRIES && clock_ns() >= f->until_ns;
}

/* The same source may be the only one: longer from try to try. */
static void pause_before_next(const struct refill *f)
{
	unsigned shift = f->tries < 8 ? f->tries : 8;

	nanosleep(&(struct timespec){.tv_nsec = (long)(NS_PER_MS << shift)}, NULL);
}

/* The master may know another source: all of this attempt is given back. */
static int give_up_source(struct refill *f, int err)
{
	struct node *n = f->n;
	struct block_shard *s;

	settle_file(f, err);
	f->map = NULL;
	refill_failed(f, err);
	if (!is_elsewhere(f) && bad_source(err)) {
		s = block_lock(n, f->put_id, f->index);
		lose_ssd(n, block_find(s, f->put_id, f->index));
		pthread_mutex_unlock(&s->lock);
	}
	count_sub(n, dram_reserved, segment_charge(f->len));
	pause_before_next(f);
	return AGAIN;
}

static int read_ssd(struct refill *f)
{
	struct node *n = f->n;
	int r;

	f->over = f->late = false;
	f->device = ssd_device_of(n->ssd, f->key);
	r = ssd_read(n->ssd, f->key, f->map, segment_charge(f->len), f->len, read_over, f);
	return r ? r : wait_device(f);
}

/* What was granted is filled. 0: it is over, well or not; AGAIN. */
static int fill(struct refill *f)
{
	int r;

	count_add(f->n, dram_reserved, segment_charge(f->len));
	r = make_file(f);
	if (r == 0)
		r = is_elsewhere(f) ? fetch_block(f->n, f->address, &f->plan, f->map, &f->sum) : read_ssd(f);
	if (r == -EINPROGRESS)
		return 0;
	if (r < 0 && !is_last(f, r))
		return give_up_source(f, r);
	end(f, r);
	return 0;
}

/* The master takes it for ours: the put that made it waits for its answer here. False: it does not come. */
static bool comes_by_itself(struct refill *f)
{
	uint64_t until = clock_ns() + f->n->leg_deadline_ns;
	bool there = false;

	while (!there && clock_ns() < until && !atomic_load(&f->n->stopping)) {
		struct block_shard *s = block_lock(f->n, f->put_id, f->index);

		there = block_find(s, f->put_id, f->index)->flags & BLOCK_MEM;
		pthread_mutex_unlock(&s->lock);
		if (!there)
			nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
	}
	return there;
}

/* The master's route is stale: a copy in memory that is not there. */
static void tell_not_here(struct refill *f)
{
	struct msg *m = msg_new(MSG_MEM_EVICT);

	if (m && msg_alloc_items(m, 1) == 0) {
		m->items[0] = (struct msg_item){.put_id = f->put_id, .block = f->index, .flags = MSG_ITEM_FORCE};
		node_call_wait(f->n, m, NULL);
	} else {
		msg_free(m);
	}
	count_add(f->n, stale_routes, 1);
}

/* While a master that was started again waits for its owners, one that is still to come may have the block. */
static int start_patiently(struct refill *f)
{
	uint64_t until = clock_ns() + RECOVERY_NS;
	int r;

	while ((r = start(f)) == -EAGAIN && clock_ns() < until && !atomic_load(&f->n->stopping))
		nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_MS}, NULL);
	return r == -EAGAIN ? -EIO : r;
}

/* 0: it is over, and f is gone; AGAIN. */
static int attempt(struct refill *f)
{
	int r = start_patiently(f);

	f->tries++;
	/* -ENOENT: the master knows no copy any more. */
	if (r < 0) {
		end_without(f, r != -ENOENT ? r : f->n->member ? -ESTALE : -EIO);
		return 0;
	}
	if (f->source != MSG_SOURCE_MEM_LOCAL)
		return fill(f);
	if (comes_by_itself(f)) {
		end_without(f, 0);
		return 0;
	}
	tell_not_here(f);
	if (f->tries < TRIES)
		return AGAIN;
	end_without(f, -EIO);
	return 0;
}

static void run(struct work *w)
{
	struct refill *f = container_of(w, struct refill, work);

	while (attempt(f) == AGAIN)
		;
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
	f->until_ns = clock_ns() + (n->leg_deadline_ns > GIVEN_UP_NS ? n->leg_deadline_ns : GIVEN_UP_NS);
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
	} else if ((b->flags & BLOCK_LATE) || (!(b->flags & (BLOCK_SSD | BLOCK_REFILL)) && !n->member)) {
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
