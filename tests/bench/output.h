/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output: what a command that measured in runs prints at its end, the table or the JSON of fluxkv-bench(1),
 * and whether what was printed has arrived. Main thread.
 */
#ifndef TESTS_BENCH_OUTPUT_H
#define TESTS_BENCH_OUTPUT_H

#include "tests/bench/set.h"

/* Nothing that was printed so far is lost: 0, or a negative errno with the reason in f. */
int output_flush(struct fault *f);
/* Prints the object, and that nothing is lost, as above. */
int output_json(json_t *root, struct fault *f);
/* directory and fs: what was measured, and the type of its file system. 0, or a negative errno as above. */
int output_print(struct bench *b, const char *command, const char *directory, const char *fs);

#endif
