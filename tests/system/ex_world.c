/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/ex_world.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

int fail(struct world *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->error, sizeof(w->error), fmt, ap);
	va_end(ap);
	return -1;
}

/* The op whose fill() made the bytes, as far as a whole word of it is there. */
static const char *whose(struct world *w, const uint8_t *p, size_t len, char *buf, size_t buf_len)
{
	for (size_t i = 0; i < 8 && i + 8 <= len; i++) {
		uint64_t word;

		memcpy(&word, p + i, 8);
		if (!word && !i) {
			snprintf(buf, buf_len, "zeros");
			return buf;
		}
		word *= 0xf1de83e19937733dull; /* the inverse of fill()'s factor */
		if (word >> 56 == w->id + 1) {
			snprintf(buf, buf_len, "bytes of op %llu", (unsigned long long)(word >> 24 & 0xffffffff));
			return buf;
		}
	}
	snprintf(buf, buf_len, "bytes of no op");
	return buf;
}

int fail_bytes(struct world *w, const char *what, size_t off, size_t len, const void *got, ssize_t n,
	       const struct bytes *want)
{
	size_t there = off < want->len ? want->len - off : 0, i = 0, max;
	char a[64], b[64];

	if (n < 0)
		return fail(w, "%s: read(%zu, %zu): %s", what, off, len, strerror(errno));
	if (there > len)
		there = len;
	max = there < (size_t)n ? there : (size_t)n;
	while (i < max && ((const uint8_t *)got)[i] == want->p[off + i])
		i++;
	return fail(w, "%s: read(%zu, %zu) = %zd, of %zu; differs from the newest version at %zu: %s, not %s", what,
		    off, len, n, there, off + i, whose(w, (const uint8_t *)got + i, (size_t)n - i, a, sizeof(a)),
		    whose(w, want->p + off + i, there - i, b, sizeof(b)));
}

void note(struct world *w, const char *fmt, ...)
{
	char *line = w->history[w->op % HISTORY];
	size_t used = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + used, sizeof(w->history[0]) - used, fmt, ap);
	va_end(ap);
}

/* splitmix64 */
uint64_t rnd(struct world *w)
{
	uint64_t z = w->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t below(struct world *w, uint64_t n)
{
	return n ? rnd(w) % n : 0;
}

bool chance(struct world *w, unsigned percent)
{
	return below(w, 100) < percent;
}

size_t some_size(struct world *w, size_t max)
{
	size_t s;

	switch (below(w, 8)) {
	case 0:
		s = below(w, 64);
		break;
	case 1:
	case 2:
		s = below(w, 2 * PAGE);
		break;
	case 3:
		s = PAGE * (1 + below(w, 32));
		break;
	case 4: /* the edges of pages and of readahead windows */
		s = PAGE * (1 + below(w, 64)) + below(w, 3) - 1;
		break;
	case 5:
	case 6:
		s = below(w, 128 * 1024);
		break;
	default:
		s = below(w, max + 1);
	}
	return s <= max ? s : below(w, max + 1);
}

void fill(struct world *w, size_t len)
{
	uint64_t stamp = (uint64_t)(w->id + 1) << 56 ^ w->op << 24;
	uint8_t *p = w->out;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word = ++stamp * 0x9e3779b97f4a7c15ull;

		memcpy(p, &word, 8);
	}
	while (len--)
		*p++ = (uint8_t)(++stamp | 1);
}

struct name *some_name(struct world *w, bool there)
{
	unsigned at = (unsigned)below(w, w->nnames);

	for (unsigned i = 0; i < w->nnames; i++) {
		struct name *n = &w->names[(at + i) % w->nnames];

		if (!!n->file == there)
			return n;
	}
	return NULL;
}

struct handle *some_handle(struct world *w, int need, int no)
{
	unsigned at = (unsigned)below(w, w->nhandles);

	for (unsigned i = 0; i < w->nhandles; i++) {
		struct handle *h = w->handles[(at + i) % w->nhandles];
		int mode = 1 << (h->flags & O_ACCMODE);

		if ((mode & need) && !(mode & no))
			return h;
	}
	return NULL;
}

bool may_be_gone(const struct world *w, const struct file *f)
{
	if (f->state != FILE_IDLE && f->state != FILE_CLEAN)
		return false;
	return f->maybe_gone || w->opt->evict_any;
}

void name_drop(struct name *n)
{
	n->file = file_put(n->file);
}

void name_set(struct name *n, struct file *f)
{
	struct file *old = n->file;

	n->file = file_get(f);
	file_put(old);
}

