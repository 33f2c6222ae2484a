/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth: what a file costs among many others, and whether it costs more among more of them. With --start there is a
 * daemon for each number of files and they take turns, so that all of them see the same noise; in a directory the files
 * grow in number, and the rounds at one number come before those at the next.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/backend.h"
#include "tests/bench/growth_round.h"
#include "tests/bench/output.h"
#include "tests/bench/stop.h"

#define FILE_BYTES 4096u
/* What a started daemon may hold beside the files: no pressure, nothing is evicted that was not asked to be. */
#define SPARE_BYTES (256ull << 20)

/* Where files grow in number: a directory below DIR, or a mount that was started. */
struct site {
	struct bench *b;
	struct backend backend; /* with ops: started */
	struct target own;	/* below DIR */
	struct grown grown;
	const char *control; /* NULL: none */
	char socket[PATH_MAX];
};

static uint64_t file_bytes(const struct bench_options *o)
{
	return o->growth.empty ? 0 : FILE_BYTES;
}

/* As asked for, unless there are too few files for it: each round looks up two for each operation, and none twice. */
static unsigned ops_of(const struct bench_options *o)
{
	const struct argv_sizes *n = &o->growth.objects;
	uint64_t before = 0, most, ops = o->growth.ops;

	for (unsigned i = 0; i < n->n; before = n->v[i++]) {
		most = (n->v[i] - before) / (2 * (o->warmup + o->runs));
		ops = most < ops ? most : ops;
	}
	return (unsigned)ops;
}

static void site_end(struct site *s)
{
	if (s->backend.ops)
		backend_end(&s->backend);
	target_close(&s->own);
}

/* Starts a daemon with room for so many files. */
static int site_start(struct site *s, struct bench *b, uint64_t objects)
{
	struct backend_setup setup = {.dram = objects * (FILE_BYTES + FILE_BYTES / 4) + SPARE_BYTES,
				      .fluxkvd = b->o->fluxkvd};
	struct errmsg e = {{0}};
	int r;

	*s = (struct site){.b = b, .own = TARGET_CLOSED, .control = s->socket};
	r = backend_start(&s->backend, &backend_fluxkv, &setup, &e);
	if (r < 0)
		return fault_set(&b->fault, r, "%s", *e.text ? e.text : strerror(-r));
	if (snprintf(s->socket, sizeof(s->socket), "%.*s/run/bench/control", PATH_MAX - 32, s->backend.work.path) < 0)
		return -EIO;
	return grown_open(&s->grown, b, &s->backend.values, file_bytes(b->o));
}

static int site_open(struct site *s, struct bench *b)
{
	struct errmsg e = {{0}};
	int r;

	*s = (struct site){.b = b, .own = TARGET_CLOSED, .control = b->o->socket};
	r = target_open(&s->own, "dir", b->dir, &e);
	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	if (!s->control && target_is_fluxkv(&s->own))
		r = report_note(b->report, "without --socket nothing is evicted, and the daemon's processor time is "
					   "not known");
	if (s->control && !target_is_fluxkv(&s->own))
		return fault_set(&b->fault, -EINVAL, "--socket: %s is not on a FluxKV mount", b->dir);
	return r < 0 ? r : grown_open(&s->grown, b, &s->own, file_bytes(b->o));
}

/* The sites in turn, round by round, each with its number of files. */
static int run_rounds(struct site *sites, const uint64_t *objects, unsigned n, const char *target)
{
	const struct bench_options *o = sites->b->o;
	struct growth_round round = {.target = target, .ops = ops_of(o)};
	int r = 0;

	for (unsigned i = 0; i < o->warmup + o->runs; i++)
		for (unsigned k = 0; r == 0 && k < n; k++) {
			round.g = &sites[k].grown;
			round.control = sites[k].control;
			round.objects = objects[k];
			round.counts = i >= o->warmup;
			r = stop_wanted() ? -EINTR : growth_round(&round);
		}
	return r;
}

static int run_started(struct bench *b, struct site *sites)
{
	const struct argv_sizes *n = &b->o->growth.objects;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n->n; i++) {
		r = site_start(&sites[i], b, n->v[i]);
		if (r == 0)
			r = grown_fill(&sites[i].grown, n->v[i]);
	}
	return r == 0 ? run_rounds(sites, n->v, n->n, "fluxkv") : r;
}

static int run_directory(struct bench *b, struct site *s)
{
	const struct argv_sizes *n = &b->o->growth.objects;
	int r = site_open(s, b);

	for (unsigned i = 0; r == 0 && i < n->n; i++) {
		r = grown_fill(&s->grown, n->v[i]);
		if (r == 0)
			r = run_rounds(s, &n->v[i], 1, "dir");
	}
	return r;
}

/* *fs: the type of what was measured, NULL: nobody asks. */
static int run(struct bench *b, struct mountinfo *fs)
{
	unsigned n = b->o->start ? b->o->growth.objects.n : 1;
	struct site *sites = calloc(n, sizeof(*sites));
	int r = sites ? bench_buffers(b, FILE_BYTES) : -ENOMEM;

	for (unsigned i = 0; sites && i < n; i++) /* not open yet */
		sites[i].own.dirfd = -1;
	if (r == 0)
		r = report_note(b->report, "each run is the mean of %u operations", ops_of(b->o));
	if (r == 0)
		r = b->o->start ? run_started(b, sites) : run_directory(b, sites);
	if (r == 0 && fs)
		*fs = sites->own.mount;
	for (unsigned i = 0; sites && i < n; i++)
		site_end(&sites[i]);
	free(sites);
	bench_drop_buffers(b);
	return r;
}

int growth_measure(struct bench *b)
{
	return run(b, NULL);
}

int cmd_growth(struct bench *b)
{
	struct mountinfo fs;
	int r = run(b, &fs);

	return r < 0 ? r : output_print(b, "growth", b->dir ? b->dir : "", b->o->start ? "started" : fs.type);
}
