/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/markdown.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "common/size.h"
#include "tests/bench/report.h"

#define GIB 1073741824.0

/* Text from a file in a table: what would end the cell or the row is escaped. */
static void put_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (strchr("|\\`*_<[", *text))
			fputc('\\', f);
		fputc(*text == '\n' ? ' ' : *text, f);
	}
}

static const char *size_text(json_int_t size, char buf[static 24])
{
	return size > 0 ? size_format((uint64_t)size, buf, 24) : "";
}

/* ---- pressure */

struct row {
	const char *target, *tiers, *output, *on_miss, *problem;
	json_int_t size, clients, unknown, errors;
	double total, dram, ssd, hit_rate, newest, best, p50, p95, p99;
};

static int read_row(json_t *cell, struct row *ret)
{
	struct row r = {.newest = -1, .best = -1};

	if (json_unpack(cell,
			"{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:{s:I}, s:I, s:{s:F, s:F, s:F}, s:F, s:{s:F, s:F, s:F}}",
			"target", &r.target, "tiers", &r.tiers, "output", &r.output, "on_miss", &r.on_miss, "problem",
			&r.problem, "size", &r.size, "clients", &r.clients, "hits", "unknown", &r.unknown, "errors",
			&r.errors, "bytes_per_s", "total", &r.total, "dram", &r.dram, "ssd", &r.ssd, "hit_rate",
			&r.hit_rate, "latency", "p50", &r.p50, "p95", &r.p95, "p99", &r.p99) < 0)
		return -EBADMSG;
	/* Null where nobody knows how much fits. */
	json_unpack(cell, "{s:{s:F, s:F}}", "bound", "newest", &r.newest, "static", &r.best);
	*ret = r;
	return 0;
}

static void put_percent(FILE *f, double v)
{
	if (v < 0)
		fputs(" – |", f);
	else
		fprintf(f, " %.1f %% |", 100 * v);
}

static void put_row(FILE *f, const struct row *r)
{
	const double latencies[] = {r->p50, r->p95, r->p99};
	char buf[32];

	fprintf(f, "| %s | c%" JSON_INTEGER_FORMAT " | ", size_text(r->size, buf), r->clients);
	put_text(f, r->output);
	fputs(" | ", f);
	put_text(f, r->on_miss);
	fputs(" | ", f);
	put_text(f, r->target);
	fputs(" | ", f);
	put_text(f, r->tiers);
	fprintf(f, " | %.3f | %.3f | %.3f |", r->total / GIB, r->dram / GIB, r->ssd / GIB);
	put_percent(f, r->hit_rate);
	put_percent(f, r->newest);
	put_percent(f, r->best);
	for (unsigned i = 0; i < 3; i++)
		fprintf(f, " %s |", report_value(REPORT_SECONDS, latencies[i], buf, sizeof(buf)));
	fprintf(f, " %" JSON_INTEGER_FORMAT " | %" JSON_INTEGER_FORMAT " |\n", r->errors, r->unknown);
}

static int put_cells(json_t *cells, FILE *f, struct errmsg *e)
{
	struct row r;
	json_t *cell;
	size_t i;

	fputs("| value | clients | output | miss | target | tiers | hits, GiB/s | from DRAM | from SSD | hit rate | "
	      "newest | static | p50 | p95 | p99 | errors | unknown |\n"
	      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
	      f);
	json_array_foreach (cells, i, cell) {
		if (read_row(cell, &r) < 0)
			return errmsg_set(e, -EBADMSG, "cell %zu is not as fluxkv-bench writes it", i);
		put_row(f, &r);
	}
	return 0;
}

/* ---- the other commands */

struct line {
	const char *op, *state, *target, *unit;
	json_int_t size, objects;
	double median, min, max;
};

static int read_line(json_t *j, struct line *ret)
{
	struct line l = {.objects = 0};

	/* Files of earlier versions have no numbers of objects. */
	if (json_unpack(j, "{s:s, s:s, s:I, s?I, s:s, s:s, s:F, s:F, s:F}", "op", &l.op, "state", &l.state, "size",
			&l.size, "objects", &l.objects, "target", &l.target, "unit", &l.unit, "median", &l.median,
			"min", &l.min, "max", &l.max) < 0 ||
	    report_unit_of(l.unit) < 0)
		return -EBADMSG;
	*ret = l;
	return 0;
}

static bool same_kind(const struct line *a, const struct line *b)
{
	return !strcmp(a->op, b->op) && !strcmp(a->state, b->state) && a->size == b->size && !strcmp(a->unit, b->unit);
}

/* The ratios that this line has a part in: of what is tested to it, and of it to the same with fewer objects. */
static void put_ratio(json_t *ratios, const struct line *l, FILE *f)
{
	const char *against, *before = " ";
	json_int_t fewer;
	struct line q;
	json_t *j;
	size_t i;

	json_array_foreach (ratios, i, j) {
		if (read_line(j, &q) < 0 || json_unpack(j, "{s:s}", "against", &against) < 0 || !same_kind(&q, l) ||
		    q.objects != l->objects || strcmp(against, l->target))
			continue;
		fewer = q.objects;
		json_unpack(j, "{s:I}", "against_objects", &fewer);
		fputs(before, f);
		if (fewer == q.objects)
			put_text(f, q.target);
		fprintf(f, "%s%.2f (%.2f – %.2f) of ", fewer == q.objects ? " is " : "", q.median, q.min, q.max);
		if (fewer == q.objects)
			fputs("it", f);
		else
			fprintf(f, "that with %" JSON_INTEGER_FORMAT, fewer);
		before = "; ";
	}
	fputs(" |\n", f);
}

