/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master starts again with what its catalogue has, and the owners of before come back: the model's side of that,
 * and the nodes'. A node that hears that it is awaited joins with the tag it has, says which puts are on its way and
 * what it has, a few items a page, and begins again when anything goes wrong on that way.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/sim.h"

#define SAID_MEM 1u
#define SAID_SSD 2u

/* ---- the model ----------------------------------------------------------------------------------------------- */

static bool block_is_somewhere(const struct m_version *v, uint32_t b)
{
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		if (v->r[n][b].alloc || v->r[n][b].ssd)
			return true;
	return false;
}

bool model_is_lost(const struct m_version *v)
{
	for (uint32_t b = 0; b < v->blocks; b++)
		if (!block_is_somewhere(v, b))
			return true;
	return false;
}

/* The property itself, from the nodes' own books: nothing is lost that a live owner has. */
void model_check_loss(struct sim *s, const struct m_version *v)
{
	for (uint32_t b = 0; b < v->blocks; b++)
		for (uint32_t n = 1; n <= SIM_NODES && !block_is_somewhere(v, b); n++)
			if (s->model.members[n].live && s->nodes[n].joined &&
			    s->nodes[n].tag == s->model.members[n].tag && node_counts_on(&s->nodes[n], v->id, b))
				sim_fail(s, "%llu is lost, and node %u has its block %u", (unsigned long long)v->id, n,
					 b);
}

void model_settle(struct sim *s)
{
	if (!s->model.recovering)
		return;
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		if (s->model.members[n].awaited)
			return;
	s->model.recovering = false;
	for (unsigned k = 0; k < M_VERSIONS; k++) {
		struct m_version *v = &s->model.versions[k];

		if (!v->id || v->orphan || !model_is_lost(v))
			continue;
		model_check_loss(s, v);
		model_unname(s, v);
	}
}

/* Its inventory is to begin anew. */
static void forget_said(struct sim *s, uint32_t node)
{
	struct m_member *m = &s->model.members[node];

	m->resuming = false;
	m->page = 0;
	model_grants_gone(s, node);
	for (unsigned k = 0; k < M_VERSIONS; k++)
		memset(s->model.versions[k].said[node], 0, sizeof(s->model.versions[k].said[node]));
}

void model_resume_tick(struct sim *s)
{
	if (!s->model.recovering)
		return;
	if (!s->model.until)
		s->model.until = s->now + SIM_RESUME;
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		struct m_member *m = &s->model.members[n];

		if (m->resuming && s->now - m->sign >= SIM_DEAD_AFTER)
			forget_said(s, n);
		if (m->awaited && !m->resuming && s->now >= s->model.until)
			model_member_gone(s, n);
	}
}

static void load_object(struct sim *s, const struct write_rec *rec, struct m_version *v)
{
	const struct write_inode *w = &rec->u.inode;

	*v = (struct m_version){.id = w->id,
				.ticket = w->storage_id,
				.size = w->size,
				.blocks = (uint32_t)((w->size + SIM_BLOCK - 1) / SIM_BLOCK),
				.home = w->home,
				.pin = (w->flags & WRITE_OF_PIN) != 0,
				.expires = w->expires_ns};
	v->acked = model_was_acked(s, w->id);
	if (w->tiers) {
		v->r[w->home][0].alloc = w->alloc;
		v->r[w->home][0].ssd = (w->tiers & 2) != 0;
	}
	if (s->model.n_spent < M_SPENT)
		s->model.spent[s->model.n_spent++] =
		    (struct m_spent){.ticket = w->storage_id, .put = w->id, .node = w->home};
}

static void load_member(struct sim *s, const struct write_member *w)
{
	struct m_member *m = &s->model.members[w->node];

	*m = (struct m_member){.awaited = w->tomb_tag != 0, .tag = w->tomb_tag, .ssd = w->node != 3};
	s->model.recovering |= m->awaited;
}

