/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of one transfer between nodes: which block, from whom, until when. The master makes it, the requester shows
 * it to the source, and the source believes it because of its MAC, without asking anybody. So a plan is a right, to
 * exactly this block and no other; who changes a field of it has none.
 *
 * The MAC is keyed BLAKE2b over a fixed encoding of all other fields, behind words that begin no other MAC with this
 * key (net/auth.h). Pure; any thread.
 */
#ifndef NET_PLAN_H
#define NET_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "net/auth.h"

#define PLAN_MAC_BYTES 32u
#define PLAN_BYTES (56u + PLAN_MAC_BYTES)

struct plan {
	uint64_t get_id;
	uint64_t put_id;
	uint64_t alloc;	     /* of the memory copy at the source; 0: from its SSD */
	uint64_t len;	     /* the block's, exactly; not 0 */
	uint64_t source_tag; /* the source's incarnation */
	uint64_t expires_ns; /* by the master's monotonic clock */
	uint32_t block;
	uint32_t source; /* enum msg_source: MSG_SOURCE_MEM_REMOTE or MSG_SOURCE_SSD_REMOTE */
	uint8_t mac[PLAN_MAC_BYTES];
};

/* Fills in the MAC. */
void plan_seal(const struct auth_key *key, struct plan *p);
/* 0; -EACCES: nobody with the key has made it so. How long it takes tells nothing of the MAC. */
int plan_check(const struct auth_key *key, const struct plan *p);
/* Whether it can be a plan at all: some bytes, from memory or from SSD of another node. */
bool plan_is_sane(const struct plan *p);

/* The form in which it travels. Each field has its place, so there is nothing in it that could be malformed. */
void plan_encode(const struct plan *p, uint8_t ret[PLAN_BYTES]);
void plan_decode(const uint8_t bytes[PLAN_BYTES], struct plan *ret);

#endif
