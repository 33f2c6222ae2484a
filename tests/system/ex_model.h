/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exerciser knows a file system must answer: byte strings, files, names and open handles.
 *
 * Two semantics. In "posix" every handle of a file sees its newest bytes. In "versions" (FluxKV) a handle that was
 * opened for reading holds the version it opened. Where the contract leaves two answers open (a reader that opens a
 * name whose writer published and still has it open may get the published version or join the writer), the handle
 * carries both as candidates; the first read that tells them apart decides, and from then on only that one is right.
 *
 * Everything here belongs to one thread's world and is used by that thread alone.
 */
#ifndef TESTS_SYSTEM_EX_MODEL_H
#define TESTS_SYSTEM_EX_MODEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A counted byte string; the owner of a pointer to it holds one count. Changed only while the count is 1. */
struct bytes {
	unsigned refs;
	size_t len, cap;
	uint8_t *p;
};

struct bytes *bytes_new(void);
struct bytes *bytes_get(struct bytes *b);
struct bytes *bytes_put(struct bytes *b); /* takes NULL, returns NULL */
/* These change *b, after replacing it by a copy of its own if somebody else counts on it too. */
void bytes_resize(struct bytes **b, size_t len);
void bytes_write(struct bytes **b, size_t off, const void *data, size_t len);
/* Whether a read of want bytes at off may have returned these n bytes. */
bool bytes_match(const struct bytes *b, size_t off, const void *got, ssize_t n, size_t want);

enum file_state {
	FILE_IDLE,  /* no writable handle */
	FILE_FRESH, /* writable handles, nothing changed since the private version was made from the published one */
	FILE_DIRTY, /* the private version differs, or nothing was ever published: the name must show it */
	FILE_CLEAN, /* writable handles, published (or perhaps published) and not changed since */
};

/* What POSIX calls an inode: the bytes that its name and its writers see now. Counted by its name and its handles. */
struct file {
	unsigned refs, writers;
	enum file_state state;
	bool written;	 /* bytes came since the private version was made or last published: a FLUSH publishes */
	bool unsettled;	 /* idle, but the last close left the publishing to RELEASE, which comes later */
	bool maybe_gone; /* evicted by force: ENOENT is an answer too */
	struct bytes *now;
};

struct file *file_new(void);
struct file *file_get(struct file *f);
struct file *file_put(struct file *f);

#define MAX_SNAPS 8

struct handle {
	int fd, flags;
	bool writer;
	off_t pos;
	struct file *file;
	/* The candidates: the newest bytes of the file, and versions as they were. A writer has live alone. */
	bool live;
	unsigned nsnaps;
	struct bytes *snaps[MAX_SNAPS];
};

struct name {
	char path[PATH_MAX];
	const char *leaf;
	struct file *file; /* NULL: the name does not exist */
};

/* Adds the file's bytes as they are now to a reader's candidates; false: it has too many to tell apart. */
bool handle_add_snap(struct handle *h);
/* Drops the candidates that do not fit what a read returned; false: none fits. */
bool handle_fits_read(struct handle *h, size_t off, const void *got, ssize_t n, size_t want);
bool handle_fits_size(struct handle *h, size_t size);
void handle_forget(struct handle *h); /* gives back everything the handle counts on; not the descriptor */

#endif
