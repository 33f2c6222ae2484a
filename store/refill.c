/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refill: a block that only the SSD tier has is read into a new file of the segment. Many readers of one missing
 * block are one refill: the first starts it, all of them wait on the block.
 *
 * GetStart grants the target, the device reads straight into the pages of its file, the checksum is verified, and only
 * then do the readers see it. GetDone makes it a replica; where the version is not current any more it is temporary
 * and goes with its last holder.
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
	uint64_t get_id, alloc;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	int err;   /* lock */
};

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

static void read_over(void *arg, int err, uint64_t sum)
{
	struct refill *f = arg;

	pthread_mutex_lock(&f->lock);
	f->over = true;
	f->err = err;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

static int read_device(struct refill *f, void *map)
{
	int r = ssd_read(f->n->ssd, f->key, map, segment_charge(f->len), f->len, read_over, f);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	while (!f->over)
		pthread_cond_wait(&f->cond, &f->lock);
	r = f->err;
	pthread_mutex_unlock(&f->lock);
	f->over = false;
	return r;
}

/* Makes the target file and fills it from the device. The file is there afterwards only on success. */
static int fill_file(struct refill *f)
{
	struct node *n = f->n;
	void *map = NULL;
	int fd, r;

	r = segment_create(n->seg, f->alloc, &fd);
	if (r < 0)
		return r;
	r = segment_reserve(n->seg, fd, f->len);
	if (r < 0)
		goto out_file;
	r = segment_map(n->seg, fd, f->len, PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		goto out_file;
	r = read_device(f, map);
	if (r == 0)
		segment_zero_tail(map, f->len);
	segment_unmap(map, f->len);
out_file:
	close(fd);
	if (r < 0)
		segment_unlink(n->seg, f->alloc);
	return r;
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

	if (answer->status < 0 || !answer->u.get.promoted) {
		struct block_shard *s = block_lock(c->n, c->put_id, c->index);
		struct block *b = block_find(s, c->put_id, c->index);

		/* Its refill has not come to its end yet: it will find the mark. */
		if (b && (b->flags & BLOCK_REFILL)) {
			b->flags |= BLOCK_TEMP;
		} else if (b && (b->flags & BLOCK_MEM) && b->alloc == c->alloc) {
			pthread_mutex_lock(&c->n->policy_lock);
			policy_remove(c->n->policy, &b->policy);
			pthread_mutex_unlock(&c->n->policy_lock);
			b->flags |= BLOCK_TEMP;
			block_settle(c->n, s, b);
		}
		pthread_mutex_unlock(&s->lock);
	}
	free(c);
}

static void send_done(struct refill *f)
{
	struct done_ctx *c = malloc(sizeof(*c));
	struct msg *m = msg_new(MSG_GET_DONE);

	if (m) {
		m->u.get.get_id = f->get_id;
		m->u.get.put_id = f->put_id;
		m->u.get.block = f->index;
		if (c)
			*c = (struct done_ctx){f->n, f->put_id, f->alloc, f->index};
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
	struct block_wait *w = b->waiters, *next;

	b->waiters = NULL;
	b->flags &= ~(uint32_t)BLOCK_REFILL;
	if (err == 0) {
		block_has_memory(n, b, f->alloc);
		err = block_map(n, b);
		if (err == 0)
			for (next = w; next; next = next->next)
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
	for (; w; w = next) {
		next = w->next;
		w->fn(w, err);
	}
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
	log_warn("refill of block %u of version %llu failed: %s%s", f->index, (unsigned long long)f->put_id,
		 strerror(-err), bad ? ", its SSD copy is given up" : "");
	get_revoke(f, bad);
	if (bad)
		node_tell_gone(n, f->put_id, 0, NULL);
}

static void run(struct work *w)
{
	struct refill *f = container_of(w, struct refill, work);
	struct node *n = f->n;
	int r = start(f);

	if (r == 0) {
		count_add(n, dram_reserved, segment_charge(f->len));
		r = fill_file(f);
		count_sub(n, dram_reserved, segment_charge(f->len));
		if (r == 0) {
			count_add(n, refills, 1);
			count_add(n, refill_bytes, f->len);
			send_done(f);
		} else {
			refill_failed(f, r);
		}
	} else if (r == -ENOENT) {
		r = -EIO; /* the master knows no copy any more */
	}
	finish(f, r);
	evict_check(n);
	pthread_cond_destroy(&f->cond);
	pthread_mutex_destroy(&f->lock);
	free(f);
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
	pthread_cond_init(&f->cond, NULL);
	b->flags |= BLOCK_REFILL;
	workq_submit(n->wq, &f->work, run);
	return 0;
}

int block_pin(struct node *n, struct block *b, struct block_wait *w)
{
	struct block_shard *s = block_lock(n, b->put_id, b->index);
	int r = 0;

	if (b->flags & BLOCK_MEM) {
		r = block_map(n, b);
		if (r == 0) {
			b->pins++;
			r = 1;
		}
	} else if (!(b->flags & BLOCK_SSD) && !(b->flags & BLOCK_REFILL)) {
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
