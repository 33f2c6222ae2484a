/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory and the shard files of one device: the cache root with its lock, what alignment the device asks for,
 * preallocation, removal. Only files named shard-<number> are ever touched, and the lock file.
 *
 * Threads: a root is used by one thread at a time, whoever starts or stops the device.
 */
#ifndef SSD_ROOT_H
#define SSD_ROOT_H

#include <stdbool.h>
#include <sys/types.h>

#include "ssd/ssd.h"

struct ssd_dir {
	int fd;	     /* the cache root, or -1 */
	int lock_fd; /* holds the lock while it is open, or -1 */
	dev_t dev;
};

#define SSD_DIR_CLOSED ((struct ssd_dir){.fd = -1, .lock_fd = -1})

struct ssd_shards {
	unsigned n;
	uint64_t size;	    /* of each */
	uint32_t align;	    /* of offsets and lengths, at least 512 */
	uint32_t mem_align; /* of addresses, 1 without O_DIRECT */
	int fds[SSD_MAX_SHARDS];
};

/*
 * Writes text as a file name: letters, digits, '-', '_' and inner '.' stand for themselves, all else is %XX; so no two
 * texts give one name, and none is hidden, "." or "..". -EINVAL when empty, -ENAMETOOLONG over size.
 */
int ssd_safe_name(const char *text, char *ret, size_t size);

/* Makes and opens the cache root below path, and takes its lock. */
int ssd_dir_open(const char *path, const char *cluster, const char *instance, struct ssd_dir *ret, struct errmsg *e);
/* Gives the lock back. The directory and the empty lock file stay. */
void ssd_dir_close(struct ssd_dir *d);

/*
 * Removes the shard files of an earlier run and preallocates at most n new ones, limit bytes together. path is for the
 * messages.
 */
int ssd_shards_open(const struct ssd_dir *d, const char *path, uint64_t limit, unsigned n, bool direct,
		    struct ssd_shards *ret, struct errmsg *e);
/* Closes the files; the directory loses them as well. */
void ssd_shards_close(const struct ssd_dir *d, struct ssd_shards *sh);

#endif
