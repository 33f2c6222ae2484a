/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/suite_node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tests/bench/ssd_place.h"
#include "tests/bench/status.h"

/*
 * In bytes of a run. A refill has twice as many as the others. Two daemons run at once, while a tmpfs or the files to
 * copy take some more; a quarter stays free. The disk may still hold the tier of a daemon that has ended, as file
 * systems free in their own time.
 */
#define DRAM_RUNS 4
#define SSD_RUNS 8
#define MEMORY_RUNS 16
#define DISK_RUNS (2 * SSD_RUNS + 4)

int suite_node_memory(uint64_t *ret)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib;
	int r = -ENODATA;

	while (f && r < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			r = 0;
	if (f)
		fclose(f);
	if (r == 0)
		*ret = kib * 1024;
	return r;
}

int suite_node_room(const struct bench_options *o, uint64_t *ret, struct errmsg *e)
{
	const char *dir = ssd_place(o);
	uint64_t memory, disk;
	struct statvfs st;

	if (suite_node_memory(&memory) < 0)
		return errmsg_set(e, -ENODATA, "/proc/meminfo does not say how much memory is available");
	if (statvfs(dir, &st) < 0)
		return errmsg_set(e, -errno, "%s: %s", dir, strerror(errno));
	disk = (uint64_t)st.f_bavail * st.f_frsize / DISK_RUNS;
	memory /= MEMORY_RUNS;
	*ret = disk < memory ? disk : memory;
	return 0;
}

/* What the mount says about itself. */
static int ask(struct suite_node *n, const struct target *t)
{
	struct status s;
	int r;

	if (!target_is_fluxkv(t))
		return errmsg_set(&n->why, -EINVAL, "%s is not on a FluxKV mount", n->dir);
	r = status_read(t, &s);
	if (r == 0)
		r = status_passthrough(t, &n->passthrough, &n->why);
	if (r < 0)
		return errmsg_set(&n->why, r, "%s: cannot read what .fluxkv of its mount says: %s", n->dir,
				  strerror(-r));
	n->ssd = s.ssd_capacity;
	n->room = s.dram_capacity / DRAM_RUNS;
	if (n->ssd && n->ssd / SSD_RUNS < n->room)
		n->room = n->ssd / SSD_RUNS;
	return 0;
}

int suite_node_start(struct suite_node *n, const struct bench_options *o, uint64_t total, bool ssd, const char *options)
{
	uint64_t room = total > SUITE_NODE_LEAST ? total : SUITE_NODE_LEAST;
	const struct backend_setup setup = {.dram = DRAM_RUNS * room,
					    .ssd = ssd ? SSD_RUNS * room : 0,
					    .ssd_dir = ssd_place(o),
					    .fluxkvd = o->fluxkvd,
					    .options = options};
	int r;

	*n = (struct suite_node){.started = true};
	r = backend_start(&n->backend, &backend_fluxkv, &setup, &n->why);
	if (r < 0)
		return r;
	backend_fluxkv_socket(&n->backend, n->socket);
	n->dir = n->backend.values.path;
	return ask(n, &n->backend.values);
}

int suite_node_take(struct suite_node *n, const char *dir)
{
	struct target t = TARGET_CLOSED;
	int r;

	*n = (struct suite_node){.dir = dir};
	r = target_open(&t, "dir", dir, &n->why);
	if (r == 0)
		r = ask(n, &t);
	target_close(&t);
	return r;
}

void suite_node_end(struct suite_node *n)
{
	if (n->started)
		backend_end(&n->backend);
	n->started = false;
	n->dir = NULL;
}
