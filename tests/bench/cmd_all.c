/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all: every row of what one node is to reach (suite.h). The jobs run one after the other, on a mount that was given or
 * on daemons that are started for them; what cannot be measured says why and is no failure.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "tests/bench/head.h"
#include "tests/bench/measure.h"
#include "tests/bench/output.h"
#include "tests/bench/ssd_place.h"
#include "tests/bench/stop.h"
#include "tests/bench/suite_node.h"
#include "tests/bench/suite_table.h"

#define NO_PASSTHROUGH "passthrough=off"
/* 10 GiB of 256 MiB. */
#define HELD_PASSES 40

struct all {
	struct bench *b;
	struct bench_options o; /* settled */
	struct suite_table table;
};

/* All rows of the job. */
static int none(struct all *a, enum suite_job_id job, bool failed, const char *why)
{
	struct suite_line l;
	int r = 0;

	for (const struct suite_row *row = suite_rows; r == 0 && row->what; row++)
		if (row->job == job) {
			l = suite_line_of(row, &a->o);
			r = suite_table_none(&a->table, &l, failed, why);
		}
	return r;
}

static int find(const struct suite_line *l, const struct report *report, struct report_pair *ret)
{
	switch (l->row->kind) {
	case SUITE_RATIO:
		return report_pair(report, &l->key, l->row->target, ret);
	case SUITE_GROWTH:
		return report_growth(report, &l->key, l->row->target, ret);
	default:
		return report_single(report, &l->key, l->row->target, ret);
	}
}

/* Why a row has nothing to show although its job has been done. */
static const char *lack(const struct suite_line *l, const struct report *report, struct errmsg *e)
{
	const char *note = report_first_note(report);

	if (!strcmp(l->row->target, backend_redis.name)) {
		if (!backend_here(&backend_redis, NULL, e))
			errmsg_prefix(e, -ENOENT, "skipped: no redis-server");
		return e->text;
	}
	return note ? note : "there is nothing to compare with";
}

static int fill(struct all *a, enum suite_job_id job, const struct report *report)
{
	struct errmsg e = {{0}};
	struct report_pair pair;
	struct suite_line l;
	int r = 0;

	for (const struct suite_row *row = suite_rows; r == 0 && row->what; row++) {
		if (row->job != job)
			continue;
		l = suite_line_of(row, &a->o);
		r = find(&l, report, &pair);
		if (r == 0)
			r = suite_table_add(&a->table, &l, &pair);
		else if (r == -ENOENT)
			r = suite_table_none(&a->table, &l, false, lack(&l, report, &e));
	}
	return r;
}

/* Whether refills can be compared with fio; else why not is in e. */
static int lacks_ssd(const struct all *a, const struct suite_node *n, struct errmsg *e)
{
	if (!n->ssd)
		return errmsg_set(e, -ENODATA, "the mount has no SSD tier");
	if (!n->started && !a->o.ssd_dir)
		return errmsg_set(e, -ENODATA, "needs --ssd-dir, a directory on the SSD tier's device");
	if (!service_find("fio"))
		return errmsg_set(e, -ENOENT, "needs fio (Debian, Ubuntu: apt-get install fio)");
	if (!service_find(a->o.fluxkv))
		return errmsg_set(e, -ENOENT, "there is no program %s; see --fluxkv", a->o.fluxkv);
	return ssd_place_check(ssd_place(&a->o), e);
}

/* Where one of our daemons ran, another that does not start is a failure; else the machine lacks something. */
static bool does_start(const struct all *a)
{
	return a->table.measured > 0;
}

static const char *first_why(const struct all *a)
{
	const char *why = json_string_value(json_object_get(json_array_get(a->table.rows, 0), "why"));

	return why ? why : "";
}

/* The same as lacks() for a job that makes what it needs. They come last: where no daemon ran they are not begun. */
static int lacks_own(const struct all *a, enum suite_job_id id, struct errmsg *e)
{
	const struct suite_job *job = &suite_jobs[id];
	const struct argv_sizes n = suite_objects(id, &a->o);
	uint64_t have, want = 0;
	char h[24], w[24];

	if (!does_start(a))
		return errmsg_set(e, -ENODATA, "%s", first_why(a));
	if (job->needs & NEEDS_START && !a->o.start)
		return errmsg_set(e, -ENODATA, "needs --start: it has a daemon for each number of files");
	for (unsigned i = 0; i < n.n; i++)
		want += n.v[i] * job->object_bytes;
	if (suite_node_memory(&have) < 0 || want <= have)
		return 0;
	return errmsg_set(e, -ENOMEM, "needs %s of memory, %s are available; see --%s", size_format(want, w, sizeof(w)),
			  size_format(have, h, sizeof(h)), id == JOB_MASTER ? "master-objects" : "grown-files");
}

