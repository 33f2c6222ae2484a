/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table against a plain array of what is in it. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/buckets.h"
#include "common/hash.h"
#include "common/list.h"
#include "tests/unit/run.h"

#define N 50000u

struct thing {
	struct bucket_link link;
	unsigned number;
	bool in;
};

static struct buckets table;
static struct thing things[N];

/* Three of each hash, and all of one kind in one group if so wanted. */
static uint64_t hash_of(unsigned number, bool one_group)
{
	uint64_t h = hash_u64(number / 3 + 1);

	return one_group ? h >> 10 : h;
}

static struct thing *find(unsigned number, uint64_t hash)
{
	struct bucket_link *l;

	for (l = buckets_find(&table, hash); l; l = bucket_next(l)) {
		struct thing *t = container_of(l, struct thing, link);

		ck_assert_uint_eq(l->hash, hash);
		if (t->number == number)
			return t;
	}
	return NULL;
}

static void check_all(bool one_group)
{
	size_t n = 0;

	for (unsigned i = 0; i < N; i++) {
		ck_assert_ptr_eq(find(i, hash_of(i, one_group)), things[i].in ? &things[i] : NULL);
		n += things[i].in;
	}
	ck_assert_uint_eq(table.n, n);
}

/* Goes round once from wherever the hand is: everything is met, or what shares a chain with what is met. */
static void empty_by_hand(void)
{
	uint64_t hand = 0;
	struct bucket_link *l;
	size_t n = table.n;

	while ((l = buckets_any(&table, &hand))) {
		struct thing *t = container_of(l, struct thing, link);

		ck_assert(t->in);
		t->in = false;
		buckets_remove(&table, l);
		ck_assert_uint_eq(table.n, --n);
	}
	ck_assert_uint_eq(n, 0);
}

static void round_trip(bool one_group)
{
	unsigned seed = 7;

	for (unsigned i = 0; i < N; i++) {
		things[i].number = i;
		things[i].in = true;
		buckets_insert(&table, &things[i].link, hash_of(i, one_group));
	}
	check_all(one_group);
	/* No insert has had to move more than this. */
	for (uint32_t g = 0; g < BUCKET_GROUPS && !one_group; g++)
		ck_assert_uint_le(table.groups[g].n, 3 * N / BUCKET_GROUPS);
	for (unsigned k = 0; k < 2 * N; k++) {
		unsigned i = (unsigned)rand_r(&seed) % N;

		if (things[i].in)
			buckets_remove(&table, &things[i].link);
		else
			buckets_insert(&table, &things[i].link, hash_of(i, one_group));
		things[i].in = !things[i].in;
	}
	check_all(one_group);
	empty_by_hand();
	check_all(one_group);
	buckets_fini(&table);
}

START_TEST(what_is_in_is_found)
{
	round_trip(false);
}
END_TEST

START_TEST(one_group_takes_many)
{
	round_trip(true);
}
END_TEST

START_TEST(an_empty_one)
{
	uint64_t hand = 0;

	ck_assert_ptr_null(buckets_find(&table, 42));
	ck_assert_ptr_null(buckets_any(&table, &hand));
	buckets_fini(&table);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("buckets");
	TCase *tc = tcase_create("table");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_empty_one);
	tcase_add_test(tc, what_is_in_is_found);
	tcase_add_test(tc, one_group_takes_many);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
