/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain model: arrays and loops, no index, no sharing, nothing that is fast. It says what each answer must be and
 * what the core must hold afterwards; ids are the core's to draw, but they must be new.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/hash.h"
#include "tests/sim/sim.h"

/* ---- looking ----------------------------------------------------------------------------------------------- */

struct m_version *model_version(struct sim *s, uint64_t id)
{
	for (unsigned k = 0; k < M_VERSIONS; k++)
		if (id && s->model.versions[k].id == id)
			return &s->model.versions[k];
	return NULL;
}

struct m_name *model_name(struct sim *s, uint64_t dir, const char *name)
{
	for (unsigned k = 0; k < M_NAMES; k++)
		if (s->model.names[k].dir == dir && dir && !strcmp(s->model.names[k].name, name))
			return &s->model.names[k];
	return NULL;
}

static struct m_name *name_of_id(struct sim *s, uint64_t id)
{
	for (unsigned k = 0; k < M_NAMES; k++)
		if (s->model.names[k].dir && s->model.names[k].id == id)
			return &s->model.names[k];
	return NULL;
}

/* 0, -ENOENT, -ENOTDIR. */
static int dir_err(struct sim *s, uint64_t id)
{
	struct m_name *n = name_of_id(s, id);

	if (id == MSG_ROOT_DIR || (n && n->is_dir))
		return 0;
	return model_version(s, id) ? -ENOTDIR : -ENOENT;
}

/* The root of the namespace that a directory is in; 0: none. */
static uint64_t ns_of(struct sim *s, uint64_t dir)
{
	struct m_name *n;

	while (dir != MSG_ROOT_DIR) {
		n = name_of_id(s, dir);
		if (!n || n->dir == MSG_ROOT_DIR)
			return n ? dir : 0;
		dir = n->dir;
	}
	return 0;
}

static unsigned names_in(struct sim *s, uint64_t dir)
{
	unsigned n = 0;

	for (unsigned k = 0; k < M_NAMES; k++)
		n += s->model.names[k].dir == dir;
	return n;
}

static struct m_ticket *ticket(struct sim *s, uint64_t id, uint32_t node)
{
	for (unsigned k = 0; k < M_TICKETS; k++)
		if (id && s->model.tickets[k].id == id && s->model.tickets[k].node == node)
			return &s->model.tickets[k];
	return NULL;
}

static struct m_ticket *reserved_by(struct sim *s, uint64_t dir, const char *name)
{
	for (unsigned k = 0; k < M_TICKETS; k++) {
		struct m_ticket *t = &s->model.tickets[k];

		if (t->id && t->excl_dir == dir && !strcmp(t->excl, name))
			return t;
	}
	return NULL;
}

static struct m_get *get(struct sim *s, uint64_t id, uint32_t node)
{
	for (unsigned k = 0; k < M_GETS; k++)
		if (id && s->model.gets[k].id == id && s->model.gets[k].node == node)
			return &s->model.gets[k];
	return NULL;
}

static uint64_t pages(uint64_t n)
{
	return (n + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
}

static uint64_t len_of(const struct m_version *v, uint32_t block)
{
	return block + 1 < v->blocks ? SIM_BLOCK : v->size - block * SIM_BLOCK;
}

uint64_t model_used(struct sim *s, uint32_t node)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < M_VERSIONS; k++)
		for (unsigned b = 0; b < SIM_BLOCKS; b++)
			if (s->model.versions[k].id && s->model.versions[k].r[node][b].alloc)
				sum += pages(len_of(&s->model.versions[k], b));
	for (unsigned k = 0; k < M_LOOSE; k++)
		if (s->model.loose[k].alloc && s->model.loose[k].node == node)
			sum += s->model.loose[k].bytes;
	return sum;
}

uint64_t model_reserved(struct sim *s, uint32_t node)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < M_TICKETS; k++)
		for (unsigned b = 0; b < SIM_BLOCKS; b++)
			if (s->model.tickets[k].id && s->model.tickets[k].node == node)
				sum += s->model.tickets[k].g[b].bytes;
	for (unsigned k = 0; k < M_GETS; k++)
		if (s->model.gets[k].id && s->model.gets[k].node == node)
			sum += s->model.gets[k].bytes;
	return sum;
}

uint64_t model_charge(struct sim *s, uint32_t node, uint64_t alloc)
{
	for (unsigned k = 0; k < M_VERSIONS; k++)
		for (unsigned b = 0; b < SIM_BLOCKS; b++)
			if (s->model.versions[k].id && s->model.versions[k].r[node][b].alloc == alloc)
				return pages(len_of(&s->model.versions[k], b));
	for (unsigned k = 0; k < M_LOOSE; k++)
		if (s->model.loose[k].alloc == alloc && s->model.loose[k].node == node)
			return s->model.loose[k].bytes;
	for (unsigned k = 0; k < M_TICKETS; k++)
		for (unsigned b = 0; b < SIM_BLOCKS; b++)
			if (s->model.tickets[k].id && s->model.tickets[k].node == node &&
			    s->model.tickets[k].g[b].alloc == alloc)
				return s->model.tickets[k].g[b].bytes;
	for (unsigned k = 0; k < M_GETS; k++)
		if (s->model.gets[k].id && s->model.gets[k].node == node && s->model.gets[k].alloc == alloc)
			return s->model.gets[k].bytes;
	return 0;
}

static uint64_t total(struct sim *s, uint32_t node)
{
	const struct m_member *m = &s->model.members[node];

	return m->capacity > m->zombie ? m->capacity - m->zombie : 0;
}

static uint64_t room(struct sim *s, uint32_t node)
{
	uint64_t taken = model_used(s, node) + model_reserved(s, node);

	return total(s, node) > taken ? total(s, node) - taken : 0;
}

/* Whether any node has the block; `but` on that tier does not count (0: all count). */
static bool has_block(const struct m_version *v, uint32_t b, uint32_t but, bool but_mem)
{
	for (unsigned n = 1; n <= SIM_NODES; n++) {
		if (v->r[n][b].alloc && !(n == but && but_mem))
			return true;
		if (v->r[n][b].ssd && !(n == but && !but_mem))
			return true;
	}
	return false;
}

static bool has_any(const struct m_version *v)
{
	for (unsigned b = 0; b < SIM_BLOCKS; b++)
		if (has_block(v, b, 0, false))
			return true;
	return false;
}

