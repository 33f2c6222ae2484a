/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests become pieces, pieces go through the engine. All of it runs on the device's I/O thread.
 */
#include "ssd/internal.h"

#include <errno.h>
#include <string.h>

#include "common/size.h"

#define MAX_TRIES 1000u /* of a piece that the kernel asks to submit again */

static uint32_t piece_len(const struct ssd_op *op)
{
	uint64_t left = op->alen - op->next;

	return left < SSD_PIECE ? (uint32_t)left : SSD_PIECE;
}

/* May the next n bytes go straight between the caller's memory and the file? */
static bool is_direct(const struct ssd_op *op, uint32_t n)
{
	uint64_t room = op->capacity;

	if (op->kind == SSD_OP_MOVE || (uintptr_t)(op->buf + op->next) % op->dev->mem_align)
		return false;
	if (op->kind == SSD_OP_WRITE)
		room = (uintptr_t)op->buf % SSD_PAGE ? op->len : align_up(op->len, SSD_PAGE);
	return op->next + n <= room;
}

/* NULL when none is free; then the thread is woken when there is one. Takes the device's lock. */
static struct ssd_piece *piece_new(struct ssd_device *d, bool scratch)
{
	struct ssd_piece *p = NULL;

	pthread_mutex_lock(&d->lock);
	if (list_empty(&d->free_pieces) || (scratch && !d->n_scratch)) {
		d->stalled = true;
	} else {
		p = list_first(&d->free_pieces, struct ssd_piece, list);
		list_del(&p->list);
		p->scratch = scratch ? d->free_scratch[--d->n_scratch] : NULL;
	}
	pthread_mutex_unlock(&d->lock);
	return p;
}

void ssd_piece_free(struct ssd_device *d, struct ssd_piece *p)
{
	pthread_mutex_lock(&d->lock);
	if (p->scratch)
		d->free_scratch[d->n_scratch++] = p->scratch;
	list_add(&p->list, &d->free_pieces);
	ssd_device_unblock(d);
	pthread_mutex_unlock(&d->lock);
}

/* The padding of a write is zeros, whatever the scratch buffer held. */
static void fill_scratch(struct ssd_piece *p)
{
	const struct ssd_op *op = p->op;
	uint64_t left = op->len - p->off;
	uint32_t n = left < p->len ? (uint32_t)left : p->len;

	memcpy(p->scratch, op->buf + p->off, n);
	memset((char *)p->scratch + n, 0, p->len - n);
}

static void submit(struct ssd_device *d, struct ssd_piece *p)
{
	const struct ssd_op *op = p->op;
	unsigned char *base = p->scratch ? p->scratch : op->buf + p->off;

	p->req = (struct ssd_io_req){
	    .file = op->file,
	    .write = p->writing,
	    .len = p->len - p->got,
	    .off = (p->writing ? op->to : op->from) + p->off + p->got,
	    .buf = base + p->got,
	};
	d->store->io->submit(d->io, &p->req);
}

static void count_flight(struct ssd_device *d, const struct ssd_piece *p, int n)
{
	if (p->op->kind == SSD_OP_READ) {
		atomic_fetch_add(&d->reads_in_flight, (unsigned)n);
		d->read_bytes += (uint64_t)((int64_t)n * p->len);
	} else {
		atomic_fetch_add(&d->writes_in_flight, (unsigned)n);
		d->write_bytes += (uint64_t)((int64_t)n * p->len);
	}
}

/* Puts the next piece of a request in flight; false when there is nothing to do it with. */
static bool issue(struct ssd_device *d, struct ssd_op *op)
{
	uint32_t n = piece_len(op);
	struct ssd_piece *p = piece_new(d, !is_direct(op, n));

	if (!p)
		return false;
	p->op = op;
	p->off = op->next;
	p->len = n;
	p->got = p->tries = 0;
	p->writing = op->kind == SSD_OP_WRITE;
	p->came_back = false;
	if (p->writing && p->scratch)
		fill_scratch(p);
	op->next += n;
	op->in_flight++;
	list_add_tail(&p->in_op, &op->pieces);
	count_flight(d, p, 1);
	submit(d, p);
	return true;
}

static struct ssd_op *pop(struct ssd_device *d, struct list *queue, unsigned *n)
{
	struct ssd_op *op = NULL;

