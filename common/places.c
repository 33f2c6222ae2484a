/* SPDX-License-Identifier: Apache-2.0 */
#include "common/places.h"

#include <errno.h>
#include <fcntl.h>
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

static int mkdir_error(const char *path, int err, struct errmsg *e)
{
	if (err == EACCES || err == EPERM)
		return errmsg_set(e, -err,
				  "cannot make the directory %s: %s; run as root, or choose places of your own: "
				  "run_dir and state_dir, see fluxkv.yaml(5)",
				  path, strerror(err));
	return errmsg_set(e, -err, "cannot make the directory %s: %s", path, strerror(err));
}

static int make_one(struct places *p, const char *path, mode_t mode, struct errmsg *e)
{
	struct stat st;

	if (!mkdir(path, mode))
		return remember(p, path, true, e);
	if (errno == EEXIST && !stat(path, &st))
		return S_ISDIR(st.st_mode) ? 0 : errmsg_set(e, -ENOTDIR, "%s is not a directory", path);
	return mkdir_error(path, errno, e);
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

int places_check(const char *path, struct errmsg *e)
{
	char *dir = strdup(path), *slash;
	struct stat st;
	int r = 0;

	if (!dir)
		return errmsg_set(e, -ENOMEM, "out of memory");
	/* Up to what is there. */
	while (stat(dir, &st) && (errno == ENOENT || errno == ENOTDIR) && (slash = strrchr(dir, '/')) && dir[1])
		slash[slash == dir] = '\0';
	if (stat(dir, &st))
		r = mkdir_error(path, errno, e);
	else if (!S_ISDIR(st.st_mode))
		r = errmsg_set(e, -ENOTDIR, "%s is not a directory", dir);
	else if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS))
		r = !strcmp(dir, path) ? errmsg_set(e, -errno, "cannot make files in %s: %s", path, strerror(errno))
				       : mkdir_error(path, errno, e);
	free(dir);
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