/* ---- ids --------------------------------------------------------------------------------------------------- */

void model_new_id(struct sim *s, uint64_t id, const char *what)
{
	size_t at = id / 8;

	if (id >> 32)
		sim_fail(s, "%s %llu: too large to be true", what, (unsigned long long)id);
	if (at >= s->ids_len) {
		size_t len = at * 2 + 4096;

		s->ids = realloc(s->ids, len);
		memset(s->ids + s->ids_len, 0, len - s->ids_len);
		s->ids_len = len;
	}
	if (s->ids[at] & 1u << id % 8)
		sim_fail(s, "%s %llu: that id has been given out before", what, (unsigned long long)id);
	s->ids[at] |= (uint8_t)(1u << id % 8);
}

/* ---- changing ---------------------------------------------------------------------------------------------- */

#define TAKE(s, array, n, field)                                                                                       \
	({                                                                                                             \
		unsigned at_ = 0;                                                                                      \
		while (at_ < (n) && (array)[at_].field)                                                                \
			at_++;                                                                                         \
		if (at_ == (n))                                                                                        \
			sim_fail(s, "the model is too small");                                                         \
		memset(&(array)[at_], 0, sizeof((array)[0]));                                                          \
		&(array)[at_];                                                                                         \
	})

/* ---- what names have stood for ----------------------------------------------------------------------------- */

static struct m_state *state_of(struct sim *s, uint64_t dir, const char *name)
{
	uint64_t at = hash_u64(dir * 31 + hash_bytes(name, strlen(name), 5)) % M_STATES;

	for (unsigned k = 0; k < M_STATES; k++, at = (at + 1) % M_STATES) {
		struct m_state *st = &s->model.states[at];

		if (st->dir == dir && !strcmp(st->name, name))
			return st;
		if (st->dir)
			continue;
		st->dir = dir;
		strcpy(st->name, name);
		return st;
	}
	sim_fail(s, "the model is too small");
}

/* id 0: it stands for nothing. */
static void change(struct sim *s, uint64_t dir, const char *name, uint64_t id)
{
	struct m_state *st = state_of(s, dir, name);

	st->change[st->n_changes % M_CHANGES].no = ++s->model.n_changes;
	st->change[st->n_changes++ % M_CHANGES].id = id;
	sim_log(s, "change %llu: %s in %llu is %llu", (unsigned long long)s->model.n_changes, name,
		(unsigned long long)dir, (unsigned long long)id);
}

static uint64_t last_change(const struct m_state *st)
{
	return st->n_changes ? st->change[(st->n_changes - 1) % M_CHANGES].no : 0;
}

/* The request has changed the name: when its answer has come, everybody may know. */
static void will_be_told(struct sim *s, const struct msg *req, uint64_t dir, const char *name)
{
	struct m_state *st = state_of(s, dir, name);

	s->model.told[s->model.n_told++ % M_TOLD] = (struct m_told){req->req_id, last_change(st), st};
}

void model_told(struct sim *s, uint64_t req_id)
{
	for (unsigned k = 0; k < M_TOLD; k++) {
		const struct m_told *t = &s->model.told[k];

		if (t->req_id != req_id || !t->state || t->no <= t->state->floor)
			continue;
		t->state->floor = t->no;
		sim_log(s, "change %llu is told", (unsigned long long)t->no);
	}
}

bool model_may_see(struct sim *s, uint64_t dir, const char *name, uint64_t id)
{
	const struct m_state *st = state_of(s, dir, name);

	for (unsigned k = 0; k < M_CHANGES; k++)
		if (st->change[k].id == id && st->change[k].no >= st->floor)
			return true;
	return !st->floor;
}

static void add_name(struct sim *s, uint64_t dir, const char *name, uint64_t id, bool is_dir)
{
	struct m_name *n = TAKE(s, s->model.names, M_NAMES, dir);

	n->dir = dir;
	n->id = id;
	n->is_dir = is_dir;
	strcpy(n->name, name);
	change(s, dir, name, id);
}

void model_add_loose(struct sim *s, uint32_t node, uint64_t alloc, uint64_t bytes, uint64_t put)
{
	struct m_loose *l = TAKE(s, s->model.loose, M_LOOSE, alloc);

	*l = (struct m_loose){.alloc = alloc, .bytes = bytes, .put = put, .node = node};
}

static void free_loose(struct sim *s, uint32_t node, uint64_t alloc, uint64_t put)
{
	for (unsigned k = 0; k < M_LOOSE; k++) {
		struct m_loose *l = &s->model.loose[k];

		if (l->alloc && l->node == node && (alloc ? l->alloc == alloc : !put || l->put == put))
			l->alloc = 0;
	}
}

/* The version has no name any more. */
void model_unname(struct sim *s, struct m_version *v)
{
	struct m_name *n = name_of_id(s, v->id);

	if (n) {
		change(s, n->dir, n->name, 0);
		n->dir = 0;
	}
	v->orphan = true;
	if (!has_any(v))
		v->id = 0;
}

void model_reap(struct m_version *v)
{
	if (v->orphan && !has_any(v))
		v->id = 0;
}

static void end_dir(struct sim *s, struct m_name *n)
{
	if (s->n_ended_dirs < sizeof(s->ended_dirs) / sizeof(s->ended_dirs[0]))
		s->ended_dirs[s->n_ended_dirs++] = n->id;
	change(s, n->dir, n->name, 0);
	n->dir = 0;
}

static void remember_late(struct sim *s, uint64_t alloc)
{
	if (alloc)
		s->late.expired[s->late.n++ % 64] = alloc;
}

static void end_ticket(struct sim *s, struct m_ticket *t, bool late)
{
	for (unsigned b = 0; b < SIM_BLOCKS; b++)
		if (late)
			remember_late(s, t->g[b].alloc);
	t->id = 0;
}

void model_grants_gone(struct sim *s, uint32_t node)
{
	for (unsigned k = 0; k < M_TICKETS; k++)
		if (s->model.tickets[k].node == node)
			s->model.tickets[k].id = 0;
	for (unsigned k = 0; k < M_GETS; k++)
		if (s->model.gets[k].id && (s->model.gets[k].node == node || s->model.gets[k].source_node == node)) {
			remember_late(s, s->model.gets[k].alloc);
			s->model.gets[k].id = 0;
		}
	free_loose(s, node, 0, 0);
}

