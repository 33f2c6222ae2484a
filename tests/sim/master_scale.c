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
#include <unistd.h>

#include "common/clock.h"
#include "master/core.h"

#define NAME_LEN 24
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
	struct core *core;
	struct core_out out;
	uint64_t tag, dir, now, made;
};

static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long size = 0, rss = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &rss) != 2)
		rss = 0;
	fclose(f);
	return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Hands the request in; the answer's interesting parts. Ends the program when it is not 0. */
static void must(struct scale *s, struct msg *m, struct msg *ret, uint64_t *ret_alloc)
{
	m->node = 1;
	m->req_id = 1;
	m->tomb_tag = s->tag;
	s->now++;
	if (core_handle(s->core, m, s->now, (int64_t)s->now, &s->out) < 0 || m->status) {
		fprintf(stderr, "%s: %d\n", msg_type_name(m->type), m->status);
		exit(1);
	}
	if (ret)
		*ret = *m;
	if (ret_alloc)
		*ret_alloc = m->items[0].alloc;
	for (size_t k = 0; k < s->out.n_msgs; k++)
		msg_free(s->out.msgs[k].msg);
	s->out.n_msgs = 0;
	if (s->out.writes.counter)
		core_committed(s->core, s->out.writes.counter);
	writes_clear(&s->out.writes);
}

static void name_of(uint64_t k, char name[MSG_NAME_MAX + 1])
{
	/* as the hashes that name KV blocks: no order, all of one length */
	snprintf(name, MSG_NAME_MAX + 1, "%0*llx", NAME_LEN, (unsigned long long)(k * 0x9e3779b97f4a7c15ull));
}

/* Returns the version it replaced. */
static uint64_t put(struct scale *s, uint64_t k)
{
	struct msg *m = msg_new(MSG_PUT_START), ret;
	uint64_t alloc, ticket;

	m->u.put.dir = s->dir;
	m->u.put.bytes = 4096;
	must(s, m, &ret, &alloc);
	ticket = ret.u.put.ticket;
	m = msg_new(MSG_PUT_DONE);
	m->u.put.ticket = ticket;
	m->u.put.dir = s->dir;
	m->u.put.bytes = 4000;
	name_of(k, m->u.put.name);
	msg_alloc_items(m, 1);
	m->items[0] = (struct msg_item){.alloc = alloc, .bytes = 4000, .flags = MSG_ITEM_MEM};
	must(s, m, &ret, NULL);
	return ret.u.entry.replaced_id;
}

static void named(struct scale *s, enum msg_type type, uint64_t k)
{
	struct msg *m = msg_new(type);

	m->u.name.dir = s->dir;
	name_of(k, m->u.name.name);
	must(s, m, NULL, NULL);
}

static void read_page(struct scale *s, uint64_t cookie)
{
	struct msg *m = msg_new(MSG_READDIR);

	m->u.readdir.dir = s->dir;
	m->u.readdir.cookie = cookie;
	m->u.readdir.max = 10;
	must(s, m, NULL, NULL);
}

static void start(struct scale *s)
{
	const struct core_config cfg = {.auto_namespace = true, .hash_seed = 1};
	struct msg *m = msg_new(MSG_JOIN), ret;

	s->core = core_new(&cfg);
	core_load_end(s->core, &s->out);
	core_committed(s->core, s->out.writes.counter);
	m->u.join.capacity = 1ull << 50;
	strcpy(m->u.join.instance_key, "scale");
	must(s, m, &ret, NULL);
	s->tag = ret.u.join.tomb_tag;
	m = msg_new(MSG_MKDIR);
	m->u.name.dir = MSG_ROOT_DIR;
	strcpy(m->u.name.name, "ns");
	must(s, m, &ret, NULL);
	s->dir = ret.u.entry.a.id;
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
	struct msg *m;

	while (s->made < n)
		put(s, s->made++);
	t_put = per_op(began, n - first);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE; k++)
		named(s, MSG_LOOKUP, k * step % n);
	t_lookup = per_op(began, SAMPLE);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE; k++)
		read_page(s, 3 + k * step % n * 3);
	t_read = per_op(began, SAMPLE);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE / 2; k++) {
		id = put(s, k * step % n);
		/* the orphan goes at once, as without an open handle */
		m = msg_new(MSG_DELETE_ACK);
		msg_alloc_items(m, 1);
		m->items[0].put_id = id;
		must(s, m, NULL, NULL);
	}
	t_over = per_op(began, SAMPLE / 2);
	began = cpu_ns();
	for (uint64_t k = 0; k < SAMPLE / 2 && k < n / 2; k++)
		named(s, MSG_DELETE, n - 1 - k);
	t_del = per_op(began, SAMPLE / 2);
	for (uint64_t k = 0; k < SAMPLE / 2 && k < n / 2; k++)
		put(s, n - 1 - k);
	printf("# %9llu objects: put %5.0f, lookup %5.0f, overwrite %5.0f, delete %5.0f, 10 of readdir %5.0f ns\n",
	       (unsigned long long)n, t_put, t_lookup, t_over, t_del, t_read);
}

static void leave(struct scale *s)
{
	uint64_t began = cpu_ns();

	must(s, msg_new(MSG_LEAVE), NULL, NULL);
	printf("# everything dropped in %.0f ms\n", per_op(began, 1) / 1e6);
}

/* First of all, while the process has no memory of other things to give. Returns the bytes of an object. */
static double memory_of(uint64_t n)
{
	struct scale s = {0};
	struct core_counts c;
	uint64_t before;
	double bytes;

	start(&s);
	before = resident();
	while (s.made < n)
		put(&s, s.made++);
	core_counts(s.core, &c);
	bytes = (double)(resident() - before) / (double)n - NAME_LEN;
	printf("# %.1f bytes an object beside its name of %d (resident); inodes, tables, directory have %.1f\n", bytes,
	       NAME_LEN, (double)c.memory / (double)n);
	leave(&s);
	core_free(s.core);
	core_out_clear(&s.out);
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
	struct scale s = {0};
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
	core_free(s.core);
	core_out_clear(&s.out);
	ok = SANITIZED || (bytes > 0 && bytes <= BYTES_MAX);
	printf("1..1\n%s 1 - %llu objects, at most %d bytes each beside the name%s\n", ok ? "ok" : "not ok",
	       (unsigned long long)n, BYTES_MAX, SANITIZED ? " # SKIP memory under a sanitizer" : "");
	return !ok;
}
