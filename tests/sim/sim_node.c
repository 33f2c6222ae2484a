/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of a node: what it has in memory and in its ring, and operations that each wait for one answer at a time.
 * It does what a node must do by net/msg.h, in an order that the random numbers choose.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define RESEND_NS (300 * NS_PER_MS)
#define BEAT_NS (300 * NS_PER_MS)
#define RENEW_NS (1 * NS_PER_SEC)

/* ---- files, ring, cache ------------------------------------------------------------------------------------ */

static struct n_file *file_new(struct sim *s, struct node *n)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (!n->files[k].state)
			return &n->files[k];
	sim_fail(s, "node %u has too many files for this simulation", n->number);
}

static struct n_file *file_of_alloc(struct node *n, uint64_t alloc)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state && n->files[k].alloc == alloc)
			return &n->files[k];
	return NULL;
}

static void file_unlink(struct n_file *f)
{
	if (f)
		memset(f, 0, sizeof(*f));
}

static struct n_ssd *ring_add(struct node *n, uint64_t owner, uint64_t storage, uint32_t block)
{
	for (unsigned k = 0; k < N_SSD; k++) {
		struct n_ssd *e = &n->ring[k];

		if (e->owner)
			continue;
		*e = (struct n_ssd){.owner = owner, .storage = storage, .block = block};
		return e;
	}
	return NULL;
}

static struct n_ssd *ring_find(struct node *n, uint64_t owner, uint32_t block)
{
	for (unsigned k = 0; k < N_SSD; k++)
		if (owner && n->ring[k].owner == owner && n->ring[k].block == block)
			return &n->ring[k];
	return NULL;
}

bool node_has_block(const struct node *n, uint64_t storage, uint32_t block, bool mem)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (mem && n->files[k].state && n->files[k].storage == storage && n->files[k].block == block)
			return true;
	for (unsigned k = 0; k < N_SSD; k++)
		if (!mem && n->ring[k].owner && n->ring[k].storage == storage && n->ring[k].block == block)
			return true;
	return false;
}

static struct n_cached *cache_entry(struct sim *s, struct node *n, uint64_t dir, const char *name)
{
	struct n_cached *e = NULL;

	for (unsigned k = 0; k < N_CACHE; k++)
		if (n->cache[k].dir == dir && !strcmp(n->cache[k].name, name))
			return &n->cache[k];
	/* The one that ended longest ago makes room: nothing of it is under way any more. */
	for (unsigned k = 0; k < N_CACHE; k++)
		if (!n->cache[k].id && (!e || n->cache[k].ended < e->ended))
			e = &n->cache[k];
	if (!e)
		sim_fail(s, "node %u: the cache is too small for this simulation", n->number);
	memset(e, 0, sizeof(*e));
	e->dir = dir;
	strcpy(e->name, name);
	return e;
}

static void lease_end(struct sim *s, struct node *n, uint64_t dir, const char *name, uint64_t seq)
{
	struct n_cached *e = cache_entry(s, n, dir, name);

	if (seq > e->ended)
		e->ended = seq;
	if (e->lease <= seq)
		e->id = 0;
}

static void lease_grant(struct sim *s, struct node *n, uint64_t dir, const char *name, uint64_t id, uint64_t lease)
{
	struct n_cached *e = cache_entry(s, n, dir, name);

	for (unsigned k = 0; k < 64; k++)
		if (n->gone[k] == id) {
			/* What the name stood for before is over all the same. */
			lease_end(s, n, dir, name, lease);
			return;
		}
	if (lease <= e->ended || lease <= n->ended_all || lease < e->lease)
		return;
	e->id = id;
	e->lease = lease;
}

static void forget_version(struct node *n, uint64_t id)
{
	n->gone[n->n_gone++ % 64] = id;
	for (unsigned k = 0; k < N_CACHE; k++)
		if (n->cache[k].id == id)
			n->cache[k].id = 0;
}

/* ---- operations -------------------------------------------------------------------------------------------- */

struct op *node_op_begin(struct node *n, enum op_kind kind)
{
	for (unsigned k = 0; k < N_OPS; k++)
		if (!n->ops[k].kind) {
			n->ops[k].kind = kind;
			return &n->ops[k];
		}
	return NULL;
}

void node_op_end(struct op *op)
{
	msg_free(op->req);
	memset(op, 0, sizeof(*op));
}

static struct op *op_find(struct node *n, enum op_kind kind)
{
	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind == kind)
			return &n->ops[k];
	return NULL;
}

void node_post(struct sim *s, struct op *op)
{
	op->sent_ns = s->now;
	sim_send(s, sim_copy(op->req));
}

struct msg *node_request(struct sim *s, struct node *n, struct op *op, enum msg_type type, size_t n_items)
{
	struct msg *m = msg_new(type);

	m->node = n->number;
	m->tomb_tag = type == MSG_JOIN ? 0 : n->tag;
	/* Numbers never come again, also not after a crash, as a JOIN's must not. */
	m->req_id = ++s->req_id;
	if (n_items)
		msg_alloc_items(m, n_items);
	op->req = m;
	op->began_ns = s->now;
	return m;
}

void node_reset(struct sim *s, struct node *n)
{
	for (unsigned k = 0; k < N_OPS; k++)
		msg_free(n->ops[k].req);
	memset(n->files, 0, sizeof(n->files));
	memset(n->ring, 0, sizeof(n->ring));
	memset(n->ops, 0, sizeof(n->ops));
	memset(n->cache, 0, sizeof(n->cache));
	memset(n->drops, 0, sizeof(n->drops));
	memset(n->gone, 0, sizeof(n->gone));
	n->joined = false;
	n->tag = n->lease_until = n->ended_all = 0;
	for (size_t k = 0; k < s->n_line[n->number]; k++)
		msg_free(s->line[n->number][k]);
	s->n_line[n->number] = 0;
}

