/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SSD tier as a whole, on real files: /var/tmp is the first device, /dev/shm the second. What needs root (a loop
 * device, a ramfs) is skipped aloud without it. FLUXKV_TEST_SEED=n replays one seed of the mixed load.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/size.h"
#include "ssd/internal.h"
#include "ssd/root.h"
#include "ssd/ssd.h"
#include "tests/unit/ssd_faulty.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define IDS 4096u

static char dir_a[80], dir_b[80];
static struct ssd_root roots[2];
static struct ssd_config cfg;
static struct ssd_store *store;
static struct faulty faulty;
static struct errmsg e;
static pthread_mutex_t gone_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned gone[IDS], n_gone, largest_batch;
static atomic_int eintr_storm;

/* Every second wait for completions is interrupted, or finds the kernel busy, before or after it has submitted. */
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	static const int errors[] = {-EINTR, -EAGAIN, -EBUSY};
	int turn = atomic_load(&eintr_storm) ? atomic_fetch_add(&eintr_storm, 1) : 0;

	if (turn % 2 == 0)
		return __real_io_uring_submit_and_wait(ring, n);
	if (turn % 4 == 1)
		io_uring_submit(ring);
	return errors[turn / 2 % 3];
}

/* The n-th allocation from now on fails; 0: none does. */
static atomic_int fail_alloc;

static bool alloc_fails(void)
{
	return atomic_load(&fail_alloc) > 0 && atomic_fetch_sub(&fail_alloc, 1) == 1;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return alloc_fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return alloc_fails() ? NULL : __real_calloc(n, size);
}

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return alloc_fails() ? NULL : __real_aligned_alloc(align, size);
}

static void on_evicted(void *arg, const struct ssd_key *keys, size_t n)
{
	pthread_mutex_lock(&gone_lock);
	for (size_t i = 0; i < n; i++)
		gone[keys[i].id % IDS]++;
	n_gone += (unsigned)n;
	if (n > largest_batch)
		largest_batch = (unsigned)n;
	pthread_mutex_unlock(&gone_lock);
}

static char base_a[64], base_b[64], mnt[80]; /* made and removed by the parent process, whatever a test does */

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_msg(!system(cmd), "%s", cmd);
}

