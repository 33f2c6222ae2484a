/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master_sim [--seed N | --seeds FIRST:LAST] [--events N] [-v]: the simulated cluster of tests/sim/sim.h. Without
 * options it runs the seeds of `make check`. A seed that fails prints what is wrong and the line that shows it again.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "master/state.h"
#include "tests/sim/sim.h"

#define EVENTS_DEFAULT 2500
#define SEEDS_DEFAULT 2000
#define PENDING_MAX 8u	   /* steps that wait for the catalogue */
#define SETTLE_MAX 200000u /* events until everything must have come to rest */

/* ---- small things ------------------------------------------------------------------------------------------ */

uint64_t sim_rnd(struct sim *s, uint64_t n)
{
	/* splitmix64 */
	uint64_t x = s->rng += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return n ? x % n : 0;
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	printf("# event %llu: ", (unsigned long long)s->event);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n# again: tests/sim/master_sim --seed %llu --events %llu -v\n", (unsigned long long)s->seed,
	       (unsigned long long)s->events);
	longjmp(s->out, 1);
}

void sim_log(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	fprintf(stderr, "%6llu %9.3f ", (unsigned long long)s->event, (double)s->now / 1e9);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

struct msg *sim_copy(const struct msg *m)
{
	struct msg *c = msg_new(m->type);

	*c = *m;
	c->items = NULL;
	if (m->n_items) {
		msg_alloc_items(c, m->n_items);
		memcpy(c->items, m->items, m->n_items * sizeof(*m->items));
	}
	c->blob = NULL;
	c->blob_len = 0;
	c->ents = NULL;
	c->n_ents = 0;
	c->namespaces = NULL;
	c->n_namespaces = 0;
	return c;
}

static uint64_t record_hash(const struct write_rec *rec)
{
	const struct write_inode *i = &rec->u.inode;
	const struct write_replica *r = &rec->u.replica;
	const struct write_ns *n = &rec->u.ns;
	uint64_t f[20] = {rec->type};

	if (rec->type == WRITE_DIR || rec->type == WRITE_OBJECT) {
		const uint64_t all[] = {i->id,
					i->parent,
					i->cookie,
					i->ns,
					i->mode,
					i->uid,
					i->gid,
					i->storage_id,
					i->size,
					i->alloc,
					(uint64_t)i->expires_ns,
					i->home,
					i->tiers,
					i->flags,
					i->block_shift};

		memcpy(f + 1, all, sizeof(all));
		if (rec->type == WRITE_OBJECT)
			f[16] = hash_u64((uint64_t)i->mtime_ns) ^ hash_u64((uint64_t)i->ctime_ns);
	} else if (rec->type == WRITE_REPLICA) {
		memcpy(f + 1, (const uint64_t[]){r->put_id, r->alloc, r->block, r->node, r->tiers}, 5 * sizeof(f[0]));
	} else if (rec->type == WRITE_NAMESPACE) {
		memcpy(f + 1, (const uint64_t[]){n->root_dir, n->block_size, n->ttl_seconds, n->number, n->persist},
		       5 * sizeof(f[0]));
	}
	return hash_bytes(f, sizeof(f), hash_bytes(rec->data, rec->len, 1));
}

uint64_t sim_state_hash(struct sim *s, struct core *c)
{
	struct writes w = {0};
	const struct write_rec *rec;
	uint64_t sum = 0;
	size_t pos = 0;

	if (core_dump(c, &w) < 0)
		sim_fail(s, "no memory");
	while ((rec = writes_next(&w, &pos)))
		/* The order does not matter, so a sum; members and the counter are checked otherwise. The root has a
		 * row only once something is made in it. */
		if (rec->type != WRITE_MEMBER && rec->type != WRITE_COUNTER &&
		    !(rec->type == WRITE_DIR && rec->u.inode.id == MSG_ROOT_DIR))
			sum += record_hash(rec);
	writes_free(&w);
	return sum;
}

/* ---- the network ------------------------------------------------------------------------------------------- */

static void add_request(struct sim *s, struct msg *m)
{
	if (s->n_requests == S_REQUESTS) {
		msg_free(m);
		return;
	}
	s->requests[s->n_requests++] = m;
}

void sim_send(struct sim *s, struct msg *m)
{
	if (!s->quiet && sim_chance(s, 3)) {
		sim_log(s, "%s of node %u is lost", msg_type_name(m->type), m->node);
		msg_free(m);
		return;
	}
	if (!s->quiet && sim_chance(s, 3))
		add_request(s, sim_copy(m));
	add_request(s, m);
}

static void to_node(struct sim *s, uint32_t node, struct msg *m)
{
	if (s->n_line[node] == S_LINE)
		sim_fail(s, "the line to node %u is too short for this simulation", node);
	s->line[node][s->n_line[node]++] = m;
}

/* The oldest of what is on its way to the node arrives, or does not. */
static bool deliver(struct sim *s, uint32_t node)
{
	struct msg *m;
	unsigned loss = 3;

	if (!s->n_line[node])
		return false;
	m = s->line[node][0];
	s->n_line[node]--;
	memmove(s->line[node], s->line[node] + 1, s->n_line[node] * sizeof(m));
	if (m->type == MSG_NAME_REVOKE)
		loss = s->now < s->nodes[node].deaf_ns ? 100 : 10;
	else if (m->type == MSG_DROP || m->type == MSG_SSD_PERSIST)
		loss = 15;
	if (!s->quiet && sim_chance(s, loss))
		sim_log(s, "%s to node %u is lost", msg_type_name(m->type), node);
	else
		node_receive(s, &s->nodes[node], m);
	msg_free(m);
	return true;
}

/* ---- the master's process ----------------------------------------------------------------------------------- */

static void check_core(struct sim *s)
{
	char why[256];

	if (core_check(s->core, why, sizeof(why)) < 0)
		sim_fail(s, "%s", why);
	model_compare(s);
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		node_check(s, &s->nodes[n]);
}

static void check_out(struct sim *s, const struct core_msg *cm)
{
	const struct msg *m = cm->msg;

	if (m->req_id && !s->owed--)
		sim_fail(s, "%s: one answer too many", msg_type_name(m->type));
	for (size_t k = 0; m->type == MSG_DROP && k < m->n_items; k++)
		if (model_held(s, m->items[k].put_id))
			sim_fail(s, "node %u is told to drop %llu, which is held", cm->node,
				 (unsigned long long)m->items[k].put_id);
}

/* What the step put out goes to the nodes, or waits for the catalogue. */
static void take_out(struct sim *s, struct core_out *out)
{
	struct pending *p = &s->pending[s->n_pending];
	bool waits = s->n_pending || out->writes.n;
	size_t n = 0;

	for (size_t k = 0; k < out->n_msgs; k++) {
		check_out(s, &out->msgs[k]);
		if (out->msgs[k].after_commit && waits)
			out->msgs[n++] = out->msgs[k];
		else
			to_node(s, out->msgs[k].node, out->msgs[k].msg);
	}
	out->n_msgs = n;
	if (!n && !out->writes.n) {
		core_out_clear(out);
		return;
	}
	*p =
	    (struct pending){.writes = out->writes, .msgs = out->msgs, .n_msgs = n, .hash = sim_state_hash(s, s->core)};
	s->n_pending++;
}

static bool is_held(const struct sim *s, const struct msg *m)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &s->core->held)
	{
		if (container_of(pos, struct wait, list)->m == m)
			return true;
	}
	return false;
}