static void begin_join(struct sim *s, struct node *n)
{
	struct op *op = node_op_begin(n, OP_JOIN);
	struct msg *m = node_request(s, n, op, MSG_JOIN, 0);

	m->u.join.capacity = SIM_CAPACITY;
	m->u.join.kv_ssd_storage = n->ssd;
	snprintf(m->u.join.instance_key, sizeof(m->u.join.instance_key), "node%u", n->number);
	snprintf(m->u.join.address, sizeof(m->u.join.address), "node%u:7000", n->number);
	node_post(s, op);
}

/* ---- put --------------------------------------------------------------------------------------------------- */

static uint64_t pages(uint64_t n)
{
	return (n + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
}

static uint32_t put_blocks(const struct op *op)
{
	return (uint32_t)((op->size + SIM_BLOCK - 1) / SIM_BLOCK);
}

static uint64_t put_len(const struct op *op, uint32_t b)
{
	return b + 1 < put_blocks(op) ? SIM_BLOCK : op->size - b * SIM_BLOCK;
}

static uint64_t some_dir(struct sim *s)
{
	uint64_t dir = MSG_ROOT_DIR;
	unsigned seen = 0;

	if (sim_chance(s, 2))
		return 3 + sim_rnd(s, 400);
	if (sim_chance(s, 8))
		return dir;
	for (unsigned k = 0; k < M_NAMES; k++)
		if (s->model.names[k].dir && s->model.names[k].is_dir && !sim_rnd(s, ++seen))
			dir = s->model.names[k].id;
	return dir;
}

static void some_name(struct sim *s, uint64_t dir, char name[16])
{
	if (dir == MSG_ROOT_DIR)
		snprintf(name, 16, "%c", (int)('a' + sim_rnd(s, 2)));
	else
		snprintf(name, 16, "n%u", (unsigned)sim_rnd(s, 4));
}

static void begin_put(struct sim *s, struct node *n)
{
	struct op *op = node_op_begin(n, OP_PUT);
	struct msg *m;

	if (!op)
		return;
	op->dir = some_dir(s);
	some_name(s, op->dir, op->name);
	op->size = sim_chance(s, 10) ? 0 : 1 + sim_rnd(s, sim_chance(s, 60) ? SIM_BLOCK : SIM_BLOCK * SIM_BLOCKS);
	op->flags = sim_chance(s, 20) ? MSG_PUT_EXCL : 0;
	for (unsigned b = 0; b < SIM_BLOCKS; b++)
		op->spill[b] = n->ssd && sim_chance(s, 15);
	m = node_request(s, n, op, MSG_PUT_START, 0);
	m->u.put.dir = op->dir;
	m->u.put.flags = op->flags;
	m->u.put.bytes = sim_rnd(s, SIM_BLOCK * 2);
	strcpy(m->u.put.name, op->name);
	op->sign_ns = s->now;
	node_post(s, op);
}

static void put_grant(struct sim *s, struct node *n, struct op *op, uint32_t b, const struct msg_item *it)
{
	struct n_file *f = op->allocs[b] ? file_of_alloc(n, op->allocs[b]) : NULL;

	op->sign_ns = s->now;
	op->allocs[b] = it->alloc;
	op->grants[b] = it->bytes;
	if (!it->bytes)
		return;
	if (!f)
		f = file_new(s, n);
	*f = (struct n_file){.state = FILE_PRIVATE,
			     .alloc = it->alloc,
			     .bytes = it->bytes,
			     .owner = op->ticket,
			     .storage = op->ticket,
			     .block = b};
}

static void put_drop_files(struct node *n, struct op *op)
{
	for (unsigned b = 0; b < SIM_BLOCKS; b++)
		if (op->allocs[b])
			file_unlink(file_of_alloc(n, op->allocs[b]));
	for (unsigned k = 0; k < N_SSD; k++)
		if (n->ring[k].private && n->ring[k].owner == op->ticket)
			memset(&n->ring[k], 0, sizeof(n->ring[k]));
}

static void put_extend(struct sim *s, struct node *n, struct op *op, uint32_t b, uint64_t bytes)
{
	struct msg *m = node_request(s, n, op, MSG_PUT_EXTEND, 1);

	m->u.put.ticket = op->ticket;
	m->items[0].block = b;
	m->items[0].bytes = bytes;
	op->block = b;
	node_post(s, op);
}

static void put_revoke(struct sim *s, struct node *n, struct op *op)
{
	struct msg *m;

	put_drop_files(n, op);
	m = node_request(s, n, op, MSG_PUT_REVOKE, 0);
	m->u.put.ticket = op->ticket;
	node_post(s, op);
}

/* Grows block by block; what is to be spilled is, and its grant given back. True: something was sent. */
static bool put_prepare(struct sim *s, struct node *n, struct op *op)
{
	for (unsigned b = 0; b < put_blocks(op); b++) {
		struct n_ssd *e = ring_find(n, op->ticket, b);

		if (e && op->allocs[b]) {
			file_unlink(file_of_alloc(n, op->allocs[b]));
			put_extend(s, n, op, b, 0);
			return true;
		}
		if (e)
			continue;
		if (op->grants[b] < pages(put_len(op, b))) {
			put_extend(s, n, op, b, sim_chance(s, 30) ? SIM_BLOCK : put_len(op, b));
			return true;
		}
		if (op->spill[b]) {
			e = ring_add(n, op->ticket, op->ticket, b);
			if (!e)
				continue;
			e->private = true;
			file_unlink(file_of_alloc(n, op->allocs[b]));
			put_extend(s, n, op, b, 0);
			return true;
		}
	}
	return false;
}

static void put_done(struct sim *s, struct node *n, struct op *op)
{
	uint32_t blocks = put_blocks(op);
	struct msg *m = node_request(s, n, op, MSG_PUT_DONE, blocks);
	struct n_cached *e;

	m->u.put.ticket = op->ticket;
	m->u.put.dir = op->dir;
	m->u.put.bytes = op->size;
	strcpy(m->u.put.name, op->name);
	if (sim_chance(s, 15)) {
		e = cache_entry(s, n, op->dir, op->name);
		m->u.put.flags = MSG_PUT_NOREPLACE;
		m->u.put.replaces = e->id;
	}
	m->u.put.attr.flags = sim_chance(s, 10) ? MSG_ATTR_PIN : 0;
	m->u.put.attr.expires_ns = sim_chance(s, 10) ? s->real + (int64_t)sim_rnd(s, 4 * NS_PER_SEC) + 1 : 0;
	for (unsigned b = 0; b < SIM_BLOCKS; b++) {
		struct n_file *f = op->allocs[b] ? file_of_alloc(n, op->allocs[b]) : NULL;
		bool mem = b < blocks && f;

		/* Trimmed before it is said. */
		if (f && b >= blocks)
			file_unlink(f);
		else if (f)
			f->bytes = pages(put_len(op, b));
		if (b < blocks)
			m->items[b] = (struct msg_item){.block = b,
							.bytes = put_len(op, b),
							.alloc = mem ? op->allocs[b] : 0,
							.flags = (mem ? MSG_ITEM_MEM : 0) |
								 (ring_find(n, op->ticket, b) ? MSG_ITEM_SSD : 0)};
	}
	node_post(s, op);
}

static void put_published(struct sim *s, struct node *n, struct op *op, const struct msg *ans)
{
	uint64_t id = ans->u.entry.a.id;
	struct m_version *v = model_version(s, id);

	if (v)
		v->acked = true;
	s->acked[id % SIM_DELETED] = id;
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state == FILE_PRIVATE && n->files[k].owner == op->ticket) {
			n->files[k].state = FILE_REPLICA;
			n->files[k].owner = id;
		}
	for (unsigned k = 0; k < N_SSD; k++)
		if (n->ring[k].private && n->ring[k].owner == op->ticket) {
			n->ring[k].private = false;
			n->ring[k].committed = true;
			n->ring[k].owner = id;
		}
	lease_grant(s, n, op->dir, op->name, id, ans->u.entry.lease);
}

