/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/notice.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"

#define LINGER_NS (10 * NS_PER_MS)
#define ROOM_WAIT_NS (100 * NS_PER_MS)

struct ssd_notices {
	ssd_evicted_fn fn;
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled, drained;
	/* under lock */
	struct ssd_key *keys; /* SSD_NOTICE_ROOM of them, used as a ring */
	size_t first, n;
	uint64_t since; /* when the first of them came */
	uint64_t sent, lost;
	bool stop;
};

/* Until there is a batch to send, or the end has come. Call with the lock held. */
static void wait_batch(struct ssd_notices *n)
{
	while (!n->n && !n->stop)
		pthread_cond_wait(&n->filled, &n->lock);
	while (n->n < SSD_NOTICE_BATCH && !n->stop) {
		struct timespec until = clock_timespec(n->since + LINGER_NS);

		if (pthread_cond_timedwait(&n->filled, &n->lock, &until) == ETIMEDOUT)
			return;
	}
}

/* Call with the lock held. */
static size_t take_batch(struct ssd_notices *n, struct ssd_key *ret)
{
	size_t count = n->n < SSD_NOTICE_BATCH ? n->n : SSD_NOTICE_BATCH;

	for (size_t i = 0; i < count; i++)
		ret[i] = n->keys[(n->first + i) % SSD_NOTICE_ROOM];
	n->first = (n->first + count) % SSD_NOTICE_ROOM;
	n->n -= count;
	n->since = clock_ns();
	return count;
}

static void *notice_thread(void *arg)
{
	struct ssd_key batch[SSD_NOTICE_BATCH];
	struct ssd_notices *n = arg;
	size_t count;

	for (;;) {
		pthread_mutex_lock(&n->lock);
		wait_batch(n);
		count = take_batch(n, batch);
		pthread_cond_broadcast(&n->drained);
		pthread_mutex_unlock(&n->lock);
		if (!count)
			return NULL;
		if (n->fn)
			n->fn(n->arg, batch, count);
		pthread_mutex_lock(&n->lock);
		n->sent += count;
		pthread_mutex_unlock(&n->lock);
	}
}

static void destroy(struct ssd_notices *n)
{
	pthread_cond_destroy(&n->drained);
	pthread_cond_destroy(&n->filled);
	pthread_mutex_destroy(&n->lock);
	free(n->keys);
	free(n);
}

int ssd_notices_new(ssd_evicted_fn fn, void *arg, struct ssd_notices **ret)
{
	struct ssd_notices *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->keys = malloc(SSD_NOTICE_ROOM * sizeof(*n->keys));
	n->fn = fn;
	n->arg = arg;
	pthread_mutex_init(&n->lock, NULL);
	clock_cond_init(&n->filled);
	clock_cond_init(&n->drained);
	r = n->keys ? -pthread_create(&n->thread, NULL, notice_thread, n) : -ENOMEM;
	if (r < 0) {
		destroy(n);
		return r;
	}
	pthread_setname_np(n->thread, "ssd-notices");
	*ret = n;
	return 0;
}

struct ssd_notices *ssd_notices_free(struct ssd_notices *n)
{
	if (!n)
		return NULL;
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->filled);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	destroy(n);
	return NULL;
}

void ssd_notices_put(struct ssd_notices *n, struct ssd_key key)
{
	pthread_mutex_lock(&n->lock);
	if (n->n == SSD_NOTICE_ROOM) {
		n->lost++;
	} else {
		n->keys[(n->first + n->n++) % SSD_NOTICE_ROOM] = key;
		if (n->n == 1)
			n->since = clock_ns();
		if (n->n == 1 || n->n == SSD_NOTICE_BATCH)
			pthread_cond_signal(&n->filled);
	}
	pthread_mutex_unlock(&n->lock);
}

bool ssd_notices_wait_room(struct ssd_notices *n)
{
	struct timespec until = clock_timespec(clock_ns() + ROOM_WAIT_NS);
	bool room;
	int r = 0;

	pthread_mutex_lock(&n->lock);
	while (SSD_NOTICE_ROOM - n->n < SSD_NOTICE_BATCH && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&n->drained, &n->lock, &until);
	room = SSD_NOTICE_ROOM - n->n >= SSD_NOTICE_BATCH;
	pthread_mutex_unlock(&n->lock);
	return room;
}

void ssd_notices_stats(struct ssd_notices *n, uint64_t *ret_sent, uint64_t *ret_lost)
{
	pthread_mutex_lock(&n->lock);
	*ret_sent = n->sent;
	*ret_lost = n->lost;
	pthread_mutex_unlock(&n->lock);
}
