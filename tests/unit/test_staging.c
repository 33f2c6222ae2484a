/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of what is on its way: their bound, their order, and that what comes back is given out again. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/size.h"
#include "store/staging.h"
#include "tests/unit/run.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static atomic_bool no_mmap;
static struct staging *pool;

void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return atomic_load(&no_mmap) ? MAP_FAILED : __real_mmap(addr, len, prot, flags, fd, off);
}

static void setup(void)
{
	pool = staging_new(MIB);
	ck_assert_ptr_nonnull(pool);
}

static void teardown(void)
{
	pool = staging_free(pool);
}

static struct staging_stats stats(void)
{
	struct staging_stats st;

	staging_stats(pool, &st);
	return st;
}

/* What can be had at once, or NULL. */
static void *try(uint64_t len)
{
	void *p = NULL;
	int r = staging_get(pool, len, 0, &p);

	ck_assert(r == 0 || r == -ETIMEDOUT);
	ck_assert(!r == !!p);
	return p;
}

static void *must(uint64_t len)
{
	void *p = try(len);

	ck_assert_ptr_nonnull(p);
	return p;
}

START_TEST(lengths)
{
	static const uint64_t lens[] = {1,	4095,	   4096,	  4097,	      64 * KIB,	 64 * KIB + 1, 80 * KIB,
					100000, 128 * KIB, 128 * KIB + 1, 1023 * KIB, MIB - 128, MIB};
	void *p = NULL;

	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		p = must(lens[i]);
		ck_assert_uint_eq((uintptr_t)p % 4096, 0);
		ck_assert_uint_ge(stats().out, align_up(lens[i], 4096));
		ck_assert(stats().out <= 64 * KIB || stats().out <= lens[i] * 5 / 4);
		memset(p, 0xaa, align_up(lens[i], 4096));
		staging_put(pool, p, lens[i]);
		ck_assert_uint_eq(stats().out, 0);
	}
	p = NULL;
	ck_assert_int_eq(staging_get(pool, 0, 0, &p), -EINVAL);
	ck_assert_int_eq(staging_get(pool, UINT64_MAX, 0, &p), -EINVAL);
	ck_assert_ptr_null(p);
}
END_TEST

/* The same pages, which somebody has touched already. */
START_TEST(warm)
{
	unsigned char *p = must(200 * KIB), *q;

	memset(p, 0x5a, 200 * KIB);
	staging_put(pool, p, 200 * KIB);
	for (unsigned i = 0; i < 10; i++) {
		q = must(200 * KIB - i * 100);
		ck_assert_ptr_eq(q, p);
		ck_assert_uint_eq(q[100 * KIB], 0x5a);
		staging_put(pool, q, 200 * KIB - i * 100);
	}
	ck_assert_uint_eq(stats().fresh, 1);
	ck_assert_uint_eq(stats().kept, 224 * KIB);
}
END_TEST

/* The length of what is mapped: what is kept is really there, and what is not has gone. */
START_TEST(resident)
{
	unsigned char vec[64];
	void *p = must(256 * KIB), *q;

	/* Touched before it is given out. */
	ck_assert_int_eq(mincore(p, 256 * KIB, vec), 0);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_uint_eq(vec[i] & 1, 1);
	staging_put(pool, p, 256 * KIB);
	q = must(MIB);
	ck_assert_int_eq(mincore(p, 256 * KIB, vec) == 0 ? 0 : errno,
			 q <= p && (char *)p < (char *)q + MIB ? 0 : ENOMEM);
	staging_put(pool, q, MIB);
}
END_TEST

START_TEST(bound)
{
	void *p[4], *q;

	for (unsigned i = 0; i < 4; i++)
		p[i] = must(256 * KIB);
	ck_assert_uint_eq(stats().out, MIB);
	ck_assert_ptr_null(try(1));
	ck_assert_uint_eq(stats().timeouts, 1);
	ck_assert_uint_eq(stats().waiting, 0);
	staging_put(pool, p[2], 256 * KIB);
	ck_assert_ptr_null(try(256 * KIB + 1));
	p[2] = must(256 * KIB);
	for (unsigned i = 0; i < 4; i++)
		staging_put(pool, p[i], 256 * KIB);
	ck_assert_uint_eq(stats().kept, MIB);
	/* What is kept goes where another size is wanted, and no more of it than must: the longest unused. */
	q = must(512 * KIB);
	ck_assert_uint_eq(stats().kept, 512 * KIB);
	ck_assert_uint_eq(stats().fresh, 5);
	ck_assert_ptr_eq(p[3], must(256 * KIB));
	ck_assert_ptr_eq(p[2], must(256 * KIB));
	staging_put(pool, p[3], 256 * KIB);
	staging_put(pool, p[2], 256 * KIB);
	staging_put(pool, q, 512 * KIB);
	ck_assert_uint_eq(stats().kept, MIB);
}
END_TEST