/* Why the job cannot be measured on that mount, in e, and a negative errno; or 0. */
static int lacks(const struct all *a, enum suite_job_id id, const struct suite_node *n, struct errmsg *e)
{
	const struct suite_job *job = &suite_jobs[id];

	if (job->mount == SUITE_NONE)
		return lacks_own(a, id, e);
	if (!n->dir || (job->needs & NEEDS_PASSTHROUGH && !n->passthrough))
		return errmsg_set(e, -ENODATA, "%s", n->why.text);
	if (job->needs & NEEDS_BEFORE && (!a->o.before || !a->o.start))
		return errmsg_set(e, -ENODATA, "needs --before, an earlier fluxkvd%s",
				  a->o.start ? "" : ", and --start");
	if (job->needs & NEEDS_AGAINST && !a->o.against)
		return errmsg_set(e, -ENODATA, "needs --against, where the bare FUSE example is mounted");
	if (job->needs & NEEDS_SSD_OFF && !n->ssd)
		return errmsg_set(e, -ENODATA, "the mount has no SSD tier");
	if (job->needs & NEEDS_SSD_OFF && !n->started && !a->o.ssd_compare)
		return errmsg_set(e, -ENODATA, "needs --ssd-compare, a directory on a mount without an SSD tier");
	return job->needs & NEEDS_SSD ? lacks_ssd(a, n, e) : 0;
}

static struct bench_options options_of(const struct all *a, const struct suite_job *job, const struct suite_node *n,
				       const char *other)
{
	const struct bench_options *o = &a->o;
	struct bench_options ret;

	options_default(&ret, job->command);
	ret.total = job->command == CMD_REFILL ? 2 * o->total : o->total;
	ret.runs = o->runs;
	ret.warmup = o->warmup;
	ret.seed = o->seed;
	ret.files = o->files;
	ret.verify = o->verify;
	ret.timeout = o->timeout;
	ret.touch = TOUCH_ALL;
	ret.baseline = job->baseline;
	ret.by = job->by;
	ret.ssd_dir = ssd_place(o);
	ret.growth.objects = suite_objects(job - suite_jobs, o);
	ret.start = job->mount == SUITE_NONE;
	ret.fluxkvd = o->fluxkvd;
	ret.ssd_compare = job->needs & NEEDS_SSD_OFF ? other : NULL;
	ret.against = job->needs & NEEDS_BEFORE ? other : job->needs & NEEDS_AGAINST ? o->against : NULL;
	ret.fluxkv = o->fluxkv;
	ret.socket = n->started ? n->socket : o->socket;
	if (job == &suite_jobs[JOB_HELD]) {
		ret.passes = HELD_PASSES;
		ret.sizes = (struct argv_sizes){.v = {16 << 20}, .n = 1};
	}
	return ret;
}

/* What went wrong with a job, for its rows: a daemon of ours that has ended explains the rest. */
static const char *trouble(struct bench *b, int err, const struct suite_node *n, struct errmsg *e)
{
	if (n->started && service_died(&n->backend.service, e))
		return e->text;
	return b->fault.set ? b->fault.e.text : strerror(-err);
}

/* other: the other directory of a job that needs one. */
static int measure(struct all *a, enum suite_job_id id, const struct suite_node *n, const char *other)
{
	const struct suite_job *job = &suite_jobs[id];
	const struct bench_options o = options_of(a, job, n, other);
	struct bench b = {.o = &o, .dir = n->dir, .fault = {.lock = PTHREAD_MUTEX_INITIALIZER}};
	struct errmsg e = {{0}};
	int r;

	b.report = report_new();
	if (!b.report)
		return -ENOMEM;
	r = job->mount == SUITE_NONE ? job->run(&b) : bench_measure(&b, job->command, job->run);
	if (stop_wanted())
		r = -EINTR;
	else if (r < 0)
		r = none(a, id, true, trouble(&b, r, n, &e));
	else
		r = fill(a, id, b.report);
	if (r == 0)
		r = report_copy_notes(a->b->report, job->name, b.report);
	report_free(b.report);
	return r;
}

/* An earlier one may not know that there is passthrough. */
static int start_before(const struct all *a, struct suite_node *n)
{
	struct bench_options o = a->o;
	int r;

	o.fluxkvd = a->o.before;
	r = suite_node_start(n, &o, o.total, true, NO_PASSTHROUGH);
	if (r == 0 || stop_wanted())
		return r;
	suite_node_end(n);
	return suite_node_start(n, &o, o.total, true, NULL);
}

/* With another daemon, which is started now. */
static int measure_beside(struct all *a, enum suite_job_id id, const struct suite_node *n)
{
	bool before = suite_jobs[id].needs & NEEDS_BEFORE;
	struct suite_node other = {0};
	int r = before ? start_before(a, &other) : suite_node_start(&other, &a->o, a->o.total, false, NULL);

	if (stop_wanted())
		r = -EINTR;
	else if (r < 0)
		r = none(a, id, does_start(a), other.why.text);
	else
		r = measure(a, id, n, other.dir);
	suite_node_end(&other);
	return r;
}

