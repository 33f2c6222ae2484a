/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/ex_model.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
	if (!p)
		err(2, "exerciser: out of memory");
	return p;
}

struct bytes *bytes_new(void)
{
	struct bytes *b = must(calloc(1, sizeof(*b)));

	b->refs = 1;
	return b;
}

struct bytes *bytes_get(struct bytes *b)
{
	b->refs++;
	return b;
}

struct bytes *bytes_put(struct bytes *b)
{
	if (b && !--b->refs) {
		free(b->p);
		free(b);
	}
	return NULL;
}

/* Makes *b ours alone, with room for cap bytes. */
static void bytes_own(struct bytes **b, size_t cap)
{
	struct bytes *old = *b;

	if (old->refs > 1) {
		*b = bytes_new();
		(*b)->p = must(malloc(old->len > cap ? old->len : cap + 1));
		(*b)->cap = old->len > cap ? old->len : cap + 1;
		if (old->len)
			memcpy((*b)->p, old->p, old->len);
		(*b)->len = old->len;
		bytes_put(old);
	} else if (cap > old->cap) {
		old->p = must(realloc(old->p, cap));
		old->cap = cap;
	}
}

void bytes_resize(struct bytes **b, size_t len)
{
	bytes_own(b, len);
	if (len > (*b)->len)
		memset((*b)->p + (*b)->len, 0, len - (*b)->len);
	(*b)->len = len;
}

void bytes_write(struct bytes **b, size_t off, const void *data, size_t len)
{
	if (!len)
		return;
	if (off + len > (*b)->len)
		bytes_resize(b, off + len);
	else
		bytes_own(b, (*b)->len);
	memcpy((*b)->p + off, data, len);
}

bool bytes_match(const struct bytes *b, size_t off, const void *got, ssize_t n, size_t want)
{
	size_t there = off < b->len ? b->len - off : 0;

	if (there > want)
		there = want;
	return n >= 0 && (size_t)n == there && (!there || !memcmp(b->p + off, got, there));
}

struct file *file_new(void)
{
	struct file *f = must(calloc(1, sizeof(*f)));

	f->refs = 1;
	f->now = bytes_new();
	return f;
}

struct file *file_get(struct file *f)
{
	f->refs++;
	return f;
}

struct file *file_put(struct file *f)
{
	if (f && !--f->refs) {
		bytes_put(f->now);
		free(f);
	}
	return NULL;
}

bool handle_add_snap(struct handle *h)
{
	for (unsigned i = 0; i < h->nsnaps; i++)
		if (h->snaps[i] == h->file->now)
			return true;
	if (h->nsnaps == MAX_SNAPS)
		return false;
	h->snaps[h->nsnaps++] = bytes_get(h->file->now);
	return true;
}

static void drop_snap(struct handle *h, unsigned i)
{
	bytes_put(h->snaps[i]);
	h->snaps[i] = h->snaps[--h->nsnaps];
}

bool handle_fits_read(struct handle *h, size_t off, const void *got, ssize_t n, size_t want)
{
	if (h->live && !bytes_match(h->file->now, off, got, n, want)) {
		if (!h->nsnaps)
			return false;
		h->live = false;
	}
	for (unsigned i = h->nsnaps; i-- > 0;)
		if (!bytes_match(h->snaps[i], off, got, n, want)) {
			if (!h->live && h->nsnaps == 1)
				return false;
			drop_snap(h, i);
		}
	return true;
}

bool handle_fits_size(struct handle *h, size_t size)
{
	if (h->live && h->file->now->len != size) {
		if (!h->nsnaps)
			return false;
		h->live = false;
	}
	for (unsigned i = h->nsnaps; i-- > 0;)
		if (h->snaps[i]->len != size) {
			if (!h->live && h->nsnaps == 1)
				return false;
			drop_snap(h, i);
		}
	return true;
}

void handle_forget(struct handle *h)
{
	while (h->nsnaps)
		drop_snap(h, h->nsnaps - 1);
	h->file = file_put(h->file);
	h->fd = -1;
}
