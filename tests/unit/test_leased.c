/* SPDX-License-Identifier: Apache-2.0 */
/* The names that a node knows under a lease: which are believed, and how many are kept. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/impl.h"
#include "tests/unit/run.h"

static bool bytes_here = true;

static bool leases_hold = true;

bool member_has_leases(struct node *n)
{
	return leases_hold;
}

bool block_all_present(struct node *n, const struct msg_attr *a)
{
	return bytes_here;
}

/* Names that begin with '#' share the place that remembers the newest lease. */
uint64_t node_name_hash(uint64_t dir, const char *name)
{
	uint64_t h = hash_bytes(name, strlen(name), dir);

	return *name == '#' ? h & ~(uint64_t)(NAME_LEASES - 1) : h;
}

static struct node *n;

static void setup(void)
{
	n = calloc(1, sizeof(*n));
	ck_assert_ptr_nonnull(n);
	names_init(n, 16);
	bytes_here = true;
}

static void teardown(void)
{
	names_fini(n);
	free(n);
}

static void insert(const char *name, uint64_t id, uint64_t lease)
{
	struct msg_attr a = {.id = id, .size = 1, .kind = MSG_KIND_FILE};

	names_insert(n, 7, name, &a, lease, 0);
}

/* The id of what the name stands for; 0: not known. */
static uint64_t known(const char *name)
{
	struct msg_attr a;

	return names_find(n, 7, name, &a) ? a.id : 0;
}

static unsigned insert_many(unsigned many)
{
	unsigned found = 0;
	char name[16];

	for (unsigned i = 1; i <= many; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		insert(name, i, i);
	}
	for (unsigned i = 1; i <= many; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		found += known(name) == i;
	}
	return found;
}

START_TEST(as_many_as_blocks)
{
	atomic_store(&n->count.blocks, 100000);
	ck_assert_uint_eq(insert_many(100000), 100000);
}
END_TEST

START_TEST(not_without_end)
{
	ck_assert_uint_eq(insert_many(1000), 16);
	ck_assert_uint_eq(n->names.by_name.n, 16);
	ck_assert_uint_eq(n->names.by_id.n, 16);
	/* And no more than blocks, when there are fewer than there were. */
	atomic_store(&n->count.blocks, 100);
	ck_assert_uint_eq(insert_many(1000), 100);
	atomic_store(&n->count.blocks, 0);
	ck_assert_uint_eq(insert_many(1000), 16);
}
END_TEST

START_TEST(what_comes_late_is_not_believed)
{
	names_forget(n, 7, "a", 10);
	insert("a", 1, 9);
	ck_assert_uint_eq(known("a"), 0);
	insert("a", 2, 11);
	ck_assert_uint_eq(known("a"), 2);
	insert("a", 1, 10);
	ck_assert_uint_eq(known("a"), 2);
	ck_assert(!names_find(n, 8, "a", &(struct msg_attr){0}));
}
END_TEST

START_TEST(an_overwrite_is_not_lost_on_another_name)
{
	insert("#a", 1, 1);
	insert("#b", 2, 20);
	/* Older than #b's, so it cannot be believed; but #a stands for 1 no more. */
	insert("#a", 3, 10);
	ck_assert_uint_eq(known("#a"), 0);
	ck_assert_uint_eq(known("#b"), 2);
}
END_TEST

START_TEST(a_version_has_one_name)
{
	insert("a", 1, 1);
	insert("b", 1, 2);
	ck_assert_uint_eq(known("a"), 0);
	ck_assert_uint_eq(known("b"), 1);
	insert("c", 1, 1);
	ck_assert_uint_eq(known("c"), 0);
	ck_assert_uint_eq(known("b"), 1);
	names_forget_id(n, 1);
	ck_assert_uint_eq(known("b"), 0);
}
END_TEST

START_TEST(an_id_goes_with_its_version)
{
	insert("a", 1, 1);
	insert("a", 2, 2);
	names_forget_id(n, 1);
	ck_assert_uint_eq(known("a"), 2);
	names_forget_id(n, 2);
	ck_assert_uint_eq(known("a"), 0);
}
END_TEST

START_TEST(what_cannot_be_answered_from_here)
{
	struct msg_attr a = {.id = 1, .size = 1, .kind = MSG_KIND_FILE, .expires_ns = 1};

	names_insert(n, 7, "a", &a, 1, 0);
	ck_assert_uint_eq(known("a"), 0);
	insert("b", 2, 2);
	bytes_here = false;
	ck_assert_uint_eq(known("b"), 0);
	bytes_here = true;
	ck_assert_uint_eq(known("b"), 2);
	/* A directory, and an empty file, take the name. */
	a = (struct msg_attr){.id = 3, .kind = MSG_KIND_DIR};
	names_insert(n, 7, "b", &a, 3, 0);
	ck_assert_uint_eq(known("b"), 0);
	insert("b", 2, 2);
	ck_assert_uint_eq(known("b"), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leased");
	TCase *tc = tcase_create("names");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, as_many_as_blocks);
	tcase_add_test(tc, not_without_end);
	tcase_add_test(tc, what_comes_late_is_not_believed);
	tcase_add_test(tc, an_overwrite_is_not_lost_on_another_name);
	tcase_add_test(tc, a_version_has_one_name);
	tcase_add_test(tc, an_id_goes_with_its_version);
	tcase_add_test(tc, what_cannot_be_answered_from_here);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
