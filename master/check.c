/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_check(): counts everything again from what there is and compares. For tests; it allocates, and is slow.
 */
#include "master/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "master/gets.h"
#include "master/holds.h"
#include "master/inode.h"
#include "master/lease.h"
#include "master/members.h"
#include "master/puts.h"
#include "master/route.h"
#include "master/space.h"
#include "master/state.h"

struct check {
	struct core *c;
	char *why;
	size_t why_len;
	bool bad;
	uint64_t *used, *reserved, *sources; /* by node */
	uint64_t objects, dirs, orphans, live_bytes, orphan_bytes, xattr_inodes, expiring;
};

static void __attribute__((format(printf, 2, 3))) complain(struct check *k, const char *fmt, ...)
{
	va_list ap;

	if (k->bad)
		return; /* the first one tells most */
	k->bad = true;
	va_start(ap, fmt);
	vsnprintf(k->why, k->why_len, fmt, ap);
	va_end(ap);
}

#define EXPECT(k, cond, ...)                                                                                           \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			complain(k, __VA_ARGS__);                                                                      \
	} while (0)

static void check_route(struct check *k, const struct inode *i)
{
	uint64_t blocks = blocks_of(i->size, i->block_shift), last = 0;
	struct replica rep;
	uint32_t pos = 0;
	bool first = true;

	while (route_next(i, &pos, &rep)) {
		uint64_t at = (uint64_t)rep.block << 16 | rep.node;

		EXPECT(k, first || at > last, "%llu: route not ascending", (unsigned long long)i->id);
		EXPECT(k, rep.block < blocks && rep.tiers, "%llu: replica of no block, or on no tier",
		       (unsigned long long)i->id);
		EXPECT(k, k->c->members[rep.node] && (k->c->members[rep.node]->live || k->c->members[rep.node]->loaded),
		       "%llu: replica on a node that is gone", (unsigned long long)i->id);
		if (rep.tiers & TIER_MEM)
			k->used[rep.node] += pages_of(block_len(i->size, i->block_shift, rep.block));
		last = at;
		first = false;
	}
	for (uint32_t b = 0; b < blocks && !(i->flags & INODE_ORPHAN) && !k->c->recovering; b++)
		EXPECT(k, route_has_block(i, b), "%llu: block %u has no replica", (unsigned long long)i->id, b);
}

static void check_file(struct check *k, uint32_t h, const struct inode *i)
{
	check_route(k, i);
	k->xattr_inodes += (i->flags & INODE_XATTRS) != 0;
	if (i->flags & INODE_ORPHAN) {
		k->orphans++;
		k->orphan_bytes += pages_of(i->size);
		EXPECT(k, !route_empty(i), "%llu: an orphan without a replica", (unsigned long long)i->id);
		EXPECT(k, !i->heap_pos, "%llu: an orphan that expires", (unsigned long long)i->id);
		return;
	}
	k->objects++;
	k->live_bytes += pages_of(i->size);
	k->expiring += i->expires_ns != 0;
	EXPECT(k, !!i->expires_ns == !!i->heap_pos, "%llu: expiry heap", (unsigned long long)i->id);
	EXPECT(k, !i->heap_pos || k->c->heap[i->heap_pos] == h, "%llu: place in the heap", (unsigned long long)i->id);
	EXPECT(k, i->ns && space_find(k->c, i->ns), "%llu: outside any namespace", (unsigned long long)i->id);
}

static void check_name(struct check *k, uint32_t h, const struct inode *i)
{
	const struct core *c = k->c;
	const struct dir *d;
	uint32_t at;

	if (h == c->root || (i->flags & INODE_ORPHAN))
		return;
	EXPECT(k, i->parent && inode_get(c, i->parent)->kind == MSG_KIND_DIR, "%llu: no parent",
	       (unsigned long long)i->id);
	if (k->bad)
		return;
	EXPECT(k, name_find(c, i->parent, i->name, i->name_len, i->name_hash) == h, "%llu: name finds something else",
	       (unsigned long long)i->id);
	d = inode_get(c, i->parent)->dir;
	at = dir_seek(d, i->cookie - 1);
	EXPECT(k, at < d->n && d->slots[at].inode == h, "%llu: not in its directory", (unsigned long long)i->id);
}

