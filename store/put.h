/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing: a struct put is a private version, the inode that writers of one name share on this node until, and after,
 * its publish. See the page "The file system contract" in docs/architecture.md and store/node.h for threads.
 *
 * Life. put_create() or put_edit() makes one under a name; it is *exposed*: node_lookup() of the name gives it. Writes
 * make it dirty. put_flush() publishes it: the bytes become an immutable version, the name stands for that, and the
 * put is clean and no longer exposed. A later write to a clean put makes a new private copy of the bytes, and the
 * next flush publishes again, under the name the put has by then (renames move it, unlink takes it away; a put
 * without a name is never published, its bytes live as long as its handles).
 *
 * References: put_unref() for each one given out (node_entry.put, put_create, put_edit). Handles: put_open() for each
 * open file description, put_release() at its end. The last release by a writer publishes what is still dirty (an empty
 * new file, data that came through a mapping), or gives all up if the put was abandoned. The put then leaves its name:
 * those who still read it hold what it was published as, and who writes the name next makes another put.
 */
#ifndef STORE_PUT_H
#define STORE_PUT_H

#include <stddef.h>
#include <stdint.h>

#include "store/node.h"

/* A reference to the put, kept by the callback. */
typedef void (*put_fn)(void *arg, int err, struct put *p);

/* A new, empty private version under a name that stands for nothing. -EEXIST if it does (also a private one). */
void put_create(struct node *n, uint64_t dir, const char *name, bool excl, uint32_t mode, uint32_t uid, uint32_t gid,
		put_fn fn, void *arg);
/* A nameless one in a directory's namespace (O_TMPFILE); put_link() gives it its name, once. */
void put_tmpfile(struct node *n, uint64_t dir, uint32_t mode, uint32_t uid, uint32_t gid, put_fn fn, void *arg);
void put_link(struct put *p, uint64_t dir, const char *name, node_done_fn fn, void *arg);
/*
 * For a writable open of a published version: the put of that name, made from a copy of the version (empty with
 * truncate), or the one that is there already. -ESTALE when the name no longer stands for version a.
 */
void put_edit(struct node *n, uint64_t dir, const char *name, const struct msg_attr *a, bool truncate, put_fn fn,
	      void *arg);

struct put *put_ref(struct put *p);
struct put *put_unref(struct put *p);

/*
 * A put whose last writer is gone has left its name for ever, but one who got it from an earlier lookup may still come:
 * put_open() then gives -ESTALE, and the name is looked up anew. writer: who made the put, or may change it; the same
 * at the release.
 */
int put_open(struct put *p, bool writer);
void put_release(struct put *p, bool writer);

/* Never waits. attr.id is the put's own, for ever; attr.size its present size. */
void put_getattr(struct put *p, struct msg_attr *ret);
/* 512-byte blocks that its bytes really take. */
uint64_t put_blocks(struct put *p);
/* mode, uid, gid, times. Published with the next publish, and at once to a version that is published already. */
void put_setattr(struct put *p, const struct msg_attr *a, uint32_t mask, node_done_fn fn, void *arg);
void put_getxattrs(struct put *p, node_blob_fn fn, void *arg);
void put_setxattrs(struct put *p, const uint8_t *blob, size_t len, node_done_fn fn, void *arg);

/*
 * Writes all of buf at off, or fails: -ENOSPC (nothing written, after a bounded wait for eviction), -EFBIG. Parallel
 * writers are allowed. fn may run before the bytes are copied: a write whose room is there is answered first, and
 * whoever comes for its bytes, and every publish, waits for the copy. buf must stay valid until copied runs, after fn.
 */
void put_write(struct put *p, uint64_t off, const void *buf, size_t len, node_done_fn fn, void (*copied)(void *arg),
	       void *arg);
void put_truncate(struct put *p, uint64_t size, node_done_fn fn, void *arg);
/*
 * What open(O_TRUNC) does: put_truncate() to 0, but not a write that the next put_flush() would publish. A shell
 * closes a duplicate of its redirection before the program has written anything.
 */
void put_empty(struct put *p, node_done_fn fn, void *arg);
/* Grants and allocates [off, off + len), and makes the file that long unless keep_size. */
void put_allocate(struct put *p, uint64_t off, uint64_t len, bool keep_size, node_done_fn fn, void *arg);

/*
 * Reads into buf: all that is asked, up to the present end of file; n is what was read. fn may run inline. buf must
 * stay valid until then.
 */
typedef void (*put_read_fn)(void *arg, int err, size_t n);
void put_read(struct put *p, uint64_t off, void *buf, size_t len, put_read_fn fn, void *arg);

/*
 * close(2) of one descriptor (FLUSH), or fsync. Publishes if something was written since the open or the last publish;
 * fn runs when the version is readable. killed: the closing task dies by a signal: publish nothing now, and at the last
 * release give up what nobody else publishes. fn's err: -ENOENT when the directory is gone.
 */
void put_flush(struct put *p, bool killed, node_done_fn fn, void *arg);
/*
 * Before the release of an open for writing that its task never got: nothing is published for it. Other writers' bytes
 * are theirs.
 */
void put_abandon(struct put *p);
/* As put_flush, but also an untouched new empty file is published (fsync). */
void put_sync(struct put *p, node_done_fn fn, void *arg);

#endif
