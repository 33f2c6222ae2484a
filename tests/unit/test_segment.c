/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment: both as a mount of its own (needs root, else those cases are skipped aloud) and as the fallback in
 * /dev/shm. The fallback is forced by giving up the capability to mount.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/size.h"
#include "store/segment.h"

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (64 * MIB)

static char run_dir[64];
static struct segment_config config;
static struct segment *seg;
static bool fallback; /* these cases give up CAP_SYS_ADMIN */

static bool cap_sys_admin(bool drop)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &hdr, data) < 0)
		return false;
	if (drop) {
		data[0].effective &= ~(1u << CAP_SYS_ADMIN);
		ck_assert_int_eq(syscall(SYS_capset, &hdr, data), 0);
	}
	return data[0].effective & (1u << CAP_SYS_ADMIN);
}

static void open_segment(void)
{
	struct errmsg e = {""};
	int r = segment_open(&config, &seg, &e);

	ck_assert_msg(r == 0, "%s", e.text);
}

/* In the test's own process: a test that gives up the capability gives it up for itself alone. */
static void setup(void)
{
	if (fallback)
		cap_sys_admin(true);
	config = (struct segment_config){run_dir, "node-1", CAPACITY, fallback};
	open_segment();
	ck_assert_int_eq(segment_is_private_mount(seg), !fallback);
}

/* Where the kernel held a file while the segment closed, the memory is kept account of, and the next close clears it. */
static void teardown(void)
{
	char path[128];

	seg = segment_close(seg);
	snprintf(path, sizeof(path), "%s/node-1", run_dir);
	for (int i = 0; i < 50 && access(path, F_OK) == 0; i++) {
		usleep(100000);
		open_segment();
		seg = segment_close(seg);
	}
	ck_assert_int_eq(access(path, F_OK), -1);
}

