/* SPDX-License-Identifier: Apache-2.0 */
#include "master/writes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

#define WRITES_MIN 4096u

/* What a record takes in the buffer; the data behind it is padded so that the next one is aligned. */
static size_t rec_size(size_t data)
{
	return sizeof(struct write_rec) + (size_t)align_up(data, 8);
}

static int grow(struct writes *w, size_t more)
{
	size_t cap = w->cap ? w->cap : WRITES_MIN;
	uint8_t *buf;

	if (more > SIZE_MAX / 4 || w->len > SIZE_MAX / 4)
		return -ENOMEM;
	if (w->len + more <= w->cap)
		return 0;
	while (cap < w->len + more)
		cap *= 2;
	buf = realloc(w->buf, cap);
	if (!buf)
		return -ENOMEM;
	w->buf = buf;
	w->cap = cap;
	return 0;
}

int writes_room(struct writes *w, size_t n, size_t data)
{
	if (n > SIZE_MAX / 8 / sizeof(struct write_rec) || data > SIZE_MAX / 8)
		return -ENOMEM;
	/* Each record may pad its data by up to 7 bytes. */
	return grow(w, n * (sizeof(struct write_rec) + 8) + data);
}

int writes_add(struct writes *w, const struct write_rec *rec)
{
	size_t need = rec_size(rec->len);
	int r = grow(w, need);

	if (r < 0)
		return r;
	memcpy(w->buf + w->len, rec, sizeof(*rec));
	if (rec->len)
		memcpy(w->buf + w->len + sizeof(*rec), rec->data, rec->len);
	w->len += need;
	w->n++;
	if (rec->type == WRITE_COUNTER && rec->u.counter > w->counter)
		w->counter = rec->u.counter;
	return 0;
}

const struct write_rec *writes_next(const struct writes *w, size_t *pos)
{
	struct write_rec *rec;

	if (*pos >= w->len)
		return NULL;
	rec = (struct write_rec *)(w->buf + *pos);
	rec->data = w->buf + *pos + sizeof(*rec); /* the buffer may have moved since it was added */
	*pos += rec_size(rec->len);
	return rec;
}

void writes_clear(struct writes *w)
{
	w->len = 0;
	w->n = 0;
	w->counter = 0;
}

void writes_free(struct writes *w)
{
	free(w->buf);
	memset(w, 0, sizeof(*w));
}

int writes_move(struct writes *dst, struct writes *src)
{
	int r;

	if (!dst->len) {
		struct writes t = *dst;

		*dst = *src;
		*src = t;
		return 0;
	}
	if (!src->len)
		return 0;
	r = grow(dst, src->len);
	if (r < 0)
		return r;
	memcpy(dst->buf + dst->len, src->buf, src->len);
	dst->len += src->len;
	dst->n += src->n;
	if (src->counter > dst->counter)
		dst->counter = src->counter;
	writes_clear(src);
	return 0;
}
