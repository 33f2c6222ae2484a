/* SPDX-License-Identifier: Apache-2.0 */
#include "master/server.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "net/plan.h"
#include "net/rpc_client.h"

#define MAX_CONNECTIONS 4096u

/* Where a node is. */
struct place {
	uint64_t tag;  /* 0: it has not joined */
	uint64_t conn; /* 0: it has none */
};

/* Who spoke last over a connection: mostly the one that speaks now. */
struct speaker {
	uint64_t conn;
	uint32_t node;
};

struct master_server {
	struct local_master *lm;
	struct rpc_server *rpc;
	struct auth_key key; /* of the plans that nodes show one another */

	pthread_mutex_t lock;
	bool stopping;		  /* lock; held while a request is given to lm: none comes behind its end */
	struct place *places;	  /* lock; by node */
	uint32_t n_places;	  /* lock */
	struct speaker *speakers; /* lock; by slot */
};

struct asked {
	struct master_server *s;
	uint64_t conn;
};

/* ---- who and where ------------------------------------------------------------------------------------------- */

/* Call with s locked. */
static bool is_tag_of(const struct master_server *s, uint32_t node, uint64_t tag)
{
	return tag && node < s->n_places && s->places[node].tag == tag;
}

/* 0: nobody, or nobody any more. Call with s locked. */
static uint32_t find_node(const struct master_server *s, uint64_t conn, uint64_t tag)
{
	const struct speaker *sp = &s->speakers[rpc_slot(conn)];

	if (sp->conn == conn && is_tag_of(s, sp->node, tag))
		return sp->node;
	for (uint32_t n = 1; n < s->n_places; n++)
		if (is_tag_of(s, n, tag))
			return n;
	return 0;
}

/* From now on it is there. Call with s locked. */
static void speaks(struct master_server *s, uint32_t node, uint64_t conn)
{
	s->speakers[rpc_slot(conn)] = (struct speaker){conn, node};
	s->places[node].conn = conn;
}

/* Memory comes back, and a node that has joined must be found. Call with s locked. */
static void make_room(struct master_server *s, uint32_t node)
{
	uint32_t n = s->n_places ? s->n_places : 16;
	struct place *more;

	if (node < s->n_places)
		return;
	while (n <= node)
		n *= 2;
	while (!(more = realloc(s->places, n * sizeof(*more))))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	memset(more + s->n_places, 0, (n - s->n_places) * sizeof(*more));
	s->places = more;
	s->n_places = n;
}

static void joined(struct master_server *s, const struct msg *answer, uint64_t conn)
{
	pthread_mutex_lock(&s->lock);
	make_room(s, answer->node);
	s->places[answer->node].tag = answer->u.join.tomb_tag;
	speaks(s, answer->node, conn);
	pthread_mutex_unlock(&s->lock);
}

static void conn_closed(void *arg, uint64_t conn)
{
	struct master_server *s = arg;
	const struct speaker *sp;

	pthread_mutex_lock(&s->lock);
	sp = &s->speakers[rpc_slot(conn)];
	if (sp->conn == conn && s->places[sp->node].conn == conn)
		s->places[sp->node].conn = 0;
	pthread_mutex_unlock(&s->lock);
}

/* ---- answers and notices ------------------------------------------------------------------------------------- */

/* The answer to a MSG_GET_START with a source elsewhere: makes a right of it. */
static void seal(const struct master_server *s, struct msg *m)
{
	struct plan p = {
	    .get_id = m->u.get.get_id,
	    .put_id = m->u.get.put_id,
	    .alloc = m->u.get.source_alloc,
	    .len = m->u.get.len,
	    .source_tag = m->u.get.source_tag,
	    .expires_ns = m->u.get.expires_ns,
	    .block = m->u.get.block,
	    .source = m->u.get.source,
	};

	plan_seal(&s->key, &p);
	memcpy(m->u.get.mac, p.mac, sizeof(p.mac));
}

static bool is_plan(const struct msg *m)
{
	return m->type == MSG_GET_START && !m->status &&
	       (m->u.get.source == MSG_SOURCE_MEM_REMOTE || m->u.get.source == MSG_SOURCE_SSD_REMOTE);
}

