/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running another program (cp, dd, fio, fluxkv) and waiting for it. The program is found through PATH. Call from
 * any thread; when the benchmark is to stop, the program is asked to end and -EINTR is returned.
 */
#ifndef TESTS_BENCH_CHILD_H
#define TESTS_BENCH_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

/*
 * Runs argv (NULL-terminated). ret_out: if not NULL, what it wrote to stdout, NUL-terminated, for free(). ret_ns: if
 * not NULL, from the start to its end. Its stderr is kept for the message. -ENOENT: no such program; -EAGAIN: it
 * ended with status 1, the usual "no"; -EIO: it failed in another way. e says how.
 */
int child_run(const char *const *argv, char **ret_out, uint64_t *ret_ns, struct errmsg *e);

#endif
