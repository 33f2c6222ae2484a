/* SPDX-License-Identifier: Apache-2.0 */
#include "store/staging.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/list.h"
#include "common/size.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define CLASS_MIN_SHIFT 16u /* 64 KiB: a quarter of it, the finest step, is whole pages */
#define CLASS_MAX_SHIFT 42u
#define CLASSES ((CLASS_MAX_SHIFT - CLASS_MIN_SHIFT) * 4 + 1)
#define LEN_MAX (UINT64_C(1) << CLASS_MAX_SHIFT)
#define HUGE_PAGE (UINT64_C(2) << 20)

/* At the start of a buffer that nobody has. */
struct kept {
	struct list in_class, in_all;
	uint64_t size;
};

struct staging {
	uint64_t bound;

	pthread_mutex_t lock; /* guards all below */
	struct list classes[CLASSES];
	struct list all;     /* the kept ones, the longest unused first */
	struct list waiters; /* in the order they came */
	struct staging_stats st;
};

/* Lives in the frame of who waits; guarded by the lock until it is granted. */
struct waiter {
	struct list link;
	pthread_cond_t cond;
	uint64_t size;
	unsigned class;
	bool granted;
	void *buf;	      /* a kept one; NULL: to be mapped */
	struct list to_unmap; /* what had to go for that, by in_all */
};

/* The class of a length, and its size: (4 to 7) << n, and so on from 64 KiB up. */
static unsigned class_of(uint64_t len, uint64_t *ret_size)
{
	unsigned shift = CLASS_MIN_SHIFT, quarter;
	uint64_t step;

	while (len > UINT64_C(2) << shift)
		shift++;
	step = (UINT64_C(1) << shift) / 4;
	quarter = len <= UINT64_C(1) << shift ? 0 : (unsigned)((len - (UINT64_C(1) << shift) + step - 1) / step);
	*ret_size = (UINT64_C(1) << shift) + quarter * step;
	return (shift - CLASS_MIN_SHIFT) * 4 + quarter;
}

/*
 * The pages come here, in the thread of who asked, and not one by one from the thread that hands the buffer to the
 * device, which others wait for. Where that cannot be said, or huge pages are not to be had, the first use does it.
 */
static void *map(uint64_t size)
{
	uint64_t extra = size < HUGE_PAGE ? 0 : HUGE_PAGE, before;
	char *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (extra) {
		before = align_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
		if (before)
			munmap(p, before);
		p += before;
		munmap(p + size, extra - before);
		madvise(p, size, MADV_HUGEPAGE);
	}
	madvise(p, size, MADV_POPULATE_WRITE);
	return p;
}

static void unmap_all(struct list *l)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, l)
	{
		struct kept *k = container_of(pos, struct kept, in_all);

		munmap(k, k->size);
	}
}

/* Call with s locked. */
static void unkeep(struct staging *s, struct kept *k)
{
	list_del(&k->in_class);
	list_del(&k->in_all);
	s->st.kept -= k->size;
}

/* Call with s locked. */
static bool fits(const struct staging *s, uint64_t size)
{
	return !s->st.out || (s->st.out <= s->bound && size <= s->bound - s->st.out);
}

/* Charges it, and finds a kept buffer or makes the room for a fresh one. Call with s locked. */
static void grant(struct staging *s, struct waiter *w)
{
	struct list *class = &s->classes[w->class];

	w->granted = true;
	if (!list_empty(class)) {
		struct kept *k = list_first(class, struct kept, in_class);

		unkeep(s, k);
		w->buf = k;
	}
	s->st.out += w->size;
	s->st.fresh += !w->buf;
	while (!list_empty(&s->all) && s->st.out + s->st.kept > s->bound) {
		struct kept *k = list_first(&s->all, struct kept, in_all);

		unkeep(s, k);
		list_add(&k->in_all, &w->to_unmap);
	}
}

/* Call with s locked, whenever there is more room or another first. */
static void grant_waiters(struct staging *s)
{
	while (!list_empty(&s->waiters)) {
		struct waiter *w = list_first(&s->waiters, struct waiter, link);

		if (!fits(s, w->size))
			return;
		list_del(&w->link);
		s->st.waiting--;
		grant(s, w);
		pthread_cond_signal(&w->cond);
	}
}

/* Call with s locked; it is not meanwhile. */
static int wait_turn(struct staging *s, struct waiter *w, uint64_t deadline_ns)
{
	struct timespec until = clock_timespec(deadline_ns);
	int r = 0;

	clock_cond_init(&w->cond);
	list_add_tail(&w->link, &s->waiters);
	s->st.waiting++;
	s->st.waits++;
	while (!w->granted && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&w->cond, &s->lock, &until);
	if (!w->granted) {
		list_del(&w->link);
		s->st.waiting--;
		s->st.timeouts++;
		/* Those behind may be smaller. */
		grant_waiters(s);
	}
	pthread_cond_destroy(&w->cond);
	return w->granted ? 0 : -ETIMEDOUT;
}

static int take_turn(struct staging *s, struct waiter *w, uint64_t deadline_ns)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (list_empty(&s->waiters) && fits(s, w->size))
		grant(s, w);
	else
		r = wait_turn(s, w, deadline_ns);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static void give_back(struct staging *s, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	s->st.out -= size;
	grant_waiters(s);
	pthread_mutex_unlock(&s->lock);
}

int staging_get(struct staging *s, uint64_t len, uint64_t deadline_ns, void **ret)
{
	struct waiter w = {0};
	int r;

	if (!len || len > LEN_MAX)
		return -EINVAL;
	w.class = class_of(len, &w.size);
	list_init(&w.to_unmap);
	r = take_turn(s, &w, deadline_ns);
	if (r < 0)
		return r;
	unmap_all(&w.to_unmap);
	if (!w.buf)
		w.buf = map(w.size);
	if (!w.buf) {
		give_back(s, w.size);
		return -ENOMEM;
	}
	*ret = w.buf;
	return 0;
}

void staging_put(struct staging *s, void *buf, uint64_t len)
{
	struct kept *k = buf;
	uint64_t size;
	unsigned class = class_of(len, &size);

	if (size > s->bound) {
		munmap(buf, size);
		give_back(s, size);
		return;
	}
	k->size = size;
	pthread_mutex_lock(&s->lock);
	s->st.out -= size;
	s->st.kept += size;
	list_add(&k->in_class, &s->classes[class]);
	list_add_tail(&k->in_all, &s->all);
	grant_waiters(s);
	pthread_mutex_unlock(&s->lock);
}

void staging_stats(struct staging *s, struct staging_stats *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = s->st;
	pthread_mutex_unlock(&s->lock);
	ret->bound = s->bound;
}

struct staging *staging_new(uint64_t bound)
{
	struct staging *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->bound = bound;
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->all);
	list_init(&s->waiters);
	for (unsigned i = 0; i < CLASSES; i++)
		list_init(&s->classes[i]);
	return s;
}

struct staging *staging_free(struct staging *s)
{
	if (!s)
		return NULL;
	unmap_all(&s->all);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}
