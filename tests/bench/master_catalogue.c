/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/master_catalogue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "master/catalogue.h"
#include "tests/bench/core_driver.h"
#include "tests/bench/cpu_time.h"
#include "tests/bench/stop.h"

/* Puts in one transaction: a busy master's; and while the catalogue is made, when nobody waits. */
#define PUTS_AT_ONCE 64u
#define FILL_AT_ONCE 4096u

struct book {
	struct bench *b;
	struct catalogue *cat;
	struct core_driver core;
	uint64_t objects;
	unsigned ops;
	uint64_t wall, cpu; /* that commit() has taken */
	char path[PATH_MAX + 16];
};

static int failed(const struct book *k, int err, const struct errmsg *e)
{
	return fault_set(&k->b->fault, err, "%s", e->text);
}

/* Gives the catalogue what the core has said since. */
static int commit(struct book *k)
{
	uint64_t wall = clock_ns(), cpu = cpu_time_thread();
	struct errmsg e = {{0}};
	int r = catalogue_apply(k->cat, &k->core.out.writes, &e);

	k->wall += clock_ns() - wall;
	k->cpu += cpu_time_thread() - cpu;
	if (r < 0)
		return failed(k, r, &e);
	if (k->core.out.writes.counter)
		core_committed(k->core.core, k->core.out.writes.counter);
	writes_clear(&k->core.out.writes);
	return stop_wanted() ? -EINTR : 0;
}

static int put_range(struct book *k, uint64_t from, uint64_t to, unsigned at_once)
{
	int r = 0;

	for (uint64_t i = from; r == 0 && i < to; i++) {
		r = core_driver_put(&k->core, i, NULL);
		if (r == 0 && ((i + 1 - from) % at_once == 0 || i + 1 == to))
			r = commit(k);
	}
	return r;
}

static int delete_range(struct book *k, uint64_t from, uint64_t to)
{
	uint64_t id;
	int r = 0;

	for (uint64_t i = from; r == 0 && i < to; i++) {
		r = core_driver_delete(&k->core, i, &id);
		if (r == 0)
			r = core_driver_let_go(&k->core, id);
	}
	return r == 0 ? commit(k) : r;
}

static int add(const struct book *k, const char *op, const char *state, enum report_unit unit, double value)
{
	struct report_key key = {.op = op, .state = state, .objects = k->objects, .unit = unit};

	return report_add(k->b->report, &key, "master", value);
}

/* By both clocks, in seconds for each of n. */
static int add_times(const struct book *k, const char *op, uint64_t wall, uint64_t cpu, double n)
{
	int r = add(k, op, "wall", REPORT_SECONDS, (double)wall / 1e9 / n);

	return r < 0 ? r : add(k, op, "cpu", REPORT_SECONDS, (double)cpu / 1e9 / n);
}

static int measure_puts(struct book *k)
{
	const struct bench_options *o = k->b->o;
	int r = 0;

	for (unsigned round = 0; r == 0 && round < o->warmup + o->runs; round++) {
		k->wall = k->cpu = 0;
		r = put_range(k, k->objects, k->objects + k->ops, PUTS_AT_ONCE);
		if (r == 0 && round >= o->warmup)
			r = add_times(k, "catalogue put", k->wall, k->cpu, k->ops);
		if (r == 0)
			r = delete_range(k, k->objects, k->objects + k->ops);
	}
	return r;
}

static int open_file(struct book *k)
{
	struct errmsg e = {{0}};
	int r = catalogue_open(k->path, &k->cat, &e);

	return r < 0 ? failed(k, r, &e) : 0;
}

static int measure_size(struct book *k)
{
	struct stat st;

	if (stat(k->path, &st) < 0)
		return fault_set(&k->b->fault, -errno, "%s: %s", k->path, strerror(errno));
	return add(k, "catalogue size", "", REPORT_BYTES, (double)st.st_size / (double)k->objects);
}

/* Closes it in between, for what was written ahead to go into the file. */
static int make(struct book *k)
{
	int r = open_file(k);

	if (r == 0)
		r = core_driver_start(&k->core, true);
	if (r == 0)
		r = put_range(k, 0, k->objects, FILL_AT_ONCE);
	k->cat = catalogue_close(k->cat);
	if (r == 0)
		r = measure_size(k);
	if (r == 0)
		r = open_file(k);
	if (r == 0)
		r = measure_puts(k);
	core_driver_end(&k->core);
	k->cat = catalogue_close(k->cat);
	return r;
}

/* As a master does that starts, up to where it takes requests. */
static int load(struct book *k, struct core *core, struct core_out *out)
{
	struct errmsg e = {{0}};
	int r = open_file(k);

	if (r == 0) {
		r = catalogue_load(k->cat, core, true, &e);
		if (r == 0)
			r = core_load_end(core, out);
		if (r == 0)
			r = catalogue_apply(k->cat, &out->writes, &e);
		if (r < 0)
			failed(k, r, &e);
	}
	return r;
}

static int measure_load(struct book *k)
{
	const struct core_config cfg = {.hash_seed = 1};
	struct core_out out = {.n_msgs = 0};
	struct core *core = core_new(&cfg);
	uint64_t wall = clock_ns(), cpu = cpu_time_thread();
	struct core_counts counts;
	int r = core ? load(k, core, &out) : -ENOMEM;

	wall = clock_ns() - wall;
	cpu = cpu_time_thread() - cpu;
	if (r == 0) {
		core_counts(core, &counts);
		r = counts.objects == k->objects
			? add_times(k, "catalogue load", wall, cpu, 1)
			: fault_set(&k->b->fault, -EBADMSG, "the catalogue gave %llu objects, not %llu",
				    (unsigned long long)counts.objects, (unsigned long long)k->objects);
	}
	core_out_clear(&out);
	core_free(core);
	k->cat = catalogue_close(k->cat);
	return r;
}

int master_catalogue(struct bench *b, const struct target *dir, uint64_t objects, unsigned ops)
{
	struct book k = {.b = b, .objects = objects, .ops = ops};
	int r;

	snprintf(k.path, sizeof(k.path), "%s/catalogue", dir->path);
	r = make(&k);
	for (unsigned i = 0; r == 0 && i < b->o->runs; i++)
		r = stop_wanted() ? -EINTR : measure_load(&k);
	unlink(k.path);
	return r;
}
