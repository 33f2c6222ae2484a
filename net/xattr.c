/* SPDX-License-Identifier: Apache-2.0 */
#include "net/xattr.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "net/le.h"
#include "net/msg.h"

#define RECORD_HEAD 5

int xattr_next(const uint8_t *blob, size_t len, size_t *pos, const char **ret_name, size_t *ret_name_len,
	       const uint8_t **ret_value, size_t *ret_value_len)
{
	size_t left, name_len, value_len;

	if (*pos > len)
		return -EBADMSG;
	left = len - *pos;
	if (!left)
		return 0;
	if (left < RECORD_HEAD)
		return -EBADMSG;
	name_len = blob[*pos];
	value_len = get_le32(blob + *pos + 1);
	left -= RECORD_HEAD;
	if (!name_len || name_len > left || value_len > left - name_len)
		return -EBADMSG;
	*ret_name = (const char *)blob + *pos + RECORD_HEAD;
	*ret_name_len = name_len;
	*ret_value = (const uint8_t *)*ret_name + name_len;
	*ret_value_len = value_len;
	*pos += RECORD_HEAD + name_len + value_len;
	return 1;
}

/* Finds name's record: 1 with its [begin, end) and value, 0 if it is not there, -EBADMSG. */
static int find(const uint8_t *blob, size_t len, const char *name, size_t *begin, size_t *end, const uint8_t **value,
		size_t *value_len)
{
	size_t name_len = strlen(name), pos = 0, n;
	const char *have;
	int r;

	for (;;) {
		*begin = pos;
		r = xattr_next(blob, len, &pos, &have, &n, value, value_len);
		if (r <= 0)
			return r;
		*end = pos;
		if (n == name_len && !memcmp(have, name, n))
			return 1;
	}
}

int xattr_get(const uint8_t *blob, size_t len, const char *name, const uint8_t **ret_value, size_t *ret_len)
{
	const uint8_t *value;
	size_t begin, end, value_len;
	int r = find(blob, len, name, &begin, &end, &value, &value_len);

	if (r < 0)
		return r;
	if (!r)
		return -ENODATA;
	*ret_value = value;
	*ret_len = value_len;
	return 0;
}

int xattr_set(const uint8_t *blob, size_t len, const char *name, const void *value, size_t value_len, int flags,
	      uint8_t **ret, size_t *ret_len)
{
	size_t name_len = strlen(name), begin = len, end = len, old_len, kept, need, n;
	const uint8_t *old;
	uint8_t *out;
	int found;

	if (!name_len || name_len > UINT8_MAX)
		return -ERANGE;
	if (value_len > MSG_XATTRS_MAX)
		return -ENOSPC;
	found = find(blob, len, name, &begin, &end, &old, &old_len);
	if (found < 0)
		return found;
	if (found ? (flags & XATTR_SET_CREATE) : (!value || (flags & XATTR_SET_REPLACE)))
		return found ? -EEXIST : -ENODATA;
	if (!found)
		begin = end = len;
	kept = len - (end - begin);
	need = kept + (value ? RECORD_HEAD + name_len + value_len : 0);
	if (need > MSG_XATTRS_MAX)
		return -ENOSPC;
	out = malloc(need ? need : 1);
	if (!out)
		return -ENOMEM;
	if (begin)
		memcpy(out, blob, begin);
	n = begin;
	if (len > end) {
		memcpy(out + n, blob + end, len - end);
		n += len - end;
	}
	if (value) {
		out[n] = (uint8_t)name_len;
		put_le32(out + n + 1, (uint32_t)value_len);
		memcpy(out + n + RECORD_HEAD, name, name_len);
		if (value_len)
			memcpy(out + n + RECORD_HEAD + name_len, value, value_len);
	}
	*ret = out;
	*ret_len = need;
	return 0;
}
