/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/ex_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/system/ex_io.h"

#define PAGE 4096u
#define WRITE_MAX (512u * 1024) /* one request to a FUSE daemon, also unaligned: such a write may not be cut short */

/* Whether the failure just seen (errno) is the answer of a store that is full. */
static bool out_of_space(struct world *w)
{
	if (errno != ENOSPC || !w->opt->evict_any)
		return false;
	w->enospc++;
	note(w, " ENOSPC");
	return true;
}

/* Whether ENOENT for this name is the answer of a store that evicted it; the model then forgets the name. */
static bool evicted(struct world *w, struct name *n)
{
	if (errno != ENOENT || !n->file || !may_be_gone(w, n->file))
		return false;
	w->evicted++;
	note(w, " evicted");
	name_drop(n);
	return true;
}

static void still_there(struct name *n)
{
	n->file->maybe_gone = false;
}

static int read_all(struct world *w, int fd, const struct bytes *want, const char *what)
{
	size_t off = 0;

	while (off <= want->len) {
		size_t len = 1 + below(w, w->opt->max_size);
		struct iovec iov = {w->in, len};
		ssize_t n = io_preadv(fd, &iov, 1, (off_t)off);

		if (!bytes_match(want, off, w->in, n, len))
			return fail_bytes(w, what, off, len, w->in, n, want);
		off += len;
	}
	return 0;
}

/* The name, opened afresh, must show the newest bytes, whatever state its file is in. */
static int verify_name(struct world *w, struct name *n)
{
	int fd = io_open(n->path, O_RDONLY | (chance(w, 15) ? O_DIRECT : 0));
	struct stat st;
	int ret;

	if (fd < 0)
		return evicted(w, n) ? 0 : fail(w, "open %s: %s", n->leaf, strerror(errno));
	still_there(n);
	if (fstat(fd, &st))
		ret = fail(w, "fstat %s: %s", n->leaf, strerror(errno));
	else if ((size_t)st.st_size != n->file->now->len)
		ret = fail(w, "%s has size %lld, not %zu", n->leaf, (long long)st.st_size, n->file->now->len);
	else
		ret = read_all(w, fd, n->file->now, n->leaf);
	if (close(fd) && !ret)
		ret = fail(w, "close %s: %s", n->leaf, strerror(errno));
	return ret;
}

static int op_verify(struct world *w)
{
	struct name *n = some_name(w, true);

	if (!n)
		return 0;
	note(w, "verify %s", n->leaf);
	return verify_name(w, n);
}

/* Whether fd is the inode of a handle that the model has for the file. */
static bool same_inode(struct world *w, const struct file *f, int fd)
{
	struct stat st, of;

	for (unsigned i = 0; i < w->nhandles; i++)
		if (w->handles[i]->file == f && !fstat(fd, &st) && !fstat(w->handles[i]->fd, &of) &&
		    st.st_ino == of.st_ino)
			return true;
	return false;
}

/*
 * An O_CREAT open of a name that may have been evicted succeeded: the old bytes, or a new file? One that the open has
 * emptied looks like either, and is the old one only to who has that open.
 */
static int which_file(struct world *w, struct name *n, int fd)
{
	struct stat st;

	if (stat(n->path, &st))
		return fail(w, "stat %s after open: %s", n->leaf, strerror(errno));
	if (st.st_size || !n->file->now->len || same_inode(w, n->file, fd))
		return 0; /* the next look at its bytes says whether they are right */
	w->evicted++;
	note(w, " evicted");
	name_drop(n);
	return 0;
}

static int open_flags(struct world *w)
{
	static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
	int flags = modes[below(w, 5)];

	if (chance(w, 15))
		flags |= O_DIRECT;
	if (chance(w, 5))
		flags |= O_NOATIME;
	if (flags & (O_WRONLY | O_RDWR)) {
		flags |= chance(w, 70) ? O_CREAT : 0;
		flags |= chance(w, 15) ? O_TRUNC : 0;
		flags |= chance(w, 10) ? O_APPEND : 0;
		flags |= (flags & O_CREAT) && chance(w, 10) ? O_EXCL : 0;
	}
	return flags;
}

