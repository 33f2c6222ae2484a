/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remember(struct places *p, const char *path, bool dir, struct errmsg *e)
{
	char *copy;

	if (p->n == PLACES_MAX)
		return errmsg_set(e, -E2BIG, "%s: the path has more than %d directories that are missing", path,
				  PLACES_MAX);
	copy = strdup(path);
	if (!copy)
		return errmsg_set(e, -ENOMEM, "out of memory");
	p->made[p->n].path = copy;
	p->made[p->n++].dir = dir;
	return 0;
}

static int make_one(struct places *p, const char *path, mode_t mode, struct errmsg *e)
{
	struct stat st;

	if (!mkdir(path, mode))
		return remember(p, path, true, e);
	if (errno == EEXIST && !stat(path, &st))
		return S_ISDIR(st.st_mode) ? 0 : errmsg_set(e, -ENOTDIR, "%s is not a directory", path);
	if (errno == EACCES || errno == EPERM)
		return errmsg_set(e, -errno,
				  "cannot make the directory %s: %s; run as root, or choose places of your own: -o "
				  "run_dir=DIR,state_dir=DIR",
				  path, strerror(errno));
	return errmsg_set(e, -errno, "cannot make the directory %s: %s", path, strerror(errno));
}

int places_mkdir(struct places *p, const char *path, mode_t mode, struct errmsg *e)
{
	char *copy;
	int r = 0;

	if (*path != '/')
		return errmsg_set(e, -EINVAL, "%s: the path must be absolute", path);
	copy = strdup(path);
	if (!copy)
		return errmsg_set(e, -ENOMEM, "out of memory");
	for (char *slash = copy; !r && (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		r = make_one(p, copy, 0755, e);
		*slash = '/';
	}
	if (!r)
		r = make_one(p, copy, mode, e);
	free(copy);
	return r;
}

int places_expect(struct places *p, const char *path, struct errmsg *e)
{
	struct stat st;

	return lstat(path, &st) && errno == ENOENT ? remember(p, path, false, e) : 0;
}

void places_undo(struct places *p)
{
	while (p->n) {
		p->n--;
		if (p->made[p->n].dir)
			rmdir(p->made[p->n].path);
		else
			unlink(p->made[p->n].path);
		free(p->made[p->n].path);
	}
}

void places_keep(struct places *p)
{
	while (p->n)
		free(p->made[--p->n].path);
}
