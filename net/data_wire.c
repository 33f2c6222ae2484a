/* SPDX-License-Identifier: Apache-2.0 */
#include "net/data_wire.h"

#include <errno.h>
#include <string.h>

#include "net/le.h"

#define ERRNO_MAX 4095

static const uint8_t magic[4] = {'F', 'K', 'V', 'D'};

/* magic, version, kind, two zeros */
static void put_head(uint8_t to[DATA_HEAD_BYTES], enum data_kind kind)
{
	memset(to, 0, DATA_HEAD_BYTES);
	memcpy(to, magic, sizeof(magic));
	to[4] = DATA_VERSION;
	to[5] = (uint8_t)kind;
}

static int get_head(const uint8_t from[DATA_HEAD_BYTES], enum data_kind *ret)
{
	if (memcmp(from, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	if (from[4] != DATA_VERSION)
		return -EPROTO;
	if (from[5] == DATA_NONE || from[5] >= DATA_KINDS || from[6] || from[7])
		return -EBADMSG;
	*ret = (enum data_kind)from[5];
	return 0;
}

void data_encode_request(const struct plan *p, uint8_t ret[DATA_REQUEST_BYTES])
{
	put_head(ret, DATA_REQUEST);
	plan_encode(p, ret + DATA_HEAD_BYTES);
}

int data_decode_request(const uint8_t bytes[DATA_REQUEST_BYTES], struct plan *ret)
{
	enum data_kind kind;
	int r = get_head(bytes, &kind);

	if (r < 0)
		return r;
	if (kind != DATA_REQUEST)
		return -EBADMSG;
	plan_decode(bytes + DATA_HEAD_BYTES, ret);
	return 0;
}

void data_encode_part(const struct data_part *d, uint8_t ret[DATA_PART_BYTES])
{
	int status = d->status <= 0 && d->status >= -ERRNO_MAX ? d->status : -EIO;
	uint8_t *to = ret + DATA_HEAD_BYTES;

	put_head(ret, d->kind);
	to = put_le64(to, d->get_id);
	to = put_le32(to, (uint32_t)status);
	put_le64(to, status ? 0 : d->value);
}

static bool good_part(const struct data_part *d)
{
	if (d->kind == DATA_REQUEST || d->status > 0 || d->status < -ERRNO_MAX || (d->status && d->value))
		return false;
	return d->kind != DATA_PIECE || (!d->status && d->value);
}

int data_decode_part(const uint8_t bytes[DATA_PART_BYTES], struct data_part *ret)
{
	const uint8_t *from = bytes + DATA_HEAD_BYTES;
	struct data_part d;
	int r = get_head(bytes, &d.kind);

	if (r < 0)
		return r;
	d.get_id = get_le64(from);
	d.status = (int32_t)get_le32(from + 8);
	d.value = get_le64(from + 12);
	if (!good_part(&d))
		return -EBADMSG;
	*ret = d;
	return 0;
}

/* ---- an answer ----------------------------------------------------------------------------------------------- */

void data_answer_begin(struct data_answer *a, const struct plan *p)
{
	*a = (struct data_answer){.get_id = p->get_id, .len = p->len, .last = DATA_NONE};
}

/* Whether such a part may come now. */
static bool may_come(const struct data_answer *a, const struct data_part *d)
{
	if (d->get_id != a->get_id)
		return false;
	switch (d->kind) {
	case DATA_BEGIN:
		return a->last == DATA_NONE && (d->status || d->value == a->len);
	case DATA_PIECE:
		return (a->last == DATA_BEGIN || a->last == DATA_PIECE) && d->value <= a->len - a->got;
	default:
		/* It says that all is there only where that is so. */
		return (a->last == DATA_BEGIN || a->last == DATA_PIECE) && (d->status || a->got == a->len);
	}
}

int data_answer_take(struct data_answer *a, const uint8_t bytes[DATA_PART_BYTES], uint64_t *ret)
{
	struct data_part d;
	int r = data_decode_part(bytes, &d);

	if (r < 0)
		return r;
	if (!may_come(a, &d))
		return -EBADMSG;
	a->last = d.kind;
	a->status = d.status;
	if (d.status || d.kind == DATA_END) {
		a->last = DATA_END;
		a->sum = d.value;
		return 1;
	}
	*ret = d.kind == DATA_PIECE ? d.value : 0;
	a->got += *ret;
	return 0;
}
