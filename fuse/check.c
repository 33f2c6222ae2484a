/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/places.h"
#include "common/size.h"
#include "fuse/ctl.h"
#include "fuse/fs.h"
#include "fuse/mountpoint.h"
#include "store/segment.h"

/* Descriptors beside those that the configuration asks for: libraries, the catalogue, files being written. */
#define NOFILE_BASE 256u
#define NOFILE_PER_THREAD 8u
#define NOFILE_PER_SSD 8u

int check_descriptors(const struct config *c, struct errmsg *e)
{
	uint64_t need = NOFILE_BASE + NOFILE_PER_THREAD * fs_threads(c->fuse_threads) + CTL_MAX_CONNECTIONS +
			(c->ssd_enabled ? c->n_ssd * (c->ssd_shards + NOFILE_PER_SSD) : 0);
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return errmsg_set(e, -errno, "limit of open files: %s", strerror(errno));
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		return errmsg_set(e, -errno, "limit of open files: %s", strerror(errno));
	if (rl.rlim_max >= need)
		return 0;
	return errmsg_set(e, -EMFILE,
			  "at most %llu files may be open, and this configuration needs %llu; raise the hard limit "
			  "(ulimit -Hn %llu, or "
			  "LimitNOFILE= in the systemd unit)",
			  (unsigned long long)rl.rlim_max, (unsigned long long)need, (unsigned long long)need);
}

int check_fuse_device(struct errmsg *e)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	switch (errno) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return errmsg_set(
		    e, -errno,
		    "no /dev/fuse: load the kernel's module (modprobe fuse), or give the container the device "
		    "(--device /dev/fuse)");
	case EACCES:
		if (geteuid())
			return 0; /* fusermount3 opens it for us */
		break;
	}
	return errmsg_set(e, -errno,
			  "/dev/fuse cannot be opened: %s; give the container the device (--device /dev/fuse)",
			  strerror(errno));
}

/* A mount of ours that is there, or that a daemon left when it died, is what a start after it would find gone. */
static int check_mountpoint(const char *mountpoint, struct errmsg *e)
{
	char *path;
	int r = mountpoint_resolve(mountpoint, &path, e);

	if (r)
		return r;
	r = mountpoint_check(path, e);
	free(path);
	return r;
}

/* The directory that a file is to be made in. made: with what is missing above it, else it must be there. */
static int check_parent(const char *file, bool made, struct errmsg *e)
{
	char *dir = strdup(file), *slash;
	struct stat st;
	int r = 0;

	if (!dir)
		return errmsg_set(e, -ENOMEM, "out of memory");
	slash = strrchr(dir, '/'); /* every path of a configuration is absolute */
	slash[slash == dir] = '\0';
	if (!made && stat(dir, &st))
		r = errmsg_set(e, -errno, "%s: %s", file, strerror(errno));
	if (!r)
		r = places_check(dir, e);
	if (!r && !stat(file, &st) && S_ISDIR(st.st_mode))
		r = errmsg_set(e, -EISDIR, "%s is a directory, where a file is to be", file);
	free(dir);
	return r;
}

static int check_places(const struct config *c, struct errmsg *e)
{
	char *catalogue = config_catalog_path(c);
	int r = catalogue ? 0 : errmsg_set(e, -ENOMEM, "out of memory");

	if (!r)
		r = places_check(c->run_dir, e);
	if (!r)
		r = check_parent(catalogue, true, e);
	if (!r && c->control_socket)
		r = check_parent(c->control_socket, false, e);
	free(catalogue);
	return r;
}

/* What is free now says little: a daemon that runs has its files there, and one that starts removes the old ones. */
static int check_device(const struct config_ssd *d, struct errmsg *e)
{
	char want[24], have[24];
	struct statvfs fs;
	uint64_t all;
	int r = 0, fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstatvfs(fd, &fs))
		r = errmsg_set(e, -errno, "%s: cannot open the directory for the SSD tier: %s", d->path,
			       strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!r)
		r = places_check(d->path, e);
	if (r)
		return r;
	all = (uint64_t)fs.f_blocks * fs.f_frsize;
	if (all && all < d->limit)
		r = errmsg_set(e, -ENOSPC, "%s: the SSD tier needs %s here and the file system has %s in all", d->path,
			       size_format(d->limit, want, sizeof(want)), size_format(all, have, sizeof(have)));
	return r;
}

int check_machine(const struct config *c, const char *mountpoint, struct errmsg *e)
{
	int r = mountpoint ? check_mountpoint(mountpoint, e) : 0;

	if (!r)
		r = check_places(c, e);
	for (size_t i = 0; !r && c->ssd_enabled && i < c->n_ssd; i++)
		r = check_device(&c->ssd[i], e);
	if (!r)
		r = segment_fits(c->dram, e);
	if (!r)
		r = check_descriptors(c, e);
	return r ? r : check_fuse_device(e);
}
