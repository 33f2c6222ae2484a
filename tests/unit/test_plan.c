/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: whoever changes one has none. And what is said over a data connection, part by part. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "net/data_wire.h"
#include "net/msg.h"
#include "tests/unit/run.h"

static struct auth_key key;
static struct plan plan;

static void set_up(void)
{
	ck_assert_int_eq(auth_key_load(NULL, &key, NULL), 0);
	plan = (struct plan){.get_id = 0x0102030405060708,
			     .put_id = 2,
			     .alloc = 3,
			     .len = 1 << 20,
			     .source_tag = 5,
			     .expires_ns = 6,
			     .block = 7,
			     .source = MSG_SOURCE_MEM_REMOTE};
	plan_seal(&key, &plan);
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

START_TEST(sealed)
{
	struct plan again = plan;

	ck_assert_int_eq(plan_check(&key, &plan), 0);
	plan_seal(&key, &again);
	ck_assert_mem_eq(again.mac, plan.mac, sizeof(plan.mac));
}
END_TEST

/* Each bit of what travels counts, those of the MAC too. */
START_TEST(every_bit)
{
	uint8_t bytes[PLAN_BYTES];
	struct plan p;

	plan_encode(&plan, bytes);
	for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		plan_decode(bytes, &p);
		ck_assert_int_eq(plan_check(&key, &p), -EACCES);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	plan_decode(bytes, &p);
	ck_assert_int_eq(plan_check(&key, &p), 0);
}
END_TEST

START_TEST(another_key)
{
	struct auth_key other = key;

	other.bytes[31] ^= 1;
	ck_assert_int_eq(plan_check(&other, &plan), -EACCES);
}
END_TEST

/* The bytes, and the MAC over them, are what other nodes count on. */
START_TEST(fixed_form)
{
	static const uint8_t want[PLAN_BYTES - PLAN_MAC_BYTES] = {8,
								  7,
								  6,
								  5,
								  4,
								  3,
								  2,
								  1,
								  2,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  3,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  16,
								  0,
								  0,
								  0,
								  0,
								  0,
								  5,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  6,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  0,
								  7,
								  0,
								  0,
								  0,
								  MSG_SOURCE_MEM_REMOTE};
	uint8_t bytes[PLAN_BYTES];
	struct plan p;

	plan_encode(&plan, bytes);
	ck_assert_mem_eq(bytes, want, sizeof(want));
	ck_assert_mem_eq(bytes + sizeof(want), plan.mac, PLAN_MAC_BYTES);
	plan_decode(bytes, &p);
	ck_assert_mem_eq(&p, &plan, sizeof(p));
}
END_TEST

START_TEST(sane)
{
	struct plan p = plan;

	ck_assert(plan_is_sane(&p));
	p.len = 0;
	ck_assert(!plan_is_sane(&p));
	p.len = 1ull << 63;
	ck_assert(!plan_is_sane(&p));
	p.len = 1;
	for (uint32_t source = 0; source < 10; source++) {
		p.source = source;
		ck_assert_int_eq(plan_is_sane(&p), source == MSG_SOURCE_MEM_REMOTE || source == MSG_SOURCE_SSD_REMOTE);
	}
}
END_TEST

/* ---- the wire ------------------------------------------------------------------------------------------------ */

START_TEST(requests)
{
	uint8_t bytes[DATA_REQUEST_BYTES];
	struct plan p;

	data_encode_request(&plan, bytes);
	ck_assert_int_eq(data_decode_request(bytes, &p), 0);
	ck_assert_mem_eq(&p, &plan, sizeof(p));
	for (size_t k = 0; k < DATA_HEAD_BYTES; k++) {
		bytes[k] ^= 0x40;
		ck_assert_int_eq(data_decode_request(bytes, &p), k == 4 ? -EPROTO : -EBADMSG);
		bytes[k] ^= 0x40;
	}
	data_encode_part(&(struct data_part){.kind = DATA_BEGIN, .value = 1}, bytes);
	ck_assert_int_eq(data_decode_request(bytes, &p), -EBADMSG);
}
END_TEST

static int round_trip(struct data_part d)
{
	uint8_t bytes[DATA_PART_BYTES];
	struct data_part back;
	int r;

	data_encode_part(&d, bytes);
	r = data_decode_part(bytes, &back);
	if (r < 0)
		return r;
	ck_assert_int_eq(back.kind, d.kind);
	ck_assert_uint_eq(back.get_id, d.get_id);
	ck_assert_int_eq(back.status, d.status);
	ck_assert_uint_eq(back.value, d.value);
	return 0;
}

START_TEST(parts)
{
	uint8_t bytes[DATA_PART_BYTES];
	struct data_part d;

	ck_assert_int_eq(round_trip((struct data_part){DATA_BEGIN, 0, 1, 2}), 0);
	ck_assert_int_eq(round_trip((struct data_part){DATA_BEGIN, -ENOENT, UINT64_MAX, 0}), 0);
	ck_assert_int_eq(round_trip((struct data_part){DATA_PIECE, 0, 1, UINT64_MAX}), 0);
	ck_assert_int_eq(round_trip((struct data_part){DATA_END, 0, 1, UINT64_MAX}), 0);
	ck_assert_int_eq(round_trip((struct data_part){DATA_END, -4095, 1, 0}), 0);
	ck_assert_int_eq(round_trip((struct data_part){DATA_NONE, 0, 1, 1}), -EBADMSG);
	ck_assert_int_eq(round_trip((struct data_part){DATA_REQUEST, 0, 1, 1}), -EBADMSG);
	ck_assert_int_eq(round_trip((struct data_part){DATA_PIECE, 0, 1, 0}), -EBADMSG);
	ck_assert_int_eq(round_trip((struct data_part){DATA_PIECE, -EIO, 1, 0}), -EBADMSG);
	/* what no errno is does not get on the wire, and not off it */
	data_encode_part(&(struct data_part){DATA_END, 7, 1, 1}, bytes);
	ck_assert_int_eq(data_decode_part(bytes, &d), 0);
	ck_assert_int_eq(d.status, -EIO);
	memset(bytes + DATA_HEAD_BYTES + 8, 0, 4);
	bytes[DATA_HEAD_BYTES + 8] = 1;
	ck_assert_int_eq(data_decode_part(bytes, &d), -EBADMSG);
}
END_TEST

static int take(struct data_answer *a, enum data_kind kind, int status, uint64_t value)
{
	uint8_t bytes[DATA_PART_BYTES];
	uint64_t n = 0;
	int r;

	data_encode_part(&(struct data_part){kind, status, plan.get_id, value}, bytes);
	r = data_answer_take(a, bytes, &n);
	ck_assert_uint_eq(n, !r && kind == DATA_PIECE ? value : 0);
	return r;
}

START_TEST(answers)
{
	struct data_answer a;

	plan.len = 100;
	data_answer_begin(&a, &plan);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 100), 0);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 60), 0);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 40), 0);
	ck_assert_int_eq(take(&a, DATA_END, 0, 1234), 1);
	ck_assert_int_eq(a.status, 0);
	ck_assert_uint_eq(a.sum, 1234);
	/* an error from the start, and one later */
	data_answer_begin(&a, &plan);
	ck_assert_int_eq(take(&a, DATA_BEGIN, -ENOENT, 0), 1);
	ck_assert_int_eq(a.status, -ENOENT);
	data_answer_begin(&a, &plan);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 100), 0);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 60), 0);
	ck_assert_int_eq(take(&a, DATA_END, -EIO, 0), 1);
	ck_assert_int_eq(a.status, -EIO);
}
END_TEST