static void writer_opened(struct name *n, int flags, bool created)
{
	struct file *f = n->file;

	if (created || (flags & O_TRUNC)) {
		bytes_resize(&f->now, 0);
		f->state = FILE_DIRTY;
	} else if (f->state == FILE_IDLE) {
		f->state = FILE_FRESH;
	}
	if (created)
		f->written = false;
}

static int write_at(struct world *w, struct handle *h, off_t off, size_t len, bool seek);

static int opened(struct world *w, struct name *n, int fd, int flags)
{
	bool created = !n->file;
	struct handle *h;

	if (created) {
		n->file = file_new();
	} else if (flags & O_EXCL) { /* it had been evicted */
		name_drop(n);
		n->file = file_new();
		created = true;
	}
	still_there(n);
	if (flags & (O_WRONLY | O_RDWR))
		writer_opened(n, flags, created);
	h = handle_open(w, n->file, fd, flags);
	note(w, " = %d%s", fd, created ? " new" : "");
	/* A private copy whose published version may be evicted: change it at once, so that the name is ours. */
	if (w->opt->evict_any && n->file->state == FILE_FRESH)
		return write_at(w, h, 0, 1, false) || close_writers(w, n->file) ? -1 : 0;
	return 0;
}

static int op_open(struct world *w)
{
	struct name *n = some_name(w, chance(w, 70));
	int flags = open_flags(w), fd;

	if (!n || w->nhandles == MAX_HANDLES)
		return 0;
	note(w, "open %s 0x%x", n->leaf, flags);
	fd = io_open(n->path, flags);
	if (fd < 0) {
		if (n->file && (flags & O_EXCL) && errno == EEXIST)
			return 0;
		if (!n->file && !(flags & O_CREAT) && errno == ENOENT)
			return 0;
		return evicted(w, n) || out_of_space(w) ? 0 : fail(w, "open %s: %s", n->leaf, strerror(errno));
	}
	if (!n->file && !(flags & O_CREAT))
		return fail(w, "open %s without O_CREAT succeeds: the name should not exist", n->leaf);
	if (n->file && (flags & O_EXCL) && !may_be_gone(w, n->file))
		return fail(w, "open %s with O_EXCL succeeds: the name exists", n->leaf);
	if (n->file && (flags & O_CREAT) && may_be_gone(w, n->file) && which_file(w, n, fd))
		return -1;
	return opened(w, n, fd, flags);
}

static int op_close(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ | CAN_WRITE, 0);

	if (!h)
		return 0;
	note(w, "close %d", h->fd);
	return handle_close(w, h);
}

/* Shells do this: the FLUSH of a copy of the descriptor publishes what was written, and nothing else. */
static int op_dup_close(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);
	int fd;

	if (!h)
		return 0;
	note(w, "dup-close %d", h->fd);
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || close(fd))
		return fail(w, "dup and close of fd %d: %s", h->fd, strerror(errno));
	return h->file->state == FILE_DIRTY && h->file->written ? file_published(w, h->file) : 0;
}

static int read_at(struct world *w, struct handle *h, off_t off, size_t len, bool seek)
{
	size_t cut = below(w, len + 1);
	struct iovec iov[2] = {{w->in, cut ? cut : len}, {w->in + cut, cut ? len - cut : 0}};
	ssize_t n = io_preadv(h->fd, iov, cut ? 2 : 1, seek ? -1 : off);
	char what[64];

	note(w, "read %d off %lld len %zu+%zu = %zd", h->fd, (long long)off, cut, len - cut, n);
	if (!handle_fits_read(h, (size_t)off, w->in, n, len)) {
		snprintf(what, sizeof(what), "fd %d, none of its versions", h->fd);
		return fail_bytes(w, what, (size_t)off, len, w->in, n, h->file->now);
	}
	if (seek)
		h->pos += n;
	return 0;
}

static int op_pread(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ, 0);
	off_t off;

	if (!h)
		return 0;
	off = (off_t)some_size(w, chance(w, 80) ? h->file->now->len : w->opt->max_size);
	return read_at(w, h, off, some_size(w, w->opt->max_size), false);
}

static int op_read(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ, 0);

	return h ? read_at(w, h, h->pos, some_size(w, w->opt->max_size), true) : 0;
}

