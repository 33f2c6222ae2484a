/* SPDX-License-Identifier: Apache-2.0 */
/* What the JSON of every command begins with: the program, the machine, the options of the run. Pure; main thread. */
#ifndef TESTS_BENCH_HEAD_H
#define TESTS_BENCH_HEAD_H

#include <jansson.h>

#include "tests/bench/options.h"

/* A new object, NULL when there is no memory. directory and fs: what was measured, and the type of its file system. */
json_t *head_json(const struct bench_options *o, const char *command, const char *directory, const char *fs);

#endif
