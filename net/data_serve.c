/* SPDX-License-Identifier: Apache-2.0 */
#include "net/data_serve.h"

#include <errno.h>

#include "common/hash.h"
#include "net/data_wire.h"

#define HASH_BYTES (1u << 20) /* sent and hashed in turn: the kernel has enough to go on with meanwhile */

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

static bool has_expired(const struct data_desk *d, const struct plan *p)
{
	uint64_t now = d->cfg.master_ns(d->cfg.arg);

	return now && now >= p->expires_ns;
}

static int check(struct data_desk *d, const struct plan *p)
{
	uint64_t tag = atomic_load(&d->tag);

	/* Before that nothing in it means anything. */
	if (plan_check(&d->key, p) < 0) {
		count(&d->stats.denied);
		return -EACCES;
	}
	if (!tag || p->source_tag != tag || has_expired(d, p)) {
		count(&d->stats.stale);
		return -ESTALE;
	}
	return plan_is_sane(p) ? 0 : -EINVAL;
}

static int open_source(struct data_desk *d, const struct plan *p, struct data_source *ret)
{
	int r = check(d, p);

	if (r < 0)
		return r;
	*ret = (struct data_source){.fd = -1};
	r = d->cfg.open(d->cfg.arg, p, ret);
	if (r < 0)
		count(&d->stats.missing);
	return r;
}

/* ---- the answer ---------------------------------------------------------------------------------------------- */

static int send_part(struct sock *s, const struct data_part *part, bool more)
{
	uint8_t bytes[DATA_PART_BYTES];

	data_encode_part(part, bytes);
	return sock_write(s, bytes, sizeof(bytes), more);
}

static int send_piece_head(struct sock *s, const struct plan *p, uint64_t len)
{
	return send_part(s, &(struct data_part){.kind = DATA_PIECE, .get_id = p->get_id, .value = len}, true);
}

/* A piece of a file, and the sum as far as it. */
static int send_and_hash(struct sock *s, const struct data_source *src, uint64_t at, uint64_t len, XXH3_state_t *hash)
{
	int r = sock_sendfile(s, src->fd, src->off + at, len);

	if (!r)
		XXH3_64bits_update(hash, (const uint8_t *)src->buf + at, len);
	return r;
}

static int send_hashing(struct sock *s, const struct plan *p, struct data_source *src)
{
	XXH3_state_t hash = {0};
	int r = 0;

	XXH3_64bits_reset(&hash);
	for (uint64_t at = 0, n; !r && at < p->len; at += n) {
		n = p->len - at < HASH_BYTES ? p->len - at : HASH_BYTES;
		r = send_and_hash(s, src, at, n, &hash);
	}
	if (r < 0)
		return r;
	src->sum = XXH3_64bits_digest(&hash);
	src->has_sum = true;
	return 0;
}

static int send_file(struct sock *s, const struct plan *p, struct data_source *src)
{
	int r = send_piece_head(s, p, p->len);

	if (r < 0)
		return r;
	return src->has_sum ? sock_sendfile(s, src->fd, src->off, p->len) : send_hashing(s, p, src);
}

static int next_ready(struct data_source *src, uint64_t have, uint64_t len, uint64_t *ret)
{
	uint64_t ready = 0;
	int r = src->wait(src->arg, have, &ready, &src->sum);

	if (r)
		return r < 0 ? r : -EIO;
	if (ready <= have || ready > len)
		return -EIO;
	*ret = ready;
	return 0;
}

/* *ret_status: how the source has ended. */
static int send_stream(struct sock *s, const struct plan *p, struct data_source *src, int *ret_status)
{
	uint64_t have = 0, ready;
	int r = 0;

	while (!r && have < p->len) {
		*ret_status = next_ready(src, have, p->len, &ready);
		if (*ret_status < 0)
			return 0;
		r = send_piece_head(s, p, ready - have);
		if (!r)
			r = sock_write(s, (const uint8_t *)src->buf + have, ready - have, false);
		have = ready;
	}
	return r;
}

static int send_source(struct data_desk *d, struct sock *s, const struct plan *p, struct data_source *src,
		       int *ret_status)
{
	struct data_part begin = {.kind = DATA_BEGIN, .get_id = p->get_id, .value = p->len};
	struct data_part end = {.kind = DATA_END, .get_id = p->get_id};
	int r;

	s->silence_ms = d->cfg.silence_ms;
	s->deadline_ns = sock_deadline(d->cfg.silence_ms, p->len, d->cfg.min_rate);
	/* A stream may have to be waited for: that it is there is known before. */
	r = send_part(s, &begin, !src->wait);
	if (!r)
		r = src->wait ? send_stream(s, p, src, ret_status) : send_file(s, p, src);
	if (r < 0)
		return r;
	end.status = *ret_status;
	end.value = src->sum;
	return send_part(s, &end, false);
}

static void count_end(struct data_desk *d, const struct plan *p, int err)
{
	switch (err) {
	case 0:
		count(&d->stats.pulls);
		atomic_fetch_add_explicit(&d->stats.bytes, p->len, memory_order_relaxed);
		break;
	case -ETIMEDOUT:
		count(&d->stats.slow);
		break;
	case -ECONNRESET:
		count(&d->stats.broken);
		break;
	default:
		count(&d->stats.failed);
	}
}

int data_serve(struct data_desk *d, struct sock *s, const struct plan *p)
{
	struct data_source src;
	int status = open_source(d, p, &src), r;

	if (status) {
		s->silence_ms = d->cfg.silence_ms;
		s->deadline_ns = sock_deadline(d->cfg.silence_ms, 0, 1);
		return send_part(s, &(struct data_part){.kind = DATA_BEGIN, .status = status, .get_id = p->get_id},
				 false);
	}
	r = send_source(d, s, p, &src, &status);
	d->cfg.close(d->cfg.arg, &src, r < 0 ? r : status);
	if (status < 0)
		count(&d->stats.failed);
	else
		count_end(d, p, r);
	return r;
}
