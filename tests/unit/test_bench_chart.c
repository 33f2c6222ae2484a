/* SPDX-License-Identifier: Apache-2.0 */
/* From the JSON of a run to what a picture and a table show. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/chart.h"
#include "tests/bench/chart_draw.h"
#include "tests/bench/markdown.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"

#define GIB 1073741824.0

static struct errmsg e;

/* A cell of size MiB by clients, that read dram and ssd GiB/s. */
static json_t *cell(const char *target, const char *tiers, const char *output, const char *on_miss, int mib,
		    int clients, double dram, double ssd)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:I, s:I, s:{s:f, s:f, s:f}, s:f, s:{s:f, s:f}, s:{s:i}, s:i, "
			 "s:s, s:{s:f, s:f, s:f}}",
			 "target", target, "tiers", tiers, "output", output, "on_miss", on_miss, "size",
			 (json_int_t)mib * 1048576, "clients", clients, "dram", (json_int_t)2147483648, "ssd",
			 (json_int_t)0, "bytes_per_s", "total", (dram + ssd) * GIB, "dram", dram * GIB, "ssd",
			 ssd * GIB, "hit_rate", 0.75, "bound", "static", 0.96, "newest", 0.8, "hits", "unknown", 0,
			 "errors", 0, "problem", "", "latency", "p50", 0.001, "p95", 0.002, "p99", 0.0405);
}

/* Takes the cells, up to NULL. */
static json_t *file(json_t *first, ...)
{
	json_t *cells = json_array(), *c;
	va_list ap;

	va_start(ap, first);
	for (c = first; c; c = va_arg(ap, json_t *))
		json_array_append_new(cells, c);
	va_end(ap);
	return json_pack("{s:s, s:i, s:s, s:s, s:I, s:{s:s, s:i}, s:{s:I, s:i}, s:o}", "program", "fluxkv-bench",
			 "schema", 1, "command", "pressure", "version", "1.2", "time", (json_int_t)0, "machine",
			 "kernel", "6.1", "cpus", 3, "workload", "dataset", (json_int_t)2684354560, "window", 30,
			 "cells", cells);
}

START_TEST(cells_find_their_place)
{
	json_t *f = file(cell("fluxkv", "dram", "bytes", "leave", 4, 16, 1, 0),
			 cell("fluxkv", "dram+ssd", "bytes", "leave", 4, 16, 2, 3),
			 cell("redis", "dram", "bytes", "leave", 1, 2, 4, 0),
			 cell("redis", "dram", "bytes", "put", 8, 2, 9, 0), NULL);
	struct chart_value v;
	struct chart *c = NULL;

	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), 0);
	ck_assert_uint_eq(c->n_sizes, 2);
	ck_assert_uint_eq(c->sizes[0], 1 << 20); /* ascending, whatever came first */
	ck_assert_uint_eq(c->clients[1], 16);
	ck_assert_uint_eq(c->n_series, 3);
	ck_assert_str_eq(c->series[1].tiers, "dram+ssd");
	ck_assert_uint_eq(c->dataset, 2684354560);
	ck_assert_uint_eq(c->window, 30);
	ck_assert(chart_at(c, 0, 1, 1, 1, &v));
	ck_assert_double_eq_tol(v.dram, 2, 1e-9);
	ck_assert_double_eq_tol(v.ssd, 3, 1e-9);
	ck_assert_double_eq_tol(v.hit_rate, 0.75, 1e-9);
	ck_assert_double_eq_tol(v.bound, 0.96, 1e-9);
	ck_assert(!chart_at(c, 0, 0, 0, 0, &v)); /* nobody measured that */
	ck_assert_double_eq_tol(chart_top(c, 0, 1), 5, 1e-9);
	ck_assert_double_eq_tol(chart_top(c, 0, 0), 4, 1e-9);
	chart_free(c);
	ck_assert_int_eq(chart_new(&f, 1, "put", &c, &e), 0);
	ck_assert_uint_eq(c->n_sizes, 1);
	chart_free(c);
	c = NULL;
	ck_assert_int_eq(chart_new(&f, 1, "else", &c, &e), 0);
	ck_assert_ptr_null(c);
	json_decref(f);
}
END_TEST

