/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the backends whose values are files of one directory: put is a temporary file and a rename, get is a
 * read(2) of the whole, or a mapping of it that has all its pages (MADV_POPULATE_READ, Linux 5.14): nothing less makes it
 * sure that the bytes are in memory. One thread a session.
 */
#ifndef TESTS_BENCH_FILE_SESSION_H
#define TESTS_BENCH_FILE_SESSION_H

#include "tests/bench/backend.h"

/* The target counts hits (a mount of FluxKV). */
int file_session_open_counted(const struct backend *b, struct session **ret, struct errmsg *e);
/* Any file system. A hit is from the SSD when the kernel had to read for this thread (getrusage(2), ru_inblock). */
int file_session_open_plain(const struct backend *b, struct session **ret, struct errmsg *e);
void file_session_close(struct session *s);
int file_session_put(struct session *s, unsigned key, const void *buf, size_t len);
int file_session_get(struct session *s, unsigned key, enum output output, struct got *ret);
void file_session_release(struct session *s, struct got *g);

#endif
