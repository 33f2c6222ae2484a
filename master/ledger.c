/* SPDX-License-Identifier: Apache-2.0 */
#include "master/ledger.h"

#include <errno.h>

#include "common/hash.h"
#include "master/members.h"

int ledger_reserve(struct member *mem, uint64_t bytes)
{
	if (bytes > ledger_free(mem))
		return -ENOSPC;
	mem->reserved += bytes;
	return 0;
}

void ledger_resume(struct member *mem, uint64_t bytes)
{
	mem->reserved += bytes;
}

void ledger_unreserve(struct member *mem, uint64_t bytes)
{
	mem->reserved -= bytes;
}

void ledger_use(struct member *mem, uint64_t bytes)
{
	mem->reserved -= bytes;
	mem->used += bytes;
}

void ledger_found(struct member *mem, uint64_t bytes)
{
	mem->used += bytes;
}

void ledger_unuse(struct member *mem, uint64_t bytes)
{
	mem->used -= bytes;
}

static struct loose *loose_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->looses, h);
}

static uint32_t by_alloc_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(loose_get(arg, h)->alloc);
}

static uint32_t *by_alloc_link(const void *arg, uint32_t h)
{
	return &loose_get(arg, h)->alloc_next;
}

static uint32_t by_put_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(loose_get(arg, h)->put_id);
}

static uint32_t *by_put_link(const void *arg, uint32_t h)
{
	return &loose_get(arg, h)->put_next;
}

static const struct table_ops alloc_ops = {.hash = by_alloc_hash, .link = by_alloc_link};
static const struct table_ops put_ops = {.hash = by_put_hash, .link = by_put_link};

int looses_init(struct core *c)
{
	pool_init(&c->looses, sizeof(struct loose), 10);
	table_init(&c->loose_by_alloc, &alloc_ops, c);
	table_init(&c->loose_by_put, &put_ops, c);
	return 0;
}

void looses_fini(struct core *c)
{
	table_fini(&c->loose_by_alloc);
	table_fini(&c->loose_by_put);
	pool_fini(&c->looses);
}

uint32_t loose_room(struct core *c)
{
	if (table_room(&c->loose_by_alloc) < 0 || table_room(&c->loose_by_put) < 0)
		return 0;
	return pool_alloc(&c->looses);
}

void loose_unroom(struct core *c, uint32_t h)
{
	pool_free(&c->looses, h);
}

void loose_add(struct core *c, uint32_t h, uint32_t node, uint64_t alloc, uint64_t bytes, uint64_t put_id)
{
	struct loose *l = loose_get(c, h);

	l->alloc = alloc;
	l->bytes = bytes;
	l->put_id = put_id;
	l->node = (uint16_t)node;
	table_insert(&c->loose_by_alloc, h);
	table_insert(&c->loose_by_put, h);
}

static void loose_end(struct core *c, uint32_t h)
{
	struct loose *l = loose_get(c, h);

	ledger_unuse(c->members[l->node], l->bytes);
	table_remove(&c->loose_by_alloc, h);
	table_remove(&c->loose_by_put, h);
	pool_free(&c->looses, h);
}

void loose_freed(struct core *c, uint32_t node, uint64_t alloc)
{
	uint32_t h = table_head(&c->loose_by_alloc, (uint32_t)hash_u64(alloc));

	/* What a node says of its own allocations may be another's number. */
	while (h && (loose_get(c, h)->alloc != alloc || loose_get(c, h)->node != node))
		h = loose_get(c, h)->alloc_next;
	if (h)
		loose_end(c, h);
}

void loose_freed_version(struct core *c, uint32_t node, uint64_t put_id)
{
	uint32_t h = table_head(&c->loose_by_put, (uint32_t)hash_u64(put_id)), next;

	for (; h; h = next) {
		const struct loose *l = loose_get(c, h);

		next = l->put_next;
		if (l->node == node && l->put_id == put_id)
			loose_end(c, h);
	}
}

void looses_gone(struct core *c, uint32_t node)
{
	for (uint32_t h = 1; h < c->looses.top; h++)
		/* A free element has no node. */
		if (loose_get(c, h)->node == node)
			loose_end(c, h);
}
