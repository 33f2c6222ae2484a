/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inode table, and the opens that are sent back to look again. The node behind them is a few counters: what must
 * balance is what is held and what is let go.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse/impl.h"
#include "tests/unit/run.h"

/* ---- a node of counters ------------------------------------------------------------------------------------- */

struct put {
	atomic_int refs, handles, given_up;
};

static atomic_int versions; /* held now */

struct put *put_unref(struct put *p)
{
	atomic_fetch_sub(&p->refs, 1);
	return NULL;
}

void put_release(struct put *p, bool writer)
{
	atomic_fetch_sub(&p->handles, 1);
}

void put_abandon(struct put *p)
{
	atomic_fetch_add(&p->given_up, 1);
}

struct version *version_close(struct version *v)
{
	atomic_fetch_sub(&versions, 1);
	return NULL;
}

void keeper_kick(struct keeper *k)
{
}

static struct msg_attr file_attr(uint64_t id)
{
	return (struct msg_attr){.id = id, .kind = MSG_KIND_FILE, .nlink = 1, .atime_ns = 100};
}

/* As a lookup's answer: one lookup, no reference left. */
static void tell(struct inode_table *t, uint64_t id, struct put *put, uint64_t dir, const char *name)
{
	struct msg_attr a = file_attr(id);
	struct inode *i = inode_know(t, &a, put, dir, name);

	ck_assert_ptr_nonnull(i);
	inode_unref(t, i);
}

static bool has_name(struct inode_table *t, uint64_t id, uint64_t dir, const char *name)
{
	struct inode *i = inode_get(t, id);
	char got[MSG_NAME_MAX + 1] = "";
	uint64_t got_dir = 0;
	int r = inode_get_name(t, i, &got_dir, got);

	inode_unref(t, i);
	return name ? r == 0 && got_dir == dir && !strcmp(got, name) : r == -ENOENT;
}

