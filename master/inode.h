/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inodes, found by id and by name, and the names in their directories. Nothing here decides anything, and nothing
 * is said to the catalogue: that is for the operations.
 */
#ifndef MASTER_INODE_H
#define MASTER_INODE_H

#include "master/state.h"

int inodes_init(struct core *c); /* 0, -ENOMEM */
void inodes_fini(struct core *c);

/* A new inode, in by_id. NULL: no memory, or max_inodes reached (see inodes_full). */
struct inode *inode_new(struct core *c, uint64_t id, enum msg_kind kind, uint32_t *ret_handle);
bool inodes_full(const struct core *c);
/* Ends one that no name stands for. */
void inode_free(struct core *c, uint32_t h);

/* 0: none. */
uint32_t inode_find(const struct core *c, uint64_t id);
/* The inode of a directory: 0, -ENOENT, -ENOTDIR. */
int inode_find_dir(const struct core *c, uint64_t id, uint32_t *ret);

/* A name as a message carries it: bounded, without '/', not "." or "..". 0, -EINVAL, -ENAMETOOLONG. */
int name_check(const char name[MSG_NAME_MAX + 1], size_t *ret_len);
uint32_t name_hash(const struct core *c, uint32_t dir, const char *name, size_t len);
/* What a name stands for, expired or not; 0: nothing. */
uint32_t name_find(const struct core *c, uint32_t dir, const char *name, size_t len, uint32_t hash);

/* Makes sure that name_link() cannot fail: a copy of the name (the caller's until then), a slot, a table entry. */
int name_room(struct core *c, uint32_t dir, const char *name, size_t len, char **ret_copy);
void name_link(struct core *c, uint32_t h, uint32_t dir, char *copy, size_t len, uint32_t hash, uint64_t cookie);
void name_unlink(struct core *c, uint32_t h);
/* `to`, which has no name, takes over the name of `from`, with its cookie and lease. */
void name_move(struct core *c, uint32_t from, uint32_t to);

/* The first slot of the directory whose cookie is above the given one; d->n if there is none. */
uint32_t dir_seek(const struct dir *d, uint64_t cookie);
static inline uint64_t slot_cookie(const struct slot *s)
{
	return (uint64_t)s->cookie_hi << 32 | s->cookie_lo;
}
/* Forgets the slots whose inode is no longer one; for when many went at once without name_unlink(). */
void dir_sweep(struct core *c, struct dir *d);
/* Something was made or removed in the directory. */
void dir_touch(struct core *c, uint32_t dir);

void inode_attr(const struct core *c, const struct inode *i, struct msg_attr *ret);
uint8_t inode_write_flags(const struct inode *i); /* WRITE_OF_* */
/* The row that says all of it; rec->data points into the inode. */
void inode_record(const struct core *c, const struct inode *i, struct write_rec *rec);
uint64_t inodes_memory(const struct core *c);

#endif
