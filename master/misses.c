/* SPDX-License-Identifier: Apache-2.0 */
#include "master/misses.h"

#include <errno.h>
#include <stdlib.h>

/* A slot: 14 bits of the hash that its place does not tell, two bits of reason; 0 is empty. */
static uint16_t tag_of(uint32_t hash)
{
	return (uint16_t)(hash >> 18 << 2);
}

int misses_init(struct core *c)
{
	c->misses = calloc(MISS_SLOTS, sizeof(*c->misses));
	return c->misses ? 0 : -ENOMEM;
}

void miss_set(struct core *c, uint32_t hash, enum msg_miss reason)
{
	uint16_t *s = &c->misses[hash & (MISS_SLOTS - 1)];

	if (reason)
		*s = (uint16_t)(tag_of(hash) | (reason & 3));
	else if ((*s & ~3u) == tag_of(hash))
		*s = 0;
}

enum msg_miss miss_get(const struct core *c, uint32_t hash)
{
	uint16_t s = c->misses[hash & (MISS_SLOTS - 1)];

	return (s & ~3u) == tag_of(hash) ? (enum msg_miss)(s & 3) : MSG_MISS_NEVER;
}
