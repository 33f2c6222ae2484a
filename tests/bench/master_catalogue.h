/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue with a number of objects: what a put costs it, how large it is, and how long a master that starts takes
 * until it is ready. Main thread.
 */
#ifndef TESTS_BENCH_MASTER_CATALOGUE_H
#define TESTS_BENCH_MASTER_CATALOGUE_H

#include "tests/bench/set.h"

/* Makes the file in dir, and removes it. 0 or a negative errno, perhaps with the reason in b->fault. */
int master_catalogue(struct bench *b, const struct target *dir, uint64_t objects, unsigned ops);

#endif
