/* SPDX-License-Identifier: Apache-2.0 */
#include "common/errmsg.h"

#include <stdio.h>

void errmsg_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

int errmsg_set(struct errmsg *e, int err, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return err;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	errmsg_one_line(e->text);
	return err;
}

int errmsg_prefix(struct errmsg *e, int err, const char *fmt, ...)
{
	char prefix[512];
	struct errmsg old;
	va_list ap;

	if (!e)
		return err;
	old = *e;
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	return errmsg_set(e, err, "%s: %.*s", prefix, (int)(sizeof(e->text) - sizeof(prefix) - 3), old.text);
}
