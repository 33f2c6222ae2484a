/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/pidfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/lockfile.h"
#include "fuse/mountpoint.h"
#include "fuse/task.h"

/* Ten seconds for what runs and what is being written, and some for much memory to be given back. */
#define ENDING_TIMEOUT (15 * NS_PER_SEC)
#define POLL_MS 10

struct pidfile {
	int fd;
	char *path, *mount_path;
};

/* What pidfile_serves() wrote. False: nothing, or nonsense. */
static bool read_mount(const char *mount_path, dev_t *ret_device, char mountpoint[PATH_MAX])
{
	FILE *f = fopen(mount_path, "re");
	unsigned major, minor;
	bool good;

	if (!f)
		return false;
	good = fscanf(f, "%u:%u", &major, &minor) == 2 && fgetc(f) == ' ' && fgets(mountpoint, PATH_MAX, f);
	fclose(f);
	if (!good)
		return false;
	mountpoint[strcspn(mountpoint, "\n")] = '\0';
	*ret_device = makedev(major, minor);
	return true;
}

/* Its mount is there, for it or for us, who may see different ones. */
static bool serves(const char *mount_path, pid_t pid)
{
	char mountpoint[PATH_MAX];
	dev_t device;

	return read_mount(mount_path, &device, mountpoint) &&
	       (mountpoint_has(mountpoint, device, getpid()) || mountpoint_has(mountpoint, device, pid));
}

/*
 * Whoever has the lock has the file open. A pid that was written by one that died, or in another pid namespace, is
 * somebody else's here. What we may not look at, another user's, is not ours either.
 */
static bool has_open(long pid, int fd)
{
	struct stat ours, st;
	char path[64];
	const struct dirent *d;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%ld/fd", pid);
	dir = fstat(fd, &ours) ? NULL : opendir(path);
	while (dir && !found && (d = readdir(dir)))
		found = !fstatat(dirfd(dir), d->d_name, &st, 0) && st.st_dev == ours.st_dev && st.st_ino == ours.st_ino;
	if (dir)
		closedir(dir);
	return found;
}

static int busy_error(int fd, const char *path, const char *mount_path, const char *instance, struct errmsg *e)
{
	long pid = lockfile_pid(fd);

	if (pid && !has_open(pid, fd))
		return errmsg_set(e, -EBUSY,
				  "instance %s is not free: %s is locked, by another process than it names; see which: "
				  "fuser -v %s",
				  instance, path, path);
	if (pid && !serves(mount_path, (pid_t)pid))
		return errmsg_set(
		    e, -EBUSY,
		    "instance %s is not free yet: pid %ld is starting, or was unmounted while files are open "
		    "or a mount namespace has a copy of the mount; end it with: kill %ld",
		    instance, pid, pid);
	if (!pid)
		return errmsg_set(e, -EBUSY, "instance %s is starting or running already (%s is locked)", instance,
				  path);
	return errmsg_set(
	    e, -EBUSY,
	    "instance %s is running already, as pid %ld (%s); stop it, or give this one another instance_key", instance,
	    pid, path);
}

/*
 * Whoever does not serve is waited for: unmounted, it finishes; killed, its lock goes with its last thread, which may
 * take a while with much memory; starting, it will soon be the one or the other.
 */
static int lock_file(int fd, const char *mount_path)
{
	uint64_t until = clock_ns() + ENDING_TIMEOUT;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		pid_t pid;

		if (errno != EWOULDBLOCK)
			return -errno;
		pid = (pid_t)lockfile_pid(fd);
		if ((serves(mount_path, pid) && !task_is_ending(pid)) || clock_ns() > until)
			return -EBUSY;
		poll(NULL, 0, POLL_MS);
	}
	return 0;
}

static int open_locked(const char *path, const char *mount_path, const char *instance, int *ret, struct errmsg *e)
{
	for (;;) {
		int r, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

		if (fd < 0)
			return errmsg_set(e, -errno, "%s: %s", path, strerror(errno));
		fchmod(fd, 0600); /* or whoever can open it could lock it; older versions made it readable */
		r = lock_file(fd, mount_path);
		if (r) {
			r = r == -EBUSY ? busy_error(fd, path, mount_path, instance, e)
					: errmsg_set(e, r, "%s: cannot lock it: %s", path, strerror(-r));
			close(fd);
			return r;
		}
		if (lockfile_is_at(fd, path)) {
			*ret = fd;
			return 0;
		}
		close(fd);
	}
}

/*
 * A process that dies closes its descriptors from the lowest on. With a high one this lock goes last, so who gets it
 * finds the other locks of the instance (segment, SSD roots) free as well.
 */
static int move_up(int fd)
{
	for (int to = 4095; to > fd; to /= 2) {
		int high = fcntl(fd, F_DUPFD_CLOEXEC, to);

		if (high < 0)
			continue; /* above the limit */
		close(fd);
		return high;
	}
	return fd;
}

static struct pidfile *pidfile_free(struct pidfile *p)
{
	if (p->fd >= 0)
		close(p->fd);
	free(p->mount_path);
	free(p->path);
	free(p);
	return NULL;
}

static struct pidfile *pidfile_new(const char *dir)
{
	struct pidfile *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->fd = -1;
	if (asprintf(&p->path, "%s/fluxkvd.pid", dir) < 0)
		p->path = NULL;
	if (asprintf(&p->mount_path, "%s/mount", dir) < 0)
		p->mount_path = NULL;
	return p->path && p->mount_path ? p : pidfile_free(p);
}

int pidfile_lock(const char *dir, const char *instance, struct pidfile **ret, struct errmsg *e)
{
	struct pidfile *p = pidfile_new(dir);
	int r;

	if (!p)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = open_locked(p->path, p->mount_path, instance, &p->fd, e);
	if (r) {
		pidfile_free(p);
		return r;
	}
	unlink(p->mount_path); /* of one that was killed */
	p->fd = move_up(p->fd);
	r = lockfile_write_pid(p->fd);
	if (r) {
		errmsg_set(e, r, "%s: %s", p->path, strerror(-r));
		pidfile_unlock(p);
		return r;
	}
	*ret = p;
	return 0;
}

int pidfile_serves(struct pidfile *p, dev_t device, const char *mountpoint, struct errmsg *e)
{
	int fd = open(p->mount_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = 0;

	if (fd < 0)
		return errmsg_set(e, -errno, "%s: %s", p->mount_path, strerror(errno));
	if (dprintf(fd, "%u:%u %s\n", major(device), minor(device), mountpoint) < 0)
		r = errmsg_set(e, -errno, "%s: %s", p->mount_path, strerror(errno));
	close(fd);
	return r;
}

void pidfile_ends(struct pidfile *p)
{
	unlink(p->mount_path);
}

struct pidfile *pidfile_unlock(struct pidfile *p)
{
	if (!p)
		return NULL;
	pidfile_ends(p);
	unlink(p->path);
	return pidfile_free(p);
}
