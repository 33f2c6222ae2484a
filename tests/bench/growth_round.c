/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/growth_round.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/cpu_time.h"
#include "tests/bench/evictor.h"
#include "tests/bench/stop.h"

/* A round under way. */
struct run {
	const struct growth_round *what;
	struct grown *g;
	struct value_io io;
	struct evictor ev;
	bool has_cpu;	/* the processor time of all who work is known */
	uint64_t *nums; /* of the files that were stat'ed */
};

/* Operation i of a kind. 0 or a negative errno with the reason in the fault. */
typedef int (*step_fn)(struct run *r, unsigned i);

static int oops(const struct run *r, const char *what, const char *name)
{
	return fault_set(r->io.f, -errno, "%s of %s/%s: %s", what, r->g->dir->path, name, strerror(errno));
}

static int step_put(struct run *r, unsigned i)
{
	char name[GROWN_NAME_LEN];
	struct value v = grown_value(r->g, r->g->made, name);
	uint64_t ns;
	int err = value_put(&r->io, &v, &ns);

	r->g->made += err == 0;
	return err;
}

static int step_read(struct run *r, unsigned i)
{
	char name[GROWN_NAME_LEN];
	struct value v = grown_value(r->g, grown_unseen(r->g), name);
	uint64_t ns;

	return value_read(&r->io, &v, &ns);
}

static int stat_number(struct run *r, uint64_t number)
{
	char name[GROWN_NAME_LEN];
	struct stat st;

	grown_name(r->g, number, name);
	if (fstatat(r->g->dir->dirfd, name, &st, 0) < 0)
		return oops(r, "stat", name);
	if ((uint64_t)st.st_size != r->g->size)
		return fault_set(r->io.f, -EBADMSG, "%s/%s has a wrong size", r->g->dir->path, name);
	return 0;
}

static int step_stat(struct run *r, unsigned i)
{
	r->nums[i] = grown_unseen(r->g);
	return stat_number(r, r->nums[i]);
}

static int step_stat_again(struct run *r, unsigned i)
{
	return stat_number(r, r->nums[i]);
}

static int step_remove(struct run *r, unsigned i)
{
	char name[GROWN_NAME_LEN];

	grown_name(r->g, r->nums[i], name);
	if (unlinkat(r->g->dir->dirfd, name, 0) < 0)
		return oops(r, "unlink", name);
	r->g->gone++;
	return 0;
}

/* What is on its way to the SSD just now is busy for a moment. */
static int step_evict(struct run *r, unsigned i)
{
	const struct timespec pause = {.tv_nsec = NS_PER_MS};
	uint64_t deadline = 0;
	char name[GROWN_NAME_LEN];
	struct errmsg e = {{0}};
	int err;

	grown_name(r->g, r->nums[i], name);
	while ((err = evictor_evict(&r->ev, name, &e)) == -EBUSY) {
		if (!deadline)
			deadline = clock_ns() + r->g->b->o->timeout * NS_PER_SEC;
		if (stop_wanted())
			return -EINTR;
		if (clock_ns() > deadline)
			break;
		nanosleep(&pause, NULL);
	}
	r->g->gone += err == 0;
	return err < 0 ? fault_set(r->io.f, err, "cannot evict %s: %s", name, e.text) : 0;
}

/* Of this thread, and of the daemon's process. */
static uint64_t cpu_ns(const struct run *r)
{
	return cpu_time_thread() + (r->ev.stream ? cpu_time_of(r->ev.cpu) : 0);
}

static int add(const struct run *r, const char *op, const char *clock, uint64_t ns)
{
	const struct growth_round *w = r->what;
	struct report_key key = {
	    .op = op, .state = clock, .size = r->g->size, .objects = w->objects, .unit = REPORT_SECONDS};

	return report_add(r->g->b->report, &key, w->target, (double)ns / 1e9 / w->ops);
}

static int measure(struct run *r, const char *op, step_fn step)
{
	uint64_t cpu = cpu_ns(r), wall = clock_ns();
	int err = 0;

	for (unsigned i = 0; err == 0 && i < r->what->ops; i++)
		err = stop_wanted() ? -EINTR : step(r, i);
	wall = clock_ns() - wall;
	cpu = cpu_ns(r) - cpu;
	if (err == 0 && r->what->counts)
		err = add(r, op, "wall", wall);
	if (err == 0 && r->what->counts && r->has_cpu)
		err = add(r, op, "cpu", cpu);
	return err;
}

static int open_evictor(struct run *r)
{
	struct errmsg e = {{0}};
	int err = evictor_open(&r->ev, r->what->control, r->g->dir, &e);

	return err < 0 ? fault_set(r->io.f, err, "%s", e.text) : 0;
}

static int measure_all(struct run *r)
{
	int err = measure(r, "put", step_put);

	if (err == 0)
		err = measure(r, "open+read", step_read);
	if (err == 0)
		err = measure(r, "stat", step_stat);
	if (err == 0)
		err = measure(r, "stat again", step_stat_again);
	if (err == 0)
		err = r->what->control ? measure(r, "evict", step_evict) : measure(r, "unlink", step_remove);
	return err;
}

int growth_round(const struct growth_round *round)
{
	struct bench *b = round->g->b;
	struct run r = {.what = round,
			.g = round->g,
			.io = {.buf = b->bufs[0], .piece = b->buf_len, .seed = b->o->seed, .f = &b->fault},
			.has_cpu = round->control || !target_is_fluxkv(round->g->dir)};
	int err;

	r.nums = calloc(round->ops, sizeof(*r.nums));
	if (!r.nums)
		return -ENOMEM;
	err = round->control ? open_evictor(&r) : 0;
	if (err == 0)
		err = measure_all(&r);
	evictor_close(&r.ev);
	free(r.nums);
	return err;
}
