/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The summer of a device: checksums of writes, whose bytes are there from the start. Nobody waits for a copy on the
 * SSD, so it takes what the CPUs have left: with the priority of all others it took a tenth of its speed from a writer.
 * Where they have nothing left it still gets its part, as the backlog needs. What
 * follows, under locks that all share, is the finisher's. See internal.h.
 */
#include "ssd/internal.h"

#include <sys/resource.h>

#define SUM_NICE 10 /* of all that are at 0 and want the same CPU, it gets a tenth of what they get */

bool ssd_sum_more(struct ssd_op *op, const void *p, uint64_t n)
{
	XXH3_64bits_update(&op->state, p, n);
	atomic_fetch_add_explicit(&op->dev->progress, 1, memory_order_relaxed);
	op->hashed += n;
	if (op->hashed < op->len)
		return false;
	op->sum = XXH3_64bits_digest(&op->state);
	return true;
}

void ssd_sum_start(struct ssd_device *d, struct ssd_op *op)
{
	/* `summed` says that the caller knew the sum; nobody else has seen this request yet. */
	if (op->summed)
		return;
	pthread_mutex_lock(&d->lock);
	list_add_tail(&op->list, &d->sums);
	pthread_cond_signal(&d->sum_cond);
	pthread_mutex_unlock(&d->lock);
}

bool ssd_sum_ends(struct ssd_device *d, struct ssd_op *op)
{
	bool over;

	pthread_mutex_lock(&d->lock);
	op->io_ended = true;
	/* A write that failed needs no sum, but must stay while a piece of it is taken. */
	over = op->summed || (op->err && d->summing != op);
	if (over)
		list_del(&op->list);
	pthread_mutex_unlock(&d->lock);
	return over;
}

/* The next piece of one checksum. Call with d locked; it is not meanwhile. */
static void take_sum(struct ssd_device *d, struct ssd_op *op)
{
	uint64_t left = op->len - op->hashed;
	bool summed;

	d->summing = op;
	pthread_mutex_unlock(&d->lock);
	summed = ssd_sum_more(op, op->buf + op->hashed, left < SSD_PIECE ? left : SSD_PIECE);
	pthread_mutex_lock(&d->lock);
	d->summing = NULL;
	op->summed = summed;
	if (summed)
		list_del(&op->list);
	/* The finisher has seen its end, and left it to us to call again. */
	if (op->io_ended && (summed || op->err))
		ssd_finish_op_locked(d, op);
}

void *ssd_summer(void *arg)
{
	struct ssd_device *d = arg;

	/* Of this thread alone; that it may not is no reason to do without. */
	setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + SUM_NICE);
	pthread_mutex_lock(&d->lock);
	for (;;) {
		while (list_empty(&d->sums) && !d->sum_stop)
			pthread_cond_wait(&d->sum_cond, &d->lock);
		if (list_empty(&d->sums))
			break;
		take_sum(d, list_first(&d->sums, struct ssd_op, list));
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}
