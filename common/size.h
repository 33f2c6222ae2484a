/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes as people write them: "512.9B", "1.5GB", "64MiB", "4096". Pure functions; any thread.
 */
#ifndef COMMON_SIZE_H
#define COMMON_SIZE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Reads a number of bytes: digits, an optional fraction, an optional unit (B, K, KB, KiB, ... up to P; units are
 * binary, case does not matter, spaces before the unit are allowed). A fraction is cut down to whole bytes.
 * Returns 0, -EINVAL for anything else (also a sign or an empty string), -ERANGE above INT64_MAX.
 */
int size_parse(const char *text, uint64_t *ret);

/* Writes a short form ("1.5 GiB", "4 KiB", "17 B") into buf and returns buf. 24 bytes are always enough. */
const char *size_format(uint64_t bytes, char *buf, size_t len);

/* The least multiple of align (a power of two) that is not below n; n must not be above UINT64_MAX - align. */
static inline uint64_t align_up(uint64_t n, uint64_t align)
{
	return (n + align - 1) & ~(align - 1);
}

#endif