static void put_go_on(struct sim *s, struct node *n, struct op *op)
{
	if (s->quiet || sim_chance(s, 4)) {
		op->step = 9;
		put_revoke(s, n, op);
	} else if (!put_prepare(s, n, op)) {
		op->step = 2;
		put_done(s, n, op);
	} else {
		op->step = 1;
	}
}

static void put_answer(struct sim *s, struct node *n, struct op *op, const struct msg *ans)
{
	if (op->step == 9 || ans->status == -ESTALE) {
		/* Over, by us or by its deadline. */
		put_drop_files(n, op);
		node_op_end(op);
		return;
	}
	if (ans->type == MSG_PUT_START) {
		if (ans->status) {
			node_op_end(op);
			return;
		}
		op->ticket = ans->u.put.ticket;
		op->step = 1;
		put_grant(s, n, op, 0, &ans->items[0]);
	} else if (ans->status) {
		op->step = 9;
		put_revoke(s, n, op);
	} else if (ans->type == MSG_PUT_EXTEND) {
		put_grant(s, n, op, op->block, &ans->items[0]);
	} else {
		put_published(s, n, op, ans);
		node_op_end(op);
	}
}

/* A sign of life, which nobody waits for. */
static void put_renew(struct sim *s, struct node *n, struct op *op)
{
	struct op one = {0};
	struct msg *m = node_request(s, n, &one, MSG_PUT_RENEW, 0);

	m->u.put.ticket = op->ticket;
	op->sign_ns = s->now;
	sim_send(s, m);
}

/* ---- get --------------------------------------------------------------------------------------------------- */

static uint64_t some_version(struct sim *s, struct node *n, uint32_t *block)
{
	uint64_t id = 0;
	unsigned seen = 0;

	*block = sim_chance(s, 70) ? 0 : (uint32_t)sim_rnd(s, SIM_BLOCKS);
	if (sim_chance(s, 40)) {
		for (unsigned k = 0; k < N_SSD; k++)
			if (n->ring[k].owner && !n->ring[k].private && !sim_rnd(s, ++seen)) {
				id = n->ring[k].owner;
				*block = n->ring[k].block;
			}
	}
	if (id)
		return id;
	for (unsigned k = 0; k < N_CACHE; k++)
		if (n->cache[k].id && !sim_rnd(s, ++seen))
			id = n->cache[k].id;
	return id;
}

static bool busy_with(const struct node *n, uint64_t put_id)
{
	for (unsigned k = 0; k < N_OPS; k++) {
		const struct op *op = &n->ops[k];

		if (op->kind && op->put_id == put_id)
			return true;
		for (size_t i = 0; op->kind == OP_EVICT && op->req && i < op->req->n_items; i++)
			if (op->req->items[i].put_id == put_id)
				return true;
	}
	return false;
}

static bool being_dropped(const struct node *n, uint64_t put_id)
{
	for (unsigned k = 0; k < N_DROPS; k++)
		if (n->drops[k].put_id == put_id)
			return true;
	return false;
}