static bool seen(struct sim *s, const struct msg *req, const struct msg *ans);

/* What a master that has started had put off has been done, in its order. */
static bool follow_held(struct sim *s)
{
	size_t n = 0;

	while (n < s->n_held && !is_held(s, s->held[n].m)) {
		/* What was published before it may have expired by now. */
		model_tick(s);
		if (!seen(s, s->held[n].req, s->held[n].m))
			model_follow(s, s->held[n].req, s->held[n].m);
		msg_free(s->held[n++].req);
	}
	s->n_held -= n;
	memmove(s->held, s->held + n, s->n_held * sizeof(s->held[0]));
	return n;
}

static void tick(struct sim *s)
{
	struct core_out out = {0};

	core_tick(s->core, s->now, s->real, &out);
	model_tick(s);
	if (follow_held(s)) {
		core_tick(s->core, s->now, s->real, &out);
		model_tick(s);
	}
	take_out(s, &out);
}

static void commit(struct sim *s, size_t steps)
{
	struct writes all = {0};
	struct errmsg e;

	/* One transaction for all of them, as the writer does. */
	for (unsigned k = 0; k < steps; k++)
		if (writes_move(&all, &s->pending[k].writes) < 0)
			sim_fail(s, "no memory");
	if (catalogue_apply(s->cat, &all, &e) < 0)
		sim_fail(s, "%s", e.text);
	core_committed(s->core, all.counter);
	writes_free(&all);
	s->committed_hash = s->pending[steps - 1].hash;
	for (unsigned k = 0; k < steps; k++) {
		struct pending *p = &s->pending[k];

		for (unsigned j = 0; j < p->n_msgs; j++)
			to_node(s, p->msgs[j].node, p->msgs[j].msg);
		free(p->msgs);
		writes_free(&p->writes);
	}
	s->n_pending -= steps;
	memmove(s->pending, s->pending + steps, s->n_pending * sizeof(s->pending[0]));
}

