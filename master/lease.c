/* SPDX-License-Identifier: Apache-2.0 */
#include "master/lease.h"

#include <string.h>

#include "master/step.h"

uint64_t lease_grant(struct core *c, struct inode *i, uint32_t node)
{
	if (!i->lease)
		i->lease = (uint16_t)node;
	else if (i->lease != node)
		i->lease = LEASE_MANY;
	return ++c->lease_seq;
}

/* What cannot be told by name is told by all names, when there is memory again. */
static void revoke_all_later(struct core *c, struct member *mem)
{
	mem->revoke_all = true;
	c->flush = true;
}

static void revoke_one(struct core *c, const struct inode *i, struct member *mem, enum msg_revoke_reason reason)
{
	struct msg *m = msg_new(MSG_NAME_REVOKE);

	if (!m) {
		revoke_all_later(c, mem);
		return;
	}
	m->u.revoke.dir = inode_get(c, i->parent)->id;
	m->u.revoke.seq = c->lease_seq;
	m->u.revoke.id = i->id;
	m->u.revoke.reason = reason;
	memcpy(m->u.revoke.name, i->name, i->name_len);
	if (step_notify(c, mem->node, m) < 0)
		revoke_all_later(c, mem);
}

void lease_revoke(struct core *c, struct inode *i, uint32_t but, enum msg_revoke_reason reason)
{
	uint32_t from = 0, to = c->n_members;
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
		else if (mem && mem->live)
			revoke_one(c, i, mem, reason);
	}
	i->lease = (uint16_t)(spared ? but : 0);
}
