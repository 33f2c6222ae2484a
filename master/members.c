/* SPDX-License-Identifier: Apache-2.0 */
#include "master/members.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/gets.h"
#include "master/holds.h"
#include "master/inode.h"
#include "master/inventory.h"
#include "master/lease.h"
#include "master/ledger.h"
#include "master/puts.h"
#include "master/recent.h"
#include "master/resume.h"
#include "master/route.h"
#include "master/step.h"
#include "master/version.h"

#define KEY_MAX sizeof(((struct msg *)0)->u.join.instance_key)
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
		inventory_free(mem->inventory);
		free(mem->drops);
		free(mem->key);
		free(mem->address);
		free(mem);
	}
	free(c->members);
	c->members = NULL;
	c->n_members = 0;
}

/* Whether a node that stays can have a replica. */
static bool others_stay(const struct core *c)
{
	for (uint32_t n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];

		if (mem && !mem->over && (mem->live || mem->loaded || mem->awaited))
			return true;
	}
	return false;
}

bool version_is_lost(const struct inode *i)
{
	uint64_t blocks = blocks_of(i->size, i->block_shift);

	for (uint32_t b = 0; b < blocks; b++)
		if (!route_has_block(i, b))
			return true;
	return false;
}

static bool is_over(const struct core *c, uint32_t node)
{
	return c->members[node] && c->members[node]->over;
}

/* A node that is over and has a replica; 0: none. */
static uint32_t next_over(const struct core *c, const struct inode *i)
{
	struct replica rep;
	uint32_t pos = 0;

	while (route_next(i, &pos, &rep))
		if (is_over(c, rep.node))
			return rep.node;
	return 0;
}

static int version_loses_over(struct core *c, uint32_t h)
{
	const struct version_end end = {.reason = MSG_REVOKE_LOST, .miss = MSG_MISS_LOST, .say = true};
	struct inode *i = inode_get(c, h);
	bool orphan = (i->flags & INODE_ORPHAN) != 0;
	bool empty = !i->size && is_over(c, i->home); /* it goes with its home */
	uint32_t node = next_over(c, i);

	if (!node && !empty)
		return 0;
	if (step_room(c, 2 + route_count(i), MSG_NAME_MAX) < 0)
		return -ENOMEM;
	for (; node; node = next_over(c, i))
		route_take_node(c, i, node, c->members[node], !orphan);
	if (orphan)
		version_reap(c, h);
	else if (empty || (!c->recovering && version_is_lost(i)))
		version_end(c, h, &end);
	return 0;
}

