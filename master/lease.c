/* SPDX-License-Identifier: Apache-2.0 */
#include "master/lease.h"

#include <stdlib.h>
#include <string.h>

#include "master/members.h"
#include "master/step.h"
#include "master/waits.h"

#define REPEAT_MAX 512u /* revokes told again in one go, oldest first */
#define GRACE 5u	/* of a lease's time, in which an acknowledgement is just on its way */

static uint32_t moved_hash(const void *arg, uint32_t h)
{
	return moved_get(arg, h)->hash;
}

static uint32_t *moved_link(const void *arg, uint32_t h)
{
	return &moved_get(arg, h)->next;
}

static const struct table_ops moved_ops = {.hash = moved_hash, .link = moved_link};

void leases_init(struct core *c)
{
	pool_init(&c->moved, sizeof(struct moved), 8);
	pool_init(&c->revokes, sizeof(struct revoke), 8);
	table_init(&c->moved_by_hash, &moved_ops, c);
}

void leases_fini(struct core *c)
{
	for (uint32_t h = 1; h < c->moved.top; h++)
		free(moved_get(c, h)->name);
	table_fini(&c->moved_by_hash);
	pool_fini(&c->moved);
	pool_fini(&c->revokes);
}

uint64_t lease_grant(struct core *c, struct inode *i, uint32_t node)
{
	if (!i->lease)
		i->lease = (uint16_t)node;
	else if (i->lease != node)
		i->lease = LEASE_MANY;
	return ++c->lease_seq;
}

/* ---- what was said of a name --------------------------------------------------------------------------------- */

static uint32_t moved_new(struct core *c, const struct inode *i, enum msg_revoke_reason reason)
{
	char *name = malloc(i->name_len);
	uint32_t h = name && !table_room(&c->moved_by_hash) ? pool_alloc(&c->moved) : 0;
	struct moved *mv;

	if (!h) {
		free(name);
		return 0;
	}
	memcpy(name, i->name, i->name_len);
	mv = moved_get(c, h);
	list_init(&mv->waits);
	mv->seq = c->lease_seq;
	mv->dir = inode_get(c, i->parent)->id;
	mv->id = i->id;
	mv->name = name;
	mv->len = i->name_len;
	mv->hash = i->name_hash;
	mv->reason = (uint8_t)reason;
	table_insert(&c->moved_by_hash, h);
	return h;
}

static void moved_free(struct core *c, uint32_t h)
{
	struct moved *mv = moved_get(c, h);
	struct list waits;

	table_remove(&c->moved_by_hash, h);
	list_init(&waits);
	list_splice_tail(&mv->waits, &waits);
	free(mv->name);
	pool_free(&c->moved, h);
	waits_look_again(c, &waits);
}

bool moved_only_to(const struct core *c, const struct moved *mv, uint32_t node)
{
	const struct member *mem = member_live(c, node);
	struct list *pos, *tmp;

	if (mv->told != 1 || !mem)
		return false;
	list_for_each(pos, tmp, &mem->revokes)
	{
		const struct revoke *rv = container_of(pos, struct revoke, fifo);

		if (moved_get(c, rv->moved) == mv)
			return true;
	}
	return false;
}

static struct msg *revoke_msg(const struct moved *mv)
{
	struct msg *m = msg_new(MSG_NAME_REVOKE);

	if (!m)
		return NULL;
	m->u.revoke.dir = mv->dir;
	m->u.revoke.seq = mv->seq;
	m->u.revoke.id = mv->id;
	m->u.revoke.reason = mv->reason;
	m->u.revoke.ack = true;
	memcpy(m->u.revoke.name, mv->name, mv->len);
	return m;
}

/* Without memory it is told when it is told again. */
static void tell(struct core *c, const struct member *mem, const struct moved *mv)
{
	struct msg *m = revoke_msg(mv);

	if (m)
		step_notify(c, mem->node, m);
}

/* The node knows, or need not. */
static void revoke_end(struct core *c, struct member *mem, struct revoke *rv)
{
	struct moved *mv = moved_get(c, rv->moved);
	uint32_t moved = rv->moved;

	list_del(&rv->fifo);
	mem->n_revokes--;
	pool_free(&c->revokes, rv->self);
	if (!--mv->told)
		moved_free(c, moved);
	else if (mv->told == 1)
		waits_look_again(c, &mv->waits);
}

static struct revoke *oldest(const struct member *mem)
{
	return list_first(&mem->revokes, struct revoke, fifo);
}

