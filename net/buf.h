/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that grow. Zeroed memory is an empty one. Its owner's alone: no locks. */
#ifndef NET_BUF_H
#define NET_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t len, cap;
};

void buf_free(struct buf *b); /* leaves an empty one */
/* Room for n more bytes behind the last: where they go, or NULL without memory. buf.len stays: the caller adds to it.
 */
uint8_t *buf_room(struct buf *b, size_t n);
int buf_add(struct buf *b, const void *bytes, size_t n); /* 0, -ENOMEM */

#endif
