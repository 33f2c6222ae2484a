/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cgroup.h"
#include "common/hash.h"
#include "common/size.h"

#define SEGMENT_HUGE_PAGE (UINT64_C(2) << 20)
/* So much is allocated at a time: a millisecond or two, for which segment_usage() may have to wait. */
#define SEGMENT_STRETCH (UINT64_C(8) << 20)
/* More predecessors with live readers than this are let go uncounted. */
#define SEGMENT_INHERITED_MAX 16
#define SEGMENT_SHM "/dev/shm"
#define SEGMENT_BESIDE (UINT64_C(32) << 20)

struct segment {
	/* All set by segment_open() and constant until segment_close(). */
	char dir[PATH_MAX];	 /* <run_dir>/<instance> */
	char path[PATH_MAX + 8]; /* where the files are */
	int instance_fd;	 /* dir */
	int lock_fd;
	int fd; /* path */
	uint64_t capacity;
	bool mounted;
	int inherited[SEGMENT_INHERITED_MAX]; /* roots of what predecessors' readers still map */
	unsigned n_inherited;

	_Atomic uint64_t files; /* relaxed: a statistic */
	/*
	 * Held shared by whoever changes what files occupy and counts it, alone by who compares the count with what the
	 * tmpfs says: what is on its way would else hide that much of what is orphaned.
	 */
	pthread_rwlock_t changing;
	_Atomic uint64_t allocated; /* bytes of the files that have names */
};

struct segment_name {
	char text[17];
};

static struct segment_name name_of(uint64_t alloc)
{
	struct segment_name n;

	snprintf(n.text, sizeof(n.text), "%016" PRIx64, alloc);
	return n;
}

static bool instance_valid(const char *instance)
{
	return instance && *instance && strlen(instance) <= NAME_MAX && !strchr(instance, '/') &&
	       strcmp(instance, ".") && strcmp(instance, "..");
}

/* Opens a directory of ours that nobody else may write; makes it when it is missing. */
static int open_private_dir(const char *path, int *ret_fd, struct errmsg *e)
{
	struct stat st;
	int fd, r;

	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		r = -errno;
		return errmsg_set(e, r, "cannot make %s: %s", path, strerror(-r));
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		return errmsg_set(e, r, "cannot open %s: %s", path, strerror(-r));
	}
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (st.st_uid != geteuid())
		r = -EPERM;
	else
		r = (st.st_mode & 07777) == 0700 || fchmod(fd, 0700) == 0 ? 0 : -errno;
	if (r < 0) {
		close(fd);
		return errmsg_set(e, r, "%s is not a directory of this user's own: %s", path, strerror(-r));
	}
	*ret_fd = fd;
	return 0;
}

