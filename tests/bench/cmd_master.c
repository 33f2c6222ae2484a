/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master: no mount and no daemon. The master's core in this process: what it does in a second on one processor, against
 * a Redis server on the same one; what an object takes of its memory; and what its catalogue costs. All numbers of
 * objects take turns; the catalogues come one after the other.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/master_catalogue.h"
#include "tests/bench/master_site.h"
#include "tests/bench/output.h"
#include "tests/bench/stop.h"

static unsigned ops_of(const struct bench_options *o)
{
	uint64_t least = o->growth.objects.v[0];

	return o->growth.ops < least ? o->growth.ops : (unsigned)least;
}

/* This thread, and the servers that it will start, on one processor. */
static int stay_here(struct bench *b)
{
	cpu_set_t one;
	int cpu = sched_getcpu();

	CPU_ZERO(&one);
	if (cpu >= 0)
		CPU_SET(cpu, &one);
	if (cpu < 0 || sched_setaffinity(0, sizeof(one), &one) < 0)
		return report_note(b->report, "not on one processor: %s", strerror(errno));
	return 0;
}

/* The cores before the servers: each is to grow in memory that nothing else was in. */
static int open_sites(struct bench *b, struct master_site *sites)
{
	const struct argv_sizes *n = &b->o->growth.objects;
	struct errmsg e = {{0}};
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n->n; i++)
		r = master_site_open(&sites[i], b, n->v[i], ops_of(b->o));
	if (r < 0)
		return r;
	if (!backend_here(&backend_redis, NULL, &e))
		return report_note(b->report, "%s", e.text);
	for (unsigned i = 0; r == 0 && i < n->n; i++)
		r = master_site_add_redis(&sites[i]);
	return r;
}

static int run_rounds(struct bench *b, struct master_site *sites)
{
	unsigned warmup = b->o->warmup;
	int r = 0;

	for (unsigned round = 0; round < warmup + b->o->runs; round++)
		for (unsigned i = 0; r == 0 && i < b->o->growth.objects.n; i++)
			r = master_site_round(&sites[i], round >= warmup);
	return r;
}

static int run_requests(struct bench *b)
{
	unsigned n = b->o->growth.objects.n;
	struct master_site *sites = calloc(n, sizeof(*sites));
	int r = sites ? open_sites(b, sites) : -ENOMEM;

	if (r == 0)
		r = run_rounds(b, sites);
	for (unsigned i = 0; sites && i < n; i++)
		master_site_close(&sites[i]);
	free(sites);
	return r;
}

static int run_catalogues(struct bench *b)
{
	const struct argv_sizes *n = &b->o->growth.objects;
	struct target dir = TARGET_CLOSED;
	struct errmsg e = {{0}};
	int r = target_open(&dir, "catalogue", target_temp_dir(), &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	for (unsigned i = 0; r == 0 && i < n->n; i++)
		r = master_catalogue(b, &dir, n->v[i], ops_of(b->o));
	target_close(&dir);
	return r;
}

int master_measure(struct bench *b)
{
	int r = report_note(b->report, "each run is the mean of %u operations", ops_of(b->o));
	cpu_set_t before;
	bool there = sched_getaffinity(0, sizeof(before), &before) == 0;

	if (r == 0)
		r = stay_here(b);
	if (r == 0)
		r = run_requests(b);
	if (r == 0)
		r = run_catalogues(b);
	if (there) /* what is measured next has all processors again */
		sched_setaffinity(0, sizeof(before), &before);
	return r;
}

int cmd_master(struct bench *b)
{
	int r = master_measure(b);

	return r < 0 ? r : output_print(b, "master", "", "in process");
}