START_TEST(larger_than_the_bound)
{
	void *small = must(1), *p;

	ck_assert_ptr_null(try(3 * MIB));
	staging_put(pool, small, 1);
	p = must(3 * MIB);
	ck_assert_uint_eq(stats().out, 3 * MIB);
	ck_assert_uint_eq(stats().kept, 0);
	memset(p, 1, 3 * MIB);
	ck_assert_ptr_null(try(1));
	staging_put(pool, p, 3 * MIB);
	ck_assert_uint_eq(stats().out, 0);
	ck_assert_uint_eq(stats().kept, 0);
	small = must(1);
	staging_put(pool, small, 1);
}
END_TEST

/* One that asks and waits in a thread of its own. */
struct asker {
	pthread_t thread;
	uint64_t len, deadline;
	int err;
	void *buf;
	atomic_uint turn; /* the how-manieth it was; 0: not yet */
};

static atomic_uint turns;

static void *ask(void *arg)
{
	struct asker *a = arg;

	a->err = staging_get(pool, a->len, a->deadline, &a->buf);
	atomic_store(&a->turn, atomic_fetch_add(&turns, 1) + 1);
	return NULL;
}

/* Returns when it waits. */
static void start(struct asker *a, uint64_t len, uint64_t deadline)
{
	uint64_t waiting = stats().waiting;

	*a = (struct asker){.len = len, .deadline = deadline};
	ck_assert_int_eq(pthread_create(&a->thread, NULL, ask, a), 0);
	while (stats().waiting == waiting)
		usleep(500);
}

/* Returns its turn. */
static unsigned join(struct asker *a)
{
	pthread_join(a->thread, NULL);
	return atomic_load(&a->turn);
}

START_TEST(first_come_first_served)
{
	void *p[4], *q;
	struct asker large, small[2];

	for (unsigned i = 0; i < 4; i++)
		p[i] = must(256 * KIB);
	start(&large, MIB, UINT64_MAX);
	start(&small[0], 1, UINT64_MAX);
	start(&small[1], 1, UINT64_MAX);
	for (unsigned i = 0; i < 3; i++)
		staging_put(pool, p[i], 256 * KIB);
	/* There is room for the small ones, which came later. */
	usleep(20000);
	ck_assert_uint_eq(stats().waiting, 3);
	ck_assert_ptr_null(try(1));
	staging_put(pool, p[3], 256 * KIB);
	ck_assert_uint_eq(join(&large), 1);
	ck_assert_int_eq(large.err, 0);
	usleep(20000);
	ck_assert_uint_eq(stats().waiting, 2);
	staging_put(pool, large.buf, MIB);
	for (unsigned i = 0; i < 2; i++) {
		join(&small[i]);
		ck_assert_int_eq(small[i].err, 0);
		staging_put(pool, small[i].buf, 1);
	}
	q = must(MIB);
	staging_put(pool, q, MIB);
	ck_assert_uint_eq(stats().waits, 4);
}
END_TEST

/* One at a time, and in the order in which they came. */
START_TEST(in_order)
{
	struct asker a[6];
	void *p = must(MIB);

	for (unsigned i = 0; i < 6; i++)
		start(&a[i], MIB, UINT64_MAX);
	staging_put(pool, p, MIB);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_uint_eq(join(&a[i]), i + 1);
		ck_assert_ptr_eq(a[i].buf, p);
		ck_assert_uint_eq(stats().waiting, 5 - i);
		staging_put(pool, a[i].buf, MIB);
	}
	ck_assert_uint_eq(stats().fresh, 1);
}
END_TEST

