/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and user xattrs of directories and versions.
 */
#ifndef MASTER_ATTRS_H
#define MASTER_ATTRS_H

#include "master/state.h"

int op_getattr(struct core *c, struct msg *m);
int op_setattr(struct core *c, struct msg *m);
int op_getxattrs(struct core *c, struct msg *m);
int op_setxattrs(struct core *c, struct msg *m);

int xattrs_init(struct core *c);
void xattrs_fini(struct core *c);
/* A well-formed blob of at most MSG_XATTRS_MAX bytes: 0, else -EINVAL, -ENOSPC. */
int xattrs_check(const uint8_t *blob, size_t len);
/* Makes sure that xattrs_set() of len bytes cannot fail. 0, -ENOMEM, -ENOSPC. */
int xattrs_room(struct core *c, const struct inode *i, size_t len);
/* Gives the inode the set, taking over the blob; an empty one is none. After xattrs_room(). */
void xattrs_set(struct core *c, struct inode *i, uint8_t *blob, size_t len);
void xattrs_remove(struct core *c, struct inode *i);
/* The set's record, pointing into it; an empty one if it has none. */
void xattrs_record(const struct core *c, const struct inode *i, struct write_rec *rec);

#endif
