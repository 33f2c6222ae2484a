/* SPDX-License-Identifier: Apache-2.0 */
#include "store/workq.h"

#include <pthread.h>
#include <stdlib.h>

struct workq {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t more;
	struct list jobs;
	pthread_t *threads;
	unsigned n_threads, max_threads, idle;
	unsigned queued; /* jobs no thread has taken */
	bool stop;
};

#define WORKQ_STACK (256u * 1024)

static void *workq_thread(void *arg)
{
	struct workq *q = arg;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct work *w;

		while (list_empty(&q->jobs) && !q->stop) {
			q->idle++;
			pthread_cond_wait(&q->more, &q->lock);
			q->idle--;
		}
		if (list_empty(&q->jobs))
			break;
		w = list_first(&q->jobs, struct work, link);
		list_del(&w->link);
		q->queued--;
		pthread_mutex_unlock(&q->lock);
		w->fn(w);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* Call with q locked. A thread that cannot be had is no error as long as there is one. */
static int add_thread(struct workq *q)
{
	pthread_attr_t attr;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, WORKQ_STACK);
	r = pthread_create(&q->threads[q->n_threads], &attr, workq_thread, q);
	pthread_attr_destroy(&attr);
	if (!r)
		q->n_threads++;
	return -r;
}

struct workq *workq_new(unsigned max_threads)
{
	struct workq *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->threads = calloc(max_threads, sizeof(*q->threads));
	if (!q->threads) {
		free(q);
		return NULL;
	}
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->more, NULL);
	list_init(&q->jobs);
	q->max_threads = max_threads;
	pthread_mutex_lock(&q->lock);
	add_thread(q);
	pthread_mutex_unlock(&q->lock);
	return q->n_threads ? q : workq_free(q);
}

struct workq *workq_free(struct workq *q)
{
	if (!q)
		return NULL;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->more);
	pthread_mutex_unlock(&q->lock);
	for (unsigned i = 0; i < q->n_threads; i++)
		pthread_join(q->threads[i], NULL);
	pthread_cond_destroy(&q->more);
	pthread_mutex_destroy(&q->lock);
	free(q->threads);
	free(q);
	return NULL;
}

void workq_submit(struct workq *q, struct work *w, void (*fn)(struct work *w))
{
	w->fn = fn;
	pthread_mutex_lock(&q->lock);
	list_add_tail(&w->link, &q->jobs);
	q->queued++;
	if (q->queued > q->idle && q->n_threads < q->max_threads)
		add_thread(q);
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}