static int run_jobs(struct all *a, enum suite_mount mount, const struct suite_node *n)
{
	struct errmsg e = {{0}};
	int r = 0;

	for (enum suite_job_id id = 0; r == 0 && id < SUITE_JOBS; id++) {
		if (suite_jobs[id].mount != mount)
			continue;
		if (stop_wanted())
			r = -EINTR;
		else if (lacks(a, id, n, &e) < 0)
			r = none(a, id, !n->dir && n->started && does_start(a), e.text);
		else if (n->started && suite_jobs[id].needs & (NEEDS_SSD_OFF | NEEDS_BEFORE))
			r = measure_beside(a, id, n);
		else
			r = measure(a, id, n, a->o.ssd_compare);
		if (r == 0) /* it may be minutes until the next row */
			r = output_flush(&a->b->fault);
	}
	return r;
}

/* One daemon after the other; those that do not start have rows that say why. */
static int run_started(struct all *a)
{
	static const char *const options[SUITE_MOUNTS] = {[SUITE_COPY] = NO_PASSTHROUGH};
	struct suite_node n;
	int r = 0;

	for (enum suite_mount mount = 0; r == 0 && mount < SUITE_MOUNTS; mount++) {
		if (suite_node_start(&n, &a->o, a->o.total, true, options[mount]) < 0)
			n.dir = NULL;
		r = run_jobs(a, mount, &n);
		suite_node_end(&n);
	}
	return r;
}

/* The mount that was given is one of the two. */
static int run_given(struct all *a, struct suite_node *n)
{
	int r = run_jobs(a, SUITE_AUTO, n);

	if (n->passthrough) {
		n->dir = NULL;
		errmsg_set(&n->why, -ENODATA, "needs a mount with passthrough=off, or --start");
	}
	return r == 0 ? run_jobs(a, SUITE_COPY, n) : r;
}

/* The bytes of a run: as asked, and never more than there is room for. */
static int settle(struct all *a, uint64_t room)
{
	char want[24], have[24];

	options_settle(&a->o);
	size_format(room, have, sizeof(have));
	size_format(a->b->o->total > SUITE_NODE_LEAST ? a->o.total : SUITE_NODE_LEAST, want, sizeof(want));
	if (room < SUITE_NODE_LEAST || (a->b->o->total && room < a->o.total))
		return fault_set(&a->b->fault, -ENOSPC, "there is room for runs of %s, not of %s: too little %s", have,
				 want, a->b->o->start ? "free memory, or space in --ssd-dir" : "in the mount's tiers");
	if (room >= a->o.total)
		return 0;
	a->o.total = room;
	return report_note(a->b->report, "a run has %s, for want of room", have);
}

static int print_json(struct all *a)
{
	json_t *root = head_json(&a->o, "all", a->b->dir ? a->b->dir : "", a->b->dir ? "fuse.fluxkv" : "started");
	json_t *how = json_pack("{s:i, s:I, s:i, s:O}", "warmup", (int)a->o.warmup, "total", (json_int_t)a->o.total,
				"files", (int)a->o.files, "rows", a->table.rows);
	int r = root && how && json_object_update(root, how) == 0 ? report_json(a->b->report, root) : -ENOMEM;

	if (r == 0)
		r = output_json(root, &a->b->fault);
	json_decref(how);
	json_decref(root);
	return r;
}

static int finish(struct all *a)
{
	const struct suite_table *t = &a->table;
	int r = 0;

	if (a->b->o->json)
		r = print_json(a);
	else
		report_print(a->b->report, stdout);
	suite_table_foot(t);
	if (r == 0)
		r = output_flush(&a->b->fault);
	if (r == 0 && t->failed)
		return fault_set(&a->b->fault, -EIO, "%u row%s failed", t->failed, t->failed > 1 ? "s have" : " has");
	if (r == 0 && !t->measured)
		return fault_set(&a->b->fault, -ENODATA, "nothing was measured: %s", first_why(a));
	return r;
}

static int start(struct all *a, struct suite_node *given)
{
	struct bench *b = a->b;
	struct errmsg e = {{0}};
	uint64_t room;
	int r;

	if (b->o->start) {
		r = suite_node_room(b->o, &room, &e);
	} else {
		r = suite_node_take(given, b->dir);
		room = given->room;
		e = given->why;
	}
	return r < 0 ? fault_set(&b->fault, r, "%s", e.text) : settle(a, room);
}

int cmd_all(struct bench *b)
{
	const struct suite_node nothing = {0};
	struct suite_node given = {0};
	struct all a = {.b = b, .o = *b->o, .table = {.out = b->o->json ? NULL : stdout, .rows = json_array()}};
	int r = a.table.rows ? start(&a, &given) : -ENOMEM;

	if (r == 0) {
		suite_table_head(&a.table);
		r = b->o->start ? run_started(&a) : run_given(&a, &given);
	}
	if (r == 0)
		r = run_jobs(&a, SUITE_NONE, &nothing);
	if (r == 0)
		r = finish(&a);
	json_decref(a.table.rows);
	return r;
}
