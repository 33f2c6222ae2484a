/* SPDX-License-Identifier: Apache-2.0 */
/* trace: replays a request trace, from an empty directory each time, and says what hit and how long things took. */
#include "tests/bench/commands.h"

#include <errno.h>

#include "common/clock.h"
#include "tests/bench/replay.h"
#include "tests/bench/status.h"

static int add(struct bench *b, const struct target *t, const char *op, const char *state, enum report_unit unit,
	       double value)
{
	struct report_key key = {.op = op, .state = state, .unit = unit, .size = b->o->block_bytes};

	if (unit == REPORT_COUNT)
		key.size = 0;
	return report_add(b->report, &key, t->name, value);
}

static int add_latencies(struct bench *b, const struct target *t, const char *op, const struct samples *s)
{
	static const char *const states[] = {"p50", "p95", "p99", "max"};
	static const double q[] = {0.5, 0.95, 0.99, 1};
	double v[4];
	int r = samples_percentiles(s, q, 4, v);

	for (unsigned i = 0; s->n && r == 0 && i < 4; i++)
		r = add(b, t, op, states[i], REPORT_SECONDS, v[i]);
	return r;
}

static double sum(const struct samples *s)
{
	double v = 0;

	for (size_t i = 0; i < s->n; i++)
		v += s->v[i];
	return v;
}

/* Bytes of the operations by the time that the threads spent in them. */
static int add_throughput(struct bench *b, const struct target *t, const char *op, const struct samples *s)
{
	double bytes = (double)s->n * (double)b->o->block_bytes * b->o->threads;

	return s->n ? add(b, t, op, "", REPORT_BYTES_PER_S, bytes / sum(s)) : 0;
}

static int add_counts(struct bench *b, const struct target *t, const struct tally *y)
{
	int r = add(b, t, "hits", "", REPORT_COUNT, (double)y->hits);

	if (r == 0)
		r = add(b, t, "misses", "", REPORT_COUNT, (double)y->misses);
	if (r == 0)
		r = add(b, t, "stores", "", REPORT_COUNT, (double)y->stores);
	if (r == 0)
		r = add(b, t, "no space", "", REPORT_COUNT, (double)y->no_space);
	return r;
}

static int add_tally(struct bench *b, const struct target *t, const struct trace *trace, const struct tally *y,
		     uint64_t ns)
{
	int r = add_counts(b, t, y);

	if (r == 0)
		r = add(b, t, "requests", "", REPORT_PER_S, (double)trace->n_requests * NS_PER_SEC / (double)ns);
	if (r == 0)
		r = add_throughput(b, t, "hit read", &y->hit);
	if (r == 0)
		r = add_throughput(b, t, "store", &y->store);
	if (r == 0)
		r = add_latencies(b, t, "hit read", &y->hit);
	if (r == 0)
		r = add_latencies(b, t, "miss", &y->miss);
	if (r == 0)
		r = add_latencies(b, t, "store", &y->store);
	return r;
}

/* Where the bytes of the hits were, if the file system can tell. */
static int add_tiers(struct bench *b, const struct target *t, const struct status *before)
{
	struct status now, d;
	int r = status_read(t, &now);

	if (r < 0)
		return r;
	d = status_since(&now, before);
	r = add(b, t, "hits", "dram", REPORT_COUNT, (double)d.hits_dram);
	return r < 0 ? r : add(b, t, "hits", "ssd", REPORT_COUNT, (double)d.hits_ssd);
}

static int run_target(struct bench *b, struct target *t, const struct trace *trace)
{
	struct status before = {0};
	struct tally y = {0};
	uint64_t ns;
	int tiers = status_read(t, &before), r = replay(b, trace, t, &y, &ns);

	if (r == 0)
		r = add_tally(b, t, trace, &y, ns);
	if (r == 0 && tiers == 0)
		r = add_tiers(b, t, &before);
	tally_free(&y);
	if (r == 0)
		r = target_empty(t);
	return r < 0 && r != -EINTR ? fault_set(&b->fault, r, "the replay on %s failed", t->name) : r;
}

/* What the trace allows at best stands beside what was reached. */
static int note_bound(struct bench *b, const struct trace *trace)
{
	struct trace_bound best;
	int r = trace_bound(trace, &best);

	if (r < 0)
		return r;
	return report_note(b->report,
			   "%zu requests, %zu block references, %zu distinct; with room for all of them one thread "
			   "gets %zu hits (%.1f %%) and stores %zu",
			   trace->n_requests, trace->n_ids, best.distinct, best.hits,
			   100.0 * (double)best.hits / (double)trace->n_ids, best.stores);
}

int cmd_trace(struct bench *b)
{
	struct trace trace = {0};
	struct errmsg e = {{0}};
	int r = trace_load(b->trace_file, b->o->requests, &trace, &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	r = note_bound(b, &trace);
	for (unsigned run = 0; run < b->o->runs; run++)
		for (unsigned t = 0; r == 0 && t < b->n_targets; t++)
			r = run_target(b, &b->targets[t], &trace);
	trace_free(&trace);
	return r;
}