static void begin_get(struct sim *s, struct node *n)
{
	uint32_t block;
	uint64_t id = some_version(s, n, &block);
	struct op *op;
	struct msg *m;

	if (!id || being_dropped(n, id))
		return;
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state && n->files[k].owner == id && n->files[k].block == block)
			return;
	op = node_op_begin(n, OP_GET);
	if (!op)
		return;
	op->put_id = id;
	op->block = block;
	m = node_request(s, n, op, MSG_GET_START, 0);
	m->u.get.put_id = id;
	m->u.get.block = block;
	node_post(s, op);
}

static bool source_lost(struct sim *s, struct node *n, const struct op *op)
{
	struct node *source = &s->nodes[op->node];
	struct n_ssd *e = sim_chance(s, 50) ? ring_find(source, op->put_id, op->block) : NULL;

	if (!e || source == n || busy_with(source, op->put_id))
		return false;
	sim_log(s, "node %u has lost block %u of %llu", op->node, op->block, (unsigned long long)op->put_id);
	e->lost = true;
	return true;
}

static void get_go_on(struct sim *s, struct node *n, struct op *op)
{
	bool give_up = sim_chance(s, 25);
	struct msg *m;

	if (give_up) {
		file_unlink(file_of_alloc(n, op->alloc));
		op->alloc = 0;
	}
	m = node_request(s, n, op, give_up ? MSG_GET_REVOKE : MSG_GET_DONE, 0);
	m->u.get.get_id = op->get_id;
	m->u.get.put_id = op->put_id;
	m->u.get.block = op->block;
	m->u.get.source = give_up ? op->flags : 0;
	/* An SSD elsewhere has lost it, and says so. */
	if (give_up && op->flags == MSG_SOURCE_SSD_REMOTE)
		m->u.get.drop_ssd_source = source_lost(s, n, op);
	if (give_up && op->step == 2) {
		struct n_ssd *e = ring_find(n, op->put_id, op->block);

		/* A bad copy of our own: it is not there any more. */
		m->u.get.drop_ssd_source = e && sim_chance(s, 50);
		if (m->u.get.drop_ssd_source)
			memset(e, 0, sizeof(*e));
	}
	node_post(s, op);
}

static void get_answer(struct sim *s, struct node *n, struct op *op, const struct msg *ans)
{
	struct m_version *v = model_version(s, op->put_id);
	struct n_file *f = op->alloc ? file_of_alloc(n, op->alloc) : NULL;

	if (ans->type == MSG_GET_START && !ans->status && ans->u.get.get_id) {
		op->get_id = ans->u.get.get_id;
		op->alloc = ans->u.get.alloc;
		op->flags = ans->u.get.source;
		op->node = ans->u.get.source_node;
		op->step = ans->u.get.source == MSG_SOURCE_SSD_LOCAL ? 2 : 1;
		f = file_new(s, n);
		*f = (struct n_file){.state = FILE_TARGET,
				     .alloc = op->alloc,
				     .bytes = ans->u.get.bytes,
				     .owner = op->put_id,
				     .storage = v ? v->ticket : 0,
				     .block = op->block};
		return;
	}
	if (ans->type == MSG_GET_DONE && f) {
		if (ans->status)
			file_unlink(f); /* the grant is lost */
		else
			f->state = ans->u.get.promoted ? FILE_REPLICA : FILE_TEMP;
	}
	node_op_end(op);
}

/* ---- replicas ---------------------------------------------------------------------------------------------- */

static void begin_evict(struct sim *s, struct node *n)
{
	struct n_file *victims[3];
	unsigned count = 0, want = 1 + (unsigned)sim_rnd(s, 3);
	struct op *op;
	struct msg *m;

	for (unsigned k = (unsigned)sim_rnd(s, N_FILES), left = N_FILES; left-- && count < want; k = (k + 1) % N_FILES)
		if (n->files[k].state == FILE_REPLICA && !being_dropped(n, n->files[k].owner))
			victims[count++] = &n->files[k];
	op = count ? node_op_begin(n, OP_EVICT) : NULL;
	if (!op)
		return;
	m = node_request(s, n, op, MSG_MEM_EVICT, count);
	for (unsigned k = 0; k < count; k++) {
		victims[k]->state = FILE_EVICTING;
		m->items[k] = (struct msg_item){.put_id = victims[k]->owner,
						.block = victims[k]->block,
						.alloc = victims[k]->alloc,
						.flags = sim_chance(s, 30)   ? MSG_ITEM_KEEP
							 : sim_chance(s, 20) ? MSG_ITEM_FORCE
									     : 0};
	}
	node_post(s, op);
}

static void evict_answer(struct node *n, struct op *op, const struct msg *ans)
{
	for (size_t k = 0; k < ans->n_items; k++) {
		struct n_file *f = file_of_alloc(n, op->req->items[k].alloc);

		/* One that was refused in an inventory meanwhile stays what it became there. */
		if (f && f->state == FILE_EVICTING)
			f->state = ans->items[k].status ? FILE_REPLICA : FILE_TEMP;
		if (ans->items[k].flags & MSG_ITEM_GONE)
			forget_version(n, ans->items[k].put_id);
	}
	node_op_end(op);
}

static void begin_freed(struct sim *s, struct node *n)
{
	struct n_file *f = NULL;
	struct op *op;
	struct msg *m;

	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state == FILE_TEMP)
			f = &n->files[k];
	op = f ? node_op_begin(n, OP_FREED) : NULL;
	if (!op)
		return;
	m = node_request(s, n, op, MSG_ALLOC_FREED, 1);
	m->items[0].alloc = f->alloc;
	file_unlink(f);
	node_post(s, op);
}

