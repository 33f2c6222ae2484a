/* SPDX-License-Identifier: Apache-2.0 */
#include "net/plan.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "net/le.h"
#include "net/msg.h"

#define FIELD_BYTES (PLAN_BYTES - PLAN_MAC_BYTES)

/* Its NUL counts: no other label begins with it. The number is the encoding's. */
static const char label[] = "fluxkv plan 1";

void plan_encode(const struct plan *p, uint8_t ret[PLAN_BYTES])
{
	uint8_t *to = ret;

	to = put_le64(to, p->get_id);
	to = put_le64(to, p->put_id);
	to = put_le64(to, p->alloc);
	to = put_le64(to, p->len);
	to = put_le64(to, p->source_tag);
	to = put_le64(to, p->expires_ns);
	to = put_le32(to, p->block);
	to = put_le32(to, p->source);
	memcpy(to, p->mac, PLAN_MAC_BYTES);
}

void plan_decode(const uint8_t bytes[PLAN_BYTES], struct plan *ret)
{
	*ret = (struct plan){
	    .get_id = get_le64(bytes),
	    .put_id = get_le64(bytes + 8),
	    .alloc = get_le64(bytes + 16),
	    .len = get_le64(bytes + 24),
	    .source_tag = get_le64(bytes + 32),
	    .expires_ns = get_le64(bytes + 40),
	    .block = get_le32(bytes + 48),
	    .source = get_le32(bytes + 52),
	};
	memcpy(ret->mac, bytes + FIELD_BYTES, PLAN_MAC_BYTES);
}

static void mac(const struct auth_key *key, const struct plan *p, uint8_t ret[PLAN_MAC_BYTES])
{
	crypto_generichash_state st;
	uint8_t bytes[PLAN_BYTES];

	plan_encode(p, bytes);
	/* None of these fails for sizes that are right. */
	crypto_generichash_init(&st, key->bytes, sizeof(key->bytes), PLAN_MAC_BYTES);
	crypto_generichash_update(&st, (const uint8_t *)label, sizeof(label));
	crypto_generichash_update(&st, bytes, FIELD_BYTES);
	crypto_generichash_final(&st, ret, PLAN_MAC_BYTES);
	sodium_memzero(&st, sizeof(st));
}

void plan_seal(const struct auth_key *key, struct plan *p)
{
	mac(key, p, p->mac);
}

int plan_check(const struct auth_key *key, const struct plan *p)
{
	uint8_t want[PLAN_MAC_BYTES];

	mac(key, p, want);
	return sodium_memcmp(want, p->mac, PLAN_MAC_BYTES) ? -EACCES : 0;
}

bool plan_is_sane(const struct plan *p)
{
	return p->len && p->len <= INT64_MAX &&
	       (p->source == MSG_SOURCE_MEM_REMOTE || p->source == MSG_SOURCE_SSD_REMOTE);
}
