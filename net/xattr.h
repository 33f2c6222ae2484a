/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user xattrs of one file or directory as one blob: a run of records {u8 name_len, u32 value_len (little
 * endian), name, value}, names unique. At most MSG_XATTRS_MAX bytes in all. Pure functions over the caller's
 * memory; a malformed blob is -EBADMSG, never an overrun.
 */
#ifndef NET_XATTR_H
#define NET_XATTR_H

#include <stddef.h>
#include <stdint.h>

/* The value of name. 0 with *ret_value inside blob, -ENODATA, -EBADMSG. */
int xattr_get(const uint8_t *blob, size_t len, const char *name, const uint8_t **ret_value, size_t *ret_len);

/* The next record behind *pos (start with 0). 1: one was given, 0: the end, -EBADMSG. */
int xattr_next(const uint8_t *blob, size_t len, size_t *pos, const char **ret_name, size_t *ret_name_len,
	       const uint8_t **ret_value, size_t *ret_value_len);

#define XATTR_SET_CREATE 1  /* -EEXIST if it is there */
#define XATTR_SET_REPLACE 2 /* -ENODATA if it is not */

/*
 * A new blob (malloc) with name set to value, or removed when value is NULL (then -ENODATA if it is not there).
 * -ENOSPC above MSG_XATTRS_MAX, -ERANGE for a name above 255 bytes, -ENOMEM, -EBADMSG.
 */
int xattr_set(const uint8_t *blob, size_t len, const char *name, const void *value, size_t value_len, int flags,
	      uint8_t **ret, size_t *ret_len);

#endif