static void make_bases(void)
{
	strcpy(base_a, "/var/tmp/fluxkv-ssd-XXXXXX");
	strcpy(base_b, "/dev/shm/fluxkv-ssd-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base_a));
	ck_assert_ptr_nonnull(mkdtemp(base_b));
	snprintf(mnt, sizeof(mnt), "%s/mnt", base_a);
	ck_assert_int_eq(mkdir(mnt, 0700), 0);
}

static void remove_bases(void)
{
	/* The loop device of it goes with the mount. */
	umount2(mnt, MNT_DETACH);
	run("rm -rf -- '%s' '%s'", base_a, base_b);
}

static void setup(void)
{
	snprintf(dir_a, sizeof(dir_a), "%s/a", base_a);
	snprintf(dir_b, sizeof(dir_b), "%s/b", base_b);
	umount2(mnt, MNT_DETACH);
	run("rm -rf -- '%s' '%s' '%s/image' && mkdir '%s' '%s'", dir_a, dir_b, base_a, dir_a, dir_b);
	/* What goes wrong here is meant to. */
	log_set_level((enum log_level)0);
	faulty_init(&faulty, 1);
	roots[0] = (struct ssd_root){.path = dir_a, .limit = 16 * MIB};
	roots[1] = (struct ssd_root){.path = dir_b, .limit = 16 * MIB};
	cfg = (struct ssd_config){
	    .roots = roots,
	    .n_roots = 1,
	    .cluster_name = "c",
	    .instance_key = "node/1",
	    .direct = true,
	    .retry_seconds = 1,
	    .evicted = on_evicted,
	    .io = &faulty.ops,
	};
}

static void teardown(void)
{
	faulty_hold(&faulty, 0);
	store = ssd_store_close(store);
}

static void open_store(void)
{
	int r = ssd_store_open(&cfg, &store, &e);

	ck_assert_msg(!r, "%s", e.text);
}

static struct ssd_stats stats(void)
{
	struct ssd_stats st;

	ssd_stats(store, &st);
	return st;
}

static struct ssd_key key(uint64_t id)
{
	return (struct ssd_key){.id = id, .block = (uint32_t)id};
}

/* A buffer of whole pages, payload and zeros. */
struct buf {
	unsigned char *p;
	uint64_t len, size;
};

static struct buf buf_new(uint64_t len)
{
	struct buf b = {.len = len, .size = align_up(len, 4096)};

	b.p = mmap(NULL, b.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(b.p != MAP_FAILED);
	return b;
}

static void buf_free(struct buf *b)
{
	munmap(b->p, b->size);
}

/* Bytes that only this id has. */
static void fill(struct buf *b, uint64_t id)
{
	uint64_t x = hash_u64(id + 1);

	for (uint64_t i = 0; i + 8 <= b->len; i += 8) {
		uint64_t w = x + i * 0x9e3779b97f4a7c15ull;

		memcpy(b->p + i, &w, 8);
	}
	for (uint64_t i = b->len & ~UINT64_C(7); i < b->len; i++)
		b->p[i] = (unsigned char)(x >> (i % 8 * 8));
}

static bool filled(const unsigned char *p, uint64_t len, uint64_t id)
{
	struct buf want = buf_new(len);
	bool same;

	fill(&want, id);
	same = !memcmp(want.p, p, len);
	buf_free(&want);
	return same;
}

/* One request and what came of it. */
struct call {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ended;
	int err;
	uint64_t sum;
	struct buf buf;
	uint64_t id;
	/* of a read that tells its progress */
	uint64_t told;
	const unsigned char *at; /* the target and what is to come there, or NULL */
	struct buf want;
};

static void call_done(void *arg, int err, uint64_t sum)
{
	struct call *c = arg;

	pthread_mutex_lock(&c->lock);
	ck_assert(!c->ended);
	c->ended = true;
	c->err = err;
	c->sum = sum;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

static void call_ready(void *arg, uint64_t bytes)
{
	struct call *c = arg;

	/* No lock of the store's is held: this would wait for ever. */
	ssd_has(store, key(c->id));
	pthread_mutex_lock(&c->lock);
	ck_assert(!c->ended);
	ck_assert_uint_gt(bytes, c->told);
	if (c->at) {
		ck_assert_uint_le(bytes, c->want.len);
		ck_assert(!memcmp(c->at + c->told, c->want.p + c->told, bytes - c->told));
	}
	c->told = bytes;
	pthread_mutex_unlock(&c->lock);
}

static uint64_t call_told(struct call *c)
{
	uint64_t told;

	pthread_mutex_lock(&c->lock);
	told = c->told;
	pthread_mutex_unlock(&c->lock);
	return told;
}

static struct call *call_new(uint64_t id, uint64_t len)
{
	struct call *c = calloc(1, sizeof(*c));

	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->cond, NULL);
	c->buf = buf_new(len);
	c->id = id;
	return c;
}

static bool call_ended(struct call *c)
{
	bool ended;

	pthread_mutex_lock(&c->lock);
	ended = c->ended;
	pthread_mutex_unlock(&c->lock);
	return ended;
}

/* One that was never begun. */
static void call_forget(struct call *c)
{
	buf_free(&c->buf);
	if (c->want.p)
		buf_free(&c->want);
	free(c);
}

static int call_join(struct call *c)
{
	int err;

	pthread_mutex_lock(&c->lock);
	while (!c->ended)
		pthread_cond_wait(&c->cond, &c->lock);
	err = c->err;
	pthread_mutex_unlock(&c->lock);
	return err;
}

/* Waits for it, frees it, returns its error. */
static int call_wait(struct call *c)
{
	int err = call_join(c);

	call_forget(c);
	return err;
}

static struct call *start_write(uint64_t id, uint64_t len, unsigned flags, int *ret)
{
	struct call *c = call_new(id, len);

	fill(&c->buf, id);
	*ret = ssd_write(store, key(id), c->buf.p, len, NULL, flags, call_done, c);
	if (*ret) {
		call_forget(c);
		return NULL;
	}
	return c;
}

static struct call *must_start_write(uint64_t id, uint64_t len, unsigned flags)
{
	int r;
	struct call *c = start_write(id, len, flags, &r);

	ck_assert_int_eq(r, 0);
	return c;
}

static int write_one(uint64_t id, uint64_t len, unsigned flags)
{
	int r;
	struct call *c = start_write(id, len, flags, &r);

	return c ? call_wait(c) : r;
}

/* Writes it, and lets the ring have it. */
static void put(uint64_t id, uint64_t len)
{
	ck_assert_int_eq(write_one(id, len, SSD_WAIT), 0);
	ssd_commit_done(store, key(id));
}

static struct call *start_read(uint64_t id, uint64_t len, int *ret)
{
	struct call *c = call_new(id, len);

	*ret = ssd_read_progress(store, key(id), c->buf.p, c->buf.size, len, call_ready, call_done, c);
	if (*ret) {
		call_forget(c);
		return NULL;
	}
	return c;
}

/* Reads it, and its bytes are right if it says so. */
static int get(uint64_t id, uint64_t len)
{
	struct call *c;
	int r;

	c = start_read(id, len, &r);
	if (!c)
		return r;
	if (!call_join(c)) {
		ck_assert_uint_eq(c->told, len);
		ck_assert(filled(c->buf.p, len, id));
		ck_assert_uint_eq(c->sum, hash_bytes(c->buf.p, len, 0));
	}
	return call_wait(c);
}

/* All that the ledger counts is 0. A copy to head that nobody waits for any longer may have to run out first. */
static void check_ledger_empty(void)
{
	uint64_t start = clock_ns();
	struct ssd_stats st = stats();

	while (st.dev[0].io_in_flight + st.dev[1].io_in_flight && clock_ns() - start < 5 * NS_PER_SEC) {
		usleep(1000);
		st = stats();
	}

	ck_assert_uint_eq(st.used, 0);
	ck_assert_uint_eq(st.held, 0);
	ck_assert_uint_eq(st.entries, 0);
	ck_assert_uint_eq(st.queued, 0);
	ck_assert_uint_eq(st.backlog, 0);
	for (unsigned i = 0; i < st.n_devices; i++) {
		ck_assert_uint_eq(st.dev[i].queued_reads, 0);
		ck_assert_uint_eq(st.dev[i].queued_writes, 0);
		ck_assert_uint_eq(st.dev[i].io_in_flight, 0);
	}
}

static int open_media(unsigned shard)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/c_cluster_kv_ssd_storage/node%%2F1/shard-%u", dir_a, shard);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* What is in a shard file. */
static ssize_t read_media(unsigned shard, struct buf *ret)
{
	int fd = open_media(shard);
	ssize_t n = pread(fd, ret->p, ret->size, 0);

	ck_assert_int_gt(n, 0);
	close(fd);
	return n;
}

static const uint64_t lengths[] = {1, 511, 512, 513, 4095, 4096, 4097, 65536, MIB - 128, MIB, MIB + 1, 3 * MIB + 7};

static void round_trip(void)
{
	const unsigned n = sizeof(lengths) / sizeof(lengths[0]);

	open_store();
	for (unsigned i = 0; i < n; i++) {
		put(i, lengths[i]);
		ck_assert(ssd_has(store, key(i)));
		ck_assert_int_eq(get(i, lengths[i]), 0);
	}
	ck_assert_int_eq(get(0, 2), -EINVAL);
	ck_assert_int_eq(get(99, 2), -ENOENT);
	ck_assert_int_eq(write_one(0, 1, 0), -EEXIST);
	ck_assert_uint_eq(stats().entries, n);
	for (unsigned i = 0; i < n; i++) {
		ssd_drop(store, key(i));
		ck_assert_int_eq(get(i, lengths[i]), -ENOENT);
	}
	check_ledger_empty();
	ck_assert_uint_eq(stats().evicted, 0);
}

START_TEST(test_round_trip)
{
	round_trip();
}
END_TEST

START_TEST(test_buffered)
{
	cfg.direct = false;
	round_trip();
}
END_TEST

/* Through the scratch buffers: a target at an odd address, with not a byte more than the payload. */
START_TEST(test_scratch)
{
	const unsigned n = sizeof(lengths) / sizeof(lengths[0]);

	open_store();
	for (unsigned i = 0; i < n; i++) {
		struct call *c = call_new(i, 4 * MIB);
		uint64_t len = lengths[i];

		put(i, len);
		memset(c->buf.p, 0x55, len + 64);
		ck_assert_int_eq(ssd_read(store, key(i), c->buf.p + 3, len, len, call_done, c), 0);
		call_join(c);
		ck_assert(filled(c->buf.p + 3, len, i));
		ck_assert(c->buf.p[2] == 0x55 && c->buf.p[len + 3] == 0x55);
		ck_assert_int_eq(call_wait(c), 0);
	}
}
END_TEST

/* An aligned target, and no room for the padding behind the payload. */
START_TEST(test_tight_capacity)
{
	open_store();
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct call *c = call_new(i, lengths[i] + 4096);
		uint64_t len = lengths[i];

		put(i, len);
		memset(c->buf.p, 0x55, c->buf.size);
		ck_assert_int_eq(ssd_read(store, key(i), c->buf.p, len, len, call_done, c), 0);
		ck_assert_int_eq(ssd_read(store, key(i), c->buf.p, len - 1, len, call_done, c), -EINVAL);
		call_join(c);
		ck_assert(filled(c->buf.p, len, i));
		ck_assert(c->buf.p[len] == 0x55);
		ck_assert_int_eq(call_wait(c), 0);
	}
}
END_TEST

/* What is written of a value from an odd address, and its padding: zeros, whatever was in the scratch buffer before. */
START_TEST(test_padding)
{
	struct buf *media = &(struct buf){0};
	struct call *c = call_new(1, 2 * MIB);
	const unsigned char *at;

	cfg.shards_per_device = 1;
	open_store();
	memset(c->buf.p, 0xaa, c->buf.size);
	ck_assert_int_eq(ssd_write(store, key(1), c->buf.p + 1, MIB, NULL, 0, call_done, c), 0);
	ck_assert_int_eq(call_wait(c), 0);
	c = call_new(2, 2 * MIB);
	memset(c->buf.p, 0x77, c->buf.size);
	ck_assert_int_eq(ssd_write(store, key(2), c->buf.p + 1, 1000, NULL, 0, call_done, c), 0);
	ck_assert_int_eq(call_wait(c), 0);
	*media = buf_new(16 * MIB);
	ck_assert_int_eq(read_media(0, media), 16 * MIB);
	at = media->p + MIB;
	for (unsigned i = 0; i < 1024; i++)
		ck_assert_uint_eq(at[i], i < 1000 ? 0x77 : 0);
	buf_free(media);
}
END_TEST

/* More of them at once than there are scratch buffers. */
START_TEST(test_scratch_runs_out)
{
	enum { N = 40, LEN = 64 << 10 }; /* small: the read window must not be what ends first */
	struct call *c[N];

	open_store();
	put(1, LEN);
	faulty_hold(&faulty, FAULTY_READ);
	for (unsigned i = 0; i < N; i++) {
		c[i] = call_new(1, 2 * LEN);
		ck_assert_int_eq(ssd_read(store, key(1), c[i]->buf.p + 1, LEN, LEN, call_done, c[i]), 0);
	}
	faulty_wait_held(&faulty, 16);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(call_wait(c[i]), 0);
}
END_TEST

/* Large reads go one after the other: no more than the window is in flight, and the first is not behind the others. */
START_TEST(test_read_window)
{
	enum { N = 4 };
	const unsigned window = SSD_READ_WINDOW / SSD_PIECE;
	struct call *c[N];

	open_store();
	put(1, 3 * MIB);
	faulty_hold(&faulty, FAULTY_READ);
	for (unsigned i = 0; i < N; i++) {
		c[i] = call_new(1, 3 * MIB);
		ck_assert_int_eq(ssd_read(store, key(1), c[i]->buf.p, 3 * MIB, 3 * MIB, call_done, c[i]), 0);
	}
	faulty_wait_held(&faulty, window);
	usleep(20000); /* what would come beyond the window has the time to come */
	ck_assert_uint_eq(stats().dev[0].io_in_flight, window);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(call_wait(c[i]), 0);
}
END_TEST

START_TEST(test_known_sum)
{
	struct call *c = call_new(1, 5000), *d = call_new(2, 5000);
	uint64_t sum, wrong = 12345;

	open_store();
	fill(&c->buf, 1);
	fill(&d->buf, 2);
	sum = hash_bytes(c->buf.p, 5000, 0);
	ck_assert_int_eq(ssd_write(store, key(1), c->buf.p, 5000, &sum, 0, call_done, c), 0);
	ck_assert_int_eq(ssd_write(store, key(2), d->buf.p, 5000, &wrong, 0, call_done, d), 0);
	ck_assert_int_eq(call_wait(c), 0);
	ck_assert_int_eq(call_wait(d), 0);
	ck_assert_int_eq(get(1, 5000), 0);
	ck_assert_int_eq(get(2, 5000), -EBADMSG);
}
END_TEST

/* Turns one bit in the middle of the shard files, wherever `id` has its bytes. */
static void flip_media(uint64_t id, uint64_t len)
{
	struct buf want = buf_new(len), have = buf_new(16 * MIB);
	unsigned flipped = 0;

	fill(&want, id);
	for (unsigned shard = 0; shard < 4; shard++) {
		ssize_t n = read_media(shard, &have);
		unsigned char *at = memmem(have.p, (size_t)n, want.p, len);
		int fd;

		if (!at)
			continue;
		at[len / 2] ^= 4;
		fd = open_media(shard);
		ck_assert_int_eq(pwrite(fd, at + len / 2, 1, at + len / 2 - have.p), 1);
		ck_assert_int_eq(fsync(fd), 0);
		close(fd);
		flipped++;
	}
	ck_assert_uint_eq(flipped, 1);
	buf_free(&want);
	buf_free(&have);
}

/* A read to `off` behind a page's begin, with so much room, of which each byte is looked at when it is said to be
 * there. */
static struct call *start_watched(uint64_t id, uint64_t len, unsigned off, uint64_t capacity)
{
	struct call *c = call_new(id, off + capacity);

	c->at = c->buf.p + off;
	c->want = buf_new(len);
	fill(&c->want, id);
	ck_assert_int_eq(ssd_read_progress(store, key(id), c->buf.p + off, capacity, len, call_ready, call_done, c), 0);
	return c;
}

/* What is told is there: straight, through scratch buffers, and both; whatever the order in which pieces come back. */
START_TEST(test_progress)
{
	faulty.lose_order = 5;
	open_store();
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t len = lengths[i];
		struct call *c[3];

		put(i, len);
		c[0] = start_watched(i, len, 0, align_up(len, 4096));
		c[1] = start_watched(i, len, 3, len);
		c[2] = start_watched(i, len, 0, len);
		for (unsigned k = 0; k < 3; k++) {
			ck_assert_int_eq(call_join(c[k]), 0);
			ck_assert_uint_eq(c[k]->told, len);
			ck_assert_uint_eq(c[k]->sum, hash_bytes(c[k]->want.p, len, 0));
			ck_assert_int_eq(call_wait(c[k]), 0);
		}
	}
}
END_TEST

