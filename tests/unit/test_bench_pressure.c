/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the pressure benchmark that need no store: what is drawn, what is expected, what is believed. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/bench/cell.h"
#include "tests/bench/draw.h"
#include "tests/bench/hist.h"
#include "tests/bench/ident.h"
#include "tests/bench/options.h"
#include "tests/unit/run.h"

#define DRAWS 200000u
#define SEED 7u
#define LEN 100000u

START_TEST(zipf_is_the_law)
{
	struct zipf *z = zipf_new(4, 1);
	const double sum = 1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0;
	const unsigned keys[] = {zipf_key(z, 0), zipf_key(z, 0.999999 / sum), zipf_key(z, 1.000001 / sum),
				 zipf_key(z, 0.9999999999)};

	ck_assert_double_eq_tol(zipf_share(z, 1), 1 / sum, 1e-12);
	ck_assert_double_eq_tol(zipf_share(z, 3), (sum - 0.25) / sum, 1e-12);
	ck_assert_double_eq(zipf_share(z, 0), 0);
	ck_assert_double_eq(zipf_share(z, 4), 1);
	ck_assert_double_eq(zipf_share(z, 400), 1);
	ck_assert_uint_eq(keys[0], 0);
	ck_assert_uint_eq(keys[1], 0);
	ck_assert_uint_eq(keys[2], 1);
	ck_assert_uint_eq(keys[3], 3);
	zipf_free(z);
	ck_assert_ptr_null(zipf_new(0, 1));
}
END_TEST

/* How often each key is drawn, against its probability: chi-squared with 159 degrees of freedom is below 230. */
START_TEST(zipf_is_drawn)
{
	struct zipf *z = zipf_new(160, CELL_THETA);
	unsigned count[160] = {0};
	double want, chi = 0;

	for (unsigned i = 0; i < DRAWS; i++)
		count[zipf_key(z, draw_uniform(SEED, 3, i))]++;
	for (unsigned k = 0; k < 160; k++) {
		want = DRAWS * (zipf_share(z, k + 1) - zipf_share(z, k));
		chi += (count[k] - want) * (count[k] - want) / want;
	}
	ck_assert_double_lt(chi, 230);
	ck_assert_double_gt(chi, 100); /* nor are the draws too even to be chance */
	zipf_free(z);
}
END_TEST

START_TEST(workers_draw_differently)
{
	unsigned same = 0;

	for (unsigned i = 0; i < 1000; i++) {
		ck_assert_double_eq(draw_uniform(SEED, 1, i), draw_uniform(SEED, 1, i));
		same += fabs(draw_uniform(SEED, 1, i) - draw_uniform(SEED, 2, i)) < 0.01;
		same += fabs(draw_uniform(SEED, 1, i) - draw_uniform(SEED + 1, 1, i)) < 0.01;
		same += fabs(draw_uniform(SEED, 1, i) - draw_uniform(SEED, 1, i + 1)) < 0.01;
	}
	ck_assert_uint_lt(same, 120); /* 60 by chance */
}
END_TEST

/* Every number once; every place about equally often. */
START_TEST(shuffle_is_a_permutation)
{
	unsigned order[100], again[100], at[100] = {0}, seen[100];

	for (unsigned seed = 0; seed < 5000; seed++) {
		memset(seen, 0, sizeof(seen));
		draw_shuffle(seed, order, 100);
		for (unsigned i = 0; i < 100; i++)
			ck_assert_uint_eq(seen[order[i]]++, 0);
		for (unsigned i = 0; i < 100; i++)
			at[i] += order[i] == 0;
	}
	for (unsigned i = 0; i < 100; i++)
		ck_assert_uint_le(abs((int)at[i] - 50), 35); /* five standard deviations */
	draw_shuffle(4999, again, 100);
	ck_assert_mem_eq(order, again, sizeof(order));
	draw_shuffle(0, again, 1);
	ck_assert_uint_eq(again[0], 0);
}
END_TEST

static const struct contender dram_only = {.ops = &backend_fluxkv, .dram = 2048ull << 20};
static const struct contender both_tiers = {
    .ops = &backend_fluxkv, .with_ssd = true, .dram = 2048ull << 20, .ssd = 16ull << 30};
