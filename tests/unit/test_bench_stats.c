/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/scatter.h"
#include "tests/bench/stats.h"

static struct samples of(const double *v, size_t n)
{
	struct samples s = {0};

	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(samples_add(&s, v[i]), 0);
	return s;
}

static double median_of(const double *v, size_t n)
{
	struct samples s = of(v, n);
	double m = -1;

	ck_assert_int_eq(samples_median(&s, &m), 0);
	for (size_t i = 0; i < n; i++) /* the order of the runs is kept */
		ck_assert_double_eq(s.v[i], v[i]);
	samples_free(&s);
	return m;
}

START_TEST(median_is_the_middle)
{
	ck_assert_double_eq(median_of((double[]){3, 1, 2}, 3), 2);
	ck_assert_double_eq(median_of((double[]){4, 1, 3, 2}, 4), 2.5);
	ck_assert_double_eq(median_of((double[]){7}, 1), 7);
	ck_assert_double_eq(median_of(NULL, 0), 0);
}
END_TEST

START_TEST(scatter_names_each_once)
{
	static const uint64_t sizes[] = {1, 2, 3, 10, 48, 1000, 10000, 65536};
	static bool seen[65536];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct scatter s = scatter_over(sizes[i]);
		uint64_t first = 0, k;

		memset(seen, 0, sizeof(seen));
		for (uint64_t n = 0; n < sizes[i]; n++) {
			k = scatter_next(&s);
			first = n ? first : k;
			ck_assert_uint_lt(k, sizes[i]);
			ck_assert_msg(!seen[k], "%u of %u comes twice", (unsigned)k, (unsigned)sizes[i]);
			seen[k] = true;
		}
		ck_assert_uint_eq(scatter_next(&s), first); /* and then from the start */
	}
}
END_TEST

START_TEST(spread_is_min_and_max)
{
	struct samples s = of((double[]){3, -1, 8, 2}, 4), none = {0};

	ck_assert_double_eq(samples_min(&s), -1);
	ck_assert_double_eq(samples_max(&s), 8);
	ck_assert_double_eq(samples_min(&none), 0);
	ck_assert_double_eq(samples_max(&none), 0);
	samples_free(&s);
}
END_TEST

/* The numbers 1 to n, backwards. */
static struct samples countdown(unsigned n)
{
	struct samples s = {0};

	for (unsigned i = n; i > 0; i--)
		ck_assert_int_eq(samples_add(&s, i), 0);
	return s;
}

START_TEST(percentiles_are_nearest_ranks)
{
	static const double q[] = {0, 0.5, 0.95, 0.99, 1, 0.005, 0.991};
	struct samples s = countdown(100);
	double v[7];

	ck_assert_int_eq(samples_percentiles(&s, q, 7, v), 0);
	ck_assert_double_eq(v[0], 1);
	ck_assert_double_eq(v[1], 50);
	ck_assert_double_eq(v[2], 95);
	ck_assert_double_eq(v[3], 99);
	ck_assert_double_eq(v[4], 100);
	ck_assert_double_eq(v[5], 1);
	ck_assert_double_eq(v[6], 100);
	samples_free(&s);
}
END_TEST

START_TEST(percentiles_of_few)
{
	static const double q[] = {0.5, 0.99};
	struct samples s = countdown(1), none = {0};
	double v[2];

	ck_assert_int_eq(samples_percentiles(&s, q, 2, v), 0);
	ck_assert_double_eq(v[0], 1);
	ck_assert_double_eq(v[1], 1);
	ck_assert_int_eq(samples_percentiles(&none, q, 2, v), 0);
	ck_assert_double_eq(v[1], 0);
	samples_free(&s);
}
END_TEST

START_TEST(ratios_are_pairwise)
{
	struct samples a = of((double[]){2, 9, 4}, 3), b = of((double[]){1, 3, 8, 5}, 4), q = {0};

	ck_assert_int_eq(samples_ratios(&a, &b, &q), 0);
	ck_assert_uint_eq(q.n, 3);
	ck_assert_double_eq(q.v[0], 2);
	ck_assert_double_eq(q.v[1], 3);
	ck_assert_double_eq(q.v[2], 0.5);
	samples_free(&q);
	b.v[1] = 0; /* nothing to divide by: that pair is left out */
	ck_assert_int_eq(samples_ratios(&a, &b, &q), 0);
	ck_assert_uint_eq(q.n, 2);
	samples_free(&q);
	samples_free(&a);
	samples_free(&b);
}
END_TEST

START_TEST(merging_appends)
{
	struct samples a = countdown(3), b = countdown(40);

	ck_assert_int_eq(samples_merge(&a, &b), 0);
	ck_assert_uint_eq(a.n, 43);
	ck_assert_double_eq(a.v[2], 1);
	ck_assert_double_eq(a.v[3], 40);
	ck_assert_double_eq(a.v[42], 1);
	ck_assert_uint_eq(b.n, 40);
	samples_free(&a);
	samples_free(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_stats");
	TCase *t = tcase_create("stats");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, median_is_the_middle);
	tcase_add_test(t, spread_is_min_and_max);
	tcase_add_test(t, scatter_names_each_once);
	tcase_add_test(t, percentiles_are_nearest_ranks);
	tcase_add_test(t, percentiles_of_few);
	tcase_add_test(t, ratios_are_pairwise);
	tcase_add_test(t, merging_appends);
	suite_add_tcase(s, t);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
