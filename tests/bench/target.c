/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/target.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* Removes what is below the directory, and with itself the directory too. Returns how many stayed. */
static unsigned remove_tree(char *path, bool itself)
{
	char *const paths[] = {path, NULL};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, NULL);
	unsigned left = 0;
	FTSENT *ent;

	if (!fts)
		return 1;
	while ((ent = fts_read(fts))) {
		if (ent->fts_info == FTS_DP && (itself || ent->fts_level > 0))
			left += rmdir(ent->fts_accpath) < 0;
		else if (ent->fts_info != FTS_D && ent->fts_info != FTS_DP)
			left += unlink(ent->fts_accpath) < 0;
	}
	fts_close(fts);
	return left;
}

int target_open(struct target *t, const char *name, const char *dir, struct errmsg *e)
{
	/* Others who are given the path, daemons and tools, would take a relative one for theirs. */
	char *real = realpath(dir, NULL);
	int r, n = snprintf(t->path, sizeof(t->path), "%s/fluxkv-bench.XXXXXX", real ? real : dir);

	free(real);
	t->dirfd = -1;
	t->huge = false;
	t->base[0] = '\0';
	snprintf(t->name, sizeof(t->name), "%s", name);
	if (n >= (int)sizeof(t->path))
		return errmsg_set(e, -ENAMETOOLONG, "%s: the path is too long", dir);
	if (!mkdtemp(t->path))
		return errmsg_set(e, -errno, "cannot make a directory in %s: %s", dir, strerror(errno));
	t->dirfd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dirfd < 0) {
		r = errmsg_set(e, -errno, "cannot open %s: %s", t->path, strerror(errno));
		rmdir(t->path);
		return r;
	}
	if (mountinfo_get(t->dirfd, &t->mount) < 0)
		snprintf(t->mount.type, sizeof(t->mount.type), "unknown");
	return 0;
}

/* What others mount and unmount still reaches us. */
int target_isolate(void)
{
	static bool done; /* main thread only */

	if (done)
		return 0;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	done = true;
	return 0;
}

const char *target_temp_dir(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && *dir ? dir : "/tmp";
}

int target_open_tmpfs(struct target *t, const char *name, bool huge, struct errmsg *e)
{
	const char *data = huge ? "mode=0700,nr_inodes=0,huge=always" : "mode=0700,nr_inodes=0,huge=never";
	char base[PATH_MAX];
	int r = target_isolate();

	t->dirfd = -1;
	if (r < 0)
		return errmsg_set(e, r, "no tmpfs of our own: %s", strerror(-r));
	if (snprintf(base, sizeof(base), "%s/fluxkv-bench.XXXXXX", target_temp_dir()) >= (int)sizeof(base) ||
	    !mkdtemp(base))
		return errmsg_set(e, -errno, "cannot make a mount point in %s: %s", target_temp_dir(), strerror(errno));
	if (mount("fluxkv-bench", base, "tmpfs", MS_NOSUID | MS_NODEV, data) < 0) {
		r = errmsg_set(e, -errno, "cannot mount a tmpfs with %s: %s", data, strerror(errno));
		goto no_mount;
	}
	r = target_open(t, name, base, e);
	if (r < 0)
		goto no_target;
	memcpy(t->base, base, sizeof(base));
	t->huge = huge;
	return 0;

no_target:
	umount2(base, MNT_DETACH);
no_mount:
	rmdir(base);
	return r;
}

int target_empty(struct target *t)
{
	return remove_tree(t->path, false) ? -EIO : 0;
}

void target_close(struct target *t)
{
	if (t->dirfd < 0)
		return;
	close(t->dirfd);
	t->dirfd = -1;
	remove_tree(t->path, true);
	if (t->base[0]) {
		umount2(t->base, MNT_DETACH);
		rmdir(t->base);
	}
}

bool target_is_fluxkv(const struct target *t)
{
	return !strcmp(t->mount.type, "fuse.fluxkv");
}

bool target_in_memory(const struct target *t)
{
	return !strcmp(t->mount.type, "tmpfs") || !strcmp(t->mount.type, "ramfs");
}

bool target_keeps_cache(const struct target *t)
{
	/* tmpfs has no second copy; FluxKV gives each version an inode of its own, which nobody has read yet. */
	return strcmp(t->mount.type, "tmpfs") && !target_is_fluxkv(t);
}
