/* SPDX-License-Identifier: Apache-2.0 */
#include "master/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

#define QUEUE_MAX (32u << 20) /* bytes of records */
#define RETRY_NS (200 * NS_PER_MS)
#define KEEP_MAX (1u << 20) /* a buffer that has grown above this is given back when it is empty */

struct writer {
	struct catalogue *cat;
	struct writer_ops ops;
	pthread_t thread;
	atomic_ullong commits, failures;

	pthread_mutex_t lock;
	pthread_cond_t work;   /* something is queued, or it is over */
	pthread_cond_t room;   /* records have been committed, or writing has failed */
	struct core_out queue; /* lock */
	size_t busy_len;       /* lock; bytes of records that the thread works on */
	uint64_t busy_ns;      /* lock; since when it does */
	bool busy;	       /* lock; the thread commits or delivers */
	bool failing;	       /* lock; the last commit failed */
	bool over;	       /* lock */
};

static void deliver_all(struct writer *w, struct core_out *b)
{
	for (size_t k = 0; k < b->n_msgs; k++)
		w->ops.deliver(w->ops.arg, &b->msgs[k]);
	b->n_msgs = 0;
}

/* The batch is in the catalogue. */
static void committed(struct writer *w, struct core_out *b)
{
	if (b->writes.counter)
		w->ops.counter(w->ops.arg, b->writes.counter);
	if (b->writes.n)
		atomic_fetch_add(&w->commits, 1);
	writes_clear(&b->writes);
	if (b->writes.cap > KEEP_MAX)
		writes_free(&b->writes);
	deliver_all(w, b);
}

/* It never will be: the process ends. */
static void abandoned(struct writer *w, struct core_out *b)
{
	for (size_t k = 0; k < b->n_msgs; k++)
		b->msgs[k].msg->status = -EIO;
	deliver_all(w, b);
	writes_clear(&b->writes);
}

static int move_out(struct core_out *dst, struct core_out *src)
{
	size_t n = dst->n_msgs + src->n_msgs;
	int r;

	if (n > dst->cap_msgs) {
		size_t cap = n < 64 ? 64 : n * 2;
		struct core_msg *msgs = realloc(dst->msgs, cap * sizeof(*msgs));

		if (!msgs)
			return -ENOMEM;
		dst->msgs = msgs;
		dst->cap_msgs = cap;
	}
	r = writes_move(&dst->writes, &src->writes);
	if (r < 0)
		return r;
	if (src->n_msgs)
		memcpy(dst->msgs + dst->n_msgs, src->msgs, src->n_msgs * sizeof(*src->msgs));
	dst->n_msgs = n;
	src->n_msgs = 0;
	return 0;
}

static bool queue_empty(const struct writer *w)
{
	return !w->queue.n_msgs && !w->queue.writes.n;
}

/* Takes what is queued behind what could not be committed yet. Call with w locked. */
static void take(struct writer *w, struct core_out *b)
{
	/* Without memory it stays queued; the retry of the first part goes on. */
	move_out(b, &w->queue);
	w->busy = true;
	w->busy_len = b->writes.len;
	w->busy_ns = clock_ns();
}

static void failed(struct writer *w, const struct errmsg *e)
{
	atomic_fetch_add(&w->failures, 1);
	pthread_mutex_lock(&w->lock);
	if (!w->failing)
		log_error("%s; trying again, what waits for it is delayed", e->text);
	w->failing = true;
	pthread_cond_signal(&w->room);
	pthread_mutex_unlock(&w->lock);
}

static void succeeded(struct writer *w)
{
	pthread_mutex_lock(&w->lock);
	if (w->failing)
		log_info("the catalogue can be written again");
	w->failing = false;
	pthread_mutex_unlock(&w->lock);
}

