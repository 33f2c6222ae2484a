/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_MAX (256u << 10)

/* Adds the value of the line that begins with the name and its labels. */
static int add_counter(const char *text, const char *name, uint64_t *sum)
{
	size_t len = strlen(name);
	char *end;
	uint64_t v;

	for (; text && *text; text = strchr(text, '\n'), text = text ? text + 1 : NULL) {
		if (strncmp(text, name, len) || text[len] != ' ')
			continue;
		errno = 0;
		v = strtoull(text + len + 1, &end, 10);
		if (errno || end == text + len + 1)
			return -EBADMSG;
		*sum += v;
		return 0;
	}
	return -EBADMSG;
}

int status_parse(const char *text, struct status *ret)
{
	struct status s = {0};
	const struct {
		const char *name;
		uint64_t *sum;
	} wanted[] = {
	    {"fluxkv_hits_total{source=\"memory-local\"}", &s.hits_dram},
	    {"fluxkv_hits_total{source=\"memory-remote\"}", &s.hits_dram},
	    {"fluxkv_hits_total{source=\"ssd-local\"}", &s.hits_ssd},
	    {"fluxkv_hits_total{source=\"ssd-remote\"}", &s.hits_ssd},
	    {"fluxkv_hits_total{source=\"unknown\"}", &s.hits_unknown},
	    {"kvcache_segment_capacity_bytes", &s.dram_capacity},
	    {"kv_ssd_capacity_bytes", &s.ssd_capacity},
	    {"fluxkv_persists_total", &s.persists},
	    {"fluxkv_persist_dropped_total", &s.dropped},
	    {"fluxkv_persist_backlog_bytes", &s.backlog},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(wanted) / sizeof(wanted[0]); i++)
		r = add_counter(text, wanted[i].name, wanted[i].sum);
	if (r == 0)
		*ret = s;
	return r;
}

/* The virtual file with that name, NUL-terminated, good until the next call. 0 or a negative errno. */
static int read_virtual(const struct target *t, const char *name, const char **ret)
{
	static char text[STATUS_MAX]; /* main thread only */
	char path[PATH_MAX + 32];
	size_t len = 0;
	ssize_t n;
	int fd;

	if (!target_is_fluxkv(t))
		return -ENODATA;
	snprintf(path, sizeof(path), "%s/.fluxkv/%s", t->mount.root, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	*ret = text;
	return n < 0 ? -EIO : 0;
}

int status_read(const struct target *t, struct status *ret)
{
	const char *text;
	int r = read_virtual(t, "metrics", &text);

	return r < 0 ? r : status_parse(text, ret);
}

bool status_parse_passthrough(const char *text, struct errmsg *e)
{
	static const char none[] = "no passthrough: ";
	const char *line = strstr(text, "\nreads "), *why = line ? strstr(line, none) : NULL, *end;

	if (!line) {
		errmsg_set(e, -ENODATA, "the mount does not say whether it has passthrough");
		return false;
	}
	end = line + 1 + strcspn(line + 1, "\n");
	if (!why || why > end)
		return true;
	errmsg_set(e, -EOPNOTSUPP, "no passthrough: %.*s", (int)(end - why) - (int)strlen(none), why + strlen(none));
	return false;
}

int status_passthrough(const struct target *t, bool *ret, struct errmsg *e)
{
	const char *text;
	int r = read_virtual(t, "status", &text);

	if (r == 0)
		*ret = status_parse_passthrough(text, e);
	return r;
}

int status_parse_pid(const char *text, pid_t *ret)
{
	static const char mark[] = ", pid ";
	const char *end = strchr(text, '\n'), *at = NULL;
	unsigned long pid;
	char *after;

	/* The last one of the first line: before it are names, which may be anything. */
	for (const char *p = text; end && (p = strstr(p, mark)) && p < end; p++)
		at = p;
	if (!at)
		return -EBADMSG;
	errno = 0;
	pid = strtoul(at + strlen(mark), &after, 10);
	if (errno || *after != ',' || !pid || pid > INT_MAX)
		return -EBADMSG;
	*ret = (pid_t)pid;
	return 0;
}

int status_pid(const struct target *t, pid_t *ret)
{
	const char *text;
	int r = read_virtual(t, "status", &text);

	return r < 0 ? r : status_parse_pid(text, ret);
}

struct status status_since(const struct status *now, const struct status *before)
{
	return (struct status){.hits_dram = now->hits_dram - before->hits_dram,
			       .hits_ssd = now->hits_ssd - before->hits_ssd,
			       .hits_unknown = now->hits_unknown - before->hits_unknown,
			       .dram_capacity = now->dram_capacity,
			       .ssd_capacity = now->ssd_capacity,
			       .persists = now->persists - before->persists,
			       .dropped = now->dropped - before->dropped,
			       .backlog = now->backlog};
}
