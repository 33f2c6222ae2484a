/* SPDX-License-Identifier: Apache-2.0 */
#include "net/channel.h"

#include <pthread.h>

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;	 /* lock */
	int status;	 /* lock */
	struct msg *ret; /* lock */
};

static void waiter_done(void *arg, const struct msg *answer)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->lock);
	w->status = answer->status;
	if (w->ret) {
		*w->ret = *answer;
		w->ret->items = NULL;
		w->ret->ents = NULL;
		w->ret->namespaces = NULL;
		w->ret->blob = NULL;
		w->ret->n_items = w->ret->n_ents = w->ret->n_namespaces = w->ret->blob_len = 0;
	}
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int channel_call_wait(struct channel *ch, struct msg *req, struct msg *ret_fixed_part)
{
	struct waiter w = {.ret = ret_fixed_part};

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.cond, NULL);
	channel_call(ch, req, waiter_done, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	return w.status;
}
