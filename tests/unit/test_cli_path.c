/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "cli/path.h"
#include "tests/unit/run.h"

static void normal(const char *path, const char *want)
{
	char out[64];

	ck_assert_int_eq(path_normalize(path, out, sizeof(out)), 0);
	ck_assert_str_eq(out, want);
}

START_TEST(normalizes)
{
	normal("/", "/");
	normal("//", "/");
	normal("/a//b/./c/", "/a/b/c");
	normal("/a/b/../c", "/a/c");
	normal("/..", "/");
	normal("/a/../..", "/");
	normal("/a/../../b", "/b");
	normal("", "");
	normal(".", "");
	normal("a/..", "");
	normal("a/b/..", "a");
	normal("a/../b", "b");
	normal("./..x/...", "..x/...");
}
END_TEST

START_TEST(refuses)
{
	char out[8];

	ck_assert_int_eq(path_normalize("..", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(path_normalize("a/../..", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(path_normalize("/1234567", out, sizeof(out)), -ENAMETOOLONG);
	ck_assert_int_eq(path_normalize("/12345", out, sizeof(out)), 0);
	ck_assert_int_eq(path_normalize("a", out, 1), -ENAMETOOLONG);
}
END_TEST

static void mapped(const char *arg, const char *cwd, const char *mnt, const char *want)
{
	char out[PATH_MAX];
	struct errmsg e;

	ck_assert_int_eq(path_map(arg, cwd, mnt, out, sizeof(out), &e), 0);
	ck_assert_str_eq(out, want);
}

START_TEST(maps)
{
	mapped("/mnt/x/ns/k", "/home", "/mnt/x", "ns/k");
	mapped("/mnt/x", "/home", "/mnt/x", "");
	mapped("/mnt/x/", "/home", "/mnt/x", "");
	mapped("/mnt/y/../x/ns", "/home", "/mnt/x", "ns");
	mapped("k", "/mnt/x/ns", "/mnt/x", "ns/k");
	mapped("../other/k", "/mnt/x/ns", "/mnt/x", "other/k");
	mapped(".", "/mnt/x/ns", "/mnt/x", "ns");
	mapped("x/ns", "/mnt", "/mnt/x", "ns");
	/* From elsewhere a relative path starts at the root of the file system. */
	mapped("ns/k", "/home", "/mnt/x", "ns/k");
	mapped("ns/./k/", "", "/mnt/x", "ns/k");
	mapped(".", "/home", "/mnt/x", "");
	mapped("ns/k", "/mnt/xyz", "/mnt/x", "ns/k");
	mapped("/a/b", "/home", "/", "a/b");
}
END_TEST

START_TEST(maps_no_further)
{
	char out[PATH_MAX] = "before", big[2 * PATH_MAX];
	struct errmsg e;

	ck_assert_int_eq(path_map("/mnt/xy/k", "/", "/mnt/x", out, sizeof(out), &e), -EXDEV);
	ck_assert_ptr_nonnull(strstr(e.text, "/mnt/xy/k"));
	ck_assert_int_eq(path_map("/etc/passwd", "/mnt/x", "/mnt/x", out, sizeof(out), &e), -EXDEV);
	ck_assert_int_eq(path_map("../k", "/home", "/mnt/x", out, sizeof(out), &e), -EINVAL);
	ck_assert_int_eq(path_map("ns/long", "/home", "/mnt/x", out, 4, &e), -ENAMETOOLONG);
	ck_assert_int_eq(path_map("/mnt/x/ns/long", "/home", "/mnt/x", out, 4, &e), -ENAMETOOLONG);
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	ck_assert_int_eq(path_map(big, "/home", "/mnt/x", out, sizeof(out), &e), -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli_path");
	TCase *t = tcase_create("cli_path");

	tcase_add_test(t, normalizes);
	tcase_add_test(t, refuses);
	tcase_add_test(t, maps);
	tcase_add_test(t, maps_no_further);
	suite_add_tcase(s, t);
	return run_suite(s);
}