/* The parts behind come first, and say nothing; those in front say how far it goes on, long before the end. */
START_TEST(test_progress_reordered)
{
	const uint64_t len = 4 * MIB - 5;
	struct call *c;

	cfg.shards_per_device = 1;
	open_store();
	put(1, len);
	faulty_hold(&faulty, FAULTY_READ);
	c = start_watched(1, len, 0, 4 * MIB);
	faulty_wait_held(&faulty, 4);
	for (unsigned left = 3; left > 1; left--) {
		faulty_release_last(&faulty, FAULTY_READ);
		faulty_wait_let_go(&faulty, left);
	}
	usleep(20000);
	ck_assert_uint_eq(call_told(c), 0);
	faulty_release_last(&faulty, FAULTY_READ);
	faulty_wait_let_go(&faulty, 1);
	usleep(20000);
	ck_assert_uint_eq(call_told(c), 0);
	faulty_hold(&faulty, 0);
	ck_assert_int_eq(call_join(c), 0);
	ck_assert_uint_eq(c->told, len);
	call_wait(c);
}
END_TEST

START_TEST(test_progress_before_the_end)
{
	const uint64_t len = 8 * MIB - 5;
	struct call *c;
	unsigned reads;

	cfg.shards_per_device = 1;
	open_store();
	put(1, len);
	reads = faulty_reads(&faulty);
	faulty_hold(&faulty, FAULTY_READ);
	c = start_watched(1, len, 0, 8 * MIB);
	/* One comes back, the next goes out: then the first half is there, and of the other nothing. */
	for (unsigned i = 1; i <= 4; i++) {
		faulty_wait_held(&faulty, 4);
		faulty_release(&faulty, FAULTY_READ);
		while (faulty_reads(&faulty) < reads + 4 + i)
			usleep(1000);
	}
	while (call_told(c) < 4 * MIB)
		usleep(1000);
	usleep(20000);
	ck_assert_uint_eq(call_told(c), 4 * MIB);
	ck_assert(!call_ended(c));
	faulty_hold(&faulty, 0);
	ck_assert_int_eq(call_join(c), 0);
	ck_assert_uint_eq(c->told, len);
	call_wait(c);
}
END_TEST

/* The n-th part fails: what was told before holds, and nothing is told any more. */
START_TEST(test_progress_fails)
{
	const uint64_t len = 4 * MIB;

	cfg.shards_per_device = 1;
	for (unsigned n = 0; n < 4; n++) {
		struct call *c;
		uint64_t told;

		open_store();
		put(n, len);
		faulty_hold(&faulty, FAULTY_READ);
		faulty_fail(&faulty, FAULTY_READ, n, 1, -EIO, -1);
		c = start_watched(n, len, 0, len);
		faulty_wait_held(&faulty, 4);
		/* They are held in the order they came, so the bad one is the n-th to go. */
		for (unsigned i = 0; i < n; i++) {
			faulty_release(&faulty, FAULTY_READ);
			faulty_wait_let_go(&faulty, 3 - i);
		}
		usleep(20000);
		told = call_told(c);
		ck_assert(told % MIB == 0 && told <= n * MIB);
		faulty_hold(&faulty, 0);
		ck_assert_int_eq(call_join(c), -EIO);
		ck_assert_uint_eq(c->told, told);
		ck_assert_int_eq(call_wait(c), -EIO);
		store = ssd_store_close(store);
	}
}
END_TEST

static void *release_later(void *arg)
{
	usleep(50000);
	faulty_hold(&faulty, 0);
	return NULL;
}

/* What is cancelled in the middle tells no more. */
START_TEST(test_progress_closing)
{
	const uint64_t len = 8 * MIB;
	struct call *c;
	pthread_t thread;

	cfg.shards_per_device = 1;
	open_store();
	put(1, len);
	faulty_hold(&faulty, FAULTY_READ);
	c = start_watched(1, len, 0, len);
	faulty_wait_held(&faulty, 4);
	faulty_release(&faulty, FAULTY_READ);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_later, NULL), 0);
	store = ssd_store_close(store);
	pthread_join(thread, NULL);
	ck_assert(call_ended(c));
	ck_assert_uint_lt(c->told, len);
	ck_assert_int_eq(call_wait(c), -ECANCELED);
}
END_TEST

/* Told and done are two things: that it is what was written, only the end says. */
START_TEST(test_progress_of_flipped_bytes)
{
	struct call *c = call_new(1, 3 * MIB);

	open_store();
	put(1, 3 * MIB);
	flip_media(1, 3 * MIB);
	ck_assert_int_eq(ssd_read_progress(store, key(1), c->buf.p, 3 * MIB, 3 * MIB, call_ready, call_done, c), 0);
	ck_assert_int_eq(call_join(c), -EBADMSG);
	ck_assert_uint_eq(c->told, 3 * MIB);
	call_wait(c);
}
END_TEST

START_TEST(test_flipped_bytes)
{
	open_store();
	put(1, 100 * KIB);
	put(2, 100 * KIB);
	flip_media(1, 100 * KIB);
	ck_assert_int_eq(get(1, 100 * KIB), -EBADMSG);
	ck_assert(!ssd_has(store, key(1)));
	ck_assert_int_eq(get(1, 100 * KIB), -ENOENT);
	ck_assert_int_eq(get(2, 100 * KIB), 0);
	ck_assert_uint_eq(stats().checksum_errors, 1);
	store = ssd_store_close(store);
	ck_assert_uint_eq(gone[1], 1);
	ck_assert_uint_eq(gone[2], 0);
}
END_TEST

