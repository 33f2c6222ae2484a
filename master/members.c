/* SPDX-License-Identifier: Apache-2.0 */
#include "master/members.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/gets.h"
#include "master/holds.h"
#include "master/inode.h"
#include "master/lease.h"
#include "master/ledger.h"
#include "master/puts.h"
#include "master/recent.h"
#include "master/route.h"
#include "master/step.h"
#include "master/version.h"

#define CAPACITY_MAX (1ull << 60) /* sums of a few thousand nodes stay far from overflow */

static int members_room(struct core *c, uint32_t node)
{
	uint32_t n = c->n_members ? c->n_members : 8;
	struct member **members;

	if (node < c->n_members)
		return 0;
	while (n <= node)
		n *= 2;
	members = realloc(c->members, n * sizeof(struct member *));
	if (!members)
		return -ENOMEM;
	memset(members + c->n_members, 0, (n - c->n_members) * sizeof(struct member *));
	c->members = members;
	c->n_members = n;
	return 0;
}

struct member *member_make(struct core *c, uint32_t node)
{
	struct member *mem;

	if (members_room(c, node) < 0)
		return NULL;
	if (c->members[node])
		return c->members[node];
	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return NULL;
	mem->node = node;
	list_init(&mem->revokes);
	c->members[node] = mem;
	return mem;
}

void members_fini(struct core *c)
{
	for (uint32_t n = 0; n < c->n_members; n++) {
		struct member *mem = c->members[n];

		if (!mem)
			continue;
		recent_free(mem->recent);
		free(mem->drops);
		free(mem->key);
		free(mem->address);
		free(mem);
	}
	free(c->members);
	c->members = NULL;
	c->n_members = 0;
}

/* Whether no other node can have a replica. */
static bool is_alone(const struct core *c, const struct member *mem)
{
	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *other = c->members[n];

		if (n != mem->node && other && (other->live || other->loaded))
			return false;
	}
	return true;
}

/* Whether some block of it has no replica, or, being empty, no home. */
static bool is_lost(const struct inode *i, uint32_t gone)
{
	uint64_t blocks = blocks_of(i->size, i->block_shift);

	if (!blocks)
		return i->home == gone;
	for (uint32_t b = 0; b < blocks; b++)
		if (!route_has_block(i, b))
			return true;
	return false;
}

static int version_loses_node(struct core *c, uint32_t h, struct member *mem)
{
	const struct version_end end = {.reason = MSG_REVOKE_LOST, .miss = MSG_MISS_LOST, .say = true};
	struct inode *i = inode_get(c, h);
	bool orphan = (i->flags & INODE_ORPHAN) != 0;

	if (!route_has_node(i, mem->node) && (i->size || i->home != mem->node))
		return 0;
	if (step_room(c, 2 + route_count(i), MSG_NAME_MAX) < 0)
		return -ENOMEM;
	route_take_node(c, i, mem->node, mem, !orphan);
	if (orphan)
		version_reap(c, h);
	else if (is_lost(i, mem->node))
		version_end(c, h, &end);
	return 0;
}

/* Walks everything there is: leaving is rare, and a list of each node's replicas would cost every object memory. */
static int replicas_gone(struct core *c, struct member *mem)
{
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		struct inode *i = inode_get(c, h);

		if (i->kind && i->lease == mem->node)
			i->lease = 0;
		if (i->kind == MSG_KIND_FILE && version_loses_node(c, h, mem) < 0)
			return -ENOMEM;
	}
	return 0;
}

int member_gone(struct core *c, struct member *mem)
{
	if (step_room(c, 1, 0) < 0)
		return -ENOMEM;
	/* Whatever of this has been done when memory runs out is done; the rest is found by the next call. */
	tickets_gone(c, mem->node);
	gets_gone(c, mem->node);
	looses_gone(c, mem->node);
	holds_gone(c, mem->node);
	if (is_alone(c, mem)) {
		versions_clear(c);
		mem->used = 0;
	} else if (replicas_gone(c, mem) < 0) {
		return -ENOMEM;
	}
	mem->live = mem->loaded = false;
	mem->capacity = mem->zombie = mem->ssd_capacity = mem->ssd_used = 0;
	mem->n_drops = 0;
	lease_gone(c, mem);
	mem->recent = recent_free(mem->recent);
	return 0;
}

uint64_t members_tick(struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t n = 1; c->cfg.dead_after_ns && n < c->n_members; n++) {
		struct member *mem = member_live(c, n);
		uint64_t age = mem ? c->now_ns - mem->sign_ns : 0;

		if (!mem)
			continue;
		if (age >= c->cfg.dead_after_ns) {
			if (member_gone(c, mem) < 0)
				next = NS_TICK_MAX;
		} else if (c->cfg.dead_after_ns - age < next) {
			next = c->cfg.dead_after_ns - age;
		}
	}
	return next;
}

