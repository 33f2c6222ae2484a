/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure: more values than DRAM holds, put in an order that knows nothing of their popularity, then read by the law
 * of Zipf. Every cell begins with an empty store; the contenders take turns.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/bench/contenders.h"
#include "tests/bench/head.h"
#include "tests/bench/kept.h"
#include "tests/bench/output.h"
#include "tests/bench/ssd_place.h"
#include "tests/bench/stop.h"

struct pressure {
	struct bench *b;
	struct contenders on;
	struct kept kept;
	json_t *cells;
	unsigned bad;	   /* cells with errors, or hits of unknown source */
	unsigned measured; /* now, or tried */
	unsigned left;	   /* of what was asked for */
};

/* Prints a note at once, and keeps it for the JSON. */
static int note(struct pressure *p, const char *text)
{
	int r = report_note(p->b->report, "%s", text);

	if (r < 0 || p->b->o->json)
		return r;
	printf("note: %s\n", text);
	return output_flush(&p->b->fault);
}

/* An SSD tier in memory is none: said once, before anything is measured. */
static int look_at_ssd_dir(struct pressure *p)
{
	struct errmsg e = {{0}};
	bool used = false;
	int r;

	for (unsigned i = 0; i < p->on.n; i++)
		used = used || (!p->on.v[i].dir && p->on.v[i].with_ssd);
	if (!used)
		return 0;
	r = ssd_place_check(ssd_place(p->b->o), &e);
	if (r == -ENOTBLK)
		return report_note(p->b->report, "%s", e.text);
	return r < 0 ? fault_set(&p->b->fault, -EINVAL, "%s", e.text) : 0;
}

/* The whole result so far. */
static json_t *result(const struct pressure *p)
{
	const struct bench_options *o = p->b->o;
	const struct pressure_options *q = &o->pressure;
	json_t *root = head_json(o, "pressure", p->b->dir ? p->b->dir : "", p->b->dir ? "" : "started");
	json_t *how = json_pack("{s:f, s:I, s:I, s:i, s:i, s:b}", "theta", CELL_THETA, "dataset",
				(json_int_t)q->dataset, "pace", (json_int_t)q->pace, "warmup", (int)q->warmup, "window",
				(int)q->window, "verify", (int)o->verify);

	if (root && how && json_object_set(root, "workload", how) == 0 &&
	    json_object_set(root, "cells", p->cells) == 0 &&
	    json_object_set_new(root, "left", json_integer(p->left)) == 0 && report_json(p->b->report, root) == 0) {
		json_decref(how);
		return root;
	}
	json_decref(how);
	json_decref(root);
	return NULL;
}

/* The file is whole at any time: the old one, or the new one. */
static int save(const struct pressure *p)
{
	const char *file = p->b->o->pressure.save;
	char temp[PATH_MAX];
	json_t *root;
	int r = 0;

	if (!file)
		return 0;
	if (snprintf(temp, sizeof(temp), "%s.new", file) >= (int)sizeof(temp))
		return fault_set(&p->b->fault, -ENAMETOOLONG, "--save: the name is too long");
	root = result(p);
	if (!root)
		return -ENOMEM;
	if (json_dump_file(root, temp, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) < 0 || rename(temp, file) < 0)
		r = fault_set(&p->b->fault, -EIO, "cannot write %s: %s", file, strerror(errno));
	json_decref(root);
	return r;
}

static struct backend_setup setup_of(const struct pressure *p, const struct cell *c)
{
	return (struct backend_setup){.dram = c->on->dram,
				      .ssd = c->on->ssd,
				      .payload = c->size - CELL_LESS,
				      .clients = c->clients,
				      .dir = c->on->dir,
				      .ssd_dir = ssd_place(p->b->o),
				      .fluxkvd = p->b->o->fluxkvd};
}