static const struct contender unknown_size = {.ops = &backend_dir, .with_ssd = true};

static struct cell cell_of(const struct contender *on, unsigned mib)
{
	return (struct cell){.on = on,
			     .size = (uint64_t)mib << 20,
			     .n_keys = cell_keys(2560ull << 20, (uint64_t)mib << 20),
			     .clients = 2};
}

/* The sizes and the bounds that the design page gives. */
START_TEST(matrix_of_the_page)
{
	static const struct {
		unsigned mib, keys;
		double best;
	} rows[] = {{1, 2560, 0.973}, {4, 640, 0.967}, {8, 320, 0.964}, {16, 160, 0.960}};
	struct cell_bounds b;
	unsigned processes, threads;
	struct cell c;
	struct zipf *z;

	for (unsigned i = 0; i < 4; i++) {
		c = cell_of(&dram_only, rows[i].mib);
		z = zipf_new(c.n_keys, CELL_THETA);
		ck_assert_uint_eq(c.n_keys, rows[i].keys);
		ck_assert_uint_eq(cell_fitting(&c, false), rows[i].keys / 5 * 4);
		ck_assert_int_eq(cell_bounds(&c, z, SEED, &b), 0);
		ck_assert_double_eq_tol(b.share, 0.8, 1e-9);
		ck_assert_double_eq_tol(b.best, rows[i].best, 0.002);
		c.on = &both_tiers;
		ck_assert_int_eq(cell_bounds(&c, z, SEED, &b), 0);
		ck_assert_double_eq(b.best, 1);
		ck_assert_double_eq_tol(b.newest, 1, 1e-9);
		ck_assert_double_eq_tol(b.dram, rows[i].best, 0.002);
		zipf_free(z);
	}
	for (unsigned n = 1; n <= 16; n *= 2) {
		cell_layout(n, &processes, &threads);
		ck_assert_uint_eq(threads, n < 4 ? n : 4);
		ck_assert_uint_eq(processes * threads, n);
	}
}
END_TEST

/* What is left of an order is the keys at its end. */
START_TEST(newest_are_the_last_put)
{
	static const struct contender two = {.ops = &backend_fluxkv, .dram = 2 << 20};
	struct cell c = {.on = &two, .size = 1 << 20, .n_keys = 5};
	struct zipf *z = zipf_new(5, CELL_THETA);
	struct cell_bounds b;
	unsigned order[5];

	draw_shuffle(SEED, order, 5);
	ck_assert_int_eq(cell_bounds(&c, z, SEED, &b), 0);
	ck_assert_double_eq_tol(b.newest,
				zipf_share(z, order[3] + 1) - zipf_share(z, order[3]) + zipf_share(z, order[4] + 1) -
				    zipf_share(z, order[4]),
				1e-12);
	c.on = &unknown_size;
	ck_assert_int_eq(cell_bounds(&c, z, SEED, &b), 0);
	ck_assert_double_lt(b.best, 0);
	zipf_free(z);
}
END_TEST

START_TEST(only_sums_are_believed)
{
	const struct arena_tally told = {.dram = 7, .ssd = 3}, counted = {.counted = 10};
	struct hits h;

	h = cell_attribute(&told, &(struct hits){0});
	ck_assert(h.dram == 7 && h.ssd == 3 && h.unknown == 0);
	h = cell_attribute(&counted, &(struct hits){.dram = 6, .ssd = 4});
	ck_assert(h.dram == 6 && h.ssd == 4 && h.unknown == 0);
	h = cell_attribute(&counted, &(struct hits){.dram = 6, .ssd = 3}); /* one too few */
	ck_assert(h.dram == 0 && h.ssd == 0 && h.unknown == 10);
	h = cell_attribute(&counted, &(struct hits){.dram = 6, .ssd = 5}); /* somebody else's */
	ck_assert(h.dram == 0 && h.ssd == 0 && h.unknown == 10);
	h = cell_attribute(&counted, &(struct hits){.dram = 6, .ssd = 4, .unknown = 1});
	ck_assert(h.dram == 0 && h.ssd == 0 && h.unknown == 10);
	h = cell_attribute(&(struct arena_tally){0}, &(struct hits){0});
	ck_assert(h.dram == 0 && h.ssd == 0 && h.unknown == 0);
}
END_TEST