void model_load(struct sim *s, const struct writes *w)
{
	struct m_version *fresh = s->model.versions;
	const struct write_rec *rec;
	size_t pos = 0;

	memset(s->model.versions, 0, sizeof(s->model.versions));
	s->model.n_spent = 0;
	s->model.recovering = false;
	s->model.until = 0;
	s->seen.n = 0;
	while ((rec = writes_next(w, &pos))) {
		if (rec->type == WRITE_OBJECT) {
			load_object(s, rec, fresh++);
			if (s->deleted[rec->u.inode.id % SIM_DELETED] == rec->u.inode.id)
				sim_fail(s, "%llu was deleted, and is back", (unsigned long long)rec->u.inode.id);
		} else if (rec->type == WRITE_REPLICA) {
			struct m_version *v = model_version(s, rec->u.replica.put_id);

			v->r[rec->u.replica.node][rec->u.replica.block].alloc = rec->u.replica.alloc;
			v->r[rec->u.replica.node][rec->u.replica.block].ssd = (rec->u.replica.tiers & 2) != 0;
		} else if (rec->type == WRITE_MEMBER && s->resumes) {
			load_member(s, &rec->u.member);
		}
	}
}

static void expect(struct sim *s, const struct msg *ans, int status)
{
	if (ans->status != status)
		sim_fail(s, "%s from node %u: answered %d, not %d", msg_type_name(ans->type), ans->node, ans->status,
			 status);
}

bool model_joins_again(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_member *m = &s->model.members[req->node];

	if (!m->awaited || req->u.join.tomb_tag != m->tag)
		return false;
	expect(s, ans, 0);
	if (ans->u.join.tomb_tag != m->tag)
		sim_fail(s, "node %u was awaited and is another one now", req->node);
	forget_said(s, req->node);
	m->resuming = true;
	m->join_req = req->req_id;
	m->capacity = req->u.join.capacity;
	m->zombie = 0;
	m->sign = s->now;
	return true;
}