/* ---- all leases of a node ------------------------------------------------------------------------------------ */

/*
 * One revoke of all leases takes the place of every one about a name; from: the first sequence that it stands for.
 * It is told at the end of the step.
 */
static void all_begin(struct core *c, struct member *mem, uint64_t from)
{
	struct list *pos, *tmp;

	c->flush = mem->revoke_all = true;
	mem->all_seq = 0;
	if (!c->cfg.lease_ns)
		return;
	if (!list_empty(&mem->revokes) && moved_get(c, oldest(mem)->moved)->seq < from)
		from = moved_get(c, oldest(mem)->moved)->seq;
	if (!mem->all_from && !mem->lapsed)
		c->n_alls++;
	if (!mem->all_from || from < mem->all_from)
		mem->all_from = from;
	list_for_each(pos, tmp, &mem->revokes) revoke_end(c, mem, container_of(pos, struct revoke, fifo));
}

static void all_end(struct core *c, struct member *mem)
{
	if (mem->all_from && !mem->lapsed)
		c->n_alls--;
	mem->all_from = mem->all_seq = 0;
	mem->lapsed = mem->revoke_all = false;
	waits_look_at_all(c);
}

void lease_flush(struct core *c, struct member *mem)
{
	struct msg *m;

	if (!mem->revoke_all)
		return;
	if (!mem->all_seq)
		mem->all_seq = ++c->lease_seq;
	m = msg_new(MSG_NAME_REVOKE);
	if (m) {
		m->u.revoke.seq = mem->all_seq;
		m->u.revoke.reason = MSG_REVOKE_MOVED;
		m->u.revoke.ack = c->cfg.lease_ns != 0;
	}
	if (!m || step_notify(c, mem->node, m) < 0) {
		c->flush = true; /* with the next step */
		return;
	}
	mem->revoke_all = false;
	mem->told_ns = c->now_ns;
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

static bool is_over(const struct core *c, const struct member *mem)
{
	return c->now_ns - mem->renewed_ns >= c->cfg.lease_ns;
}

/* Its leases are over by themselves: nobody waits for it any more, and it gets none before it has said that it knows.
 */
static void lapse(struct core *c, struct member *mem)
{
	if (mem->lapsed)
		return;
	if (mem->all_from)
		c->n_alls--;
	mem->lapsed = true;
	all_begin(c, mem, c->lease_seq);
	waits_look_at_all(c);
}

uint64_t lease_renew(struct core *c, struct member *mem)
{
	if (!c->cfg.lease_ns)
		return UINT64_MAX;
	/* One that goes on as before, and was not told yet. */
	if (mem->all_from && !mem->all_seq)
		c->flush = mem->revoke_all = true;
	if (mem->all_from ||
	    (!list_empty(&mem->revokes) && c->now_ns - oldest(mem)->said_ns >= c->cfg.lease_ns / GRACE))
		return 0;
	mem->renewed_ns = c->now_ns;
	return c->cfg.lease_ns;
}

void lease_loaded(struct core *c, struct member *mem)
{
	if (!c->cfg.lease_ns)
		return;
	mem->unsettled = mem->lapsed = c->no_moves = true;
	mem->all_from = 1;
}

void lease_joined(struct core *c, struct member *mem)
{
	mem->renewed_ns = c->now_ns;
	all_end(c, mem);
}

void lease_resumed(struct core *c, struct member *mem)
{
	lease_joined(c, mem);
	mem->unsettled = false;
	all_begin(c, mem, 1);
}

void lease_gone(struct core *c, struct member *mem)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &mem->revokes) revoke_end(c, mem, container_of(pos, struct revoke, fifo));
	all_end(c, mem);
}

/* Tells again what has not been acknowledged for a while. Returns the nanoseconds until the next time. */
static uint64_t repeat(struct core *c, struct member *mem)
{
	struct list *pos, *tmp;
	unsigned n = 0;

	if (!c->cfg.repeat_ns)
		return UINT64_MAX;
	if (c->now_ns - mem->told_ns < c->cfg.repeat_ns)
		return c->cfg.repeat_ns - (c->now_ns - mem->told_ns);
	mem->told_ns = c->now_ns;
	if (mem->all_from)
		c->flush = mem->revoke_all = true;
	list_for_each(pos, tmp, &mem->revokes)
	{
		const struct revoke *rv = container_of(pos, struct revoke, fifo);

		if (c->now_ns - rv->said_ns < c->cfg.repeat_ns || n++ == REPEAT_MAX)
			break;
		tell(c, mem, moved_get(c, rv->moved));
	}
	return c->cfg.repeat_ns;
}

