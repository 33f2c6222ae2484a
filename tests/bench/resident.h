/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process has in use. Any thread. */
#ifndef TESTS_BENCH_RESIDENT_H
#define TESTS_BENCH_RESIDENT_H

#include <stdint.h>

/* Bytes of its pages that are in memory; 0 if the kernel does not say. */
uint64_t resident_bytes(void);

#endif