static struct load load_of(const struct pressure *p, const struct cell *c, const struct zipf *z)
{
	const struct pressure_options *q = &p->b->o->pressure;
	struct load l = {.zipf = z,
			 .seed = p->b->o->seed,
			 .payload = c->size - CELL_LESS,
			 .pace = q->pace,
			 .n_keys = c->n_keys,
			 .output = c->output,
			 .put_missing = c->put_missing,
			 .verify = p->b->o->verify,
			 .warmup_ns = q->warmup * NS_PER_SEC,
			 .window_ns = q->window * NS_PER_SEC};

	cell_layout(c->clients, &l.processes, &l.threads);
	return l;
}

/* Starts the store, loads it, reads, and ends it. 0, or a negative errno with the reason in e. */
static int measure(const struct pressure *p, struct cell *c, const struct zipf *z, struct errmsg *e)
{
	const struct backend_setup setup = setup_of(p, c);
	struct load l = load_of(p, c, z);
	struct backend backend;
	int r = backend_start(&backend, c->on->ops, &setup, e);

	l.backend = &backend;
	l.arena = arena_new(l.n_keys, l.processes * l.threads);
	if (r == 0)
		r = l.arena ? load_run(&l, &c->load, e) : errmsg_set(e, -ENOMEM, "no memory for the workers' counts");
	if (r == 0)
		cell_sum(c, l.arena);
	arena_free(l.arena);
	backend_end(&backend);
	return r;
}

static int keep(struct pressure *p, const struct cell *c, const struct zipf *z)
{
	struct cell_bounds bounds;
	json_t *j;
	int r = cell_bounds(c, z, p->b->o->seed, &bounds);

	if (r < 0)
		return r;
	j = cell_json(c, &bounds);
	if (!j || json_array_append_new(p->cells, j) < 0)
		return -ENOMEM;
	if (!p->b->o->json)
		cell_print(c, &bounds, stdout);
	p->bad += c->sum.errors || c->hits.unknown;
	r = save(p);
	return r == 0 && !p->b->o->json ? output_flush(&p->b->fault) : r;
}

static bool is_bad(json_t *cell)
{
	json_t *unknown = json_object_get(json_object_get(cell, "hits"), "unknown");

	return json_integer_value(json_object_get(cell, "errors")) || json_integer_value(unknown);
}

/* What an earlier run has measured: all its cells stay in the file, also those that are not asked for now. */
static int go_on(struct pressure *p)
{
	const char *file = p->b->o->pressure.save, *text;
	struct errmsg e = {{0}};
	json_t *now, *note;
	size_t i;
	int r = 0;

	if (!file)
		return 0;
	now = result(p);
	r = now ? kept_load(&p->kept, file, now, &e) : -ENOMEM;
	json_decref(now);
	if (r < 0)
		return fault_set(&p->b->fault, r, "%s", *e.text ? e.text : strerror(-r));
	if (p->kept.cells && json_array_extend(p->cells, p->kept.cells) < 0)
		return -ENOMEM;
	json_array_foreach (json_object_get(p->kept.file, "notes"), i, note) {
		text = json_string_value(note);
		if (r == 0 && text)
			r = report_note(p->b->report, "%s", text);
	}
	return r;
}

/* One cell. A peer that cannot do it is left out, with a note; FluxKV that cannot is a failure. */
static int run_cell(struct pressure *p, struct cell *c, const struct zipf *z)
{
	struct errmsg e = {{0}};
	int r = measure(p, c, z, &e);

	if (r == 0)
		return keep(p, c, z);
	if (stop_wanted())
		return -EINTR;
	if (c->on->ops == &backend_fluxkv || c->on->dir)
		return fault_set(&p->b->fault, r, "%s", *e.text ? e.text : strerror(-r));
	errmsg_prefix(&e, r, "%s, %llu bytes, %u clients: left out", c->on->ops->name, (unsigned long long)c->size,
		      c->clients);
	return note(p, e.text);
}

/* The same, unless it has been measured, or so many were that the rest is left. */
static int do_cell(struct pressure *p, struct cell *c, const struct zipf *z)
{
	json_t *kept = kept_take(&p->kept, c);

	if (kept) {
		p->left--;
		p->bad += is_bad(kept);
		return 0;
	}
	if (p->measured == p->b->o->pressure.cells)
		return 0;
	p->measured++;
	p->left--;
	return run_cell(p, c, z);
}