/* Only looks, or may be done twice. */
static bool is_remembered(enum msg_type type)
{
	return type != MSG_LOOKUP && type != MSG_READDIR && type != MSG_HEARTBEAT;
}

/*
 * Whether the request has come before, and was not refused as that of a dead incarnation, so that the answer must be
 * the first one's. Remembers it if not.
 */
static bool seen(struct sim *s, const struct msg *req, const struct msg *ans)
{
	const struct m_member *m = &s->model.members[req->node];
	bool joined = m->live || m->resuming;
	uint64_t tag = req->type == MSG_JOIN && !joined ? ans->u.join.tomb_tag : m->tag;

	if (ans->status == -EUNATCH || !is_remembered(req->type) ||
	    (req->type != MSG_JOIN && (!joined || m->tag != req->tomb_tag)))
		return false;
	/* A JOIN of one that is awaited is nothing that was done before. */
	for (size_t k = joined ? 0 : s->seen.n; k < s->seen.n; k++) {
		const struct sim_seen *e = &s->seen.ids[k];

		if (e->req_id != req->req_id || e->tag != tag)
			continue;
		if (e->status != ans->status)
			sim_fail(s, "%s came twice and was answered %d, then %d", msg_type_name(req->type), e->status,
				 ans->status);
		if (req->type != MSG_JOIN)
			s->model.members[req->node].sign = s->now;
		return ans->status != -ESTALE;
	}
	if (s->seen.n == s->seen.cap) {
		s->seen.cap = s->seen.cap * 2 + 64;
		s->seen.ids = realloc(s->seen.ids, s->seen.cap * sizeof(*s->seen.ids));
	}
	s->seen.ids[s->seen.n++] = (struct sim_seen){req->req_id, tag, ans->status};
	return false;
}

static bool is_put_out(const struct core_out *out, const struct msg *m)
{
	for (size_t k = 0; k < out->n_msgs; k++)
		if (out->msgs[k].msg == m)
			return true;
	return false;
}

static void put_off(struct sim *s, struct msg *req, const struct msg *m)
{
	if (s->n_held == S_HELD)
		sim_fail(s, "too much is put off for this simulation");
	s->held[s->n_held++] = (struct sim_held){req, m};
}