static uint32_t links(struct inode_table *t, uint64_t id)
{
	struct inode *i = inode_get(t, id);
	struct msg_attr a;

	inode_get_attr(t, i, &a, NULL);
	inode_unref(t, i);
	return a.nlink;
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

START_TEST(lives_as_long_as_the_kernel_knows_it)
{
	struct inode_table *t = inode_table_new();
	struct put p = {.refs = 2};
	struct inode *held;

	tell(t, 10, &p, 1, "a");
	tell(t, 10, &p, 1, "a");
	ck_assert_int_eq(p.refs, 1); /* one is kept, the second lookup's was given back */
	ck_assert_uint_eq(inode_count(t), 1);
	inode_forget(t, 10, 1);
	held = inode_get(t, 10);
	ck_assert_ptr_nonnull(held);
	inode_forget(t, 10, 1);
	ck_assert_uint_eq(inode_count(t), 1);
	inode_unref(t, held);
	ck_assert_uint_eq(inode_count(t), 0);
	ck_assert_int_eq(p.refs, 0);
	ck_assert_ptr_null(inode_get(t, 10));
	inode_forget(t, 10, 5);
	inode_table_free(t);
}
END_TEST

START_TEST(forgetting_too_much_is_harmless)
{
	struct inode_table *t = inode_table_new();

	tell(t, 10, NULL, 1, "a");
	inode_forget(t, 10, UINT64_MAX);
	ck_assert_uint_eq(inode_count(t), 0);
	inode_table_free(t);
}
END_TEST

START_TEST(a_name_stands_for_one)
{
	struct inode_table *t = inode_table_new();

	tell(t, 10, NULL, 1, "a");
	tell(t, 11, NULL, 2, "a");
	ck_assert(has_name(t, 10, 1, "a"));
	ck_assert(has_name(t, 11, 2, "a"));
	/* Another version of the name: the old one has none, but nobody removed it. */
	tell(t, 12, NULL, 1, "a");
	ck_assert(has_name(t, 12, 1, "a"));
	ck_assert(has_name(t, 10, 0, NULL));
	ck_assert_uint_eq(links(t, 10), 1);
	/* What was removed was the version before. */
	inode_name_removed(t, &(struct inode_name){1, "a", 10});
	ck_assert(has_name(t, 12, 1, "a"));
	ck_assert_uint_eq(links(t, 12), 1);
	ck_assert_uint_eq(inode_of_name(t, 1, "a"), 12);
	inode_name_removed(t, &(struct inode_name){1, "a", 12});
	ck_assert(has_name(t, 12, 0, NULL));
	ck_assert_uint_eq(links(t, 12), 0);
	ck_assert_uint_eq(inode_of_name(t, 1, "a"), 0);
	inode_name_removed(t, &(struct inode_name){1, "a", 0});
	inode_table_free(t);
}
END_TEST

START_TEST(a_rename_moves_the_name)
{
	struct inode_table *t = inode_table_new();

	tell(t, 10, NULL, 1, "tmp");
	tell(t, 11, NULL, 1, "key");
	inode_name_moved(t, &(struct inode_name){1, "tmp", 10}, &(struct inode_name){1, "key", 11});
	ck_assert(has_name(t, 10, 1, "key"));
	ck_assert_uint_eq(links(t, 10), 1);
	ck_assert(has_name(t, 11, 0, NULL));
	ck_assert_uint_eq(links(t, 11), 0);
	/* From a name the kernel has no inode of: the target is gone all the same. */
	inode_name_moved(t, &(struct inode_name){5, "unknown", 0}, &(struct inode_name){1, "key", 10});
	ck_assert_uint_eq(links(t, 10), 0);
	/* To itself. */
	tell(t, 12, NULL, 1, "x");
	inode_name_moved(t, &(struct inode_name){1, "x", 12}, &(struct inode_name){1, "x", 12});
	ck_assert(has_name(t, 12, 1, "x"));
	ck_assert_uint_eq(links(t, 12), 1);
	inode_table_free(t);
}
END_TEST

/* The task was killed and the kernel let the directories go, so that both names were made anew before it is over. */
START_TEST(a_late_rename_spares_who_came_after)
{
	struct inode_table *t = inode_table_new();
	const struct inode_name from = {1, "tmp", 10}, to = {1, "key", 11};

	tell(t, 10, NULL, 1, "tmp");
	tell(t, 11, NULL, 1, "key");
	tell(t, 12, NULL, 1, "tmp");
	tell(t, 13, NULL, 1, "key");
	inode_name_moved(t, &from, &to);
	ck_assert(has_name(t, 12, 1, "tmp"));
	ck_assert(has_name(t, 13, 1, "key"));
	ck_assert_uint_eq(links(t, 12), 1);
	ck_assert_uint_eq(links(t, 13), 1);
	/* Only the target. */
	tell(t, 14, NULL, 1, "tmp2");
	inode_name_moved(t, &(struct inode_name){1, "tmp2", 14}, &to);
	ck_assert(has_name(t, 13, 1, "key"));
	ck_assert(has_name(t, 14, 0, NULL));
	inode_table_free(t);
}
END_TEST

START_TEST(many)
{
	enum { N = 20000 };
	struct inode_table *t = inode_table_new();
	char name[16];

	for (uint64_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", (int)i);
		tell(t, 100 + i, NULL, i % 7, name);
	}
	ck_assert_uint_eq(inode_count(t), N);
	for (uint64_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", (int)i);
		ck_assert(has_name(t, 100 + i, i % 7, name));
		if (i % 2)
			inode_forget(t, 100 + i, 1);
	}
	ck_assert_uint_eq(inode_count(t), N / 2);
	ck_assert(has_name(t, 100, 0, "0"));
	inode_table_free(t);
}
END_TEST

START_TEST(an_open_moves_the_atime_only_here)
{
	struct inode_table *t = inode_table_new();
	struct msg_attr a = file_attr(10), got;
	struct inode *i = inode_know(t, &a, NULL, 1, "a");

	inode_touch_atime(t, i, 500);
	inode_set_attr(t, i, &a, false);
	inode_get_attr(t, i, &got, NULL);
	ck_assert_int_eq(got.atime_ns, 500);
	inode_touch_atime(t, i, 400);
	inode_get_attr(t, i, &got, NULL);
	ck_assert_int_eq(got.atime_ns, 500);
	/* Who sets it may set it back. */
	a.atime_ns = 300;
	inode_set_attr(t, i, &a, true);
	inode_get_attr(t, i, &got, NULL);
	ck_assert_int_eq(got.atime_ns, 300);
	inode_unref(t, i);
	inode_table_free(t);
}
END_TEST

static void *tell_and_forget(void *arg)
{
	struct inode_table *t = arg;
	unsigned seed = (unsigned)(uintptr_t)pthread_self();
	char name[16];

	for (int k = 0; k < 20000; k++) {
		uint64_t id = 10 + (uint64_t)(rand_r(&seed) % 8);

		snprintf(name, sizeof(name), "n%d", rand_r(&seed) % 4);
		switch (rand_r(&seed) % 4) {
		case 0:
			inode_name_moved(t, &(struct inode_name){1, name, inode_of_name(t, 1, name)},
					 &(struct inode_name){1, "n0", inode_of_name(t, 1, "n0")});
			break;
		case 1:
			inode_name_removed(t, &(struct inode_name){1, name, inode_of_name(t, 1, name)});
			break;
		default:
			tell(t, id, NULL, 1, name);
			inode_forget(t, id, 1);
		}
	}
	return NULL;
}

START_TEST(threads)
{
	struct inode_table *t = inode_table_new();
	pthread_t th[4];

	for (int k = 0; k < 4; k++)
		pthread_create(&th[k], NULL, tell_and_forget, t);
	for (int k = 0; k < 4; k++)
		pthread_join(th[k], NULL);
	ck_assert_uint_eq(inode_count(t), 0);
	inode_table_free(t);
}
END_TEST

/* ---- looking again ------------------------------------------------------------------------------------------ */

static struct fs fs;

static void setup(void)
{
	memset(&fs, 0, sizeof(fs));
	fs.inodes = inode_table_new();
	fs.retries = retries_new();
	tell(fs.inodes, 10, NULL, 1, "key");
	atomic_store(&versions, 0);
}

static void teardown(void)
{
	fs.retries = retries_free(fs.retries);
	fs.inodes = inode_table_free(fs.inodes);
}

START_TEST(the_lookup_finds_what_the_open_needs)
{
	struct inode *i = inode_get(fs.inodes, 10);

	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert_uint_eq(retry_match(&fs, 8, 1, "key", 10, true), 0);		 /* another thread */
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "other", 11, false), 0);	 /* a directory of the path */
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 99, true), RETRY_WRITE); /* replaced meanwhile: by its name */
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 0, false),
			  RETRY_WRITE); /* each lookup, until the open has come */
	ck_assert_uint_eq(retry_match(&fs, 7, 3, "moved", 10, true), RETRY_WRITE); /* renamed meanwhile: by its id */
	inode_unref(fs.inodes, i);
}
END_TEST