/* All contenders in turn, as often as there are runs. */
static int run_contenders(struct pressure *p, const struct cell *what, const struct zipf *z)
{
	struct cell *c = malloc(sizeof(*c));
	int r = c ? 0 : -ENOMEM;

	for (unsigned run = 0; r == 0 && run < p->b->o->runs; run++)
		for (unsigned i = 0; r == 0 && i < p->on.n; i++) {
			*c = *what;
			c->on = &p->on.v[i];
			c->run = run;
			r = stop_wanted() ? -EINTR : do_cell(p, c, z);
		}
	free(c);
	return r;
}

/* Whether choice, 0 or 1, is among what the option asks for. */
static bool asked(unsigned option, unsigned choice)
{
	return option == EITHER_BOTH || option == choice;
}

static unsigned asked_cells(const struct pressure *p)
{
	const struct pressure_options *q = &p->b->o->pressure;
	unsigned ways = (q->output == EITHER_BOTH ? OUTPUTS : 1) * (q->on_miss == EITHER_BOTH ? 2 : 1);

	return q->payloads.n * q->clients.n * ways * p->b->o->runs * p->on.n;
}

static int run_payload(struct pressure *p, uint64_t size)
{
	const struct pressure_options *q = &p->b->o->pressure;
	struct cell c = {.size = size, .n_keys = cell_keys(q->dataset, size)};
	struct zipf *z = zipf_new(c.n_keys, CELL_THETA);
	int r = z ? 0 : -ENOMEM;

	for (unsigned i = 0; i < q->clients.n; i++)
		for (unsigned output = 0; output < OUTPUTS; output++)
			for (unsigned put = 0; put < 2; put++) {
				c.clients = (unsigned)q->clients.v[i];
				c.output = output;
				c.put_missing = put;
				if (r == 0 && asked(q->output, output) && asked(q->on_miss, put))
					r = run_contenders(p, &c, z);
			}
	zipf_free(z);
	return r;
}

static int print_json(struct pressure *p)
{
	json_t *root = result(p);
	int r = root ? output_json(root, &p->b->fault) : -ENOMEM;

	json_decref(root);
	return r;
}

static int finish(struct pressure *p)
{
	int r = save(p);

	if (p->left && !p->b->o->json)
		printf("cells that are left: %u; the same command goes on with them\n", p->left);
	if (r == 0)
		r = p->b->o->json ? print_json(p) : output_flush(&p->b->fault);
	if (r == 0 && !json_array_size(p->cells))
		r = fault_set(&p->b->fault, -ENODATA, "nothing was measured: see the notes");
	if (r == 0 && p->bad)
		r = fault_set(&p->b->fault, -EBADMSG, "%u cell%s errors or hits of unknown source", p->bad,
			      p->bad > 1 ? "s have" : " has");
	return r;
}

int cmd_pressure(struct bench *b)
{
	const struct pressure_options *q = &b->o->pressure;
	struct pressure p = {.b = b, .cells = json_array()};
	int r = p.cells ? contenders_choose(b, &p.on) : -ENOMEM;

	if (r == 0)
		r = look_at_ssd_dir(&p);
	p.left = asked_cells(&p);
	if (r == 0)
		r = go_on(&p);
	if (!b->o->json)
		report_print(b->report, r < 0 ? stderr : stdout);
	else if (r < 0 && p.cells)
		print_json(&p); /* the reason says to see the notes */
	if (r == 0 && !b->o->json) {
		cell_print_head(stdout);
		r = output_flush(&b->fault);
	}
	for (unsigned i = 0; r == 0 && i < q->payloads.n; i++)
		r = run_payload(&p, q->payloads.v[i]);
	if (r == 0)
		r = finish(&p);
	kept_free(&p.kept);
	json_decref(p.cells);
	return r;
}
