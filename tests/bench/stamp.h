/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmark's values consist of. Every 8-byte word follows from the value's id, the seed and the word's
 * place, so a reader can tell zeros, another value's bytes and bytes of another offset from the right ones without
 * keeping a copy. Pure functions; any thread.
 */
#ifndef TESTS_BENCH_STAMP_H
#define TESTS_BENCH_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The one number that all words of a value follow from. */
uint64_t stamp_base(uint64_t seed, uint64_t id);
/* Word number index of the value. */
uint64_t stamp_word(uint64_t base, uint64_t index);
/* The value's bytes [off, off + len); any offset and length. */
void stamp_fill(void *buf, size_t len, uint64_t base, uint64_t off);
/* Compares every byte. False: *ret_bad is the offset in the value of the first wrong one. */
bool stamp_check(const void *buf, size_t len, uint64_t base, uint64_t off, uint64_t *ret_bad);
/* Compares the first and the last word and three between, at a cost that does not show beside a read(2). */
bool stamp_probe(const void *buf, size_t len, uint64_t base, uint64_t off, uint64_t *ret_bad);

#endif
