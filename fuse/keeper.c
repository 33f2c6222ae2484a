/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread that looks after what waits. A parked request whose task is being killed is answered EINTR at once, so
 * that the task can die. The kernel sends INTERRUPT for every signal, also for those with a handler (which must not
 * make a read(2) of a file fail); so an interrupted request is looked at again and again, until its task is killed or
 * its answer has come. What a thread was to come back for, and did not, is let go.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "fuse/task.h"

#define LOOK_AGAIN_NS (50 * NS_PER_MS)
#define BATCH 64

struct keeper {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list parked; /* lock; each has a reference */
	bool kicked, stop;  /* lock */
};

void keeper_park(struct keeper *k, struct op *op)
{
	op_ref(op);
	pthread_mutex_lock(&k->lock);
	list_add_tail(&op->op_parked, &k->parked);
	pthread_mutex_unlock(&k->lock);
}

void keeper_unpark(struct keeper *k, struct op *op)
{
	pthread_mutex_lock(&k->lock);
	list_del(&op->op_parked);
	pthread_mutex_unlock(&k->lock);
	op_unref(op);
}

void keeper_kick(struct keeper *k)
{
	pthread_mutex_lock(&k->lock);
	k->kicked = true;
	pthread_cond_signal(&k->wake);
	pthread_mutex_unlock(&k->lock);
}

static size_t list_length(const struct list *l)
{
	size_t n = 0;

	for (const struct list *e = l->next; e != l; e = e->next)
		n++;
	return n;
}

/* References to at most BATCH of the next n parked ops that may be wanted; all looked at go to the list's end. */
static size_t pick(struct keeper *k, size_t *n, bool interrupted, struct op *ret[BATCH])
{
	size_t found = 0;

	pthread_mutex_lock(&k->lock);
	while (*n && found < BATCH && !list_empty(&k->parked)) {
		struct op *op = list_first(&k->parked, struct op, op_parked);

		(*n)--;
		list_del(&op->op_parked);
		list_add_tail(&op->op_parked, &k->parked);
		if (interrupted && !atomic_load_explicit(&op->op_interrupted, memory_order_acquire))
			continue;
		op_ref(op);
		ret[found++] = op;
	}
	pthread_mutex_unlock(&k->lock);
	return found;
}

/* Whether some interrupted request still waits. */
static bool look_at_interrupted(struct keeper *k)
{
	struct op *ops[BATCH];
	bool left = false;
	size_t n, found;

	pthread_mutex_lock(&k->lock);
	n = list_length(&k->parked);
	pthread_mutex_unlock(&k->lock);
	do {
		found = pick(k, &n, true, ops);
		for (size_t i = 0; i < found; i++) {
			if (!task_is_killed(ops[i]->op_tid))
				left = true;
			else if (op_fail(ops[i], -EINTR))
				count_add(k->fs, interrupted, 1);
			op_unref(ops[i]);
		}
	} while (found == BATCH);
	return left;
}

void keeper_fail_all(struct keeper *k, int err)
{
	struct op *ops[BATCH];
	size_t n, found;

	pthread_mutex_lock(&k->lock);
	n = list_length(&k->parked);
	pthread_mutex_unlock(&k->lock);
	do {
		found = pick(k, &n, false, ops);
		for (size_t i = 0; i < found; i++) {
			op_fail(ops[i], err);
			op_unref(ops[i]);
		}
	} while (found);
}

/* Waits for a kick, or for ns (0: without end). Call with k locked. */
static void wait_kick(struct keeper *k, uint64_t ns)
{
	struct timespec ts = clock_timespec(clock_ns() + ns);
	int r = 0;

	while (!k->kicked && !k->stop && !r)
		r = ns ? pthread_cond_timedwait(&k->wake, &k->lock, &ts) : pthread_cond_wait(&k->wake, &k->lock);
	k->kicked = false;
}

static void *keeper_main(void *arg)
{
	struct keeper *k = arg;
	bool waiting = false;
	size_t held = 0;

	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		wait_kick(k, waiting ? LOOK_AGAIN_NS : held ? NS_PER_SEC : 0);
		pthread_mutex_unlock(&k->lock);
		waiting = look_at_interrupted(k);
		held = retry_expire(k->fs->retries, clock_ns());
		pthread_mutex_lock(&k->lock);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

struct keeper *keeper_new(struct fs *fs, struct errmsg *e)
{
	struct keeper *k = calloc(1, sizeof(*k));
	int r = ENOMEM;

	if (!k)
		goto fail;
	k->fs = fs;
	list_init(&k->parked);
	pthread_mutex_init(&k->lock, NULL);
	clock_cond_init(&k->wake);
	r = pthread_create(&k->thread, NULL, keeper_main, k);
	if (!r) {
		pthread_setname_np(k->thread, "fuse-keeper");
		return k;
	}
	free(k);
fail:
	errmsg_set(e, -r, "cannot start a thread: %s", strerror(r));
	return NULL;
}

struct keeper *keeper_free(struct keeper *k)
{
	if (!k)
		return NULL;
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_signal(&k->wake);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	pthread_cond_destroy(&k->wake);
	pthread_mutex_destroy(&k->lock);
	free(k);
	return NULL;
}