uint32_t core_node_named(const struct core *c, const char *key)
{
	uint32_t unused = 0, n;

	for (n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];

		if (mem && mem->key && !strncmp(mem->key, key, sizeof(((struct msg *)0)->u.join.instance_key)))
			return n;
		if (!unused && (!mem || !mem->key))
			unused = n;
	}
	if (!unused)
		unused = n ? n : 1;
	return unused <= NODE_MAX ? unused : 0;
}

static bool key_is_live(const struct core *c, const char *key)
{
	for (uint32_t n = 1; n < c->n_members; n++)
		if (member_live(c, n) && !strcmp(c->members[n]->key, key))
			return true;
	return false;
}

static int join_check(const struct core *c, const struct msg *m)
{
	size_t len = strnlen(m->u.join.instance_key, sizeof(m->u.join.instance_key));

	if (!len || len == sizeof(m->u.join.instance_key) || !m->node || m->node > NODE_MAX ||
	    strnlen(m->u.join.address, sizeof(m->u.join.address)) == sizeof(m->u.join.address) ||
	    m->u.join.capacity > CAPACITY_MAX || m->u.join.ssd_capacity > CAPACITY_MAX)
		return -EINVAL;
	return member_live(c, m->node) || key_is_live(c, m->u.join.instance_key) ? -EBUSY : 0;
}

void member_record(const struct member *mem, struct write_rec *rec)
{
	*rec = (struct write_rec){
	    .type = WRITE_MEMBER,
	    .len = (uint32_t)strlen(mem->key),
	    .data = (const uint8_t *)mem->key,
	    .u.member = {.tomb_tag = mem->tomb_tag,
			 .capacity = mem->capacity,
			 .ssd_capacity = mem->ssd_capacity,
			 .node = mem->node},
	};
}

/* Who it is, and where others find it. 0, -ENOMEM with nothing changed. */
static int set_name(struct member *mem, const struct msg *m)
{
	const char *at = m->u.join.address;
	char *key = strdup(m->u.join.instance_key), *address = *at ? strdup(at) : NULL;

	if (!key || (*at && !address)) {
		free(key);
		free(address);
		return -ENOMEM;
	}
	free(mem->key);
	free(mem->address);
	mem->key = key;
	mem->address = address;
	return 0;
}

int op_join(struct core *c, struct msg *m)
{
	struct write_rec rec;
	struct member *mem;
	int r = join_check(c, m);

	if (r < 0)
		return r;
	mem = member_make(c, m->node);
	if (!mem || (mem->loaded && member_gone(c, mem) < 0) || step_room(c, 1, sizeof(m->u.join.instance_key)) < 0)
		return -ENOMEM;
	if (set_name(mem, m) < 0)
		return -ENOMEM;
	/* From here on whatever still comes from an earlier incarnation is stale. */
	mem->live = true;
	mem->tomb_tag = step_id(c);
	mem->ssd = m->u.join.kv_ssd_storage;
	mem->capacity = m->u.join.capacity;
	mem->ssd_capacity = m->u.join.ssd_capacity;
	mem->sign_ns = mem->renewed_ns = c->now_ns;
	member_record(mem, &rec);
	step_write(c, &rec);
	m->tomb_tag = m->u.join.tomb_tag = mem->tomb_tag;
	return 0;
}

int op_heartbeat(struct core *c, struct msg *m)
{
	struct member *mem = member_live(c, m->node);

	if (m->u.heartbeat.capacity > CAPACITY_MAX || m->u.heartbeat.ssd_capacity > CAPACITY_MAX)
		return -EINVAL;
	mem->capacity = m->u.heartbeat.capacity;
	mem->zombie = m->u.heartbeat.zombie;
	mem->ssd_capacity = m->u.heartbeat.ssd_capacity;
	mem->ssd_used = m->u.heartbeat.ssd_used;
	m->u.heartbeat.master_ns = c->now_ns;
	m->u.heartbeat.lease_ns = lease_renew(c, mem);
	return 0;
}

int op_leave(struct core *c, struct msg *m)
{
	struct member *mem = member_live(c, m->node);

	return mem ? member_gone(c, mem) : 0;
}

int op_statfs(struct core *c, struct msg *m)
{
	uint64_t total = 0, reserved = 0;
	uint32_t dir;
	int r = inode_find_dir(c, m->u.statfs.dir, &dir);

	if (r < 0)
		return r;
	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *mem = member_live(c, n);

		if (!mem)
			continue;
		total += ledger_total(mem) + mem->ssd_capacity;
		reserved += mem->reserved;
	}
	m->u.statfs.total_bytes = total;
	m->u.statfs.used_bytes = c->live_bytes + c->orphan_bytes + reserved;
	m->u.statfs.objects = c->n_objects;
	return 0;
}