void model_member_gone(struct sim *s, uint32_t node)
{
	struct m_member *m = &s->model.members[node];

	m->live = m->awaited = m->resuming = false;
	model_grants_gone(s, node);
	for (unsigned k = 0; k < M_VERSIONS; k++) {
		struct m_version *v = &s->model.versions[k];
		bool empty = !v->blocks && v->home == node;

		if (!v->id)
			continue;
		v->held[node] = false;
		memset(v->r[node], 0, sizeof(v->r[node]));
		memset(v->said[node], 0, sizeof(v->said[node]));
		if (v->orphan) {
			model_reap(v);
		} else if (empty || (!s->model.recovering && model_is_lost(v))) {
			model_check_loss(s, v);
			model_unname(s, v);
		}
	}
	model_settle(s);
}

bool model_was_acked(const struct sim *s, uint64_t id)
{
	return s->acked[id % SIM_DELETED] == id;
}

void model_tick(struct sim *s)
{
	for (unsigned k = 0; k < M_TICKETS; k++) {
		struct m_ticket *t = &s->model.tickets[k];

		if (t->id && s->now - t->sign >= SIM_PUT_DEADLINE)
			end_ticket(s, t, true);
	}
	for (unsigned k = 0; k < M_GETS; k++) {
		struct m_get *g = &s->model.gets[k];

		if (g->id && s->now - g->start >= SIM_GET_DEADLINE) {
			remember_late(s, g->alloc);
			g->id = 0;
		}
	}
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		if (s->model.members[n].live && s->now - s->model.members[n].sign >= SIM_DEAD_AFTER)
			model_member_gone(s, n);
	model_resume_tick(s);
	for (unsigned k = 0; k < M_VERSIONS; k++) {
		struct m_version *v = &s->model.versions[k];

		if (v->id && !v->orphan && v->expires && v->expires <= s->real)
			model_unname(s, v);
	}
}