static int write_at(struct world *w, struct handle *h, off_t off, size_t len, bool seek)
{
	size_t cut = below(w, len + 1);
	struct iovec iov[2] = {{w->out, cut ? cut : len}, {w->out + cut, cut ? len - cut : 0}};
	ssize_t n;

	fill(w, len);
	n = io_pwritev(h->fd, iov, cut ? 2 : 1, seek ? -1 : off);
	if (h->flags & O_APPEND)
		off = (off_t)h->file->now->len;
	note(w, "write %d off %lld len %zu+%zu = %zd", h->fd, (long long)off, cut, len - cut, n);
	if (n < 0)
		return out_of_space(w)
			   ? 0
			   : fail(w, "write(%lld, %zu) to fd %d: %s", (long long)off, len, h->fd, strerror(errno));
	if ((size_t)n != len)
		return fail(w, "write(%lld, %zu) to fd %d wrote %zd", (long long)off, len, h->fd, n);
	if (!len) /* also with O_APPEND, the position stays */
		return 0;
	bytes_write(&h->file->now, (size_t)off, w->out, len);
	file_changed(w, h->file);
	if (seek)
		h->pos = off + n;
	return 0;
}

/* As much of len bytes as may stand at off. */
static size_t room_at(struct world *w, struct handle *h, size_t off, size_t len)
{
	if (h->flags & O_APPEND)
		off = h->file->now->len;
	if (len > WRITE_MAX)
		len = WRITE_MAX;
	return off >= w->opt->max_size ? 0 : len < w->opt->max_size - off ? len : w->opt->max_size - off;
}

static int op_pwrite(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);
	size_t off;

	if (!h)
		return 0;
	/* Mostly inside; sometimes beyond the end, which leaves a hole. */
	off = some_size(w, chance(w, 75) ? h->file->now->len : w->opt->max_size);
	return write_at(w, h, (off_t)off, room_at(w, h, off, some_size(w, w->opt->max_size)), false);
}

static int op_write(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);

	if (!h)
		return 0;
	return write_at(w, h, h->pos, room_at(w, h, (size_t)h->pos, some_size(w, w->opt->max_size)), true);
}

static int op_seek_end(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ | CAN_WRITE, 0);
	off_t end;

	if (!h)
		return 0;
	end = lseek(h->fd, 0, SEEK_END);
	note(w, "seek %d end = %lld", h->fd, (long long)end);
	if (end < 0 || !handle_fits_size(h, (size_t)end))
		return fail(w, "SEEK_END of fd %d = %lld (newest version has %zu)", h->fd, (long long)end,
			    h->file->now->len);
	h->pos = (off_t)below(w, (uint64_t)end + 1);
	if (lseek(h->fd, h->pos, SEEK_SET) != h->pos)
		return fail(w, "SEEK_SET of fd %d: %s", h->fd, strerror(errno));
	return 0;
}

/* Who changes a file without keeping it open publishes, now or soon: readers that joined may hold that. */
static int published_later(struct world *w, struct file *f)
{
	int ret = file_published(w, f);

	f->unsettled = true;
	return ret;
}

static int op_ftruncate(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);
	size_t len = some_size(w, w->opt->max_size);

	if (!h)
		return 0;
	note(w, "ftruncate %d %zu to %zu", h->fd, h->file->now->len, len);
	if (io_ftruncate(h->fd, (off_t)len))
		return out_of_space(w) ? 0 : fail(w, "ftruncate(%d, %zu): %s", h->fd, len, strerror(errno));
	bytes_resize(&h->file->now, len);
	file_changed(w, h->file);
	return 0;
}

static int op_truncate(struct world *w)
{
	struct name *n = some_name(w, true);
	size_t len = some_size(w, w->opt->max_size);

	/* Whether the path leads to the published version or to its writers is left open by the contract: not asked. */
	if (!n || (w->opt->versions && n->file->state == FILE_CLEAN))
		return 0;
	note(w, "truncate %s %zu to %zu", n->leaf, n->file->now->len, len);
	if (io_truncate(n->path, (off_t)len))
		return evicted(w, n) || out_of_space(w) ? 0 : fail(w, "truncate %s: %s", n->leaf, strerror(errno));
	still_there(n);
	bytes_resize(&n->file->now, len);
	file_changed(w, n->file);
	return n->file->writers ? 0 : published_later(w, n->file);
}