/* Several times round: a value is there, whole, or it has been named in a notice; never both, never neither. */
START_TEST(test_overwrite)
{
	const unsigned n = 900;
	struct ssd_stats st;
	unsigned there = 0;

	open_store();
	for (unsigned i = 0; i < n; i++)
		put(i, 30000 + i * 37);
	st = stats();
	for (unsigned i = 0; i < n; i++) {
		int r = get(i, 30000 + i * 37);

		ck_assert(r == 0 || r == -ENOENT);
		there += !r;
	}
	ck_assert_uint_eq(st.evicted + there, n);
	ck_assert_uint_gt(there, 180);
	ck_assert_uint_le(st.used, st.capacity);
	ck_assert_uint_eq(st.notices_lost, 0);
	for (unsigned i = 0; i < n; i++)
		ck_assert(ssd_has(store, key(i)) || i < n - there + 60);
	store = ssd_store_close(store);
	ck_assert_uint_eq(n_gone, n - there);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_le(gone[i], 1);
}
END_TEST

/* Notices come in batches, of 256 at most, and 10 ms after the first at the latest. */
START_TEST(test_notices)
{
	uint64_t start;
	unsigned n;

	cfg.max_entries = 2000;
	cfg.shards_per_device = 1;
	roots[0].limit = 2 * MIB;
	open_store();
	for (unsigned i = 0; i < 2000; i++)
		put(i, 512);
	start = clock_ns();
	put(2000, 512);
	do {
		usleep(1000);
		pthread_mutex_lock(&gone_lock);
		n = n_gone;
		pthread_mutex_unlock(&gone_lock);
	} while (!n && clock_ns() - start < 5 * NS_PER_SEC);
	ck_assert_uint_eq(n, 1);
	put(2001, MIB + 512 * KIB);
	store = ssd_store_close(store);
	ck_assert_uint_gt(n_gone, 300);
	ck_assert_uint_eq(largest_batch, 256);
}
END_TEST

START_TEST(test_max_entries)
{
	cfg.max_entries = 100;
	open_store();
	for (unsigned i = 0; i < 1000; i++)
		put(i, 1000);
	ck_assert_uint_eq(stats().entries, 100);
	ck_assert_uint_eq(stats().evicted, 900);
	ck_assert_int_eq(get(999, 1000), 0);
	for (unsigned i = 900; i < 1000; i++)
		ck_assert_int_eq(ssd_hold(store, key(i)), 0);
	ck_assert_int_eq(write_one(1000, 1000, 0), -ENOBUFS);
}
END_TEST

/* Held values outlive any number of laps, with their bytes; held ones of odd sizes are copied together. */
START_TEST(test_held)
{
	struct ssd_stats st;
	unsigned id = 0;

	open_store();
	for (; id < 64; id++) {
		put(id, id % 2 ? 100000 + id : 4096);
		if (id % 4 < 2)
			ck_assert_int_eq(ssd_hold(store, key(id)), 0);
	}
	for (; id < 1200; id++)
		put(id, 200000 + id * 11);
	st = stats();
	ck_assert_uint_gt(st.kept_in_place, 0);
	ck_assert_uint_gt(st.copied_to_head, 0);
	ck_assert_uint_gt(st.copied_bytes, 0);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(get(i, i % 2 ? 100000 + i : 4096), i % 4 < 2 ? 0 : -ENOENT);
	for (unsigned i = 0; i < 64; i++)
		if (i % 4 < 2)
			ssd_unhold(store, key(i));
	ck_assert_uint_eq(stats().held, 0);
	for (; id < 1600; id++)
		put(id, 200000);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(get(i, i % 2 ? 100000 + i : 4096), -ENOENT);
	for (unsigned i = 0; i < id; i++)
		ssd_drop(store, key(i));
	check_ledger_empty();
}
END_TEST

START_TEST(test_mostly_held)
{
	unsigned id;
	int r = 0;

	open_store();
	for (id = 0; id < 16; id++) {
		put(id, MIB);
		if (id < 12)
			ck_assert_int_eq(ssd_hold(store, key(id)), 0);
	}
	for (; id < 24 && !r; id++)
		r = write_one(id, MIB, 0);
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_ge(stats().dropped_held, 1);
	for (unsigned i = 0; i < 12; i++)
		ck_assert_int_eq(get(i, MIB), 0);
	/* One that may not be dropped takes the last quarter, and is told when there is no more. */
	for (r = 0; id < 40 && !r; id++) {
		r = write_one(id, MIB, SSD_WAIT);
		ck_assert_int_eq(ssd_hold(store, key(id)), r ? -ENOENT : 0);
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_ge(stats().held, 14 * MIB);
	for (unsigned i = 0; i < 12; i++)
		ck_assert_int_eq(get(i, MIB), 0);
}
END_TEST

/* A drop of a held entry takes effect at the last unhold. */
START_TEST(test_drop_held)
{
	open_store();
	put(1, 5000);
	ck_assert_int_eq(ssd_hold(store, key(1)), 0);
	ck_assert_int_eq(ssd_hold(store, key(1)), 0);
	ssd_drop(store, key(1));
	ssd_unhold(store, key(1));
	ck_assert_int_eq(get(1, 5000), 0);
	ssd_unhold(store, key(1));
	ck_assert_int_eq(get(1, 5000), -ENOENT);
	ck_assert_int_eq(ssd_hold(store, key(1)), -ENOENT);
	check_ledger_empty();
	store = ssd_store_close(store);
	ck_assert_uint_eq(n_gone, 0);
}
END_TEST

/* The ring waits for commit pins, reads go on meanwhile, and the wait ends when they do. */
START_TEST(test_commit_pin)
{
	struct call *c;

	cfg.shards_per_device = 1;
	roots[0].limit = 4 * MIB;
	open_store();
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(write_one(i, MIB, 0), 0);
	c = must_start_write(4, MIB, 0);
	ck_assert_int_eq(get(0, MIB), 0);
	ck_assert_int_eq(get(3, MIB), 0);
	ssd_commit_done(store, key(1));
	ck_assert_int_eq(get(1, MIB), 0);
	ck_assert(!call_ended(c));
	ck_assert_uint_eq(stats().busy_waits, 1);
	ssd_commit_done(store, key(0));
	ck_assert_int_eq(call_wait(c), 0);
	ck_assert_int_eq(get(0, MIB), -ENOENT);
	ck_assert_int_eq(get(1, MIB), 0);
}
END_TEST

/* A write that waits for room can be dropped, and the next one gets its turn. */
START_TEST(test_drop_waiting)
{
	struct call *c, *d;

	cfg.shards_per_device = 1;
	roots[0].limit = 4 * MIB;
	open_store();
	ck_assert_int_eq(write_one(0, 3 * MIB, 0), 0);
	c = must_start_write(1, 2 * MIB, SSD_WAIT);
	d = must_start_write(2, MIB, 0);
	ck_assert_int_eq(get(0, 3 * MIB), 0);
	ck_assert(!call_ended(c) && !call_ended(d));
	ssd_drop(store, key(1));
	ck_assert_int_eq(call_wait(c), -ECANCELED);
	ck_assert_int_eq(call_wait(d), 0);
}
END_TEST

/* Over the limit the oldest that has not been begun goes, but not one that may not be dropped. */
START_TEST(test_backlog)
{
	struct call *c[40];
	unsigned dropped = 0;
	int r;

	roots[0].limit = 64 * MIB;
	cfg.backlog_limit = 32 * MIB;
	open_store();
	faulty_hold(&faulty, FAULTY_WRITE);
	for (unsigned i = 0; i < 16; i++)
		c[i] = must_start_write(i, MIB, 0);
	/* The write window: 16 MiB are in flight, the rest is queued. */
	faulty_wait_held(&faulty, 16);
	for (unsigned i = 16; i < 40; i++)
		c[i] = must_start_write(i, MIB, i == 20 ? SSD_WAIT : 0);
	ck_assert_uint_eq(stats().backlog, 32 * MIB);
	for (unsigned i = 16; i < 25; i++) {
		if (i == 20)
			continue;
		ck_assert_int_eq(call_wait(c[i]), -ENOBUFS);
		dropped++;
	}
	ck_assert_uint_eq(stats().dropped_backlog, dropped);
	ck_assert_ptr_null(start_write(100, 17 * MIB, 0, &r));
	ck_assert_int_eq(r, -EFBIG);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < 40; i++)
		if (i < 16 || i == 20 || i > 24)
			ck_assert_int_eq(call_wait(c[i]), 0);
	ck_assert_uint_eq(stats().backlog, 0);
	ck_assert_uint_eq(stats().writes_ok, 40 - dropped);
}
END_TEST