/* What came from nobody knows where is seen all the same. */
START_TEST(unknown_hits_have_their_place)
{
	json_t *one = cell("a", "dram", "bytes", "leave", 1, 2, 1, 2), *f;
	struct chart_value v;
	struct chart *c = NULL;

	json_object_set_new(json_object_get(one, "bytes_per_s"), "total", json_real(7 * GIB));
	f = file(one, NULL);
	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), 0);
	ck_assert(chart_at(c, 0, 0, 0, 0, &v));
	ck_assert_double_eq_tol(v.unknown, 4, 1e-9);
	ck_assert_double_eq_tol(chart_top(c, 0, 0), 7, 1e-9);
	ck_assert(c->any_unknown);
	chart_free(c);
	json_decref(f);
}
END_TEST

/* Of runs, and of files, the medians. */
START_TEST(runs_are_one_bar)
{
	json_t *f[2] = {file(cell("a", "dram", "bytes", "leave", 1, 2, 1, 0),
			     cell("a", "dram", "bytes", "leave", 1, 2, 9, 0), NULL),
			file(cell("a", "dram", "bytes", "leave", 1, 2, 2, 0), NULL)};
	struct chart_value v;
	struct chart *c = NULL;

	ck_assert_int_eq(chart_new(f, 2, "leave", &c, &e), 0);
	ck_assert_uint_eq(c->n_series, 1);
	ck_assert(chart_at(c, 0, 0, 0, 0, &v));
	ck_assert_double_eq_tol(v.dram, 2, 1e-9);
	chart_free(c);
	json_decref(f[0]);
	json_decref(f[1]);
}
END_TEST

/* What a file says is not trusted. */
START_TEST(odd_cells_are_refused)
{
	static const char *const odd[] = {"size", "clients", "target", "hit_rate", "bytes_per_s"};
	struct chart *c = NULL;
	json_t *f;

	for (unsigned i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		f = file(cell("a", "dram", "bytes", "leave", 1, 2, 1, 0), NULL);
		json_object_del(json_array_get(json_object_get(f, "cells"), 0), odd[i]);
		ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), -EBADMSG);
		json_decref(f);
	}
	f = file(cell("a", "dram", "bytes", "leave", -1, 2, 1, 0), NULL);
	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), -EBADMSG);
	json_decref(f);
	f = file(cell("a", "dram", "bytes", "leave", 1, 2, -1, 0), NULL);
	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), -EBADMSG);
	json_decref(f);
	f = file(NULL);
	for (int i = 1; i <= CHART_MAX + 1; i++)
		json_array_append_new(json_object_get(f, "cells"), cell("a", "dram", "bytes", "leave", 1, i, 1, 0));
	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), -E2BIG);
	json_decref(f);
	ck_assert_ptr_null(c);
}
END_TEST

START_TEST(axes_have_round_steps)
{
	static const double rows[][3] = {{1, 4, 0.5}, {4, 4, 1},   {4.1, 4, 2},	  {7.9, 4, 2},
					 {20, 4, 5},  {21, 4, 10}, {0.3, 3, 0.1}, {1e6, 4, 500000}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_double_eq_tol(chart_step(rows[i][0], (unsigned)rows[i][1]), rows[i][2], 1e-6 * rows[i][2]);
	ck_assert_double_gt(chart_step(0, 4), 0);
}
END_TEST

static char *table_of(json_t *f, int want)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_int_eq(markdown_write(f, out, &e), want);
	fclose(out);
	return text;
}

START_TEST(tables_of_cells)
{
	json_t *f = file(cell("flux|kv", "dram+ssd", "bytes", "put", 4, 16, 2, 3), NULL);
	char *text = table_of(f, 0);

	ck_assert_ptr_nonnull(strstr(text,
				     "\n| 4 MiB | c16 | bytes | put | flux\\|kv | dram+ssd | 5.000 | 2.000 | 3.000 | "
				     "75.0 % | 80.0 % | 96.0 % | 1.0 ms | 2.0 ms | 40.5 ms | 0 | 0 |\n"));
	ck_assert_ptr_nonnull(strstr(text, "fluxkv-bench 1.2, Linux 6.1, 3 CPUs, 1970-01-01 00:00 UTC"));
	free(text);
	json_decref(f);
}
END_TEST