static void check_dir(struct check *k, uint32_t h, const struct inode *i)
{
	const struct dir *d = i->dir;
	uint32_t live = 0, subdirs = 0;
	uint64_t last = 0;

	k->dirs++;
	k->xattr_inodes += (i->flags & INODE_XATTRS) != 0;
	EXPECT(k, d->self == h, "%llu: not its own directory", (unsigned long long)i->id);
	for (uint32_t s = 0; s < d->n; s++) {
		EXPECT(k, slot_cookie(&d->slots[s]) > last, "%llu: cookies not ascending", (unsigned long long)i->id);
		last = slot_cookie(&d->slots[s]);
		if (!d->slots[s].inode)
			continue;
		live++;
		subdirs += inode_get(k->c, d->slots[s].inode)->kind == MSG_KIND_DIR;
	}
	EXPECT(k, live == d->live && subdirs == d->subdirs, "%llu: has %u names and %u directories, says %u and %u",
	       (unsigned long long)i->id, live, subdirs, d->live, d->subdirs);
	EXPECT(k, d->n - live <= live || d->n - live <= 32, "%llu: too many dead slots", (unsigned long long)i->id);
	EXPECT(k, !d->space || d->space->number == i->ns, "%llu: namespace of its root", (unsigned long long)i->id);
	EXPECT(k, d->space || h == k->c->root || !i->parent || i->ns == inode_get(k->c, i->parent)->ns,
	       "%llu: namespace is not its parent's", (unsigned long long)i->id);
}

static void check_inodes(struct check *k)
{
	const struct core *c = k->c;

	for (uint32_t h = 1; h < c->inodes.top && !k->bad; h++) {
		const struct inode *i = inode_get(c, h);

		if (!i->kind)
			continue;
		EXPECT(k, inode_find(c, i->id) == h, "%llu: id finds something else", (unsigned long long)i->id);
		check_name(k, h, i);
		if (i->kind == MSG_KIND_DIR)
			check_dir(k, h, i);
		else
			check_file(k, h, i);
	}
	EXPECT(k, k->objects == c->n_objects && k->dirs == c->n_dirs && k->orphans == c->n_orphans,
	       "%llu objects, %llu directories, %llu orphans; counted %llu, %llu, %llu", (unsigned long long)k->objects,
	       (unsigned long long)k->dirs, (unsigned long long)k->orphans, (unsigned long long)c->n_objects,
	       (unsigned long long)c->n_dirs, (unsigned long long)c->n_orphans);
	EXPECT(k, k->live_bytes == c->live_bytes && k->orphan_bytes == c->orphan_bytes, "bytes of objects or orphans");
	EXPECT(k, c->inodes.used == k->objects + k->dirs + k->orphans, "inodes leaked");
	EXPECT(k, c->by_id.count == c->inodes.used, "by_id");
	EXPECT(k, c->by_name.count == k->objects + k->dirs - 1, "by_name");
	EXPECT(k, c->heap_n == k->expiring, "expiry heap holds others");
	EXPECT(k, c->xattrs.used == k->xattr_inodes, "xattrs leaked");
}

static void check_orphan_list(struct check *k)
{
	const struct core *c = k->c;
	uint64_t n = 0;
	uint32_t last = 0;

	for (uint32_t h = c->orphan_head; h; last = h, h = inode_get(c, h)->orphan_next, n++)
		EXPECT(k, inode_get(c, h)->orphan_prev == last, "orphans' list");
	EXPECT(k, last == c->orphan_tail && n == k->orphans, "orphans' list ends early");
}

