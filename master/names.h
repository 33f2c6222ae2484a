/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: looking them up, listing, making and removing directories, unlinking objects, renaming both.
 */
#ifndef MASTER_NAMES_H
#define MASTER_NAMES_H

#include "master/state.h"

#define RESERVED_NAME ".fluxkv" /* in the root directory: the file system's own virtual files */

/* A name in a directory, as an operation was given it; a copy, for the answer overwrites the request. */
struct name_arg {
	uint32_t dir; /* inode */
	uint32_t hash;
	size_t len;
	char name[MSG_NAME_MAX + 1];
};

/* 0, -EINVAL, -ENAMETOOLONG, -ENOENT or -ENOTDIR (the directory). */
int name_arg(const struct core *c, uint64_t dir, const char name[MSG_NAME_MAX + 1], struct name_arg *ret);
/* Turns the message into an answer with this inode's entry. */
void answer_entry(const struct core *c, struct msg *m, uint32_t h, uint64_t lease);

int op_lookup(struct core *c, struct msg *m);
int op_readdir(struct core *c, struct msg *m);
int op_mkdir(struct core *c, struct msg *m);
int op_rmdir(struct core *c, struct msg *m);
int op_delete(struct core *c, struct msg *m);
int op_rename(struct core *c, struct msg *m);

/* A new directory of that name, which stands for nothing. Says nothing to the catalogue. 0, -ENOMEM, -ENOSPC. */
struct dir_want {
	uint32_t mode, uid, gid;
};
int dir_make(struct core *c, const struct name_arg *n, const struct dir_want *want, uint32_t *ret);
/* Ends an empty directory, and the namespace whose root it is. Needs room for two records. */
void dir_end(struct core *c, uint32_t h, uint32_t asker);

#endif
