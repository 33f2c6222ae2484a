/* SPDX-License-Identifier: Apache-2.0 */
#include "master/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "master/attrs.h"
#include "master/gets.h"
#include "master/holds.h"
#include "master/inode.h"
#include "master/inventory.h"
#include "master/lease.h"
#include "master/ledger.h"
#include "master/members.h"
#include "master/misses.h"
#include "master/names.h"
#include "master/namespaces.h"
#include "master/puts.h"
#include "master/recent.h"
#include "master/replicas.h"
#include "master/resume.h"
#include "master/space.h"
#include "master/state.h"
#include "master/step.h"
#include "master/version.h"
#include "master/waits.h"

#define DIRTY_NS NS_PER_SEC /* times of directories reach the catalogue so much later */
#define ID_BLOCK_MIN 256u

static uint64_t or_default(uint64_t v, uint64_t def)
{
	return v ? v : def;
}

static void configure(struct core *c, const struct core_config *cfg)
{
	struct core_config *k = &c->cfg;

	*k = *cfg;
	k->default_block_size = or_default(k->default_block_size, 64ull << 20);
	k->put_deadline_ns = or_default(k->put_deadline_ns, 60 * NS_PER_SEC);
	k->get_deadline_ns = or_default(k->get_deadline_ns, 60 * NS_PER_SEC);
	k->max_inodes = or_default(k->max_inodes, 64ull << 20);
	k->max_xattr_bytes = or_default(k->max_xattr_bytes, 256ull << 20);
	k->max_namespaces = (uint32_t)or_default(k->max_namespaces, 65536);
	k->id_block = or_default(k->id_block, 1ull << 20);
	if (k->id_block < ID_BLOCK_MIN)
		k->id_block = ID_BLOCK_MIN;
	/* One that is dead has no lease any more. */
	if (k->dead_after_ns && k->lease_ns > k->dead_after_ns)
		k->lease_ns = k->dead_after_ns;
	k->root_mode = (uint32_t)or_default(k->root_mode, 0755);
}

struct core *core_new(const struct core_config *cfg)
{
	struct core *c = calloc(1, sizeof(*c));
	struct inode *root;

	if (!c)
		return NULL;
	configure(c, cfg);
	list_init(&c->tickets_fifo);
	list_init(&c->gets_fifo);
	leases_init(c);
	holds_init(c);
	waits_init(c);
	if (puts_init(c) < 0 || gets_init(c) < 0 || looses_init(c) < 0 || xattrs_init(c) < 0 || misses_init(c) < 0 ||
	    inodes_init(c) < 0)
		return core_free(c);
	root = inode_get(c, c->root);
	root->mode = (uint16_t)(S_IFDIR | (c->cfg.root_mode & 07777));
	root->uid = c->cfg.root_uid;
	root->gid = c->cfg.root_gid;
	c->next_id = c->id_limit = c->id_safe = MSG_ROOT_DIR + 1;
	c->next_ns = 1;
	return c;
}

struct core *core_free(struct core *c)
{
	if (!c)
		return NULL;
	inodes_fini(c);
	puts_fini(c);
	gets_fini(c);
	looses_fini(c);
	xattrs_fini(c);
	waits_fini(c);
	leases_fini(c);
	holds_fini(c);
	spaces_fini(c);
	members_fini(c);
	resume_fini(c);
	free(c->misses);
	free(c->heap);
	free(c->after);
	for (size_t k = 0; k < c->n_loading; k++)
		free(c->loading[k].name);
	free(c->loading);
	free(c);
	return NULL;
}

struct op {
	int (*fn)(struct core *c, struct msg *m);
	bool draws_ids;
	bool moves; /* names, so that it may have to wait for others to know */
};