/* Who gives up in front no longer stands in the way of who is behind. */
START_TEST(deadline)
{
	void *p = must(512 * KIB);
	uint64_t begin = clock_ns(), end;
	struct asker large, small;

	start(&large, MIB, begin + 300 * NS_PER_MS);
	start(&small, 512 * KIB, UINT64_MAX);
	ck_assert_uint_eq(join(&large), atomic_load(&large.turn));
	end = clock_ns();
	ck_assert_int_eq(large.err, -ETIMEDOUT);
	ck_assert_ptr_null(large.buf);
	ck_assert_uint_ge(end - begin, 300 * NS_PER_MS);
	join(&small);
	ck_assert_int_eq(small.err, 0);
	ck_assert_uint_eq(stats().out, MIB);
	ck_assert_uint_eq(stats().timeouts, 1);
	staging_put(pool, small.buf, 512 * KIB);
	staging_put(pool, p, 512 * KIB);
}
END_TEST

START_TEST(no_memory)
{
	struct asker one, other;
	void *p = must(MIB);

	start(&one, 512 * KIB, UINT64_MAX);
	start(&other, MIB, UINT64_MAX);
	atomic_store(&no_mmap, true);
	staging_put(pool, p, MIB);
	join(&one);
	ck_assert_int_eq(one.err, -ENOMEM);
	/* Its share has gone to the next, who fares no better: the kept one had to go. */
	join(&other);
	ck_assert_int_eq(other.err, -ENOMEM);
	ck_assert_uint_eq(stats().out, 0);
	atomic_store(&no_mmap, false);
	p = must(MIB);
	staging_put(pool, p, MIB);
}
END_TEST

static atomic_bool over;

static uint64_t rnd(uint64_t *state, uint64_t n)
{
	*state += 0x9e3779b97f4a7c15ull;
	return hash_u64(*state) % n;
}

/* Nobody else writes to what it has. */
static void use(uint64_t *p, uint64_t len, uint64_t stamp)
{
	uint64_t words = align_up(len, 4096) / 8;

	for (uint64_t i = 0; i < words; i += 64)
		p[i] = stamp + i;
	for (uint64_t i = 0; i < words; i += 64)
		ck_assert_uint_eq(p[i], stamp + i);
}

static void *worker(void *arg)
{
	static const uint64_t lens[] = {100, 64 * KIB, 100000, 256 * KIB, 300000, 700000, 3 * MIB};
	uint64_t id = (uint64_t)(uintptr_t)arg, rng = id, had = 0;

	for (unsigned i = 0; i < 400; i++) {
		uint64_t len = lens[rnd(&rng, 7)];
		bool hurry = rnd(&rng, 4) == 0;
		void *p;
		int r = staging_get(pool, len, hurry ? clock_ns() + rnd(&rng, 200000) : UINT64_MAX, &p);

		ck_assert(r == 0 || (hurry && r == -ETIMEDOUT));
		if (r)
			continue;
		use(p, len, id << 32 | i);
		staging_put(pool, p, len);
		had++;
	}
	ck_assert_uint_gt(had, 200);
	return NULL;
}

static void *watcher(void *arg)
{
	while (!atomic_load(&over)) {
		struct staging_stats st = stats();

		ck_assert(st.out + st.kept <= st.bound || (st.out == 3 * MIB && !st.kept));
		usleep(100);
	}
	return NULL;
}

START_TEST(many_at_once)
{
	pthread_t threads[8], watch;
	struct staging_stats st;

	ck_assert_int_eq(pthread_create(&watch, NULL, watcher, NULL), 0);
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(watch, NULL);
	st = stats();
	ck_assert_uint_eq(st.out, 0);
	ck_assert_uint_eq(st.waiting, 0);
	ck_assert_uint_gt(st.waits, 0);
	ck_assert_uint_le(st.kept, st.bound);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("staging");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, lengths);
	tcase_add_test(tc, warm);
	tcase_add_test(tc, resident);
	tcase_add_test(tc, bound);
	tcase_add_test(tc, larger_than_the_bound);
	tcase_add_test(tc, first_come_first_served);
	tcase_add_test(tc, in_order);
	tcase_add_test(tc, deadline);
	tcase_add_test(tc, no_memory);
	tcase_add_test(tc, many_at_once);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
