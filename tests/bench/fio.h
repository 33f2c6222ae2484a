/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fio reads from a file with io_uring and O_DIRECT: the yardstick of the SSD tier. Main thread.
 */
#ifndef TESTS_BENCH_FIO_H
#define TESTS_BENCH_FIO_H

#include <stdint.h>

#include "common/errmsg.h"

/* Reads the whole file once, in random order, block bytes at a time, depth of them in flight. */
int fio_randread(const char *path, uint64_t bytes, uint64_t block, unsigned depth, double *ret_bytes_per_s,
		 struct errmsg *e);
/* The result in fio's JSON output. Pure. 0 or -EBADMSG. */
int fio_parse(const char *json, uint64_t bytes, double *ret_bytes_per_s);

#endif
