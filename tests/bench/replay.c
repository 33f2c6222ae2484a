/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "tests/bench/crew.h"
#include "tests/bench/stamp.h"
#include "tests/bench/stop.h"

#define KEY_LEN 64

struct run {
	struct bench *b;
	const struct trace *trace;
	const struct target *t;
	atomic_size_t next;    /* the request that a thread takes next */
	struct tally *tallies; /* one a thread */
};

/* One thread's view. */
struct worker {
	struct run *r;
	struct tally *tally;
	unsigned number;
	char *buf;
};

void tally_free(struct tally *t)
{
	samples_free(&t->hit);
	samples_free(&t->miss);
	samples_free(&t->store);
}

static int failed(const struct worker *w, const char *what, const char *key)
{
	return fault_set(&w->r->b->fault, -errno, "%s of block %s on %s: %s", what, key, w->r->t->name,
			 strerror(errno));
}

/* "ab/ab12...": a hash of the id in 16 digits, in the directory that its first digits name. */
static void block_key(unsigned digits, uint64_t id, char key[KEY_LEN])
{
	unsigned long long h = hash_u64(id + 1);

	if (digits)
		snprintf(key, KEY_LEN, "%.*llx/%016llx", (int)digits, h >> (64 - 4 * digits), h);
	else
		snprintf(key, KEY_LEN, "%016llx", h);
}

/* Reads the whole block and one byte more, which must not be there. */
static int read_block(const struct worker *w, int fd, const char *key)
{
	size_t size = w->r->b->o->block_bytes, got = 0;
	ssize_t n;

	while (got <= size) {
		n = read(fd, w->buf + got, size + 1 - got);
		if (n < 0)
			return failed(w, "read", key);
		if (n == 0)
			break;
		got += (size_t)n;
	}
	if (got != size)
		return fault_set(&w->r->b->fault, -EBADMSG, "block %s on %s has a wrong length", key, w->r->t->name);
	return 0;
}

static int check_block(const struct worker *w, uint64_t id, const char *key)
{
	const struct bench_options *o = w->r->b->o;
	uint64_t bad;

	if (stamp_check(w->buf, o->block_bytes, stamp_base(o->seed, id), 0, &bad))
		return 0;
	return fault_set(&w->r->b->fault, -EBADMSG, "block %s on %s: the byte at offset %llu is wrong", key,
			 w->r->t->name, (unsigned long long)bad);
}

/* 1: it was there and right, 0: it was not there, or a negative errno. */
static int fetch(const struct worker *w, uint64_t id, const char *key)
{
	uint64_t start = clock_ns();
	int fd = openat(w->r->t->dirfd, key, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0 && errno != ENOENT)
		return failed(w, "open", key);
	if (fd < 0) {
		w->tally->misses++;
		return samples_add(&w->tally->miss, (double)(clock_ns() - start) / NS_PER_SEC);
	}
	r = read_block(w, fd, key);
	close(fd);
	if (r == 0)
		r = samples_add(&w->tally->hit, (double)(clock_ns() - start) / NS_PER_SEC);
	if (r == 0)
		r = check_block(w, id, key);
	w->tally->hits += r == 0;
	return r < 0 ? r : 1;
}

/* Opens a file for writing; its directory may have to be made first. */
static int open_new(const struct worker *w, const char *name, int flags)
{
	int dirfd = w->r->t->dirfd, fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
	char dir[KEY_LEN];

	if (fd >= 0 || errno != ENOENT || !strchr(name, '/'))
		return fd;
	snprintf(dir, sizeof(dir), "%.*s", (int)(strchr(name, '/') - name), name);
	if (mkdirat(dirfd, dir, 0755) < 0 && errno != EEXIST)
		return -1;
	return openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
}

/* 0, or -1 with errno. */
static int write_block(const struct worker *w, int fd)
{
	size_t size = w->r->b->o->block_bytes;
	ssize_t n = write(fd, w->buf, size);

	if (n >= 0 && (size_t)n != size) {
		errno = EIO;
		return -1;
	}
	return n < 0 ? -1 : 0;
}