static void persist_notice(struct sim *s, struct node *n, const struct msg *m)
{
	for (unsigned k = 0; k < m->n_items; k++) {
		const struct msg_item *it = &m->items[k];
		struct n_file *f = file_of_alloc(n, it->alloc);
		struct op *op;

		if (!f || f->state != FILE_REPLICA || f->owner != it->put_id || sim_chance(s, 20))
			continue;
		if (f->block != it->block || ring_find(n, f->owner, f->block))
			sim_fail(s, "SsdReplicaPersist: block %u of %llu", it->block, (unsigned long long)it->put_id);
		op = node_op_begin(n, OP_PERSIST);
		if (!op || !ring_add(n, f->owner, f->storage, f->block)) {
			if (op)
				node_op_end(op);
			continue;
		}
		op->put_id = f->owner;
		op->block = f->block;
	}
}

static void persist_go_on(struct sim *s, struct node *n, struct op *op)
{
	struct msg *m = node_request(s, n, op, MSG_SSD_COMMIT, 1);

	m->items[0].put_id = op->put_id;
	m->items[0].block = op->block;
	node_post(s, op);
}

static void persist_answer(struct node *n, struct op *op, const struct msg *ans)
{
	struct n_ssd *e = ring_find(n, op->put_id, op->block);

	if (e && ans->items[0].status && !e->committed)
		memset(e, 0, sizeof(*e));
	else if (e)
		e->committed = true;
	node_op_end(op);
}

static void begin_ring(struct sim *s, struct node *n)
{
	struct n_ssd *e = NULL;
	struct op *op;
	struct msg *m;

	for (unsigned k = 0; k < N_SSD; k++)
		if (n->ring[k].committed && !busy_with(n, n->ring[k].owner) && !being_dropped(n, n->ring[k].owner))
			e = &n->ring[k];
	op = e ? node_op_begin(n, OP_RING) : NULL;
	if (!op)
		return;
	op->put_id = e->owner;
	op->block = e->block;
	memset(e, 0, sizeof(*e));
	m = node_request(s, n, op, MSG_SSD_EVICT, 1);
	m->items[0].put_id = op->put_id;
	m->items[0].block = op->block;
	node_post(s, op);
}

static void drop_notice(struct sim *s, struct node *n, const struct msg *m)
{
	for (unsigned k = 0; k < m->n_items; k++) {
		unsigned at = 0;

		forget_version(n, m->items[k].put_id);
		if (being_dropped(n, m->items[k].put_id))
			continue;
		while (at < N_DROPS && n->drops[at].put_id)
			at++;
		if (at == N_DROPS)
			sim_fail(s, "node %u: too many drops for this simulation", n->number);
		n->drops[at].put_id = m->items[k].put_id;
		/* as long as somebody holds it */
		n->drops[at].at_ns = s->now + sim_rnd(s, NS_PER_SEC);
	}
}

static bool unknown_version(const struct node *n, uint64_t put_id)
{
	for (unsigned k = 0; k < N_FILES; k++)
		if (n->files[k].state && n->files[k].owner == put_id)
			return false;
	for (unsigned k = 0; k < N_SSD; k++)
		if (n->ring[k].owner == put_id)
			return false;
	return true;
}

static bool publishing(const struct node *n)
{
	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind == OP_PUT && n->ops[k].step == 2)
			return true;
	return false;
}

/* Frees a dropped version whose last holder has let go, and says so. */
static bool begin_ack(struct sim *s, struct node *n)
{
	for (unsigned k = 0; k < N_DROPS; k++) {
		uint64_t id = n->drops[k].put_id;
		struct op *op;
		struct msg *m;

		if (!id || n->drops[k].at_ns > s->now || busy_with(n, id) || (unknown_version(n, id) && publishing(n)))
			continue;
		op = node_op_begin(n, OP_ACK);
		if (!op)
			return false;
		op->put_id = id;
		for (unsigned f = 0; f < N_FILES; f++)
			if (n->files[f].state && n->files[f].owner == id)
				file_unlink(&n->files[f]);
		for (unsigned e = 0; e < N_SSD; e++)
			if (n->ring[e].owner == id)
				memset(&n->ring[e], 0, sizeof(n->ring[e]));
		n->drops[k].put_id = 0;
		m = node_request(s, n, op, MSG_DELETE_ACK, 1);
		m->items[0].put_id = id;
		node_post(s, op);
		return true;
	}
	return false;
}

/* ---- holders ----------------------------------------------------------------------------------------------- */

static void begin_hold(struct sim *s, struct node *n)
{
	uint32_t block;
	uint64_t id = some_version(s, n, &block);
	struct op *op;
	struct msg *m;

	if (!id || being_dropped(n, id) || busy_with(n, id))
		return;
	op = node_op_begin(n, OP_HOLD);
	if (!op)
		return;
	op->put_id = id;
	m = node_request(s, n, op, MSG_HOLD, 1);
	m->items[0].put_id = id;
	node_post(s, op);
}

static void hold_go_on(struct sim *s, struct node *n, struct op *op)
{
	struct msg *m;

	if (!s->quiet && sim_chance(s, 80))
		return;
	m = node_request(s, n, op, MSG_RELEASE, 1);
	m->items[0].put_id = op->put_id;
	op->step = 2;
	node_post(s, op);
}