START_TEST(tables_of_results)
{
	json_t *f = file(NULL), *results, *ratios;
	char *text;

	json_object_del(f, "cells");
	results = json_pack("[{s:s, s:s, s:i, s:s, s:s, s:f, s:f, s:f}, {s:s, s:s, s:i, s:s, s:s, s:f, s:f, s:f}]",
			    "op", "read", "state", "cold", "size", 4096, "target", "dir", "unit", "bytes/s", "median",
			    2e9, "min", 1e9, "max", 3e9, "op", "read", "state", "cold", "size", 4096, "target", "tmpfs",
			    "unit", "bytes/s", "median", 4e9, "min", 4e9, "max", 4e9);
	ratios =
	    json_pack("[{s:s, s:s, s:i, s:s, s:s, s:s, s:f, s:f, s:f}]", "op", "read", "state", "cold", "size", 4096,
		      "target", "dir", "against", "tmpfs", "unit", "bytes/s", "median", 0.5, "min", 0.25, "max", 0.75);
	json_object_set_new(f, "results", results);
	json_object_set_new(f, "ratios", ratios);
	text = table_of(f, 0);
	ck_assert_ptr_nonnull(strstr(text, "\n| read | cold | 4 KiB | dir | 2.00 GB/s | 1.00 GB/s | 3.00 GB/s | |\n"));
	ck_assert_ptr_nonnull(
	    strstr(text, "| tmpfs | 4.00 GB/s | 4.00 GB/s | 4.00 GB/s | dir is 0.50 (0.25 – 0.75) of it |\n"));
	free(text);
	json_object_set_new(json_array_get(results, 0), "unit", json_string("parsecs"));
	free(table_of(f, -EBADMSG));
	json_object_set_new(f, "schema", json_integer(2));
	free(table_of(f, -EBADMSG));
	ck_assert_ptr_nonnull(strstr(e.text, "schema 2"));
	json_object_set_new(f, "program", json_string("fio"));
	free(table_of(f, -EBADMSG));
	json_decref(f);
}
END_TEST

/* What a picture has depends on eyes; that there is one, of the right kind, does not. */
START_TEST(pictures_are_written)
{
	json_t *f = file(cell("fluxkv", "dram", "bytes", "leave", 1, 2, 1, 0), NULL);
	char base[128], path[160], head[8] = "";
	struct chart *c = NULL;
	FILE *in;
	int r;

	ck_assert_int_eq(chart_new(&f, 1, "leave", &c, &e), 0);
	snprintf(base, sizeof(base), "%s/p", temp_dir);
	r = chart_draw(c, base, &e);
	if (r == 0) {
		snprintf(path, sizeof(path), "%s.png", base);
		in = fopen(path, "r");
		ck_assert(in && fread(head, 1, 4, in) == 4 && !memcmp(head, "\x89PNG", 4));
		fclose(in);
		snprintf(path, sizeof(path), "%s.svg", base);
		in = fopen(path, "r");
		ck_assert(in && fread(head, 1, 5, in) == 5 && !memcmp(head, "<?xml", 5));
		fclose(in);
		ck_assert_int_lt(chart_draw(c, "/no/such/folder/p", &e), 0);
	} else {
		ck_assert_int_eq(r, -ENOSYS);
	}
	chart_free(c);
	json_decref(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_chart");
	TCase *t = tcase_create("chart");

	tcase_add_unchecked_fixture(t, temp_dir_make, temp_dir_remove);
	tcase_add_test(t, cells_find_their_place);
	tcase_add_test(t, unknown_hits_have_their_place);
	tcase_add_test(t, runs_are_one_bar);
	tcase_add_test(t, odd_cells_are_refused);
	tcase_add_test(t, axes_have_round_steps);
	tcase_add_test(t, tables_of_cells);
	tcase_add_test(t, tables_of_results);
	tcase_add_test(t, pictures_are_written);
	suite_add_tcase(s, t);
	return run_suite(s);
}
