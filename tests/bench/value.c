/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/value.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/cpu_time.h"
#include "tests/bench/stamp.h"

#define PAGE 4096u
#define WORDS_PER_PAGE (PAGE / sizeof(uint64_t))

/* The wall clock and the thread's processor time: a moment, or what a pause between two took. */
struct stopwatch {
	uint64_t wall, cpu;
};

static struct stopwatch watch_now(const struct value_io *io)
{
	return (struct stopwatch){.cpu = io->cpu ? cpu_time_thread() : 0, .wall = clock_ns()};
}

static struct stopwatch watch_since(const struct value_io *io, const struct stopwatch *start)
{
	uint64_t wall = clock_ns();

	return (struct stopwatch){wall - start->wall, io->cpu ? cpu_time_thread() - start->cpu : 0};
}

static void watch_add(struct stopwatch *sum, const struct stopwatch *more)
{
	sum->wall += more->wall;
	sum->cpu += more->cpu;
}

/* Adds what was timed, but for the pauses. */
static void watch_end(const struct value_io *io, const struct stopwatch *start, const struct stopwatch *pauses,
		      uint64_t *ns)
{
	struct stopwatch all = watch_since(io, start);

	*ns += all.wall - pauses->wall;
	if (io->cpu)
		*io->cpu += all.cpu - pauses->cpu;
}

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

/* Checks a piece just read; what a complete check takes is added to *pauses. */
static int check_piece(const struct value_io *io, const struct value *v, uint64_t base, uint64_t off, size_t n,
		       struct stopwatch *pauses)
{
	struct stopwatch start, took;
	uint64_t bad;
	bool right;

	if (!io->verify)
		return stamp_probe(io->buf, n, base, off, &bad) ? 0 : wrong(io, v, bad);
	start = watch_now(io);
	right = stamp_check(io->buf, n, base, off, &bad);
	took = watch_since(io, &start);
	watch_add(pauses, &took);
	return right ? 0 : wrong(io, v, bad);
}

static int read_all(const struct value_io *io, const struct value *v, int fd, struct stopwatch *pauses)
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
		r = check_piece(io, v, base, off, want, pauses);
		off += want;
	}
	return r;
}

int value_read(const struct value_io *io, const struct value *v, uint64_t *ns)
{
	struct stopwatch pauses = {0}, start = watch_now(io);
	int fd = openat(v->dirfd, v->name, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return failed(io, v, "open", -errno);
	r = read_all(io, v, fd, &pauses);
	for (unsigned i = 1; r == 0 && i < io->passes; i++)
		r = lseek(fd, 0, SEEK_SET) < 0 ? failed(io, v, "seek", -errno) : read_all(io, v, fd, &pauses);
	close(fd);
	watch_end(io, &start, &pauses, ns);
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
	struct stopwatch pauses = {0}, checks, start = watch_now(io);
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
	checks = watch_now(io);
	if (r == 0 && io->verify)
		r = load_all(io, v, map);
	pauses = watch_since(io, &checks);
	munmap(map, v->size);
out:
	close(fd);
	watch_end(io, &start, &pauses, ns);
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
