/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/draw.h"
#include "tests/bench/ident.h"
#include "tests/bench/procs.h"
#include "tests/bench/reader.h"
#include "tests/bench/stop.h"

enum gate {
	GATE_WARMUP,
	GATE_WINDOW,
};

/* What a child works with. */
struct job {
	const struct load *l;
	struct procs *p;
	unsigned process;
	struct session *sessions[CREW_MAX];
};

static int tell(const struct load *l, int r, const char *what)
{
	arena_tell(l->arena, "%s: %s: %s", l->backend->ops->name, what, strerror(-r));
	return r;
}

/* The pause after a put: what is put never comes faster than the pace. */
static void pause_for(uint64_t bytes, uint64_t pace)
{
	struct timespec t;

	if (!pace)
		return;
	t = clock_timespec((uint64_t)((double)bytes * (double)NS_PER_SEC / (double)pace));
	while (nanosleep(&t, &t) < 0 && errno == EINTR && !stop_wanted())
		continue;
}

static int put_all(const struct load *l, struct session *s, char *buf, const unsigned *order)
{
	int r;

	for (unsigned i = 0; i < l->n_keys; i++) {
		if (stop_wanted())
			return -EINTR;
		r = reader_put(l, s, order[i], buf, &l->arena->tallies[0]);
		if (r < 0)
			return tell(l, r, "the bootstrap cannot put a value");
		pause_for(l->payload, l->pace);
	}
	return 0;
}

/* The child that puts all values. */
static int bootstrap(struct procs *p, unsigned process, void *arg)
{
	const struct load *l = arg;
	unsigned *order = calloc(l->n_keys, sizeof(*order));
	char *buf = malloc(l->payload);
	struct session *s = NULL;
	struct errmsg e = {{0}};
	int r = order && buf ? 0 : -ENOMEM;

	if (r == 0)
		r = l->backend->ops->open(l->backend, &s, &e);
	if (r == 0 && l->backend->cgroup.dir[0])
		r = cgroup_enter(&l->backend->cgroup);
	if (r < 0) {
		tell(l, r, *e.text ? e.text : "no session for the bootstrap");
	} else {
		draw_shuffle(l->seed, order, l->n_keys);
		r = put_all(l, s, buf, order);
		l->backend->ops->close(s);
	}
	free(buf);
	free(order);
	return r;
}

static int run_bootstrap(const struct load *l, struct load_result *ret)
{
	uint64_t start = clock_ns();
	struct procs p;
	/* The bootstrap's child forgets the const that it keeps. */
	int r = procs_start(&p, 1, l->backend->service.fd, bootstrap, (void *)(uintptr_t)l);

	if (r < 0)
		return tell(l, r, "cannot start a process");
	r = procs_join(&p);
	procs_end(&p);
	ret->bootstrap_s = (double)(clock_ns() - start) / (double)NS_PER_SEC;
	ret->bootstrap_refused = l->arena->tallies[0].refused;
	memset(&l->arena->tallies[0], 0, sizeof(l->arena->tallies[0]));
	return r;
}

/* What was counted in the warm-up is thrown away, but for what must never happen. */
static void forget_warmup(struct arena_tally *t)
{
	uint64_t errors = t->errors;

	memset(t, 0, sizeof(*t));
	t->errors = errors;
}

/* One thread, through both phases. */
static int work(void *arg, unsigned thread, uint64_t *ret_ns)
{
	struct job *j = arg;
	unsigned worker = j->process * j->l->threads + thread;
	struct reader r;
	int err = reader_init(&r, j->l, j->sessions[thread], worker);

	if (err < 0) {
		tell(j->l, err, "no memory for a worker");
		_exit(1); /* the others wait at the gate for this one, and so does the parent */
	}
	err = procs_pass(j->p, GATE_WARMUP);
	if (err == 0) {
		reader_run(&r);
		forget_warmup(r.tally);
		err = procs_pass(j->p, GATE_WINDOW);
	}
	if (err == 0)
		reader_run(&r);
	reader_free(&r);
	*ret_ns = 0;
	return stop_wanted() ? -EINTR : err;
}

