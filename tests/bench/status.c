/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/status.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define STATUS_MAX (256u << 10)

int status_parse(const char *json, size_t len, struct status *ret)
{
	json_int_t dram = 0, dram_far = 0, ssd = 0, ssd_far = 0, persists = 0, dropped = 0;
	json_t *root = json_loadb(json, len, 0, NULL);
	int r = root ? json_unpack(root, "{s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I}}", "hits", "memory_local", &dram,
				   "memory_remote", &dram_far, "ssd_local", &ssd, "ssd_remote", &ssd_far, "persists",
				   "done", &persists, "dropped", &dropped)
		     : -1;

	json_decref(root);
	if (r < 0)
		return -EBADMSG;
	*ret = (struct status){.hits_dram = (uint64_t)(dram + dram_far),
			       .hits_ssd = (uint64_t)(ssd + ssd_far),
			       .persists = (uint64_t)persists,
			       .dropped = (uint64_t)dropped};
	return 0;
}

int status_read(const struct target *t, struct status *ret)
{
	static char text[STATUS_MAX]; /* main thread only */
	char path[PATH_MAX + 32];
	size_t len = 0;
	ssize_t n;
	int fd;

	if (!target_is_fluxkv(t))
		return -ENODATA;
	snprintf(path, sizeof(path), "%s/.fluxkv/status", t->mount.root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, text + len, sizeof(text) - len)) > 0)
		len += (size_t)n;
	close(fd);
	return n < 0 ? -EIO : status_parse(text, len, ret);
}

struct status status_since(const struct status *now, const struct status *before)
{
	return (struct status){.hits_dram = now->hits_dram - before->hits_dram,
			       .hits_ssd = now->hits_ssd - before->hits_ssd,
			       .persists = now->persists - before->persists,
			       .dropped = now->dropped - before->dropped};
}