	pthread_mutex_lock(&d->lock);
	if (!list_empty(queue)) {
		op = list_first(queue, struct ssd_op, list);
		list_del(&op->list);
		--*n;
	}
	pthread_mutex_unlock(&d->lock);
	return op;
}

static bool next_read(struct ssd_device *d)
{
	struct ssd_op *op = d->cur_read;

	if (d->read_bytes >= SSD_READ_WINDOW)
		return false;
	if (!op)
		op = d->cur_read = pop(d, &d->reads, &d->n_reads);
	if (!op || !issue(d, op))
		return false;
	if (op->next == op->alen)
		d->cur_read = NULL;
	return true;
}

/* Call with the store locked. */
static void begin_move(struct ssd_device *d, unsigned ring, const struct ssd_move *m)
{
	const struct ssd_ring *r = &d->rings[ring];
	const struct ssd_entry *from = ssd_entry(r->ix, m->from), *to = ssd_entry(r->ix, m->to);
	struct ssd_op *op = &d->moves[ring];

	ssd_op_init(op, d, SSD_OP_MOVE);
	op->move = *m;
	op->file = ring;
	op->len = from->len;
	op->alen = ssd_ring_alen(r, from);
	op->from = ssd_ring_offset(r, from);
	op->to = ssd_ring_offset(r, to);
	list_add_tail(&op->list, &d->moving);
}

/* Call with the store locked. */
static void begin_write(struct ssd_device *d, struct ssd_op *op, unsigned ring)
{
	const struct ssd_ring *r = &d->rings[ring];

	op->file = ring;
	op->to = ssd_ring_offset(r, ssd_entry(r->ix, op->entry));
	op->started = true;
	d->store->queued--;
	d->next_ring = (ring + 1) % d->n_rings;
}

/*
 * Asks the device's rings in turn. 0: the write has its range; -EBUSY: one of them will have room; -ENOSPC: none.
 * Call with the store locked.
 */
static int find_ring(struct ssd_device *d, struct ssd_op *op)
{
	int ret = -ENOSPC;

	for (unsigned i = 0; i < d->n_rings; i++) {
		unsigned ring = (d->next_ring + i) % d->n_rings;
		struct ssd_move m;
		int r = ssd_ring_reserve(&d->rings[ring], op->entry, op->flags & SSD_WAIT, &m);

		if (!r) {
			begin_write(d, op, ring);
			return 0;
		}
		if (r > 0)
			begin_move(d, ring, &m);
		if (r != -ENOSPC)
			ret = -EBUSY;
	}
	return ret;
}

static int reserve(struct ssd_device *d, struct ssd_op *op)
{
	struct ssd_store *s = d->store;
	int r = -ECANCELED;

	pthread_mutex_lock(&s->lock);
	if (ssd_entry(&s->index, op->entry)->state == SSD_QUEUED)
		r = find_ring(d, op);
	if (r == -EBUSY) {
		/* While the store is locked no pin can go, so none can go unseen. */
		pthread_mutex_lock(&d->lock);
		d->stalled = true;
		pthread_mutex_unlock(&d->lock);
		s->st.busy_waits += !op->blocked;
		op->blocked = true;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* The next queued write that gets a range, or NULL. */
static struct ssd_op *start_write(struct ssd_device *d)
{
	struct ssd_op *op;

	while ((op = d->waiting ? d->waiting : pop(d, &d->writes, &d->n_writes))) {
		int r = reserve(d, op);

		d->waiting = r == -EBUSY ? op : NULL;
		if (r == -EBUSY)
			return NULL;
		if (!r) {
			ssd_sum_start(d, op);
			return op;
		}
		op->err = r;
		ssd_finish_op(d, op);
	}
	return NULL;
}

static bool next_move(struct ssd_device *d)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &d->moving)
	{
		struct ssd_op *op = container_of(pos, struct ssd_op, list);

		if (!op->err && op->next < op->alen && issue(d, op))
			return true;
	}
	return false;
}

static bool next_write(struct ssd_device *d)
{
	struct ssd_op *op;

	if (d->write_bytes >= SSD_WRITE_WINDOW)
		return false;
	if (next_move(d))
		return true;
	op = d->cur_write ? d->cur_write : start_write(d);
	d->cur_write = op;
	if (!op)
		/* What it waits for may be a copy that has only now been asked for. */
		return next_move(d);
	if (!issue(d, op))
		return false;
	if (op->next == op->alen)
		d->cur_write = NULL;
	return true;
}