/* What cannot be said for want of memory is asked again, or said again: over another connection. */
static void tell(struct master_server *s, uint64_t conn, enum wire_kind kind, const struct msg *m)
{
	struct msg said = *m;
	const struct wire_msg w = {.kind = kind, .m = &said};
	int r;

	if (kind == WIRE_ANSWER && is_plan(m))
		seal(s, &said);
	r = rpc_server_send(s->rpc, conn, &w);
	if (r == -EINVAL || r == -E2BIG)
		log_error("%s for node %u cannot be sent: %s; its connection is closed", msg_type_name(m->type),
			  m->node, strerror(-r));
	if (r < 0)
		rpc_server_close(s->rpc, conn);
}

static void answered(void *arg, const struct msg *answer)
{
	struct asked *a = arg;

	if (answer->type == MSG_JOIN && !answer->status)
		joined(a->s, answer, a->conn);
	/* At the end of the master nobody knows what becomes of it; its sender asks the next one. */
	if (answer->status != -ESHUTDOWN)
		tell(a->s, a->conn, WIRE_ANSWER, answer);
	free(a);
}

static void notice(void *arg, uint32_t node, const struct msg *m)
{
	struct master_server *s = arg;
	uint64_t conn;

	pthread_mutex_lock(&s->lock);
	conn = node < s->n_places ? s->places[node].conn : 0;
	pthread_mutex_unlock(&s->lock);
	if (conn)
		tell(s, conn, WIRE_NOTICE, m);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static void request(void *arg, uint64_t conn, struct msg *m, uint64_t deadline_ns)
{
	struct master_server *s = arg;
	struct asked *a;

	while (!(a = malloc(sizeof(*a))))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	*a = (struct asked){s, conn};
	pthread_mutex_lock(&s->lock);
	m->node = m->type == MSG_JOIN ? 0 : find_node(s, conn, m->tomb_tag);
	if (m->node)
		speaks(s, m->node, conn);
	if (s->stopping) {
		msg_free(m);
		free(a);
	} else {
		local_master_call(s->lm, m, answered, a);
	}
	pthread_mutex_unlock(&s->lock);
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

static void server_free(struct master_server *s)
{
	pthread_mutex_destroy(&s->lock);
	free(s->places);
	free(s->speakers);
	sodium_memzero(&s->key, sizeof(s->key));
	free(s);
}

static int start_master(struct master_server *s, const struct local_master_config *given, struct errmsg *e)
{
	struct local_master_config cfg = *given;

	cfg.recent_answers = RPC_WINDOW + RPC_BEYOND;
	cfg.dead_after_ns = cfg.dead_after_ns ? cfg.dead_after_ns : 5 * NS_PER_SEC;
	cfg.repeat_ns = cfg.repeat_ns ? cfg.repeat_ns : 2 * NS_PER_SEC;
	cfg.lease_ns = cfg.lease_ns ? cfg.lease_ns : 5 * NS_PER_SEC;
	cfg.resume_ns = cfg.resume_ns ? cfg.resume_ns : 30 * NS_PER_SEC;
	cfg.notice = notice;
	cfg.notice_arg = s;
	return local_master_start(&cfg, &s->lm, e);
}

static int start_rpc(struct master_server *s, struct rpc_server_config cfg, struct errmsg *e)
{
	int r;

	cfg.request = request;
	cfg.closed = conn_closed;
	cfg.arg = s;
	/* Who connects at once waits until it is known where answers go. */
	pthread_mutex_lock(&s->lock);
	r = rpc_server_start(&cfg, &s->rpc, e);
	pthread_mutex_unlock(&s->lock);
	return r;
}

int master_server_start(const struct master_server_config *cfg, struct master_server **ret, struct errmsg *e)
{
	struct rpc_server_config rpc = cfg->rpc;
	struct master_server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory");
	rpc.max_connections = rpc.max_connections ? rpc.max_connections : MAX_CONNECTIONS;
	pthread_mutex_init(&s->lock, NULL);
	s->speakers = calloc(rpc.max_connections, sizeof(*s->speakers));
	r = s->speakers ? auth_key_load(rpc.key_file, &s->key, e) : errmsg_set(e, -ENOMEM, "out of memory");
	if (!r)
		r = start_master(s, &cfg->master, e);
	if (!r)
		r = start_rpc(s, rpc, e);
	if (r < 0) {
		local_master_stop(s->lm);
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct master_server *master_server_stop(struct master_server *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_mutex_unlock(&s->lock);
	local_master_stop(s->lm);
	rpc_server_stop(s->rpc);
	server_free(s);
	return NULL;
}

uint16_t master_server_port(const struct master_server *s)
{
	return rpc_server_port(s->rpc);
}