static const struct op ops[MSG_TYPES] = {
    [MSG_JOIN] = {op_join, true, false},
    [MSG_HEARTBEAT] = {op_heartbeat, false, false},
    [MSG_LEAVE] = {op_leave, false, false},
    [MSG_INVENTORY] = {op_inventory, false, false},
    [MSG_PUT_RESUME] = {op_put_resume, false, false},
    [MSG_LOOKUP] = {op_lookup, false, false},
    [MSG_GETATTR] = {op_getattr, false, false},
    [MSG_SETATTR] = {op_setattr, false, false},
    [MSG_READDIR] = {op_readdir, false, false},
    [MSG_MKDIR] = {op_mkdir, true, false},
    [MSG_RMDIR] = {op_rmdir, false, true},
    [MSG_RENAME] = {op_rename, true, true},
    [MSG_DELETE] = {op_delete, false, true},
    [MSG_GETXATTRS] = {op_getxattrs, false, false},
    [MSG_SETXATTRS] = {op_setxattrs, false, false},
    [MSG_STATFS] = {op_statfs, false, false},
    [MSG_NS_CREATE] = {op_ns_create, true, false},
    [MSG_NS_SET] = {op_ns_set, false, false},
    [MSG_NS_LIST] = {op_ns_list, false, false},
    [MSG_NS_REMOVE] = {op_ns_remove, false, false},
    [MSG_PUT_START] = {op_put_start, true, false},
    [MSG_PUT_EXTEND] = {op_put_extend, true, false},
    [MSG_PUT_RESERVE] = {op_put_reserve, false, false},
    [MSG_PUT_DONE] = {op_put_done, true, true},
    [MSG_PUT_REVOKE] = {op_put_revoke, false, false},
    [MSG_PUT_RENEW] = {op_put_renew, false, false},
    [MSG_GET_START] = {op_get_start, true, false},
    [MSG_GET_DONE] = {op_get_done, false, false},
    [MSG_GET_REVOKE] = {op_get_revoke, false, false},
    [MSG_SSD_COMMIT] = {op_ssd_commit, false, false},
    [MSG_SSD_EVICT] = {op_ssd_evict, false, false},
    [MSG_MEM_EVICT] = {op_mem_evict, false, false},
    [MSG_DELETE_ACK] = {op_delete_ack, false, false},
    [MSG_ALLOC_FREED] = {op_alloc_freed, false, false},
    [MSG_HOLD] = {op_hold, false, false},
    [MSG_RELEASE] = {op_release, false, false},
    [MSG_REVOKE_ACK] = {op_revoke_ack, false, false},
};

/* What one that is coming back may say before its inventory is in. */
static bool is_of_resume(enum msg_type type)
{
	return type == MSG_HEARTBEAT || type == MSG_INVENTORY || type == MSG_PUT_RESUME;
}

/* A node speaks for its live incarnation only; one that has left may be told once more that it has. */
static int check_sender(const struct core *c, const struct msg *m)
{
	const struct member *mem = m->node < c->n_members ? c->members[m->node] : NULL;

	if (m->type == MSG_JOIN)
		return 0;
	if (!mem || !m->tomb_tag || mem->tomb_tag != m->tomb_tag)
		return -ESTALE;
	if (mem->live || m->type == MSG_LEAVE)
		return 0;
	if (!mem->awaited)
		return -ESTALE;
	return mem->inventory && is_of_resume(m->type) ? 0 : -EUNATCH;
}

static int dispatch(struct core *c, struct msg *m)
{
	const struct op *op = (unsigned)m->type < MSG_TYPES ? &ops[m->type] : NULL;
	struct member *mem;
	int r = check_sender(c, m);

	if (r < 0)
		return r;
	if (!op || !op->fn)
		return -EOPNOTSUPP;
	mem = member_joined(c, m->node);
	/* A node that wants to come back must not keep its dead incarnation alive by asking. */
	if (mem && m->type != MSG_JOIN)
		mem->sign_ns = c->now_ns;
	r = op->draws_ids ? step_ids_ready(c) : 0;
	return r < 0 ? r : op->fn(c, m);
}

void step_do(struct core *c, struct msg *m)
{
	c->answer_after_commit = false;
	c->n_names = 0;
	m->status = dispatch(c, m);
}

static void step_begin(struct core *c, uint64_t now_ns, int64_t real_ns, struct core_out *out)
{
	if (now_ns > c->now_ns)
		c->now_ns = now_ns;
	if (!c->started)
		c->hold_ns = c->now_ns + c->cfg.lease_ns;
	c->started = true;
	c->real_ns = real_ns;
	c->out = out;
	c->answer_after_commit = false;
}

bool core_has_done(const struct core *c, const struct msg *in)
{
	return check_sender(c, in) >= 0 && (recent_has(c, in) || waits_has(c, in));
}

