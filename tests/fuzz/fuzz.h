/* SPDX-License-Identifier: Apache-2.0 */
/* What libFuzzer, and tests/fuzz/replay.c in its place, calls with each input. Aborts when a promise is broken. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
