/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ssd_faulty.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/hash.h"

struct faulty_dev {
	struct faulty *f;
	unsigned id;
	void *io;
	/* f->lock */
	struct ssd_io_req *held[FAULTY_HELD];
	unsigned n;
};

static int faulty_open(void *ctx, const int *fds, unsigned n_fds, unsigned depth, void **ret)
{
	struct faulty *f = ctx;
	struct faulty_dev *d;
	int r;

	pthread_mutex_lock(&f->lock);
	f->opens++;
	r = f->open_error;
	pthread_mutex_unlock(&f->lock);
	if (r)
		return r;
	d = calloc(1, sizeof(*d));
	d->f = f;
	r = ssd_io_uring.open(NULL, fds, n_fds, depth, &d->io);
	if (r < 0) {
		free(d);
		return r;
	}
	pthread_mutex_lock(&f->lock);
	while (f->devs[d->id])
		d->id++;
	f->devs[d->id] = d;
	pthread_mutex_unlock(&f->lock);
	*ret = d;
	return 0;
}

static void faulty_close(void *io)
{
	struct faulty_dev *d = io;

	pthread_mutex_lock(&d->f->lock);
	d->f->devs[d->id] = NULL;
	pthread_mutex_unlock(&d->f->lock);
	ssd_io_uring.close(d->io);
	free(d);
}

static void faulty_submit(void *io, struct ssd_io_req *req)
{
	struct faulty_dev *d = io;

	pthread_mutex_lock(&d->f->lock);
	if (req->write)
		d->f->writes++;
	else
		d->f->reads++;
	pthread_mutex_unlock(&d->f->lock);
	ssd_io_uring.submit(d->io, req);
}

static void faulty_wake(void *io)
{
	ssd_io_uring.wake(((struct faulty_dev *)io)->io);
}

static unsigned what_is(const struct ssd_io_req *req)
{
	return req->write ? FAULTY_WRITE : FAULTY_READ;
}

/* Call with f locked. */
static void spoil(struct faulty_dev *d, struct ssd_io_req *req)
{
	struct faulty *f = d->f;
	unsigned what = what_is(req);

	if (!((f->fail | f->shorten) & what) || (f->only_device >= 0 && f->only_device != (int)d->id))
		return;
	if (f->skip) {
		f->skip--;
		return;
	}
	if (!f->count)
		return;
	f->count--;
	req->res = f->fail & what ? f->error : req->res / 2;
}

/* Call with f locked. */
static bool is_held(const struct faulty_dev *d, const struct ssd_io_req *req)
{
	const struct faulty *f = d->f;

	return (f->hold & what_is(req)) && (f->held_device < 0 || f->held_device == (int)d->id);
}

/* Is it the turn of this one? Call with f locked. */
static bool may_go(const struct faulty_dev *d, const struct ssd_io_req *req)
{
	const struct faulty *f = d->f;

	if (!f->allow || !(f->allowed & what_is(req)))
		return false;
	for (unsigned i = 0; f->last_first && i < d->n; i++)
		if (what_is(d->held[i]) == what_is(req) && d->held[i]->off > req->off)
			return false;
	return true;
}

/* Takes those that may go back out of the held ones. Call with f locked. */
static int let_go(struct faulty_dev *d, struct ssd_io_req **ret, unsigned max)
{
	struct faulty *f = d->f;
	unsigned n = 0, kept = 0;

	for (unsigned i = 0; i < d->n; i++) {
		struct ssd_io_req *req = d->held[i];
		bool stay = is_held(d, req);

		if (stay && may_go(d, req)) {
			f->allow--;
			stay = false;
		}
		f->rng += 0x9e3779b97f4a7c15ull;
		if (!stay && f->lose_order && hash_u64(f->rng) % 8 < f->lose_order)
			stay = true;
		if (stay || n == max)
			d->held[kept++] = req;
		else
			ret[n++] = req;
	}
	d->n = kept;
	return (int)n;
}

static int faulty_wait(void *io, struct ssd_io_req **ret, unsigned max)
{
	struct faulty_dev *d = io;
	struct ssd_io_req *reqs[32];
	int n = ssd_io_uring.wait(d->io, reqs, 32);
	bool again = false;

	if (n < 0)
		return n;
	pthread_mutex_lock(&d->f->lock);
	for (int i = 0; i < n; i++) {
		spoil(d, reqs[i]);
		d->held[d->n++] = reqs[i];
	}
	n = let_go(d, ret, max);
	/* What waits for its turn, rather than for the test, must not wait for another completion. */
	for (unsigned i = 0; i < d->n; i++)
		again = again || !is_held(d, d->held[i]);
	pthread_mutex_unlock(&d->f->lock);
	if (again)
		ssd_io_uring.wake(d->io);
	return n;
}

void faulty_init(struct faulty *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	pthread_mutex_init(&f->lock, NULL);
	f->rng = seed;
	f->only_device = f->held_device = -1;
	f->ops = (struct ssd_io_ops){
	    .ctx = f,
	    .open = faulty_open,
	    .submit = faulty_submit,
	    .wait = faulty_wait,
	    .wake = faulty_wake,
	    .close = faulty_close,
	};
}

/* Call with f locked. */
static void wake_all(struct faulty *f)
{
	for (unsigned i = 0; i < FAULTY_DEVICES; i++)
		if (f->devs[i])
			ssd_io_uring.wake(f->devs[i]->io);
}

void faulty_hold(struct faulty *f, unsigned what)
{
	faulty_hold_device(f, what, -1);
}

void faulty_hold_device(struct faulty *f, unsigned what, int device)
{
	pthread_mutex_lock(&f->lock);
	f->hold = what;
	f->held_device = device;
	wake_all(f);
	pthread_mutex_unlock(&f->lock);
}

static void release(struct faulty *f, unsigned what, bool last_first)
{
	pthread_mutex_lock(&f->lock);
	f->allowed = what;
	f->last_first = last_first;
	f->allow++;
	wake_all(f);
	pthread_mutex_unlock(&f->lock);
}

void faulty_release(struct faulty *f, unsigned what)
{
	release(f, what, false);
}

void faulty_release_last(struct faulty *f, unsigned what)
{
	release(f, what, true);
}

void faulty_fail(struct faulty *f, unsigned what, unsigned skip, unsigned count, int error, int device)
{
	pthread_mutex_lock(&f->lock);
	f->fail = what;
	f->shorten = 0;
	f->skip = skip;
	f->count = count;
	f->error = error;
	f->only_device = device;
	pthread_mutex_unlock(&f->lock);
}

void faulty_shorten(struct faulty *f, unsigned what, unsigned count)
{
	pthread_mutex_lock(&f->lock);
	f->shorten = what;
	f->fail = 0;
	f->skip = 0;
	f->count = count;
	f->only_device = -1;
	pthread_mutex_unlock(&f->lock);
}

static unsigned count_held(struct faulty *f)
{
	unsigned held = 0;

	pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < FAULTY_DEVICES; i++)
		held += f->devs[i] ? f->devs[i]->n : 0;
	pthread_mutex_unlock(&f->lock);
	return held;
}

void faulty_wait_held(struct faulty *f, unsigned n)
{
	while (count_held(f) < n)
		usleep(1000);
}

void faulty_wait_let_go(struct faulty *f, unsigned n)
{
	while (count_held(f) > n)
		usleep(1000);
}

unsigned faulty_reads(struct faulty *f)
{
	unsigned reads;

	pthread_mutex_lock(&f->lock);
	reads = f->reads;
	pthread_mutex_unlock(&f->lock);
	return reads;
}