static void hold_answer(struct op *op, const struct msg *ans)
{
	if (op->step == 2 || ans->items[0].status) {
		node_op_end(op);
		return;
	}
	msg_free(op->req);
	op->req = NULL;
	op->step = 1;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

static void begin_name(struct sim *s, struct node *n)
{
	static const enum msg_type types[] = {MSG_LOOKUP, MSG_LOOKUP,  MSG_LOOKUP, MSG_LOOKUP, MSG_MKDIR,
					      MSG_MKDIR,  MSG_RMDIR,   MSG_DELETE, MSG_DELETE, MSG_RENAME,
					      MSG_RENAME, MSG_SETATTR, MSG_READDIR};
	enum msg_type type = types[sim_rnd(s, sizeof(types) / sizeof(types[0]))];
	struct op *op = node_op_begin(n, OP_NAME);
	uint64_t dir = some_dir(s);
	struct msg *m;
	unsigned seen = 0;

	if (!op)
		return;
	if (type == MSG_MKDIR && dir != MSG_ROOT_DIR && sim_chance(s, 80)) {
		node_op_end(op);
		return;
	}
	m = node_request(s, n, op, type, 0);
	if (type == MSG_RENAME) {
		m->u.rename.from_dir = dir;
		some_name(s, dir, m->u.rename.from);
		m->u.rename.to_dir = some_dir(s);
		some_name(s, m->u.rename.to_dir, m->u.rename.to);
		m->u.rename.noreplace = sim_chance(s, 20);
	} else if (type == MSG_SETATTR) {
		m->u.attr.a.id = 5;
		for (unsigned k = 0; k < M_NAMES; k++)
			if (s->model.names[k].dir && !sim_rnd(s, ++seen))
				m->u.attr.a.id = s->model.names[k].id;
		m->u.attr.mask = 1u << sim_rnd(s, 7);
		m->u.attr.a.flags = sim_chance(s, 40) ? MSG_ATTR_PIN : 0;
		m->u.attr.a.expires_ns = sim_chance(s, 50) ? 0 : s->real + (int64_t)sim_rnd(s, 5 * NS_PER_SEC) + 1;
	} else if (type == MSG_READDIR) {
		m->u.readdir.dir = dir;
		m->u.readdir.max = 1000;
	} else {
		m->u.name.dir = dir;
		some_name(s, dir, m->u.name.name);
	}
	/* Most look-ups are of what is there: they bring leases, and gets of what others have put. */
	for (unsigned k = 0; type == MSG_LOOKUP && k < M_NAMES; k++)
		if (s->model.names[k].dir && !s->model.names[k].is_dir && !sim_rnd(s, ++seen)) {
			m->u.name.dir = s->model.names[k].dir;
			strcpy(m->u.name.name, s->model.names[k].name);
		}
	node_post(s, op);
}

bool node_name_op(struct sim *s, struct node *n, struct msg *m)
{
	struct op *op = node_op_begin(n, OP_NAME);

	if (!op)
		return false;
	m->node = n->number;
	m->tomb_tag = n->tag;
	m->req_id = ++s->req_id;
	op->req = m;
	node_post(s, op);
	return true;
}

/* What has moved is not what this node knew under the old name, if the revoke of that was lost: both are forgotten. */
static void rename_answer(struct sim *s, struct node *n, const struct msg *req, const struct msg *ans)
{
	if (req->u.rename.from_dir == req->u.rename.to_dir && !strcmp(req->u.rename.from, req->u.rename.to))
		return;
	lease_end(s, n, req->u.rename.from_dir, req->u.rename.from, ans->u.rename.lease);
	lease_end(s, n, req->u.rename.to_dir, req->u.rename.to, ans->u.rename.lease - 1);
}

static void name_answer(struct sim *s, struct node *n, struct op *op, const struct msg *ans)
{
	const struct msg *req = op->req;

	if (!ans->status && (ans->type == MSG_LOOKUP || ans->type == MSG_MKDIR))
		lease_grant(s, n, req->u.name.dir, req->u.name.name, ans->u.entry.a.id, ans->u.entry.lease);
	if (!ans->status && (ans->type == MSG_DELETE || ans->type == MSG_RMDIR))
		lease_end(s, n, req->u.name.dir, req->u.name.name, ans->u.entry.lease);
	if (!ans->status && ans->type == MSG_DELETE)
		s->deleted[ans->u.entry.replaced_id % SIM_DELETED] = ans->u.entry.replaced_id;
	if (!ans->status && ans->type == MSG_RENAME)
		rename_answer(s, n, req, ans);
	if (!ans->status && ans->type == MSG_MKDIR &&
	    s->n_acked_dirs < sizeof(s->acked_dirs) / sizeof(s->acked_dirs[0]))
		s->acked_dirs[s->n_acked_dirs++] = ans->u.entry.a.id;
	node_op_end(op);
}

/* ---- what comes from the master ---------------------------------------------------------------------------- */

/* Its own table is changed at once; that may be told twice, late, or not at all. */
static void revoke_notice(struct sim *s, struct node *n, const struct msg *m)
{
	struct op one = {0};
	struct msg *ack;

	if (m->u.revoke.dir)
		lease_end(s, n, m->u.revoke.dir, m->u.revoke.name, m->u.revoke.seq);
	for (unsigned k = 0; k < N_CACHE && !m->u.revoke.dir; k++)
		if (n->cache[k].dir && n->cache[k].lease <= m->u.revoke.seq)
			n->cache[k].id = 0;
	if (!m->u.revoke.dir && m->u.revoke.seq > n->ended_all)
		n->ended_all = m->u.revoke.seq;
	if (!m->u.revoke.ack)
		sim_fail(s, "NameRevoke: asks for no acknowledgement");
	if (!n->joined)
		return;
	ack = node_request(s, n, &one, MSG_REVOKE_ACK, 0);
	ack->u.revoke.seq = m->u.revoke.seq;
	sim_send(s, ack);
}

static void notice(struct sim *s, struct node *n, const struct msg *m)
{
	if (m->type == MSG_DROP)
		drop_notice(s, n, m);
	else if (m->type == MSG_SSD_PERSIST)
		persist_notice(s, n, m);
	else if (m->type == MSG_NAME_REVOKE)
		revoke_notice(s, n, m);
	else
		sim_fail(s, "node %u got a notice %s", n->number, msg_type_name(m->type));
}

static bool incarnation_over(struct sim *s, struct node *n)
{
	return !s->model.members[n->number].live || s->model.members[n->number].tag != n->tag;
}

static void answer(struct sim *s, struct node *n, struct op *op, const struct msg *m)
{
	struct msg *req = op->req;

	if (m->status == -EUNATCH) {
		node_awaited(s, n, op);
		return;
	}
	if (op->kind == OP_RESUME && m->status != -ESTALE) {
		node_resume_answer(s, n, op, m);
		return;
	}
	/* A node asks by a heartbeat whether it is the ticket that is over, or itself. */
	if (m->status == -ESTALE && op->kind != OP_JOIN && incarnation_over(s, n)) {
		sim_log(s, "node %u learns that it is over", n->number);
		node_reset(s, n);
		return;
	}
	switch (op->kind) {
	case OP_JOIN:
		n->joined = !m->status;
		n->tag = m->status ? 0 : m->u.join.tomb_tag;
		n->beat_ns = s->now;
		node_op_end(op);
		return;
	case OP_PUT:
		op->req = NULL;
		put_answer(s, n, op, m);
		msg_free(req);
		return;
	case OP_GET:
		op->req = NULL;
		get_answer(s, n, op, m);
		msg_free(req);
		return;
	case OP_EVICT:
		evict_answer(n, op, m);
		return;
	case OP_PERSIST:
		persist_answer(n, op, m);
		return;
	case OP_RING:
		if (m->items[0].flags & MSG_ITEM_GONE)
			forget_version(n, op->put_id);
		node_op_end(op);
		return;
	case OP_NAME:
		name_answer(s, n, op, m);
		return;
	case OP_LEAVE:
		node_reset(s, n);
		return;
	case OP_BEAT:
		/* From when it was sent first: whichever of them was answered, it was no earlier. */
		if (!m->status && m->u.heartbeat.lease_ns && op->began_ns + m->u.heartbeat.lease_ns > n->lease_until)
			n->lease_until = op->began_ns + m->u.heartbeat.lease_ns;
		node_op_end(op);
		return;
	case OP_HOLD:
		hold_answer(op, m);
		return;
	default:
		node_op_end(op);
		return;
	}
}

void node_receive(struct sim *s, struct node *n, const struct msg *m)
{
	if (!m->req_id) {
		notice(s, n, m);
		return;
	}
	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind && n->ops[k].req && n->ops[k].req->req_id == m->req_id) {
			if (!m->status)
				model_told(s, m->req_id);
			answer(s, n, &n->ops[k], m);
			return;
		}
}

