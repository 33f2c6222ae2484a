/* SPDX-License-Identifier: Apache-2.0 */
#include "master/recent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/members.h"

struct kept {
	struct list fifo; /* in recent.to_give or .given, oldest first */
	struct msg *answer;
	uint64_t req_id;
	uint64_t said; /* core.said with it, if it waits for the catalogue; else 0 */
	uint32_t self, next;
};

struct recent {
	struct pool kept;
	struct table by_req;
	struct list to_give, given;
	uint32_t n_given;
};

static struct kept *kept_get(const struct recent *r, uint32_t h)
{
	return pool_get(&r->kept, h);
}

static uint32_t kept_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(kept_get(arg, h)->req_id);
}

static uint32_t *kept_link(const void *arg, uint32_t h)
{
	return &kept_get(arg, h)->next;
}

static const struct table_ops kept_ops = {.hash = kept_hash, .link = kept_link};

static struct recent *recent_new(void)
{
	struct recent *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	pool_init(&r->kept, sizeof(struct kept), 6);
	table_init(&r->by_req, &kept_ops, r);
	list_init(&r->to_give);
	list_init(&r->given);
	return r;
}

struct recent *recent_free(struct recent *r)
{
	if (!r)
		return NULL;
	for (uint32_t h = 1; h < r->kept.top; h++)
		msg_free(kept_get(r, h)->answer);
	table_fini(&r->by_req);
	pool_fini(&r->kept);
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

	while (h && kept_get(r, h)->req_id != req_id)
		h = kept_get(r, h)->next;
	return h;
}

static void forget(struct recent *r, struct kept *k)
{
	list_del(&k->fifo);
	table_remove(&r->by_req, k->self);
	msg_free(k->answer);
	pool_free(&r->kept, k->self);
	r->n_given--;
}

/* Nobody asks again for the oldest of those that have been given; one that has not been must stay. */
static void make_room(const struct core *c, struct recent *r)
{
	while (!list_empty(&r->to_give)) {
		struct kept *k = list_first(&r->to_give, struct kept, fifo);

		if (k->said > c->given)
			break;
		list_del(&k->fifo);
		list_add_tail(&k->fifo, &r->given);
		r->n_given++;
	}
	while (r->n_given >= c->cfg.recent_answers)
		forget(r, list_first(&r->given, struct kept, fifo));
}

/* NULL: no memory. */
static struct kept *kept_new(struct recent *r, uint64_t req_id)
{
	uint32_t h = table_room(&r->by_req) < 0 ? 0 : pool_alloc(&r->kept);
	struct kept *k = h ? kept_get(r, h) : NULL;

	if (!k)
		return NULL;
	k->self = h;
	k->req_id = req_id;
	list_init(&k->fifo);
	table_insert(&r->by_req, h);
	return k;
}

void recent_remember(struct core *c, const struct msg *answer, uint64_t req_id, bool after_commit)
{
	struct member *mem = member_joined(c, answer->node);
	struct recent *r;
	struct kept *k;
	struct msg *copy;

	if (!c->cfg.recent_answers || !mem || msg_only_reads(answer->type) || answer->status == -ESTALE ||
	    answer->status == -EUNATCH)
		return;
	if (!mem->recent)
		mem->recent = recent_new();
	r = mem->recent;
	if (!r || find(r, req_id))
		return;
	make_room(c, r);
	copy = msg_new(answer->type);
	k = copy && !copy_msg(copy, answer) ? kept_new(r, req_id) : NULL;
	if (!k) {
		msg_free(copy);
		return;
	}
	k->answer = copy;
	k->said = after_commit ? c->said + 1 : 0;
	list_add_tail(&k->fifo, after_commit ? &r->to_give : &r->given);
	r->n_given += !after_commit;
}

/* NULL: none. */
static const struct msg *answer_of(const struct core *c, const struct msg *in)
{
	const struct member *mem = member_joined(c, in->node);
	const struct msg *answer;
	uint32_t h;

	if (!mem || !mem->recent || msg_only_reads(in->type))
		return NULL;
	h = find(mem->recent, in->req_id);
	answer = h ? kept_get(mem->recent, h)->answer : NULL;
	return answer && answer->type == in->type ? answer : NULL;
}

bool recent_has(const struct core *c, const struct msg *in)
{
	return answer_of(c, in) != NULL;
}

int recent_become(struct msg *m, const struct msg *answer)
{
	struct msg had = *m;

	if (copy_msg(m, answer) < 0)
		return -ENOMEM;
	free(had.items);
	free(had.blob);
	free(had.ents);
	free(had.namespaces);
	return 0;
}

int recent_answer(struct core *c, struct msg *in)
{
	const struct msg *answer = answer_of(c, in);

	if (!answer)
		return 0;
	return recent_become(in, answer) < 0 ? -ENOMEM : 1;
}
