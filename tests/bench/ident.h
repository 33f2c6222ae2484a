/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that say at both ends whose they are: which key, which version, how long. What lies between is stamped for
 * that key and version (stamp.h). So a reader knows bytes of another key, an old version, two versions in one value and
 * zeros from the right ones. Pure functions; any thread.
 */
#ifndef TESTS_BENCH_IDENT_H
#define TESTS_BENCH_IDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDENT_LEN 32u
#define IDENT_LEAST (2 * IDENT_LEN) /* no value is shorter */

struct ident {
	uint64_t key, version;
};

void ident_fill(void *buf, size_t len, uint64_t seed, const struct ident *id);
/* Looks at the first and the last IDENT_LEN bytes. 0; -EBADMSG: no value of that seed and length, or not one value. */
int ident_read(const void *buf, size_t len, uint64_t seed, struct ident *ret);
/* Whether all bytes are what ident_fill() makes; *ret_bad is the offset of a wrong one. */
bool ident_check(const void *buf, size_t len, uint64_t seed, const struct ident *id, uint64_t *ret_bad);

#endif
