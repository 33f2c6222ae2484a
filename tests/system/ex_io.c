/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/ex_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static enum lie lie_kind; /* set before threads start */
static unsigned long lie_at;
static _Thread_local unsigned long lie_seen;
static _Thread_local sigjmp_buf bus_jump;
static _Thread_local volatile sig_atomic_t bus_armed;

static const char *const lie_words[] = {
    [LIE_FLIP] = "flip",     [LIE_SHORT] = "short",	[LIE_ZERO] = "zero",
    [LIE_WRITE] = "write",   [LIE_TRUNC] = "trunc",	[LIE_RENAME] = "rename",
    [LIE_UNLINK] = "unlink", [LIE_MISSING] = "missing", [LIE_MAPPED] = "mapped",
};

enum lie lie_parse(const char *word)
{
	for (unsigned i = LIE_FLIP; i < sizeof(lie_words) / sizeof(lie_words[0]); i++)
		if (!strcmp(word, lie_words[i]))
			return i;
	return LIE_NONE;
}

void lie_set(enum lie kind, unsigned long at)
{
	lie_kind = kind;
	lie_at = at;
}

static bool lie_now(enum lie kind)
{
	return lie_kind == kind && ++lie_seen == lie_at;
}

int io_open(const char *path, int flags)
{
	if (!(flags & O_CREAT) && !access(path, F_OK) && lie_now(LIE_MISSING)) {
		errno = ENOENT;
		return -1;
	}
	return open(path, flags | O_CLOEXEC, 0644);
}

ssize_t io_preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	ssize_t got = off < 0 ? readv(fd, iov, n) : preadv(fd, iov, n, off);

	if (got <= 0 || !iov[0].iov_len)
		return got;
	if (lie_now(LIE_FLIP))
		*(uint8_t *)iov[0].iov_base ^= 4;
	else if (lie_now(LIE_SHORT))
		return got - 1;
	else if (lie_now(LIE_ZERO))
		memset(iov[0].iov_base, 0, iov[0].iov_len < (size_t)got ? iov[0].iov_len : (size_t)got);
	return got;
}

ssize_t io_pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
	ssize_t len = 0;

	if (!lie_now(LIE_WRITE))
		return off < 0 ? writev(fd, iov, n) : pwritev(fd, iov, n, off);
	for (int i = 0; i < n; i++)
		len += (ssize_t)iov[i].iov_len;
	return len;
}

int io_ftruncate(int fd, off_t len)
{
	return lie_now(LIE_TRUNC) ? 0 : ftruncate(fd, len);
}

int io_truncate(const char *path, off_t len)
{
	return lie_now(LIE_TRUNC) ? 0 : truncate(path, len);
}

int io_rename(const char *from, const char *to, unsigned flags)
{
	if (lie_now(LIE_RENAME))
		return 0;
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

int io_unlink(const char *path)
{
	return lie_now(LIE_UNLINK) ? 0 : unlink(path);
}

static int server = -1; /* the socket; command_lock from request to answer */
static pthread_mutex_t command_lock = PTHREAD_MUTEX_INITIALIZER;

static void serve(int fd, const char *cmd)
{
	char path[PATH_MAX], line[1024];
	uint8_t status;
	ssize_t n;

	snprintf(line, sizeof(line), "%s \"$EXERCISER_PATH\"", cmd);
	while ((n = recv(fd, path, sizeof(path) - 1, 0)) > 0) {
		int r;

		path[n] = 0;
		setenv("EXERCISER_PATH", path, 1);
		r = system(line);
		status = r >= 0 && WIFEXITED(r) ? (uint8_t)WEXITSTATUS(r) : 255;
		if (send(fd, &status, 1, MSG_NOSIGNAL) != 1)
			break;
	}
	_exit(0);
}

int io_command_server(const char *cmd)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		close(pair[0]);
		serve(pair[1], cmd);
	}
	close(pair[1]);
	server = pair[0];
	return 0;
}

int io_command(const char *path)
{
	uint8_t status = 255;
	size_t len = strlen(path);

	pthread_mutex_lock(&command_lock);
	if (send(server, path, len, MSG_NOSIGNAL) != (ssize_t)len || recv(server, &status, 1, 0) != 1)
		status = 255;
	pthread_mutex_unlock(&command_lock);
	return status;
}

static void on_sigbus(int sig)
{
	if (bus_armed)
		siglongjmp(bus_jump, 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

void io_catch_sigbus(void)
{
	struct sigaction sa = {.sa_handler = on_sigbus};

	sigaction(SIGBUS, &sa, NULL);
}

static bool guarded_copy(void *to, const void *from, size_t len)
{
	if (sigsetjmp(bus_jump, 1)) {
		bus_armed = 0;
		return false;
	}
	bus_armed = 1;
	memcpy(to, from, len);
	bus_armed = 0;
	return true;
}

bool io_load(void *to, const void *mapped, size_t len)
{
	return guarded_copy(to, mapped, len);
}

bool io_store(void *mapped, const void *from, size_t len)
{
	return lie_now(LIE_MAPPED) || guarded_copy(mapped, from, len);
}