static int op_fallocate(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);
	size_t off, end;

	if (!h)
		return 0;
	off = some_size(w, w->opt->max_size - 1);
	end = off + 1 + below(w, w->opt->max_size - off);
	/* Inside the file it changes nothing, and whether that counts as a write is nobody's business. */
	if (end <= h->file->now->len && h->file->state != FILE_DIRTY)
		return 0;
	note(w, "fallocate %d [%zu, %zu)", h->fd, off, end);
	if (fallocate(h->fd, 0, (off_t)off, (off_t)(end - off)))
		return out_of_space(w) ? 0
				       : fail(w, "fallocate(%d, %zu, %zu): %s", h->fd, off, end - off, strerror(errno));
	if (end > h->file->now->len) {
		bytes_resize(&h->file->now, end);
		file_changed(w, h->file);
	}
	return 0;
}

static int op_fsync(struct world *w)
{
	struct handle *h = some_handle(w, CAN_WRITE, 0);
	bool data = chance(w, 50);

	if (!h)
		return 0;
	note(w, "fsync %d", h->fd);
	if (data ? fdatasync(h->fd) : fsync(h->fd))
		return fail(w, "fsync(%d): %s", h->fd, strerror(errno));
	return h->file->state == FILE_DIRTY ? file_published(w, h->file) : 0;
}

static int op_mmap_read(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ, 0);
	size_t off, len;
	struct stat st;
	uint8_t *p;
	int kind = chance(w, 50) ? MAP_SHARED : MAP_PRIVATE;
	bool ok;

	if (!h)
		return 0;
	if (fstat(h->fd, &st))
		return fail(w, "fstat(%d): %s", h->fd, strerror(errno));
	note(w, "mmap-read %d of %lld", h->fd, (long long)st.st_size);
	if (!handle_fits_size(h, (size_t)st.st_size))
		return fail(w, "fd %d has size %lld (newest version has %zu)", h->fd, (long long)st.st_size,
			    h->file->now->len);
	if (!st.st_size)
		return 0;
	off = below(w, (uint64_t)st.st_size) & ~(size_t)(PAGE - 1);
	len = 1 + below(w, (uint64_t)st.st_size - off);
	p = mmap(NULL, len, PROT_READ, kind | (chance(w, 25) ? MAP_POPULATE : 0), h->fd, (off_t)off);
	if (p == MAP_FAILED)
		return fail(w, "mmap(%d, %zu, %zu): %s", h->fd, off, len, strerror(errno));
	ok = io_load(w->in, p, len);
	munmap(p, len);
	if (!ok)
		return fail(w, "SIGBUS in a mapping of fd %d at [%zu, %zu)", h->fd, off, off + len);
	if (!handle_fits_read(h, off, w->in, (ssize_t)len, len))
		return fail_bytes(w, "a mapping, none of its versions", off, len, w->in, (ssize_t)len, h->file->now);
	return 0;
}

/* Stores w->out[0..len) at off of a shared mapping of the file and puts them into the model. */
static int store_mapped(struct world *w, struct file *f, uint8_t *map, size_t off, size_t len)
{
	fill(w, len);
	if (!io_store(map + off, w->out, len))
		return fail(w, "SIGBUS in a store to a shared mapping at [%zu, %zu)", off, off + len);
	bytes_write(&f->now, off, w->out, len);
	file_changed(w, f);
	return 0;
}

static int op_mmap_write(struct world *w)
{
	struct handle *h = some_handle(w, 1 << O_RDWR, 0);
	size_t size, off, len;
	bool sync = chance(w, 30);
	uint8_t *p;
	int ret;

	if (!h || !h->file->now->len)
		return 0;
	size = h->file->now->len;
	off = below(w, size);
	len = 1 + below(w, size - off);
	note(w, "mmap-write %d [%zu, %zu)%s", h->fd, off, off + len, sync ? " msync" : "");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
	if (p == MAP_FAILED)
		return out_of_space(w) ? 0 : fail(w, "mmap(%d) for writing: %s", h->fd, strerror(errno));
	ret = store_mapped(w, h->file, p, off, len);
	if (!ret && sync && msync(p, size, MS_SYNC))
		ret = fail(w, "msync of fd %d: %s", h->fd, strerror(errno));
	munmap(p, size);
	/* An msync is an fsync to a file system. */
	return !ret && sync && h->file->state == FILE_DIRTY ? file_published(w, h->file) : ret;
}