START_TEST(a_replaced_version_is_found_by_the_name_that_it_had)
{
	struct inode *i = inode_get(fs.inodes, 10);

	tell(fs.inodes, 11, NULL, 1, "key");
	ck_assert(retry_expect(&fs, 7, i, RETRY_READ));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 12, true), RETRY_READ);
	inode_unref(fs.inodes, i);
}
END_TEST

START_TEST(only_the_version_that_the_caller_may_write_is_emptied)
{
	struct inode *i = inode_get(fs.inodes, 10);

	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE | RETRY_TRUNCATE));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 10, true), RETRY_WRITE | RETRY_TRUNCATE);
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 12, true), RETRY_WRITE);
	/* The thread's next open does not empty it. */
	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 10, true), RETRY_WRITE);
	/* Of several callers that look alike, all have to want it. */
	ck_assert(retry_expect(&fs, 0, i, RETRY_WRITE | RETRY_TRUNCATE));
	ck_assert(retry_expect(&fs, 0, i, RETRY_WRITE));
	ck_assert_uint_eq(retry_match(&fs, 0, 1, "key", 10, true), RETRY_WRITE);
	inode_unref(fs.inodes, i);
}
END_TEST

START_TEST(a_second_time_without_a_lookup_is_told)
{
	struct inode *i = inode_get(fs.inodes, 10);

	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert(!retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 10, true), RETRY_WRITE);
	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE)); /* a lookup came */
	ck_assert(!retry_expect(&fs, 7, i, RETRY_WRITE));
	/* Callers of another pid namespace are told apart by nothing: each is sent back. */
	ck_assert(retry_expect(&fs, 0, i, RETRY_WRITE));
	ck_assert(retry_expect(&fs, 0, i, RETRY_WRITE));
	/* To a name for a creation: once at all. */
	ck_assert(retry_expect_name(&fs, 9, 1, "new", RETRY_READ));
	ck_assert_uint_eq(retry_match(&fs, 9, 1, "new", 0, false), RETRY_READ);
	ck_assert(!retry_expect_name(&fs, 9, 1, "new", RETRY_READ));
	inode_unref(fs.inodes, i);
}
END_TEST