/* It has come before. 1: it is the answer; 0: it waits for it; -ENOMEM. */
static int come_again(struct core *c, struct msg *in)
{
	struct member *mem = member_joined(c, in->node);

	/* As in dispatch(). */
	if (in->type != MSG_JOIN)
		mem->sign_ns = c->now_ns;
	if (waits_has(c, in))
		return wait_with_first(c, in);
	/* The first answer may still wait for the catalogue. */
	c->answer_after_commit = true;
	return recent_answer(c, in);
}

static bool moves_names(const struct core *c, const struct msg *in)
{
	return c->cfg.lease_ns && (unsigned)in->type < MSG_TYPES && ops[in->type].moves && check_sender(c, in) >= 0;
}

int core_handle(struct core *c, struct msg *in, uint64_t now_ns, int64_t real_ns, struct core_out *out)
{
	bool moves;
	int r;

	step_begin(c, now_ns, real_ns, out);
	r = step_answer_room(c);
	if (r < 0)
		return r;
	if (core_has_done(c, in)) {
		r = come_again(c, in);
		if (r >= 0)
			step_end(c, r ? in : NULL);
		return r < 0 ? r : 0;
	}
	moves = moves_names(c, in);
	if (moves && wait_room(c) < 0)
		return -ENOMEM;
	if (moves && wait_held(c, in)) {
		step_end(c, NULL);
		return 0;
	}
	step_do(c, in);
	step_end(c, in);
	return 0;
}

/* The times of directories that changed go to the catalogue. */
static int dirty_write(struct core *c)
{
	while (!list_empty(&c->dirty)) {
		struct dir *d = list_first(&c->dirty, struct dir, dirty);

		if (step_room(c, 1, MSG_NAME_MAX) < 0)
			return -ENOMEM;
		list_del(&d->dirty);
		step_write_inode(c, inode_get(c, d->self));
	}
	return 0;
}

/* Once in a while. Returns the nanoseconds until the next time. */
static uint64_t dirty_tick(struct core *c)
{
	if (list_empty(&c->dirty))
		return UINT64_MAX;
	if (c->now_ns - c->dirty_ns < DIRTY_NS)
		return DIRTY_NS - (c->now_ns - c->dirty_ns);
	c->dirty_ns = c->now_ns;
	return dirty_write(c) < 0 ? DIRTY_NS : UINT64_MAX;
}

void core_flush(struct core *c, struct core_out *out)
{
	c->out = out;
	dirty_write(c);
	waits_give_up(c);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t core_tick(struct core *c, uint64_t now_ns, int64_t real_ns, struct core_out *out)
{
	uint64_t next;

	step_begin(c, now_ns, real_ns, out);
	next = tickets_tick(c);
	next = sooner(next, gets_tick(c));
	next = sooner(next, members_tick(c));
	next = sooner(next, resume_tick(c));
	next = sooner(next, versions_expire(c));
	next = sooner(next, versions_repeat(c));
	next = sooner(next, leases_tick(c));
	next = sooner(next, waits_tick(c));
	next = sooner(next, dirty_tick(c));
	step_end(c, NULL);
	if (c->drops_lost)
		next = 0;
	/* The real clock may be set, so nobody sleeps for long on what it says. */
	return next == UINT64_MAX ? next : sooner(next, NS_TICK_MAX);
}

int core_ledger(const struct core *c, uint32_t node, struct core_ledger *ret)
{
	const struct member *mem = node < c->n_members ? c->members[node] : NULL;

	if (!mem)
		return -ENOENT;
	*ret = (struct core_ledger){mem->capacity, mem->zombie, mem->used, mem->reserved};
	return 0;
}

void core_counts(const struct core *c, struct core_counts *ret)
{
	*ret = (struct core_counts){
	    .objects = c->n_objects,
	    .directories = c->n_dirs,
	    .namespaces = c->n_spaces,
	    .orphans = c->n_orphans,
	    .tickets = c->tickets.used,
	    .gets = c->gets.used,
	    .loose = c->loose_by_alloc.count,
	    .holds = c->holds_by_put.count,
	    .waiting = c->waits_by_req.count,
	    .next_id = c->next_id,
	    .memory = inodes_memory(c),
	};
	for (uint32_t n = 1; n < c->n_members; n++)
		if (member_live(c, n))
			ret->revokes += c->members[n]->n_revokes + (c->members[n]->all_from != 0);
}
