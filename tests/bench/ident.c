/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/ident.h"

#include <errno.h>
#include <string.h>

#include "common/hash.h"
#include "tests/bench/stamp.h"

struct mark {
	uint64_t key, version, len, sum;
};
_Static_assert(sizeof(struct mark) == IDENT_LEN, "a mark is what the header says");

static struct mark mark_of(size_t len, uint64_t seed, const struct ident *id)
{
	struct mark m = {.key = id->key, .version = id->version, .len = len};

	m.sum = hash_bytes(&m, offsetof(struct mark, sum), seed);
	return m;
}

static uint64_t body_base(uint64_t seed, const struct ident *id)
{
	return stamp_base(seed, hash_u64(id->key + 1) ^ id->version);
}

void ident_fill(void *buf, size_t len, uint64_t seed, const struct ident *id)
{
	struct mark m = mark_of(len, seed, id);
	char *p = buf;

	memcpy(p, &m, sizeof(m));
	stamp_fill(p + IDENT_LEN, len - 2 * IDENT_LEN, body_base(seed, id), IDENT_LEN);
	memcpy(p + len - IDENT_LEN, &m, sizeof(m));
}

int ident_read(const void *buf, size_t len, uint64_t seed, struct ident *ret)
{
	const char *p = buf;
	struct mark first, last, want;
	struct ident id;

	if (len < IDENT_LEAST)
		return -EBADMSG;
	memcpy(&first, p, sizeof(first));
	memcpy(&last, p + len - IDENT_LEN, sizeof(last));
	id = (struct ident){.key = first.key, .version = first.version};
	want = mark_of(len, seed, &id);
	if (memcmp(&first, &want, sizeof(want)) || memcmp(&last, &want, sizeof(want)))
		return -EBADMSG;
	*ret = id;
	return 0;
}

bool ident_check(const void *buf, size_t len, uint64_t seed, const struct ident *id, uint64_t *ret_bad)
{
	struct ident found;

	*ret_bad = 0;
	if (ident_read(buf, len, seed, &found) < 0 || found.key != id->key || found.version != id->version)
		return false;
	return stamp_check((const char *)buf + IDENT_LEN, len - 2 * IDENT_LEN, body_base(seed, id), IDENT_LEN, ret_bad);
}