/* Writes the block under its final name, or under another one and renames it. 0, or -1 with errno. */
static int put_block(const struct worker *w, const char *key)
{
	bool rename = w->r->b->o->store == STORE_RENAME;
	char temp[KEY_LEN + 16];
	int fd, saved;

	snprintf(temp, sizeof(temp), rename ? "%s.tmp%u" : "%s", key, w->number);
	fd = open_new(w, temp, rename ? O_EXCL : O_TRUNC);
	if (fd < 0)
		return -1;
	if (write_block(w, fd) < 0)
		goto undo;
	if (close(fd) < 0) {
		fd = -1;
		goto undo;
	}
	fd = -1;
	if (!rename || !renameat(w->r->t->dirfd, temp, w->r->t->dirfd, key))
		return 0;
undo:
	saved = errno;
	if (fd >= 0)
		close(fd);
	unlinkat(w->r->t->dirfd, temp, 0);
	errno = saved;
	return -1;
}

static int store(const struct worker *w, uint64_t id, const char *key)
{
	const struct bench_options *o = w->r->b->o;
	uint64_t start;
	int r;

	stamp_fill(w->buf, o->block_bytes, stamp_base(o->seed, id), 0);
	start = clock_ns();
	r = put_block(w, key);
	if (r < 0 && errno == ENOSPC) { /* a cache goes on without this block */
		w->tally->no_space++;
		return 0;
	}
	if (r < 0)
		return failed(w, "store", key);
	w->tally->stores++;
	return samples_add(&w->tally->store, (double)(clock_ns() - start) / NS_PER_SEC);
}

static int serve(const struct worker *w, const struct trace_request *q)
{
	char key[KEY_LEN];
	bool missed = false;
	uint64_t id;
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->n; i++) {
		if (stop_wanted())
			return -EINTR;
		id = w->r->trace->ids[q->first + i];
		block_key(w->r->b->o->digits, id, key);
		if (!missed) {
			r = fetch(w, id, key);
			if (r < 0)
				return r;
			missed = r == 0;
			r = 0;
		}
		if (missed)
			r = store(w, id, key);
	}
	return r;
}

static int work(void *arg, unsigned thread, uint64_t *ret_ns)
{
	struct run *run = arg;
	struct worker w = {.r = run, .tally = &run->tallies[thread], .number = thread, .buf = run->b->bufs[thread]};
	uint64_t start = clock_ns();
	size_t i;
	int r = 0;

	while (r == 0 && (i = atomic_fetch_add(&run->next, 1)) < run->trace->n_requests)
		r = serve(&w, &run->trace->requests[i]);
	*ret_ns = clock_ns() - start;
	return r;
}

static int merge(struct tally *to, const struct tally *from)
{
	int r = samples_merge(&to->hit, &from->hit);

	if (r == 0)
		r = samples_merge(&to->miss, &from->miss);
	if (r == 0)
		r = samples_merge(&to->store, &from->store);
	to->hits += from->hits;
	to->misses += from->misses;
	to->stores += from->stores;
	to->no_space += from->no_space;
	return r;
}

int replay(struct bench *b, const struct trace *trace, const struct target *t, struct tally *ret, uint64_t *ret_ns)
{
	struct run run = {.b = b, .trace = trace, .t = t};
	struct tally all = {0};
	int r;

	run.tallies = calloc(b->o->threads, sizeof(*run.tallies));
	if (!run.tallies)
		return -ENOMEM;
	r = crew_run(b->o->threads, work, &run, ret_ns);
	for (unsigned i = 0; r == 0 && i < b->o->threads; i++)
		r = merge(&all, &run.tallies[i]);
	for (unsigned i = 0; i < b->o->threads; i++)
		tally_free(&run.tallies[i]);
	free(run.tallies);
	if (r < 0)
		tally_free(&all);
	else
		*ret = all;
	return r;
}
