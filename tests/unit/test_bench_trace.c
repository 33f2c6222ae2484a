/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/trace.h"

static int add(struct trace *t, const char *line, struct errmsg *e)
{
	return trace_add_line(t, line, strlen(line), e);
}

START_TEST(reads_the_blocks_in_order)
{
	struct trace t = {0};
	struct errmsg e;

	ck_assert_int_eq(
	    add(&t, "{\"timestamp\": 0, \"input_length\": 9, \"hash_ids\": [5, 0, 9223372036854775807]}", &e), 0);
	ck_assert_int_eq(add(&t, "{\"hash_ids\": []}", &e), 0);
	ck_assert_int_eq(add(&t, "{\"hash_ids\": [5]}\n", &e), 0);
	ck_assert_uint_eq(t.n_requests, 3);
	ck_assert_uint_eq(t.n_ids, 4);
	ck_assert_uint_eq(t.requests[0].n, 3);
	ck_assert_uint_eq(t.requests[1].n, 0);
	ck_assert_uint_eq(t.requests[2].first, 3);
	ck_assert_uint_eq(t.ids[0], 5);
	ck_assert_uint_eq(t.ids[2], 9223372036854775807ull);
	ck_assert_uint_eq(t.ids[3], 5);
	trace_free(&t);
}
END_TEST

START_TEST(refuses_other_lines)
{
	static const char *const bad[] = {
	    "",
	    "x",
	    "[1]",
	    "{}",
	    "{\"hash_ids\": 1}",
	    "{\"hash_ids\": [1, -2]}",
	    "{\"hash_ids\": [1.5]}",
	    "{\"hash_ids\": [\"1\"]}",
	    "{\"hash_ids\": [1]",
	    "{\"hash_ids\": [1]} 2",
	    "{\"hash_ids\": [9223372036854775808]}",
	};
	struct trace t = {0};
	struct errmsg e;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		e.text[0] = '\0';
		ck_assert_msg(add(&t, bad[i], &e) == -EBADMSG, "line %zu", i);
		ck_assert_uint_gt(strlen(e.text), 0);
		ck_assert_uint_eq(t.n_ids, 0); /* nothing of a bad line stays */
		ck_assert_uint_eq(t.n_requests, 0);
	}
	trace_free(&t);
}
END_TEST

START_TEST(bound_counts_prefixes)
{
	struct trace t = {0};
	struct trace_bound b;
	struct errmsg e;

	add(&t, "{\"hash_ids\": [0, 1, 2]}", &e);    /* 3 stores */
	add(&t, "{\"hash_ids\": [0, 1, 3, 2]}", &e); /* 2 hits; 3 is new, and 2 behind it is stored again */
	add(&t, "{\"hash_ids\": [0, 1, 3, 2]}", &e); /* 4 hits */
	add(&t, "{\"hash_ids\": [7]}", &e);
	ck_assert_int_eq(trace_bound(&t, &b), 0);
	ck_assert_uint_eq(b.hits, 6);
	ck_assert_uint_eq(b.stores, 6);
	ck_assert_uint_eq(b.distinct, 5);
	trace_free(&t);
}
END_TEST

START_TEST(bound_of_many)
{
	struct trace t = {0};
	struct trace_bound b;
	struct errmsg e;
	char line[64];

	for (unsigned i = 0; i < 5000; i++) {
		snprintf(line, sizeof(line), "{\"hash_ids\": [%u, %u]}", i % 2500, i % 2500 + 10000);
		ck_assert_int_eq(add(&t, line, &e), 0);
	}
	ck_assert_int_eq(trace_bound(&t, &b), 0);
	ck_assert_uint_eq(b.distinct, 5000);
	ck_assert_uint_eq(b.hits, 5000);
	ck_assert_uint_eq(b.stores, 5000);
	trace_free(&t);
}
END_TEST

static char path[] = "/tmp/fluxkv-test-trace.XXXXXX";

static void write_file(const char *text)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(loads_a_file)
{
	struct trace t;
	struct errmsg e;
	int r;

	write_file("{\"hash_ids\": [1]}\n\n{\"hash_ids\": [2, 3]}\n{\"hash_ids\": [4]}");
	r = trace_load(path, 2, &t, &e);
	unlink(path);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(t.n_requests, 2);
	ck_assert_uint_eq(t.n_ids, 3);
	trace_free(&t);
}
END_TEST

START_TEST(names_the_bad_line)
{
	struct trace t;
	struct errmsg e;
	int r;

	write_file("{\"hash_ids\": [1]}\n\nnonsense\n");
	r = trace_load(path, 9, &t, &e);
	unlink(path);
	ck_assert_int_eq(r, -EBADMSG);
	ck_assert_ptr_nonnull(strstr(e.text, ":3:"));
	ck_assert_int_eq(trace_load("/nonexistent/trace", 9, &t, &e), -ENOENT);
}
END_TEST

START_TEST(an_empty_file_is_no_trace)
{
	struct trace t;
	struct errmsg e;
	int r;

	write_file("\n");
	r = trace_load(path, 9, &t, &e);
	unlink(path);
	ck_assert_int_eq(r, -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_trace");
	TCase *t = tcase_create("trace");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, reads_the_blocks_in_order);
	tcase_add_test(t, refuses_other_lines);
	tcase_add_test(t, bound_counts_prefixes);
	tcase_add_test(t, bound_of_many);
	tcase_add_test(t, loads_a_file);
	tcase_add_test(t, names_the_bad_line);
	tcase_add_test(t, an_empty_file_is_no_trace);
	suite_add_tcase(s, t);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