void model_restart(struct sim *s, struct core *loaded)
{
	struct writes w = {0};
	const struct write_rec *rec;
	size_t pos = 0;
	char name[16];

	memset(s->model.names, 0, sizeof(s->model.names));
	memset(s->model.versions, 0, sizeof(s->model.versions));
	s->model.recovering = false;
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		model_member_gone(s, n);
	if (core_dump(loaded, &w) < 0)
		sim_fail(s, "no memory");
	while ((rec = writes_next(&w, &pos)))
		if ((rec->type == WRITE_DIR && rec->u.inode.id != MSG_ROOT_DIR) ||
		    (rec->type == WRITE_OBJECT && s->resumes)) {
			memcpy(name, rec->data, rec->len);
			name[rec->len] = '\0';
			add_name(s, rec->u.inode.parent, name, rec->u.inode.id, rec->type == WRITE_DIR);
		}
	if (s->resumes)
		model_load(s, &w);
	writes_free(&w);
	for (unsigned k = 0; k < M_STATES; k++) {
		struct m_state *st = &s->model.states[k];

		if (st->dir && !model_name(s, st->dir, st->name))
			change(s, st->dir, st->name, 0);
	}
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

/* Fails unless the answer has this status. True if it is 0. */
static bool expect(struct sim *s, const struct msg *ans, int status)
{
	if (ans->status != status)
		sim_fail(s, "%s from node %u: answered %d, not %d", msg_type_name(ans->type), ans->node, ans->status,
			 status);
	return !status;
}

static void join(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_member *m = &s->model.members[req->node];

	if (model_joins_again(s, req, ans) || !expect(s, ans, m->live || m->resuming ? -EBUSY : 0))
		return;
	if (m->awaited)
		model_member_gone(s, req->node);
	model_new_id(s, ans->u.join.tomb_tag, "tomb_tag");
	*m = (struct m_member){.live = true,
			       .ssd = req->u.join.kv_ssd_storage,
			       .tag = ans->u.join.tomb_tag,
			       .capacity = req->u.join.capacity,
			       .sign = s->now};
}

static int lookup_err(struct sim *s, uint64_t dir, const char *name, struct m_name **ret)
{
	int r = dir_err(s, dir);

	*ret = r ? NULL : model_name(s, dir, name);
	return r ? r : *ret ? 0 : -ENOENT;
}

static void check_entry(struct sim *s, const struct m_name *n, const struct msg *ans)
{
	const struct msg_attr *a = &ans->u.entry.a;
	const struct m_version *v = n->is_dir ? NULL : model_version(s, n->id);

	if (a->id != n->id || a->kind != (n->is_dir ? MSG_KIND_DIR : MSG_KIND_FILE))
		sim_fail(s, "%s: tells %llu, not %llu", msg_type_name(ans->type), (unsigned long long)a->id,
			 (unsigned long long)n->id);
	if (v && (a->size != v->size || a->storage_id != v->ticket || a->expires_ns != v->expires ||
		  (a->flags == MSG_ATTR_PIN) != v->pin))
		sim_fail(s, "%s: attributes of %llu", msg_type_name(ans->type), (unsigned long long)a->id);
}

static void lookup(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_name *n;

	if (expect(s, ans, lookup_err(s, req->u.name.dir, req->u.name.name, &n)))
		check_entry(s, n, ans);
}

static void mkdir_op(struct sim *s, const struct msg *req, const struct msg *ans)
{
	uint64_t dir = req->u.name.dir;
	struct m_name *n;
	int r = lookup_err(s, dir, req->u.name.name, &n);

	if (r == -ENOENT && !dir_err(s, dir))
		r = reserved_by(s, dir, req->u.name.name) ? -EEXIST : 0;
	else if (!r)
		r = -EEXIST;
	if (!expect(s, ans, r))
		return;
	model_new_id(s, ans->u.entry.a.id, "directory");
	add_name(s, dir, req->u.name.name, ans->u.entry.a.id, true);
}

static void rmdir_op(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_name *n;
	int r = lookup_err(s, req->u.name.dir, req->u.name.name, &n);

	if (!r)
		r = !n->is_dir ? -ENOTDIR : names_in(s, n->id) ? -ENOTEMPTY : 0;
	if (!expect(s, ans, r))
		return;
	check_entry(s, n, ans);
	end_dir(s, n);
	will_be_told(s, req, req->u.name.dir, req->u.name.name);
}

static void delete_op(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_name *n;
	int r = lookup_err(s, req->u.name.dir, req->u.name.name, &n);

	if (!r && n->is_dir)
		r = -EISDIR;
	if (!expect(s, ans, r))
		return;
	check_entry(s, n, ans);
	model_unname(s, model_version(s, n->id));
	will_be_told(s, req, req->u.name.dir, req->u.name.name);
}

static bool is_above(struct sim *s, uint64_t id, uint64_t dir)
{
	while (dir != id && dir != MSG_ROOT_DIR)
		dir = name_of_id(s, dir)->dir;
	return dir == id;
}

static int rename_err(struct sim *s, const struct msg *req, struct m_name **from, struct m_name **to)
{
	uint64_t fd = req->u.rename.from_dir, td = req->u.rename.to_dir;
	int r = dir_err(s, fd);

	if (!r)
		r = dir_err(s, td);
	if (r)
		return r;
	*from = model_name(s, fd, req->u.rename.from);
	*to = model_name(s, td, req->u.rename.to);
	if (!*from)
		return -ENOENT;
	if (!ns_of(s, fd) && !ns_of(s, td))
		return -EPERM;
	if (ns_of(s, fd) != ns_of(s, td))
		return -EXDEV;
	if (*from == *to)
		return req->u.rename.noreplace ? -EEXIST : 0;
	if ((*from)->is_dir && is_above(s, (*from)->id, td))
		return -EINVAL;
	if (((*from)->is_dir || req->u.rename.noreplace) && reserved_by(s, td, req->u.rename.to))
		return -EEXIST;
	if (!*to)
		return 0;
	if (req->u.rename.noreplace)
		return -EEXIST;
	if (!(*from)->is_dir)
		return (*to)->is_dir ? -EISDIR : 0;
	if (!(*to)->is_dir)
		return -ENOTDIR;
	return names_in(s, (*to)->id) ? -ENOTEMPTY : 0;
}

static void rename_op(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_name *from = NULL, *to = NULL;

	if (!expect(s, ans, rename_err(s, req, &from, &to)) || from == to)
		return;
	if (ans->u.rename.replaced_id != (to ? to->id : 0))
		sim_fail(s, "Rename: tells that it replaced %llu", (unsigned long long)ans->u.rename.replaced_id);
	if (to && to->is_dir)
		end_dir(s, to);
	else if (to)
		model_unname(s, model_version(s, to->id));
	change(s, from->dir, from->name, 0);
	will_be_told(s, req, from->dir, from->name);
	from->dir = req->u.rename.to_dir;
	strcpy(from->name, req->u.rename.to);
	change(s, from->dir, from->name, from->id);
	will_be_told(s, req, from->dir, from->name);
}

static void setattr(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_version *v = model_version(s, req->u.attr.a.id);
	struct m_name *n = name_of_id(s, req->u.attr.a.id);
	int r = v || n ? 0 : -ENOENT;

	if (!r && !v && (req->u.attr.mask & (MSG_SET_PIN | MSG_SET_TTL)))
		r = -EOPNOTSUPP;
	if (!expect(s, ans, r) || !v)
		return;
	if (req->u.attr.mask & MSG_SET_PIN)
		v->pin = req->u.attr.a.flags & MSG_ATTR_PIN;
	if (req->u.attr.mask & MSG_SET_TTL)
		v->expires = req->u.attr.a.expires_ns;
}

static void readdir_op(struct sim *s, const struct msg *req, const struct msg *ans)
{
	if (!expect(s, ans, dir_err(s, req->u.readdir.dir)) || req->u.readdir.cookie)
		return;
	if (!ans->u.readdir.end || ans->n_ents != names_in(s, req->u.readdir.dir))
		sim_fail(s, "ReadDir: %zu names, not %u", ans->n_ents, names_in(s, req->u.readdir.dir));
	for (unsigned k = 0; k < ans->n_ents; k++) {
		struct m_name *n = model_name(s, req->u.readdir.dir, ans->ents[k].name);

		if (!n || n->id != ans->ents[k].attr.id || (k && ans->ents[k].cookie <= ans->ents[k - 1].cookie))
			sim_fail(s, "ReadDir: \"%s\"", ans->ents[k].name);
	}
}

static void expect_nospace(struct sim *s, uint64_t said_total, uint64_t said_free, uint32_t node)
{
	if (said_total != total(s, node) || said_free != room(s, node))
		sim_fail(s, "no space: says %llu free of %llu, not %llu of %llu", (unsigned long long)said_free,
			 (unsigned long long)said_total, (unsigned long long)room(s, node),
			 (unsigned long long)total(s, node));
}

static void put_start(struct sim *s, const struct msg *req, const struct msg *ans)
{
	uint64_t dir = req->u.put.dir, bytes = req->u.put.bytes;
	struct m_ticket *t;
	int r = dir_err(s, dir);

	bytes = pages(bytes > SIM_BLOCK ? SIM_BLOCK : bytes ? bytes : 1);
	if (!r && !ns_of(s, dir))
		r = -EPERM;
	if (!r && (req->u.put.flags & MSG_PUT_EXCL) &&
	    (model_name(s, dir, req->u.put.name) || reserved_by(s, dir, req->u.put.name)))
		r = -EEXIST;
	if (!r && bytes > room(s, req->node))
		r = -ENOSPC;
	if (!expect(s, ans, r)) {
		if (r == -ENOSPC)
			expect_nospace(s, ans->u.put.total, ans->u.put.free, req->node);
		return;
	}
	if (ans->items[0].bytes != bytes)
		sim_fail(s, "PutStart: grants %llu", (unsigned long long)ans->items[0].bytes);
	model_new_id(s, ans->u.put.ticket, "ticket");
	model_new_id(s, ans->items[0].alloc, "allocation");
	t = TAKE(s, s->model.tickets, M_TICKETS, id);
	t->id = ans->u.put.ticket;
	t->ns = ns_of(s, dir);
	t->node = req->node;
	t->sign = s->now;
	t->persist = s->model.members[req->node].ssd;
	if (ans->u.put.persist_to_ssd != t->persist)
		sim_fail(s, "PutStart: persist");
	t->g[0].alloc = ans->items[0].alloc;
	t->g[0].bytes = bytes;
	if (req->u.put.flags & MSG_PUT_EXCL) {
		t->excl_dir = dir;
		strcpy(t->excl, req->u.put.name);
	}
}

int model_put_dir(struct sim *s, uint64_t dir)
{
	int r = dir_err(s, dir);

	return r ? r : ns_of(s, dir) ? 0 : -EPERM;
}

bool model_name_taken(struct sim *s, uint64_t dir, const char *name)
{
	return model_name(s, dir, name) || reserved_by(s, dir, name);
}

void model_add_ticket(struct sim *s, const struct msg *req, bool reserve)
{
	struct m_ticket *t = TAKE(s, s->model.tickets, M_TICKETS, id);

	t->id = req->u.put.ticket;
	t->ns = ns_of(s, req->u.put.dir);
	t->node = req->node;
	t->sign = s->now;
	t->persist = req->u.put.persist_to_ssd;
	for (size_t k = 0; k < req->n_items; k++) {
		t->g[req->items[k].block].alloc = req->items[k].alloc;
		t->g[req->items[k].block].bytes = req->items[k].bytes;
	}
	if (reserve && (req->u.put.flags & MSG_PUT_EXCL)) {
		t->excl_dir = req->u.put.dir;
		strcpy(t->excl, req->u.put.name);
	}
}

static void put_extend(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_ticket *t = ticket(s, req->u.put.ticket, req->node);
	uint32_t b = req->items[0].block;
	uint64_t bytes = pages(req->items[0].bytes);
	int r = t ? 0 : -ESTALE;

	if (t) {
		t->sign = s->now;
		if (bytes > t->g[b].bytes && bytes - t->g[b].bytes > room(s, req->node))
			r = -ENOSPC;
	}
	if (!expect(s, ans, r)) {
		if (r == -ENOSPC)
			expect_nospace(s, ans->u.put.total, ans->u.put.free, req->node);
		return;
	}
	if (bytes && !t->g[b].alloc)
		model_new_id(s, ans->items[0].alloc, "allocation");
	if ((t->g[b].alloc && bytes && ans->items[0].alloc != t->g[b].alloc) || ans->items[0].bytes != bytes)
		sim_fail(s, "PutExtend: grants something else");
	t->g[b].bytes = bytes;
	t->g[b].alloc = bytes ? ans->items[0].alloc : 0;
}

static void publish(struct sim *s, const struct msg *req, const struct msg *ans, struct m_ticket *t)
{
	struct m_version *v = TAKE(s, s->model.versions, M_VERSIONS, id);
	struct m_name *old = model_name(s, req->u.put.dir, req->u.put.name);

	v->id = ans->u.entry.a.id;
	model_new_id(s, v->id, "put_id");
	if (v->id <= s->model.last_put)
		sim_fail(s, "put_id %llu is not above %llu", (unsigned long long)v->id,
			 (unsigned long long)s->model.last_put);
	s->model.last_put = v->id;
	v->ticket = t->id;
	v->size = req->u.put.bytes;
	v->blocks = (uint32_t)req->n_items;
	v->home = req->node;
	v->pin = req->u.put.attr.flags & MSG_ATTR_PIN;
	v->expires = req->u.put.attr.expires_ns;
	for (unsigned b = 0; b < v->blocks; b++) {
		v->r[req->node][b].alloc = req->items[b].flags & MSG_ITEM_MEM ? req->items[b].alloc : 0;
		v->r[req->node][b].ssd = req->items[b].flags & MSG_ITEM_SSD;
	}
	if (ans->u.entry.replaced_id != (old ? old->id : 0))
		sim_fail(s, "PutDone: tells that it replaced %llu", (unsigned long long)ans->u.entry.replaced_id);
	if (old)
		model_unname(s, model_version(s, old->id));
	add_name(s, req->u.put.dir, req->u.put.name, v->id, false);
	will_be_told(s, req, req->u.put.dir, req->u.put.name);
	end_ticket(s, t, false);
}

static void put_done(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_ticket *t = ticket(s, req->u.put.ticket, req->node);
	uint64_t dir = req->u.put.dir;
	struct m_name *old = model_name(s, dir, req->u.put.name);
	int r = t ? dir_err(s, dir) : -ESTALE;

	if (!t && model_put_was_done(s, req, ans))
		return;
	if (!r)
		r = !ns_of(s, dir) ? -EPERM : ns_of(s, dir) != t->ns ? -EXDEV : old && old->is_dir ? -EISDIR : 0;
	if (!r && (req->u.put.flags & MSG_PUT_NOREPLACE) && (old ? old->id : 0) != req->u.put.replaces)
		r = old ? -EEXIST : -ENOENT;
	if (expect(s, ans, r))
		publish(s, req, ans, t);
}

static void put_end(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_ticket *t = ticket(s, req->u.put.ticket, req->node);

	if (!expect(s, ans, t ? 0 : -ESTALE))
		return;
	if (req->type == MSG_PUT_REVOKE)
		end_ticket(s, t, false);
	else
		t->sign = s->now;
}

static struct m_failed *failed_slot(struct sim *s, uint64_t put, uint32_t block, uint32_t node)
{
	return &s->model.failed[hash_u64(put + ((uint64_t)block << 40) + ((uint64_t)node << 24)) & (M_FAILED - 1)];
}

static bool is_failed(struct sim *s, const struct m_version *v, uint32_t b, uint32_t node, uint32_t source)
{
	const struct m_failed *f = failed_slot(s, v->id, b, node);

	return f->put == v->id && f->block == b && f->node == node && f->source == source && s->now < f->until;
}

static uint32_t best_source(struct sim *s, const struct m_version *v, uint32_t b, uint32_t node, bool failed)
{
	uint32_t mem = 0, ssd = 0, best;

	if (v->r[node][b].alloc)
		return MSG_SOURCE_MEM_LOCAL;
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		if (n == node || !s->model.members[n].live || (!failed && is_failed(s, v, b, node, n)))
			continue;
		mem |= v->r[n][b].alloc != 0;
		ssd |= v->r[n][b].ssd;
	}
	if (mem)
		best = MSG_SOURCE_MEM_REMOTE;
	else if (v->r[node][b].ssd)
		best = MSG_SOURCE_SSD_LOCAL;
	else
		best = ssd ? MSG_SOURCE_SSD_REMOTE : MSG_SOURCE_NONE;
	return best == MSG_SOURCE_NONE && !failed ? best_source(s, v, b, node, true) : best;
}