static void make_run_dir(void)
{
	snprintf(run_dir, sizeof(run_dir), "/tmp/fluxkv-segment-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run_dir));
}

/* What a failed test left behind is what a crashed daemon would: the next open and close clear it. */
static void remove_run_dir(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		setup();
		segment_close(seg);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(rmdir(run_dir), 0);
}

static void make_run_dir_for_mount(void)
{
	fallback = false;
	make_run_dir();
}

static void make_run_dir_for_fallback(void)
{
	fallback = true;
	make_run_dir();
}

static uint64_t real_bytes(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint64_t used(void)
{
	struct segment_usage u;

	ck_assert_int_eq(segment_usage(seg, &u), 0);
	return u.used;
}

static int make(uint64_t alloc, uint64_t len)
{
	int fd = -1;

	ck_assert_int_eq(segment_create(seg, alloc, &fd), 0);
	ck_assert_int_eq(segment_reserve(seg, fd, len), 0);
	return fd;
}

static void fill(int fd, uint64_t from, uint64_t to, size_t piece)
{
	char *buf = malloc(piece);

	memset(buf, 'x', piece);
	for (uint64_t o = from; o < to; o += piece) {
		size_t n = to - o < piece ? (size_t)(to - o) : piece;

		ck_assert_int_eq(pwrite(fd, buf, n, (off_t)o), (ssize_t)n);
	}
	free(buf);
}

START_TEST(test_names)
{
	struct segment_usage u;
	char path[256];
	int fd, fd2;

	ck_assert_int_eq(segment_create(seg, 0xabc, &fd), 0);
	ck_assert_int_eq(segment_create(seg, 0xabc, &fd2), -EEXIST);
	snprintf(path, sizeof(path), "%s/0000000000000abc", segment_path(seg));
	ck_assert_int_eq(access(path, F_OK), 0);
	close(fd);
	ck_assert_int_eq(segment_open_file(seg, 0xabd, &fd), -ENOENT);
	ck_assert_int_eq(segment_open_file(seg, 0xabc, &fd), 0);
	ck_assert_int_eq(write(fd, "x", 1), -1);
	close(fd);
	ck_assert_int_eq(segment_create(seg, UINT64_MAX, &fd), 0);
	close(fd);
	segment_usage(seg, &u);
	ck_assert_uint_eq(u.files, 2);
	ck_assert_uint_eq(u.capacity, CAPACITY);
	ck_assert_int_eq(segment_unlink(seg, 0xabc), 0);
	ck_assert_int_eq(segment_unlink(seg, 0xabc), -ENOENT);
	ck_assert_int_eq(segment_unlink(seg, UINT64_MAX), 0);
	segment_usage(seg, &u);
	ck_assert_uint_eq(u.files, 0);
	ck_assert_uint_eq(u.used, 0);
}
END_TEST

static const uint64_t lengths[] = {1,	      4095,	     4096,	     4097,	    65536 - 128, 300000,
				   MIB - 128, MIB,	     MIB + 1,	     2 * MIB - 128, 2 * MIB + 1, 4 * MIB - 128,
				   4 * MIB,   8 * MIB - 128, 16 * MIB - 128, 16 * MIB + 5};

START_TEST(test_charge_covers_real_pages)
{
	uint64_t len = lengths[_i], bytes, reserved = 0;
	int fd = make(1, len);

	ck_assert_uint_le(real_bytes(fd), segment_charge(len));
	ck_assert_uint_eq(used(), real_bytes(fd));
	fill(fd, 0, len, MIB);
	ck_assert_uint_le(real_bytes(fd), segment_charge(len));
	close(fd);
	segment_unlink(seg, 1);

	/* in pieces, over-allocated by the hint, then trimmed */
	ck_assert_int_eq(segment_create(seg, 2, &fd), 0);
	for (uint64_t o = 0; o < len; o += 100000) {
		uint64_t end = len - o < 100000 ? len : o + 100000;
		uint64_t hint = segment_reserve_hint(reserved, end, 0);

		ck_assert_uint_ge(hint, end);
		ck_assert_int_eq(segment_reserve(seg, fd, hint), 0);
		reserved = hint;
		fill(fd, o, end, 100000);
		ck_assert_uint_le(real_bytes(fd), segment_charge(reserved));
	}
	ck_assert_int_eq(segment_trim(seg, fd, len, &bytes), 0);
	ck_assert_uint_eq(bytes, segment_charge(len));
	ck_assert_uint_eq(used(), bytes);
	close(fd);
	segment_unlink(seg, 2);
	ck_assert_uint_eq(used(), 0);
}
END_TEST

static bool all_zero(const char *p, uint64_t n)
{
	while (n && p[n - 1] == 0)
		n--;
	return n == 0;
}

START_TEST(test_tail_is_zero)
{
	uint64_t len = lengths[_i], tail = segment_charge(len) - len;
	int fd = make(1, segment_charge(len));
	char *p;

	fill(fd, 0, segment_charge(len), MIB);
	ck_assert_int_eq(segment_trim(seg, fd, len, NULL), 0);
	ck_assert_int_eq(segment_map(seg, fd, len, PROT_READ | PROT_WRITE, (void **)&p), 0);
	ck_assert_int_eq(p[len - 1], 'x');
	ck_assert(all_zero(p + len, tail));
	memset(p, 'y', segment_charge(len));
	segment_zero_tail(p, len);
	ck_assert(all_zero(p + len, tail));
	ck_assert_int_eq(p[len - 1], 'y');
	segment_unmap(p, len);
	/* growing again shows zeros, not what was stored beyond the end through the mapping */
	ck_assert_int_eq(segment_reserve(seg, fd, len + 5000), 0);
	ck_assert_int_eq(segment_map(seg, fd, len + 5000, PROT_READ, (void **)&p), 0);
	ck_assert(all_zero(p + len, 5000));
	segment_unmap(p, len + 5000);
	close(fd);
	segment_unlink(seg, 1);
}
END_TEST

START_TEST(test_reserve_is_all_or_nothing)
{
	int a = make(1, CAPACITY - 3 * MIB), b = make(2, MIB);
	struct stat st;

	if (fallback)
		goto done; /* /dev/shm is larger than the segment */
	fill(b, 0, 1000, 1000);
	/* 2 MiB are left. What was reserved and never written must survive the refusal. */
	ck_assert_int_eq(segment_reserve(seg, b, 4 * MIB), -ENOSPC);
	ck_assert_int_eq(fstat(b, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, MIB);
	ck_assert_uint_eq(real_bytes(b), MIB);
	ck_assert_uint_eq(used(), CAPACITY - 2 * MIB);
	ck_assert_int_eq(segment_reserve(seg, b, 3 * MIB), 0);
	ck_assert_uint_eq(used(), CAPACITY);
	ck_assert_int_eq(segment_reserve(seg, b, 3 * MIB + 1), -ENOSPC);
done:
	ck_assert_int_eq(segment_reserve(seg, b, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(segment_trim(seg, b, 4 * MIB, NULL), -EINVAL);
	close(a);
	close(b);
}
END_TEST

/* Every byte of the capacity can be used whatever the sizes: what is charged is what is taken. */
START_TEST(test_capacity_is_exact)
{
	static const uint64_t sizes[] = {MIB - 128, 4 * MIB - 128, 4096, 300000, 2 * MIB + 1};
	uint64_t charged = 0, alloc = 1;
	int fd;

	for (;; alloc++) {
		uint64_t len = sizes[alloc % 5];

		if (charged + segment_charge(len) > CAPACITY)
			len = CAPACITY - charged;
		if (len == 0)
			break;
		fd = make(alloc, len);
		fill(fd, 0, len, MIB);
		close(fd);
		charged += segment_charge(len);
		ck_assert_uint_le(used(), charged);
		/* holes between the files: memory in pieces */
		if (alloc % 3 == 0) {
			struct stat st;

			ck_assert_int_eq(segment_open_file(seg, alloc - 1, &fd), 0);
			fstat(fd, &st);
			close(fd);
			charged -= segment_charge((uint64_t)st.st_size);
			segment_unlink(seg, alloc - 1);
		}
	}
	ck_assert_uint_eq(used(), CAPACITY);
}
END_TEST

START_TEST(test_unlinked_file_lives_on)
{
	int fd = make(1, MIB);
	char *p;

	fill(fd, 0, MIB, MIB);
	ck_assert_int_eq(segment_map(seg, fd, MIB, PROT_READ, (void **)&p), 0);
	close(fd);
	ck_assert_int_eq(segment_unlink(seg, 1), 0);
	if (!fallback)
		ck_assert_uint_eq(used(), MIB);
	ck_assert_int_eq(p[MIB - 1], 'x');
	segment_unmap(p, MIB);
	ck_assert_uint_eq(used(), 0);
	ck_assert_int_eq(segment_map(seg, -1, 0, PROT_READ, (void **)&p), -EINVAL);
	ck_assert_int_eq(segment_map(seg, -1, 1, PROT_READ, (void **)&p), -EBADF);
}
END_TEST

START_TEST(test_second_daemon_is_refused)
{
	struct segment *other = NULL;
	struct errmsg e = {""};
	char pid[32];

	snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	ck_assert_int_eq(segment_open(&config, &other, &e), -EBUSY);
	ck_assert_ptr_null(other);
	ck_assert_msg(strstr(e.text, pid) != NULL, "%s", e.text);
	ck_assert_int_eq(access(segment_path(seg), F_OK), 0);
}
END_TEST

START_TEST(test_bad_config)
{
	static const char *const names[] = {"", ".", "..", "a/b", NULL};
	struct segment *other = NULL;
	struct segment_config c;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		c = config;
		c.instance = names[i];
		ck_assert_int_eq(segment_open(&c, &other, NULL), -EINVAL);
	}
	c = config;
	c.instance = "other";
	c.capacity = 4095;
	ck_assert_int_eq(segment_open(&c, &other, NULL), -EINVAL);
	c.capacity = UINT64_MAX;
	ck_assert_int_eq(segment_open(&c, &other, NULL), -EINVAL);
	c.capacity = UINT64_C(1) << 60; /* more than any machine has */
	ck_assert_int_eq(segment_open(&c, &other, NULL), -ENOSPC);
	c.capacity = MIB;
	c.run_dir = "/nonexistent/run";
	ck_assert_int_eq(segment_open(&c, &other, NULL), -ENOENT);
}
END_TEST

struct predecessor {
	pid_t reader; /* maps 8 MiB of a file of the dead segment */
	int go;	      /* close it: the reader lets go and exits */
};

/* A daemon that is killed with files in its segment while a reader maps one. */
static struct predecessor crashed_predecessor(void)
{
	int ready[2], go[2], status;
	struct predecessor p;
	char c = 0;
	pid_t daemon;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(go), 0);
	daemon = fork();
	if (daemon == 0) {
		void *map;
		pid_t reader;
		int fd;

		close(go[1]);
		if (segment_open(&config, &seg, NULL) < 0)
			_exit(1);
		fd = make(77, 8 * MIB);
		fill(fd, 0, 8 * MIB, MIB);
		close(make(78, 4 * MIB));
		if (segment_map(seg, fd, 8 * MIB, PROT_READ, &map) < 0)
			_exit(1);
		reader = fork();
		if (reader == 0) {
			/* no descriptor of the daemon's stays open here: a real reader has none */
			for (int i = 3; i < 64; i++)
				if (i != go[0] && i != ready[1])
					close(i);
			/* Only now is the daemon's lock its own again. */
			reader = getpid();
			if (write(ready[1], &reader, sizeof(reader)) != (ssize_t)sizeof(reader))
				_exit(1);
			close(ready[1]);
			while (read(go[0], &c, 1) < 0 && errno == EINTR)
				;
			_exit(((char *)map)[8 * MIB - 1] == 'x' ? 0 : 1);
		}
		kill(getpid(), SIGKILL);
	}
	close(ready[1]);
	close(go[0]);
	ck_assert_int_eq(read(ready[0], &p.reader, sizeof(p.reader)), (ssize_t)sizeof(p.reader));
	close(ready[0]);
	ck_assert_int_eq(waitpid(daemon, &status, 0), daemon);
	p.go = go[1];
	return p;
}

static void let_reader_go(struct predecessor *p)
{
	int status;

	close(p->go);
	ck_assert_int_eq(waitpid(p->reader, &status, 0), p->reader);
	ck_assert_int_eq(status, 0);
}

START_TEST(test_start_after_crash)
{
	struct predecessor one, two;
	struct segment_usage u;
	int fd;

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* the readers become this process's to wait for */
	seg = segment_close(seg);
	one = crashed_predecessor();
	two = crashed_predecessor();
	open_segment();
	ck_assert_int_eq(segment_open_file(seg, 78, &fd), -ENOENT);
	ck_assert_int_eq(segment_usage(seg, &u), 0);
	ck_assert_uint_eq(u.used, 0);
	ck_assert_uint_eq(u.inherited, fallback ? 0 : 16 * MIB);
	ck_assert_uint_eq(u.capacity, CAPACITY - u.inherited);
	let_reader_go(&one);
	ck_assert_int_eq(segment_usage(seg, &u), 0);
	ck_assert_uint_eq(u.inherited, fallback ? 0 : 8 * MIB);
	/* a clean stop and start still knows the other reader */
	seg = segment_close(seg);
	open_segment();
	ck_assert_int_eq(segment_usage(seg, &u), 0);
	ck_assert_uint_eq(u.inherited, fallback ? 0 : 8 * MIB);
	let_reader_go(&two);
	ck_assert_int_eq(segment_usage(seg, &u), 0);
	ck_assert_uint_eq(u.inherited, 0);
	ck_assert_uint_eq(u.capacity, CAPACITY);
}
END_TEST

static void *churn(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg << 32;

	for (uint64_t i = 0; i < 200; i++) {
		int fd = make(base + i, (i % 7) * 10000 + 1);

		close(fd);
		ck_assert_int_eq(segment_unlink(seg, base + i), 0);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn, (void *)i), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(used(), 0);
}
END_TEST

static _Atomic bool churning;

/* Large files that come, are cut, and go, until told to end. */
static void *churn_on(void *arg)
{
	uint64_t alloc = 1000 + (uintptr_t)arg;
	int fd;

	while (churning) {
		ck_assert_int_eq(segment_create(seg, alloc, &fd), 0);
		ck_assert_int_eq(segment_reserve(seg, fd, 20 * MIB), 0);
		ck_assert_int_eq(segment_trim(seg, fd, 5 * MIB + 1, NULL), 0);
		close(fd);
		ck_assert_int_eq(segment_unlink(seg, alloc), 0);
	}
	return NULL;
}

/* Neither does what is on its way hide what is orphaned, nor is it counted as such. */
START_TEST(test_orphans_beside_changes)
{
	struct segment_usage u;
	uint64_t wrong = 0;
	pthread_t t[2];
	void *p;
	int fd;

	ck_assert_int_eq(segment_create(seg, 1, &fd), 0);
	ck_assert_int_eq(segment_reserve(seg, fd, 10 * MIB), 0);
	ck_assert_int_eq(segment_map(seg, fd, 10 * MIB, PROT_READ, &p), 0);
	close(fd);
	ck_assert_int_eq(segment_unlink(seg, 1), 0);
	churning = true;
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn_on, (void *)i), 0);
	for (int i = 0; i < 300; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		ck_assert_int_eq(segment_usage(seg, &u), 0);
		wrong += u.orphaned != (fallback ? 0 : 10 * MIB);
	}
	churning = false;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	segment_unmap(p, 10 * MIB);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_int_eq(segment_usage(seg, &u), 0);
	ck_assert_uint_eq(u.orphaned, 0);
}
END_TEST

START_TEST(test_hint)
{
	ck_assert_uint_eq(segment_reserve_hint(0, 100, 0), 100);
	ck_assert_uint_eq(segment_reserve_hint(100, 50, 0), 100);
	ck_assert_uint_eq(segment_reserve_hint(4096, 8000, 0), 8192);
	ck_assert_uint_eq(segment_reserve_hint(0, 4096, 4 * MIB - 128), 4 * MIB - 128);
	ck_assert_uint_eq(segment_reserve_hint(4 * MIB - 128, 4 * MIB, 4 * MIB - 128), 4 * MIB);
	ck_assert_uint_eq(segment_reserve_hint(2 * MIB, 2 * MIB + 1, 0), 4 * MIB);
	ck_assert_uint_eq(segment_reserve_hint(0, UINT64_MAX, 0), UINT64_MAX);
}
END_TEST

static TCase *segment_case(const char *name, SFun make_dir)
{
	static const int n_lengths = (int)(sizeof(lengths) / sizeof(lengths[0]));
	TCase *c = tcase_create(name);

	tcase_add_unchecked_fixture(c, make_dir, remove_run_dir);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_names);
	tcase_add_loop_test(c, test_charge_covers_real_pages, 0, n_lengths);
	tcase_add_loop_test(c, test_tail_is_zero, 0, n_lengths);
	tcase_add_test(c, test_reserve_is_all_or_nothing);
	tcase_add_test(c, test_capacity_is_exact);
	tcase_add_test(c, test_unlinked_file_lives_on);
	tcase_add_test(c, test_second_daemon_is_refused);
	tcase_add_test(c, test_bad_config);
	tcase_add_test(c, test_start_after_crash);
	tcase_add_test(c, test_threads);
	tcase_add_test(c, test_orphans_beside_changes);
	tcase_add_test(c, test_hint);
	return c;
}

int main(void)
{
	Suite *s = suite_create("segment");
	SRunner *sr;
	int failed;

	if (cap_sys_admin(false))
		suite_add_tcase(s, segment_case("mount", make_run_dir_for_mount));
	else
		fprintf(stderr, "# NOT TESTED: the segment as a mount of its own, which needs CAP_SYS_ADMIN\n");
	suite_add_tcase(s, segment_case("fallback", make_run_dir_for_fallback));
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
