/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashing, all of it XXH3 (xxHash). hash_bytes() is also the checksum of a block's payload. Any thread.
 */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

/*
 * gcc makes slow code of this header at -O2: 7 GB/s on a core that does 11 GB/s with -O3. A checksum of each payload is
 * taken, so that counts, whatever the rest is compiled with. clang needs no telling.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

static inline uint64_t hash_bytes(const void *p, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, len, seed);
}

/* A full-avalanche mix of one integer (the finaliser of MurmurHash3), for tables keyed by ids. */
static inline uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

#endif
