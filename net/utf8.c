/* SPDX-License-Identifier: Apache-2.0 */
#include "net/utf8.h"

#include <stdbool.h>

static bool continues(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return false;
	return true;
}

size_t utf8_sequence(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;

	if (n < 1)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		return n >= 2 && continues(p + 1, 1) ? 2 : 0;
	if (p[0] >= 0xe0 && p[0] <= 0xef) {
		if (n < 3 || !continues(p + 1, 2))
			return 0;
		if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f))
			return 0;
		return 3;
	}
	if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		if (n < 4 || !continues(p + 1, 3))
			return 0;
		if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

uint32_t utf8_code_point(const char *s, size_t len)
{
	static const unsigned char lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	const unsigned char *p = (const unsigned char *)s;
	uint32_t cp = p[0] & lead[len];

	for (size_t i = 1; i < len; i++)
		cp = cp << 6 | (p[i] & 0x3f);
	return cp;
}
