/* SPDX-License-Identifier: Apache-2.0 */
#include "master/puts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/inode.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/placement.h"
#include "master/space.h"
#include "master/step.h"
#include "master/version.h"

static uint32_t by_id_hash(const void *arg, uint32_t h)
{
	return (uint32_t)hash_u64(ticket_get(arg, h)->id);
}

static uint32_t *by_id_link(const void *arg, uint32_t h)
{
	return &ticket_get(arg, h)->id_next;
}

static uint32_t by_name_hash(const void *arg, uint32_t h)
{
	return ticket_get(arg, h)->res_hash;
}

static uint32_t *by_name_link(const void *arg, uint32_t h)
{
	return &ticket_get(arg, h)->res_next;
}

static const struct table_ops id_ops = {.hash = by_id_hash, .link = by_id_link};
static const struct table_ops name_ops = {.hash = by_name_hash, .link = by_name_link};

int puts_init(struct core *c)
{
	pool_init(&c->tickets, sizeof(struct ticket), 8);
	table_init(&c->tickets_by_id, &id_ops, c);
	table_init(&c->tickets_by_name, &name_ops, c);
	list_init(&c->tickets_fifo);
	return 0;
}

void puts_fini(struct core *c)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &c->tickets_fifo)
	{
		struct ticket *t = container_of(pos, struct ticket, fifo);

		free(t->grants);
		free(t->res_name);
	}
	table_fini(&c->tickets_by_id);
	table_fini(&c->tickets_by_name);
	pool_fini(&c->tickets);
}

static uint32_t reserving(const struct core *c, const struct name_arg *n)
{
	uint32_t h = table_head(&c->tickets_by_name, n->hash);
	uint64_t dir_id = inode_get(c, n->dir)->id;

	while (h) {
		const struct ticket *t = ticket_get(c, h);

		if (t->res_hash == n->hash && t->res_dir == dir_id && t->res_len == n->len &&
		    !memcmp(t->res_name, n->name, n->len))
			return h;
		h = t->res_next;
	}
	return 0;
}

struct ticket *ticket_reserving(const struct core *c, const struct name_arg *n)
{
	uint32_t h = reserving(c, n);

	return h ? ticket_get(c, h) : NULL;
}

static void unreserve_name(struct core *c, uint32_t h)
{
	struct ticket *t = ticket_get(c, h);

	if (!t->res_name)
		return;
	table_remove(&c->tickets_by_name, h);
	free(t->res_name);
	t->res_name = NULL;
}

int ticket_reserve(struct core *c, uint32_t h, const struct name_arg *n)
{
	struct ticket *t = ticket_get(c, h);
	char *copy;

	if (table_room(&c->tickets_by_name) < 0)
		return -ENOMEM;
	copy = malloc(n->len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, n->name, n->len);
	unreserve_name(c, h);
	t->res_name = copy;
	t->res_len = (uint8_t)n->len;
	t->res_dir = inode_get(c, n->dir)->id;
	t->res_hash = n->hash;
	table_insert(&c->tickets_by_name, h);
	return 0;
}

uint32_t ticket_find(const struct core *c, uint64_t id)
{
	uint32_t h = table_head(&c->tickets_by_id, (uint32_t)hash_u64(id));

	while (h && ticket_get(c, h)->id != id)
		h = ticket_get(c, h)->id_next;
	return h;
}

int ticket_of(const struct core *c, const struct msg *m, uint32_t *ret)
{
	uint32_t h = ticket_find(c, m->u.put.ticket);

	if (!h || ticket_get(c, h)->node != m->node)
		return -ESTALE;
	*ret = h;
	return 0;
}

/* The index of the first grant that is not before the block. */
static uint32_t grant_index(const struct ticket *t, uint32_t block)
{
	uint32_t lo = 0, hi = t->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (t->grants[mid].block < block)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct grant *ticket_grant(const struct ticket *t, uint32_t block)
{
	uint32_t k = grant_index(t, block);

	return k < t->n && t->grants[k].block == block ? &t->grants[k] : NULL;
}

uint64_t ticket_granted(const struct ticket *t)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < t->n; k++)
		sum += t->grants[k].bytes;
	return sum;
}

static int grant_room(struct ticket *t)
{
	uint32_t cap = t->cap ? t->cap * 2 : 1;
	struct grant *grants;

	if (t->n < t->cap)
		return 0;
	grants = realloc(t->grants, cap * sizeof(*grants));
	if (!grants)
		return -ENOMEM;
	t->grants = grants;
	t->cap = cap;
	return 0;
}

/* After grant_room(). */
static struct grant *grant_add(struct ticket *t, uint32_t block, uint64_t alloc)
{
	uint32_t k = grant_index(t, block);

