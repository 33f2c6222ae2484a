/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages (net/msg.h) as bytes. A connection carries frames: a length of four bytes, little endian, and so many bytes,
 * at most WIRE_FRAME_MAX, that are one Frame of net/wire.proto. A message is one frame; one whose lists are longer than
 * a frame takes (the blocks of a large value, many namespaces) is several, one right behind the other, each with the
 * next elements.
 *
 * Of each message exactly those parts travel that net/msg.h names for its type and direction; where an answer is an
 * error, these are its status and, for LOOKUP with -ENOENT and for -ENOSPC, its body. A frame that has others, a number
 * that is none of its enum, a name with a NUL or one that is too long, a list that is too long: all are refused, and
 * nothing of them gets into a message. So what wire_decode() gives is well-formed, as far as that can be told without
 * knowing the cluster. It is not believed further: struct msg's node is the channel's, not the sender's word.
 *
 * Pure functions over the caller's memory; a reader is one connection's, and one thread's at a time.
 */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "net/buf.h"
#include "net/msg.h"

#define WIRE_VERSION 1u
#define WIRE_LENGTH_BYTES 4u
#define WIRE_FRAME_MAX (1u << 20) /* bytes of a frame, its length not counted */

enum wire_kind { WIRE_NONE, WIRE_REQUEST, WIRE_ANSWER, WIRE_NOTICE, WIRE_KINDS };

struct wire_msg {
	enum wire_kind kind;
	uint64_t timeout_us; /* requests: the sender waits for so long, from now; 0: it does not say */
	struct msg *m;
};

/*
 * Appends the frames of w->m, which stays the caller's. -EINVAL: the other side would refuse it; -E2BIG: a list is
 * longer than any message's may be; -ENOMEM. Nothing is appended then.
 */
int wire_encode(const struct wire_msg *w, struct buf *out);

/*
 * How long the frame is that starts at bytes, from its length on: 0 with *ret, the bytes of the length included;
 * -EAGAIN with fewer than WIRE_LENGTH_BYTES; -EMSGSIZE for one that is too long, or empty.
 */
int wire_frame(const uint8_t *bytes, size_t len, size_t *ret);

/* Puts the frames of a connection together again. Zeroed memory is a new one. */
struct wire_reader {
	struct wire_msg got; /* what has come of a message whose last frame has not; m is NULL between two */
	uint32_t part;	     /* of the frame that comes next */
	size_t cap;	     /* elements that the list of got.m has room for */
};

void wire_reader_fini(struct wire_reader *r);

/*
 * Takes one frame, without its length. 1: it was a message's last, and *ret is that, its m the caller's. 0: there is
 * more to come. -EBADMSG: malformed; -EPROTO: another version's; -ENOMEM. After an error the reader can only be ended.
 */
int wire_decode(struct wire_reader *r, const uint8_t *frame, size_t len, struct wire_msg *ret);

#endif
