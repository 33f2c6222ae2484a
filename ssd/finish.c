/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finisher of a device: checksums of reads, copies out of scratch buffers, the end of requests. See internal.h.
 */
#include "ssd/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ssd_op_init(struct ssd_op *op, struct ssd_device *d, enum ssd_kind kind)
{
	/* All but the checksum's state, which is large and set up by its own function. */
	memset((char *)op + sizeof(op->state), 0, sizeof(*op) - sizeof(op->state));
	op->dev = d;
	op->kind = kind;
	list_init(&op->list);
	list_init(&op->pieces);
	list_init(&op->todo);
	list_init(&op->ready);
}

struct ssd_op *ssd_op_new(struct ssd_device *d, enum ssd_kind kind, ssd_done_fn done, void *arg)
{
	struct ssd_op *op = aligned_alloc(_Alignof(struct ssd_op), sizeof(*op));

	if (!op)
		return NULL;
	ssd_op_init(op, d, kind);
	XXH3_64bits_reset(&op->state);
	op->done = done;
	op->arg = arg;
	return op;
}

/* Call with d locked. */
static void has_todo(struct ssd_device *d, struct ssd_op *op)
{
	if (list_empty(&op->todo))
		list_add_tail(&op->todo, &d->todo);
	pthread_cond_signal(&d->fin_cond);
}

void ssd_finish_piece(struct ssd_device *d, struct ssd_piece *p)
{
	pthread_mutex_lock(&d->lock);
	list_add_tail(&p->list, &p->op->ready);
	has_todo(d, p->op);
	pthread_mutex_unlock(&d->lock);
}

void ssd_finish_op_locked(struct ssd_device *d, struct ssd_op *op)
{
	op->ended = true;
	has_todo(d, op);
}

void ssd_finish_op(struct ssd_device *d, struct ssd_op *op)
{
	pthread_mutex_lock(&d->lock);
	ssd_finish_op_locked(d, op);
	pthread_mutex_unlock(&d->lock);
}

/* A piece that was read: only the payload of it counts, the padding is nobody's. */
static void take_piece(struct ssd_device *d, struct ssd_piece *p)
{
	struct ssd_op *op = p->op;
	uint64_t off = p->off, left = op->len - off;
	uint64_t n = left < p->len ? left : p->len;

	if (p->scratch)
		memcpy(op->buf + off, p->scratch, n);
	ssd_piece_free(d, p);
	/* Before the checksum: whoever passes the bytes on need not wait for it, and waits for done all the same. */
	if (op->tell)
		op->tell(op->arg, off + n);
	op->summed = ssd_sum_more(op, op->buf + off, n);
}

/* Call with the store locked. */
static void count_write(struct ssd_store *s, const struct ssd_op *op, int err)
{
	switch (err) {
	case 0:
		s->st.writes_ok++;
		s->st.write_bytes += op->len;
		return;
	case -ENOBUFS:
		s->st.dropped_backlog++;
		return;
	case -ENOSPC:
		s->st.dropped_held++;
		return;
	case -ECANCELED:
		s->st.cancelled++;
		return;
	default:
		s->st.writes_failed++;
	}
}

/* Call with the store locked. Returns what the caller is told. */
static int settle_write(struct ssd_store *s, struct ssd_op *op)
{
	struct ssd_entry *e = ssd_entry(&s->index, op->entry);
	struct ssd_ring *r;
	int err = op->err;

	if (!op->started) {
		if (e->state == SSD_QUEUED)
			ssd_index_remove(&s->index, op->entry);
		ssd_index_release(&s->index, op->entry);
		s->queued--;
		return err;
	}
	r = s->rings[e->ring];
	if (e->state == SSD_DEAD)
		err = -ECANCELED;
	else if (!err && op->dev->failed)
		err = -EIO;
	if (!err)
		ssd_ring_commit(r, op->entry, op->sum);
	else if (e->state != SSD_DEAD)
		ssd_ring_kill(r, op->entry);
	ssd_ring_unpin(r, op->entry);
	return err;
}

