/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mountinfo.h"

bool cgroup_own_path(bool v2, char ret[static PATH_MAX])
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX + 256], names[256], path[PATH_MAX];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		names[0] = '\0';
		if (sscanf(line, "%*u::%4095[^\n]", path) != 1 &&
		    sscanf(line, "%*u:%255[^:]:%4095[^\n]", names, path) != 2)
			continue;
		found =
		    v2 ? !names[0] : !strcmp(names, "memory") || strstr(names, "memory,") || strstr(names, ",memory");
	}
	if (f)
		fclose(f);
	if (found)
		memcpy(ret, path, sizeof(path));
	return found;
}

/* UINT64_MAX: the file is not there, or says "max". */
static uint64_t limit_of(const char *dir, const char *file)
{
	char path[3 * PATH_MAX + 32];
	unsigned long long v = UINT64_MAX;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "re");
	if (!f)
		return UINT64_MAX;
	if (fscanf(f, "%llu", &v) != 1)
		v = UINT64_MAX;
	fclose(f);
	return v;
}

/* The group around that of our cgroup namespace, or one further out: "/..", "/../..". */
static bool is_outer(const char *root)
{
	while (!strncmp(root, "/..", 3))
		root += 3;
	return !*root;
}

const char *cgroup_below(const char *own, const char *root)
{
	size_t n = strlen(root);

	if (!strcmp(root, "/"))
		return own;
	if (!strncmp(own, root, n) && (!own[n] || own[n] == '/'))
		return own + n;
	return is_outer(root) ? "" : NULL;
}

/* Of our group there and of all up to the mount. A container may show its group as the root, and not know our path. */
static uint64_t least_below(const char *mount, const char *below, bool v2)
{
	char dir[3 * PATH_MAX], *slash;
	uint64_t least = UINT64_MAX, limit;
	size_t n = strlen(mount);

	snprintf(dir, sizeof(dir), "%s%s", mount, below);
	for (;;) {
		limit = limit_of(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
		least = limit < least ? limit : least;
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < n)
			return least;
		*slash = '\0';
	}
}

static bool has_option(const char *options, const char *word)
{
	size_t n = strlen(word);

	for (; options; options = strchr(options, ',')) {
		options += *options == ',';
		if (!strncmp(options, word, n) && (!options[n] || options[n] == ','))
			return true;
	}
	return false;
}

/* What the groups around us that this mount shows allow. One of other groups says nothing about us. */
static uint64_t limit_of_mount(const struct mount_line *m)
{
	bool v2 = !strcmp(m->fstype, "cgroup2");
	char own[PATH_MAX];
	const char *below;

	if (!v2 && (strcmp(m->fstype, "cgroup") || !has_option(m->options, "memory")))
		return UINT64_MAX;
	if (!cgroup_own_path(v2, own))
		own[0] = '\0';
	below = cgroup_below(own, m->root);
	return below ? least_below(m->target, below, v2) : UINT64_MAX;
}

uint64_t cgroup_memory_limit(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	uint64_t least = UINT64_MAX, limit;
	struct mount_line m;
	char *line = NULL;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) >= 0) {
		limit = mount_line_parse(line, &m) < 0 ? UINT64_MAX : limit_of_mount(&m);
		least = limit < least ? limit : least;
	}
	free(line);
	if (f)
		fclose(f);
	return least;
}
