/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/size.h"

#define MIN_ALIGN 512u
#define MAX_ALIGN 65536u
#define SHARD_PREFIX "shard-"

static bool plain(const char *text, size_t i)
{
	char c = text[i];

	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
	       (c == '.' && i);
}

int ssd_safe_name(const char *text, char *ret, size_t size)
{
	size_t at = 0;

	if (!text || !*text)
		return -EINVAL;
	for (size_t i = 0; text[i]; i++) {
		bool same = plain(text, i);

		if (at + (same ? 2 : 4) > size)
			return -ENAMETOOLONG;
		if (same)
			ret[at++] = text[i];
		else
			at += (size_t)snprintf(ret + at, 4, "%%%02X", (unsigned char)text[i]);
	}
	ret[at] = '\0';
	return 0;
}

static int root_names(const char *cluster, const char *instance, char *ret_cluster, char *ret_instance,
		      struct errmsg *e)
{
	static const char suffix[] = "_cluster_kv_ssd_storage";
	int r = ssd_safe_name(cluster, ret_cluster, NAME_MAX + 1 - strlen(suffix));

	if (r < 0)
		return errmsg_set(e, r, "the cluster name \"%s\" does not make a directory name: %s",
				  cluster ? cluster : "", strerror(-r));
	strcat(ret_cluster, suffix);
	r = ssd_safe_name(instance, ret_instance, NAME_MAX + 1);
	if (r < 0)
		return errmsg_set(e, r, "the instance key \"%s\" does not make a directory name: %s",
				  instance ? instance : "", strerror(-r));
	return 0;
}

/* Opens name in the directory at, making it when it is not there. Closes at. */
static int step_down(int at, const char *name)
{
	int fd = -1, r = 0;

	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (!r) {
		fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	close(at);
	return r < 0 ? r : fd;
}

/* The pid that the holder of the lock wrote into it, or 0. */
static long lock_owner(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return strtol(text, NULL, 10);
}

static int take_lock(struct ssd_dir *d, const char *path, struct errmsg *e)
{
	d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return errmsg_set(e, -errno, "%s: cannot make the lock file of the SSD tier: %m", path);
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		int r = -errno;

		if (r != -EWOULDBLOCK)
			return errmsg_set(e, r, "%s: cannot lock the SSD tier: %s", path, strerror(-r));
		return errmsg_set(e, -EBUSY, "%s: this instance's SSD tier is in use by process %ld", path,
				  lock_owner(d->lock_fd));
	}
	if (ftruncate(d->lock_fd, 0) < 0 || dprintf(d->lock_fd, "%ld\n", (long)getpid()) < 0)
		return errmsg_set(e, -errno, "%s: cannot write the lock file of the SSD tier: %m", path);
	return 0;
}

int ssd_dir_open(const char *path, const char *cluster, const char *instance, struct ssd_dir *ret, struct errmsg *e)
{
	char cluster_name[NAME_MAX + 1], instance_name[NAME_MAX + 1];
	struct ssd_dir d = SSD_DIR_CLOSED;
	struct stat st;
	int r = root_names(cluster, instance, cluster_name, instance_name, e);

	if (r < 0)
		return r;
	d.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d.fd < 0)
		return errmsg_set(e, -errno, "%s: cannot open the directory for the SSD tier: %m", path);
	d.fd = step_down(d.fd, cluster_name);
	if (d.fd >= 0)
		d.fd = step_down(d.fd, instance_name);
	if (d.fd < 0)
		return errmsg_set(e, d.fd, "%s: cannot make %s/%s: %s", path, cluster_name, instance_name,
				  strerror(-d.fd));
	r = fstat(d.fd, &st) < 0 ? errmsg_set(e, -errno, "%s: %m", path) : take_lock(&d, path, e);
	if (r < 0) {
		ssd_dir_close(&d);
		return r;
	}
	d.dev = st.st_dev;
	*ret = d;
	return 0;
}

void ssd_dir_close(struct ssd_dir *d)
{
	/* The lock file is not removed: somebody may have opened it and be about to lock it. */
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	if (d->fd >= 0)
		close(d->fd);
	*d = SSD_DIR_CLOSED;
}

static bool is_shard_name(const char *name)
{
	size_t n = strlen(SHARD_PREFIX);

	return !strncmp(name, SHARD_PREFIX, n) && name[n] && !name[n + strspn(name + n, "0123456789")];
}

static int remove_shards(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *de;
	DIR *dir;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	while ((de = readdir(dir)))
		if (is_shard_name(de->d_name) && unlinkat(dir_fd, de->d_name, 0) < 0 && !r)
			r = -errno;
	closedir(dir);
	return r;
}

static int open_shard(const struct ssd_dir *d, unsigned i, bool direct, struct ssd_shards *sh, const char *path,
		      struct errmsg *e)
{
	char name[32];

	snprintf(name, sizeof(name), SHARD_PREFIX "%u", i);
	sh->fds[i] =
	    openat(d->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	if (sh->fds[i] >= 0)
		return 0;
	if (direct && errno == EINVAL)
		return errmsg_set(e, -EOPNOTSUPP,
				  "%s: its file system refuses O_DIRECT; choose another or set "
				  "ssd_direct: false",
				  path);
	return errmsg_set(e, -errno, "%s: cannot make a shard file: %m", path);
}

/* What the file asks for, where the kernel can say it (6.1); else the least, and the probe finds the truth. */
static int ask_align(int fd, struct ssd_shards *sh, const char *path, struct errmsg *e)
{
	struct statx stx;

	sh->mem_align = 0;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) < 0 || !(stx.stx_mask & STATX_DIOALIGN))
		return 0;
	if (!stx.stx_dio_offset_align || stx.stx_dio_offset_align > MAX_ALIGN)
		return errmsg_set(e, -EOPNOTSUPP,
				  "%s: its file system has no O_DIRECT for files such as ours; choose another or set "
				  "ssd_direct: false",
				  path);
	if (stx.stx_dio_offset_align > sh->align)
		sh->align = stx.stx_dio_offset_align;
	sh->mem_align = stx.stx_dio_mem_align;
	return 0;
}

