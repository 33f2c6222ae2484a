/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inodes that the kernel knows. A nodeid is the id of what it stands for: a directory's, a published version's
 * put_id, or a private version's own id. An inode is there as long as the kernel's lookups of it are not all
 * forgotten, or somebody here uses it; so the kernel bounds this table.
 *
 * Names: beside the ids the table knows under which name a version or a private version was last told to the kernel.
 * A version has one name at most, and a name stands for one version: when it is told for another inode, moved over or
 * removed, the one that had it has none.
 *
 * Owns: each inode, and one reference to its struct put. Threads: every call from any thread. Locks: a shard's lock
 * guards the counts and attributes of the inodes in it; names_lock guards the names; a shard's lock may be taken
 * under names_lock, never the other way.
 */
#ifndef FUSE_INODE_H
#define FUSE_INODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buckets.h"
#include "net/msg.h"

struct inode_table;
struct put;

struct inode {
	uint64_t i_id;	   /* never changes */
	struct put *i_put; /* never changes; the private version, or NULL */

	/* shard's lock */
	struct inode *i_next;
	uint64_t i_nlookup;
	unsigned i_refs;
	struct msg_attr i_attr; /* as last heard; not kept up to date for a private version */
	uint64_t i_attr_ns;	/* when (clock_ns) */

	/* names_lock */
	struct bucket_link i_by_name; /* while i_named */
	uint64_t i_dir;
	char *i_name; /* the last it had; NULL: it never had one */
	bool i_named; /* the name stands for it */

	atomic_bool i_unlinked; /* its name was removed or renamed over on this mount; relaxed */
	atomic_uint i_cached;	/* handles open through the page cache (private versions) */
	atomic_uint i_writers;	/* handles open for writing */
	atomic_uint i_opens;	/* handles of a published version; passthrough.c's lock to write */
	atomic_uint i_through;	/* those of them whose reads pass through; the same lock to write */
	int i_backing;		/* while there are such: the kernel's id of the memory file; the same lock */
	atomic_bool i_gone;	/* the node said that it is no more, and no lookup has found it since */
	atomic_bool i_tmpfile;	/* made nameless, may be linked once */
};

struct inode_table *inode_table_new(void);
/* Frees every inode, whoever still counts on it. Takes NULL, returns NULL. */
struct inode_table *inode_table_free(struct inode_table *t);

/* A reference, or NULL when the kernel does not know the id. */
struct inode *inode_get(struct inode_table *t, uint64_t id);
/* Takes NULL, returns NULL. */
struct inode *inode_unref(struct inode_table *t, struct inode *i);

/*
 * The kernel is about to be told of a (one more lookup), under a name (NULL: not under one). put is the private
 * version or NULL; its reference is taken over, also on failure. Returns a reference, NULL without memory.
 */
struct inode *inode_know(struct inode_table *t, const struct msg_attr *a, struct put *put, uint64_t dir,
			 const char *name);
/* The kernel gives n lookups back. */
void inode_forget(struct inode_table *t, uint64_t id, uint64_t n);

/* atime never goes back by an older answer, as opens move it here only; atime_set: by utimensat(2) it may. */
void inode_set_attr(struct inode_table *t, struct inode *i, const struct msg_attr *a, bool atime_set);
void inode_get_attr(struct inode_table *t, struct inode *i, struct msg_attr *ret, uint64_t *ret_age_ns);
void inode_has_xattrs(struct inode_table *t, struct inode *i);
void inode_touch_atime(struct inode_table *t, struct inode *i, int64_t now_ns);

/* The inode that the name stands for as far as is known; 0: none. */
uint64_t inode_of_name(struct inode_table *t, uint64_t dir, const char *name);
/*
 * What a rename or removal on this mount did to the inode that had the name when it started. By the time that is known
 * the name may be another's: the kernel lets go of the directory when the task is killed.
 */
struct inode_name {
	uint64_t dir;
	const char *name;
	uint64_t id;
};
void inode_name_moved(struct inode_table *t, const struct inode_name *from, const struct inode_name *to);
void inode_name_removed(struct inode_table *t, const struct inode_name *n);
/* Copies the name (MSG_NAME_MAX + 1). -ENOENT when it has none. */
int inode_get_name(struct inode_table *t, struct inode *i, uint64_t *ret_dir, char *ret_name);
/* Also when it has lost it. */
int inode_get_last_name(struct inode_table *t, struct inode *i, uint64_t *ret_dir, char *ret_name);

uint64_t inode_count(const struct inode_table *t);

#endif