static uint64_t pages(uint64_t n)
{
	return (n + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
}

static void take_item(struct sim *s, const struct msg_item *it, const struct msg *ans, size_t k)
{
	struct m_version *v = model_version(s, it->put_id);
	uint32_t n = ans->node, b = it->block;
	bool loose = it->flags & MSG_ITEM_LOOSE;

	if (ans->items[k].status != (v || loose ? 0 : -ENOENT))
		sim_fail(s, "Inventory of node %u: block %u of %llu: %d", n, b, (unsigned long long)it->put_id,
			 ans->items[k].status);
	if (loose) {
		model_add_loose(s, n, it->alloc, pages(it->bytes), it->put_id);
		return;
	}
	if (!v)
		return;
	if (it->flags & MSG_ITEM_MEM) {
		v->r[n][b].alloc = it->alloc;
		v->said[n][b] |= SAID_MEM;
	}
	if (it->flags & MSG_ITEM_SSD) {
		v->r[n][b].ssd = true;
		v->said[n][b] |= SAID_SSD;
	}
}

static void inventory_end(struct sim *s, uint32_t n)
{
	struct m_member *m = &s->model.members[n];

	for (unsigned k = 0; k < M_VERSIONS; k++) {
		struct m_version *v = &s->model.versions[k];

		for (uint32_t b = 0; v->id && b < v->blocks; b++) {
			if (!(v->said[n][b] & SAID_MEM))
				v->r[n][b].alloc = 0;
			if (!(v->said[n][b] & SAID_SSD))
				v->r[n][b].ssd = false;
		}
		model_reap(v);
	}
	m->awaited = m->resuming = false;
	m->live = true;
	s->counted.back++;
	model_settle(s);
}

void model_inventory(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_member *m = &s->model.members[req->node];

	if (!m->resuming || req->req_id <= m->join_req || req->u.inventory.page != m->page) {
		expect(s, ans, -EINVAL);
		return;
	}
	expect(s, ans, 0);
	for (size_t k = 0; k < req->n_items; k++)
		take_item(s, &req->items[k], ans, k);
	m->page++;
	if (req->u.inventory.end)
		inventory_end(s, req->node);
}

static const struct m_spent *spent(const struct sim *s, uint64_t ticket, uint32_t node)
{
	for (unsigned k = 0; k < s->model.n_spent; k++)
		if (s->model.spent[k].ticket == ticket && s->model.spent[k].node == node)
			return &s->model.spent[k];
	return NULL;
}

bool model_put_was_done(struct sim *s, const struct msg *req, const struct msg *ans)
{
	const struct m_spent *sp = spent(s, req->u.put.ticket, req->node);

	if (!sp)
		return false;
	expect(s, ans, 0);
	if (ans->u.entry.a.id != sp->put)
		sim_fail(s, "PutDone again: tells %llu, not %llu", (unsigned long long)ans->u.entry.a.id,
			 (unsigned long long)sp->put);
	s->counted.done_again++;
	return true;
}

/* What the node has said so far, puts and all. */
static uint64_t said_bytes(struct sim *s, uint32_t n)
{
	uint64_t sum = model_reserved(s, n);

	for (unsigned k = 0; k < M_VERSIONS; k++) {
		const struct m_version *v = &s->model.versions[k];

		for (uint32_t b = 0; v->id && b < v->blocks; b++)
			if (v->said[n][b] & SAID_MEM)
				sum += pages(b + 1 < v->blocks ? SIM_BLOCK : v->size - b * SIM_BLOCK);
	}
	for (unsigned k = 0; k < M_LOOSE; k++)
		if (s->model.loose[k].alloc && s->model.loose[k].node == n)
			sum += s->model.loose[k].bytes;
	return sum;
}

static void confirm(struct sim *s, const struct msg *req, uint64_t put)
{
	struct m_version *v = model_version(s, put);

	for (uint32_t b = 0; v && b < v->blocks; b++) {
		for (size_t k = 0; k < req->n_items; k++)
			if (req->items[k].block == b && req->items[k].alloc == v->r[req->node][b].alloc)
				v->said[req->node][b] |= SAID_MEM;
		if (v->r[req->node][b].ssd)
			v->said[req->node][b] |= SAID_SSD;
	}
}

void model_put_resume(struct sim *s, const struct msg *req, const struct msg *ans)
{
	struct m_member *m = &s->model.members[req->node];
	const struct m_spent *sp = spent(s, req->u.put.ticket, req->node);
	uint64_t bytes = 0;
	bool taken;
	int r;

	if (!m->resuming || req->req_id <= m->join_req) {
		expect(s, ans, -EINVAL);
		return;
	}
	if (sp) {
		expect(s, ans, 0);
		confirm(s, req, sp->put);
		return;
	}
	for (size_t k = 0; k < req->n_items; k++)
		bytes += req->items[k].bytes;
	r = model_put_dir(s, req->u.put.dir);
	taken = !r && (req->u.put.flags & MSG_PUT_EXCL) && model_name_taken(s, req->u.put.dir, req->u.put.name);
	if (!r && bytes + said_bytes(s, req->node) > m->capacity)
		r = -ENOSPC;
	expect(s, ans, !r && taken ? -EEXIST : r);
	if (r)
		return;
	model_add_ticket(s, req, !taken);
	s->counted.puts_again++;
}

/* ---- the nodes ----------------------------------------------------------------------------------------------- */

static void say_join(struct sim *s, struct node *n, struct op *op)
{
	struct msg *m = node_request(s, n, op, MSG_JOIN, 0);

	m->u.join.capacity = SIM_CAPACITY;
	m->u.join.kv_ssd_storage = n->ssd;
	m->u.join.tomb_tag = n->tag;
	snprintf(m->u.join.address, sizeof(m->u.join.address), "node%u:7000", n->number);
	snprintf(m->u.join.instance_key, sizeof(m->u.join.instance_key), "node%u", n->number);
	op->step = 0;
	node_post(s, op);
}

void node_awaited(struct sim *s, struct node *n, struct op *asked)
{
	struct op *op = asked->kind == OP_RESUME ? asked : NULL;

	/* It is on its way already; what was sent before may still be answered so. */
	for (unsigned k = 0; k < N_OPS && !op; k++)
		if (n->ops[k].kind == OP_RESUME)
			return;
	if (!op)
		op = node_op_begin(n, OP_RESUME);
	if (!op)
		return; /* with the next answer of that kind */
	op->req = msg_free(op->req);
	sim_log(s, "node %u is awaited", n->number);
	say_join(s, n, op);
}

/* Names, and gets that run: the master does not know of them. What they have of the segment is loose. */
static void forget_leases_and_gets(struct node *n)
{
	memset(n->cache, 0, sizeof(n->cache));
	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind == OP_GET && n->ops[k].step)
			node_op_end(&n->ops[k]);
	for (unsigned k = 0; k < N_FILES; k++) {
		struct n_file *f = &n->files[k];

		f->said = false;
		for (unsigned d = 0; f->state == FILE_REPLICA && d < N_DROPS; d++)
			if (n->drops[d].put_id == f->owner)
				f->state = FILE_TEMP;
		if (f->state == FILE_TARGET)
			f->state = FILE_TEMP;
	}
	for (unsigned k = 0; k < N_SSD; k++)
		n->ring[k].said = false;
}

