/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master was started again: the node goes on as the incarnation that it is, if it says what it has. What its
 * catalogue has of this node and the node has not is dropped there; what the node has and it does not know is dropped
 * here. Until the end of the inventory all that others ask of the master waits in the channel.
 *
 * A file whose standing is unclear at this moment is told as a loose one: a copy that the master has not confirmed yet,
 * of a version that is gone, of an incarnation that is over. It stays charged until the node says that it is unlinked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "store/impl.h"

#define PAGE_ITEMS 4096u

/* ---- puts ---------------------------------------------------------------------------------------------------- */

/* NULL with 0: it has nothing that the master knows of. Call with p->lock held. */
static int put_msg(const struct put *p, struct msg **ret)
{
	struct msg *m;
	size_t k = 0;

	*ret = NULL;
	if (!p->ticket)
		return 0;
	m = msg_new(MSG_PUT_RESUME);
	if (!m || msg_alloc_items(m, p->n_blocks) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	m->u.put.ticket = p->ticket;
	m->u.put.dir = p->dir;
	m->u.put.block_size = p->block_size;
	m->u.put.persist_to_ssd = p->persist;
	memcpy(m->u.put.name, p->name, strlen(p->name) + 1);
	for (size_t i = 0; i < p->n_blocks; i++)
		if (p->blocks[i].granted)
			m->items[k++] = (struct msg_item){
			    .block = (uint32_t)i, .alloc = p->blocks[i].alloc, .bytes = p->blocks[i].granted};
	m->n_items = k;
	*ret = m;
	return 0;
}

struct messages {
	struct msg **m;
	size_t n, cap;
};

static int messages_add(struct messages *l, struct msg *m)
{
	size_t cap = l->cap ? l->cap * 2 : 16;
	struct msg **more;

	if (l->n == l->cap) {
		more = realloc(l->m, cap * sizeof(struct msg *));
		if (!more)
			return -ENOMEM;
		l->m = more;
		l->cap = cap;
	}
	l->m[l->n++] = m;
	return 0;
}

static void messages_free(struct messages *l)
{
	for (size_t i = 0; i < l->n; i++)
		msg_free(l->m[i]);
	free(l->m);
}

/* What is on its way at this moment; nobody is asked with a lock held. */
static int collect_puts(struct node *n, struct messages *ret)
{
	struct list *pos, *tmp;
	int r = 0;

	pthread_mutex_lock(&n->overlay.lock);
	list_for_each(pos, tmp, &n->overlay.puts)
	{
		struct put *p = container_of(pos, struct put, all);
		struct msg *m;

		pthread_mutex_lock(&p->lock);
		if (r == 0)
			r = put_msg(p, &m);
		if (r == 0 && m) {
			r = messages_add(ret, m);
			if (r < 0)
				msg_free(m);
		}
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&n->overlay.lock);
	return r;
}

/* One that the master does not take back fails at its next request. */
static int resume_puts(struct node *n)
{
	struct messages l = {0};
	int r = collect_puts(n, &l);

	for (size_t i = 0; i < l.n && r != -ESHUTDOWN; i++) {
		uint64_t ticket = l.m[i]->u.put.ticket;
		int s = node_call_wait(n, l.m[i], NULL);

		l.m[i] = NULL;
		if (s == -ESHUTDOWN || s == -ESTALE)
			r = s;
		else if (s < 0)
			log_warn("a write that was on its way is lost: the master does not take ticket %llu back: %s",
				 (unsigned long long)ticket, strerror(-s));
	}
	messages_free(&l);
	return r;
}

/* ---- blocks -------------------------------------------------------------------------------------------------- */

struct stock {
	struct msg_item *items;
	size_t n, cap;
};

static int stock_add(struct stock *st, const struct msg_item *it)
{
	size_t cap = st->cap ? st->cap * 2 : 1024;
	struct msg_item *more;

	if (st->n == st->cap) {
		more = realloc(st->items, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		st->items = more;
		st->cap = cap;
	}
	st->items[st->n++] = *it;
	return 0;
}

/* Call with the shard locked. */
static int add_block(struct stock *st, const struct block *b)
{
	const uint32_t unclear = BLOCK_DROP | BLOCK_TEMP | BLOCK_OLD | BLOCK_ASKED;
	struct msg_item it = {.put_id = b->put_id, .block = b->index, .bytes = b->len};
	bool memory = b->flags & BLOCK_MEM;
	int r = 0;

	if (memory && (b->flags & unclear)) {
		it.alloc = b->alloc;
		it.flags = MSG_ITEM_LOOSE;
		r = stock_add(st, &it);
		memory = false;
	}
	it.alloc = memory ? b->alloc : 0;
	it.flags = memory ? MSG_ITEM_MEM : 0;
	if ((b->flags & BLOCK_SSD) && !(b->flags & BLOCK_DROP))
		it.flags |= MSG_ITEM_SSD;
	return r < 0 || !it.flags ? r : stock_add(st, &it);
}

static int take_stock(struct node *n, struct stock *ret)
{
	int r = 0;

	for (size_t i = 0; i < BLOCK_SHARDS && r == 0; i++) {
		struct block_shard *s = &n->shards[i];

		pthread_mutex_lock(&s->lock);
		for (size_t k = 0; k < s->n_slots; k++)
			for (const struct block *b = s->slots[k]; b && r == 0; b = b->next)
				r = add_block(ret, b);
		pthread_mutex_unlock(&s->lock);
	}
	return r;
}

/* The master's word on one page. */
static void take_answer(struct node *n, const struct msg_item *said, const struct msg *answer)
{
	for (size_t i = 0; i < answer->n_items; i++) {
		if (answer->items[i].status == 0 || (said[i].flags & MSG_ITEM_LOOSE))
			continue;
		block_forget(n, said[i].put_id, said[i].block);
	}
}

static int send_page(struct node *n, const struct stock *st, size_t from, size_t count, uint32_t page)
{
	struct msg *m = msg_new(MSG_INVENTORY), *answer = NULL;
	int r = m ? msg_alloc_items(m, count) : -ENOMEM;

	if (r < 0) {
		msg_free(m);
		return r;
	}
	if (count)
		memcpy(m->items, st->items + from, count * sizeof(*m->items));
	m->u.inventory.page = page;
	m->u.inventory.end = from + count == st->n;
	r = node_call_wait(n, m, &answer);
	if (r == 0 && answer->n_items != count)
		r = -EPROTO;
	if (r == 0)
		take_answer(n, st->items + from, answer);
	msg_free(answer);
	return r;
}

static int send_stock(struct node *n)
{
	struct stock st = {0};
	int r = take_stock(n, &st);
	uint32_t page = 0;
	size_t at = 0;

	do {
		size_t count = st.n - at < PAGE_ITEMS ? st.n - at : PAGE_ITEMS;

		if (r == 0)
			r = send_page(n, &st, at, count, page++);
		at += count;
	} while (r == 0 && at < st.n);
	free(st.items);
	return r;
}

int resume_stock(struct node *n)
{
	int r;

	/* Nothing of what was leased by the master before is known to this one. */
	names_forget_all(n);
	r = resume_puts(n);
	return r ? r : send_stock(n);
}