/* ftruncate + MAP_SHARED, and stores that go on when the descriptor is closed. */
static int op_map_outlives(struct world *w)
{
	struct name *n = some_name(w, true);
	size_t size = 1 + some_size(w, w->opt->max_size - 1);
	int fd, ret;
	uint8_t *p;

	if (!n || n->file->writers || w->opt->evict_any)
		return 0;
	note(w, "map-outlives %s %zu to %zu", n->leaf, n->file->now->len, size);
	fd = io_open(n->path, O_RDWR);
	if (fd < 0)
		return evicted(w, n) ? 0 : fail(w, "open %s: %s", n->leaf, strerror(errno));
	still_there(n);
	if (io_ftruncate(fd, (off_t)size)) {
		close(fd);
		return fail(w, "ftruncate %s: %s", n->leaf, strerror(errno));
	}
	bytes_resize(&n->file->now, size);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return fail(w, "mmap %s for writing: %s", n->leaf, strerror(errno));
	}
	ret = store_mapped(w, n->file, p, below(w, size / 2 + 1), size / 2);
	if (close(fd) && !ret)
		ret = fail(w, "close %s: %s", n->leaf, strerror(errno));
	if (!ret)
		ret = published_later(w, n->file);
	w->op += 1ul << 40; /* other bytes from fill */
	if (!ret)
		ret = store_mapped(w, n->file, p, 0, 1 + size / 3);
	w->op -= 1ul << 40;
	munmap(p, size);
	if (!ret)
		ret = published_later(w, n->file);
	return ret ? ret : verify_name(w, n);
}

/* A mapping of one version that stays when its handle is closed. */
static int op_hold(struct world *w)
{
	struct handle *h = some_handle(w, 1 << O_RDONLY, 0);
	struct held_map *m;

	if (!h || !w->opt->versions || h->live || h->nsnaps != 1 || !h->snaps[0]->len || w->nheld == MAX_HELD)
		return 0;
	note(w, "hold %d", h->fd);
	m = &w->held[w->nheld];
	m->p = mmap(NULL, h->snaps[0]->len, PROT_READ, MAP_SHARED, h->fd, 0);
	if (m->p == MAP_FAILED)
		return fail(w, "mmap(%d): %s", h->fd, strerror(errno));
	m->bytes = bytes_get(h->snaps[0]);
	w->nheld++;
	return 0;
}

static int op_check_held(struct world *w)
{
	unsigned i = (unsigned)below(w, w->nheld);
	struct held_map m;
	int ret = 0;

	if (!w->nheld)
		return 0;
	m = w->held[i];
	note(w, "check held mapping of %zu", m.bytes->len);
	if (!io_load(w->in, m.p, m.bytes->len))
		ret = fail(w, "SIGBUS in a mapping of a version that is held");
	else if (memcmp(w->in, m.bytes->p, m.bytes->len))
		ret = fail(w, "a mapping of %zu bytes shows others than the version it was made from", m.bytes->len);
	if (chance(w, 30)) {
		munmap(m.p, m.bytes->len);
		bytes_put(m.bytes);
		w->held[i] = w->held[--w->nheld];
	}
	return ret;
}

static int op_rename(struct world *w)
{
	struct name *from = some_name(w, true), *to = &w->names[below(w, w->nnames)];
	unsigned flags = chance(w, 25) ? RENAME_NOREPLACE : 0;
	bool written;
	int ret;

	if (!from)
		return 0;
	note(w, "rename %s %s %u", from->leaf, to->leaf, flags);
	if (io_rename(from->path, to->path, flags)) {
		if (errno == EEXIST && flags && to->file)
			return 0;
		return evicted(w, from) ? 0 : fail(w, "rename %s %s: %s", from->leaf, to->leaf, strerror(errno));
	}
	if (flags && to->file && !may_be_gone(w, to->file))
		return fail(w, "rename %s %s replaces a name in spite of NOREPLACE", from->leaf, to->leaf);
	if (from == to)
		return 0;
	still_there(from);
	name_set(to, from->file);
	name_drop(from);
	/* It may have published what its writer has so far, and it may not: then the next close does. */
	written = to->file->written;
	ret = to->file->state == FILE_DIRTY ? file_published(w, to->file) : 0;
	to->file->written = written;
	return ret;
}

