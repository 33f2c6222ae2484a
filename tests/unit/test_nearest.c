/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

static const char *const words[] = {"size", "seed", "runs", "requests", "json", NULL};

START_TEST(finds_small_mistakes)
{
	ck_assert_str_eq(nearest_word("sise", words), "size");
	ck_assert_str_eq(nearest_word("szie", words), "size");
	ck_assert_str_eq(nearest_word("sl", /* a swap counts once */ (const char *const[]){"ls", NULL}), "ls");
	ck_assert_str_eq(nearest_word("run", words), "runs");
	ck_assert_str_eq(nearest_word("request", words), "requests");
	ck_assert_str_eq(nearest_word("reqeusts", words), "requests");
	ck_assert_str_eq(nearest_word("json", words), "json");
}
END_TEST

START_TEST(leaves_strangers_alone)
{
	char big[200];

	ck_assert_ptr_null(nearest_word("verify", words));
	ck_assert_ptr_null(nearest_word("x", words));
	ck_assert_ptr_null(nearest_word("", words));
	ck_assert_ptr_null(nearest_word("size", words + 5));
	memset(big, 's', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	ck_assert_ptr_null(nearest_word(big, words));
}
END_TEST

START_TEST(takes_the_first_of_equals)
{
	static const char *const twins[] = {"cart", "card", NULL};

	ck_assert_str_eq(nearest_word("carx", twins), "cart");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nearest");
	TCase *t = tcase_create("nearest");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, finds_small_mistakes);
	tcase_add_test(t, leaves_strangers_alone);
	tcase_add_test(t, takes_the_first_of_equals);
	suite_add_tcase(s, t);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