/* Nothing that is short, long or another's looks whole. */
START_TEST(no_answers)
{
	uint8_t bytes[DATA_PART_BYTES];
	struct data_answer a;
	uint64_t n;

	plan.len = 100;
	data_answer_begin(&a, &plan);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 100), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_END, 0, 0), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_END, -EIO, 0), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 99), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 101), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 100), 0);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 100), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 101), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, UINT64_MAX), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 99), 0);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 2), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_END, 0, 0), -EBADMSG);
	data_encode_part(&(struct data_part){DATA_PIECE, 0, plan.get_id + 1, 1}, bytes);
	ck_assert_int_eq(data_answer_take(&a, bytes, &n), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 1), 0);
	ck_assert_int_eq(take(&a, DATA_PIECE, 0, 1), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_END, 0, 0), 1);
	ck_assert_int_eq(take(&a, DATA_END, 0, 0), -EBADMSG);
	ck_assert_int_eq(take(&a, DATA_BEGIN, 0, 100), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan");
	TCase *tc = tcase_create("plan");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, sealed);
	tcase_add_test(tc, every_bit);
	tcase_add_test(tc, another_key);
	tcase_add_test(tc, fixed_form);
	tcase_add_test(tc, sane);
	tcase_add_test(tc, requests);
	tcase_add_test(tc, parts);
	tcase_add_test(tc, answers);
	tcase_add_test(tc, no_answers);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