static bool say_put(struct sim *s, struct node *n, struct op *op)
{
	for (unsigned k = 0; k < N_OPS; k++) {
		struct op *put = &n->ops[k];
		struct msg *m;
		size_t items = 0;

		if (put->kind != OP_PUT || !put->ticket || put->step == 9 || put->resumed)
			continue;
		put->resumed = true;
		put->sign_ns = s->now;
		m = node_request(s, n, op, MSG_PUT_RESUME, SIM_BLOCKS);
		m->u.put.ticket = put->ticket;
		m->u.put.dir = put->dir;
		m->u.put.block_size = SIM_BLOCK;
		m->u.put.persist_to_ssd = n->ssd;
		m->u.put.flags = put->flags;
		strcpy(m->u.put.name, put->name);
		for (uint32_t b = 0; b < SIM_BLOCKS; b++)
			if (put->allocs[b])
				m->items[items++] =
				    (struct msg_item){.block = b, .alloc = put->allocs[b], .bytes = put->grants[b]};
		m->n_items = items;
		op->ticket = put->ticket;
		node_post(s, op);
		return true;
	}
	return false;
}

static bool file_item(struct sim *s, struct n_file *f, struct msg_item *ret)
{
	struct m_version *v = model_version(s, f->owner);
	bool copy = f->state == FILE_REPLICA || f->state == FILE_EVICTING;

	if (f->said || (!copy && f->state != FILE_TEMP))
		return false;
	f->said = true;
	*ret = (struct msg_item){.put_id = f->owner,
				 .alloc = f->alloc,
				 .block = f->block,
				 .bytes = f->bytes,
				 .flags = copy ? MSG_ITEM_MEM : MSG_ITEM_LOOSE};
	/* Its exact length, or its pages. */
	if (copy && v && sim_chance(s, 50))
		ret->bytes = f->block + 1 < v->blocks ? SIM_BLOCK : v->size - f->block * SIM_BLOCK;
	return true;
}

static bool being_dropped(const struct node *n, uint64_t put_id)
{
	for (unsigned k = 0; k < N_DROPS; k++)
		if (n->drops[k].put_id == put_id)
			return true;
	return false;
}

static bool ring_item(struct sim *s, const struct node *n, struct n_ssd *e, struct msg_item *ret)
{
	struct m_version *v = model_version(s, e->owner);

	if (!e->owner || e->said || e->private || e->lost || being_dropped(n, e->owner))
		return false;
	e->said = true;
	*ret = (struct msg_item){.put_id = e->owner, .block = e->block, .bytes = SIM_PAGE, .flags = MSG_ITEM_SSD};
	if (v)
		ret->bytes = e->block + 1 < v->blocks ? SIM_BLOCK : v->size - e->block * SIM_BLOCK;
	return true;
}