	memmove(&t->grants[k + 1], &t->grants[k], (t->n - k) * sizeof(*t->grants));
	t->grants[k] = (struct grant){.alloc = alloc, .block = block};
	t->n++;
	return &t->grants[k];
}

int ticket_take_grant(struct ticket *t, const struct msg_item *it)
{
	if (grant_room(t) < 0)
		return -ENOMEM;
	grant_add(t, it->block, it->alloc)->bytes = it->bytes;
	return 0;
}

static void grant_remove(struct ticket *t, struct grant *g)
{
	uint32_t k = (uint32_t)(g - t->grants);

	t->n--;
	memmove(g, g + 1, (t->n - k) * sizeof(*g));
}

/* The list stays ordered by it, so that the deadline looks at its head only. */
static void sign_of_life(struct core *c, struct ticket *t)
{
	t->sign_ns = c->now_ns;
	list_del(&t->fifo);
	list_add_tail(&t->fifo, &c->tickets_fifo);
}

void ticket_end(struct core *c, uint32_t h)
{
	struct ticket *t = ticket_get(c, h);

	unreserve_name(c, h);
	list_del(&t->fifo);
	table_remove(&c->tickets_by_id, h);
	free(t->grants);
	pool_free(&c->tickets, h);
}

static void ticket_revoke(struct core *c, uint32_t h)
{
	struct ticket *t = ticket_get(c, h);

	ledger_unreserve(c->members[t->node], ticket_granted(t));
	ticket_end(c, h);
}

/* The list gives pointers, the pool frees by handle. */
static uint32_t ticket_handle(const struct core *c, const struct ticket *t)
{
	uint32_t h = table_head(&c->tickets_by_id, (uint32_t)hash_u64(t->id));

	while (ticket_get(c, h) != t)
		h = ticket_get(c, h)->id_next;
	return h;
}

void tickets_gone(struct core *c, uint32_t node)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &c->tickets_fifo)
	{
		struct ticket *t = container_of(pos, struct ticket, fifo);

		if (t->node == node)
			ticket_revoke(c, ticket_handle(c, t));
	}
}

uint64_t tickets_tick(struct core *c)
{
	while (!list_empty(&c->tickets_fifo)) {
		struct ticket *t = list_first(&c->tickets_fifo, struct ticket, fifo);
		uint64_t age = c->now_ns - t->sign_ns;

		if (age < c->cfg.put_deadline_ns)
			return c->cfg.put_deadline_ns - age;
		ticket_revoke(c, ticket_handle(c, t));
	}
	return UINT64_MAX;
}

static int nospace(struct msg *m, const struct member *mem)
{
	m->u.put.total = ledger_total(mem);
	m->u.put.free = ledger_free(mem);
	return -ENOSPC;
}

int ticket_new(struct core *c, uint64_t id, uint32_t node, uint32_t *ret)
{
	struct ticket *t;
	uint32_t h;

	if (table_room(&c->tickets_by_id) < 0)
		return -ENOMEM;
	h = pool_alloc(&c->tickets);
	if (!h)
		return -ENOMEM;
	t = ticket_get(c, h);
	list_init(&t->fifo);
	if (grant_room(t) < 0) {
		pool_free(&c->tickets, h);
		return -ENOMEM;
	}
	t->id = id;
	t->node = (uint16_t)node;
	t->sign_ns = c->now_ns;
	list_add_tail(&t->fifo, &c->tickets_fifo);
	table_insert(&c->tickets_by_id, h);
	*ret = h;
	return 0;
}

/* O_EXCL: the name must stand for nothing and be nobody's. */
int put_name_free(struct core *c, const struct msg *m, struct name_arg *ret)
{
	int r = name_arg(c, m->u.put.dir, m->u.put.name, ret);

	if (r < 0)
		return r;
	return version_find(c, ret->dir, ret->name, ret->len, ret->hash) || ticket_reserving(c, ret) ? -EEXIST : 0;
}

static int start_check(struct core *c, const struct msg *m, struct space **ret_space, struct name_arg *ret_name)
{
	uint32_t dir;
	int r = inode_find_dir(c, m->u.put.dir, &dir);

	if (r < 0)
		return r;
	*ret_space = space_find(c, inode_get(c, dir)->ns);
	if (!*ret_space)
		return -EPERM;
	return m->u.put.flags & MSG_PUT_EXCL ? put_name_free(c, m, ret_name) : 0;
}

/* What a guess is granted for block 0: at least a page, at most the block; the rest comes with PUT_EXTEND. */
static uint64_t first_grant(uint64_t guess, uint64_t block)
{
	return pages_of(guess > block ? block : guess ? guess : 1);
}