static int op_unlink(struct world *w)
{
	struct name *n = some_name(w, chance(w, 90));

	if (!n)
		return 0;
	note(w, "unlink %s", n->leaf);
	if (io_unlink(n->path)) {
		if (!n->file && errno == ENOENT)
			return 0;
		return evicted(w, n) ? 0 : fail(w, "unlink %s: %s", n->leaf, strerror(errno));
	}
	if (!n->file)
		return fail(w, "unlink %s succeeds: the name should not exist", n->leaf);
	name_drop(n);
	return 0;
}

static int op_stat(struct world *w)
{
	struct name *n = &w->names[below(w, w->nnames)];
	struct stat st;

	note(w, "stat %s", n->leaf);
	if (stat(n->path, &st)) {
		if (!n->file && errno == ENOENT)
			return 0;
		return evicted(w, n) ? 0 : fail(w, "stat %s: %s", n->leaf, strerror(errno));
	}
	if (!n->file)
		return fail(w, "stat %s succeeds: the name should not exist", n->leaf);
	still_there(n);
	if ((size_t)st.st_size != n->file->now->len)
		return fail(w, "stat %s: size %lld, not %zu", n->leaf, (long long)st.st_size, n->file->now->len);
	return S_ISREG(st.st_mode) ? 0 : fail(w, "stat %s: mode 0%o", n->leaf, st.st_mode);
}

static int op_fstat(struct world *w)
{
	struct handle *h = some_handle(w, CAN_READ | CAN_WRITE, 0);
	struct stat st;

	if (!h)
		return 0;
	note(w, "fstat %d", h->fd);
	if (fstat(h->fd, &st))
		return fail(w, "fstat(%d): %s", h->fd, strerror(errno));
	if (!handle_fits_size(h, (size_t)st.st_size))
		return fail(w, "fstat(%d): size %lld (newest version has %zu)", h->fd, (long long)st.st_size,
			    h->file->now->len);
	return 0;
}

static int name_listed(struct world *w, const struct dirent *d, uint8_t *seen)
{
	unsigned id, i;

	if (sscanf(d->d_name, "t%u-%u", &id, &i) != 2 || id != w->id)
		return 0;
	if (i >= w->nnames || !w->names[i].file)
		return fail(w, "readdir gives %s, which should not exist", d->d_name);
	if (seen[i]++)
		return fail(w, "readdir gives %s twice", d->d_name);
	return d->d_type == DT_REG ? 0 : fail(w, "readdir gives %s the type %d", d->d_name, d->d_type);
}

static int op_readdir(struct world *w)
{
	unsigned dir = (unsigned)below(w, 3);
	char path[PATH_MAX + 16];
	struct dirent *d;
	uint8_t *seen;
	DIR *stream;
	int ret = 0;

	snprintf(path, sizeof(path), "%s/%s", w->opt->dir, (const char *const[]){"a", "b", "shared"}[dir]);
	note(w, "readdir %s", path);
	stream = opendir(path);
	if (!stream)
		return fail(w, "opendir %s: %s", path, strerror(errno));
	seen = calloc(w->nnames, 1);
	while (!ret && seen && (d = readdir(stream)))
		ret = name_listed(w, d, seen);
	closedir(stream);
	for (unsigned i = dir; !ret && i < w->nnames; i += 3)
		if (w->names[i].file && !seen[i] && !may_be_gone(w, w->names[i].file))
			ret = fail(w, "readdir leaves out %s", w->names[i].leaf);
	free(seen);
	return ret;
}