static bool is_remote(uint32_t source)
{
	return source == MSG_SOURCE_MEM_REMOTE || source == MSG_SOURCE_SSD_REMOTE;
}

/* What the source will be shown must be true of it, and it must be the one that failed last only for want of another.
 */
static void check_plan(struct sim *s, const struct m_version *v, const struct msg *ans)
{
	uint32_t n = ans->u.get.source_node, b = ans->u.get.block;
	bool mem = ans->u.get.source == MSG_SOURCE_MEM_REMOTE;
	char address[32];

	if (!is_remote(ans->u.get.source))
		return;
	snprintf(address, sizeof(address), "node%u:7000", n);
	if (ans->u.get.source_tag != s->model.members[n].tag || !s->model.members[n].live ||
	    strcmp(ans->u.get.source_address, address) || ans->u.get.source_alloc != (mem ? v->r[n][b].alloc : 0) ||
	    ans->u.get.len != len_of(v, b) || ans->u.get.expires_ns != s->now + SIM_GET_DEADLINE)
		sim_fail(s, "GetStart: the plan for node %u, block %u of %llu", n, b, (unsigned long long)v->id);
	for (uint32_t o = 1; is_failed(s, v, b, ans->node, n) && o <= SIM_NODES; o++)
		if (o != n && (o == ans->node ? v->r[o][b].ssd : v->r[o][b].alloc || v->r[o][b].ssd))
			sim_fail(s, "GetStart: node %u again, though node %u has it", n, o);
}