/* The queue is full: the oldest in it goes, as it does for the weight; a write that waits its turn does not. */
START_TEST(test_long_queue)
{
	static struct call *c[128 + SSD_QUEUE_MAX + 10];
	const unsigned n = sizeof(c) / sizeof(c[0]), in_flight = 128, dropped = 10;

	roots[0].limit = 128 * MIB;
	open_store();
	faulty_hold(&faulty, FAULTY_WRITE);
	for (unsigned i = 0; i < in_flight; i++)
		c[i] = must_start_write(i, 512, 0);
	faulty_wait_held(&faulty, in_flight);
	for (unsigned i = in_flight; i < n; i++)
		c[i] = must_start_write(i, 512, i == in_flight + 3 || i == n - 1 ? SSD_WAIT : 0);
	ck_assert_uint_eq(stats().dev[0].queued_writes, SSD_QUEUE_MAX);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < n; i++) {
		bool old = i >= in_flight && i <= in_flight + dropped && i != in_flight + 3;

		ck_assert_int_eq(call_wait(c[i]), old ? -ENOBUFS : 0);
	}
	ck_assert_uint_eq(stats().dropped_backlog, dropped);
}
END_TEST

/* Counts who was done before it; the first of all keeps the finisher until all of the others are there. */
struct turn {
	unsigned n;
	bool wait;
};

static atomic_uint turns;
static atomic_bool turn_waits;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER; /* held by the test while the first is to wait */

static void turn_done(void *arg, int err, uint64_t sum)
{
	struct turn *t = arg;

	if (t->wait) {
		atomic_store(&turn_waits, true);
		pthread_mutex_lock(&turn_lock);
		pthread_mutex_unlock(&turn_lock);
	}
	t->n = err ? UINT32_MAX : atomic_fetch_add(&turns, 1);
}

/* Reads whose bytes are there do not keep a write's checksum, and with it the write, from its end. */
START_TEST(test_sums_have_their_turn)
{
	static struct turn t[42];
	struct buf b = buf_new(MIB), bufs[40];

	roots[0].limit = 64 * MIB;
	open_store();
	for (unsigned i = 0; i < 40; i++) {
		put(i, 256 * KIB);
		bufs[i] = buf_new(256 * KIB);
	}
	atomic_store(&turns, 0);
	pthread_mutex_lock(&turn_lock);
	t[0].wait = true;
	for (unsigned i = 0; i < 40; i++)
		ck_assert_int_eq(ssd_read(store, key(i), bufs[i].p, bufs[i].size, bufs[i].len, turn_done, &t[i]), 0);
	while (!atomic_load(&turn_waits))
		usleep(1000);
	ck_assert_int_eq(ssd_write(store, key(100), b.p, MIB, NULL, 0, turn_done, &t[40]), 0);
	/* All of it has been read and written, and waits for the finisher. */
	while (stats().dev[0].queued_reads || stats().dev[0].queued_writes || stats().dev[0].io_in_flight)
		usleep(1000);
	pthread_mutex_unlock(&turn_lock);
	while (atomic_load(&turns) < 41)
		usleep(1000);
	ck_assert_uint_lt(t[40].n, 20);
	for (unsigned i = 0; i < 40; i++)
		buf_free(&bufs[i]);
	store = ssd_store_close(store);
	buf_free(&b);
}
END_TEST

START_TEST(test_drop_in_every_state)
{
	struct call *writing, *queued[20], *reading;
	int r;

	roots[0].limit = 64 * MIB;
	open_store();
	put(1, MIB);
	faulty_hold(&faulty, FAULTY_READ | FAULTY_WRITE);
	reading = start_read(1, MIB, &r);
	writing = must_start_write(2, MIB, 0);
	faulty_wait_held(&faulty, 2);
	for (unsigned i = 0; i < 20; i++)
		queued[i] = must_start_write(10 + i, MIB, 0);
	faulty_wait_held(&faulty, 17);
	ssd_drop(store, key(1));
	ssd_drop(store, key(2));
	for (unsigned i = 0; i < 20; i++)
		ssd_drop(store, key(10 + i));
	ck_assert(!ssd_has(store, key(1)));
	/* The key is free again at once. */
	ck_assert_int_eq(ssd_hold(store, key(2)), -ENOENT);
	faulty_hold(&faulty, 0);
	ck_assert_int_eq(call_wait(reading), 0);
	ck_assert_int_eq(call_wait(writing), -ECANCELED);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(call_wait(queued[i]), -ECANCELED);
	check_ledger_empty();
	ck_assert_uint_eq(stats().cancelled, 21);
	put(2, MIB);
	ck_assert_int_eq(get(2, MIB), 0);
}
END_TEST

START_TEST(test_short_write)
{
	open_store();
	put(1, 3 * MIB);
	faulty_shorten(&faulty, FAULTY_WRITE, 1);
	ck_assert_int_eq(write_one(2, 3 * MIB, 0), -EIO);
	ck_assert(!ssd_has(store, key(2)));
	ck_assert_uint_eq(stats().writes_failed, 1);
	ck_assert(!stats().dev[0].failed);
	ck_assert_uint_eq(stats().used, 3 * MIB);
	put(2, 3 * MIB);
	ck_assert_int_eq(get(2, 3 * MIB), 0);
	ck_assert_int_eq(get(1, 3 * MIB), 0);
}
END_TEST

/* A read goes on where it stopped. */
START_TEST(test_short_read)
{
	open_store();
	put(1, 3 * MIB + 100);
	faulty_shorten(&faulty, FAULTY_READ, 30);
	ck_assert_int_eq(get(1, 3 * MIB + 100), 0);
	ck_assert_uint_lt(faulty.count, 26);
	ck_assert(!stats().dev[0].failed);
}
END_TEST

/* The kernel may say "again" for a request; that is no failure. */
START_TEST(test_again)
{
	open_store();
	faulty_fail(&faulty, FAULTY_READ | FAULTY_WRITE, 0, 20, -EAGAIN, -1);
	put(1, 3 * MIB);
	faulty_fail(&faulty, FAULTY_READ | FAULTY_WRITE, 0, 20, -EINTR, -1);
	ck_assert_int_eq(get(1, 3 * MIB), 0);
	ck_assert_uint_eq(faulty.count, 0);
	ck_assert(!stats().dev[0].failed);
}
END_TEST

START_TEST(test_interrupted_waits)
{
	open_store();
	atomic_store(&eintr_storm, 1);
	for (unsigned i = 0; i < 100; i++)
		put(i, 100000);
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(get(i, 100000), 0);
	ck_assert_int_gt(atomic_load(&eintr_storm), 50);
	atomic_store(&eintr_storm, 0);
	ck_assert(!stats().dev[0].failed);
}
END_TEST

static void wait_failed(unsigned device, bool failed)
{
	uint64_t start = clock_ns();

	while (stats().dev[device].failed != failed) {
		ck_assert_uint_lt(clock_ns() - start, 20 * NS_PER_SEC);
		usleep(2000);
	}
}

/* What: the I/O that fails. One device of two goes, with all that it had; the other goes on; it comes back, empty. */
static void device_out_and_back(unsigned what, int error)
{
	unsigned lost = 0, n = 60;
	struct ssd_stats st;
	bool was[60];

	cfg.n_roots = 2;
	open_store();
	ck_assert_uint_eq(stats().n_devices, 2);
	for (unsigned i = 0; i < n; i++)
		put(i, 100000);
	ck_assert_int_eq(ssd_hold(store, key(0)), 0);
	ck_assert_int_eq(ssd_hold(store, key(1)), 0);
	ck_assert_uint_eq(stats().dev[0].entries, 30);
	ck_assert_uint_eq(stats().dev[1].entries, 30);
	pthread_mutex_lock(&faulty.lock);
	faulty.open_error = -ENODEV;
	pthread_mutex_unlock(&faulty.lock);
	faulty_fail(&faulty, what, 0, 1, error, 1);
	if (what == FAULTY_READ)
		ck_assert_int_eq(get(1, 100000), -EIO);
	else
		ck_assert(write_one(100, 1000, 0) == -EIO || write_one(101, 1000, 0) == -EIO);
	wait_failed(1, true);
	st = stats();
	ck_assert(!st.dev[0].failed);
	ck_assert_uint_eq(st.capacity, st.dev[0].capacity);
	for (unsigned i = 0; i < n; i++) {
		int r = get(i, 100000);

		was[i] = !r;
		ck_assert(r == 0 || r == -ENOENT);
		lost += r == -ENOENT;
	}
	ck_assert_uint_eq(lost, 30);
	for (unsigned i = 200; i < 210; i++)
		put(i, 1000);
	ck_assert_uint_ge(stats().dev[0].entries, 40);
	/* It is tried again, and again. */
	usleep(2300 * 1000);
	ck_assert(stats().dev[1].failed);
	pthread_mutex_lock(&faulty.lock);
	ck_assert_uint_ge(faulty.opens, 3);
	faulty.open_error = 0;
	pthread_mutex_unlock(&faulty.lock);
	wait_failed(1, false);
	ck_assert_uint_eq(stats().dev[1].used, 0);
	ck_assert_uint_eq(stats().dev[1].failures, 1);
	for (unsigned i = 300; i < 310; i++) {
		put(i, 100000);
		ck_assert_int_eq(get(i, 100000), 0);
	}
	ck_assert_uint_eq(stats().dev[1].entries, 5);
	ssd_unhold(store, key(0));
	ssd_unhold(store, key(1));
	store = ssd_store_close(store);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(gone[i], was[i] ? 0 : 1);
}

