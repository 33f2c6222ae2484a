/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/file_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/size.h"

#define PAGE 4096u

/* Since Linux 5.14; the headers may be older. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct session {
	int dirfd;
	bool plain;
	char *buf; /* of len bytes, one more than a value: a longer one shows */
	size_t len;
	uint64_t puts;
};

static int session_open(const struct backend *b, bool plain, struct session **ret, struct errmsg *e)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return errmsg_set(e, -ENOMEM, "no memory for a session");
	s->dirfd = b->values.dirfd;
	s->plain = plain;
	s->len = b->setup.payload + 1;
	if (posix_memalign((void **)&s->buf, PAGE, align_up(s->len, PAGE))) {
		free(s);
		return errmsg_set(e, -ENOMEM, "no memory for the buffer of a session");
	}
	memset(s->buf, 1, s->len); /* the first touch of a page is nobody's to pay for */
	*ret = s;
	return 0;
}

int file_session_open_counted(const struct backend *b, struct session **ret, struct errmsg *e)
{
	return session_open(b, false, ret, e);
}

int file_session_open_plain(const struct backend *b, struct session **ret, struct errmsg *e)
{
	return session_open(b, true, ret, e);
}

void file_session_close(struct session *s)
{
	if (s)
		free(s->buf);
	free(s);
}

static int write_all(int fd, const char *p, size_t len)
{
	ssize_t n;

	for (; len; p += n, len -= (size_t)n) {
		n = write(fd, p, len);
		if (n < 0)
			return -errno;
	}
	return 0;
}

int file_session_put(struct session *s, unsigned key, const void *buf, size_t len)
{
	char name[KEY_LEN], temp[64];
	int fd, r;

	backend_key(key, name);
	/* Other sessions have another address, or are in another process. */
	snprintf(temp, sizeof(temp), ".new-%d-%p-%llu", (int)getpid(), (void *)s, (unsigned long long)s->puts++);
	fd = openat(s->dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = write_all(fd, buf, len);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(s->dirfd, temp, s->dirfd, name) < 0)
		r = errno == ENOENT ? -ENOSPC : -errno; /* a cache may have evicted it already */
	if (r < 0)
		unlinkat(s->dirfd, temp, 0);
	return r == -EDQUOT ? -ENOSPC : r;
}

/* Up to the end of the file, or of the buffer: a value that is too long is then as wrong as one that is too short. */
static int get_bytes(struct session *s, int fd, struct got *ret)
{
	size_t len = 0;
	ssize_t n;

	do {
		n = read(fd, s->buf + len, s->len - len);
		if (n < 0)
			return -errno;
		len += (size_t)n;
	} while (n > 0 && len != s->len - 1 && len < s->len);
	*ret = (struct got){.data = s->buf, .len = len};
	return 0;
}

/* Waits until all bytes are in memory, and mapped. What cannot be read is an error here, and would be a SIGBUS later.
 */
static int populate(char *map, size_t len)
{
	if (madvise(map, len, MADV_POPULATE_READ) == 0)
		return 0;
	return errno == EFAULT ? -EIO : -errno;
}

static int get_holder(const struct session *s, int fd, struct got *ret)
{
	struct stat st;
	char *map;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!st.st_size) {
		*ret = (struct got){.data = s->buf};
		return 0;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	r = populate(map, (size_t)st.st_size);
	if (r < 0)
		munmap(map, (size_t)st.st_size);
	else
		*ret = (struct got){.data = map, .len = (size_t)st.st_size, .handle = map};
	return r;
}

/* Blocks that the kernel has read from devices for this thread. */
static long blocks_read(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) < 0 ? 0 : u.ru_inblock;
}

int file_session_get(struct session *s, unsigned key, enum output output, struct got *ret)
{
	long before = s->plain ? blocks_read() : 0;
	char name[KEY_LEN];
	int fd, r;

	backend_key(key, name);
	fd = openat(s->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = output == OUTPUT_BYTES ? get_bytes(s, fd, ret) : get_holder(s, fd, ret);
	close(fd);
	if (r == 0 && s->plain)
		ret->from = blocks_read() > before ? FROM_SSD : FROM_DRAM;
	return r == -ENOENT ? -EIO : r; /* a miss is told by open alone */
}

void file_session_release(struct session *s, struct got *g)
{
	if (g->handle)
		munmap(g->handle, g->len);
	g->handle = NULL;
}