/* ---- acting ------------------------------------------------------------------------------------------------ */

static void op_go_on(struct sim *s, struct node *n, struct op *op)
{
	if (op->req) {
		if (s->now - op->sent_ns > RESEND_NS) {
			sim_log(s, "node %u sends %s again", n->number, msg_type_name(op->req->type));
			node_post(s, op);
		}
		return;
	}
	if (op->kind == OP_PUT)
		put_go_on(s, n, op);
	else if (op->kind == OP_GET)
		get_go_on(s, n, op);
	else if (op->kind == OP_PERSIST)
		persist_go_on(s, n, op);
	else if (op->kind == OP_HOLD)
		hold_go_on(s, n, op);
	else if (op->kind == OP_RESUME)
		node_resume_go_on(s, n, op);
}

static void keep_alive(struct sim *s, struct node *n)
{
	struct op *op;
	struct msg *m;

	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind == OP_PUT && n->ops[k].ticket && s->now - n->ops[k].sign_ns > RENEW_NS &&
		    !sim_chance(s, 20))
			put_renew(s, n, &n->ops[k]);
	if (s->now - n->beat_ns < BEAT_NS || op_find(n, OP_BEAT))
		return;
	op = node_op_begin(n, OP_BEAT);
	if (!op)
		return;
	n->beat_ns = s->now;
	m = node_request(s, n, op, MSG_HEARTBEAT, 0);
	m->u.heartbeat.capacity = SIM_CAPACITY;
	m->u.heartbeat.zombie = !s->quiet && sim_chance(s, 20) ? sim_rnd(s, SIM_CAPACITY / 2) : 0;
	node_post(s, op);
}

static void begin_leave(struct sim *s, struct node *n)
{
	struct op *op = node_op_begin(n, OP_LEAVE);

	if (!op)
		return;
	node_request(s, n, op, MSG_LEAVE, 0);
	node_post(s, op);
}

static bool go_on_with_one(struct sim *s, struct node *n)
{
	unsigned first = (unsigned)sim_rnd(s, N_OPS);
	bool any = false;

	for (unsigned k = 0; k < N_OPS; k++) {
		struct op *op = &n->ops[(first + k) % N_OPS];

		if (op->kind && !any) {
			any = true;
			op_go_on(s, n, op);
		}
	}
	return any;
}