START_TEST(test_device_fails_reading)
{
	device_out_and_back(FAULTY_READ, -EIO);
}
END_TEST

START_TEST(test_device_fails_writing)
{
	device_out_and_back(FAULTY_WRITE, -EROFS);
}
END_TEST

/* Requests of every kind under way when it happens: each ends, and no pin is left. */
START_TEST(test_device_fails_busy)
{
	struct call *writes[60], *reads[20];
	unsigned id = 0;
	int r;

	open_store();
	for (; id < 20; id++)
		put(id, 300000);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(ssd_hold(store, key(i)), 0);
	faulty_hold(&faulty, FAULTY_READ | FAULTY_WRITE);
	faulty_fail(&faulty, FAULTY_READ | FAULTY_WRITE, 25, 100000, -EIO, -1);
	for (unsigned i = 0; i < 20; i++)
		reads[i] = start_read(i, 300000, &r);
	for (unsigned i = 0; i < 60; i++)
		writes[i] = must_start_write(id++, 300000, i % 2 ? SSD_WAIT : 0);
	faulty_wait_held(&faulty, 30);
	pthread_mutex_lock(&faulty.lock);
	faulty.open_error = -EIO;
	pthread_mutex_unlock(&faulty.lock);
	ck_assert_int_eq(get(999, 1), -ENOENT);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < 20; i++) {
		r = call_wait(reads[i]);
		ck_assert(r == 0 || r == -EIO);
	}
	for (unsigned i = 0; i < 60; i++) {
		r = call_wait(writes[i]);
		ck_assert(r == 0 || r == -EIO);
	}
	wait_failed(0, true);
	ck_assert_int_eq(write_one(5000, 100, SSD_WAIT), -ENODEV);
	ck_assert_uint_eq(stats().dropped_no_device, 1);
	faulty_fail(&faulty, 0, 0, 0, 0, -1);
	pthread_mutex_lock(&faulty.lock);
	faulty.open_error = 0;
	pthread_mutex_unlock(&faulty.lock);
	wait_failed(0, false);
	check_ledger_empty();
	put(6000, 300000);
	ck_assert_int_eq(get(6000, 300000), 0);
}
END_TEST

/* Closing while the device is out, and while everything waits. */
START_TEST(test_close_while_failed)
{
	open_store();
	pthread_mutex_lock(&faulty.lock);
	faulty.open_error = -EIO;
	pthread_mutex_unlock(&faulty.lock);
	faulty_fail(&faulty, FAULTY_WRITE, 0, 1, -EIO, -1);
	ck_assert_int_eq(write_one(1, 1000, 0), -EIO);
	wait_failed(0, true);
	store = ssd_store_close(store);
}
END_TEST

START_TEST(test_close_while_busy)
{
	struct call *c[60], *reads[10];
	unsigned ok = 0, cancelled = 0;
	pthread_t thread;
	int r;

	open_store();
	for (unsigned i = 0; i < 10; i++)
		put(i, 100000);
	faulty_hold(&faulty, FAULTY_READ | FAULTY_WRITE);
	for (unsigned i = 0; i < 10; i++)
		reads[i] = start_read(i, 100000, &r);
	for (unsigned i = 0; i < 60; i++)
		c[i] = must_start_write(100 + i, MIB, 0);
	faulty_wait_held(&faulty, 20);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_later, NULL), 0);
	store = ssd_store_close(store);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert(call_ended(reads[i]));
		r = call_wait(reads[i]);
		ck_assert(r == 0 || r == -ECANCELED);
	}
	for (unsigned i = 0; i < 60; i++) {
		ck_assert(call_ended(c[i]));
		r = call_wait(c[i]);
		ok += !r;
		cancelled += r == -ECANCELED;
	}
	ck_assert_uint_eq(ok + cancelled, 60);
	ck_assert_uint_gt(cancelled, 30);
}
END_TEST

/* Each allocation fails in turn: an error or success, nothing half done, nothing leaked (ASan looks). */
START_TEST(test_no_memory)
{
	struct call *c;
	bool failed = true;
	int n = 1, r;

	cfg.io = NULL;
	for (; failed; n++) {
		atomic_store(&fail_alloc, n);
		r = ssd_store_open(&cfg, &store, &e);
		failed = !atomic_exchange(&fail_alloc, 0);
		ck_assert(r == 0 ? !failed : r == -ENOMEM);
		if (!r)
			store = ssd_store_close(store);
	}
	ck_assert_int_gt(n, 8);
	open_store();
	failed = true;
	for (n = 1; failed; n++) {
		c = call_new(1, 1000);
		fill(&c->buf, 1);
		atomic_store(&fail_alloc, n);
		r = ssd_write(store, key(1), c->buf.p, 1000, NULL, 0, call_done, c);
		failed = !atomic_exchange(&fail_alloc, 0);
		ck_assert_int_eq(r, failed ? -ENOMEM : 0);
		if (!r)
			ck_assert_int_eq(call_wait(c), 0);
		else
			call_forget(c);
	}
	ck_assert_int_eq(n, 5);
	c = call_new(1, 1000);
	atomic_store(&fail_alloc, 1);
	ck_assert_int_eq(ssd_read(store, key(1), c->buf.p, c->buf.size, 1000, call_done, c), -ENOMEM);
	call_forget(c);
	ck_assert_int_eq(get(1, 1000), 0);
	ssd_drop(store, key(1));
	check_ledger_empty();
	ck_assert_uint_eq(stats().dropped_memory, 3);
}
END_TEST

/* Waits until n requests in all have been put in flight; says how many of them were reads. */
static unsigned wait_submitted(unsigned n)
{
	unsigned reads = 0, writes = 0;

	while (reads + writes < n) {
		usleep(500);
		pthread_mutex_lock(&faulty.lock);
		reads = faulty.reads;
		writes = faulty.writes;
		pthread_mutex_unlock(&faulty.lock);
	}
	ck_assert_uint_eq(reads + writes, n);
	return reads;
}

/*
 * Twelve writes fill the depth, and more of both wait. As the writes come back, one by one, reads take their places,
 * until there are more than two of them for each write; from then on writes take the places of writes.
 */
START_TEST(test_read_bias)
{
	struct call *writes[40], *reads[40];
	int r;

	cfg.io_depth = 12;
	open_store();
	put(1, 4096);
	faulty_hold(&faulty, FAULTY_READ | FAULTY_WRITE);
	pthread_mutex_lock(&faulty.lock);
	faulty.reads = faulty.writes = 0;
	pthread_mutex_unlock(&faulty.lock);
	for (unsigned i = 0; i < 40; i++)
		writes[i] = must_start_write(100 + i, 4096, 0);
	ck_assert_uint_eq(wait_submitted(12), 0);
	for (unsigned i = 0; i < 40; i++)
		reads[i] = start_read(1, 4096, &r);
	for (unsigned i = 1; i <= 20; i++) {
		faulty_release(&faulty, FAULTY_WRITE);
		ck_assert_uint_eq(wait_submitted(12 + i), i < 8 ? i : 8);
	}
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < 40; i++) {
		ck_assert_int_eq(call_wait(reads[i]), 0);
		ck_assert_int_eq(call_wait(writes[i]), 0);
	}
}
END_TEST

/* A mixed load of some threads under reordered and delayed completions, against what each thread knows of its keys. */
struct worker {
	pthread_t thread;
	uint64_t rng;
	unsigned id;
	unsigned written, read, missing;
};

static uint64_t rnd(struct worker *w, uint64_t n)
{
	w->rng += 0x9e3779b97f4a7c15ull;
	return hash_u64(w->rng) % n;
}

#define PER_WORKER 40u

