/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/contenders.h"

#include <errno.h>

#include "tests/bench/status.h"

/* Whether --target named it; none named: with --start all take part, else the directory alone. */
static bool wanted(const struct bench_options *o, unsigned i)
{
	return o->pressure.targets ? o->pressure.targets >> i & 1 : o->start;
}

static void add(struct contenders *c, const struct contender *one)
{
	if (c->n < CONTENDERS_MAX)
		c->v[c->n++] = *one;
}

/* A directory that was given: what it is on, and how much that may hold. */
static int add_directory(struct bench *b, const char *dir, struct contenders *ret)
{
	struct contender one = {.ops = &backend_dir, .dir = dir, .with_ssd = true};
	struct target t = TARGET_CLOSED;
	struct errmsg e = {{0}};
	struct status s;
	int r = target_open(&t, "dir", dir, &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	if (target_is_fluxkv(&t)) {
		one.ops = &backend_fluxkv;
		r = status_read(&t, &s);
	}
	target_close(&t);
	if (r < 0)
		return fault_set(&b->fault, r, "%s: cannot read .fluxkv/metrics of its mount", dir);
	if (one.ops == &backend_fluxkv) {
		one.dram = s.dram_capacity;
		one.ssd = s.ssd_capacity;
		one.with_ssd = s.ssd_capacity > 0;
	}
	add(ret, &one);
	return 0;
}

/* The limits of what is started: as asked, else those of the mount that was given, else a share of the dataset. */
static struct contender limits(const struct bench_options *o, const struct contenders *given)
{
	const struct pressure_options *p = &o->pressure;
	struct contender l = {.dram = p->dram, .ssd = p->ssd};

	for (unsigned i = 0; i < given->n; i++) {
		if (!l.dram)
			l.dram = given->v[i].dram;
		if (!l.ssd)
			l.ssd = given->v[i].ssd;
	}
	if (!l.dram)
		l.dram = p->dataset / 5 * 4;
	if (!l.ssd)
		l.ssd = p->dataset / 5 * 32;
	return l;
}

static void add_started(struct bench *b, const struct backend_ops *ops, const struct contender *limit,
			struct contenders *ret)
{
	const struct pressure_options *p = &b->o->pressure;
	struct contender one = {.ops = ops, .dram = limit->dram};
	struct errmsg e = {{0}};

	if (!backend_here(ops, b->o->fluxkvd, &e)) {
		report_note(b->report, "%s", e.text);
		return;
	}
	if (p->tiers != TIERS_SSD && !ops->only_ssd)
		add(ret, &one);
	one.ssd = limit->ssd;
	one.with_ssd = true;
	if (p->tiers != TIERS_DRAM && !ops->no_ssd)
		add(ret, &one);
}

int contenders_choose(struct bench *b, struct contenders *ret)
{
	struct contenders c = {.n = 0};
	struct contender limit;
	int r = b->dir ? add_directory(b, b->dir, &c) : 0;

	if (r == 0 && b->o->ssd_compare)
		r = add_directory(b, b->o->ssd_compare, &c);
	if (r < 0)
		return r;
	limit = limits(b->o, &c);
	for (unsigned i = 0; backend_list[i]; i++) /* a directory that was given stands for FluxKV */
		if (wanted(b->o, i) && !(b->dir && backend_list[i] == &backend_fluxkv))
			add_started(b, backend_list[i], &limit, &c);
	if (!c.n)
		return fault_set(&b->fault, -ENOENT, "nothing to measure: see the notes, --target and --tiers");
	*ret = c;
	return 0;
}
