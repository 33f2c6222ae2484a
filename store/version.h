/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a published version. A struct version is what an open handle holds: as long as it lives, every block of
 * the version keeps at least one replica, whatever eviction, overwrite or unlink do (see store/node.h for threads).
 */
#ifndef STORE_VERSION_H
#define STORE_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "store/node.h"

/*
 * Takes hold of the version for reading and counts one get. Never waits and sends no message. -ESTALE when the
 * version is dropped (overwritten, deleted) or a block of it has no replica any more: look the name up again, which
 * tells a newer version, or -ENOENT (a miss).
 */
int version_open(struct node *n, const struct msg_attr *a, struct version **ret);
struct version *version_close(struct version *v);
/*
 * In a cluster: some of it is on other nodes only. version_fetch() brings its first block, and counts the get; what is
 * left comes as it is read. -ESTALE: it has gone from all nodes; look the name up again. -ENOSPC: no room for it here.
 * The caller holds the version until fn has run.
 */
bool version_is_away(const struct version *v);
void version_fetch(struct version *v, void (*fn)(void *arg, int err), void *arg);
uint64_t version_size(const struct version *v);

#define VERSION_READ_IOV 4

/* Bytes of a version, pinned in memory until version_read_done(). */
struct version_read {
	struct iovec iov[VERSION_READ_IOV];
	int n_iov;
	/* Sum of iov: what was asked, cut at the end of file, at VERSION_READ_IOV blocks, or at one that must be waited
	 * for. */
	size_t len;
	void *pins[VERSION_READ_IOV];
	struct node *node;
};

/*
 * Waits for the first block alone, as it has nothing pinned then; who needs more asks again, and must itself hold
 * nothing of a version meanwhile. Readers that hold what others wait for would wait for each other.
 *
 * r is the caller's own copy from here on: it must be ended with version_read_done() (err 0 only). -EIO: the last
 * copy is lost; -ENOSPC: no memory for the refill within the deadline (5 s). */
typedef void (*version_read_fn)(void *arg, int err, struct version_read *r);
void version_read(struct version *v, uint64_t off, size_t len, version_read_fn fn, void *arg);
/* Never waits. False: the block at off is not in memory. */
bool version_read_now(struct version *v, uint64_t off, size_t len, struct version_read *ret);
void version_read_done(struct version_read *r);

/*
 * The memory file itself, for a kernel that reads it without us. A pin keeps a version of one block in memory: it is
 * not evicted, whatever else has a copy of it, so that it must not be given out without measure.
 */
bool version_is_one_block(const struct version *v);
/* True: pinned. False: the block is not in memory. */
bool version_pin_now(struct version *v);
/* Brings it into memory first; err as for version_read(), 0: pinned. The caller holds the version until fn has run. */
void version_pin(struct version *v, void (*fn)(void *arg, int err), void *arg);
void version_unpin(struct version *v);
/*
 * Opens the memory file of a pinned version, read-only; it is as long as the version. From now on programs may map it
 * without our knowledge, also when the pin has gone: then it is not chosen for eviction, and what it occupies when its
 * version is deleted counts as zombie bytes until they let it go.
 */
int version_share(struct version *v, int *ret_fd);

#endif