/* Waits until there is something to do. Returns false when all is done. Call with w locked. */
static bool wait_for_work(struct writer *w, bool left)
{
	uint64_t at = clock_ns() + RETRY_NS;
	struct timespec until = clock_timespec(at);

	if (left) {
		while (!w->over && clock_ns() < at)
			pthread_cond_timedwait(&w->work, &w->lock, &until);
		return true;
	}
	while (queue_empty(w) && !w->over)
		pthread_cond_wait(&w->work, &w->lock);
	return !queue_empty(w);
}

/* Says what the thread is done with, and waits for more. False: there will be none. */
static bool next_batch(struct writer *w, struct core_out *b, bool left, bool *ret_over)
{
	bool more;

	pthread_mutex_lock(&w->lock);
	w->busy = left;
	w->busy_len = b->writes.len;
	pthread_cond_signal(&w->room);
	more = wait_for_work(w, left);
	if (more) {
		*ret_over = w->over;
		take(w, b);
	}
	pthread_mutex_unlock(&w->lock);
	return more;
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	struct core_out b = {0};
	struct errmsg e;
	bool left = false, over = false;

	while (next_batch(w, &b, left, &over)) {
		left = catalogue_apply(w->cat, &b.writes, &e) < 0;
		if (!left) {
			committed(w, &b);
			succeeded(w);
		} else {
			failed(w, &e);
			if (!over)
				continue;
			abandoned(w, &b);
			left = false;
		}
	}
	core_out_clear(&b);
	return NULL;
}

static void init_sync(struct writer *w)
{
	pthread_mutex_init(&w->lock, NULL);
	clock_cond_init(&w->work);
	clock_cond_init(&w->room);
}

static struct writer *writer_free(struct writer *w)
{
	core_out_clear(&w->queue);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->room);
	free(w);
	return NULL;
}

int writer_start(struct catalogue *cat, const struct writer_ops *ops, struct writer **ret)
{
	struct writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->cat = cat;
	w->ops = *ops;
	init_sync(w);
	r = pthread_create(&w->thread, NULL, writer_main, w);
	if (r) {
		writer_free(w);
		return -r;
	}
	pthread_setname_np(w->thread, "fkv-catalogue");
	*ret = w;
	return 0;
}

struct writer *writer_stop(struct writer *w)
{
	if (!w)
		return NULL;
	pthread_mutex_lock(&w->lock);
	w->over = true;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	return writer_free(w);
}

int writer_submit(struct writer *w, struct core_out *out)
{
	int r;

	pthread_mutex_lock(&w->lock);
	r = move_out(&w->queue, out);
	if (!r)
		pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return r;
}

bool writer_idle(struct writer *w)
{
	bool idle;

	pthread_mutex_lock(&w->lock);
	idle = !w->busy && queue_empty(w);
	pthread_mutex_unlock(&w->lock);
	return idle;
}

/* Call with w locked. */
static bool is_full(const struct writer *w)
{
	return w->queue.writes.len + w->busy_len > QUEUE_MAX;
}

/* Call with w locked. */
static bool is_stalled(const struct writer *w, uint64_t now)
{
	/* The commit may have begun behind the look at the clock. */
	return w->busy && now >= w->busy_ns + w->ops.stall_ns;
}

int writer_wait_room(struct writer *w, uint64_t until_ns)
{
	uint64_t now = clock_ns();
	int r;

	pthread_mutex_lock(&w->lock);
	while (is_full(w) && !w->failing && !is_stalled(w, now) && now < until_ns) {
		uint64_t stall_ns = (w->busy ? w->busy_ns : now) + w->ops.stall_ns;
		struct timespec until = clock_timespec(stall_ns < until_ns ? stall_ns : until_ns);

		pthread_cond_timedwait(&w->room, &w->lock, &until);
		now = clock_ns();
	}
	r = !is_full(w) ? 0 : w->failing || is_stalled(w, now) ? -EIO : -EAGAIN;
	pthread_mutex_unlock(&w->lock);
	return r;
}

uint64_t writer_commits(struct writer *w)
{
	return atomic_load_explicit(&w->commits, memory_order_relaxed);
}

uint64_t writer_failures(struct writer *w)
{
	return atomic_load_explicit(&w->failures, memory_order_relaxed);
}