static int open_sessions(struct job *j, struct errmsg *e)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < j->l->threads; i++)
		r = j->l->backend->ops->open(j->l->backend, &j->sessions[i], e);
	return r;
}

/* A child with its threads. Their memory is there before it enters the group, which so limits page cache alone. */
static int run_process(struct procs *p, unsigned process, void *arg)
{
	struct job j = {.l = arg, .p = p, .process = process};
	struct errmsg e = {{0}};
	uint64_t ns;
	int r = open_sessions(&j, &e);

	if (r == 0 && j.l->backend->cgroup.dir[0])
		r = cgroup_enter(&j.l->backend->cgroup);
	if (r == 0)
		r = crew_run(j.l->threads, work, &j, &ns);
	if (r < 0 && r != -EINTR)
		tell(j.l, r, *e.text ? e.text : "a process of workers failed");
	for (unsigned i = 0; i < j.l->threads; i++)
		j.l->backend->ops->close(j.sessions[i]);
	return r;
}

static int read_counters(const struct load *l, struct hits *ret)
{
	int r = l->backend->ops->count ? l->backend->ops->count(l->backend, ret) : 0;

	return r < 0 ? tell(l, r, "cannot read the target's counters") : 0;
}

/* Between the phases, when nobody reads: what was missed in the warm-up does not count. */
static void forget_misses(const struct load *l)
{
	for (unsigned i = 0; i < l->n_keys; i++)
		atomic_store(&l->arena->keys[i].missed, false);
}

/* Sets when the phase ends, then lets the workers go. */
static void begin(const struct load *l, struct procs *p, enum gate gate, uint64_t ns)
{
	atomic_store(&l->arena->until, clock_ns() + ns);
	procs_open(p, gate);
}

static int run_phases(const struct load *l, struct procs *p, struct load_result *ret)
{
	unsigned n = l->processes * l->threads;
	struct hits before = {0}, after = {0};
	uint64_t from = 0, last = 0;
	int r = procs_await(p, n);

	if (r == 0) {
		begin(l, p, GATE_WARMUP, l->warmup_ns);
		r = procs_await(p, n);
	}
	if (r == 0)
		r = read_counters(l, &before); /* nobody reads now, nor when they have ended */
	if (r == 0) {
		forget_misses(l);
		from = clock_ns();
		begin(l, p, GATE_WINDOW, l->window_ns);
		r = procs_join(p);
	}
	if (r == 0)
		r = read_counters(l, &after);
	for (unsigned i = 0; i < n; i++)
		last = l->arena->tallies[i].ended > last ? l->arena->tallies[i].ended : last;
	ret->window_s = (double)(last - from) / (double)NS_PER_SEC;
	ret->counted = (struct hits){after.dram - before.dram, after.ssd - before.ssd, after.unknown - before.unknown};
	return r;
}

static int run_workers(const struct load *l, struct load_result *ret)
{
	struct procs p;
	int r = procs_start(&p, l->processes, l->backend->service.fd, run_process, (void *)(uintptr_t)l);

	if (r < 0)
		return tell(l, r, "cannot start a process");
	r = run_phases(l, &p, ret);
	procs_end(&p);
	return r;
}

int load_run(const struct load *l, struct load_result *ret, struct errmsg *e)
{
	struct load_result res = {0};
	int r = run_bootstrap(l, &res);

	if (r == 0)
		r = run_workers(l, &res);
	if (r == 0)
		*ret = res;
	else if (r != -ESRCH || !service_died(&l->backend->service, e))
		errmsg_set(e, r, "%s",
			   l->arena->text[0] ? l->arena->text
			   : r == -ECHILD    ? "a process of workers was killed"
					     : strerror(-r));
	return r;
}
