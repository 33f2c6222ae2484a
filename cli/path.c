/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int path_normalize(const char *path, char *out, size_t len)
{
	bool absolute = *path == '/';
	size_t n = 0, base = absolute;

	if (len < 2)
		return -ENAMETOOLONG;
	if (absolute)
		out[n++] = '/';
	while (*path) {
		size_t part = strcspn(path, "/");

		if (part == 2 && !memcmp(path, "..", 2)) {
			if (n == base && !absolute)
				return -EINVAL;
			while (n > base && out[--n] != '/')
				;
			if (n < base)
				n = base;
		} else if (part && !(part == 1 && *path == '.')) {
			if (n + part + 2 > len)
				return -ENAMETOOLONG;
			if (n > base)
				out[n++] = '/';
			memcpy(out + n, path, part);
			n += part;
		}
		path += part;
		path += *path == '/';
	}
	out[n] = '\0';
	return 0;
}

const char *path_below(const char *path, const char *mountpoint)
{
	size_t n = strlen(mountpoint);

	if (!strcmp(mountpoint, "/"))
		return path + 1;
	if (strncmp(path, mountpoint, n) || (path[n] && path[n] != '/'))
		return NULL;
	return path[n] ? path + n + 1 : path + n;
}

static int map_error(int err, const char *arg, struct errmsg *e)
{
	if (err == -EINVAL)
		return errmsg_set(e, err, "%s leads above the root of the file system", arg);
	return errmsg_set(e, err, "%.64s...: the path is too long", arg);
}

int path_map(const char *arg, const char *cwd, const char *mountpoint, char *out, size_t len, struct errmsg *e)
{
	char joined[2 * PATH_MAX], full[PATH_MAX];
	const char *below;
	int r;

	if (snprintf(joined, sizeof(joined), "%s/%s", *arg == '/' ? "" : cwd, arg) >= (int)sizeof(joined))
		return map_error(-ENAMETOOLONG, arg, e);
	r = path_normalize(joined, full, sizeof(full));
	if (r)
		return map_error(r, arg, e);
	below = path_below(full, mountpoint);
	if (below) {
		if (strlen(below) >= len)
			return map_error(-ENAMETOOLONG, arg, e);
		memcpy(out, below, strlen(below) + 1);
		return 0;
	}
	if (*arg == '/')
		return errmsg_set(e, -EXDEV, "%s is not below the mount point %s", arg, mountpoint);
	r = path_normalize(arg, out, len);
	return r ? map_error(r, arg, e) : 0;
}