static int settle_read(struct ssd_store *s, struct ssd_op *op)
{
	struct ssd_entry *e = ssd_entry(&s->index, op->entry);
	struct ssd_ring *r = s->rings[e->ring];
	int err = op->err;

	/* The pin forbids it; if it has happened all the same, these are another value's bytes. */
	if (!err && !ssd_ring_valid(r, op->entry))
		err = -ENOENT;
	if (!err && op->sum != e->sum) {
		err = -EBADMSG;
		s->st.checksum_errors++;
		if (e->state == SSD_COMMITTED)
			ssd_ring_evict(r, op->entry);
	}
	ssd_ring_unpin(r, op->entry);
	if (!err) {
		s->st.reads_ok++;
		s->st.read_bytes += op->len;
	} else if (err != -ENOENT && err != -ECANCELED) {
		s->st.reads_failed++;
	}
	return err;
}

static void settle(struct ssd_device *d, struct ssd_op *op)
{
	struct ssd_store *s = d->store;
	int err;

	pthread_mutex_lock(&s->lock);
	if (op->kind == SSD_OP_READ) {
		err = settle_read(s, op);
	} else {
		err = settle_write(s, op);
		count_write(s, op, err);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&d->lock);
	d->backlog -= op->charge;
	ssd_device_unblock(d);
	pthread_mutex_unlock(&d->lock);
	op->done(op->arg, err, err ? 0 : op->sum);
	free(op);
}

/* The I/O of a request is over, and perhaps the checksum of it is not: then the summer hands it over once more. */
static void end_io(struct ssd_device *d, struct ssd_op *op)
{
	if (op->kind == SSD_OP_READ || ssd_sum_ends(d, op))
		settle(d, op);
}

/*
 * The request that is nearest to its end. Were the pieces taken as they come, requests that began together would end
 * together, and the device would stand idle while all of their checksums are taken. Call with d locked.
 */
static struct ssd_op *nearest_end(struct ssd_device *d)
{
	struct ssd_op *best = NULL;
	uint64_t least = 0;
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &d->todo)
	{
		struct ssd_op *op = container_of(pos, struct ssd_op, todo);
		/* Of a write there is nothing to do but its end. */
		uint64_t left = op->kind == SSD_OP_READ ? op->len - op->hashed : 0;

		if (!best || left < least) {
			best = op;
			least = left;
		}
	}
	return best;
}

/* What there is to do for op: its next piece, or (NULL) its end. Call with d locked. */
static struct ssd_piece *next_piece(struct ssd_op *op)
{
	struct ssd_piece *p = NULL;

	if (!list_empty(&op->ready)) {
		p = list_first(&op->ready, struct ssd_piece, list);
		list_del(&p->list);
	}
	if (!p || (list_empty(&op->ready) && !op->ended))
		list_del(&op->todo);
	return p;
}

enum todo { TODO_PIECE, TODO_END, TODO_STOP };

/* Waits for something to do. */
static enum todo wait_todo(struct ssd_device *d, struct ssd_op **ret_op, struct ssd_piece **ret_piece)
{
	enum todo what = TODO_STOP;

	pthread_mutex_lock(&d->lock);
	while (list_empty(&d->todo) && !d->fin_stop)
		pthread_cond_wait(&d->fin_cond, &d->lock);
	if (!list_empty(&d->todo)) {
		*ret_op = nearest_end(d);
		*ret_piece = next_piece(*ret_op);
		what = *ret_piece ? TODO_PIECE : TODO_END;
	}
	pthread_mutex_unlock(&d->lock);
	return what;
}

void *ssd_finisher(void *arg)
{
	struct ssd_device *d = arg;
	struct ssd_piece *piece = NULL;
	struct ssd_op *op = NULL;

	for (;;) {
		switch (wait_todo(d, &op, &piece)) {
		case TODO_PIECE:
			take_piece(d, piece);
			break;
		case TODO_END:
			end_io(d, op);
			break;
		case TODO_STOP:
			return NULL;
		}
	}
}