static void handle(struct sim *s, struct msg *m)
{
	struct msg *req = sim_copy(m);
	struct core_out out = {0};
	bool again;

	tick(s);
	again = core_has_done(s->core, m);
	s->owed++;
	if (core_handle(s->core, m, s->now, s->real, &out) < 0)
		sim_fail(s, "no memory");
	if (again && !is_put_out(&out, m)) {
		sim_log(s, "node %u: %s: again, waits with the first", req->node, msg_type_name(req->type));
		s->model.members[req->node].sign = s->now;
	} else if (is_held(s, m)) {
		sim_log(s, "node %u: %s: put off", req->node, msg_type_name(req->type));
		put_off(s, req, m);
		req = NULL;
	} else {
		sim_log(s, "node %u: %s: %d%s", m->node, msg_type_name(m->type), m->status,
			is_put_out(&out, m) ? "" : ", waits");
		s->counts[m->type][m->status != 0]++;
		s->waited += !is_put_out(&out, m);
		/* A request that has come before is answered as before, and the model has followed it then. */
		if (!seen(s, req, m))
			model_follow(s, req, m);
	}
	msg_free(req);
	take_out(s, &out);
	check_core(s);
	if (s->n_pending >= PENDING_MAX)
		commit(s, 1 + sim_rnd(s, s->n_pending));
}

static struct core *new_core(struct sim *s)
{
	const struct core_config cfg = {
	    .auto_namespace = true,
	    .default_block_size = SIM_BLOCK,
	    .put_deadline_ns = SIM_PUT_DEADLINE,
	    .get_deadline_ns = SIM_GET_DEADLINE,
	    .dead_after_ns = SIM_DEAD_AFTER,
	    .repeat_ns = SIM_REPEAT,
	    .lease_ns = SIM_LEASE,
	    .resume_ns = s->resumes ? SIM_RESUME : 0,
	    .recent_answers = 1024,
	    .id_block = 512,
	    .hash_seed = s->seed,
	};
	struct core *c = core_new(&cfg);

	if (!c)
		sim_fail(s, "no memory");
	return c;
}

static struct core *load(struct sim *s, bool objects, struct core_out *out)
{
	struct core *c = new_core(s);
	struct errmsg e;

	if (catalogue_load(s->cat, c, objects, &e) < 0)
		sim_fail(s, "%s", e.text);
	if (core_load_end(c, out) < 0)
		sim_fail(s, "the loaded state does not hang together");
	return c;
}

static void start_core(struct sim *s)
{
	struct core_out out = {0};
	struct errmsg e;

	s->core = load(s, s->resumes, &out);
	if (catalogue_apply(s->cat, &out.writes, &e) < 0)
		sim_fail(s, "%s", e.text);
	core_committed(s->core, out.writes.counter);
	core_out_clear(&out);
	s->committed_hash = sim_state_hash(s, s->core);
}

static bool in_dump(struct sim *s, struct core *c, uint64_t id)
{
	struct writes w = {0};
	const struct write_rec *rec;
	size_t pos = 0;
	bool there = false;

	if (core_dump(c, &w) < 0)
		sim_fail(s, "no memory");
	while ((rec = writes_next(&w, &pos)))
		there |= (rec->type == WRITE_DIR || rec->type == WRITE_OBJECT) && rec->u.inode.id == id;
	writes_free(&w);
	return there;
}

static bool dir_ended(const struct sim *s, uint64_t id)
{
	for (unsigned k = 0; k < s->n_ended_dirs; k++)
		if (s->ended_dirs[k] == id)
			return true;
	return false;
}

/* What a node was told is there must be in the catalogue, unless something has ended it since. */
static void check_acknowledged(struct sim *s, struct core *loaded)
{
	for (unsigned k = 0; k < M_VERSIONS; k++) {
		const struct m_version *v = &s->model.versions[k];

		if (v->id && v->acked && !v->orphan && !in_dump(s, loaded, v->id))
			sim_fail(s, "%llu was acknowledged and is not in the catalogue", (unsigned long long)v->id);
	}
	for (unsigned k = 0; k < s->n_acked_dirs; k++)
		if (!dir_ended(s, s->acked_dirs[k]) && !in_dump(s, loaded, s->acked_dirs[k]))
			sim_fail(s, "directory %llu was acknowledged and is not in the catalogue",
				 (unsigned long long)s->acked_dirs[k]);
}

