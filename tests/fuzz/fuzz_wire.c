/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what comes over a connection. What is understood can be sent again and is the same; a request goes to a
 * master, which keeps its books right whatever is asked of it, and whose answers and notices can all be sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/core.h"
#include "net/wire.h"
#include "tests/fuzz/fuzz.h"

#define NODE 1u
#define NOW 1000000000ull

static struct core *core; /* from the input's first request on */
static struct core_out out;
static uint64_t tag;

static void must(bool ok)
{
	if (!ok)
		abort();
}

static int decode_all(const uint8_t *data, size_t len, struct wire_reader *r, void (*fn)(struct wire_msg *w))
{
	struct wire_msg w;
	size_t n;
	int err = 0;

	while (!err && len) {
		err = wire_frame(data, len, &n);
		if (!err && n > len)
			err = -EAGAIN;
		if (err < 0)
			break;
		err = wire_decode(r, data + WIRE_LENGTH_BYTES, n - WIRE_LENGTH_BYTES, &w);
		if (err == 1) {
			fn(&w);
			err = 0;
		}
		data += n;
		len -= n;
	}
	return err;
}

static void drop(struct wire_msg *w)
{
	msg_free(w->m);
}

/* What the master says, and commits. */
static void listen(void)
{
	for (size_t k = 0; k < out.n_msgs; k++) {
		struct msg *m = out.msgs[k].msg;
		struct wire_msg w = {.kind = m->req_id ? WIRE_ANSWER : WIRE_NOTICE, .m = m};
		struct wire_reader r = {0};
		struct buf b = {0};

		must(!wire_encode(&w, &b));
		must(!decode_all(b.data, b.len, &r, drop));
		wire_reader_fini(&r);
		buf_free(&b);
		if (m->type == MSG_JOIN && !m->status)
			tag = m->u.join.tomb_tag;
	}
	core_committed(core, out.writes.counter);
	core_out_clear(&out);
}

static void handle(struct msg *m)
{
	m->node = NODE;
	m->tomb_tag = tag;
	if (core_handle(core, m, NOW, NOW, &out) < 0)
		msg_free(m);
	listen();
}

static void begin_master(void)
{
	const struct core_config cfg = {.auto_namespace = true, .recent_answers = 8, .id_block = 1024};
	struct msg *m = msg_new(MSG_JOIN);

	core = core_new(&cfg);
	must(core && m && !core_load_end(core, &out));
	listen();
	m->req_id = 1;
	m->u.join.capacity = 1u << 30;
	strcpy(m->u.join.instance_key, "fuzz");
	handle(m);
}

static void check_again(const struct wire_msg *w)
{
	struct wire_reader r = {0};
	struct buf b = {0}, again = {0};
	struct wire_msg back;
	size_t at = 0, n;
	int err = 0;

	must(!wire_encode(w, &b));
	for (; !err && at < b.len; at += n) {
		must(!wire_frame(b.data + at, b.len - at, &n));
		err = wire_decode(&r, b.data + at + WIRE_LENGTH_BYTES, n - WIRE_LENGTH_BYTES, &back);
	}
	must(err == 1 && at == b.len);
	must(!wire_encode(&back, &again));
	must(again.len == b.len && !memcmp(again.data, b.data, b.len));
	msg_free(back.m);
	buf_free(&again);
	buf_free(&b);
}

static void take(struct wire_msg *w)
{
	check_again(w);
	if (w->kind != WIRE_REQUEST) {
		msg_free(w->m);
		return;
	}
	if (!core)
		begin_master();
	handle(w->m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_reader r = {0};
	char why[200];

	decode_all(data, size, &r, take);
	wire_reader_fini(&r);
	must(!core || !core_check(core, why, sizeof(why)));
	core = core_free(core);
	return 0;
}