/* copy_file_range or sendfile: the target must get what a read of the source returns. */
static int op_copy(struct world *w)
{
	struct handle *from = some_handle(w, CAN_READ, 0), *to = some_handle(w, CAN_WRITE, 0);
	size_t len = below(w, 64 * 1024) + 1;
	off_t off, at;
	ssize_t n;

	if (!from || !to || from->file == to->file || (to->flags & O_APPEND))
		return 0;
	off = (off_t)below(w, from->file->now->len + 1);
	at = (off_t)below(w, w->opt->max_size - (len < w->opt->max_size ? len : w->opt->max_size - 1));
	if (read_at(w, from, off, len, false))
		return -1;
	n = pread(from->fd, w->out, len, off);
	if (n <= 0)
		return n ? fail(w, "pread of fd %d: %s", from->fd, strerror(errno)) : 0;
	note(w, "; copy %d to %d at %lld", from->fd, to->fd, (long long)at);
	if (chance(w, 50)) {
		off_t in = off, out = at;
		ssize_t copied = copy_file_range(from->fd, &in, to->fd, &out, (size_t)n, 0);

		if (copied < 0 && !out_of_space(w))
			return fail(w, "copy_file_range: %s", strerror(errno));
		n = copied;
	} else {
		off_t in = off;

		if (lseek(to->fd, at, SEEK_SET) != at)
			return fail(w, "seek of fd %d: %s", to->fd, strerror(errno));
		n = sendfile(to->fd, from->fd, &in, (size_t)n);
		if (n < 0 && !out_of_space(w))
			return fail(w, "sendfile: %s", strerror(errno));
		to->pos = n > 0 ? at + n : at;
	}
	if (n <= 0)
		return 0;
	bytes_write(&to->file->now, (size_t)at, w->out, (size_t)n);
	file_changed(w, to->file);
	return 0;
}

static bool is_open(struct world *w, const struct file *f)
{
	for (unsigned i = 0; i < w->nhandles; i++)
		if (w->handles[i]->file == f)
			return true;
	return false;
}

/* Evicts a name by force. Handles keep their bytes; the name has them, or is gone. */
static int op_evict(struct world *w)
{
	struct name *n = some_name(w, true);
	int status;

	if (!n || !w->opt->evict_cmd || n->file->writers)
		return 0;
	note(w, "evict %s%s", n->leaf, is_open(w, n->file) ? " (open)" : "");
	status = io_command(n->path);
	/* Who still holds it (a handle, a RELEASE on its way) makes the command say "busy"; then nothing went. */
	if (status == 1)
		w->busy++;
	else if (status)
		return fail(w, "evict command \"%s\" for %s ends with %d", w->opt->evict_cmd, n->leaf, status);
	else
		n->file->maybe_gone = true;
	return 0;
}

static const struct op {
	int (*run)(struct world *w);
	unsigned weight;
} ops[] = {
    {op_open, 22},	  {op_close, 14},    {op_pwrite, 14},	 {op_write, 8},	     {op_pread, 14},
    {op_read, 6},	  {op_mmap_read, 6}, {op_mmap_write, 5}, {op_ftruncate, 4},  {op_truncate, 2},
    {op_fallocate, 2},	  {op_fsync, 2},     {op_rename, 6},	 {op_unlink, 3},     {op_stat, 5},
    {op_fstat, 4},	  {op_verify, 6},    {op_readdir, 1},	 {op_copy, 3},	     {op_dup_close, 2},
    {op_map_outlives, 1}, {op_seek_end, 3},  {op_hold, 2},	 {op_check_held, 4}, {op_evict, 4},
};

int ops_step(struct world *w)
{
	unsigned total = 0, i;
	uint64_t at;

	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		total += ops[i].weight;
	at = below(w, total);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	w->history[w->op % HISTORY][0] = 0;
	return ops[i].run(w);
}

int ops_finish(struct world *w)
{
	w->history[w->op % HISTORY][0] = 0;
	note(w, "finish");
	while (w->nheld)
		if (op_check_held(w))
			return -1;
	for (unsigned i = 0; i < w->nnames; i++)
		if (w->names[i].file && verify_name(w, &w->names[i]))
			return -1;
	while (w->nhandles)
		if (handle_close(w, w->handles[0]))
			return -1;
	for (unsigned i = 0; i < w->nnames; i++) {
		struct name *n = &w->names[i];

		if (n->file && verify_name(w, n))
			return -1;
		if (n->file && !w->opt->keep && unlink(n->path) && !evicted(w, n))
			return fail(w, "unlink %s: %s", n->leaf, strerror(errno));
	}
	return 0;
}