/* True when fd is still what the name leads to: a lock on a removed file guards nothing. */
static bool lock_is_current(int dir_fd, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(dir_fd, "segment.lock", &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static int lock_refused(int fd, const char *dir, struct errmsg *e)
{
	char pid[24] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
	return errmsg_set(e, -EBUSY, "%s is in use by another daemon (pid %s)", dir, *pid ? pid : "unknown");
}

static int take_lock(int dir_fd, const char *dir, int *ret_fd, struct errmsg *e)
{
	char pid[24];
	int fd, r, n;

	for (;;) {
		fd = openat(dir_fd, "segment.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0) {
			r = -errno;
			return errmsg_set(e, r, "cannot make %s/segment.lock: %s", dir, strerror(-r));
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			r = lock_refused(fd, dir, e);
			close(fd);
			return r;
		}
		if (lock_is_current(dir_fd, fd))
			break;
		close(fd);
	}
	n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n) {
		r = -EIO;
		close(fd);
		return errmsg_set(e, r, "cannot write %s/segment.lock", dir);
	}
	*ret_fd = fd;
	return 0;
}

static bool is_dot(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Unlinks every file in a directory. Reading it again until nothing is found copes with readdir that skips. */
static int unlink_all(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), removed, r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	do {
		removed = 0;
		rewinddir(d);
		while ((de = readdir(d))) {
			if (is_dot(de->d_name))
				continue;
			if (unlinkat(dir_fd, de->d_name, 0) == 0)
				removed++;
			else if (errno != ENOENT)
				r = -errno;
		}
	} while (removed && !r);
	closedir(d);
	return r;
}

static int tmpfs_used(int fd, uint64_t *ret)
{
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return -errno;
	*ret = (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
	return 0;
}

/*
 * What an emptied tmpfs still has in use. The kernel itself may hold a file for a moment (khugepaged that looks at a
 * mapping, with its low priority): what is in use for longer is used by programs.
 */
static uint64_t used_by_programs(int fd)
{
	uint64_t used = 0;

	for (int i = 0; i < 50 && tmpfs_used(fd, &used) == 0 && used; i++)
		usleep(5000);
	return used;
}

/* True when name, below the instance's directory, is a mount of its own. */
static bool is_mount(int dir_fd, const char *name)
{
	struct stat a, b;

	return fstat(dir_fd, &a) == 0 && fstatat(dir_fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(b.st_mode) &&
	       a.st_dev != b.st_dev;
}

/*
 * Gives the mount at from the name old-<n> too, so that a start after the next one still finds what its readers hold:
 * a mount that was only detached could not be found again.
 */
static int keep_under_old_name(const char *dir, int dir_fd, const char *from)
{
	char name[24], path[PATH_MAX + sizeof(name)];
	unsigned i;

	for (i = 0; i < SEGMENT_INHERITED_MAX; i++) {
		snprintf(name, sizeof(name), "old-%u", i);
		if (!is_mount(dir_fd, name))
			break;
	}
	if (i == SEGMENT_INHERITED_MAX)
		return -EMFILE;
	if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return mount(from, path, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

/* Empties and detaches every mount that is stacked on <dir>/segment. */
static int retire_mounts(const char *dir, int dir_fd, struct errmsg *e)
{
	char path[PATH_MAX + 8];
	int fd, r;

	snprintf(path, sizeof(path), "%s/segment", dir);
	while (is_mount(dir_fd, "segment")) {
		fd = openat(dir_fd, "segment", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0) {
			r = -errno;
			return errmsg_set(e, r, "cannot open %s: %s", path, strerror(-r));
		}
		r = unlink_all(fd);
		if (r == 0 && used_by_programs(fd))
			keep_under_old_name(dir, dir_fd, path);
		close(fd);
		if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) {
			r = -errno;
			return errmsg_set(e, r, "cannot unmount the old %s: %s", path, strerror(-r));
		}
	}
	return 0;
}

/*
 * Takes over an old-<n>: an empty one is unmounted, the descriptor of one in use is kept for segment_usage(). last: it is
 * not looked at again, so who was killed a moment ago may first let go of it.
 */
static void inherit_one(struct segment *s, const char *name, bool last)
{
	char path[PATH_MAX + 24];
	uint64_t used = 0;
	int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", s->dir, name);
	if (is_mount(s->instance_fd, name)) {
		fd = openat(s->instance_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && last)
			used = used_by_programs(fd);
		else if (fd >= 0)
			tmpfs_used(fd, &used);
		if (used) {
			s->inherited[s->n_inherited++] = fd;
			return;
		}
		if (fd >= 0)
			close(fd);
		umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	unlinkat(s->instance_fd, name, AT_REMOVEDIR);
}

static void inherit_all(struct segment *s, bool last)
{
	char name[24];

	for (unsigned i = 0; i < SEGMENT_INHERITED_MAX; i++) {
		snprintf(name, sizeof(name), "old-%u", i);
		inherit_one(s, name, last);
	}
}

static void drop_inherited(struct segment *s)
{
	for (unsigned i = 0; i < s->n_inherited; i++)
		close(s->inherited[i]);
	s->n_inherited = 0;
	/* Those that are empty by now go; those in use stay for the next start to count. */
	inherit_all(s, true);
	for (unsigned i = 0; i < s->n_inherited; i++)
		close(s->inherited[i]);
	s->n_inherited = 0;
}

/* Mounts with the most that this kernel and this user may have. -EPERM: not permitted to mount at all. */
static int mount_tmpfs(struct segment *s)
{
	/* noswap came with 6.4; a kernel without transparent huge pages refuses huge= */
	static const char *const tries[] = {",noswap,huge=within_size", ",huge=within_size", ",noswap", ""};
	char options[128];
	int r = -EINVAL;

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && r == -EINVAL; i++) {
		snprintf(options, sizeof(options), "size=%" PRIu64 ",mode=0700,nr_inodes=0%s", s->capacity, tries[i]);
		r = mount("fluxkv", s->path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0 ? -errno : 0;
	}
	return r == -EACCES ? -EPERM : r;
}

/*
 * What a node needs beside its segment: about 20 MiB, and for each value 1.5 KB of it and of the kernel. The share is
 * for values of 100 KiB; with smaller ones an operator has to leave more.
 */
static uint64_t beside_segment(uint64_t capacity)
{
	return SEGMENT_BESIDE + capacity / 64;
}

/* A tmpfs takes any size, and at some later write the kernel would kill programs to make room. */
int segment_fits(uint64_t capacity, struct errmsg *e)
{
	uint64_t room = UINT64_MAX, group = cgroup_memory_limit(), beside = beside_segment(capacity);
	char have[24], want[24], more[24];
	struct sysinfo si;

	if (sysinfo(&si) == 0)
		room = (uint64_t)si.totalram * si.mem_unit;
	if (room > beside && room - beside >= capacity && group > beside && group - beside >= capacity)
		return 0;
	size_format(capacity, want, sizeof(want));
	size_format(beside, more, sizeof(more));
	if (group < room)
		return errmsg_set(e, -ENOSPC,
				  "the control group of this process may use only %s of memory where %s are to be "
				  "contributed and the node needs about %s beside them",
				  size_format(group, have, sizeof(have)), want, more);
	return errmsg_set(e, -ENOSPC,
			  "this machine has only %s of memory where %s are to be contributed and the node needs about "
			  "%s beside them",
			  size_format(room, have, sizeof(have)), want, more);
}

static int open_mount(struct segment *s, struct errmsg *e)
{
	int fd, r;

	snprintf(s->path, sizeof(s->path), "%s/segment", s->dir);
	r = retire_mounts(s->dir, s->instance_fd, e);
	if (r < 0)
		return r;
	inherit_all(s, false);
	r = open_private_dir(s->path, &fd, e);
	if (r < 0)
		return r;
	close(fd); /* the directory below the mount */
	r = mount_tmpfs(s);
	if (r < 0)
		return errmsg_set(e, r, "cannot mount a tmpfs on %s: %s", s->path, strerror(-r));
	s->mounted = true;
	return open_private_dir(s->path, &s->fd, e);
}

/* /dev/shm is shared: refuse what cannot fit there rather than fail at some later write. */
static int open_fallback(struct segment *s, const char *instance, struct errmsg *e)
{
	char have[24], want[24];
	struct statfs st;
	uint64_t room;
	int r;

	if (statfs(SEGMENT_SHM, &st) < 0 || st.f_type != TMPFS_MAGIC)
		return errmsg_set(e, -ENODEV, "no right to mount, and %s is not a tmpfs to fall back to", SEGMENT_SHM);
	room = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
	if (room && room < s->capacity)
		return errmsg_set(e, -ENOSPC, "no right to mount, and %s has only %s where %s are to be contributed",
				  SEGMENT_SHM, size_format(room, have, sizeof(have)),
				  size_format(s->capacity, want, sizeof(want)));
	/* The hash keeps apart two daemons of one instance name that have different run directories. */
	snprintf(s->path, sizeof(s->path), SEGMENT_SHM "/fluxkv-%.160s-%016" PRIx64, instance,
		 hash_bytes(s->dir, strlen(s->dir), 0));
	r = open_private_dir(s->path, &s->fd, e);
	if (r < 0)
		return r;
	r = unlink_all(s->fd);
	return r < 0 ? errmsg_set(e, r, "cannot empty %s: %s", s->path, strerror(-r)) : 0;
}

/* Makes <run_dir>/<instance>, and resolves it: the mount table and the fallback's name must not depend on the way. */
static int open_instance(struct segment *s, const struct segment_config *config, struct errmsg *e)
{
	char *real;
	int r;

	if (mkdir(config->run_dir, 0755) < 0 && errno != EEXIST) {
		r = -errno;
		return errmsg_set(e, r, "cannot make the run directory %s: %s", config->run_dir, strerror(-r));
	}
	real = realpath(config->run_dir, NULL);
	if (!real) {
		r = -errno;
		return errmsg_set(e, r, "run directory %s: %s", config->run_dir, strerror(-r));
	}
	r = snprintf(s->dir, sizeof(s->dir), "%s/%s", real, config->instance);
	free(real);
	if (r < 0 || (size_t)r >= sizeof(s->dir) - 32)
		return errmsg_set(e, -ENAMETOOLONG, "run directory %s: the path is too long", config->run_dir);
	r = open_private_dir(s->dir, &s->instance_fd, e);
	return r < 0 ? r : take_lock(s->instance_fd, s->dir, &s->lock_fd, e);
}

/* Those who change something come without a pause, so whoever compares must not wait until there is none. */
static void init_lock(struct segment *s)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&s->changing, &attr);
	pthread_rwlockattr_destroy(&attr);
}

int segment_open(const struct segment_config *config, struct segment **ret, struct errmsg *e)
{
	struct segment *s;
	int r;

	if (!instance_valid(config->instance))
		return errmsg_set(e, -EINVAL, "instance \"%s\" is not a file name",
				  config->instance ? config->instance : "");
	if (config->capacity < SEGMENT_PAGE || config->capacity > INT64_MAX)
		return errmsg_set(e, -EINVAL, "a segment needs at least one page of memory");
	s = calloc(1, sizeof(*s));
	if (!s)
		return errmsg_set(e, -ENOMEM, "no memory");
	init_lock(s);
	s->instance_fd = s->lock_fd = s->fd = -1;
	s->capacity = config->capacity & ~(SEGMENT_PAGE - 1);
	r = segment_fits(s->capacity, e);
	if (r == 0)
		r = open_instance(s, config, e);
	if (r < 0)
		goto close;
	r = open_mount(s, e);
	if (r == -EPERM && config->allow_fallback)
		r = open_fallback(s, config->instance, e);
	if (r < 0)
		goto close;
	*ret = s;
	return 0;
close:
	segment_close(s);
	return r;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Only the holder of the lock may touch what is in the instance's directory. */
static void remove_files(struct segment *s)
{
	if (s->fd >= 0)
		unlink_all(s->fd);
	close_fd(s->fd);
	if (s->mounted)
		retire_mounts(s->dir, s->instance_fd, NULL);
	else if (s->fd >= 0)
		rmdir(s->path);
	unlinkat(s->instance_fd, "segment", AT_REMOVEDIR);
	drop_inherited(s);
	unlinkat(s->instance_fd, "segment.lock", 0);
	close(s->lock_fd);
	rmdir(s->dir); /* stays when others keep something there */
}

struct segment *segment_close(struct segment *s)
{
	if (!s)
		return NULL;
	if (s->lock_fd >= 0)
		remove_files(s);
	close_fd(s->instance_fd);
	pthread_rwlock_destroy(&s->changing);
	free(s);
	return NULL;
}

int segment_create(struct segment *s, uint64_t alloc, int *ret_fd)
{
	int fd = openat(s->fd, name_of(alloc).text, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	atomic_fetch_add_explicit(&s->files, 1, memory_order_relaxed);
	*ret_fd = fd;
	return 0;
}

int segment_scratch(struct segment *s, int *ret_fd)
{
	int fd = openat(s->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int segment_open_file(struct segment *s, uint64_t alloc, int *ret_fd)
{
	int fd = openat(s->fd, name_of(alloc).text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static uint64_t occupied(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

static void account(struct segment *s, const struct stat *before, const struct stat *after)
{
	atomic_fetch_add(&s->allocated, occupied(after) - occupied(before));
}

int segment_unlink(struct segment *s, uint64_t alloc)
{
	struct segment_name name = name_of(alloc);
	struct stat st, gone = {0};
	int r = 0;

	pthread_rwlock_rdlock(&s->changing);
	if (fstatat(s->fd, name.text, &st, AT_SYMLINK_NOFOLLOW) < 0 || unlinkat(s->fd, name.text, 0) < 0)
		r = -errno;
	else
		account(s, &st, &gone);
	pthread_rwlock_unlock(&s->changing);
	if (r == 0)
		atomic_fetch_sub_explicit(&s->files, 1, memory_order_relaxed);
	return r;
}

int segment_lease(int fd)
{
	return fcntl(fd, F_SETLEASE, F_WRLCK) < 0 ? -errno : 0;
}

bool segment_is_shared(struct segment *s, uint64_t alloc)
{
	int fd, r = segment_open_file(s, alloc, &fd);
	bool alone;

	if (r < 0)
		return r != -ENOENT;
	alone = segment_lease(fd) == 0;
	close(fd); /* the lease ends with it */
	return !alone;
}

/* Cuts the file to len. */
static int cut(struct segment *s, int fd, uint64_t len, struct stat *ret_after)
{
	struct stat before;
	int r = 0;

	pthread_rwlock_rdlock(&s->changing);
	if (fstat(fd, &before) < 0 || ftruncate(fd, (off_t)len) < 0 || fstat(fd, ret_after) < 0)
		r = -errno;
	else
		account(s, &before, ret_after);
	pthread_rwlock_unlock(&s->changing);
	return r;
}

/* Allocates [from, to). A signal makes tmpfs undo what it did and start over: here again until it is through. */
static int allocate(struct segment *s, int fd, uint64_t from, uint64_t to)
{
	struct stat before, after;
	int r;

	do {
		r = 0;
		pthread_rwlock_rdlock(&s->changing);
		if (fstat(fd, &before) < 0 || fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0)
			r = -errno;
		if (r == 0 && fstat(fd, &after) == 0)
			account(s, &before, &after);
		pthread_rwlock_unlock(&s->changing);
	} while (r == -EINTR);
	return r;
}

int segment_reserve(struct segment *s, int fd, uint64_t len)
{
	uint64_t from, to;
	struct stat st, after;
	int r = 0;

	if (len > INT64_MAX - SEGMENT_STRETCH)
		return -EFBIG;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (len <= (uint64_t)st.st_size)
		return 0;
	/* The length goes first: huge=within_size looks at it to choose the page size. */
	if (ftruncate(fd, (off_t)len) < 0)
		return -errno;
	/* Only pages that were not there: the kernel would clear those that are reserved and not yet written. */
	for (from = align_up((uint64_t)st.st_size, SEGMENT_PAGE); r == 0 && from < len; from = to) {
		to = align_up(from + 1, SEGMENT_STRETCH);
		r = allocate(s, fd, from, to < len ? to : len);
	}
	if (r < 0 && cut(s, fd, (uint64_t)st.st_size, &after) < 0)
		r = -EIO;
	return r;
}

uint64_t segment_reserve_hint(uint64_t reserved, uint64_t need, uint64_t guess)
{
	uint64_t twice = reserved < SEGMENT_HUGE_PAGE / 2 ? reserved * 2 : SEGMENT_HUGE_PAGE;

	if (need <= reserved)
		return reserved;
	if (need <= guess)
		return guess;
	/* Nothing to gain, and the overflow of what follows to lose. */
	if (need > INT64_MAX - SEGMENT_HUGE_PAGE)
		return need;
	if (need > SEGMENT_HUGE_PAGE)
		return align_up(need, SEGMENT_HUGE_PAGE);
	/* Small files double, so that many small writes fill large pages and a lone one costs what it needs. */
	return need > twice ? need : twice;
}

int segment_trim(struct segment *s, int fd, uint64_t len, uint64_t *ret_bytes)
{
	struct stat after;
	int r;

	if (fstat(fd, &after) < 0)
		return -errno;
	if (len > (uint64_t)after.st_size)
		return -EINVAL;
	r = len < (uint64_t)after.st_size ? cut(s, fd, len, &after) : 0;
	if (r < 0)
		return r;
	if (ret_bytes)
		*ret_bytes = occupied(&after);
	return 0;
}

void segment_zero_tail(void *map, uint64_t len)
{
	memset((char *)map + len, 0, (size_t)(segment_charge(len) - len));
}

int segment_map(struct segment *s, int fd, uint64_t len, int prot, void **ret)
{
	/* Every page is there, so filling the page tables at once saves a reader 20 to 50 % of its first pass. */
	int flags = MAP_SHARED | (prot & PROT_WRITE ? 0 : MAP_POPULATE);
	void *p;

	if (len == 0 || len > INT64_MAX - SEGMENT_PAGE)
		return -EINVAL;
	p = mmap(NULL, (size_t)segment_charge(len), prot, flags, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/*
	 * Whoever fills a new file pays for its pages, which the kernel zeroes at their first touch; else the one
	 * thread that hands them to the device would, for all. Kernels before 5.14 do it there all the same.
	 */
	if (prot & PROT_WRITE)
		madvise(p, (size_t)segment_charge(len), MADV_POPULATE_WRITE);
	*ret = p;
	return 0;
}

void segment_unmap(void *map, uint64_t len)
{
	munmap(map, (size_t)segment_charge(len));
}

int segment_usage(struct segment *s, struct segment_usage *ret)
{
	struct segment_usage u = {
	    .files = atomic_load_explicit(&s->files, memory_order_relaxed),
	    .exact = s->mounted,
	};
	uint64_t named, old = 0;
	int r;

	pthread_rwlock_wrlock(&s->changing);
	u.used = named = atomic_load(&s->allocated);
	r = s->mounted ? tmpfs_used(s->fd, &u.used) : 0;
	pthread_rwlock_unlock(&s->changing);
	if (r < 0)
		return r;
	u.orphaned = u.used > named ? u.used - named : 0;
	for (unsigned i = 0; i < s->n_inherited; i++)
		if (tmpfs_used(s->inherited[i], &old) == 0)
			u.inherited += old;
	u.capacity = u.inherited < s->capacity ? s->capacity - u.inherited : 0;
	*ret = u;
	return 0;
}

bool segment_is_private_mount(const struct segment *s)
{
	return s->mounted;
}

const char *segment_path(const struct segment *s)
{
	return s->path;
}