START_TEST(workers_are_added_up)
{
	struct arena *a = arena_new(3, 2);
	struct cell c = cell_of(&dram_only, 1);
	struct cell_bounds b = {-1, -1, -1, -1};
	double seconds, rate, hit_rate;
	json_int_t total, unknown;
	json_t *j;

	a->tallies[0] = (struct arena_tally){.dram = 5, .misses = 1, .puts = 1};
	a->tallies[1] = (struct arena_tally){.dram = 2, .ssd = 1, .misses = 1, .errors = 4, .refused = 2};
	hist_add(&a->tallies[0].latency, 1000);
	hist_add(&a->tallies[1].latency, 3000000);
	atomic_store(&a->keys[2].missed, true);
	arena_tell(a, "key %u is odd", 3);
	arena_tell(a, "another thing");
	c.load.window_s = 2;
	cell_sum(&c, a);
	ck_assert_uint_eq(c.sum.errors, 4);
	ck_assert_uint_eq(c.sum.refused, 2);
	ck_assert_uint_eq(c.sum.latency.n, 2);
	ck_assert_uint_eq(c.keys_missed, 1);
	ck_assert_str_eq(c.problem, "key 3 is odd");
	j = cell_json(&c, &b);
	ck_assert_int_eq(json_unpack(j, "{s:f, s:{s:I, s:I}, s:{s:f}, s:F, s:n}", "seconds", &seconds, "hits", "total",
				     &total, "unknown", &unknown, "bytes_per_s", "total", &rate, "hit_rate", &hit_rate,
				     "bound"),
			 0);
	ck_assert_int_eq(total, 8);
	ck_assert_int_eq(unknown, 0);
	ck_assert_double_eq_tol(hit_rate, 0.8, 1e-12);
	ck_assert_double_eq_tol(rate, 8 * ((1 << 20) - 128.0) / 2, 1e-3);
	json_decref(j);
	arena_free(a);
}
END_TEST

/* Against the exact percentiles of the same values. */
START_TEST(percentiles_are_close)
{
	static const double qs[] = {0.01, 0.5, 0.95, 0.99, 1};
	static struct hist h, half;
	uint64_t v, exact, got;

	for (unsigned i = 1; i <= 10000; i++) {
		v = (uint64_t)i * i * 37;
		hist_add(i % 2 ? &h : &half, v);
	}
	hist_merge(&h, &half);
	ck_assert_uint_eq(h.n, 10000);
	for (unsigned i = 0; i < 5; i++) {
		exact = (uint64_t)(qs[i] * 10000 + 0.5);
		exact = exact * exact * 37;
		got = hist_percentile(&h, qs[i]);
		ck_assert_uint_ge(got, exact);
		ck_assert_double_le((double)got, (double)exact * (1 + 1 / 128.0));
	}
	ck_assert_uint_eq(hist_percentile(&h, 1), h.max);
}
END_TEST

START_TEST(extremes_have_buckets)
{
	static const uint64_t values[] = {0, 1, 127, 128, 129, 255, 256, 1ull << 40, UINT64_MAX};
	static struct hist h;

	ck_assert_uint_eq(hist_percentile(&h, 0.5), 0);
	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		memset(&h, 0, sizeof(h));
		hist_add(&h, values[i]);
		ck_assert_uint_eq(hist_percentile(&h, 0.5), values[i]);
	}
}
END_TEST

static char value[LEN + 1];

/* Everything but the very value is told from it. */
START_TEST(values_say_whose_they_are)
{
	struct ident id = {.key = 3, .version = 9}, got;
	static char other[LEN];
	uint64_t bad;

	ident_fill(value, LEN, SEED, &id);
	ck_assert_int_eq(ident_read(value, LEN, SEED, &got), 0);
	ck_assert(got.key == 3 && got.version == 9);
	ck_assert(ident_check(value, LEN, SEED, &id, &bad));
	ck_assert_int_eq(ident_read(value, LEN, SEED + 1, &got), -EBADMSG);
	ck_assert_int_eq(ident_read(value, LEN - 1, SEED, &got), -EBADMSG);
	ck_assert_int_eq(ident_read(value + 1, LEN - 1, SEED, &got), -EBADMSG);
	ck_assert_int_eq(ident_read(value, 0, SEED, &got), -EBADMSG);
	ck_assert_int_eq(ident_read(other, LEN, SEED, &got), -EBADMSG); /* zeros */
	id.version = 10;
	ident_fill(other, LEN, SEED, &id);
	memcpy(other, value, LEN / 2); /* the first half of another version */
	ck_assert_int_eq(ident_read(other, LEN, SEED, &got), -EBADMSG);
}
END_TEST

