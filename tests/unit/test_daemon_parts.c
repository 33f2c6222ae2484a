/* SPDX-License-Identifier: Apache-2.0 */
/* What fluxkvd is made of beside the file system: mount lines, mount options, the pid file, places. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mountinfo.h"
#include "fuse/mount_options.h"
#include "fuse/mountpoint.h"
#include "fuse/pidfile.h"
#include "common/places.h"
#include "tests/unit/run.h"

static char dir[PATH_MAX];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

/* Unchecked fixtures run in the process that forks for each test: what a test that fails has left goes as well. */
static void remove_dir(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/fluxkv-parts-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		abort();
}

/* Whatever the test before has left. */
static void begin(void)
{
	remove_dir();
	ck_assert_int_eq(mkdir(dir, 0700), 0);
}

/* What the tests make is known by name; rmdir() failing says that one of them left something. */
static void expect_empty(void)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/fluxkvd.pid", dir);
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}

static const char *in_dir(const char *name)
{
	static char path[8][PATH_MAX + 256];
	static unsigned i;

	snprintf(path[i % 8], sizeof(path[0]), "%s/%s", dir, name);
	return path[i++ % 8];
}

START_TEST(takes_mount_lines_apart)
{
	char plain[] = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n";
	char bare[] = "36 35 0:41 / /a\\040b\\134c rw - fuse.fluxkv standalone rw";
	struct mount_line m;

	ck_assert_int_eq(mount_line_parse(plain, &m), 0);
	ck_assert_str_eq(m.target, "/mnt2");
	ck_assert_str_eq(m.fstype, "ext3");
	ck_assert_str_eq(m.source, "/dev/root");
	ck_assert_uint_eq(m.major, 98);
	ck_assert_int_eq(mount_line_parse(bare, &m), 0);
	ck_assert_str_eq(m.target, "/a b\\c");
	ck_assert_str_eq(m.fstype, MOUNTPOINT_FSTYPE);
	ck_assert_uint_eq(m.minor, 41);
}
END_TEST

START_TEST(refuses_mount_lines)
{
	static const char *const bad[] = {"",
					  "\n",
					  "36 35 98:0 / /mnt rw",
					  "36 35 98:0 - ext3 /dev/root rw",
					  "36 35 x / /mnt rw - ext3 /dev/root rw",
					  "36 35 98:0 / /mnt rw - ext3"};
	struct mount_line m = {.target = "before"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char line[128];

		snprintf(line, sizeof(line), "%s", bad[i]);
		ck_assert_int_eq(mount_line_parse(line, &m), -EINVAL);
		ck_assert_str_eq(m.target, "before");
	}
}
END_TEST

START_TEST(resolves_mount_points)
{
	struct errmsg e;
	char *path = NULL;

	ck_assert_int_eq(mountpoint_resolve(dir, &path, &e), 0);
	ck_assert_int_eq(mountpoint_prepare(path, NULL, &e), 0);
	ck_assert_int_eq(mkdir(in_dir("full"), 0700), 0);
	ck_assert_int_eq(mountpoint_prepare(path, NULL, &e), -ENOTEMPTY);
	ck_assert_ptr_nonnull(strstr(e.text, "full"));
	ck_assert_int_eq(rmdir(in_dir("full")), 0);
	free(path);
	ck_assert_int_eq(mountpoint_resolve(in_dir("none"), &path, &e), -ENOENT);
	ck_assert_ptr_nonnull(strstr(e.text, "mkdir -p"));
	ck_assert_int_eq(mountpoint_prepare("/proc", NULL, &e), -EBUSY);
	ck_assert_int_eq(mountpoint_prepare("/proc/self/stat", NULL, &e), -ENOTDIR);
	expect_empty();
}
END_TEST

