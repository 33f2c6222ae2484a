/* SPDX-License-Identifier: Apache-2.0 */
/* Which mounts of control groups say something about us. */
#include <check.h>

#include "common/cgroup.h"
#include "tests/unit/run.h"

static const struct {
	const char *own, *root, *below; /* below NULL: the mount is of other groups */
} cases[] = {
    {"/", "/", "/"},
    {"/a/b", "/", "/a/b"},
    {"", "/", ""}, /* our path is not known */
    {"/a/b", "/a", "/b"},
    {"/a/b", "/a/b", ""}, /* a container that shows its own group as the root */
    {"/a/b", "/a/b/c", NULL},
    {"/a/b", "/c", NULL},
    {"/ab", "/a", NULL}, /* the name only begins alike */
    {"", "/a", NULL},
    {"/", "/a", NULL},
    {"/a", "/..", ""}, /* mounted before the namespace was made */
    {"/", "/../..", ""},
    {"/", "/../a", NULL}, /* beside our namespace */
    {"/../a/b", "/../a", "/b"},
    {"/../a", "/../b", NULL},
};

START_TEST(tells_ours_from_others)
{
	const char *got = cgroup_below(cases[_i].own, cases[_i].root);

	if (cases[_i].below)
		ck_assert_pstr_eq(got, cases[_i].below);
	else
		ck_assert_ptr_null(got);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cgroup");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, tells_ours_from_others, 0, sizeof(cases) / sizeof(cases[0]));
	suite_add_tcase(s, t);
	return run_suite(s);
}