struct handle *handle_open(struct world *w, struct file *f, int fd, int flags)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		err(2, "exerciser: out of memory");
	h->fd = fd;
	h->flags = flags;
	h->writer = (flags & O_ACCMODE) != O_RDONLY;
	h->file = file_get(f);
	h->live = true;
	w->handles[w->nhandles++] = h;
	if (h->writer) {
		f->writers++;
	} else if (w->opt->versions && f->state != FILE_DIRTY) {
		handle_add_snap(h);
		h->live = f->state != FILE_IDLE || f->unsettled;
	}
	return h;
}

/* Every reader that joined the writers may from now on see them, or hold what was just published. */
static int snap_readers(struct world *w, struct file *f)
{
	for (unsigned i = w->nhandles; i-- > 0;) {
		struct handle *h = w->handles[i];

		if (h->file == f && !h->writer && h->live && !handle_add_snap(h) && handle_close(w, h))
			return -1;
	}
	return 0;
}

void file_changed(struct world *w, struct file *f)
{
	f->written = true;
	if (f->writers)
		f->state = FILE_DIRTY;
	else
		f->unsettled = true;
}

int file_published(struct world *w, struct file *f)
{
	if (!w->opt->versions)
		return 0;
	if (snap_readers(w, f))
		return -1;
	f->state = f->writers ? FILE_CLEAN : FILE_IDLE;
	f->written = f->unsettled = false;
	/* Who may evict the name under a writer would make its next write bring the name back. */
	return w->opt->evict_any && f->writers ? close_writers(w, f) : 0;
}

static int writer_closed(struct world *w, struct file *f)
{
	bool published = f->state == FILE_DIRTY && f->written;

	f->writers--;
	f->maybe_gone = false;
	if (!w->opt->versions || published) {
		if (!f->writers)
			f->state = FILE_IDLE;
		return file_published(w, f);
	}
	if (f->writers)
		return 0;
	f->state = FILE_IDLE;
	f->unsettled = true;
	return snap_readers(w, f);
}

static int last_look(struct world *w, struct handle *h)
{
	size_t want = w->opt->max_size + PAGE;
	ssize_t n = pread(h->fd, w->in, want, 0);

	if (handle_fits_read(h, 0, w->in, n, want))
		return 0;
	return fail_bytes(w, "before its close", 0, want, w->in, n, h->file->now);
}

int handle_close(struct world *w, struct handle *h)
{
	struct file *f = file_get(h->file);
	int ret = 0;

	if ((h->flags & O_ACCMODE) != O_WRONLY && chance(w, 50))
		ret = last_look(w, h);
	if (close(h->fd) && !ret)
		ret = fail(w, "close of fd %d: %s", h->fd, strerror(errno));
	for (unsigned i = 0; i < w->nhandles; i++)
		if (w->handles[i] == h)
			w->handles[i] = w->handles[--w->nhandles];
	handle_forget(h);
	if (h->writer && writer_closed(w, f) && !ret)
		ret = -1;
	free(h);
	file_put(f);
	return ret;
}

int close_writers(struct world *w, struct file *f)
{
	for (unsigned i = w->nhandles; i-- > 0;)
		if (w->handles[i]->file == f && w->handles[i]->writer)
			return handle_close(w, w->handles[i]) ? -1 : close_writers(w, f);
	return 0;
}

struct world *world_new(const struct options *opt, unsigned id)
{
	struct world *w = calloc(1, sizeof(*w));
	size_t room = (opt->max_size + 2 * PAGE) & ~(size_t)(PAGE - 1);

	if (!w)
		err(2, "exerciser: out of memory");
	w->opt = opt;
	w->id = id;
	w->rng = opt->seed * 0x2545f4914f6cdd1dull + id;
	w->nnames = opt->files * 2; /* about half of them exist at a time */
	w->names = calloc(w->nnames, sizeof(*w->names));
	w->out = aligned_alloc(PAGE, room);
	w->in = aligned_alloc(PAGE, room);
	if (!w->names || !w->out || !w->in)
		err(2, "exerciser: out of memory");
	for (unsigned i = 0; i < w->nnames; i++) {
		static const char *const dirs[] = {"a", "b", "shared"};
		struct name *n = &w->names[i];

		snprintf(n->path, sizeof(n->path), "%s/%s/t%u-%u", opt->dir, dirs[i % 3], id, i);
		n->leaf = strrchr(n->path, '/') + 1;
	}
	return w;
}

struct world *world_free(struct world *w)
{
	if (!w)
		return NULL;
	for (unsigned i = 0; i < w->nheld; i++) {
		munmap(w->held[i].p, w->held[i].bytes->len);
		bytes_put(w->held[i].bytes);
	}
	while (w->nhandles) {
		struct handle *h = w->handles[--w->nhandles];

		close(h->fd);
		handle_forget(h);
		free(h);
	}
	for (unsigned i = 0; i < w->nnames; i++)
		name_drop(&w->names[i]);
	free(w->names);
	free(w->out);
	free(w->in);
	free(w);
	return NULL;
}