START_TEST(takes_mount_options_apart)
{
	struct mount_options o = {0};

	ck_assert_int_eq(mount_options_add(&o, ""), 0);
	ck_assert_str_eq(o.rest, "");
	ck_assert_ptr_null(o.config);
	ck_assert_int_eq(mount_options_add(&o, "rw,,config=/etc/a\\,b,dram=1GB"), 0);
	ck_assert_str_eq(o.rest, "rw,dram=1GB");
	ck_assert_str_eq(o.config, "/etc/a,b");
	ck_assert_int_eq(mount_options_add(&o, "ssd=/x\\,y:1GB,config=/c"), 0);
	ck_assert_str_eq(o.rest, "rw,dram=1GB,ssd=/x\\,y:1GB");
	ck_assert_str_eq(o.config, "/c");
	ck_assert_int_eq(mount_options_add(&o, "config=,end\\"), 0);
	ck_assert_str_eq(o.config, "");
	ck_assert_str_eq(o.rest, "rw,dram=1GB,ssd=/x\\,y:1GB,end\\");
	mount_options_done(&o);
	ck_assert_int_eq(mount_options_add(&o, "remounts,ro"), 0);
	ck_assert(!o.remount);
	ck_assert_int_eq(mount_options_add(&o, "rw,remount,nosuid"), 0);
	ck_assert(o.remount);
	ck_assert_str_eq(o.rest, "remounts,ro,rw,nosuid");
	mount_options_done(&o);
	ck_assert_ptr_null(o.rest);
}
END_TEST

/* A lock belongs to the open file, so a second open in this process is as good as another process. */
START_TEST(locks_one_pid_file)
{
	struct pidfile *p = NULL, *other = NULL;
	struct stat proc;
	struct errmsg e;
	char pid[32];

	ck_assert_int_eq(stat("/proc", &proc), 0);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &p, &e), 0);
	ck_assert_int_eq(pidfile_serves(p, proc.st_dev, "/proc", &e), 0);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &other, &e), -EBUSY);
	ck_assert_ptr_null(other);
	snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
	ck_assert_ptr_nonnull(strstr(e.text, pid));
	ck_assert_ptr_nonnull(strstr(e.text, "node1"));
	p = pidfile_unlock(p);
	ck_assert_int_eq(access(in_dir("fluxkvd.pid"), F_OK), -1);
	ck_assert_int_eq(access(in_dir("mount"), F_OK), -1);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &p, &e), 0);
	pidfile_unlock(p);
	ck_assert_int_eq(pidfile_lock(in_dir("none"), "node1", &p, &e), -ENOENT);
	ck_assert_ptr_null(pidfile_unlock(NULL));
	expect_empty();
}
END_TEST

/* Holds the lock for a while, with a mount on /proc of that device, and ends. */
static pid_t hold_for(unsigned ms, dev_t device, bool ends)
{
	pid_t pid = fork();
	struct pidfile *p;
	struct errmsg e;

	if (pid)
		return pid;
	if (pidfile_lock(dir, "node1", &p, &e) || pidfile_serves(p, device, "/proc", &e))
		_exit(1);
	if (ends)
		pidfile_ends(p);
	if (close(open(in_dir("held"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)))
		_exit(1);
	usleep(ms * 1000);
	pidfile_unlock(p);
	_exit(0);
}

/* The mount is gone (another one has its place), or the end was asked for: the next one waits. Else it is refused. */
START_TEST(waits_for_one_that_ends)
{
	struct stat proc;

	ck_assert_int_eq(stat("/proc", &proc), 0);
	for (int i = 0; i < 3; i++) {
		pid_t pid = hold_for(300, proc.st_dev + (i == 0), i == 1);
		struct pidfile *p = NULL;
		struct errmsg e;
		int status;

		while (access(in_dir("held"), F_OK))
			usleep(1000);
		ck_assert_int_eq(pidfile_lock(dir, "node1", &p, &e), i < 2 ? 0 : -EBUSY);
		ck_assert_int_eq(unlink(in_dir("held")), 0);
		pidfile_unlock(p);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	expect_empty();
}
END_TEST

/* The file is locked, and says a pid that is some other program's by now: that one is not to be named, let alone
 * killed. */
START_TEST(names_nobody_else)
{
	struct pidfile *p = NULL, *other = NULL;
	struct stat proc;
	struct errmsg e;
	char pid[32];
	FILE *f;

	ck_assert_int_eq(stat("/proc", &proc), 0);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &p, &e), 0);
	ck_assert_int_eq(pidfile_serves(p, proc.st_dev, "/proc", &e), 0);
	f = fopen(in_dir("fluxkvd.pid"), "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "%ld\n", (long)getppid());
	fclose(f);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &other, &e), -EBUSY);
	snprintf(pid, sizeof(pid), "%ld", (long)getppid());
	ck_assert_msg(!strstr(e.text, pid) && !strstr(e.text, "kill"), "%s", e.text);
	ck_assert_ptr_nonnull(strstr(e.text, "is locked, by another process than it names"));
	pidfile_unlock(p);
	expect_empty();
}
END_TEST