/* The kernel moved its entry of a name that stood for another version by then: nothing tells us the new name. */
START_TEST(a_name_that_is_not_known_is_the_next_file_looked_up)
{
	struct inode *i = inode_get(fs.inodes, 10);

	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE | RETRY_TRUNCATE));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "parent", 3, false), 0);
	ck_assert_uint_eq(retry_match(&fs, 8, 1, "moved", 11, true), 0); /* another thread */
	ck_assert_uint_eq(retry_match(&fs, 7, 2, "moved", 11, true), RETRY_WRITE);
	/* From then on it has a name. */
	ck_assert_uint_eq(retry_match(&fs, 7, 2, "another", 12, true), 0);
	ck_assert_uint_eq(retry_match(&fs, 7, 2, "moved", 13, true), RETRY_WRITE);
	inode_unref(fs.inodes, i);
}
END_TEST

START_TEST(what_is_held_is_taken_once_and_ends_the_rest)
{
	struct put p = {.refs = 1, .handles = 1}, older = {.refs = 1, .handles = 1}, other = {.refs = 1, .handles = 1};
	struct hold got;
	struct inode *i = inode_get(fs.inodes, 10);

	ck_assert(retry_expect(&fs, 7, i, RETRY_WRITE));
	ck_assert_int_eq(retry_hold(&fs, 7, 1, "key", &(struct hold){.id = 19, .put = &older}), 0);
	ck_assert_int_eq(retry_hold(&fs, 7, 1, "key", &(struct hold){.id = 20, .put = &p}), 0);
	ck_assert_int_eq(retry_hold(&fs, 7, 1, "another", &(struct hold){.id = 21, .put = &other}), 0);
	ck_assert(retry_is_held(&fs, 7, 20));
	ck_assert(!retry_is_held(&fs, 8, 20));
	ck_assert(!retry_take(&fs, 8, 20, &got));
	ck_assert(retry_take(&fs, 7, 20, &got));
	ck_assert_ptr_eq(got.put, &p);
	/* What an earlier lookup found goes, and what was needed. */
	ck_assert_int_eq(older.handles, 0);
	ck_assert_int_eq(older.refs, 0);
	ck_assert(!retry_take(&fs, 7, 19, &got));
	ck_assert(!retry_take(&fs, 7, 20, &got));
	ck_assert_uint_eq(retry_match(&fs, 7, 1, "key", 10, true), 0);
	ck_assert_int_eq(other.handles, 1);
	hold_release(&(struct hold){.put = &p});
	ck_assert_int_eq(p.refs, 0);
	ck_assert_int_eq(p.handles, 0);
	ck_assert_int_eq(p.given_up, 0);
	inode_unref(fs.inodes, i);
	/* The other name's hold is on this function's stack. */
	ck_assert_uint_eq(retry_expire(fs.retries, UINT64_MAX), 0);
	ck_assert_int_eq(other.handles, 0);
}
END_TEST

