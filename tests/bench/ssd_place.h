/* SPDX-License-Identifier: Apache-2.0 */
/* Where what is started has its SSD tier. Main thread. */
#ifndef TESTS_BENCH_SSD_PLACE_H
#define TESTS_BENCH_SSD_PLACE_H

#include "common/errmsg.h"
#include "tests/bench/options.h"

/* --ssd-dir, or TMPDIR, or /var/tmp. */
const char *ssd_place(const struct bench_options *o);
/*
 * An SSD tier in memory is none. 0; -ENOTBLK: dir is in memory, e says so; another negative errno: nothing can be made
 * there, the reason is in e.
 */
int ssd_place_check(const char *dir, struct errmsg *e);

#endif