START_TEST(takes_over_a_dead_pid_file)
{
	struct pidfile *p = NULL;
	struct errmsg e;
	int status;
	pid_t pid;

	pid = fork();
	if (!pid)
		_exit(pidfile_lock(dir, "node1", &p, &e) ? 1 : 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(access(in_dir("fluxkvd.pid"), F_OK), 0);
	ck_assert_int_eq(pidfile_lock(dir, "node1", &p, &e), 0);
	pidfile_unlock(p);
	expect_empty();
}
END_TEST

START_TEST(undoes_places)
{
	struct places p = {0};
	struct errmsg e;
	int fd;

	ck_assert_int_eq(mkdir(in_dir("old"), 0700), 0);
	ck_assert_int_eq(places_mkdir(&p, in_dir("old/a/b"), 0700, &e), 0);
	ck_assert_int_eq(places_mkdir(&p, in_dir("old/a/b"), 0700, &e), 0);
	ck_assert_uint_eq(p.n, 2);
	ck_assert_int_eq(places_expect(&p, in_dir("old/a/b/file"), &e), 0);
	ck_assert_int_eq(places_expect(&p, in_dir("old/a/b/never"), &e), 0);
	fd = open(in_dir("old/a/b/file"), O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(places_mkdir(&p, in_dir("old/a/b/file"), 0700, &e), -ENOTDIR);
	ck_assert_int_eq(places_mkdir(&p, "relative", 0700, &e), -EINVAL);
	places_undo(&p);
	ck_assert_int_eq(access(in_dir("old/a"), F_OK), -1);
	/* What was there before stays. */
	ck_assert_int_eq(rmdir(in_dir("old")), 0);
	expect_empty();
}
END_TEST

START_TEST(keeps_places)
{
	struct places p = {0};
	struct errmsg e;

	ck_assert_int_eq(places_mkdir(&p, in_dir("a"), 0700, &e), 0);
	places_keep(&p);
	places_undo(&p);
	ck_assert_int_eq(rmdir(in_dir("a")), 0);
	expect_empty();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("daemon_parts");
	TCase *t = tcase_create("daemon_parts");

	tcase_add_unchecked_fixture(t, make_dir, remove_dir);
	tcase_add_checked_fixture(t, begin, NULL);
	tcase_add_test(t, takes_mount_lines_apart);
	tcase_add_test(t, refuses_mount_lines);
	tcase_add_test(t, resolves_mount_points);
	tcase_add_test(t, takes_mount_options_apart);
	tcase_add_test(t, locks_one_pid_file);
	tcase_add_test(t, waits_for_one_that_ends);
	tcase_add_test(t, names_nobody_else);
	tcase_add_test(t, takes_over_a_dead_pid_file);
	tcase_add_test(t, undoes_places);
	tcase_add_test(t, keeps_places);
	suite_add_tcase(s, t);
	return run_suite(s);
}
