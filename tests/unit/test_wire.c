/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as bytes: every type there and back, and what is not a message. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/wire.h"
#include "net/wire.pb-c.h"
#include "tests/unit/random_msg.h"
#include "tests/unit/run.h"

/* ---- memory that fails -------------------------------------------------------------------------------------- */

static long fail_at = -1; /* so many allocations succeed; -1: all */
static size_t asked;	  /* bytes, by malloc() */

static bool fails(void)
{
	return fail_at >= 0 && !fail_at--;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	asked += n;
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

/* ---- there and back ----------------------------------------------------------------------------------------- */

/* Feeds all of bytes. The last frame's result. */
static int decode_all(const uint8_t *bytes, size_t len, struct wire_msg *ret)
{
	struct wire_reader r = {0};
	size_t n;
	int err = 0;

	while (!err && len) {
		err = wire_frame(bytes, len, &n);
		if (!err && n > len)
			err = -EAGAIN;
		if (!err)
			err = wire_decode(&r, bytes + WIRE_LENGTH_BYTES, n - WIRE_LENGTH_BYTES, ret);
		bytes += err < 0 ? 0 : n;
		len -= err < 0 ? 0 : n;
	}
	wire_reader_fini(&r);
	if (err == 1 && len)
		msg_free(ret->m);
	return err == 1 && len ? -E2BIG : err;
}

static void check_same(const struct wire_msg *w, const struct wire_msg *back)
{
	ck_assert_int_eq(back->kind, w->kind);
	ck_assert_uint_eq(back->timeout_us, w->timeout_us);
	if (!same_msg(w->m, back->m) || !same_items(w->m, back->m))
		ck_abort_msg("kind %d of %s came back changed", w->kind, msg_type_name(w->m->type));
}

static void there_and_back(enum wire_kind kind, enum msg_type type)
{
	struct wire_msg w = {.kind = kind}, back;
	struct buf b = {0};

	w.m = random_msg(kind, type);
	if (!w.m)
		return;
	if (kind == WIRE_REQUEST)
		w.timeout_us = random_number();
	ck_assert_msg(!wire_encode(&w, &b), "%s", msg_type_name(type));
	ck_assert_int_eq(decode_all(b.data, b.len, &back), 1);
	check_same(&w, &back);
	msg_free(back.m);
	msg_free(w.m);
	buf_free(&b);
}

static void all_types(void)
{
	for (enum msg_type type = MSG_NONE; type < MSG_TYPES; type++)
		for (enum wire_kind kind = WIRE_REQUEST; kind < WIRE_KINDS; kind++)
			there_and_back(kind, type);
}

START_TEST(every_type)
{
	for (random_state = 1, random_how = 0; random_state < 400; random_state++) {
		uint64_t seed = random_state;

		all_types();
		random_state = seed;
	}
}
END_TEST

START_TEST(long_lists)
{
	random_state = 7;
	random_how = LONG_LISTS;
	for (int k = 0; k < 4; k++)
		all_types();
}
END_TEST

/* With the longest lists of the largest elements no frame is too long. */
START_TEST(extremes)
{
	random_state = 7;
	random_how = EXTREME;
	all_types();
}
END_TEST

START_TEST(several_in_a_row)
{
	struct wire_reader r = {0};
	struct wire_msg sent[20], got;
	size_t at = 0, n, k = 0;
	struct buf b = {0};

	random_state = 3;
	random_how = LONG_LISTS;
	for (int i = 0; i < 20; i++) {
		sent[i] = (struct wire_msg){.kind = WIRE_NOTICE, .m = random_msg(WIRE_NOTICE, MSG_DROP)};
		ck_assert_int_eq(wire_encode(&sent[i], &b), 0);
	}
	for (; at < b.len; at += n) {
		ck_assert_int_eq(wire_frame(b.data + at, b.len - at, &n), 0);
		int err = wire_decode(&r, b.data + at + WIRE_LENGTH_BYTES, n - WIRE_LENGTH_BYTES, &got);

		ck_assert_int_ge(err, 0);
		if (!err)
			continue;
		check_same(&sent[k], &got);
		msg_free(sent[k++].m);
		msg_free(got.m);
	}
	ck_assert_uint_eq(k, 20);
	wire_reader_fini(&r);
	buf_free(&b);
}
END_TEST

/* ---- what is not sent --------------------------------------------------------------------------------------- */

static int encode_result(enum wire_kind kind, struct msg *m)
{
	struct wire_msg w = {.kind = kind, .m = m};
	struct buf b = {0};
	int r = buf_add(&b, "before", 6);

	ck_assert_int_eq(r, 0);
	r = wire_encode(&w, &b);
	if (r < 0)
		ck_assert_uint_eq(b.len, 6);
	buf_free(&b);
	msg_free(m);
	return r;
}

static struct msg *some(enum msg_type type)
{
	struct msg *m = msg_new(type);

	ck_assert_ptr_nonnull(m);
	m->req_id = 5;
	return m;
}

START_TEST(not_sent)
{
	struct msg *m;

	ck_assert_int_eq(encode_result(WIRE_REQUEST, some(MSG_LOOKUP)), 0);
	ck_assert_int_eq(encode_result(WIRE_NOTICE, some(MSG_LOOKUP)), -EINVAL);
	ck_assert_int_eq(encode_result(WIRE_REQUEST, some(MSG_DROP)), -EINVAL);
	ck_assert_int_eq(encode_result(WIRE_ANSWER, some(MSG_NAME_REVOKE)), -EINVAL);
	ck_assert_int_eq(encode_result(WIRE_REQUEST, some(MSG_NONE)), -EINVAL);
	ck_assert_int_eq(encode_result(WIRE_REQUEST, some(MSG_TYPES)), -EINVAL);
	ck_assert_int_eq(encode_result(WIRE_NONE, some(MSG_LOOKUP)), -EINVAL);
	m = some(MSG_LOOKUP);
	m->req_id = 0;
	ck_assert_int_eq(encode_result(WIRE_REQUEST, m), -EINVAL);
	m = some(MSG_LOOKUP);
	m->status = -EIO;
	ck_assert_int_eq(encode_result(WIRE_REQUEST, m), -EINVAL);
	m = some(MSG_LOOKUP);
	m->status = 1;
	ck_assert_int_eq(encode_result(WIRE_ANSWER, m), -EINVAL);
	m = some(MSG_LOOKUP);
	m->u.entry.miss = MSG_MISS_LOST + 1;
	ck_assert_int_eq(encode_result(WIRE_ANSWER, m), -EINVAL);
	m = some(MSG_LOOKUP);
	memset(m->u.name.name, 'x', sizeof(m->u.name.name));
	ck_assert_int_eq(encode_result(WIRE_REQUEST, m), -EINVAL);
}
END_TEST

START_TEST(too_long_to_send)
{
	struct msg *m = some(MSG_READDIR);

	m->n_ents = 1025;
	m->ents = calloc(m->n_ents, sizeof(*m->ents));
	ck_assert_int_eq(encode_result(WIRE_ANSWER, m), -E2BIG);
	m = some(MSG_SSD_EVICT);
	m->n_items = MSG_MAX_ITEMS + 1;
	m->items = calloc(m->n_items, sizeof(*m->items));
	ck_assert_int_eq(encode_result(WIRE_REQUEST, m), -E2BIG);
	m = some(MSG_SETXATTRS);
	m->blob_len = MSG_XATTRS_MAX + 1;
	m->blob = calloc(m->blob_len, 1);
	ck_assert_int_eq(encode_result(WIRE_REQUEST, m), -E2BIG);
}
END_TEST

/* What belongs to the other direction, or to nobody, stays here: also a part that is garbage in this one. */
START_TEST(parts_of_others)
{
	struct msg *m = some(MSG_PUT_DONE);
	struct wire_msg w = {.kind = WIRE_ANSWER, .m = m}, back;
	struct buf b = {0};

	m->status = -EFBIG;
	memset(&m->u, 0xff, sizeof(m->u));
	ck_assert_int_eq(msg_alloc_items(m, 3), 0);
	m->blob = calloc(1, 9);
	m->blob_len = 9;
	ck_assert_int_eq(wire_encode(&w, &b), 0);
	ck_assert_int_eq(decode_all(b.data, b.len, &back), 1);
	ck_assert_int_eq(back.m->status, -EFBIG);
	ck_assert_uint_eq(back.m->n_items + back.m->blob_len, 0);
	for (size_t k = 0; k < sizeof(back.m->u); k++)
		ck_assert_uint_eq(((uint8_t *)&back.m->u)[k], 0);
	msg_free(back.m);
	msg_free(m);
	buf_free(&b);
}
END_TEST

/* ---- what is not taken -------------------------------------------------------------------------------------- */

static Fluxkv__Wire__Frame frame;
static Fluxkv__Wire__Name name_body;
static Fluxkv__Wire__Entry entry_body;
static Fluxkv__Wire__Attr attr;
static Fluxkv__Wire__Items items;

/* The result for the frames packed so far and this one. */
static int take(struct wire_reader *r)
{
	size_t len = fluxkv__wire__frame__get_packed_size(&frame);
	uint8_t *bytes = malloc(len ? len : 1);
	struct wire_msg got = {0};
	int err;

	fluxkv__wire__frame__pack(&frame, bytes);
	err = wire_decode(r, bytes, len, &got);
	free(bytes);
	ck_assert_int_eq(err == 1, got.m != NULL);
	msg_free(got.m);
	return err;
}

static int take_alone(void)
{
	struct wire_reader r = {0};
	int err = take(&r);

	wire_reader_fini(&r);
	return err;
}

static void begin_frame(enum wire_kind kind, enum msg_type type)
{
	fluxkv__wire__frame__init(&frame);
	fluxkv__wire__name__init(&name_body);
	fluxkv__wire__entry__init(&entry_body);
	fluxkv__wire__attr__init(&attr);
	fluxkv__wire__items__init(&items);
	frame.version = WIRE_VERSION;
	frame.kind = kind;
	frame.type = type;
	frame.req_id = 1;
}

static void begin_lookup(void)
{
	begin_frame(WIRE_REQUEST, MSG_LOOKUP);
	frame.body_case = FLUXKV__WIRE__FRAME__BODY_NAME;
	frame.name = &name_body;
	name_body.attr = &attr;
	name_body.name = (ProtobufCBinaryData){3, (uint8_t *)"abc"};
}

#define REFUSED(change)                                                                                                \
	do {                                                                                                           \
		begin_lookup();                                                                                        \
		change;                                                                                                \
		ck_assert_int_eq(take_alone(), -EBADMSG);                                                              \
	} while (0)

START_TEST(bad_heads)
{
	begin_lookup();
	ck_assert_int_eq(take_alone(), 1);
	begin_lookup();
	frame.version = WIRE_VERSION + 1;
	ck_assert_int_eq(take_alone(), -EPROTO);
	REFUSED(frame.kind = WIRE_NONE);
	REFUSED(frame.kind = WIRE_KINDS);
	REFUSED(frame.kind = WIRE_NOTICE);
	REFUSED(frame.kind = WIRE_ANSWER); /* has a request's body */
	REFUSED(frame.type = MSG_NONE);
	REFUSED(frame.type = MSG_TYPES);
	REFUSED(frame.type = UINT32_MAX);
	REFUSED(frame.type = MSG_DROP);
	REFUSED(frame.type = MSG_RENAME);
	REFUSED(frame.type = MSG_LEAVE);
	REFUSED(frame.status = -EIO);
	REFUSED(frame.req_id = 0);
	REFUSED(frame.part = 1);
	REFUSED(frame.more = true);
	REFUSED(frame.body_case = FLUXKV__WIRE__FRAME__BODY__NOT_SET);
	begin_frame(WIRE_ANSWER, MSG_PUT_RENEW);
	ck_assert_int_eq(take_alone(), 1);
	frame.timeout_us = 1;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	frame.timeout_us = 0;
	frame.status = 1;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	frame.status = INT32_MIN;
	ck_assert_int_eq(take_alone(), -EBADMSG);
}
END_TEST

START_TEST(bad_fields)
{
	static uint8_t text[70000];

	memset(text, 'x', sizeof(text));
	REFUSED(name_body.name = ((ProtobufCBinaryData){3, (uint8_t *)"a\0b"}));
	REFUSED(name_body.name = ((ProtobufCBinaryData){MSG_NAME_MAX + 1, text}));
	REFUSED(attr.kind = MSG_KIND_FILE + 1);
	REFUSED(attr.flags = 2);
	REFUSED(frame.blob = ((ProtobufCBinaryData){1, text}));
	begin_lookup();
	name_body.name = (ProtobufCBinaryData){MSG_NAME_MAX, text};
	ck_assert_int_eq(take_alone(), 1);
	begin_frame(WIRE_ANSWER, MSG_LOOKUP);
	frame.status = -ENOENT;
	frame.body_case = FLUXKV__WIRE__FRAME__BODY_ENTRY;
	frame.entry = &entry_body;
	entry_body.miss = MSG_MISS_LOST;
	ck_assert_int_eq(take_alone(), 1);
	entry_body.miss++;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_frame(WIRE_ANSWER, MSG_GETXATTRS);
	frame.blob = (ProtobufCBinaryData){MSG_XATTRS_MAX, text};
	ck_assert_int_eq(take_alone(), 1);
	frame.blob.len++;
	ck_assert_int_eq(take_alone(), -EBADMSG);
}
END_TEST

static uint64_t numbers[40000];

static void begin_items(uint32_t count, size_t n)
{
	begin_frame(WIRE_REQUEST, MSG_SSD_EVICT);
	frame.items = &items;
	items.count = count;
	items.n_put_id = n;
	items.put_id = numbers;
}

START_TEST(bad_items)
{
	static uint32_t flags[3] = {1, 2, 64};
	static int32_t status[3] = {0, 0, 1};

	begin_items(3, 3);
	ck_assert_int_eq(take_alone(), 1);
	begin_items(3, 0);
	ck_assert_int_eq(take_alone(), 1);
	begin_items(3, 2);
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_items(0, 2);
	ck_assert_int_eq(take_alone(), 1); /* of a list of none nothing is looked at */
	begin_items(UINT32_MAX, 0);
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_items(40000, 40000);
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_items(3, 3);
	items.n_flags = 3;
	items.flags = flags;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_items(3, 3);
	items.n_status = 3;
	items.status = status;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	begin_items(3, 3);
	frame.type = MSG_LEAVE;
	ck_assert_int_eq(take_alone(), -EBADMSG);
}
END_TEST

/* Two frames of one message, the second with a change. */
#define SECOND(expected, change)                                                                                       \
	do {                                                                                                           \
		struct wire_reader r = {0};                                                                            \
                                                                                                                       \
		begin_items(3, 3);                                                                                     \
		frame.more = true;                                                                                     \
		ck_assert_int_eq(take(&r), 0);                                                                         \
		frame.part = 1;                                                                                        \
		frame.more = false;                                                                                    \
		change;                                                                                                \
		ck_assert_int_eq(take(&r), expected);                                                                  \
		wire_reader_fini(&r);                                                                                  \
	} while (0)

START_TEST(bad_sequences)
{
	SECOND(1, );
	SECOND(0, frame.more = true);
	SECOND(-EBADMSG, frame.part = 0);
	SECOND(-EBADMSG, frame.part = 2);
	SECOND(-EBADMSG, frame.req_id = 2);
	SECOND(-EBADMSG, frame.kind = WIRE_ANSWER);
	SECOND(-EBADMSG, frame.type = MSG_MEM_EVICT);
	SECOND(-EBADMSG, frame.items = NULL);
	SECOND(-EBADMSG, (frame.items = NULL, frame.more = true));
	SECOND(-EBADMSG, frame.blob = ((ProtobufCBinaryData){1, (uint8_t *)"x"}));
	SECOND(-EBADMSG, (frame.body_case = FLUXKV__WIRE__FRAME__BODY_NAME, frame.name = &name_body));
}
END_TEST

START_TEST(endless_list)
{
	struct wire_reader r = {0};
	size_t n = 0;
	int err = 0;

	begin_items(16384, 0);
	frame.more = true;
	for (; !err && n < 100; n++) {
		err = take(&r);
		frame.part++;
	}
	ck_assert_int_eq(err, -EBADMSG);
	ck_assert_uint_eq(n, MSG_MAX_ITEMS / 16384 + 1);
	wire_reader_fini(&r);
}
END_TEST

/* A message has one list at most, whichever of two comes first. */
START_TEST(two_lists)
{
	Fluxkv__Wire__Namespace ns = FLUXKV__WIRE__NAMESPACE__INIT, *list = &ns;

	begin_items(3, 3);
	frame.n_namespaces = 1;
	frame.namespaces = &list;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	frame.kind = WIRE_ANSWER;
	frame.type = MSG_NS_LIST;
	ck_assert_int_eq(take_alone(), -EBADMSG);
	frame.items = NULL;
	ck_assert_int_eq(take_alone(), 1);
}
END_TEST

/* A megabyte that says nothing, half a million times, must not become a hundred. */
START_TEST(bomb)
{
	static uint8_t bytes[WIRE_FRAME_MAX];
	struct wire_reader r = {0};
	struct wire_msg got;
	size_t n = 0;

	begin_frame(WIRE_ANSWER, MSG_READDIR);
	n = fluxkv__wire__frame__pack(&frame, bytes);
	while (n + 3 <= sizeof(bytes)) {
		memcpy(bytes + n, "\x92\x02\x00", 3); /* ents, empty */
		n += 3;
	}
	asked = 0;
	ck_assert_int_eq(wire_decode(&r, bytes, n, &got), -EBADMSG);
	ck_assert_uint_lt(asked, 5u << 20);
	wire_reader_fini(&r);
}
END_TEST

START_TEST(frame_lengths)
{
	size_t n = 0;

	ck_assert_int_eq(wire_frame((const uint8_t *)"\1\0\0", 3, &n), -EAGAIN);
	ck_assert_int_eq(wire_frame((const uint8_t *)"\0\0\0\0", 4, &n), -EMSGSIZE);
	ck_assert_int_eq(wire_frame((const uint8_t *)"\1\0\x10\0", 4, &n), -EMSGSIZE);
	ck_assert_int_eq(wire_frame((const uint8_t *)"\0\0\0\1", 4, &n), -EMSGSIZE);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(wire_frame((const uint8_t *)"\0\0\x10\0", 4, &n), 0);
	ck_assert_uint_eq(n, WIRE_LENGTH_BYTES + WIRE_FRAME_MAX);
}
END_TEST

/* Whatever comes out of damaged bytes is a message that could have been sent. */
static void check_damaged(const uint8_t *bytes, size_t len)
{
	struct wire_msg got, again;
	struct buf b = {0};

	if (decode_all(bytes, len, &got) != 1)
		return;
	ck_assert_int_eq(wire_encode(&got, &b), 0);
	ck_assert_int_eq(decode_all(b.data, b.len, &again), 1);
	check_same(&got, &again);
	msg_free(got.m);
	msg_free(again.m);
	buf_free(&b);
}

static void damage(enum wire_kind kind, enum msg_type type)
{
	struct wire_msg w = {.kind = kind, .m = random_msg(kind, type)};
	struct buf b = {0};

	if (!w.m)
		return;
	ck_assert_int_eq(wire_encode(&w, &b), 0);
	for (int k = 0; k < 200; k++) {
		/* behind the length, which is a test of its own */
		size_t at = WIRE_LENGTH_BYTES + random_below(b.len - WIRE_LENGTH_BYTES);
		uint8_t old = b.data[at];

		b.data[at] = (uint8_t)random_u64();
		check_damaged(b.data, b.len);
		if (random_below(2))
			b.data[at] = old;
	}
	msg_free(w.m);
	buf_free(&b);
}

START_TEST(damaged)
{
	random_state = 11;
	random_how = 0;
	for (enum msg_type type = MSG_NONE; type < MSG_TYPES; type++)
		for (enum wire_kind kind = WIRE_REQUEST; kind < WIRE_KINDS; kind++)
			for (int k = 0; k < 10; k++)
				damage(kind, type);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------- */

static void without_memory(enum wire_kind kind, enum msg_type type)
{
	struct wire_msg w = {.kind = kind, .m = random_msg(kind, type)}, back;
	int r = -ENOMEM;
	struct buf b = {0};

	for (long n = 0; r == -ENOMEM; n++) {
		ck_assert_uint_eq(b.len, 0);
		fail_at = n;
		r = wire_encode(&w, &b);
		fail_at = -1;
	}
	ck_assert_int_eq(r, 0);
	r = -ENOMEM;
	for (long n = 0; r == -ENOMEM; n++) {
		fail_at = n;
		r = decode_all(b.data, b.len, &back);
		fail_at = -1;
	}
	ck_assert_int_eq(r, 1);
	check_same(&w, &back);
	msg_free(back.m);
	msg_free(w.m);
	buf_free(&b);
}

START_TEST(no_memory)
{
	random_state = 5;
	random_how = LONG_LISTS;
	without_memory(WIRE_REQUEST, MSG_PUT_DONE);
	without_memory(WIRE_ANSWER, MSG_READDIR);
	without_memory(WIRE_ANSWER, MSG_NS_LIST);
	without_memory(WIRE_NOTICE, MSG_NAME_REVOKE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wire");
	TCase *tc = tcase_create("wire");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_type);
	tcase_add_test(tc, long_lists);
	tcase_add_test(tc, extremes);
	tcase_add_test(tc, several_in_a_row);
	tcase_add_test(tc, not_sent);
	tcase_add_test(tc, too_long_to_send);
	tcase_add_test(tc, parts_of_others);
	tcase_add_test(tc, bad_heads);
	tcase_add_test(tc, bad_fields);
	tcase_add_test(tc, bad_items);
	tcase_add_test(tc, bad_sequences);
	tcase_add_test(tc, endless_list);
	tcase_add_test(tc, two_lists);
	tcase_add_test(tc, bomb);
	tcase_add_test(tc, frame_lengths);
	tcase_add_test(tc, damaged);
	tcase_add_test(tc, no_memory);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