/* As a process's number, which its first thread has as well. */
static pid_t a_thread_that_is_gone(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	return pid;
}

START_TEST(what_nobody_comes_for_is_let_go)
{
	struct put p = {.refs = 1, .handles = 1}, others = {.refs = 1, .handles = 1};
	struct hold hp = {.put = &p, .id = 20, .writer = true};
	struct hold hr = {.put = &others, .id = 25};
	struct put left = {.refs = 1, .handles = 1};
	struct hold hg = {.put = &left, .id = 35, .writer = true};
	struct hold hv = {.version = (struct version *)&p, .id = 30};
	struct inode *i = inode_get(fs.inodes, 10);
	const pid_t me = gettid(), gone = a_thread_that_is_gone();

	atomic_store(&versions, 1);
	ck_assert_int_eq(retry_hold(&fs, me, 1, "a", &hp), 0);
	ck_assert_int_eq(retry_hold(&fs, me, 1, "b", &hv), 0);
	ck_assert_int_eq(retry_hold(&fs, me, 1, "c", &hr), 0);
	ck_assert(retry_expect(&fs, me, i, RETRY_WRITE));
	inode_unref(fs.inodes, i);
	ck_assert_int_eq(retry_hold(&fs, gone, 1, "a", &hg), 0);
	/* A thread that is no more comes for nothing; the others may still. */
	ck_assert_uint_eq(retry_expire(fs.retries, 0), 4);
	ck_assert_int_eq(left.handles, 0);
	ck_assert_int_eq(left.refs, 0);
	ck_assert_int_eq(p.handles, 1);
	ck_assert_uint_eq(retry_expire(fs.retries, UINT64_MAX), 0);
	ck_assert_int_eq(p.handles, 0);
	ck_assert_int_eq(p.refs, 0);
	ck_assert_int_eq(p.given_up, 1); /* not published */
	ck_assert_int_eq(others.refs, 0);
	ck_assert_int_eq(others.given_up, 0); /* a reader's hold leaves it to its writers */
	ck_assert_int_eq(atomic_load(&versions), 0);
	ck_assert_uint_eq(retry_match(&fs, me, 1, "key", 10, true), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_inode");
	TCase *t = tcase_create("inode"), *r = tcase_create("retry");

	tcase_add_test(t, lives_as_long_as_the_kernel_knows_it);
	tcase_add_test(t, forgetting_too_much_is_harmless);
	tcase_add_test(t, a_name_stands_for_one);
	tcase_add_test(t, a_rename_moves_the_name);
	tcase_add_test(t, a_late_rename_spares_who_came_after);
	tcase_add_test(t, many);
	tcase_add_test(t, an_open_moves_the_atime_only_here);
	tcase_add_test(t, threads);
	tcase_add_checked_fixture(r, setup, teardown);
	tcase_add_test(r, the_lookup_finds_what_the_open_needs);
	tcase_add_test(r, a_second_time_without_a_lookup_is_told);
	tcase_add_test(r, a_replaced_version_is_found_by_the_name_that_it_had);
	tcase_add_test(r, only_the_version_that_the_caller_may_write_is_emptied);
	tcase_add_test(r, a_name_that_is_not_known_is_the_next_file_looked_up);
	tcase_add_test(r, what_is_held_is_taken_once_and_ends_the_rest);
	tcase_add_test(r, what_nobody_comes_for_is_let_go);
	suite_add_tcase(s, t);
	suite_add_tcase(s, r);
	return run_suite(s);
}
