/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory that the daemon mounts on: may it be used, and is there a mount of a dead fluxkvd to clear away first.
 * For start-up; one thread.
 */
#ifndef FUSE_MOUNTPOINT_H
#define FUSE_MOUNTPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/errmsg.h"

#define MOUNTPOINT_FSTYPE "fuse.fluxkv"

/* Whether the process sees that very mount there. What cannot be read is answered "no". */
bool mountpoint_has(const char *resolved, dev_t device, pid_t pid);

/*
 * The absolute path of a mount point, also of one whose daemon has died (where realpath(3) itself gets ENOTCONN).
 * malloc'ed.
 */
int mountpoint_resolve(const char *path, char **ret, struct errmsg *e);
/*
 * Clears away what dead daemons left mounted there (nothing but FluxKV mounts that answer ENOTCONN), then wants an
 * empty directory that is no mount point. ret_cleared (may be NULL): how many were cleared. -EBUSY: mounted;
 * -ENOTEMPTY, -ENOTDIR, -ENOENT, ...
 */
int mountpoint_prepare(const char *resolved, unsigned *ret_cleared, struct errmsg *e);
/* The same without clearing, where a FluxKV mount, alive or dead, is no fault. */
int mountpoint_check(const char *resolved, struct errmsg *e);
/* Only the clearing, for `fluxkvd --clean`. 0 also when there is nothing to clear. */
int mountpoint_clear_stale(const char *resolved, unsigned *ret_cleared, struct errmsg *e);

#endif
