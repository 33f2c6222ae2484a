/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/stamp.h"

#include <string.h>

#include "common/hash.h"

#define WORD sizeof(uint64_t)
#define STEP 0x9e3779b97f4a7c15ull /* odd, so no two words of a value are equal */

uint64_t stamp_base(uint64_t seed, uint64_t id)
{
	return hash_u64(hash_u64(seed + 1) ^ (id + 1));
}

uint64_t stamp_word(uint64_t base, uint64_t index)
{
	return base + index * STEP;
}

void stamp_fill(void *buf, size_t len, uint64_t base, uint64_t off)
{
	char *p = buf;
	size_t skip, n;
	uint64_t w;

	while (len) {
		w = stamp_word(base, off / WORD);
		skip = off % WORD;
		n = len < WORD - skip ? len : WORD - skip;
		memcpy(p, (char *)&w + skip, n);
		p += n;
		off += n;
		len -= n;
		for (; len >= WORD; len -= WORD, off += WORD, p += WORD) { /* the bulk, which vectorises */
			w = stamp_word(base, off / WORD);
			memcpy(p, &w, WORD);
		}
	}
}

/* The offset of the first wrong byte of the n <= WORD bytes at off, which lie within one word; n if all are right. */
static size_t wrong_in_word(const char *p, size_t n, uint64_t base, uint64_t off)
{
	uint64_t w = stamp_word(base, off / WORD);
	const char *want = (const char *)&w + off % WORD;
	size_t i = 0;

	while (i < n && p[i] == want[i])
		i++;
	return i;
}

/* Compares n whole words at an aligned offset. False as soon as a run of them holds a wrong one. */
static bool words_match(const char *p, size_t n, uint64_t base, uint64_t index)
{
	uint64_t w, wrong = 0;

	for (size_t i = 0; i < n; i++) {
		memcpy(&w, p + i * WORD, WORD);
		wrong |= w ^ stamp_word(base, index + i);
	}
	return !wrong;
}

bool stamp_check(const void *buf, size_t len, uint64_t base, uint64_t off, uint64_t *ret_bad)
{
	const char *p = buf;
	size_t n, right, run;

	while (len) {
		run = off % WORD ? 0 : len / WORD < 512 ? len / WORD : 512;
		if (run && words_match(p, run, base, off / WORD)) {
			p += run * WORD;
			off += run * WORD;
			len -= run * WORD;
			continue;
		}
		n = len < WORD - off % WORD ? len : WORD - off % WORD;
		right = wrong_in_word(p, n, base, off);
		if (right < n) {
			*ret_bad = off + right;
			return false;
		}
		p += n;
		off += n;
		len -= n;
	}
	return true;
}

bool stamp_probe(const void *buf, size_t len, uint64_t base, uint64_t off, uint64_t *ret_bad)
{
	const char *p = buf;
	uint64_t index;
	size_t at, n;

	for (unsigned i = 0; i <= 4 && len; i++) {
		at = i == 4 ? len - 1 : len / 4 * i;
		index = (off + at) / WORD;
		at = index * WORD > off ? (size_t)(index * WORD - off) : 0;
		n = WORD - (size_t)((off + at) % WORD);
		if (n > len - at)
			n = len - at;
		if (!stamp_check(p + at, n, base, off + at, ret_bad))
			return false;
	}
	return true;
}