static void check_heap(struct check *k)
{
	const struct core *c = k->c;

	for (uint32_t p = 2; p <= c->heap_n; p++)
		EXPECT(k, inode_get(c, c->heap[p / 2])->expires_ns <= inode_get(c, c->heap[p])->expires_ns,
		       "expiry heap is not one");
}

static void check_spaces(struct check *k)
{
	struct core *c = k->c;

	for (uint32_t s = 0; s < c->n_spaces; s++) {
		const struct space *sp = c->spaces[s];
		uint64_t objects = 0, bytes = 0;

		for (uint32_t h = 1; h < c->inodes.top; h++) {
			const struct inode *i = inode_get(c, h);

			if (i->kind == MSG_KIND_FILE && !(i->flags & INODE_ORPHAN) && i->ns == sp->number) {
				objects++;
				bytes += i->size;
			}
		}
		EXPECT(k, objects == sp->objects && bytes == sp->bytes, "namespace %u: counts", sp->number);
		EXPECT(k, inode_get(c, sp->root)->dir && inode_get(c, sp->root)->dir->space == sp, "namespace %u: root",
		       sp->number);
	}
}

static void check_grants(struct check *k)
{
	const struct core *c = k->c;
	struct list *pos, *tmp;
	uint32_t n = 0;

	list_for_each(pos, tmp, &c->tickets_fifo)
	{
		const struct ticket *t = container_of(pos, struct ticket, fifo);

		EXPECT(k, member_joined(c, t->node), "ticket of a node that is gone");
		k->reserved[t->node] += ticket_granted(t);
		n++;
	}
	EXPECT(k, n == c->tickets.used && n == c->tickets_by_id.count, "tickets leaked");
	n = 0;
	list_for_each(pos, tmp, &c->gets_fifo)
	{
		const struct get *g = container_of(pos, struct get, fifo);

		EXPECT(k, member_live(c, g->node) && member_live(c, g->source_node),
		       "get of, or from, a node that is gone");
		k->reserved[g->node] += g->bytes;
		k->sources[g->source_node] += g->source_node != g->node;
		n++;
	}
	EXPECT(k, n == c->gets.used && n == c->gets_by_id.count && n == c->gets_by_block.count, "gets leaked");
	for (uint32_t h = 1; h < c->looses.top; h++) {
		const struct loose *l = pool_get(&c->looses, h);

		if (l->node)
			k->used[l->node] += l->bytes;
	}
	EXPECT(k, c->looses.used == c->loose_by_alloc.count && c->looses.used == c->loose_by_put.count,
	       "loose allocations leaked");
}

static void check_waiting(struct check *k)
{
	const struct core *c = k->c;
	bool awaited = false;

	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];

		if (!mem)
			continue;
		awaited |= mem->awaited;
		EXPECT(k, !mem->live || !(mem->awaited || mem->loaded || mem->ended), "node %u: live and awaited", n);
		EXPECT(k, mem->awaited || !mem->inventory, "node %u: an inventory that nobody waits for", n);
	}
	EXPECT(k, !awaited || (c->recovering && c->recovery), "owners are awaited, and nobody waits");
}

static void check_ledgers(struct check *k)
{
	const struct core *c = k->c;

	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];

		if (!mem)
			continue;
		EXPECT(k, mem->used == k->used[n] && mem->reserved == k->reserved[n],
		       "node %u: ledger says %llu + %llu, it has %llu + %llu", n, (unsigned long long)mem->used,
		       (unsigned long long)mem->reserved, (unsigned long long)k->used[n],
		       (unsigned long long)k->reserved[n]);
		EXPECT(k, mem->sources == k->sources[n], "node %u: is a source %u times, not %llu", n, mem->sources,
		       (unsigned long long)k->sources[n]);
	}
}

