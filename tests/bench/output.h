/* SPDX-License-Identifier: Apache-2.0 */
/* What a command that measured in runs prints at its end: the table, or the JSON of fluxkv-bench(1). Main thread. */
#ifndef TESTS_BENCH_OUTPUT_H
#define TESTS_BENCH_OUTPUT_H

#include "tests/bench/set.h"

/* directory and fs: what was measured, and the type of its file system. 0, -ENOMEM or -EIO. */
int output_print(const struct bench *b, const char *command, const char *directory, const char *fs);

#endif
