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
 * Threads: every call may be made from any thread at any time between segment_open() and segment_close();
 * segment_usage() waits for what is being allocated, up to a few milliseconds. Two calls that change the size of one
 * file (reserve, trim) must not overlap: the caller's lock of the block sees to that.
 *
 * How to fill a file, so that it gets huge pages where they fit and never costs more than segment_charge(length). A
 * file has no holes, ever (a mapped read of a hole in a tmpfs allocates a page that nobody granted): its length only
 * grows by segment_reserve(), which allocates, and writes stay below it.
 *
 * (a) a streaming write of unknown size: before a write up to `need`, charge and segment_reserve() up to
 *     segment_reserve_hint(reserved, need, the namespace's usual size), then pwrite() (faster than a fresh mapping);
 *     at publish segment_trim() to the exact length and give back the rest of the charge. Where the hint cannot be
 *     granted, reserve exactly `need`.
 * (b) a target of known size (refill, transfer): segment_reserve(len), segment_map(PROT_READ | PROT_WRITE), read into
 *     the pages with O_DIRECT up to align_up(len, 4096) (the mapping reaches to the end of the last page), then
 *     segment_zero_tail() when the device wrote beyond len. Without O_DIRECT: reserve and pwrite().
 * (c) sparse writes, ftruncate up, fallocate: segment_reserve(the new length); the gap reads as zero.
 *
 * Bytes between the length and the end of the last page are zero: the kernel zeroes them when a file grows or shrinks;
 * who stores there through a mapping calls segment_zero_tail().
 *
 * Measured on 6.18, GB/s, memory that the machine had touched before; waste is real pages beyond the length:
 *
 *   values of 1 MiB - 128 / 4 MiB - 128 / 16 MiB - 128      waste      write             first mapped read
 *   huge=always, pwrite of 1 MiB pieces                     100/0/0 %  4.8 / 6.7 / 7.2   11.3 / 13.1 / 13.1
 *   huge=never,                "                            0 %        2.4 / 1.7 / 1.8    4.8 /  3.4 /  3.1
 *   huge=within_size, pwrite, no reserve                    0 %        9.3 / 8.2 / 7.7   11.6 / 11.1 / 11.9
 *     reserve(len), pwrite                                  0 %        6.0 / 7.2 / 7.0   13.1 / 12.5 / 12.7
 *     reserve(len), copy through a fresh mapping            0 %        5.6 / 5.2 / 5.1   14.2 / 12.6 / 13.1
 *     2 MiB reserved at a time, pwrite, trim                0 %        3.6 / 6.8 / 6.6    9.2 / 11.8 / 13.1
 *     copy through a mapping, nothing reserved              0 %        1.5 / 5.2 / 5.0    5.9 / 12.3 / 13.6
 *
 * So the mount is huge=within_size: `always` doubles what values below 2 MiB cost. A trim inside a huge page splits it
 * and gives the pages back at once (8 to 190 us). Kernels before 6.14 make huge pages only of whole 2 MiB below the
 * length, which is why the length is set before the pages are allocated.
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
	uint64_t orphaned;  /* of used: unlinked files that somebody still has open or mapped; 0 in the fallback */
	uint64_t files;	    /* names in the segment */
	bool exact;	    /* false in the fallback, where used does not know what is orphaned */
};

/* Whether so much, and what the node needs beside it, fits the machine and our control group. -ENOSPC. */
int segment_fits(uint64_t capacity, struct errmsg *e);
/*
 * Makes the segment, empty. What a crashed predecessor left is unlinked, its mount detached; what somebody still maps
 * of it is taken off the capacity until it is let go. -EBUSY: another live daemon has this instance.
 */
int segment_open(const struct segment_config *config, struct segment **ret, struct errmsg *e);
/* Unlinks everything, unmounts, removes the directory. Takes NULL, returns NULL. */
struct segment *segment_close(struct segment *s);

/* A new, empty file, open O_RDWR. -EEXIST when the id is in use. */
int segment_create(struct segment *s, uint64_t alloc, int *ret_fd);
/* One without a name, for a trial; it must stay empty. */
int segment_scratch(struct segment *s, int *ret_fd);
/* Opens it O_RDONLY, as published blocks are, always. -ENOENT when there is none. */
int segment_open_file(struct segment *s, uint64_t alloc, int *ret_fd);
/* Removes the name; open descriptors and mappings keep the pages. */
int segment_unlink(struct segment *s, uint64_t alloc);
/*
 * Takes a write lease on a file of the segment, until fd is closed: the kernel grants it only to a file's one opener.
 * An open by somebody else meanwhile sends SIGIO, which the program must ignore.
 */
int segment_lease(int fd);
/*
 * Whether anybody has the file open or mapped, a program that reads it through the kernel's passthrough included; this
 * process must not, and must not open it meanwhile. True where the kernel's lease does not tell for sure.
 */
bool segment_is_shared(struct segment *s, uint64_t alloc);

/*
 * Makes the file at least len long with every page allocated. All or nothing: on -ENOSPC the file is as before. What
 * was written stays, what is new reads as zero.
 */
int segment_reserve(struct segment *s, int fd, uint64_t len);
/* How far to reserve for a write that ends at need: guess is the expected final length, 0 when unknown. */
uint64_t segment_reserve_hint(uint64_t reserved, uint64_t need, uint64_t guess);
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
const char *segment_path(const struct segment *s);

#endif