/* Each byte counts: those at the ends for a look, all of them for a check. */
START_TEST(every_byte_counts)
{
	const struct ident id = {.key = 1, .version = 1};
	struct ident got;
	uint64_t bad;

	ident_fill(value, LEN, SEED, &id);
	for (unsigned i = 0; i < LEN; i += i < 100 || i > LEN - 100 ? 1 : 97) {
		value[i] ^= 1;
		ck_assert(!ident_check(value, LEN, SEED, &id, &bad));
		if (i < IDENT_LEN || i >= LEN - IDENT_LEN)
			ck_assert_int_eq(ident_read(value, LEN, SEED, &got), -EBADMSG);
		else
			ck_assert_uint_eq(bad, i);
		value[i] ^= 1;
	}
	ck_assert(ident_check(value, LEN, SEED, &id, &bad));
}
END_TEST

static int parse(struct bench_options *o, const char *const *argv, struct errmsg *e)
{
	const char *words[16];
	int argc = 0, r;
	unsigned n;

	while (argv[argc])
		argc++;
	options_default(o, CMD_PRESSURE);
	r = argv_parse(argc, (char **)(uintptr_t)argv, options_table, options_count, CMD_PRESSURE, o, words, &n, e);
	return r < 0 ? r : options_check(o, CMD_PRESSURE, e);
}

START_TEST(options_select)
{
	static const char *const all[] = {"--target=redis", "--target",	  "files",	     "--clients=8",
					  "--clients=16",   "--warmup=0", "--payload=64KiB", "--on-miss=both",
					  "--pace=0",	    NULL};
	static const char *const none[] = {NULL}, *const bad[][2] = {
						      {"--clients=6", NULL},	 {"--target=rediss", NULL},
						      {"--dataset=0", NULL},	 {"--payload=3GiB", NULL},
						      {"--warmup=100000", NULL}, {"--threads=4", NULL},
						      {"--clients=many", NULL},	 {"--on-miss=maybe", NULL}};
	struct bench_options o;
	struct errmsg e;

	ck_assert_int_eq(parse(&o, none, &e), 0);
	ck_assert_uint_eq(o.pressure.payloads.n, 4);
	ck_assert_uint_eq(o.pressure.clients.n, 4);
	ck_assert_uint_eq(o.pressure.warmup, 5);
	ck_assert_uint_eq(o.warmup, 1); /* the other commands' */
	ck_assert_int_eq(parse(&o, all, &e), 0);
	ck_assert_uint_eq(o.pressure.clients.n, 2);
	ck_assert_uint_eq(o.pressure.clients.v[1], 16);
	ck_assert_uint_eq(o.pressure.warmup, 0);
	ck_assert_uint_eq(o.warmup, 1);
	for (unsigned i = 0; backend_list[i]; i++)
		ck_assert_uint_eq(o.pressure.targets >> i & 1,
				  backend_list[i] == &backend_redis || backend_list[i] == &backend_files);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(parse(&o, bad[i], &e), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_pressure");
	TCase *t = tcase_create("pressure");

	tcase_add_test(t, zipf_is_the_law);
	tcase_add_test(t, zipf_is_drawn);
	tcase_add_test(t, workers_draw_differently);
	tcase_add_test(t, shuffle_is_a_permutation);
	tcase_add_test(t, matrix_of_the_page);
	tcase_add_test(t, newest_are_the_last_put);
	tcase_add_test(t, only_sums_are_believed);
	tcase_add_test(t, workers_are_added_up);
	tcase_add_test(t, percentiles_are_close);
	tcase_add_test(t, extremes_have_buckets);
	tcase_add_test(t, values_say_whose_they_are);
	tcase_add_test(t, every_byte_counts);
	tcase_add_test(t, options_select);
	suite_add_tcase(s, t);
	return run_suite(s);
}
