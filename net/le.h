/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as bytes, the least first, whatever the machine's order is. Pure; any thread. */
#ifndef NET_LE_H
#define NET_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Each returns where the next one goes. */
static inline uint8_t *put_le32(uint8_t *to, uint32_t v)
{
	v = htole32(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static inline uint8_t *put_le64(uint8_t *to, uint64_t v)
{
	v = htole64(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static inline uint32_t get_le32(const uint8_t *from)
{
	uint32_t v;

	memcpy(&v, from, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get_le64(const uint8_t *from)
{
	uint64_t v;

	memcpy(&v, from, sizeof(v));
	return le64toh(v);
}

#endif
