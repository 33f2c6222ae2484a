/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FluxKV: a mount that is there, or a `fluxkvd standalone` of our own. Hits are counted by the daemon, once for each
 * open for reading, by where the bytes were at that moment; .fluxkv/metrics tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/file_session.h"
#include "tests/bench/status.h"

static const char *const folders[] = {"mnt", "run", "state"};

static void path_of(const struct backend *b, const char *name, char ret[static PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%.*s/%s", PATH_MAX - 64, b->work.path, name);
}

static bool is_mounted(void *arg)
{
	const struct backend *b = arg;
	struct mountinfo m;
	char mnt[PATH_MAX];
	int fd;

	path_of(b, "mnt", mnt);
	fd = open(mnt, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (mountinfo_get(fd, &m) < 0)
		m.type[0] = '\0';
	close(fd);
	return !strcmp(m.type, "fuse.fluxkv");
}

static int make_folders(struct backend *b, struct errmsg *e)
{
	char path[PATH_MAX];
	int r = backend_work(b, NULL, e);

	for (size_t i = 0; r == 0 && i < sizeof(folders) / sizeof(folders[0]); i++) {
		path_of(b, folders[i], path);
		if (mkdir(path, 0700) < 0)
			r = errmsg_set(e, -errno, "cannot make %s: %s", path, strerror(errno));
	}
	if (r == 0 && b->setup.ssd)
		r = target_open(&b->ssd, "ssd", b->setup.ssd_dir, e);
	return r;
}

static int start_daemon(struct backend *b, struct errmsg *e)
{
	char options[4 * PATH_MAX], run[PATH_MAX], state[PATH_MAX], mnt[PATH_MAX];
	const char *const argv[] = {b->setup.fluxkvd, "-f", "-o", options, "standalone", mnt, NULL};
	int n;

	path_of(b, "run", run);
	path_of(b, "state", state);
	path_of(b, "mnt", mnt);
	n = snprintf(options, sizeof(options), "instance=bench,dram=%llu,run_dir=%s,state_dir=%s%s%s",
		     (unsigned long long)b->setup.dram, run, state, b->setup.options ? "," : "",
		     b->setup.options ? b->setup.options : "");
	if (b->setup.ssd)
		snprintf(options + n, sizeof(options) - (size_t)n, ",ssd=%s:%llu", b->ssd.path,
			 (unsigned long long)b->setup.ssd);
	return service_start(&b->service, argv, is_mounted, b, e);
}

static int start(struct backend *b, struct errmsg *e)
{
	char mnt[PATH_MAX];
	int r;

	if (b->setup.dir)
		return target_open(&b->values, "values", b->setup.dir, e);
	r = target_isolate();
	if (r < 0)
		return errmsg_set(e, r, "cannot make a mount namespace to start fluxkvd in: %s", strerror(-r));
	r = make_folders(b, e);
	if (r == 0)
		r = start_daemon(b, e);
	path_of(b, "mnt", mnt);
	return r < 0 ? r : target_open(&b->values, "values", mnt, e);
}

/* A daemon that was killed leaves its mounts; nothing may be removed through them. */
static void unmount(const struct backend *b)
{
	static const char *const mounts[] = {"mnt", "run/bench/segment"};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		path_of(b, mounts[i], path);
		while (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
			continue;
	}
}

static void stop(struct backend *b)
{
	if (b->setup.dir)
		return;
	if (b->values.dirfd >= 0) { /* the values go with their daemon */
		close(b->values.dirfd);
		b->values.dirfd = -1;
	}
	service_stop(&b->service);
	if (b->work.dirfd >= 0)
		unmount(b);
}

static int count(const struct backend *b, struct hits *ret)
{
	struct status s;
	int r = status_read(&b->values, &s);

	if (r == 0)
		*ret = (struct hits){.dram = s.hits_dram, .ssd = s.hits_ssd, .unknown = s.hits_unknown};
	return r;
}

void backend_fluxkv_socket(const struct backend *b, char ret[static PATH_MAX])
{
	path_of(b, "run/bench/control", ret);
}

const struct backend_ops backend_fluxkv = {
    .name = "fluxkv",
    .built = true,
    .how = "the daemon's counters of opens by tier, at both ends of the window; they must add up to the hits",
    .start = start,
    .stop = stop,
    .count = count,
    .open = file_session_open_counted,
    .close = file_session_close,
    .put = file_session_put,
    .get = file_session_get,
    .release = file_session_release,
};