static void drop_pending(struct sim *s)
{
	for (unsigned k = 0; k < s->n_pending; k++) {
		for (unsigned j = 0; j < s->pending[k].n_msgs; j++)
			msg_free(s->pending[k].msgs[j].msg);
		free(s->pending[k].msgs);
		writes_free(&s->pending[k].writes);
	}
	s->n_pending = 0;
}

static void drop_connections(struct sim *s)
{
	for (unsigned k = 0; k < s->n_requests; k++)
		msg_free(s->requests[k]);
	s->n_requests = 0;
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		for (unsigned k = 0; k < s->n_line[n]; k++)
			msg_free(s->line[n][k]);
		s->n_line[n] = 0;
	}
}

static void drop_held(struct sim *s)
{
	for (size_t k = 0; k < s->n_held; k++)
		msg_free(s->held[k].req);
	s->n_held = s->owed = 0;
}

/* kill -9 of the master, and its start. */
static void restart_master(struct sim *s)
{
	struct core_out out = {0};
	struct core *loaded;
	char why[256];

	sim_log(s, "the master dies with %zu steps uncommitted", s->n_pending);
	s->restarts++;
	drop_pending(s);
	drop_connections(s);
	drop_held(s);
	s->core = core_free(s->core);
	loaded = load(s, true, &out);
	if (core_check(loaded, why, sizeof(why)) < 0)
		sim_fail(s, "loaded: %s", why);
	if (out.writes.n != 1)
		sim_fail(s, "the catalogue holds what hangs nowhere");
	if (sim_state_hash(s, loaded) != s->committed_hash)
		sim_fail(s, "the catalogue is not what the last committed step left");
	check_acknowledged(s, loaded);
	model_restart(s, loaded);
	core_free(loaded);
	core_out_clear(&out);
	start_core(s);
	check_core(s);
}

/* ---- events ------------------------------------------------------------------------------------------------- */

static void some_request(struct sim *s)
{
	size_t k = sim_rnd(s, s->n_requests);
	struct msg *m;

	if (!s->n_requests)
		return;
	m = s->requests[k];
	s->requests[k] = s->requests[--s->n_requests];
	handle(s, m);
}

static void fault(struct sim *s)
{
	uint32_t n = 1 + (uint32_t)sim_rnd(s, SIM_NODES);

	switch (sim_rnd(s, 8)) {
	case 0:
	case 1:
		sim_log(s, "node %u dies", n);
		s->crashes++;
		node_reset(s, &s->nodes[n]);
		break;
	case 2:
		restart_master(s);
		break;
	case 3:
		s->now += sim_rnd(s, 4 * NS_PER_SEC);
		break;
	case 5:
		s->nodes[n].deaf_ns = s->now + sim_rnd(s, 5 * NS_PER_SEC);
		sim_log(s, "node %u hears no revoke for a while", n);
		break;
	case 4:
		s->real += (int64_t)sim_rnd(s, 20 * NS_PER_SEC) - (int64_t)(10 * NS_PER_SEC);
		break;
	default:
		break;
	}
}

static void pass(struct sim *s, uint64_t ns)
{
	ns = sim_rnd(s, ns);
	s->now += ns;
	s->real += (int64_t)ns;
	s->event++;
}

