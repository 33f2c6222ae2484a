/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket's wire: one JSON object a line, both ways, over a Unix stream socket. The daemon's side of it is
 * fuse/ctl.h, which also says what the requests are; this is the framing, and the client that cli/ uses.
 *
 * A request is {"op": WORD, ...}. An answer is {"ok": true, ...} or {"ok": false, "errno": N, "error": LINE}. One
 * request has one answer, but for those that stream: their answers carry "more": true up to the last.
 *
 * Names are bytes, JSON strings are UTF-8: '%', control characters and what is not UTF-8 travel as %XX.
 *
 * Threads: a stream belongs to one thread at a time. The rest is pure.
 */
#ifndef NET_CTL_H
#define NET_CTL_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/errmsg.h"

#define CTL_PROTOCOL 1
#define CTL_REQUEST_MAX (64u * 1024)	   /* bytes of one request line */
#define CTL_ANSWER_MAX (16u * 1024 * 1024) /* bytes of one answer line */

struct ctl_stream;

/* Takes over fd. max_line: longer lines are -EMSGSIZE. NULL without memory; fd is closed then, too. */
struct ctl_stream *ctl_stream_new(int fd, size_t max_line);
/* Closes the socket. Takes NULL, returns NULL. */
struct ctl_stream *ctl_stream_free(struct ctl_stream *s);
int ctl_stream_fd(const struct ctl_stream *s);

/*
 * The next message, an object. deadline: on clock_ns(); 0: none. -ENODATA: the other side closed between two
 * messages; -ECONNRESET: in the middle of one; -EBADMSG: not a JSON object, or nested too deep; -EMSGSIZE, -ETIMEDOUT,
 * -ENOMEM.
 */
int ctl_recv(struct ctl_stream *s, uint64_t deadline, json_t **ret);
/* -EPIPE, -ETIMEDOUT, -ENOMEM. */
int ctl_send(struct ctl_stream *s, uint64_t deadline, const json_t *message);

/* e says what to do about it. */
int ctl_connect(const char *path, struct ctl_stream **ret, struct errmsg *e);
/*
 * Sends req (taken over; NULL is -ENOMEM) and waits for the first answer. An answer that is not ok is its errno with
 * the daemon's line in e.
 */
int ctl_call(struct ctl_stream *s, json_t *req, unsigned timeout_ms, json_t **ret, struct errmsg *e);
/* The next answer of a request that streams. */
int ctl_next(struct ctl_stream *s, unsigned timeout_ms, json_t **ret, struct errmsg *e);

/* bytes as a JSON string in the form above; NULL without memory. A reference of the caller's. */
json_t *ctl_name_to_json(const char *bytes);
/* Back into out: -EINVAL for a malformed escape or a NUL, -ENAMETOOLONG when it does not fit. */
int ctl_name_from_json(const char *text, char *out, size_t out_len);

#endif