/* Walks everything there is: leaving is rare, and a list of each node's replicas would cost every object memory. */
static int replicas_gone(struct core *c)
{
	for (uint32_t h = 1; h < c->inodes.top; h++) {
		struct inode *i = inode_get(c, h);

		if (i->kind && i->lease && i->lease != LEASE_MANY && is_over(c, i->lease))
			i->lease = 0;
		if (i->kind == MSG_KIND_FILE && version_loses_over(c, h) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Its incarnation is over. Needs room for a record. */
static void member_end(struct core *c, struct member *mem)
{
	struct write_rec rec;

	mem->live = mem->loaded = mem->over = false;
	if (c->recovery)
		resume_over(c, mem);
	mem->capacity = mem->zombie = mem->ssd_capacity = mem->ssd_used = 0;
	mem->n_drops = 0;
	lease_gone(c, mem);
	mem->recent = recent_free(mem->recent);
	if (mem->key && !mem->ended) {
		mem->ended = true;
		member_record(mem, &rec);
		step_write(c, &rec);
	}
}

/* What it has beside replicas. Returns how many are over. */
static unsigned grants_gone(struct core *c)
{
	unsigned over = 0;

	for (uint32_t n = 1; n < c->n_members; n++) {
		if (!is_over(c, n))
			continue;
		tickets_gone(c, n);
		gets_gone(c, n);
		looses_gone(c, n);
		holds_gone(c, n);
		over++;
	}
	return over;
}

int members_drop(struct core *c)
{
	bool none_stays = !others_stay(c);
	unsigned over;

	if (step_room(c, 1, 0) < 0)
		return -ENOMEM;
	/* Whatever of this has been done when memory runs out is done; the rest is found by the next call. */
	over = grants_gone(c);
	if (none_stays)
		versions_clear(c);
	else if (replicas_gone(c) < 0)
		return -ENOMEM;
	if (step_room(c, over, over * (size_t)KEY_MAX) < 0)
		return -ENOMEM;
	for (uint32_t n = 1; n < c->n_members; n++) {
		if (none_stays && c->members[n])
			c->members[n]->used = 0;
		if (is_over(c, n))
			member_end(c, c->members[n]);
	}
	resume_settle(c);
	return 0;
}

int member_gone(struct core *c, struct member *mem)
{
	mem->over = true;
	return members_drop(c);
}

uint64_t members_tick(struct core *c)
{
	uint64_t next = UINT64_MAX;

	bool any = false;

	for (uint32_t n = 1; c->cfg.dead_after_ns && n < c->n_members; n++) {
		struct member *mem = member_live(c, n);
		uint64_t age = mem ? c->now_ns - mem->sign_ns : 0;

		if (!mem)
			continue;
		if (age >= c->cfg.dead_after_ns) {
			mem->over = any = true;
		} else if (c->cfg.dead_after_ns - age < next) {
			next = c->cfg.dead_after_ns - age;
		}
	}
	return any && members_drop(c) < 0 ? NS_TICK_MAX : next;
}

uint32_t core_node_named(const struct core *c, const char *key)
{
	uint32_t unused = 0, n;

	for (n = 1; n < c->n_members; n++) {
		const struct member *mem = c->members[n];

		if (mem && mem->key && !strncmp(mem->key, key, KEY_MAX))
			return n;
		if (!unused && (!mem || !mem->key))
			unused = n;
	}
	if (!unused)
		unused = n ? n : 1;
	return unused <= NODE_MAX ? unused : 0;
}

uint32_t core_node_awaited(const struct core *c, uint64_t tomb_tag)
{
	for (uint32_t n = 1; tomb_tag && n < c->n_members; n++)
		if (c->members[n] && c->members[n]->awaited && c->members[n]->tomb_tag == tomb_tag)
			return n;
	return 0;
}

/* Whether another node has joined with that key. */
static bool key_is_taken(const struct core *c, const struct msg *m)
{
	for (uint32_t n = 1; n < c->n_members; n++)
		if (n != m->node && member_joined(c, n) && !strcmp(c->members[n]->key, m->u.join.instance_key))
			return true;
	return false;
}

static int join_check(const struct core *c, const struct msg *m)
{
	size_t len = strnlen(m->u.join.instance_key, sizeof(m->u.join.instance_key));
	const struct member *mem;

	if (!len || len == sizeof(m->u.join.instance_key) || !m->node || m->node > NODE_MAX ||
	    strnlen(m->u.join.address, sizeof(m->u.join.address)) == sizeof(m->u.join.address) ||
	    m->u.join.capacity > CAPACITY_MAX || m->u.join.ssd_capacity > CAPACITY_MAX)
		return -EINVAL;
	if (member_live(c, m->node) || key_is_taken(c, m))
		return -EBUSY;
	mem = member_joined(c, m->node);
	return mem && !resume_wanted(mem, m) ? -EBUSY : 0;
}

void member_record(const struct member *mem, struct write_rec *rec)
{
	*rec = (struct write_rec){
	    .type = WRITE_MEMBER,
	    .len = (uint32_t)strlen(mem->key),
	    .data = (const uint8_t *)mem->key,
	    .u.member = {.tomb_tag = mem->ended ? 0 : mem->tomb_tag,
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

/* What it tells of itself. */
static void take_join(struct core *c, struct member *mem, struct msg *m)
{
	mem->ssd = m->u.join.kv_ssd_storage;
	mem->capacity = m->u.join.capacity;
	mem->ssd_capacity = m->u.join.ssd_capacity;
	mem->sign_ns = c->now_ns;
	m->tomb_tag = m->u.join.tomb_tag = mem->tomb_tag;
}

static int join_again(struct core *c, struct member *mem, struct msg *m)
{
	int r = set_name(mem, m);

	if (!r)
		r = resume_start(c, mem, m);
	if (!r)
		take_join(c, mem, m);
	return r;
}

/* What the node was before goes, if the catalogue gave it anything. */
static int end_earlier(struct core *c, struct member *mem)
{
	return mem->loaded || mem->awaited ? member_gone(c, mem) : 0;
}

int op_join(struct core *c, struct msg *m)
{
	struct write_rec rec;
	struct member *mem;
	int r = join_check(c, m);

	if (r < 0)
		return r;
	mem = member_make(c, m->node);
	if (!mem)
		return -ENOMEM;
	if (resume_wanted(mem, m))
		return join_again(c, mem, m);
	if (end_earlier(c, mem) < 0 || step_room(c, 1, KEY_MAX) < 0)
		return -ENOMEM;
	if (set_name(mem, m) < 0)
		return -ENOMEM;
	/* From here on whatever still comes from an earlier incarnation is stale. */
	mem->live = true;
	mem->ended = false;
	mem->tomb_tag = step_id(c);
	take_join(c, mem, m);
	lease_joined(c, mem);
	member_record(mem, &rec);
	step_write(c, &rec);
	return 0;
}

int op_heartbeat(struct core *c, struct msg *m)
{
	struct member *mem = member_joined(c, m->node);

	if (m->u.heartbeat.capacity > CAPACITY_MAX || m->u.heartbeat.ssd_capacity > CAPACITY_MAX)
		return -EINVAL;
	mem->capacity = m->u.heartbeat.capacity;
	mem->zombie = m->u.heartbeat.zombie;
	mem->ssd_capacity = m->u.heartbeat.ssd_capacity;
	mem->ssd_used = m->u.heartbeat.ssd_used;
	m->u.heartbeat.master_ns = c->now_ns;
	m->u.heartbeat.lease_ns = mem->live ? lease_renew(c, mem) : 0;
	return 0;
}

int op_leave(struct core *c, struct msg *m)
{
	struct member *mem = c->members[m->node];

	return mem->live || mem->awaited ? member_gone(c, mem) : 0;
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