static void one_event(struct sim *s)
{
	uint64_t what = sim_rnd(s, 1000);

	pass(s, 15 * NS_PER_MS);
	if (what < 330)
		some_request(s);
	else if (what < 600)
		deliver(s, 1 + (uint32_t)sim_rnd(s, SIM_NODES));
	else if (what < 680 && s->n_pending)
		commit(s, 1 + sim_rnd(s, s->n_pending));
	else if (what < 994)
		node_act(s, &s->nodes[1 + sim_rnd(s, SIM_NODES)]);
	else
		fault(s);
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		node_check_leases(s, &s->nodes[n]);
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

/* One round in which everything gets a little further. False: nothing was left to do. */
static bool settle_round(struct sim *s)
{
	struct core_counts counts;
	bool more;

	/* A drop that one which was coming back was not told of is told again. */
	core_counts(s->core, &counts);
	more = s->resumes && (counts.orphans || s->model.recovering);
	pass(s, 40 * NS_PER_MS);
	if (s->n_requests) {
		some_request(s);
		more = true;
	} else {
		tick(s);
	}
	if (s->n_pending) {
		commit(s, s->n_pending);
		more = true;
	}
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		more |= deliver(s, n);
		more |= node_settle(s, &s->nodes[n]);
		node_check_leases(s, &s->nodes[n]);
	}
	core_counts(s->core, &counts);
	/* What was lost is told again. */
	return more || counts.revokes || counts.waiting || counts.orphans;
}

static void settle(struct sim *s)
{
	unsigned idle = 0;

	/* Heartbeats come and go: at rest is when there is nothing else for a while. */
	for (unsigned k = 0; k < SETTLE_MAX && idle < 3; k++)
		idle = settle_round(s) ? 0 : idle + 1;
	if (idle < 3)
		sim_fail(s, "it does not come to rest");
	if (s->owed)
		sim_fail(s, "%llu requests have no answer", (unsigned long long)s->owed);
	check_core(s);
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		node_check_quiet(s, &s->nodes[n]);
}

static bool has_names_below(const struct sim *s, uint64_t dir)
{
	for (unsigned k = 0; k < M_NAMES; k++)
		if (s->model.names[k].dir == dir)
			return true;
	return false;
}

static void delete_everything(struct sim *s)
{
	struct msg *m;
	bool any;

	do {
		any = false;
		for (unsigned k = 0; k < M_NAMES; k++) {
			const struct m_name *n = &s->model.names[k];

			if (!n->dir || (n->is_dir && has_names_below(s, n->id)))
				continue;
			m = msg_new(n->is_dir ? MSG_RMDIR : MSG_DELETE);
			m->u.name.dir = n->dir;
			strcpy(m->u.name.name, n->name);
			if (!node_name_op(s, &s->nodes[1], m)) {
				msg_free(m);
				break;
			}
			any = true;
		}
		settle(s);
	} while (any);
}

static void nothing_left(struct sim *s)
{
	struct core_counts c;
	struct core_ledger l;

	core_counts(s->core, &c);
	if (c.objects || c.directories != 1 || c.namespaces || c.orphans || c.tickets || c.gets || c.loose || c.holds)
		sim_fail(s,
			 "everything is deleted, but there are %llu objects, %llu directories, %llu namespaces, %llu "
			 "orphans, "
			 "%llu puts, %llu gets, %llu loose allocations",
			 (unsigned long long)c.objects, (unsigned long long)c.directories,
			 (unsigned long long)c.namespaces, (unsigned long long)c.orphans, (unsigned long long)c.tickets,
			 (unsigned long long)c.gets, (unsigned long long)c.loose);
	for (uint32_t n = 1; n <= SIM_NODES; n++) {
		if (core_ledger(s->core, n, &l) || l.used || l.reserved)
			sim_fail(s, "everything is deleted, but node %u has %llu used and %llu reserved", n,
				 (unsigned long long)l.used, (unsigned long long)l.reserved);
		for (unsigned k = 0; k < N_FILES; k++)
			if (s->nodes[n].files[k].state)
				sim_fail(s, "everything is deleted, but node %u has allocation %llu", n,
					 (unsigned long long)s->nodes[n].files[k].alloc);
		for (unsigned k = 0; k < N_SSD; k++)
			if (s->nodes[n].ring[k].owner && !s->nodes[n].ring[k].lost)
				sim_fail(s, "everything is deleted, but the ring of node %u has a block of %llu", n,
					 (unsigned long long)s->nodes[n].ring[k].owner);
	}
}

