/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/value.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/stamp.h"

#define PAGE 4096u
#define WORDS_PER_PAGE (PAGE / sizeof(uint64_t))

static int failed(const struct value_io *io, const struct value *v, const char *what, int err)
{
	return fault_set(io->f, err, "%s of %s: %s", what, v->name, strerror(-err));
}

static int wrong(const struct value_io *io, const struct value *v, uint64_t at)
{
	return fault_set(io->f, -EBADMSG, "%s: the byte at offset %llu is wrong", v->name, (unsigned long long)at);
}

/* A device takes no odd length with O_DIRECT: as in dd, the end of such a value goes without. */
static int end_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0 ? -errno : 0;
}

static int write_all(const struct value_io *io, const struct value *v, int fd)
{
	uint64_t off = 0;
	size_t want;
	ssize_t n;

	while (off < v->size) {
		want = v->size - off < io->piece ? (size_t)(v->size - off) : io->piece;
		if (io->flags & O_DIRECT && want % PAGE && end_direct(fd) < 0)
			return failed(io, v, "fcntl", -errno);
		n = write(fd, io->buf + off, want);
		if (n < 0)
			return failed(io, v, "write", -errno);
		if ((size_t)n != want)
			return fault_set(io->f, -EIO, "write of %s: short", v->name);
		off += want;
	}
	return 0;
}

int value_put(const struct value_io *io, const struct value *v, uint64_t *ns)
{
	uint64_t start;
	int fd, r;

	stamp_fill(io->buf, v->size, stamp_base(io->seed, v->id), 0);
	start = clock_ns();
	fd = openat(v->dirfd, v->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | io->flags, 0644);
	if (fd < 0)
		return failed(io, v, "create", -errno);
	r = write_all(io, v, fd);
	if (close(fd) < 0 && r == 0)
		r = failed(io, v, "close", -errno);
	*ns += clock_ns() - start;
	return r;
}

/* Checks a piece just read; the time that a complete check takes is added to *pause. */
static int check_piece(const struct value_io *io, const struct value *v, uint64_t base, uint64_t off, size_t n,
		       uint64_t *pause)
{
	uint64_t bad, start;
	bool right;

	if (!io->verify)
		return stamp_probe(io->buf, n, base, off, &bad) ? 0 : wrong(io, v, bad);
	start = clock_ns();
	right = stamp_check(io->buf, n, base, off, &bad);
	*pause += clock_ns() - start;
	return right ? 0 : wrong(io, v, bad);
}

static int read_all(const struct value_io *io, const struct value *v, int fd, uint64_t *pause)
{
	uint64_t off = 0, base = stamp_base(io->seed, v->id);
	size_t want;
	ssize_t n;
	int r = 0;

	while (r == 0 && off < v->size) {
		want = v->size - off < io->piece ? (size_t)(v->size - off) : io->piece;
		n = read(fd, io->buf, want);
		if (n < 0)
			return failed(io, v, "read", -errno);
		if ((size_t)n != want)
			return fault_set(io->f, -EBADMSG, "read of %s: short", v->name);
		r = check_piece(io, v, base, off, want, pause);
		off += want;
	}
	return r;
}

int value_read(const struct value_io *io, const struct value *v, uint64_t *ns)
{
	uint64_t pause = 0, start = clock_ns();
	int fd = openat(v->dirfd, v->name, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return failed(io, v, "open", -errno);
	r = read_all(io, v, fd, &pause);
	for (unsigned i = 1; r == 0 && i < io->passes; i++)
		r = lseek(fd, 0, SEEK_SET) < 0 ? failed(io, v, "seek", -errno) : read_all(io, v, fd, &pause);
	close(fd);
	*ns += clock_ns() - start - pause;
	return r;
}

/* Loads every word, as a consumer of the value would. */
static int load_all(const struct value_io *io, const struct value *v, const char *map)
{
	uint64_t bad;

	return stamp_check(map, v->size, stamp_base(io->seed, v->id), 0, &bad) ? 0 : wrong(io, v, bad);
}

/* Loads the first word of every page and compares it. */
static int touch(const struct value_io *io, const struct value *v, const char *map)
{
	uint64_t base = stamp_base(io->seed, v->id), pages = v->size / PAGE, bad, w;

	for (uint64_t i = 0; i < pages; i++) {
		memcpy(&w, map + i * PAGE, sizeof(w));
		if (w != stamp_word(base, i * WORDS_PER_PAGE))
			return wrong(io, v, i * PAGE);
	}
	if (!stamp_probe(map + pages * PAGE, v->size % PAGE, base, pages * PAGE, &bad))
		return wrong(io, v, bad);
	return 0;
}

int value_map(const struct value_io *io, const struct value *v, uint64_t *ns)
{
	uint64_t pause = 0, start = clock_ns();
	int fd = openat(v->dirfd, v->name, O_RDONLY | O_CLOEXEC), r;
	char *map;

	if (fd < 0)
		return failed(io, v, "open", -errno);
	map = mmap(NULL, v->size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		r = failed(io, v, "mmap", -errno);
		goto out;
	}
	r = io->load_all ? load_all(io, v, map) : touch(io, v, map);
	pause = clock_ns();
	if (r == 0 && io->verify)
		r = load_all(io, v, map);
	pause = clock_ns() - pause;
	munmap(map, v->size);
out:
	close(fd);
	*ns += clock_ns() - start - pause;
	return r;
}

int value_drop(const struct value_io *io, const struct value *v)
{
	int fd = openat(v->dirfd, v->name, O_RDONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return failed(io, v, "open", -errno);
	if (fdatasync(fd) < 0) /* dirty pages would stay */
		r = failed(io, v, "fdatasync", -errno);
	if (r == 0)
		r = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return r;
}