/* Each hold is one of a node that lives, of a version that is, once; and the version knows. */
static void check_holds(struct check *k)
{
	const struct core *c = k->c;
	uint32_t n = 0, held = 0;

	for (uint32_t h = 1; h < c->holds.top; h++) {
		const struct hold *o = hold_get(c, h);
		uint32_t ih = o->node ? inode_find(c, o->put_id) : 0, twice = 0;

		if (!o->node)
			continue;
		n++;
		EXPECT(k, ih && inode_get(c, ih)->kind == MSG_KIND_FILE && is_held(inode_get(c, ih)),
		       "%llu: held, and does not know", (unsigned long long)o->put_id);
		EXPECT(k, member_live(c, o->node), "%llu: held by a node that is gone", (unsigned long long)o->put_id);
		for (uint32_t g = h; g < c->holds.top; g++)
			twice += hold_get(c, g)->node == o->node && hold_get(c, g)->put_id == o->put_id;
		EXPECT(k, twice == 1, "%llu: held twice by node %u", (unsigned long long)o->put_id, o->node);
	}
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		const struct inode *i = inode_get(c, h);
		bool found = false;

		if (!i->kind || !is_held(i))
			continue;
		held++;
		for (uint32_t g = 1; g < c->holds.top && !found; g++)
			found = hold_get(c, g)->node && hold_get(c, g)->put_id == i->id;
		EXPECT(k, found, "%llu: held by nobody", (unsigned long long)i->id);
	}
	EXPECT(k, n == c->holds.used && n == c->holds_by_put.count && held <= n, "holds leaked");
}

/* Every revoke that waits is one of a node that lives, and of what was said of a name; the counts are theirs. */
static void check_leases(struct check *k)
{
	const struct core *c = k->c;
	uint32_t revokes = 0, told = 0, alls = 0;
	struct list *pos, *tmp;

	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];
		uint32_t count = 0;

		if (!mem)
			continue;
		list_for_each(pos, tmp, &mem->revokes)
		{
			const struct revoke *rv = container_of(pos, struct revoke, fifo);

			EXPECT(k, moved_get(c, rv->moved)->told, "node %u: a revoke of nothing", n);
			count++;
		}
		EXPECT(k, count == mem->n_revokes && (mem->live || (!count && (!mem->all_from || mem->unsettled))),
		       "node %u: %u revokes", n, count);
		revokes += count;
		alls += mem->all_from && !mem->lapsed;
	}
	for (uint32_t h = 1; h < c->moved.top; h++)
		told += moved_get(c, h)->told;
	EXPECT(k, revokes == c->revokes.used && told == revokes, "revokes leaked: %u, %u, %u", revokes, told,
	       c->revokes.used);
	EXPECT(k, alls == c->n_alls, "revokes of all leases: %u, not %u", c->n_alls, alls);
	EXPECT(k, c->moved.used == c->moved_by_hash.count, "what was said of names leaked");
	EXPECT(k, c->waiting.used == c->waits_by_req.count + (c->spare != 0), "requests that wait leaked");
}

int core_check(struct core *c, char *why, size_t why_len)
{
	struct check k = {.c = c, .why = why, .why_len = why_len};

	k.used = calloc(c->n_members + 1u, sizeof(*k.used));
	k.reserved = calloc(c->n_members + 1u, sizeof(*k.reserved));
	k.sources = calloc(c->n_members + 1u, sizeof(*k.sources));
	if (!k.used || !k.reserved || !k.sources) {
		free(k.used);
		free(k.reserved);
		free(k.sources);
		return -ENOMEM;
	}
	check_inodes(&k);
	if (!k.bad) {
		check_orphan_list(&k);
		check_heap(&k);
		check_spaces(&k);
		check_grants(&k);
		check_waiting(&k);
		check_ledgers(&k);
		check_leases(&k);
		check_holds(&k);
	}
	free(k.used);
	free(k.reserved);
	free(k.sources);
	return k.bad ? -EUCLEAN : 0;
}