static void run(struct sim *s)
{
	struct errmsg e;

	s->rng = s->seed * 0x2545f4914f6cdd1dull + 1;
	s->resumes = s->seed % 3 != 0;
	s->now = NS_PER_SEC;
	s->real = 1700000000 * (int64_t)NS_PER_SEC;
	for (unsigned n = 0; n < SIM_NODES + 1; n++) {
		s->nodes[n].number = n;
		s->nodes[n].ssd = n != 3;
	}
	if (catalogue_open(":memory:", &s->cat, &e) < 0)
		sim_fail(s, "%s", e.text);
	start_core(s);
	while (s->event < s->events)
		one_event(s);
	s->quiet = true;
	settle(s);
	if (s->resumes) {
		restart_master(s);
		settle(s);
	}
	delete_everything(s);
	nothing_left(s);
	restart_master(s);
}

static void summary(const struct sim *s)
{
	fprintf(stderr, "%llu restarts of the master, %llu crashes of nodes\n", (unsigned long long)s->restarts,
		(unsigned long long)s->crashes);
	fprintf(stderr, "%llu requests waited for others\n", (unsigned long long)s->waited);
	fprintf(stderr, "%llu owners came back, %llu puts went on, %llu were done\n",
		(unsigned long long)s->counted.back, (unsigned long long)s->counted.puts_again,
		(unsigned long long)s->counted.done_again);
	for (unsigned t = 0; t < MSG_TYPES; t++)
		if (s->counts[t][0] + s->counts[t][1])
			fprintf(stderr, "%-22s %7llu done %7llu refused\n", msg_type_name((enum msg_type)t),
				(unsigned long long)s->counts[t][0], (unsigned long long)s->counts[t][1]);
}

static void clean_up(struct sim *s)
{
	drop_pending(s);
	drop_connections(s);
	drop_held(s);
	for (uint32_t n = 1; n <= SIM_NODES; n++)
		node_reset(s, &s->nodes[n]);
	core_free(s->core);
	catalogue_close(s->cat);
	free(s->seen.ids);
	free(s->ids);
}

/* True if the seed held. */
static bool run_seed(uint64_t seed, uint64_t events, bool verbose, struct sim *sum)
{
	struct sim *s = calloc(1, sizeof(*s));
	bool ok;

	s->seed = seed;
	s->events = events;
	s->verbose = verbose;
	ok = !setjmp(s->out);
	if (ok) {
		run(s);
		for (unsigned t = 0; t < MSG_TYPES; t++)
			for (unsigned k = 0; k < 2; k++)
				sum->counts[t][k] += s->counts[t][k];
		sum->restarts += s->restarts;
		sum->crashes += s->crashes;
		sum->waited += s->waited;
		sum->counted.back += s->counted.back;
		sum->counted.done_again += s->counted.done_again;
		sum->counted.puts_again += s->counted.puts_again;
		clean_up(s);
		free(s);
	}
	return ok;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
						{"seeds", required_argument, NULL, 'S'},
						{"events", required_argument, NULL, 'e'},
						{NULL, 0, NULL, 0}};
	unsigned long long first = 1, last = SEEDS_DEFAULT, events = EVENTS_DEFAULT, bad = 0;
	struct sim *sum = calloc(1, sizeof(*sum));
	bool verbose = false;
	int c;

	while ((c = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		if (c == 's')
			first = last = strtoull(optarg, NULL, 0);
		else if (c == 'S' && sscanf(optarg, "%llu:%llu", &first, &last) == 2)
			continue;
		else if (c == 'e')
			events = strtoull(optarg, NULL, 0);
		else if (c == 'v')
			verbose = true;
		else
			return 2;
	}
	for (unsigned long long seed = first; seed <= last && bad < 3; seed++)
		bad += !run_seed(seed, events, verbose, sum);
	if (verbose)
		summary(sum);
	printf("1..1\n%s 1 - %llu seeds of %llu events from %llu\n", bad ? "not ok" : "ok", last - first + 1, events,
	       first);
	free(sum);
	return bad != 0;
}