bool ssd_transfer_next(struct ssd_device *d)
{
	unsigned reads = atomic_load(&d->reads_in_flight), writes = atomic_load(&d->writes_in_flight);

	if (reads + writes >= d->store->io_depth)
		return false;
	if (reads <= 2 * writes)
		return next_read(d) || next_write(d);
	return next_write(d) || next_read(d);
}

static void end_move(struct ssd_device *d, struct ssd_op *op)
{
	struct ssd_store *s = d->store;

	list_del(&op->list);
	pthread_mutex_lock(&s->lock);
	ssd_ring_moved(&d->rings[op->file], &op->move, !op->err);
	if (!op->err) {
		s->st.copied_to_head++;
		s->st.copied_bytes += op->alen;
	}
	pthread_mutex_unlock(&s->lock);
}

static void end_op(struct ssd_device *d, struct ssd_op *op)
{
	if (op->kind == SSD_OP_MOVE)
		end_move(d, op);
	else
		ssd_finish_op(d, op);
}

/* No more pieces of it are made. */
static void fail_op(struct ssd_device *d, struct ssd_op *op, int err)
{
	if (!op->err)
		op->err = err;
	if (d->cur_read == op)
		d->cur_read = NULL;
	if (d->cur_write == op)
		d->cur_write = NULL;
	if (d->waiting == op)
		d->waiting = NULL;
}

/* Hands the pieces over whose predecessors are there: the checksum takes them in order. */
static void hand_over(struct ssd_device *d, struct ssd_op *op)
{
	while (!list_empty(&op->pieces)) {
		struct ssd_piece *p = list_first(&op->pieces, struct ssd_piece, in_op);

		if (!p->came_back)
			return;
		list_del(&p->in_op);
		if (op->kind == SSD_OP_READ && !op->err)
			ssd_finish_piece(d, p);
		else
			ssd_piece_free(d, p);
	}
}

/* 0: the piece is whole; -EAGAIN: the rest of it is to be submitted; else an error of the request. */
static int check_result(struct ssd_device *d, struct ssd_piece *p, int res)
{
	if (res == -EINTR || res == -EAGAIN) {
		if (p->tries++ < MAX_TRIES)
			return -EAGAIN;
		res = -EIO;
	}
	if (res >= 0 && (uint32_t)res == p->len - p->got)
		return 0;
	if (res >= 0 && p->writing)
		return -EIO;
	if (res > 0) {
		/* Goes on where the device can: a short read may end in the middle of a block. */
		p->got += (uint32_t)res / d->align * d->align;
		if (p->tries++ < MAX_TRIES)
			return -EAGAIN;
	}
	/* Nothing where the file had bytes: somebody has cut it off. That too is the end of the device. */
	if (!d->bad)
		d->bad = res < 0 ? res : -EIO;
	return -EIO;
}

void ssd_transfer_ended(struct ssd_device *d, struct ssd_io_req *req)
{
	struct ssd_piece *p = container_of(req, struct ssd_piece, req);
	struct ssd_op *op = p->op;
	int err = check_result(d, p, req->res);

	if (!err && op->kind == SSD_OP_MOVE && !p->writing) {
		p->writing = true;
		p->got = 0;
		err = -EAGAIN;
	}
	if (err == -EAGAIN && !d->bad) {
		submit(d, p);
		return;
	}
	count_flight(d, p, -1);
	op->in_flight--;
	atomic_fetch_add_explicit(&d->progress, 1, memory_order_relaxed);
	if (err)
		fail_op(d, op, -EIO);
	p->came_back = true;
	hand_over(d, op);
	if (!op->in_flight && (op->err || op->next == op->alen))
		end_op(d, op);
}

static void abort_op(struct ssd_device *d, struct ssd_op *op, int err)
{
	if (!op)
		return;
	fail_op(d, op, err);
	if (!op->in_flight)
		end_op(d, op);
}

void ssd_transfer_abort(struct ssd_device *d, int err)
{
	struct list *pos, *tmp;

	abort_op(d, d->cur_read, err);
	abort_op(d, d->cur_write, err);
	abort_op(d, d->waiting, err);
	list_for_each(pos, tmp, &d->moving) abort_op(d, container_of(pos, struct ssd_op, list), err);
}
