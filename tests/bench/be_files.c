/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain files. `files` puts them beside the SSD tier's and gives the page cache as much memory as the others get for
 * their DRAM tier, through a control group that all workers are in; `dir` takes a directory as it is.
 */
#include <errno.h>

#include "tests/bench/file_session.h"

/* What the workers need beside the page cache: stacks, page tables, the kernel's own. */
#define WORKER_BYTES (2u << 20)

static int start_dir(struct backend *b, struct errmsg *e)
{
	return target_open(&b->values, "values", b->setup.dir, e);
}

static int start_files(struct backend *b, struct errmsg *e)
{
	int r = target_open(&b->values, "values", b->setup.ssd_dir, e);

	if (r == 0 && target_in_memory(&b->values))
		return errmsg_set(e, -EINVAL, "%s is in memory (%s): name a directory on a disk with --ssd-dir",
				  b->setup.ssd_dir, b->values.mount.type);
	return r < 0 ? r : cgroup_new(&b->cgroup, b->setup.dram + (uint64_t)b->setup.clients * WORKER_BYTES, e);
}

static void stop(struct backend *b)
{
}

#define HOW "per hit: from the SSD if the kernel read from a device for the reader (getrusage, ru_inblock)"
#define FILE_SESSIONS                                                                                                  \
	.open = file_session_open_plain, .close = file_session_close, .put = file_session_put,                         \
	.get = file_session_get, .release = file_session_release

const struct backend_ops backend_files = {
    .name = "files", .built = true, .only_ssd = true, .how = HOW, .start = start_files, .stop = stop, FILE_SESSIONS};

const struct backend_ops backend_dir = {
    .name = "dir", .built = true, .how = HOW, .start = start_dir, .stop = stop, FILE_SESSIONS};