/* Where the plan sends the reader, the bytes must be: in the node's own books, not only in the master's. */
static void check_source(struct sim *s, const struct m_version *v, const struct msg *ans)
{
	uint32_t n = ans->u.get.source_node, b = ans->u.get.block;
	bool mem = ans->u.get.source == MSG_SOURCE_MEM_LOCAL || ans->u.get.source == MSG_SOURCE_MEM_REMOTE;

	if (mem ? !v->r[n][b].alloc : !v->r[n][b].ssd)
		sim_fail(s, "GetStart: node %u has no such replica of %llu", n, (unsigned long long)v->id);
	/* A dropped one may be on its way out. */
	if (mem && !v->orphan && s->nodes[n].tag == s->model.members[n].tag &&
	    !node_has_block(&s->nodes[n], v->ticket, b, true))
		sim_fail(s, "GetStart: node %u has no bytes of %llu", n, (unsigned long long)v->id);
}

static void get_start(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_version *v = model_version(s, req->u.get.put_id);
	uint32_t b = req->u.get.block, source;
	struct m_get *g;
	int r = v ? 0 : -ENOENT;

	if (v && b >= v->blocks)
		r = -EINVAL;
	source = r ? MSG_SOURCE_NONE : best_source(s, v, b, req->node, false);
	if (!r && source == MSG_SOURCE_NONE)
		r = s->model.recovering ? -EAGAIN : -ENOENT;
	if (!r && source != MSG_SOURCE_MEM_LOCAL && pages(len_of(v, b)) > room(s, req->node))
		r = -ENOSPC;
	if (!expect(s, ans, r)) {
		if (r == -ENOSPC)
			expect_nospace(s, ans->u.get.total, ans->u.get.free, req->node);
		return;
	}
	if (ans->u.get.source != source)
		sim_fail(s, "GetStart: source %u, not %u", ans->u.get.source, source);
	check_source(s, v, ans);
	check_plan(s, v, ans);
	if (source == MSG_SOURCE_MEM_LOCAL)
		return;
	model_new_id(s, ans->u.get.get_id, "get_id");
	model_new_id(s, ans->u.get.alloc, "allocation");
	g = TAKE(s, s->model.gets, M_GETS, id);
	*g = (struct m_get){.id = ans->u.get.get_id,
			    .put = v->id,
			    .alloc = ans->u.get.alloc,
			    .bytes = pages(len_of(v, b)),
			    .start = s->now,
			    .node = req->node,
			    .block = b,
			    .source_node = ans->u.get.source_node,
			    .source = source};
}

static void get_done(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_get *g = get(s, req->u.get.get_id, req->node);
	struct m_version *v = g ? model_version(s, g->put) : NULL;
	bool promoted;

	if (!expect(s, ans, g ? 0 : -ESTALE))
		return;
	promoted = v && !v->orphan && !v->r[g->node][g->block].alloc;
	if (ans->u.get.promoted != promoted)
		sim_fail(s, "GetDone: promoted %d", ans->u.get.promoted);
	if (promoted)
		v->r[g->node][g->block].alloc = g->alloc;
	else
		model_add_loose(s, g->node, g->alloc, g->bytes, g->put);
	g->id = 0;
}

/* A replica of the block has gone. True if the object has gone with it. */
static bool after_loss(struct sim *s, struct m_version *v, uint32_t b)
{
	if (has_block(v, b, 0, false))
		return false;
	if (v->orphan) {
		model_reap(v);
		return false;
	}
	if (s->model.recovering)
		return false;
	model_unname(s, v);
	return true;
}

static void get_revoke(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_get *g = get(s, req->u.get.get_id, req->node);
	struct m_version *v = g ? model_version(s, g->put) : NULL;
	bool ssd = g && (g->source == MSG_SOURCE_SSD_LOCAL || g->source == MSG_SOURCE_SSD_REMOTE);

	if (!g && req->u.get.drop_ssd_source && !is_remote(req->u.get.source)) {
		v = model_version(s, req->u.get.put_id);
		if (expect(s, ans, v && v->r[req->node][req->u.get.block].ssd ? 0 : -ESTALE)) {
			v->r[req->node][req->u.get.block].ssd = false;
			after_loss(s, v, req->u.get.block);
		}
		return;
	}
	if (!expect(s, ans, g ? 0 : -ESTALE))
		return;
	g->id = 0;
	if (is_remote(g->source))
		*failed_slot(s, g->put, g->block, g->node) =
		    (struct m_failed){g->put, s->now + SIM_FAILED_NS, g->node, g->block, g->source_node};
	if (!req->u.get.drop_ssd_source || !ssd || !v || !v->r[g->source_node][g->block].ssd)
		return;
	v->r[g->source_node][g->block].ssd = false;
	after_loss(s, v, g->block);
}

static void expect_item(struct sim *s, const struct msg *ans, size_t k, int status, bool gone)
{
	const struct msg_item *it = &ans->items[k];

	if (it->status != status || ((it->flags & MSG_ITEM_GONE) != 0) != gone)
		sim_fail(s, "%s from node %u: %llu block %u: status %d flags %u, not %d, gone %d",
			 msg_type_name(ans->type), ans->node, (unsigned long long)it->put_id, it->block, it->status,
			 it->flags, status, gone);
}

