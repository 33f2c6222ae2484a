/* SPDX-License-Identifier: Apache-2.0 */
#include "master/recent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/members.h"

struct kept {
	struct msg *answer;
	uint64_t req_id;
	uint32_t next;
};

struct recent {
	struct kept *ring; /* from 1 to cap */
	struct table by_req;
	uint32_t cap, at; /* at: the place written last */
};

static uint32_t kept_hash(const void *arg, uint32_t h)
{
	const struct recent *r = arg;

	return (uint32_t)hash_u64(r->ring[h].req_id);
}

static uint32_t *kept_link(const void *arg, uint32_t h)
{
	const struct recent *r = arg;

	return &r->ring[h].next;
}

static const struct table_ops kept_ops = {.hash = kept_hash, .link = kept_link};

static struct recent *recent_new(uint32_t cap)
{
	struct recent *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->cap = cap;
	r->ring = calloc((size_t)cap + 1, sizeof(*r->ring));
	if (!r->ring) {
		free(r);
		return NULL;
	}
	table_init(&r->by_req, &kept_ops, r);
	return r;
}

struct recent *recent_free(struct recent *r)
{
	if (!r)
		return NULL;
	for (uint32_t h = 1; h <= r->cap; h++)
		msg_free(r->ring[h].answer);
	free(r->ring);
	table_fini(&r->by_req);
	free(r);
	return NULL;
}

/* An array of n elements, or NULL for none; false without memory. */
static bool copy_part(void **ret, const void *src, size_t n, size_t size)
{
	*ret = NULL;
	if (!src)
		return true;
	*ret = malloc(n ? n * size : 1);
	if (!*ret)
		return false;
	memcpy(*ret, src, n * size);
	return true;
}

/* Overwrites dst, whose own parts the caller has dealt with. */
static int copy_msg(struct msg *dst, const struct msg *src)
{
	void *items, *blob;

	if (!copy_part(&items, src->items, src->n_items, sizeof(*src->items)))
		return -ENOMEM;
	if (!copy_part(&blob, src->blob, src->blob_len, 1)) {
		free(items);
		return -ENOMEM;
	}
	*dst = *src;
	dst->items = items;
	dst->blob = blob;
	/* Requests that are remembered have answers without these. */
	dst->ents = NULL;
	dst->namespaces = NULL;
	dst->n_ents = dst->n_namespaces = 0;
	return 0;
}

static uint32_t find(const struct recent *r, uint64_t req_id)
{
	uint32_t h = table_head(&r->by_req, (uint32_t)hash_u64(req_id));

	while (h && r->ring[h].req_id != req_id)
		h = r->ring[h].next;
	return h;
}

void recent_remember(struct core *c, const struct msg *answer)
{
	struct member *mem = member_live(c, answer->node);
	struct recent *r;
	struct kept *k;
	struct msg *copy;

	if (!c->cfg.recent_answers || !mem || msg_only_reads(answer->type) || answer->status == -ESTALE)
		return;
	if (!mem->recent)
		mem->recent = recent_new(c->cfg.recent_answers);
	r = mem->recent;
	if (!r || table_room(&r->by_req) < 0 || find(r, answer->req_id))
		return;
	copy = msg_new(answer->type);
	if (!copy || copy_msg(copy, answer) < 0) {
		msg_free(copy);
		return;
	}
	r->at = r->at % r->cap + 1;
	k = &r->ring[r->at];
	if (k->answer) {
		table_remove(&r->by_req, r->at);
		msg_free(k->answer);
	}
	*k = (struct kept){.answer = copy, .req_id = answer->req_id};
	table_insert(&r->by_req, r->at);
}

/* NULL: none. */
static const struct msg *answer_of(const struct core *c, const struct msg *in)
{
	const struct member *mem = member_live(c, in->node);
	const struct msg *answer;
	uint32_t h;

	if (!mem || !mem->recent || msg_only_reads(in->type))
		return NULL;
	h = find(mem->recent, in->req_id);
	answer = h ? mem->recent->ring[h].answer : NULL;
	return answer && answer->type == in->type ? answer : NULL;
}

bool recent_has(const struct core *c, const struct msg *in)
{
	return answer_of(c, in) != NULL;
}

int recent_answer(struct core *c, struct msg *in)
{
	const struct msg *answer = answer_of(c, in);
	struct msg had = *in;

	if (!answer)
		return 0;
	if (copy_msg(in, answer) < 0)
		return -ENOMEM;
	free(had.items);
	free(had.blob);
	free(had.ents);
	free(had.namespaces);
	return 1;
}
