/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said over a data connection, once the handshake (net/auth.h) is over:
 *
 *	request: head, plan (net/plan.h)
 *	answer:  BEGIN, then as many PIECEs as it takes, each with its bytes behind it, then END
 *
 * An answer that is an error from the start is a BEGIN alone. One that fails later ends early, with an END that says
 * so; where that cannot be said any more, with the connection. Everything but the payload has a fixed length; numbers
 * are little endian. One request after the other; each part names the get that it belongs to.
 *
 * Pure functions over the caller's memory; any thread.
 */
#ifndef NET_DATA_WIRE_H
#define NET_DATA_WIRE_H

#include <stdint.h>

#include "net/plan.h"

#define DATA_VERSION 1u
#define DATA_HEAD_BYTES 8u
#define DATA_REQUEST_BYTES (DATA_HEAD_BYTES + PLAN_BYTES)
#define DATA_PART_BYTES (DATA_HEAD_BYTES + 20u)

enum data_kind { DATA_NONE, DATA_REQUEST, DATA_BEGIN, DATA_PIECE, DATA_END, DATA_KINDS };

struct data_part {
	enum data_kind kind; /* BEGIN, PIECE or END */
	int status;	     /* 0 or a negative errno; PIECE: 0 */
	uint64_t get_id;
	uint64_t value; /* where status is 0. BEGIN: bytes in all; PIECE: bytes behind it; END: XXH3 of all of them */
};

void data_encode_request(const struct plan *p, uint8_t ret[DATA_REQUEST_BYTES]);
/* 0; -EPROTO: another version's; -EBADMSG: no request. The plan is not checked. */
int data_decode_request(const uint8_t bytes[DATA_REQUEST_BYTES], struct plan *ret);

/* A status that no errno is travels as -EIO. */
void data_encode_part(const struct data_part *d, uint8_t ret[DATA_PART_BYTES]);
/* 0; -EPROTO; -EBADMSG: no part of an answer. */
int data_decode_part(const uint8_t bytes[DATA_PART_BYTES], struct data_part *ret);

/* An answer as it comes. Its fields are the callee's until it is over. */
struct data_answer {
	uint64_t get_id, len;
	uint64_t got; /* bytes of payload that have come, or are behind the last part */
	enum data_kind last;
	int status; /* when it is over: what the source says; 0: all len bytes are there */
	uint64_t sum;
};

void data_answer_begin(struct data_answer *a, const struct plan *p);
/*
 * Takes one part. 1: it is over, see status. 0: *ret bytes of payload come next, perhaps none, then another part; they
 * are within the plan's len. -EPROTO, -EBADMSG: that is no answer to this request, and what follows is no use.
 */
int data_answer_take(struct data_answer *a, const uint8_t bytes[DATA_PART_BYTES], uint64_t *ret);

#endif
