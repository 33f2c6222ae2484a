/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/stamp.h"

#define LEN 8192

START_TEST(pieces_make_the_whole)
{
	static char whole[LEN], pieces[LEN];
	uint64_t base = stamp_base(1, 7), bad;
	size_t n;

	stamp_fill(whole, LEN, base, 0);
	for (size_t off = 0, step = 1; off < LEN; off += n, step = step * 3 % 97 + 1) {
		n = step < LEN - off ? step : LEN - off;
		stamp_fill(pieces + off, n, base, off);
	}
	ck_assert_mem_eq(whole, pieces, LEN);
	for (size_t off = 0; off < 40; off++)
		ck_assert(stamp_check(whole + off, LEN - off - 3, base, off, &bad));
}
END_TEST

START_TEST(every_wrong_byte_is_found)
{
	static char buf[LEN];
	uint64_t base = stamp_base(1, 7), bad;

	for (size_t off = 0; off < 9; off++) {
		stamp_fill(buf, 4400, base, off);
		for (size_t i = 0; i < 4400; i += i < 40 || i > 4080 ? 1 : 61) {
			buf[i] ^= 1;
			bad = 0;
			ck_assert(!stamp_check(buf, 4400, base, off, &bad));
			ck_assert_uint_eq(bad, off + i);
			buf[i] ^= 1;
		}
	}
}
END_TEST

START_TEST(other_values_differ)
{
	static char buf[LEN];
	uint64_t bad = 1;

	stamp_fill(buf, LEN, stamp_base(1, 7), 0);
	ck_assert(!stamp_check(buf, LEN, stamp_base(1, 8), 0, &bad));
	ck_assert_uint_eq(bad, 0);
	ck_assert(!stamp_check(buf, LEN, stamp_base(2, 7), 0, &bad));
	ck_assert(!stamp_check(buf + 4096, 4096, stamp_base(1, 7), 0, &bad));
	ck_assert(!stamp_probe(buf + 4096, 4096, stamp_base(1, 7), 0, &bad));
	memset(buf, 0, LEN);
	ck_assert(!stamp_probe(buf, LEN, stamp_base(1, 7), 0, &bad));
}
END_TEST

START_TEST(probe_sees_both_ends)
{
	static char buf[LEN];
	uint64_t base = stamp_base(3, 1), bad;

	for (size_t len = 1; len < 100; len++)
		for (size_t off = 0; off < 9; off++) {
			stamp_fill(buf, len, base, off);
			ck_assert(stamp_probe(buf, len, base, off, &bad));
			buf[0] ^= 4;
			ck_assert(!stamp_probe(buf, len, base, off, &bad));
			ck_assert_uint_eq(bad, off);
			buf[0] ^= 4;
			buf[len - 1] ^= 4;
			ck_assert(!stamp_probe(buf, len, base, off, &bad));
			ck_assert_uint_eq(bad, off + len - 1);
		}
}
END_TEST

START_TEST(probe_of_nothing)
{
	uint64_t bad;

	ck_assert(stamp_probe("", 0, 1, 0, &bad));
	ck_assert(stamp_check("", 0, 1, 0, &bad));
}
END_TEST

START_TEST(words_do_not_repeat)
{
	uint64_t base = stamp_base(1, 0);

	for (uint64_t i = 1; i < 1000; i++)
		ck_assert_uint_ne(stamp_word(base, i), stamp_word(base, i - 1));
	ck_assert_uint_ne(stamp_base(1, 0), stamp_base(0, 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_stamp");
	TCase *t = tcase_create("stamp");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60); /* sanitized, on a busy machine */
	tcase_add_test(t, pieces_make_the_whole);
	tcase_add_test(t, every_wrong_byte_is_found);
	tcase_add_test(t, other_values_differ);
	tcase_add_test(t, probe_sees_both_ends);
	tcase_add_test(t, probe_of_nothing);
	tcase_add_test(t, words_do_not_repeat);
	suite_add_tcase(s, t);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