static void ssd_commit(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k)
{
	struct m_version *v = model_version(s, it->put_id);
	bool ok = v && !v->orphan && v->r[ans->node][it->block].alloc;

	expect_item(s, ans, k, ok ? 0 : -ESTALE, false);
	if (ok)
		v->r[ans->node][it->block].ssd = true;
}

static void ssd_evict(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k)
{
	struct m_version *v = model_version(s, it->put_id);
	bool there = v && v->r[ans->node][it->block].ssd, gone = false, orphan = v && v->orphan;

	if (there) {
		v->r[ans->node][it->block].ssd = false;
		if (!orphan)
			gone = !s->model.recovering && !has_block(v, it->block, 0, false);
	}
	expect_item(s, ans, k, there ? 0 : -ENOENT, gone || (there && orphan && !has_any(v)));
	if (there)
		after_loss(s, v, it->block);
}

bool model_held(struct sim *s, uint64_t id)
{
	const struct m_version *v = model_version(s, id);
	bool held = false;

	for (uint32_t n = 1; v && n <= SIM_NODES; n++)
		held |= v->held[n];
	return held;
}

static void hold(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k, bool holds)
{
	struct m_version *v = model_version(s, it->put_id);

	expect_item(s, ans, k, v && (holds || v->held[ans->node]) ? 0 : -ENOENT, false);
	if (v)
		v->held[ans->node] = holds;
}

static bool being_read(struct sim *s, uint64_t put, uint32_t block, uint32_t node)
{
	for (unsigned k = 0; k < M_GETS; k++) {
		const struct m_get *g = &s->model.gets[k];

		if (g->id && g->put == put && g->block == block && g->source_node == node &&
		    g->source == MSG_SOURCE_MEM_REMOTE)
			return true;
	}
	return false;
}

static void mem_evict(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k)
{
	struct m_version *v = model_version(s, it->put_id);
	uint32_t b = it->block, n = ans->node;
	bool last, busy, gone;

	if (!v || !v->r[n][b].alloc) {
		expect_item(s, ans, k, -ENOENT, false);
		return;
	}
	last = !has_block(v, b, n, true);
	busy = being_read(s, v->id, b, n) || (last && (it->flags & MSG_ITEM_KEEP)) || (last && model_held(s, v->id)) ||
	       (last && v->pin && !v->orphan && !(it->flags & MSG_ITEM_FORCE));
	if (busy) {
		expect_item(s, ans, k, -EBUSY, false);
		return;
	}
	model_add_loose(s, n, v->r[n][b].alloc, pages(len_of(v, b)), v->id);
	v->r[n][b].alloc = 0;
	gone = v->orphan ? !has_any(v) : last && !s->model.recovering;
	expect_item(s, ans, k, 0, gone);
	after_loss(s, v, b);
}

static void delete_ack(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k)
{
	struct m_version *v = model_version(s, it->put_id);

	expect_item(s, ans, k, v && !v->orphan ? -EBUSY : 0, false);
	if (v && !v->orphan)
		return;
	free_loose(s, ans->node, 0, it->put_id);
	if (!v)
		return;
	memset(v->r[ans->node], 0, sizeof(v->r[ans->node]));
	model_reap(v);
}

static void items(struct sim *s, const struct msg *req, const struct msg *ans)
{
	expect(s, ans, 0);
	for (unsigned k = 0; k < req->n_items; k++)
		switch (req->type) {
		case MSG_SSD_COMMIT:
			ssd_commit(s, &req->items[k], ans, k);
			break;
		case MSG_SSD_EVICT:
			ssd_evict(s, &req->items[k], ans, k);
			break;
		case MSG_MEM_EVICT:
			mem_evict(s, &req->items[k], ans, k);
			break;
		case MSG_DELETE_ACK:
			delete_ack(s, &req->items[k], ans, k);
			break;
		case MSG_HOLD:
		case MSG_RELEASE:
			hold(s, &req->items[k], ans, k, req->type == MSG_HOLD);
			break;
		default:
			free_loose(s, req->node, req->items[k].alloc, 0);
			break;
		}
}

static void heartbeat(struct sim *s, const struct msg *req, const struct msg *ans)
{
	expect(s, ans, 0);
	s->model.members[req->node].capacity = req->u.heartbeat.capacity;
	s->model.members[req->node].zombie = req->u.heartbeat.zombie;
	if (ans->u.heartbeat.lease_ns && ans->u.heartbeat.lease_ns != SIM_LEASE)
		sim_fail(s, "Heartbeat: leases for %llu", (unsigned long long)ans->u.heartbeat.lease_ns);
}

void model_follow(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_member *m = &s->model.members[req->node];

	if (req->type == MSG_JOIN) {
		join(s, req, ans);
		return;
	}
	if (m->awaited && m->tag == req->tomb_tag && req->type != MSG_LEAVE) {
		if (!m->resuming ||
		    (req->type != MSG_HEARTBEAT && req->type != MSG_INVENTORY && req->type != MSG_PUT_RESUME)) {
			expect(s, ans, -EUNATCH);
			return;
		}
	} else if (m->awaited && m->tag == req->tomb_tag) {
		expect(s, ans, 0);
		model_member_gone(s, req->node);
		return;
	} else if (!m->live || m->tag != req->tomb_tag) {
		/* One that has left may hear so again; after a restart the master may not know. */
		if (req->type != MSG_LEAVE || ans->status)
			expect(s, ans, -ESTALE);
		return;
	}
	m->sign = s->now;
	switch (req->type) {
	case MSG_HEARTBEAT:
		heartbeat(s, req, ans);
		break;
	case MSG_LEAVE:
		expect(s, ans, 0);
		model_member_gone(s, req->node);
		break;
	case MSG_LOOKUP:
		lookup(s, req, ans);
		break;
	case MSG_MKDIR:
		mkdir_op(s, req, ans);
		break;
	case MSG_RMDIR:
		rmdir_op(s, req, ans);
		break;
	case MSG_DELETE:
		delete_op(s, req, ans);
		break;
	case MSG_RENAME:
		rename_op(s, req, ans);
		break;
	case MSG_SETATTR:
		setattr(s, req, ans);
		break;
	case MSG_READDIR:
		readdir_op(s, req, ans);
		break;
	case MSG_REVOKE_ACK:
		expect(s, ans, 0);
		break;
	case MSG_PUT_START:
		put_start(s, req, ans);
		break;
	case MSG_PUT_EXTEND:
		put_extend(s, req, ans);
		break;
	case MSG_INVENTORY:
		model_inventory(s, req, ans);
		break;
	case MSG_PUT_RESUME:
		model_put_resume(s, req, ans);
		break;
	case MSG_PUT_DONE:
		put_done(s, req, ans);
		break;
	case MSG_PUT_REVOKE:
	case MSG_PUT_RENEW:
		put_end(s, req, ans);
		break;
	case MSG_GET_START:
		get_start(s, req, ans);
		break;
	case MSG_GET_DONE:
		get_done(s, req, ans);
		break;
	case MSG_GET_REVOKE:
		get_revoke(s, req, ans);
		break;
	default:
		items(s, req, ans);
		break;
	}
}