/* After the room was checked; the ticket is complete but for its grant. */
static int make_ticket(struct core *c, const struct msg *m, const struct space *s, const struct name_arg *name,
		       uint8_t block_shift, uint32_t *ret)
{
	struct ticket *t;
	uint32_t h;
	int r = ticket_new(c, step_id(c), m->node, &h);

	if (r < 0)
		return r;
	if (m->u.put.flags & MSG_PUT_EXCL) {
		r = ticket_reserve(c, h, name);
		if (r < 0) {
			ticket_end(c, h);
			return r;
		}
	}
	t = ticket_get(c, h);
	t->ns = s->number;
	t->block_shift = block_shift; /* of this put, whatever NS_SET does meanwhile */
	*ret = h;
	return 0;
}

int op_put_start(struct core *c, struct msg *m)
{
	struct name_arg name;
	struct placement place;
	struct space *s;
	struct ticket *t;
	struct grant *g;
	uint64_t bytes;
	uint8_t shift;
	uint32_t h;
	int r = start_check(c, m, &s, &name);

	if (r < 0)
		return r;
	if (m->u.put.block_size && !is_block_size(m->u.put.block_size))
		return -EINVAL;
	shift = m->u.put.block_size ? shift_of(m->u.put.block_size) : s->block_shift;
	bytes = first_grant(m->u.put.bytes, 1ull << shift);
	r = placement_pick(c, s, m->node, bytes, &place);
	if (r < 0)
		return r == -ENOSPC ? nospace(m, place.target) : r;
	if (msg_alloc_items(m, 1) < 0)
		return -ENOMEM;
	r = make_ticket(c, m, s, &name, shift, &h);
	if (r < 0)
		return r;
	t = ticket_get(c, h);
	t->persist = place.persist;
	g = grant_add(t, 0, step_id(c));
	g->bytes = bytes;
	ledger_reserve(place.target, bytes);
	m->u.put.ticket = t->id;
	m->u.put.block_size = 1ull << shift;
	m->u.put.persist_to_ssd = t->persist;
	m->items[0].alloc = g->alloc;
	m->items[0].bytes = g->bytes;
	return 0;
}

/* Changes a grant that is there to that many bytes. */
static int regrant(struct msg *m, struct member *mem, struct grant *g, uint64_t bytes)
{
	if (bytes > g->bytes && ledger_reserve(mem, bytes - g->bytes) < 0)
		return nospace(m, mem);
	if (bytes < g->bytes)
		ledger_unreserve(mem, g->bytes - bytes);
	g->bytes = bytes;
	return 0;
}

static int extend(struct core *c, struct msg *m, struct ticket *t, uint32_t block, uint64_t bytes)
{
	struct member *mem = c->members[t->node];
	struct grant *g = ticket_grant(t, block);
	int r;

	if (!g && !bytes)
		return 0; /* given back before, and asked again */
	if (!g) {
		if (bytes > ledger_free(mem))
			return nospace(m, mem);
		if (grant_room(t) < 0)
			return -ENOMEM;
		g = grant_add(t, block, step_id(c));
	}
	r = regrant(m, mem, g, bytes);
	if (r < 0)
		return r;
	m->items[0].alloc = bytes ? g->alloc : 0;
	if (!bytes)
		grant_remove(t, g);
	return 0;
}

int op_put_extend(struct core *c, struct msg *m)
{
	struct ticket *t;
	uint64_t bytes;
	uint32_t h;
	int r = ticket_of(c, m, &h);

	if (r < 0)
		return r;
	if (m->n_items != 1)
		return -EINVAL;
	t = ticket_get(c, h);
	bytes = m->items[0].bytes;
	if (m->items[0].block >= MSG_MAX_ITEMS)
		return -EFBIG;
	if (bytes > 1ull << t->block_shift)
		return -EINVAL;
	sign_of_life(c, t);
	m->items[0].bytes = pages_of(bytes);
	m->items[0].alloc = 0;
	return extend(c, m, t, m->items[0].block, pages_of(bytes));
}

int op_put_reserve(struct core *c, struct msg *m)
{
	struct name_arg n;
	uint32_t h, other;
	int r = ticket_of(c, m, &h);

	if (r < 0)
		return r;
	sign_of_life(c, ticket_get(c, h));
	if (!m->u.put.name[0]) {
		unreserve_name(c, h);
		return 0;
	}
	r = name_arg(c, m->u.put.dir, m->u.put.name, &n);
	if (r < 0)
		return r;
	other = reserving(c, &n);
	if (other)
		return other == h ? 0 : -EEXIST;
	return ticket_reserve(c, h, &n);
}

int op_put_revoke(struct core *c, struct msg *m)
{
	uint32_t h;
	int r = ticket_of(c, m, &h);

	if (r < 0)
		return r;
	ticket_revoke(c, h);
	return 0;
}

int op_put_renew(struct core *c, struct msg *m)
{
	uint32_t h;
	int r = ticket_of(c, m, &h);

	if (r < 0)
		return r;
	sign_of_life(c, ticket_get(c, h));
	return 0;
}
