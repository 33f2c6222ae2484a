/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the exerciser, each as the file system answers it, unless --break asks for a lie: the tests run
 * the exerciser with every lie once and see that it is found. Any thread.
 */
#ifndef TESTS_SYSTEM_EX_IO_H
#define TESTS_SYSTEM_EX_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum lie {
	LIE_NONE,
	LIE_FLIP,    /* one bit of what a read returns is wrong */
	LIE_SHORT,   /* a read ends one byte early */
	LIE_ZERO,    /* a read returns zeros */
	LIE_WRITE,   /* a write is acknowledged and forgotten */
	LIE_TRUNC,   /* so is a truncation */
	LIE_RENAME,  /* so is a rename */
	LIE_UNLINK,  /* so is an unlink */
	LIE_MISSING, /* a name that is there is not found */
	LIE_MAPPED,  /* a store through a mapping is lost */
};

/* "flip", ... to a lie; LIE_NONE for no word of ours. */
enum lie lie_parse(const char *word);
/* The at-th call in each thread that the lie fits is answered by it. Call before threads start. */
void lie_set(enum lie kind, unsigned long at);

int io_open(const char *path, int flags);
ssize_t io_preadv(int fd, const struct iovec *iov, int n, off_t off); /* off -1: at the descriptor's position */
ssize_t io_pwritev(int fd, const struct iovec *iov, int n, off_t off);
int io_ftruncate(int fd, off_t len);
int io_truncate(const char *path, off_t len);
int io_rename(const char *from, const char *to, unsigned flags);
int io_unlink(const char *path);

/*
 * Starts the process that runs commands. An exec closes the descriptors of the process, which publishes files, so it
 * must have none of ours: call it before any is open. -1: errno.
 */
int io_command_server(const char *cmd);
/* Runs cmd with the path as its argument: its exit status, 255 if it has none. */
int io_command(const char *path);

/* Copies between us and a mapping; false: the access raised SIGBUS. */
void io_catch_sigbus(void);
_Bool io_load(void *to, const void *mapped, size_t len);
_Bool io_store(void *mapped, const void *from, size_t len);

#endif
