/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mountinfo.h"

/* Mounts of dead daemons can lie on top of each other; this many is somebody else's problem. */
#define STALE_MAX 16

extern char **environ;

/* Calls each() for the mounts on target, the one on top last. */
static int each_mount(const char *mountinfo, const char *target, void (*each)(void *, const struct mount_line *),
		      void *arg)
{
	FILE *f = fopen(mountinfo, "re");
	char *line = NULL;
	size_t cap = 0;
	int err = 0;

	if (!f)
		return -errno;
	while (getline(&line, &cap, f) >= 0) {
		struct mount_line m;

		if (!mount_line_parse(line, &m) && !strcmp(m.target, target))
			each(arg, &m);
	}
	if (ferror(f))
		err = -EIO;
	free(line);
	fclose(f);
	return err;
}

struct top_mount {
	bool found;
	char fstype[64], source[256];
};

static void take_top(void *arg, const struct mount_line *m)
{
	struct top_mount *top = arg;

	top->found = true;
	snprintf(top->fstype, sizeof(top->fstype), "%s", m->fstype);
	snprintf(top->source, sizeof(top->source), "%s", m->source);
}

static int find_top(const char *target, struct top_mount *ret)
{
	struct top_mount top = {0};
	int r = each_mount("/proc/self/mountinfo", target, take_top, &top);

	if (!r)
		*ret = top;
	return r;
}

struct wanted_device {
	dev_t device;
	bool found;
};

static void compare_device(void *arg, const struct mount_line *m)
{
	struct wanted_device *w = arg;

	w->found |= makedev(m->major, m->minor) == w->device;
}

bool mountpoint_has(const char *resolved, dev_t device, pid_t pid)
{
	struct wanted_device w = {.device = device};
	char mountinfo[64];

	snprintf(mountinfo, sizeof(mountinfo), "/proc/%ld/mountinfo", (long)pid);
	return !each_mount(mountinfo, resolved, compare_device, &w) && w.found;
}

static int resolve_error(const char *path, int err, struct errmsg *e)
{
	switch (-err) {
	case ENOENT:
		return errmsg_set(e, err, "mount point %s does not exist; make it with: mkdir -p %s", path, path);
	case ENOTDIR:
		return errmsg_set(e, err, "mount point %s is not a directory", path);
	default:
		return errmsg_set(e, err, "mount point %s: %s", path, strerror(-err));
	}
}

/* realpath(3) of the parent and the last name, which is not looked at. */
static int resolve_parent(const char *path, char **ret)
{
	char *copy = strdup(path), *slash, *parent, *all = NULL;
	size_t len;

	if (!copy)
		return -ENOMEM;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(slash ? (slash == copy ? "/" : copy) : ".", NULL);
	if (!parent) {
		int err = -errno;

		free(copy);
		return err;
	}
	if (asprintf(&all, "%s/%s", strcmp(parent, "/") ? parent : "", slash ? slash + 1 : copy) < 0)
		all = NULL;
	free(parent);
	free(copy);
	*ret = all;
	return all ? 0 : -ENOMEM;
}

int mountpoint_resolve(const char *path, char **ret, struct errmsg *e)
{
	char *real;
	int err;

	if (strlen(path) >= PATH_MAX)
		return errmsg_set(e, -ENAMETOOLONG, "mount point %.64s...: the path is too long", path);
	real = realpath(path, NULL);
	err = real ? 0 : -errno;
	if (err == -ENOTCONN)
		err = resolve_parent(path, &real);
	if (err)
		return resolve_error(path, err, e);
	*ret = real;
	return 0;
}

/* Who may not call umount2(2) may still ask the setuid helper that comes with libfuse. */
static int detach_by_helper(const char *target)
{
	char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)target, NULL};
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ))
		return -EPERM;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EPERM;
}

static int detach(const char *target)
{
	if (!umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW))
		return 0;
	return errno == EPERM ? detach_by_helper(target) : -errno;
}

/* Only a mount whose daemon is gone answers so. statfs(2) always asks; stat(2) may be answered by the kernel. */
static bool is_dead(const char *target)
{
	struct statfs st;

	return statfs(target, &st) && errno == ENOTCONN;
}

int mountpoint_clear_stale(const char *resolved, unsigned *ret_cleared, struct errmsg *e)
{
	unsigned cleared;

	for (cleared = 0; cleared < STALE_MAX; cleared++) {
		struct top_mount top;
		int r;

		r = find_top(resolved, &top);
		if (r)
			return errmsg_set(e, r, "/proc/self/mountinfo: %s", strerror(-r));
		if (!top.found || strcmp(top.fstype, MOUNTPOINT_FSTYPE) || !is_dead(resolved))
			break;
		r = detach(resolved);
		if (r)
			return errmsg_set(
			    e, r,
			    "%s is the mount of a fluxkvd that died, and cannot be unmounted: %s; try: umount -l %s",
			    resolved, strerror(-r), resolved);
	}
	if (ret_cleared)
		*ret_cleared = cleared;
	return 0;
}

static int check_not_mounted(const char *resolved, struct errmsg *e)
{
	struct top_mount top;
	int r;

	r = find_top(resolved, &top);
	if (r)
		return errmsg_set(e, r, "/proc/self/mountinfo: %s", strerror(-r));
	if (!top.found)
		return 0;
	if (!strcmp(top.fstype, MOUNTPOINT_FSTYPE))
		return errmsg_set(e, -EBUSY,
				  "%s: FluxKV is mounted there already (source %s); unmount it first: umount %s",
				  resolved, top.source, resolved);
	return errmsg_set(e, -EBUSY, "%s is a mount point already (%s, source %s); choose an empty directory", resolved,
			  top.fstype, top.source);
}

static int check_empty(const char *resolved, struct errmsg *e)
{
	struct dirent *d;
	int fd, err = 0;
	DIR *dir;

	fd = open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return resolve_error(resolved, -errno, e);
	dir = fdopendir(fd);
	if (!dir) {
		err = -errno;
		close(fd);
		return errmsg_set(e, err, "mount point %s: %s", resolved, strerror(-err));
	}
	while (!err && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			err = errmsg_set(
			    e, -ENOTEMPTY,
			    "mount point %s is not empty (it holds %s, perhaps more); choose an empty directory",
			    resolved, d->d_name);
	closedir(dir);
	return err;
}

int mountpoint_check(const char *resolved, struct errmsg *e)
{
	struct top_mount top;
	int r = find_top(resolved, &top);

	if (r)
		return errmsg_set(e, r, "/proc/self/mountinfo: %s", strerror(-r));
	if (top.found && !strcmp(top.fstype, MOUNTPOINT_FSTYPE))
		return 0;
	r = check_not_mounted(resolved, e);
	return r ? r : check_empty(resolved, e);
}

int mountpoint_prepare(const char *resolved, unsigned *ret_cleared, struct errmsg *e)
{
	int r;

	r = mountpoint_clear_stale(resolved, ret_cleared, e);
	if (r)
		return r;
	r = check_not_mounted(resolved, e);
	if (r)
		return r;
	return check_empty(resolved, e);
}
