/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object costs the master in memory, which has a limit, and what operations cost as objects grow in number,
 * which is only printed. master_scale [objects]: all in one directory, one block each, names of 24 bytes. By default
 * 200,000 of them, and 5 million with FLUXKV_TEST_LONG.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/bench/core_driver.h"
#include "tests/bench/resident.h"

#define NAME_LEN CORE_DRIVER_NAME
#define SAMPLE 20000u
#define OBJECTS 200000u
#define OBJECTS_LONG 5000000u
#define BYTES_MAX 200 /* an object beside its name */

/* What surrounds each allocation then is none of the master's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

struct scale {
	struct core_driver d;
	uint64_t made;
};

/* Ends the program when a request failed. */
static void must(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(-r));
		exit(1);
	}
}

static void put(struct scale *s, uint64_t k)
{
	must(core_driver_put(&s->d, k, NULL), "put");
}

static void read_page(struct scale *s, uint64_t cookie)
{
	struct msg *m = msg_new(MSG_READDIR);

	m->u.readdir.dir = s->d.dir;
	m->u.readdir.cookie = cookie;
	m->u.readdir.max = 10;
	must(core_driver_call(&s->d, 1, m, NULL, NULL), "readdir");
}

static void start(struct scale *s)
{
	must(core_driver_start(&s->d, false), "start");
}

/* Processor time: other programs do not count. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static double per_op(uint64_t began, uint64_t n)
{
	return (double)(cpu_ns() - began) / (double)n;
}

/* Grows to n objects and times operations there: on spread out names, and after the page cache of the CPU is cold. */
static void grow_to(struct scale *s, uint64_t n)
{
	uint64_t began = cpu_ns(), first = s->made, step = n / SAMPLE ? n / SAMPLE : 1, id;
	double t_put, t_lookup, t_over, t_del, t_read;

	while (s->made < n)
		put(s, s->made++);
	t_put = per_op(began, n - first);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE; k++)
		must(core_driver_lookup(&s->d, k * step % n, NULL), "lookup");
	t_lookup = per_op(began, SAMPLE);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE; k++)
		read_page(s, 3 + k * step % n * 3);
	t_read = per_op(began, SAMPLE);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE / 2; k++) {
		must(core_driver_put(&s->d, k * step % n, &id), "overwrite");
		/* the orphan goes at once, as without an open handle */
		must(core_driver_let_go(&s->d, id), "acknowledge");
	}
	t_over = per_op(began, SAMPLE / 2);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE / 2 && k < n / 2; k++)
		must(core_driver_delete(&s->d, n - 1 - k, NULL), "delete");
	t_del = per_op(began, SAMPLE / 2);
	for (uint64_t k = 0; k < SAMPLE / 2 && k < n / 2; k++)
		put(s, n - 1 - k);
	printf("# %9llu objects: put %5.0f, lookup %5.0f, overwrite %5.0f, delete %5.0f, 10 of readdir %5.0f ns\n",
	       (unsigned long long)n, t_put, t_lookup, t_over, t_del, t_read);
}

static void leave(struct scale *s)
{
	uint64_t began = cpu_ns();

	must(core_driver_call(&s->d, 1, msg_new(MSG_LEAVE), NULL, NULL), "leave");
	printf("# everything dropped in %.0f ms\n", per_op(began, 1) / 1e6);
}

/* First of all, while the process has no memory of other things to give. Returns the bytes of an object. */
static double memory_of(uint64_t n)
{
	struct scale s = {.made = 0};
	struct core_counts c;
	uint64_t before;
	double bytes;

	start(&s);
	before = resident_bytes();
	while (s.made < n)
		put(&s, s.made++);
	core_counts(s.d.core, &c);
	bytes = (double)(resident_bytes() - before) / (double)n - NAME_LEN;
	printf("# %.1f bytes an object beside its name of %d (resident); inodes, tables, directory have %.1f\n", bytes,
	       NAME_LEN, (double)c.memory / (double)n);
	leave(&s);
	core_driver_end(&s.d);
	return bytes;
}

static uint64_t objects(int argc, char **argv)
{
	if (argc > 1)
		return strtoull(argv[1], NULL, 0);
	return getenv("FLUXKV_TEST_LONG") ? OBJECTS_LONG : OBJECTS;
}

int main(int argc, char **argv)
{
	uint64_t n = objects(argc, argv);
	struct scale s = {.made = 0};
	double bytes;
	bool ok;

	if (!n)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	bytes = memory_of(n);
	start(&s);
	for (uint64_t k = 10000; k < n; k *= 10)
		grow_to(&s, k);
	grow_to(&s, n);
	core_driver_end(&s.d);
	ok = SANITIZED || (bytes > 0 && bytes <= BYTES_MAX);
	printf("1..1\n%s 1 - %llu objects, at most %d bytes each beside the name%s\n", ok ? "ok" : "not ok",
	       (unsigned long long)n, BYTES_MAX, SANITIZED ? " # SKIP memory under a sanitizer" : "");
	return !ok;
}