/* One write and one read of n bytes. 0 or a negative errno. */
static int try_io(int fd, void *buf, uint32_t n)
{
	ssize_t r = pwrite(fd, buf, n, n);

	if (r == (ssize_t)n)
		r = pread(fd, buf, n, n);
	if (r < 0)
		return -errno;
	return r == (ssize_t)n ? 0 : -EIO;
}

/* An O_DIRECT that opens is not yet one that works. Doubles the alignment while the file system says EINVAL. */
static int probe(int fd, struct ssd_shards *sh, const char *path, struct errmsg *e)
{
	void *buf;
	int r;

	if (posix_memalign(&buf, MAX_ALIGN, MAX_ALIGN))
		return errmsg_set(e, -ENOMEM, "%s: out of memory", path);
	memset(buf, 0, MAX_ALIGN);
	while ((r = try_io(fd, buf, sh->align)) == -EINVAL && sh->align < MAX_ALIGN)
		sh->align *= 2;
	free(buf);
	if (!sh->mem_align)
		sh->mem_align = sh->align;
	if (r < 0)
		return errmsg_set(e, r, "%s: a test write to a shard file failed: %s", path, strerror(-r));
	return ftruncate(fd, 0) < 0 ? errmsg_set(e, -errno, "%s: %m", path) : 0;
}

static int divide(struct ssd_shards *sh, uint64_t limit, unsigned n, const char *path, struct errmsg *e)
{
	if (limit < sh->align)
		return errmsg_set(e, -EINVAL, "%s: a limit of %" PRIu64 " bytes is less than one block of %u bytes",
				  path, limit, sh->align);
	sh->n = limit / sh->align < n ? (unsigned)(limit / sh->align) : n;
	sh->size = limit / sh->n / sh->align * sh->align;
	return 0;
}

static int check_room(const struct ssd_dir *d, uint64_t limit, const char *path, struct errmsg *e)
{
	char want[24], have[24];
	struct statvfs fs;
	uint64_t avail;

	if (fstatvfs(d->fd, &fs) < 0)
		return errmsg_set(e, -errno, "%s: %m", path);
	avail = (uint64_t)fs.f_bavail * fs.f_frsize;
	/*
	 * Asked first, so that a limit too large does not fill the file system for a moment before it is refused. One
	 * without blocks keeps no account.
	 */
	if (avail >= limit || !fs.f_blocks)
		return 0;
	return errmsg_set(e, -ENOSPC,
			  "%s: the SSD tier needs %s here and %s are free; lower large_limit_size or make room", path,
			  size_format(limit, want, sizeof(want)), size_format(avail, have, sizeof(have)));
}

static int preallocate(const struct ssd_shards *sh, unsigned i, const char *path, struct errmsg *e)
{
	int r;

	do
		r = fallocate(sh->fds[i], 0, 0, (off_t)sh->size) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r == -ENOSPC)
		return errmsg_set(e, r, "%s: the device is full: no room to preallocate the shard files", path);
	if (r == -EOPNOTSUPP)
		return errmsg_set(e, r, "%s: its file system cannot preallocate files (fallocate)", path);
	return r < 0 ? errmsg_set(e, r, "%s: cannot preallocate a shard file: %s", path, strerror(-r)) : 0;
}

static int make_shards(const struct ssd_dir *d, const char *path, uint64_t limit, unsigned n, bool direct,
		       struct ssd_shards *sh, struct errmsg *e)
{
	int r = check_room(d, limit, path, e);

	sh->align = MIN_ALIGN;
	sh->mem_align = 1;
	if (!r)
		r = open_shard(d, 0, direct, sh, path, e);
	if (!r && direct)
		r = ask_align(sh->fds[0], sh, path, e);
	if (!r)
		r = probe(sh->fds[0], sh, path, e);
	if (!r)
		r = divide(sh, limit, n, path, e);
	for (unsigned i = 1; !r && i < sh->n; i++)
		r = open_shard(d, i, direct, sh, path, e);
	for (unsigned i = 0; !r && i < sh->n; i++)
		r = preallocate(sh, i, path, e);
	return r;
}

int ssd_shards_open(const struct ssd_dir *d, const char *path, uint64_t limit, unsigned n, bool direct,
		    struct ssd_shards *ret, struct errmsg *e)
{
	struct ssd_shards sh = {0};
	int r;

	for (unsigned i = 0; i < SSD_MAX_SHARDS; i++)
		sh.fds[i] = -1;
	r = remove_shards(d->fd);
	if (r < 0)
		return errmsg_set(e, r, "%s: cannot remove the shard files of an earlier run: %s", path, strerror(-r));
	r = make_shards(d, path, limit, n, direct, &sh, e);
	if (r < 0) {
		ssd_shards_close(d, &sh);
		return r;
	}
	*ret = sh;
	return 0;
}

void ssd_shards_close(const struct ssd_dir *d, struct ssd_shards *sh)
{
	for (unsigned i = 0; i < SSD_MAX_SHARDS; i++)
		if (sh->fds[i] >= 0)
			close(sh->fds[i]);
	sh->n = 0;
	for (unsigned i = 0; i < SSD_MAX_SHARDS; i++)
		sh->fds[i] = -1;
	/* What cannot be removed is removed at the next start. */
	if (d->fd >= 0)
		remove_shards(d->fd);
}
