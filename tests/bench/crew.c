/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/crew.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct crew {
	crew_fn fn;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t go;
	bool started, cancelled; /* lock */
};

struct member {
	struct crew *crew;
	pthread_t id;
	unsigned number;
	uint64_t ns;
	int err;
};

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct crew *c = m->crew;
	bool cancelled;

	pthread_mutex_lock(&c->lock);
	while (!c->started)
		pthread_cond_wait(&c->go, &c->lock);
	cancelled = c->cancelled;
	pthread_mutex_unlock(&c->lock);
	m->err = cancelled ? -ECANCELED : c->fn(c->arg, m->number, &m->ns);
	return NULL;
}

static void release(struct crew *c, bool cancelled)
{
	pthread_mutex_lock(&c->lock);
	c->started = true;
	c->cancelled = cancelled;
	pthread_cond_broadcast(&c->go);
	pthread_mutex_unlock(&c->lock);
}

/* Starts up to n threads, lets them go when all are there, and joins them. */
static int run_threads(struct crew *c, struct member *m, unsigned n)
{
	unsigned started = 0;
	int r = 0;

	while (started < n && r == 0) {
		m[started] = (struct member){.crew = c, .number = started};
		r = -pthread_create(&m[started].id, NULL, member_main, &m[started]);
		if (r == 0)
			started++;
	}
	release(c, r < 0);
	for (unsigned i = 0; i < started; i++) {
		pthread_join(m[i].id, NULL);
		if (r == 0)
			r = m[i].err;
	}
	return r;
}

int crew_run(unsigned n, crew_fn fn, void *arg, uint64_t *ret_ns)
{
	struct crew c = {.fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER, .go = PTHREAD_COND_INITIALIZER};
	struct member *m;
	uint64_t ns = 0;
	int r;

	if (n == 1)
		return fn(arg, 0, ret_ns);
	if (n == 0 || n > CREW_MAX)
		return -EINVAL;
	m = calloc(n, sizeof(*m));
	if (!m)
		return -ENOMEM;
	r = run_threads(&c, m, n);
	for (unsigned i = 0; r == 0 && i < n; i++)
		if (m[i].ns > ns)
			ns = m[i].ns;
	if (r == 0)
		*ret_ns = ns;
	free(m);
	return r;
}