static void say_page(struct sim *s, struct node *n, struct op *op)
{
	size_t want = 1 + sim_rnd(s, 6), k = 0;
	struct msg *m = node_request(s, n, op, MSG_INVENTORY, want);

	for (unsigned f = 0; f < N_FILES && k < want; f++)
		k += file_item(s, &n->files[f], &m->items[k]);
	for (unsigned e = 0; e < N_SSD && k < want; e++)
		k += ring_item(s, n, &n->ring[e], &m->items[k]);
	m->n_items = k;
	m->u.inventory.page = op->block++;
	m->u.inventory.end = !k;
	node_post(s, op);
}

void node_resume_go_on(struct sim *s, struct node *n, struct op *op)
{
	if (!say_put(s, n, op))
		say_page(s, n, op);
}

/* The master has it as a replica now, whatever it answers to a MSG_SSD_COMMIT that was on its way. */
static void ring_is_known(struct node *n, const struct msg_item *it)
{
	for (unsigned e = 0; e < N_SSD && (it->flags & MSG_ITEM_SSD); e++)
		if (n->ring[e].owner == it->put_id && n->ring[e].block == it->block)
			n->ring[e].committed = true;
}

/* Refused: it goes, at once or when nobody reads it any more. */
static void page_answer(struct sim *s, struct node *n, const struct msg *req, const struct msg *ans)
{
	for (size_t k = 0; k < ans->n_items; k++) {
		if (!ans->items[k].status) {
			ring_is_known(n, &req->items[k]);
			continue;
		}
		for (unsigned f = 0; f < N_FILES; f++) {
			struct n_file *file = &n->files[f];

			if (!file->state || file->alloc != req->items[k].alloc || !(req->items[k].flags & MSG_ITEM_MEM))
				continue;
			if (sim_chance(s, 50)) {
				memset(file, 0, sizeof(*file));
			} else {
				file->state = FILE_TEMP;
				file->said = false;
			}
		}
		for (unsigned e = 0; e < N_SSD && (req->items[k].flags & MSG_ITEM_SSD); e++)
			if (n->ring[e].owner == req->items[k].put_id && n->ring[e].block == req->items[k].block)
				memset(&n->ring[e], 0, sizeof(n->ring[e]));
	}
}

/* A put that is not taken back: what it has is loose. */
static void put_lost(struct node *n, uint64_t ticket)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state == FILE_PRIVATE && n->files[k].owner == ticket)
			n->files[k].state = FILE_TEMP;
}

void node_resume_answer(struct sim *s, struct node *n, struct op *op, const struct msg *ans)
{
	const struct msg *req = op->req;
	bool over = req->type == MSG_INVENTORY && req->u.inventory.end && !ans->status;

	if (req->type == MSG_JOIN && !ans->status && ans->u.join.tomb_tag != n->tag) {
		node_reset(s, n);
		n->joined = true;
		n->tag = ans->u.join.tomb_tag;
		n->beat_ns = s->now;
		return;
	}
	if (ans->status == -EBUSY) {
		/* It was back, and what made it think otherwise was from before that. */
		node_op_end(op);
		return;
	}
	if (ans->status && req->type != MSG_PUT_RESUME) {
		op->req = msg_free(op->req);
		say_join(s, n, op);
		return;
	}
	if (req->type == MSG_JOIN) {
		forget_leases_and_gets(n);
		for (unsigned k = 0; k < N_OPS; k++)
			n->ops[k].resumed = false;
		op->block = 0;
	} else if (req->type == MSG_INVENTORY) {
		page_answer(s, n, req, ans);
	} else if (ans->status && ans->status != -EEXIST) {
		put_lost(n, op->ticket);
	}
	op->req = msg_free(op->req);
	if (over)
		node_op_end(op);
}

bool node_counts_on(const struct node *n, uint64_t put_id, uint32_t block)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state == FILE_REPLICA && n->files[k].owner == put_id && n->files[k].block == block)
			return true;
	for (unsigned k = 0; k < N_SSD; k++)
		if (n->ring[k].committed && !n->ring[k].lost && n->ring[k].owner == put_id && n->ring[k].block == block)
			return true;
	return false;
}
