/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cgroup.h"

#include <mntent.h>
#include <stdio.h>
#include <string.h>

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
	char path[3 * PATH_MAX];
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

/* Of our group there and of all up to the mount. A container may show its group as the root, and not know our path. */
static uint64_t least_below(const char *mount, bool v2)
{
	char own[PATH_MAX] = "", dir[2 * PATH_MAX], *slash;
	uint64_t least = UINT64_MAX, limit;

	if (!cgroup_own_path(v2, own))
		own[0] = '\0';
	for (;;) {
		snprintf(dir, sizeof(dir), "%s%s", mount, own);
		limit = limit_of(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
		least = limit < least ? limit : least;
		slash = strrchr(own, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

uint64_t cgroup_memory_limit(void)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char line[4 * PATH_MAX];
	uint64_t least = UINT64_MAX, limit;
	struct mntent m;
	bool v2;

	while (f && getmntent_r(f, &m, line, sizeof(line))) {
		v2 = !strcmp(m.mnt_type, "cgroup2");
		if (!v2 && (strcmp(m.mnt_type, "cgroup") || !hasmntopt(&m, "memory")))
			continue;
		limit = least_below(m.mnt_dir, v2);
		least = limit < least ? limit : least;
	}
	if (f)
		endmntent(f);
	return least;
}
