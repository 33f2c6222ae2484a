/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/master_site.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/cpu_time.h"
#include "tests/bench/resident.h"
#include "tests/bench/stop.h"

/* Far more than its keys take: nothing is evicted. */
#define REDIS_BYTES_PER_KEY 1024u
#define REDIS_SPARE (256ull << 20)
#define STOP_EVERY 1024u

static int make_objects(struct master_site *s)
{
	int r = core_driver_start(&s->core, false);

	for (uint64_t k = 0; r == 0 && k < s->objects; k++)
		r = k % STOP_EVERY == 0 && stop_wanted() ? -EINTR : core_driver_put(&s->core, k, NULL);
	return r;
}

int master_site_open(struct master_site *s, struct bench *b, uint64_t objects, unsigned ops)
{
	struct report_key key = {.op = "memory", .state = "", .objects = objects, .unit = REPORT_BYTES};
	uint64_t before;
	int r;

	*s = (struct master_site){.b = b, .objects = objects, .ops = ops, .names = scatter_over(objects)};
	s->keys = calloc(ops, sizeof(*s->keys));
	s->ids = calloc(ops, sizeof(*s->ids));
	s->allocs = calloc(ops, sizeof(*s->allocs));
	if (!s->keys || !s->ids || !s->allocs)
		return -ENOMEM;
	malloc_trim(0); /* memory that was used before and is still there would be grown into unseen */
	before = resident_bytes();
	r = make_objects(s);
	if (r < 0)
		return r;
	return report_add(b->report, &key, "master",
			  ((double)resident_bytes() - (double)before) / (double)objects - CORE_DRIVER_NAME);
}

void master_site_close(struct master_site *s)
{
	core_driver_end(&s->core);
	s->pipe = redis_pipe_close(s->pipe);
	if (s->redis.ops)
		backend_end(&s->redis);
	free(s->keys);
	free(s->ids);
	free(s->allocs);
	*s = (struct master_site){.b = NULL};
}

static int fill_redis(struct master_site *s)
{
	unsigned n;
	int r = 0;

	for (uint64_t k = 0; r == 0 && k < s->objects; k += n) {
		n = s->objects - k < s->ops ? (unsigned)(s->objects - k) : s->ops;
		for (unsigned i = 0; i < n; i++)
			s->keys[i] = k + i;
		r = stop_wanted() ? -EINTR : redis_pipe_run(s->pipe, REDIS_PIPE_SET, s->keys, n);
	}
	return r;
}

int master_site_add_redis(struct master_site *s)
{
	struct backend_setup setup = {.dram = s->objects * REDIS_BYTES_PER_KEY + REDIS_SPARE};
	struct errmsg e = {{0}};
	int r = backend_start(&s->redis, &backend_redis, &setup, &e);

	if (r == 0)
		r = redis_pipe_open(&s->redis, &s->pipe, &e);
	if (r < 0)
		return fault_set(&s->b->fault, r, "redis: %s", e.text);
	r = cpu_time_clock(s->redis.service.pid, &s->redis_clock);
	if (r == 0)
		r = fill_redis(s);
	return r < 0 ? fault_set(&s->b->fault, r, "redis: %s", strerror(-r)) : 0;
}

/* ---- a round: what is done to each object */

typedef int (*step_fn)(struct master_site *s, unsigned i);

static int step_put(struct master_site *s, unsigned i)
{
	return core_driver_put(&s->core, s->keys[i], NULL);
}

static int step_delete(struct master_site *s, unsigned i)
{
	uint64_t id;
	int r = core_driver_delete(&s->core, s->keys[i], &id);

	return r < 0 ? r : core_driver_let_go(&s->core, id);
}

static int step_lookup(struct master_site *s, unsigned i)
{
	return core_driver_lookup(&s->core, s->keys[i], &s->ids[i]);
}

static int step_get(struct master_site *s, unsigned i)
{
	return core_driver_get(&s->core, s->ids[i], &s->allocs[i]);
}

static int step_forget(struct master_site *s, unsigned i)
{
	return core_driver_forget(&s->core, s->ids[i], s->allocs[i]);
}

static int for_each(struct master_site *s, step_fn step)
{
	int r = stop_wanted() ? -EINTR : 0;

	for (unsigned i = 0; r == 0 && i < s->ops; i++)
		r = step(s, i);
	return r < 0 && r != -EINTR ? fault_set(&s->b->fault, r, "the master's core: %s", strerror(-r)) : r;
}

/* ns of processor time for a round's operations. NULL for op: not to be reported. */
static int add(struct master_site *s, const char *op, const char *target, uint64_t ns)
{
	struct report_key key = {.op = op, .state = "cpu", .objects = s->objects, .unit = REPORT_PER_S};

	return op ? report_add(s->b->report, &key, target, s->ops * 1e9 / (double)(ns ? ns : 1)) : 0;
}

static int measure_core(struct master_site *s, const char *op, step_fn step)
{
	uint64_t ns = cpu_time_thread();
	int r = for_each(s, step);

	ns = cpu_time_thread() - ns;
	return r < 0 ? r : add(s, op, "master", ns);
}

static int measure_redis(struct master_site *s, const char *op, enum redis_pipe_op how)
{
	uint64_t ns;
	int r;

	if (!s->pipe)
		return 0;
	ns = cpu_time_of(s->redis_clock);
	r = redis_pipe_run(s->pipe, how, s->keys, s->ops);
	ns = cpu_time_of(s->redis_clock) - ns;
	if (r < 0)
		return fault_set(&s->b->fault, r, "redis: %s", strerror(-r));
	return add(s, op, "redis", ns);
}

/* New ones, which go again, so that the number stays. */
static int round_put(struct master_site *s, const char *op)
{
	int r;

	for (unsigned i = 0; i < s->ops; i++)
		s->keys[i] = s->objects + i;
	r = measure_core(s, op, step_put);
	if (r == 0)
		r = for_each(s, step_delete);
	if (r == 0)
		r = measure_redis(s, op, REDIS_PIPE_SET);
	return r == 0 ? measure_redis(s, NULL, REDIS_PIPE_DEL) : r;
}

int master_site_round(struct master_site *s, bool counts)
{
	const char *lookup = counts ? "Lookup" : NULL, *get = counts ? "GetStart+GetDone" : NULL;
	int r = round_put(s, counts ? "PutStart+PutDone" : NULL);

	for (unsigned i = 0; i < s->ops; i++)
		s->keys[i] = scatter_next(&s->names);
	if (r == 0)
		r = measure_core(s, lookup, step_lookup);
	if (r == 0)
		r = measure_redis(s, lookup, REDIS_PIPE_GET);
	if (r == 0)
		r = measure_core(s, get, step_get);
	if (r == 0)
		r = for_each(s, step_forget);
	return r == 0 ? measure_redis(s, get, REDIS_PIPE_GET) : r;
}
