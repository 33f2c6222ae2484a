/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refill: values that are only on the SSD tier, read by several threads, against fio on the same device in turn. The
 * values are put once; before each run they are evicted from memory, which works as soon as they are on the SSD.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/child.h"
#include "tests/bench/fio.h"
#include "tests/bench/stamp.h"
#include "tests/bench/stop.h"

#define TIER_LEN 64

struct refill {
	struct bench *b;
	struct target disk; /* the directory that fio reads in */
	char file[PATH_MAX + 16];
	struct set set;
};

static int evict_once(const struct bench *b, const char *path, struct errmsg *e)
{
	const char *const shell[] = {"sh", "-c", b->o->evict_cmd, "evict", path, NULL};
	const char *const plain[] = {b->o->fluxkv, "evict", "--tier", "dram", path, NULL};
	const char *const socket[] = {b->o->fluxkv, "--socket", b->o->socket, "evict", "--tier", "dram", path, NULL};

	return child_run(b->o->evict_cmd ? shell : b->o->socket ? socket : plain, NULL, NULL, e);
}

/* A value that was put a moment ago is not on the SSD yet, and its last copy is not evicted: asks again. */
static int evict(struct bench *b, const char *path, uint64_t deadline)
{
	const struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
	struct errmsg e = {{0}};
	int r;

	while ((r = evict_once(b, path, &e)) == -EAGAIN && clock_ns() < deadline) {
		if (stop_wanted())
			return -EINTR;
		nanosleep(&pause, NULL);
	}
	return r < 0 ? fault_set(&b->fault, r, "cannot evict %s from memory: %s", path, e.text) : 0;
}

/* FluxKV says where a value is; elsewhere there is nothing to ask, and tier is empty. */
static void get_tier(const char *path, char tier[TIER_LEN])
{
	ssize_t n = getxattr(path, "user.fluxkv.tier", tier, TIER_LEN - 1);

	tier[n < 0 ? 0 : n] = '\0';
}

/* Evicts the value unless it is on the SSD only, as it must be afterwards. */
static int settle(struct bench *b, const char *path, uint64_t deadline)
{
	char tier[TIER_LEN];
	int r;

	get_tier(path, tier);
	if (!strcmp(tier, "ssd"))
		return 0;
	r = evict(b, path, deadline);
	if (r < 0)
		return r;
	get_tier(path, tier);
	if (*tier && strcmp(tier, "ssd"))
		return fault_set(&b->fault, -EIO, "%s was evicted from memory, but is on '%s'", path, tier);
	return 0;
}

static int evict_set(struct refill *f, const struct set *s)
{
	uint64_t deadline = clock_ns() + f->b->o->timeout * NS_PER_SEC, ns;
	char path[PATH_MAX + 32], name[SET_NAME_LEN];
	/* The kernel may have pages of what it read before. First, because this opens, and so would refill. */
	int r = set_run(f->b, s, SET_DROP, 0, &ns);

	for (unsigned i = 0; r == 0 && i < s->n; i++) {
		set_name(s->from + i, name);
		snprintf(path, sizeof(path), "%s/%s", s->t->path, name);
		r = settle(f->b, path, deadline);
	}
	return r;
}

/*
 * Puts the values a few at a time, each batch when the one before is out of memory: what is put faster than the device
 * writes would at some point not be persisted at all, and then never be evicted.
 */
static int put_settled(struct refill *f)
{
	struct set batch = f->set;
	uint64_t ns;
	int r = 0;

	for (batch.from = 0; r == 0 && batch.from < f->set.n; batch.from += batch.n) {
		batch.n = f->set.n - batch.from < f->b->o->threads ? f->set.n - batch.from : f->b->o->threads;
		batch.first_id = f->set.first_id + batch.from;
		r = set_run(f->b, &batch, SET_PUT, 0, &ns);
		if (r == 0)
			r = evict_set(f, &batch);
	}
	return r;
}

/* Fills the file with real bytes, so that no file system answers from an unwritten extent. 0 or a negative errno. */
static int fill_file(const struct bench *b, int fd, uint64_t bytes)
{
	uint64_t base = stamp_base(b->o->seed, UINT32_MAX), off = 0;
	size_t want;
	ssize_t n;

	while (off < bytes) {
		want = bytes - off < b->buf_len ? (size_t)(bytes - off) : b->buf_len;
		stamp_fill(b->bufs[0], want, base, off);
		if (stop_wanted())
			return -EINTR;
		n = write(fd, b->bufs[0], want);
		if (n < 0)
			return -errno;
		off += (uint64_t)n;
	}
	if (fsync(fd) < 0)
		return -errno;
	return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Writes the file that fio reads. */
static int write_file(struct refill *f, uint64_t bytes)
{
	int fd = open(f->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), r;

	r = fd < 0 ? -errno : fill_file(f->b, fd, bytes);
	if (fd >= 0)
		close(fd);
	return r < 0 ? fault_set(&f->b->fault, r, "cannot write %s: %s", f->file, strerror(-r)) : 0;
}

static int measure_fio(struct refill *f, const struct report_key *key, unsigned round)
{
	struct bench *b = f->b;
	struct errmsg e = {{0}};
	double rate;
	int r = fio_randread(f->file, f->set.n * f->set.size, f->set.size, b->o->threads, &rate, &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	return round < b->o->warmup ? 0 : report_add(b->report, key, "fio", rate);
}

static int measure_size(struct refill *f, uint64_t size)
{
	struct bench *b = f->b;
	struct report_key key = {.op = "refill", .state = "cold", .size = size, .unit = REPORT_BYTES_PER_S};
	uint64_t ns;
	int r;

	f->set = (struct set){.t = &b->targets[0], .size = size, .n = set_count(b->o, size)};
	r = put_settled(f);
	if (r == 0)
		r = write_file(f, f->set.n * size);
	for (unsigned round = 0; r == 0 && round < b->o->warmup + b->o->runs; round++) {
		r = evict_set(f, &f->set);
		if (r == 0)
			r = set_measure(b, &f->set, SET_READ, 0, &key, round);
		if (r == 0)
			r = measure_fio(f, &key, round);
	}
	if (r == 0)
		r = set_run(b, &f->set, SET_REMOVE, 0, &ns);
	return r;
}

int cmd_refill(struct bench *b)
{
	struct refill f = {.b = b, .disk = TARGET_CLOSED};
	struct errmsg e = {{0}};
	int r = target_open(&f.disk, "fio", b->o->ssd_dir, &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	snprintf(f.file, sizeof(f.file), "%s/fio", f.disk.path);
	for (unsigned i = 0; r == 0 && i < b->o->sizes.n; i++)
		r = measure_size(&f, b->o->sizes.v[i]);
	target_close(&f.disk);
	return r;
}
