/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person types to a path inside the file system. Pure; any thread. */
#ifndef CLI_PATH_H
#define CLI_PATH_H

#include <stddef.h>

#include "common/errmsg.h"

/*
 * Takes ".", ".." and double slashes out of path, by its letters alone. An absolute path stays one ("/.." is "/"); a
 * relative one may come out empty. -EINVAL when a relative path leads above its start, -ENAMETOOLONG.
 */
int path_normalize(const char *path, char *out, size_t len);

/*
 * What arg means to the daemon: the path below the mount point without a leading slash ("" is the root). An absolute
 * path, or one from cwd, that is below the mount point is that; any other relative path is a path from the root of
 * the file system. An absolute one elsewhere is -EXDEV.
 */
int path_map(const char *arg, const char *cwd, const char *mountpoint, char *out, size_t len, struct errmsg *e);

/* What follows mountpoint in the normalized absolute path ("" for itself), or NULL when path is not below it. */
const char *path_below(const char *path, const char *mountpoint);

#endif