uint64_t leases_tick(struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t n = 1; c->cfg.lease_ns && n < c->n_members; n++) {
		struct member *mem = member_live(c, n);
		uint64_t left;

		if (!mem || (list_empty(&mem->revokes) && !mem->all_from))
			continue;
		if (is_over(c, mem))
			lapse(c, mem);
		left = repeat(c, mem);
		next = left < next ? left : next;
		left = mem->renewed_ns + c->cfg.lease_ns - c->now_ns;
		next = !mem->lapsed && left < next ? left : next;
	}
	return next;
}

/* ---- revokes ------------------------------------------------------------------------------------------------- */

/* As far as they are acknowledged; *moved: what was said of the name, made for the first who is told. */
static void revoke_kept(struct core *c, const struct inode *i, struct member *mem, enum msg_revoke_reason reason,
			uint32_t *moved)
{
	struct revoke *rv;
	uint32_t h = 0;

	if (is_over(c, mem))
		lapse(c, mem);
	if (mem->lapsed) {
		/* What it was granted since it was told so last is over, too. */
		mem->all_seq = 0;
		return;
	}
	if (!*moved)
		*moved = moved_new(c, i, reason);
	if (*moved && mem->n_revokes < REVOKES_MAX)
		h = pool_alloc(&c->revokes);
	if (!h) {
		if (*moved && !moved_get(c, *moved)->told) {
			moved_free(c, *moved);
			*moved = 0;
		}
		all_begin(c, mem, c->lease_seq);
		return;
	}
	rv = revoke_get(c, h);
	*rv = (struct revoke){.self = h, .moved = *moved, .said_ns = c->now_ns};
	if (list_empty(&mem->revokes) && !mem->all_from)
		mem->told_ns = c->now_ns;
	list_init(&rv->fifo);
	list_add_tail(&rv->fifo, &mem->revokes);
	mem->n_revokes++;
	moved_get(c, *moved)->told++;
	tell(c, mem, moved_get(c, *moved));
}

static void revoke_told(struct core *c, const struct inode *i, struct member *mem, enum msg_revoke_reason reason)
{
	const struct moved mv = {.seq = c->lease_seq,
				 .dir = inode_get(c, i->parent)->id,
				 .id = i->id,
				 .name = i->name,
				 .len = i->name_len,
				 .reason = (uint8_t)reason};
	struct msg *m = revoke_msg(&mv);

	if (m)
		m->u.revoke.ack = false;
	/* What cannot be told by name is told by all names, when there is memory again. */
	if (!m || step_notify(c, mem->node, m) < 0)
		all_begin(c, mem, 0);
}

void lease_revoke(struct core *c, struct inode *i, uint32_t but, enum msg_revoke_reason reason)
{
	uint32_t from = 0, to = c->n_members, moved = 0;
	bool spared = false;

	if (!i->lease)
		return;
	if (i->lease != LEASE_MANY) {
		from = i->lease;
		to = from + 1u;
	}
	c->lease_seq++;
	for (; from < to; from++) {
		struct member *mem = c->members[from];

		if (from == but && from)
			spared = true;
		else if (mem && mem->live && c->cfg.lease_ns)
			revoke_kept(c, i, mem, reason, &moved);
		else if (mem && mem->live)
			revoke_told(c, i, mem, reason);
	}
	i->lease = (uint16_t)(spared ? but : 0);
}

/* One that was told before something else was granted is told anew, now that it listens. */
static void all_acked(struct core *c, struct member *mem)
{
	if (mem->all_seq)
		all_end(c, mem);
	else
		c->flush = mem->revoke_all = true;
}

int op_revoke_ack(struct core *c, struct msg *m)
{
	struct member *mem = member_live(c, m->node);
	uint64_t seq = m->u.revoke.seq;
	struct list *pos, *tmp;

	if (mem->all_from && (seq == mem->all_seq || !mem->all_seq)) {
		all_acked(c, mem);
		return 0;
	}
	/* Mostly the oldest, for they come in the order in which they were told. */
	list_for_each(pos, tmp, &mem->revokes)
	{
		struct revoke *rv = container_of(pos, struct revoke, fifo);

		if (moved_get(c, rv->moved)->seq != seq)
			continue;
		revoke_end(c, mem, rv);
		break;
	}
	return 0;
}
