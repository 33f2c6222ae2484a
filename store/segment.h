/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment: the DRAM an owner contributes, as a private tmpfs of its own at <run_dir>/<instance>/segment (0700).
 * The memory copy of a block is one file in it, named after its allocation id in hex. Without the right to mount it
 * is a directory in /dev/shm, with the same code and without huge pages.
 *
 * Who owns what: the segment owns the mount, the directory and the lock file beside it (<run_dir>/<instance>/
 * segment.lock; a second daemon of the same instance is refused with the pid of the first). It holds no descriptor
 * per file: the caller owns each descriptor and mapping that it is given, and closes and unmaps it.
 *
 * Threads: every call may be made from any thread at any time between segment_open() and segment_close(); there is no
 * lock. Two calls that change the size of one file (reserve, trim) must not overlap: the caller's lock of the block
 * sees to that.
 *
 * How to fill a file, so that it gets huge pages where they fit and never costs more than segment_charge(length):
 *
 * (a) a streaming write of unknown size in 1 MiB pieces: charge and segment_reserve() the next chunk (the namespace's
 *     usual size first, then 2 MiB and more at a time) before the pieces that need it, pwrite() them or copy them
 *     through a mapping, and segment_trim() to the exact length at publish. Give back charge(reserved) - charge(len).
 * (b) a target of known size (refill, transfer): segment_reserve(0, len), segment_map(PROT_READ | PROT_WRITE), read
 *     into the pages with O_DIRECT up to align_up(len, 4096) (the mapping reaches to the end of the last page), then
 *     segment_zero_tail() when the device wrote beyond len.
 * (c) sparse writes, ftruncate up, fallocate: segment_reserve(0 .. new length). No file has holes, ever: a mapped read
 *     of a hole in a tmpfs allocates a page that nobody granted.
 *
 * Bytes between the length and the end of the last page are zero: the kernel zeroes them when a file grows or shrinks;
 * who stores there through a mapping calls segment_zero_tail().
 */
#ifndef STORE_SEGMENT_H
#define STORE_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"

#define SEGMENT_PAGE UINT64_C(4096)

struct segment;

struct segment_config {
	const char *run_dir;  /* made (0755) when missing */
	const char *instance; /* one path component; its directory is made 0700 */
	uint64_t capacity;    /* bytes; cut down to whole pages; at least one page */
	bool allow_fallback;  /* a directory in /dev/shm where mounting is not permitted */
};

struct segment_usage {
	uint64_t capacity;  /* configured, less what a predecessor's readers still occupy */
	uint64_t used;	    /* real pages in use, in bytes, with those of unlinked files that somebody still holds */
	uint64_t inherited; /* what readers of a predecessor's files still occupy; already taken off capacity */
	uint64_t files;	    /* names in the segment */
	bool exact;	    /* false in the fallback, where used does not know unlinked files that are still held */
};

/*
 * Makes the segment, empty. What a crashed predecessor left is unlinked, its mount detached; what somebody still maps
 * of it is taken off the capacity until it is let go. -EBUSY: another live daemon has this instance.
 */
int segment_open(const struct segment_config *config, struct segment **ret, struct errmsg *e);
/* Unlinks everything, unmounts, removes the directory. Takes NULL, returns NULL. */
struct segment *segment_close(struct segment *s);

/* A new, empty file, open O_RDWR. -EEXIST when the id is in use. */
int segment_create(struct segment *s, uint64_t alloc, int *ret_fd);
/* flags: O_RDONLY or O_RDWR. Published blocks are opened O_RDONLY, always. -ENOENT when there is none. */
int segment_open_file(struct segment *s, uint64_t alloc, int flags, int *ret_fd);
/* Removes the name; open descriptors and mappings keep the pages. */
int segment_unlink(struct segment *s, uint64_t alloc);

/*
 * Allocates every page of [offset, offset + len) and makes the file at least that long. All or nothing: on -ENOSPC the
 * file is as before. Written bytes stay, new ones read as zero.
 */
int segment_reserve(struct segment *s, int fd, uint64_t offset, uint64_t len);
/* Cuts the file to len and gives the pages beyond back. ret_bytes (may be NULL): what the file really occupies now. */
int segment_trim(struct segment *s, int fd, uint64_t len, uint64_t *ret_bytes);
/* Zeroes what lies between len and the end of its page in a mapping made by segment_map(). */
void segment_zero_tail(void *map, uint64_t len);

/* Maps the first len bytes, up to the end of the last page. The file must be reserved that far. len > 0. */
int segment_map(struct segment *s, int fd, uint64_t len, int prot, void **ret);
void segment_unmap(void *map, uint64_t len);

/* What a file of len costs in bytes of real pages: what the ledger charges. Never below the real use. */
static inline uint64_t segment_charge(uint64_t len)
{
	return (len + SEGMENT_PAGE - 1) & ~(SEGMENT_PAGE - 1);
}

int segment_usage(struct segment *s, struct segment_usage *ret);
bool segment_is_private_mount(const struct segment *s);
bool segment_has_huge_pages(const struct segment *s);
const char *segment_path(const struct segment *s);

#endif