/* "4 KiB", or where their number matters "4 KiB × 1000". */
static void put_values(const struct line *l, FILE *f)
{
	char size[24];

	fprintf(f, " | %s", size_text(l->size, size));
	if (l->objects)
		fprintf(f, "%s× %" JSON_INTEGER_FORMAT, l->size ? " " : "", l->objects);
	fputs(" | ", f);
}

static int put_results(json_t *file, FILE *f, struct errmsg *e)
{
	char median[32], min[32], max[32];
	enum report_unit unit;
	struct line l;
	json_t *j;
	size_t i;

	fputs("| operation | state | value | on | median | least | greatest | ratio "
	      "|\n|---|---|---|---|---|---|---|---|\n",
	      f);
	json_array_foreach (json_object_get(file, "results"), i, j) {
		if (read_line(j, &l) < 0)
			return errmsg_set(e, -EBADMSG, "result %zu is not as fluxkv-bench writes it", i);
		unit = (enum report_unit)report_unit_of(l.unit);
		fputs("| ", f);
		put_text(f, l.op);
		fputs(" | ", f);
		put_text(f, l.state);
		put_values(&l, f);
		put_text(f, l.target);
		fprintf(f, " | %s | %s | %s |", report_value(unit, l.median, median, sizeof(median)),
			report_value(unit, l.min, min, sizeof(min)), report_value(unit, l.max, max, sizeof(max)));
		put_ratio(json_object_get(file, "ratios"), &l, f);
	}
	return 0;
}

/* ---- all */

/* A ratio, or a value in its unit. */
static const char *suite_number(int unit, double v, char buf[static 32])
{
	if (unit >= 0)
		return report_value((enum report_unit)unit, v, buf, 32);
	snprintf(buf, 32, "%.2f", v);
	return buf;
}

/* What is not there, a row that was not measured, or that nobody set a goal, is null. */
static int put_suite_row(json_t *j, FILE *f)
{
	const char *what, *against, *result, *why, *unit = "", *kind = "ratio";
	char a[32], b[32], c[32];
	double median, min, max, goal;
	int most = 0, in = -1;

	/* Files of earlier versions have no kinds: all of their rows are ratios. */
	if (json_unpack(j, "{s:s, s:s, s:s, s:s, s?s, s?s, s?b}", "what", &what, "against", &against, "result", &result,
			"why", &why, "unit", &unit, "kind", &kind, "at_most", &most) < 0)
		return -EBADMSG;
	if (!strcmp(kind, "value") && (in = report_unit_of(unit)) < 0)
		return -EBADMSG;
	fputs("| ", f);
	put_text(f, what);
	fputs(" | ", f);
	put_text(f, against);
	if (json_unpack(j, "{s:F, s:F, s:F}", "median", &median, "min", &min, "max", &max) == 0)
		fprintf(f, " | %s (%s – %s) |", suite_number(in, median, a), suite_number(in, min, b),
			suite_number(in, max, c));
	else
		fputs(" | |", f);
	if (json_unpack(j, "{s:F}", "to_reach", &goal) == 0)
		fprintf(f, " %s%s | ", most ? "≤ " : "", suite_number(in, goal, a));
	else
		fputs(" | ", f);
	put_text(f, result);
	fputs(*why ? ": " : "", f);
	put_text(f, why);
	fputs(" |\n", f);
	return 0;
}

static int put_suite(json_t *rows, FILE *f, struct errmsg *e)
{
	json_t *row;
	size_t i;

	fputs("| what | against | ratio | to reach | |\n|---|---|---|---|---|\n", f);
	json_array_foreach (rows, i, row)
		if (put_suite_row(row, f) < 0)
			return errmsg_set(e, -EBADMSG, "row %zu is not as fluxkv-bench writes it", i);
	return 0;
}

/* ---- any of them */

static int put_head(json_t *file, FILE *f, struct errmsg *e)
{
	const char *program, *command, *kernel, *version;
	char day[32] = "";
	json_int_t when;
	int schema, cpus;
	struct tm tm;
	time_t t;

	if (json_unpack(file, "{s:s, s:i, s:s, s:s, s:I, s:{s:s, s:i}}", "program", &program, "schema", &schema,
			"command", &command, "version", &version, "time", &when, "machine", "kernel", &kernel, "cpus",
			&cpus) < 0 ||
	    strcmp(program, "fluxkv-bench"))
		return errmsg_set(e, -EBADMSG, "not written by fluxkv-bench");
	if (schema != 1)
		return errmsg_set(e, -EBADMSG, "of schema %d, which this fluxkv-bench does not know", schema);
	t = (time_t)when;
	if (gmtime_r(&t, &tm))
		strftime(day, sizeof(day), "%Y-%m-%d %H:%M", &tm);
	fputs("## ", f);
	put_text(f, command);
	fputs("\n\nfluxkv-bench ", f);
	put_text(f, version);
	fputs(", Linux ", f);
	put_text(f, kernel);
	fprintf(f, ", %d CPUs, %s UTC\n\n", cpus, day);
	return 0;
}

static void put_notes(json_t *file, FILE *f)
{
	json_t *note;
	size_t i;

	json_array_foreach (json_object_get(file, "notes"), i, note) {
		fputs(i ? "* " : "\n* ", f);
		put_text(f, json_string_value(note) ? json_string_value(note) : "");
		fputc('\n', f);
	}
	fputc('\n', f);
}

int markdown_write(json_t *file, FILE *f, struct errmsg *e)
{
	json_t *cells = json_object_get(file, "cells"), *rows = json_object_get(file, "rows");
	int r = put_head(file, f, e);

	if (r == 0)
		r = cells ? put_cells(cells, f, e) : rows ? put_suite(rows, f, e) : put_results(file, f, e);
	if (r == 0)
		put_notes(file, f);
	return r;
}
