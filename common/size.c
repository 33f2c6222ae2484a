/* SPDX-License-Identifier: Apache-2.0 */
#include "common/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char unit_letters[] = "BKMGTP";

/* The power of 1024 that a unit stands for; -1 for no unit of ours. */
static int unit_power(const char *unit)
{
	const char *p;
	int c;

	if (!*unit)
		return 0;
	c = toupper((unsigned char)*unit);
	p = strchr(unit_letters, c);
	if (!p)
		return -1;
	unit++;
	if (c != 'B' && (!strcasecmp(unit, "b") || !strcasecmp(unit, "ib")))
		unit += strlen(unit);
	return *unit ? -1 : (int)(p - unit_letters);
}

int size_parse(const char *text, uint64_t *ret)
{
	/* Exact decimal arithmetic: a double would lose bytes of a large size. */
	unsigned __int128 whole = 0, frac = 0, scale = 1, bytes;
	const char *p = text;
	int power;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++) {
		whole = whole * 10 + (unsigned)(*p - '0');
		if (whole > INT64_MAX)
			return -ERANGE;
	}
	if (*p == '.') {
		p++;
		if (!isdigit((unsigned char)*p))
			return -EINVAL;
		for (; isdigit((unsigned char)*p); p++)
			if (scale < 1000000000000000000ull) { /* digits beyond 10^-18 of a unit are below a byte */
				frac = frac * 10 + (unsigned)(*p - '0');
				scale *= 10;
			}
	}
	while (*p == ' ')
		p++;
	power = unit_power(p);
	if (power < 0)
		return -EINVAL;
	bytes = (whole << (10 * power)) + (frac << (10 * power)) / scale;
	if (bytes > INT64_MAX)
		return -ERANGE;
	*ret = (uint64_t)bytes;
	return 0;
}

const char *size_format(uint64_t bytes, char *buf, size_t len)
{
	unsigned power = 0;
	double v = (double)bytes;

	while (v >= 1024 && power + 1 < sizeof(unit_letters) - 1) {
		v /= 1024;
		power++;
	}
	if (power == 0)
		snprintf(buf, len, "%llu B", (unsigned long long)bytes);
	else if (v >= 100 || v == (double)(uint64_t)v)
		snprintf(buf, len, "%.0f %ciB", v, unit_letters[power]);
	else
		snprintf(buf, len, "%.1f %ciB", v, unit_letters[power]);
	return buf;
}
