/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cgroup.h"

static int write_text(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];
	int fd, r = 0;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		r = -errno;
	close(fd);
	return r;
}

/* A group below parent, in g, if groups there have a limit on memory. */
static int make_below(struct cgroup *g, const char *parent, const char *bytes)
{
	int r;

	if (snprintf(g->dir, sizeof(g->dir), "%s/fluxkv-bench.%d", parent, (int)getpid()) >= (int)sizeof(g->dir))
		return -ENAMETOOLONG;
	if (mkdir(g->dir, 0755) < 0)
		return -errno;
	r = write_text(g->dir, "memory.limit_in_bytes", bytes);
	if (r == -ENOENT || r == -EACCES) /* files that cannot be made: version 2 has another name */
		r = write_text(g->dir, "memory.max", bytes);
	if (r < 0)
		rmdir(g->dir);
	return r;
}

/* Below our own group, or its parents': version 2 makes none beside processes, and a container may hide the path. */
static int make_in(struct cgroup *g, const char *mount, bool v2, const char *bytes)
{
	char own[PATH_MAX], parent[2 * PATH_MAX], *slash;
	int r;

	if (!cgroup_own_path(v2, own))
		own[0] = '\0';
	for (;;) {
		snprintf(parent, sizeof(parent), "%s%s", mount, own);
		r = make_below(g, parent, bytes);
		slash = strrchr(own, '/');
		if (r == 0 || !slash)
			return r;
		*slash = '\0';
	}
}

int cgroup_new(struct cgroup *g, uint64_t bytes, struct errmsg *e)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	const struct mntent *m;
	char text[32];
	int r = -ENOENT;
	bool v2;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	while (f && r < 0 && (m = getmntent(f))) {
		v2 = !strcmp(m->mnt_type, "cgroup2");
		if (v2 || (!strcmp(m->mnt_type, "cgroup") && hasmntopt(m, "memory")))
			r = make_in(g, m->mnt_dir, v2, text);
	}
	if (f)
		endmntent(f);
	if (r < 0) {
		g->dir[0] = '\0';
		return errmsg_set(e, r, "cannot make a control group with a limit on memory: %s", strerror(-r));
	}
	return 0;
}

int cgroup_take(const struct cgroup *g, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", (int)pid);
	return write_text(g->dir, "cgroup.procs", text);
}

int cgroup_enter(const struct cgroup *g)
{
	return cgroup_take(g, 0);
}

void cgroup_remove(struct cgroup *g)
{
	const struct timespec pause = {.tv_nsec = 20000000};

	/* A member that was waited for may leave a moment later. */
	for (int i = 0; g->dir[0] && rmdir(g->dir) < 0 && errno == EBUSY && i < 100; i++)
		nanosleep(&pause, NULL);
	g->dir[0] = '\0';
}
