/* SPDX-License-Identifier: Apache-2.0 */
#include "net/data_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

struct data_pool {
	struct data_pool_config cfg;
	pthread_t thread;
	pthread_cond_t changed;
	pthread_mutex_t lock;
	struct list idle; /* lock; the one that has rested longest is the first */
	size_t n;	  /* lock */
	bool over;	  /* lock */
};

struct data_link *data_link_new(const char *address)
{
	size_t len = strlen(address) + 1;
	struct data_link *l = calloc(1, sizeof(*l) + len);

	if (!l)
		return NULL;
	list_init(&l->idle);
	l->sock.fd = l->sock.stop_fd = -1;
	memcpy(l->address, address, len);
	return l;
}

struct data_link *data_link_free(struct data_link *l)
{
	if (!l)
		return NULL;
	if (l->sock.fd >= 0)
		close(l->sock.fd);
	free(l);
	return NULL;
}

/* Call with p locked. */
static void take_out(struct data_pool *p, struct data_link *l)
{
	list_del(&l->idle);
	p->n--;
}

/* The one to that address that has rested shortest: it is the likeliest to live. Call with p locked. */
static struct data_link *find(struct data_pool *p, const char *address)
{
	for (struct list *pos = p->idle.prev; pos != &p->idle; pos = pos->prev) {
		struct data_link *l = container_of(pos, struct data_link, idle);

		if (!strcmp(l->address, address))
			return l;
	}
	return NULL;
}

struct data_link *data_pool_take(struct data_pool *p, const char *address)
{
	struct data_link *l;

	do {
		pthread_mutex_lock(&p->lock);
		l = find(p, address);
		if (l)
			take_out(p, l);
		pthread_mutex_unlock(&p->lock);
		if (!l || sock_is_quiet(&l->sock))
			return l;
		data_link_free(l);
	} while (true);
}

/* Of those to an address that has one too many, or else of all that are too many, the oldest; NULL: none is. Call with
 * p locked. */
static struct data_link *take_surplus(struct data_pool *p, const char *address)
{
	struct data_link *oldest = NULL;
	size_t n = 0;

	for (struct list *pos = p->idle.prev; pos != &p->idle; pos = pos->prev) {
		struct data_link *l = container_of(pos, struct data_link, idle);

		if (strcmp(l->address, address) != 0)
			continue;
		oldest = l;
		n++;
	}
	if (n <= p->cfg.max_each)
		oldest = p->n > p->cfg.max ? list_first(&p->idle, struct data_link, idle) : NULL;
	if (oldest)
		take_out(p, oldest);
	return oldest;
}

void data_pool_give(struct data_pool *p, struct data_link *l)
{
	struct data_link *surplus;

	pthread_mutex_lock(&p->lock);
	l->since_ns = clock_ns();
	list_add_tail(&l->idle, &p->idle);
	/* The thread sleeps by the first one's time; that is another's only now. */
	if (!p->n++)
		pthread_cond_signal(&p->changed);
	surplus = take_surplus(p, l->address);
	pthread_mutex_unlock(&p->lock);
	data_link_free(surplus);
}

size_t data_pool_count(struct data_pool *p)
{
	size_t n;

	pthread_mutex_lock(&p->lock);
	n = p->n;
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* ---- the thread ---------------------------------------------------------------------------------------------- */

/* One that has rested long enough; NULL: none has, and that is to be looked at again at *ret_then (0: later). Call with
 * p locked. */
static struct data_link *take_old(struct data_pool *p, uint64_t *ret_then)
{
	struct data_link *l;

	*ret_then = 0;
	if (list_empty(&p->idle))
		return NULL;
	l = list_first(&p->idle, struct data_link, idle);
	if (p->over || clock_ns() - l->since_ns >= p->cfg.idle_ms * NS_PER_MS) {
		take_out(p, l);
		return l;
	}
	*ret_then = l->since_ns + p->cfg.idle_ms * NS_PER_MS;
	return NULL;
}

/* Call with p locked. */
static void rest(struct data_pool *p, uint64_t then_ns)
{
	struct timespec then = clock_timespec(then_ns);

	if (then_ns)
		pthread_cond_timedwait(&p->changed, &p->lock, &then);
	else
		pthread_cond_wait(&p->changed, &p->lock);
}

static void *thread_main(void *arg)
{
	struct data_pool *p = arg;
	struct data_link *l;
	uint64_t then_ns;

	pthread_mutex_lock(&p->lock);
	while (!p->over || !list_empty(&p->idle)) {
		l = take_old(p, &then_ns);
		if (!l) {
			rest(p, then_ns);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		data_link_free(l);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pool_free(struct data_pool *p)
{
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int data_pool_start(const struct data_pool_config *cfg, struct data_pool **ret, struct errmsg *e)
{
	struct data_pool *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return errmsg_set(e, -ENOMEM, "out of memory");
	p->cfg = *cfg;
	list_init(&p->idle);
	clock_cond_init(&p->changed);
	pthread_mutex_init(&p->lock, NULL);
	r = pthread_create(&p->thread, NULL, thread_main, p);
	if (r) {
		pool_free(p);
		return errmsg_set(e, -r, "cannot start the thread of the data connections: %s", strerror(r));
	}
	pthread_setname_np(p->thread, "fkv-data-idle");
	*ret = p;
	return 0;
}

struct data_pool *data_pool_stop(struct data_pool *p)
{
	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->over = true;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pool_free(p);
	return NULL;
}