struct known {
	uint64_t len;
	bool there, held;
};

static void worker_step(struct worker *w, struct known *k, uint64_t id)
{
	uint64_t what = rnd(w, 12);

	if (!k->there) {
		uint64_t len = 1 + rnd(w, rnd(w, 4) ? 60000 : 1200000);
		int r = write_one(id, len, rnd(w, 2) ? SSD_WAIT : 0);

		ck_assert_msg(r == 0 || r == -ENOBUFS || r == -ENOSPC, "write: %d", r);
		k->there = !r;
		k->len = len;
		w->written += !r;
		if (!r && rnd(w, 3) == 0)
			k->held = !ssd_hold(store, key(id));
		if (!r)
			ssd_commit_done(store, key(id));
	} else if (what < 8) {
		int r = get(id, k->len);

		ck_assert_msg(r == 0 || r == -ENOENT, "read: %d", r);
		ck_assert(!r || !k->held);
		k->there = !r;
		w->read += !r;
		w->missing += !!r;
	} else if (what < 10 && k->held) {
		ssd_unhold(store, key(id));
		k->held = false;
	} else if (!k->held) {
		ssd_drop(store, key(id));
		k->there = false;
	}
}

/* What a device that does not answer has been given is all that it is given. */
START_TEST(test_silent_device_gets_no_more)
{
	struct call *held[2];

	cfg.n_roots = 2;
	open_store();
	faulty_hold_device(&faulty, FAULTY_WRITE, 1);
	for (unsigned i = 0; i < 2; i++)
		held[i] = must_start_write(i, 1000, 0);
	for (unsigned i = 2; i < 40; i++)
		put(i, 1000);
	ck_assert_uint_eq(stats().dev[0].entries, 39);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(call_wait(held[i]), 0);
		ssd_commit_done(store, key(i));
	}
	for (unsigned i = 40; i < 60; i++)
		put(i, 1000);
	ck_assert_uint_eq(stats().dev[1].entries, 11);
}
END_TEST

/* One that must refuse, for what is held there, never has anything to write: it is not taken for that reason. */
START_TEST(test_full_of_held_is_passed_over)
{
	struct call *c[6];
	uint64_t held = 0;
	unsigned n = 0;

	cfg.n_roots = 2;
	open_store();
	/* No more free than the next would need. */
	while (held + MIB < stats().dev[0].capacity) {
		unsigned i = n++;

		ck_assert_uint_lt(i, 100);
		put(i, MIB);
		if (ssd_device_of(store, key(i)) == 0) {
			ck_assert_int_eq(ssd_hold(store, key(i)), 0);
			held += MIB;
		}
	}
	faulty_hold_device(&faulty, FAULTY_WRITE, 1);
	for (unsigned i = 0; i < 6; i++)
		c[i] = must_start_write(200 + i, MIB, 0);
	faulty_wait_held(&faulty, 1);
	faulty_hold(&faulty, 0);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(call_wait(c[i]), 0);
		ssd_commit_done(store, key(200 + i));
	}
}
END_TEST

static void *worker(void *arg)
{
	struct known known[PER_WORKER] = {0};
	struct worker *w = arg;

	for (unsigned i = 0; i < 1500; i++) {
		unsigned k = (unsigned)rnd(w, PER_WORKER);

		worker_step(w, &known[k], w->id * PER_WORKER + k);
	}
	for (unsigned k = 0; k < PER_WORKER; k++) {
		if (known[k].held)
			ssd_unhold(store, key(w->id * PER_WORKER + k));
		ssd_drop(store, key(w->id * PER_WORKER + k));
	}
	return NULL;
}

static void mixed_load(uint64_t seed)
{
	struct worker workers[4] = {0};
	unsigned read = 0, written = 0;

	faulty_init(&faulty, seed);
	faulty.lose_order = 5;
	cfg.n_roots = 2;
	cfg.io_depth = 16;
	cfg.backlog_limit = 4 * MIB;
	roots[0].limit = roots[1].limit = 6 * MIB;
	open_store();
	for (unsigned i = 0; i < 4; i++) {
		workers[i] = (struct worker){.rng = hash_u64(seed * 4 + i), .id = i};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker, &workers[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(workers[i].thread, NULL);
		read += workers[i].read;
		written += workers[i].written;
	}
	check_ledger_empty();
	ck_assert_uint_gt(read, 500);
	ck_assert_uint_gt(written, 500);
	ck_assert_uint_gt(stats().evicted, 20);
	ck_assert_uint_gt(stats().copied_to_head + stats().kept_in_place, 0);
	store = ssd_store_close(store);
}

START_TEST(test_mixed_load)
{
	const char *one = getenv("FLUXKV_TEST_SEED");

	if (one) {
		mixed_load(strtoull(one, NULL, 10));
		return;
	}
	for (uint64_t seed = 1; seed <= 3; seed++)
		mixed_load(seed);
}
END_TEST

static void check_refused(int err, const char *word)
{
	struct ssd_store *s = NULL;
	int r = ssd_store_open(&cfg, &s, &e);

	ck_assert_int_eq(r, err);
	ck_assert_ptr_null(s);
	ck_assert_msg(strstr(e.text, word), "\"%s\" is not in: %s", word, e.text);
}

START_TEST(test_second_daemon)
{
	struct ssd_store *second;
	char pid[32];

	open_store();
	snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
	check_refused(-EBUSY, pid);
	/* Refused before anything of the first was touched; and another instance is no business of it. */
	put(1, 1000);
	ck_assert_int_eq(get(1, 1000), 0);
	cfg.instance_key = "node/2";
	ck_assert_int_eq(ssd_store_open(&cfg, &second, &e), 0);
	ssd_store_close(second);
	store = ssd_store_close(store);
	cfg.instance_key = "node/1";
	open_store();
}
END_TEST

START_TEST(test_same_device)
{
	char other[128];
	struct ssd_stats st;

	snprintf(other, sizeof(other), "%s/other", dir_a);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	roots[1] = (struct ssd_root){.path = other, .limit = 8 * MIB};
	cfg.n_roots = 2;
	open_store();
	st = stats();
	ck_assert_uint_eq(st.n_devices, 1);
	ck_assert_str_eq(st.dev[0].path, dir_a);
	ck_assert_uint_eq(st.capacity, 16 * MIB);
	put(1, 1000);
}
END_TEST

START_TEST(test_bad_config)
{
	char file[128];
	int fd;

	roots[0].limit = 511;
	check_refused(-EINVAL, dir_a);
	roots[0].limit = MIB;
	cfg.n_roots = 0;
	check_refused(-EINVAL, "paths");
	cfg.n_roots = 1;
	cfg.shards_per_device = 65;
	check_refused(-EINVAL, "65");
	cfg.shards_per_device = 0;
	cfg.io_depth = 5000;
	check_refused(-EINVAL, "5000");
	cfg.io_depth = 0;
	cfg.instance_key = "";
	check_refused(-EINVAL, "instance key");
	cfg.instance_key = "n";
	snprintf(file, sizeof(file), "%s/file", dir_a);
	roots[0].path = file;
	check_refused(-ENOENT, file);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	check_refused(-ENOTDIR, file);
	roots[0].path = dir_a;
	roots[0].limit = UINT64_C(1) << 60;
	check_refused(-ENOSPC, "1024 PiB");
	roots[0].limit = 512;
	open_store();
	ck_assert_uint_eq(ssd_max_len(store), stats().capacity);
	put(1, 512);
	ck_assert_int_eq(get(1, 512), 0);
}
END_TEST

static unsigned count_files(const char *path, const char *prefix)
{
	DIR *d = opendir(path);
	struct dirent *de;
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	while ((de = readdir(d)))
		n += !strncmp(de->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

static void touch(const char *dir, const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

/* Shard files of an earlier run go, also when that had more of them; nothing else does. */
START_TEST(test_files)
{
	char root[160];
	struct stat st;
	char path[256];

	snprintf(root, sizeof(root), "%s/c_cluster_kv_ssd_storage/node%%2F1", dir_a);
	open_store();
	ck_assert_uint_eq(count_files(root, "shard-"), 4);
	snprintf(path, sizeof(path), "%s/shard-3", root);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 4 * MIB);
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, 4 * MIB);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	store = ssd_store_close(store);
	ck_assert_uint_eq(count_files(root, "shard-"), 0);
	touch(root, "shard-0");
	touch(root, "shard-17");
	touch(root, "shard-x");
	touch(root, "shard-");
	touch(root, "other");
	touch(dir_a, "shard-0");
	cfg.shards_per_device = 2;
	open_store();
	ck_assert_uint_eq(count_files(root, "shard-"), 4);
	ck_assert_uint_eq(count_files(root, "shard-17"), 0);
	store = ssd_store_close(store);
	ck_assert_uint_eq(count_files(root, "shard-"), 2);
	ck_assert_uint_eq(count_files(root, "other"), 1);
	ck_assert_uint_eq(count_files(dir_a, "shard-0"), 1);
}
END_TEST

START_TEST(test_safe_name)
{
	static const char *const names[][2] = {
	    {"node-1_a.b", "node-1_a.b"},
	    {"..", "%2E."},
	    {".", "%2E"},
	    {"a/b", "a%2Fb"},
	    {"a%2Fb", "a%252Fb"},
	    {"../../x", "%2E.%2F..%2Fx"},
	    {"\xc3\xa4 \n", "%C3%A4%20%0A"},
	};
	char name[256], text[300];

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ck_assert_int_eq(ssd_safe_name(names[i][0], name, sizeof(name)), 0);
		ck_assert_str_eq(name, names[i][1]);
	}
	ck_assert_int_eq(ssd_safe_name("", name, sizeof(name)), -EINVAL);
	memset(text, 'a', sizeof(text));
	text[255] = '\0';
	ck_assert_int_eq(ssd_safe_name(text, name, sizeof(name)), 0);
	ck_assert_str_eq(name, text);
	text[255] = 'a';
	text[256] = '\0';
	ck_assert_int_eq(ssd_safe_name(text, name, sizeof(name)), -ENAMETOOLONG);
}
END_TEST

/* A small ext4 of its own on a loop device with this sector size, mounted at mnt. */
static void mount_small(unsigned sector)
{
	run("truncate -s 64M '%s/image' && dev=$(losetup --find --show --sector-size %u '%s/image') && "
	    "{ mkfs.ext4 -q -b 4096 \"$dev\" && mount \"$dev\" '%s'; r=$?; losetup -d \"$dev\"; exit $r; }",
	    base_a, sector, base_a, mnt);
	roots[0].path = mnt;
}

START_TEST(test_full_disk)
{
	mount_small(512);
	roots[0].limit = 200 * MIB;
	check_refused(-ENOSPC, "200 MiB");
	ck_assert_ptr_nonnull(strstr(e.text, mnt));
	run("dd if=/dev/zero of='%s/fill' bs=1M count=30 status=none", mnt);
	roots[0].limit = 40 * MIB;
	check_refused(-ENOSPC, "40 MiB");
	roots[0].limit = 8 * MIB;
	open_store();
	for (unsigned i = 0; i < 30; i++)
		put(i, MIB - 5);
	ck_assert_int_eq(get(29, MIB - 5), 0);
}
END_TEST

/* A device that wants 4 KiB gets 4 KiB, whatever the lengths. */
START_TEST(test_large_sectors)
{
	mount_small(4096);
	round_trip();
	ck_assert_int_eq(write_one(50, 100, 0), 0);
	ck_assert_uint_eq(stats().used, 4096);
}
END_TEST

START_TEST(test_no_direct)
{
	run("mount -t ramfs none '%s'", mnt);
	roots[0].path = mnt;
	check_refused(-EOPNOTSUPP, "ssd_direct: false");
	cfg.direct = false;
	check_refused(-EOPNOTSUPP, "fallocate");
}
END_TEST

/* Unmounted under us and mounted again is a device that went and came back; what was below it is not filled instead. */
START_TEST(test_device_removed)
{
	mount_small(512);
	roots[0].limit = 16 * MIB;
	open_store();
	put(1, MIB);
	run("umount -l '%s'", mnt);
	faulty_fail(&faulty, FAULTY_READ, 0, 1, -ENODEV, -1);
	ck_assert_int_eq(get(1, MIB), -EIO);
	wait_failed(0, true);
	usleep(1500 * 1000);
	ck_assert(stats().dev[0].failed);
	ck_assert_uint_eq(count_files(mnt, "shard"), 0);
	store = ssd_store_close(store);
	ck_assert_uint_eq(gone[1], 1);
}
END_TEST

static TCase *new_case(Suite *suite, const char *name, int timeout)
{
	TCase *tc = tcase_create(name);

	tcase_add_unchecked_fixture(tc, make_bases, remove_bases);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, timeout);
	suite_add_tcase(suite, tc);
	return tc;
}

