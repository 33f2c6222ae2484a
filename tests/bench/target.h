/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that a run works in: a private one below the directory under test, and private tmpfs mounts to
 * compare with. The mounts are made in a mount namespace of our own, so nobody else sees them and they end with the
 * process however it ends. Opened and closed by the main thread before and after the crew's work.
 */
#ifndef TESTS_BENCH_TARGET_H
#define TESTS_BENCH_TARGET_H

#include <limits.h>
#include <stdbool.h>

#include "common/errmsg.h"
#include "tests/bench/mountinfo.h"

struct target {
	char name[32];	     /* what the report calls it */
	char path[PATH_MAX]; /* the private directory */
	char base[PATH_MAX]; /* the mount point that we made; empty if it is not ours */
	int dirfd;	     /* of path; -1: not open */
	bool huge;	     /* a tmpfs of huge pages */
	struct mountinfo mount;
};

#define TARGET_CLOSED                                                                                                  \
	{                                                                                                              \
		.dirfd = -1                                                                                            \
	}

/* A new directory of our own below dir. 0, or a negative errno with the reason in e. */
int target_open(struct target *t, const char *name, const char *dir, struct errmsg *e);
/* A tmpfs of our own, with huge pages or without. -EPERM: that takes the right to mount. */
int target_open_tmpfs(struct target *t, const char *name, bool huge, struct errmsg *e);
/* Once: the process gets a mount namespace of its own, and what it mounts is its alone. 0, or -EPERM. */
int target_isolate(void);
/* Where temporary files go: TMPDIR, or /tmp. */
const char *target_temp_dir(void);
/* Removes all that is in it. 0, or -EIO if something is left. */
int target_empty(struct target *t);
/* Removes all that is in it, and it. Takes one that is not open. */
void target_close(struct target *t);

/* Whether the file system keeps a page cache beside the values that a cold read must not find. */
bool target_keeps_cache(const struct target *t);
bool target_is_fluxkv(const struct target *t);
/* Whether its files are on no device at all. */
bool target_in_memory(const struct target *t);

#endif