void node_act(struct sim *s, struct node *n)
{
	uint64_t what = sim_rnd(s, 1000);

	if (!n->joined) {
		if (op_find(n, OP_JOIN))
			go_on_with_one(s, n);
		else if (s->now - n->beat_ns > BEAT_NS)
			begin_join(s, n);
		return;
	}
	keep_alive(s, n);
	if (what < 450)
		go_on_with_one(s, n);
	else if (what < 570)
		begin_put(s, n);
	else if (what < 680)
		begin_get(s, n);
	else if (what < 695)
		begin_hold(s, n);
	else if (what < 760)
		begin_evict(s, n);
	else if (what < 780)
		begin_ring(s, n);
	else if (what < 840)
		begin_freed(s, n);
	else if (what < 900)
		begin_ack(s, n);
	else if (what < 997)
		begin_name(s, n);
	else
		begin_leave(s, n);
}

bool node_settle(struct sim *s, struct node *n)
{
	bool more;

	if (!n->joined) {
		node_act(s, n);
		return true;
	}
	keep_alive(s, n);
	more = go_on_with_one(s, n);
	begin_freed(s, n);
	begin_ack(s, n);
	for (unsigned k = 0; k < N_DROPS; k++)
		more |= n->drops[k].put_id != 0;
	for (unsigned k = 0; k < N_FILES; k++)
		more |= n->files[k].state == FILE_TEMP;
	return more;
}

/* ---- checking ---------------------------------------------------------------------------------------------- */

static bool late(struct sim *s, uint64_t alloc)
{
	for (unsigned k = 0; k < 64; k++)
		if (s->late.expired[k] == alloc)
			return true;
	return false;
}

static bool op_on(const struct node *n, enum op_kind kind, uint64_t put_id)
{
	for (unsigned k = 0; k < N_OPS; k++)
		if (n->ops[k].kind == kind && n->ops[k].put_id == put_id)
			return true;
	return false;
}

/* A notice that the ring has lost it, or a refill's that it is bad, is under way. */
static bool loss_under_way(const struct node *n, uint64_t put_id, uint32_t block)
{
	for (unsigned k = 0; k < N_OPS; k++)
		if ((n->ops[k].kind == OP_RING || n->ops[k].kind == OP_GET) && n->ops[k].put_id == put_id &&
		    n->ops[k].block == block)
			return true;
	return false;
}

static void check_counted_on(struct sim *s, struct node *n, const struct m_version *v, uint32_t b)
{
	uint64_t alloc = v->r[n->number][b].alloc;
	const struct n_file *f = alloc ? file_of_alloc(n, alloc) : NULL;
	bool acked = v->orphan && op_on(n, OP_ACK, v->id);

	if (alloc && !acked && (!f || f->storage != v->ticket || f->block != b))
		sim_fail(s, "node %u has no file for block %u of %llu, which the master counts on", n->number, b,
			 (unsigned long long)v->id);
	if (v->r[n->number][b].ssd && !acked && !node_has_block(n, v->ticket, b, false) && !loss_under_way(n, v->id, b))
		sim_fail(s, "node %u has no ring entry for block %u of %llu", n->number, b, (unsigned long long)v->id);
}

void node_check(struct sim *s, struct node *n)
{
	if (!n->joined || incarnation_over(s, n))
		return;
	for (unsigned k = 0; k < N_FILES; k++) {
		const struct n_file *f = &n->files[k];

		if (f->state && model_charge(s, n->number, f->alloc) < f->bytes && !late(s, f->alloc))
			sim_fail(s, "node %u has a file of %llu bytes (allocation %llu) charged with %llu", n->number,
				 (unsigned long long)f->bytes, (unsigned long long)f->alloc,
				 (unsigned long long)model_charge(s, n->number, f->alloc));
	}
	for (unsigned k = 0; k < M_VERSIONS; k++)
		for (uint32_t b = 0; s->model.versions[k].id && b < s->model.versions[k].blocks; b++)
			check_counted_on(s, n, &s->model.versions[k], b);
}

/* A change of the name by this node itself that has no answer yet: until then it does not use what it has leased. */
static bool changes_name(const struct node *n, uint64_t dir, const char *name)
{
	for (unsigned k = 0; k < N_OPS; k++) {
		const struct msg *m = n->ops[k].req;

		if (!m)
			continue;
		if ((m->type == MSG_DELETE || m->type == MSG_RMDIR) && m->u.name.dir == dir &&
		    !strcmp(m->u.name.name, name))
			return true;
		if (m->type == MSG_RENAME && ((m->u.rename.from_dir == dir && !strcmp(m->u.rename.from, name)) ||
					      (m->u.rename.to_dir == dir && !strcmp(m->u.rename.to, name))))
			return true;
	}
	return false;
}

void node_check_leases(struct sim *s, struct node *n)
{
	/* One that wants to leave serves nobody any more. */
	if (!n->joined || s->now >= n->lease_until || op_find(n, OP_LEAVE))
		return;
	for (unsigned k = 0; k < N_CACHE; k++) {
		const struct n_cached *e = &n->cache[k];

		if (e->dir && e->id && !model_may_see(s, e->dir, e->name, e->id) && !changes_name(n, e->dir, e->name))
			sim_fail(s,
				 "node %u opens %s in %llu and gets %llu (lease %llu), which was told to be replaced",
				 n->number, e->name, (unsigned long long)e->dir, (unsigned long long)e->id,
				 (unsigned long long)e->lease);
	}
}

void node_check_quiet(struct sim *s, struct node *n)
{
	for (unsigned k = 0; k < N_CACHE; k++) {
		const struct n_cached *e = &n->cache[k];
		const struct m_name *m = e->dir && e->id ? model_name(s, e->dir, e->name) : NULL;

		if (e->dir && e->id && (!m || m->id != e->id))
			sim_fail(s, "node %u still has a lease on %s in %llu for %llu (sequence %llu)", n->number,
				 e->name, (unsigned long long)e->dir, (unsigned long long)e->id,
				 (unsigned long long)e->lease);
	}
}
