/* SPDX-License-Identifier: Apache-2.0 */
#include "net/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUF_MIN 512u

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

uint8_t *buf_room(struct buf *b, size_t n)
{
	size_t cap = b->cap ? b->cap : BUF_MIN;
	uint8_t *more;

	if (n > SIZE_MAX / 4 - b->len)
		return NULL;
	while (cap < b->len + n)
		cap *= 2;
	if (cap != b->cap) {
		more = realloc(b->data, cap);
		if (!more)
			return NULL;
		b->data = more;
		b->cap = cap;
	}
	return b->data + b->len;
}

int buf_add(struct buf *b, const void *bytes, size_t n)
{
	uint8_t *to = buf_room(b, n);

	if (!to)
		return -ENOMEM;
	if (n)
		memcpy(to, bytes, n);
	b->len += n;
	return 0;
}