static void add_start_tests(Suite *suite)
{
	TCase *tc = new_case(suite, "start", 60);

	tcase_add_test(tc, test_second_daemon);
	tcase_add_test(tc, test_same_device);
	tcase_add_test(tc, test_bad_config);
	tcase_add_test(tc, test_files);
	tcase_add_test(tc, test_safe_name);
	if (geteuid()) {
		fprintf(stderr,
			"# NOT TESTED: full disk, large sectors, no O_DIRECT, device removed: these need root\n");
		return;
	}
	tcase_add_test(tc, test_full_disk);
	tcase_add_test(tc, test_large_sectors);
	tcase_add_test(tc, test_no_direct);
	tcase_add_test(tc, test_device_removed);
}

static void add_value_tests(Suite *suite)
{
	TCase *tc = new_case(suite, "values", 120);

	tcase_add_test(tc, test_round_trip);
	tcase_add_test(tc, test_buffered);
	tcase_add_test(tc, test_scratch);
	tcase_add_test(tc, test_tight_capacity);
	tcase_add_test(tc, test_padding);
	tcase_add_test(tc, test_scratch_runs_out);
	tcase_add_test(tc, test_read_window);
	tcase_add_test(tc, test_progress);
	tcase_add_test(tc, test_progress_reordered);
	tcase_add_test(tc, test_progress_before_the_end);
	tcase_add_test(tc, test_progress_fails);
	tcase_add_test(tc, test_progress_of_flipped_bytes);
	tcase_add_test(tc, test_progress_closing);
	tcase_add_test(tc, test_known_sum);
	tcase_add_test(tc, test_flipped_bytes);
	tcase_add_test(tc, test_overwrite);
	tcase_add_test(tc, test_notices);
	tcase_add_test(tc, test_max_entries);
	tcase_add_test(tc, test_held);
	tcase_add_test(tc, test_mostly_held);
	tcase_add_test(tc, test_drop_held);
	tcase_add_test(tc, test_commit_pin);
	tcase_add_test(tc, test_drop_waiting);
	tcase_add_test(tc, test_backlog);
	tcase_add_test(tc, test_long_queue);
	tcase_add_test(tc, test_sums_have_their_turn);
	tcase_add_test(tc, test_drop_in_every_state);
}

static void add_fault_tests(Suite *suite, bool two_devices)
{
	TCase *tc = new_case(suite, "faults", 300);

	tcase_add_test(tc, test_no_memory);
	tcase_add_test(tc, test_short_write);
	tcase_add_test(tc, test_short_read);
	tcase_add_test(tc, test_again);
	tcase_add_test(tc, test_interrupted_waits);
	if (two_devices) {
		tcase_add_test(tc, test_device_fails_reading);
		tcase_add_test(tc, test_device_fails_writing);
		tcase_add_test(tc, test_silent_device_gets_no_more);
		tcase_add_test(tc, test_full_of_held_is_passed_over);
		tcase_add_test(tc, test_mixed_load);
	} else {
		fprintf(stderr, "# NOT TESTED: two devices: /dev/shm does not take O_DIRECT\n");
	}
	tcase_add_test(tc, test_device_fails_busy);
	tcase_add_test(tc, test_close_while_failed);
	tcase_add_test(tc, test_close_while_busy);
	tcase_add_test(tc, test_read_bias);
}

static bool takes_direct(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	int flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);

	if (fd >= 0)
		close(fd);
	return flags & O_DIRECT;
}

/* Is there what these tests stand on? */
static bool probe(void)
{
	struct io_uring ring;
	int r = io_uring_queue_init(2, &ring, 0);

	if (!r)
		io_uring_queue_exit(&ring);
	if (!r && takes_direct("/var/tmp"))
		return true;
	printf("1..0 # SKIP needs io_uring, and O_DIRECT in /var/tmp\n");
	return false;
}

int main(void)
{
	Suite *suite = suite_create("ssd");
	SRunner *sr;
	int failed;

	if (!probe())
		return 0;
	add_start_tests(suite);
	add_value_tests(suite);
	add_fault_tests(suite, takes_direct("/dev/shm"));
	sr = srunner_create(suite);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