/* ---- comparing --------------------------------------------------------------------------------------------- */

static void compare_name(struct sim *s, const struct write_rec *rec)
{
	const struct write_inode *w = &rec->u.inode;
	struct m_name *n = name_of_id(s, w->id);
	struct m_version *v = model_version(s, w->id);

	if (!n || n->dir != w->parent || strlen(n->name) != rec->len || memcmp(n->name, rec->data, rec->len) ||
	    n->is_dir != (rec->type == WRITE_DIR))
		sim_fail(s, "the core has %.*s (%llu) in %llu, the model has not", (int)rec->len, rec->data,
			 (unsigned long long)w->id, (unsigned long long)w->parent);
	if (!v)
		return;
	if (v->size != w->size || v->ticket != w->storage_id || v->pin != ((w->flags & WRITE_OF_PIN) != 0) ||
	    v->expires != w->expires_ns)
		sim_fail(s, "%llu: attributes differ", (unsigned long long)w->id);
	if (w->tiers && (v->r[w->home][0].alloc != w->alloc || v->r[w->home][0].ssd != ((w->tiers & 2) != 0)))
		sim_fail(s, "%llu: replica in its row differs", (unsigned long long)w->id);
}

static void compare_replica(struct sim *s, const struct write_replica *w)
{
	struct m_version *v = model_version(s, w->put_id);

	if (!v || v->r[w->node][w->block].alloc != w->alloc || v->r[w->node][w->block].ssd != ((w->tiers & 2) != 0))
		sim_fail(s, "%llu: replica of block %u on node %u differs", (unsigned long long)w->put_id, w->block,
			 w->node);
}

static unsigned model_replicas(struct sim *s)
{
	unsigned n = 0;

	for (unsigned k = 0; k < M_VERSIONS; k++)
		for (unsigned node = 1; node <= SIM_NODES; node++)
			for (unsigned b = 0; b < SIM_BLOCKS; b++) {
				const struct m_version *v = &s->model.versions[k];

				n += v->id && !v->orphan && (v->r[node][b].alloc || v->r[node][b].ssd);
			}
	return n;
}

static void compare_dump(struct sim *s)
{
	struct writes w = {0};
	const struct write_rec *rec;
	unsigned names = 0, replicas = 0, want = 0;
	size_t pos = 0;

	if (core_dump(s->core, &w) < 0)
		sim_fail(s, "no memory");
	while ((rec = writes_next(&w, &pos))) {
		if (rec->type == WRITE_REPLICA) {
			compare_replica(s, &rec->u.replica);
			replicas++;
		} else if ((rec->type == WRITE_DIR || rec->type == WRITE_OBJECT) && rec->u.inode.id != MSG_ROOT_DIR) {
			compare_name(s, rec);
			names++;
			replicas += rec->type == WRITE_OBJECT && rec->u.inode.tiers;
		}
	}
	writes_free(&w);
	for (unsigned k = 0; k < M_NAMES; k++)
		want += s->model.names[k].dir != 0;
	if (names != want || replicas != model_replicas(s))
		sim_fail(s, "the core has %u names and %u replicas, the model %u and %u", names, replicas, want,
			 model_replicas(s));
}

static void compare_counts(struct sim *s)
{
	uint64_t orphans = 0, tickets = 0, gets = 0, loose = 0, holds = 0;
	struct core_counts c;

	core_counts(s->core, &c);
	for (unsigned k = 0; k < M_VERSIONS; k++)
		orphans += s->model.versions[k].id && s->model.versions[k].orphan;
	for (unsigned k = 0; k < M_VERSIONS; k++)
		for (uint32_t n = 1; n <= SIM_NODES; n++)
			holds += s->model.versions[k].id && s->model.versions[k].held[n];
	for (unsigned k = 0; k < M_TICKETS; k++)
		tickets += s->model.tickets[k].id != 0;
	for (unsigned k = 0; k < M_GETS; k++)
		gets += s->model.gets[k].id != 0;
	for (unsigned k = 0; k < M_LOOSE; k++)
		loose += s->model.loose[k].alloc != 0;
	if (holds != c.holds)
		sim_fail(s, "%llu holds; the model has %llu", (unsigned long long)c.holds, (unsigned long long)holds);
	if (orphans != c.orphans || tickets != c.tickets || gets != c.gets || loose != c.loose)
		sim_fail(s, "orphans %llu, tickets %llu, gets %llu, loose %llu; the model has %llu, %llu, %llu, %llu",
			 (unsigned long long)c.orphans, (unsigned long long)c.tickets, (unsigned long long)c.gets,
			 (unsigned long long)c.loose, (unsigned long long)orphans, (unsigned long long)tickets,
			 (unsigned long long)gets, (unsigned long long)loose);
}

void model_compare(struct sim *s)
{
	struct core_ledger l;

	compare_dump(s);
	compare_counts(s);
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		if (core_ledger(s->core, n, &l) < 0)
			continue;
		if (l.used != model_used(s, n) || l.reserved != model_reserved(s, n))
			sim_fail(s, "ledger of node %u: %llu used, %llu reserved; the model has %llu and %llu", n,
				 (unsigned long long)l.used, (unsigned long long)l.reserved,
				 (unsigned long long)model_used(s, n), (unsigned long long)model_reserved(s, n));
		/* An owner may have come back with what an earlier master did not charge any more. */
		if (s->model.members[n].live && !s->model.members[n].page && l.used + l.reserved > SIM_CAPACITY)
			sim_fail(s, "ledger of node %u is above its capacity", n);
	}
}
