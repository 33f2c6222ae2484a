/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "store/impl.h"

/* Jobs that sleep for room or for the device are cheap; too few threads would let one stall the next. */
#define WORKERS_MAX 128
#define ENDERS_MAX 32
#define REFILLERS_MAX 64
#define LEAVE_NS (2 * NS_PER_SEC)
#define NAME_CACHE_DEFAULT 65536
#define PUT_DEADLINE_DEFAULT_MS 60000
#define LEG_DEADLINE_DEFAULT_MS 5000

/* ---- calls to the master ------------------------------------------------------------------------------------ */

void node_send(struct node *n, struct msg *req, channel_done_fn done, void *arg)
{
	req->tomb_tag = n->tomb_tag;
	count_add(n, master_messages, 1);
	channel_call(n->ch, req, done, arg);
}

void node_call(struct node *n, struct msg *req, channel_done_fn done, void *arg)
{
	if (n->member && member_asks_again(req->type))
		member_call(n, req, done, arg);
	else
		node_send(n, req, done, arg);
}

void node_tell(struct node *n, struct msg *req, channel_done_fn done)
{
	pthread_mutex_lock(&n->tell_lock);
	n->telling++;
	pthread_mutex_unlock(&n->tell_lock);
	node_call(n, req, done, n);
}

void node_told(struct node *n)
{
	pthread_mutex_lock(&n->tell_lock);
	if (!--n->telling)
		pthread_cond_broadcast(&n->tell_idle);
	pthread_mutex_unlock(&n->tell_lock);
}

static void wait_told(struct node *n)
{
	pthread_mutex_lock(&n->tell_lock);
	while (n->telling)
		pthread_cond_wait(&n->tell_idle, &n->tell_lock);
	pthread_mutex_unlock(&n->tell_lock);
}

struct call_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;	    /* lock */
	int status;	    /* lock */
	bool want;	    /* the caller wants the answer */
	struct msg *answer; /* lock */
};

static void call_answered(void *arg, const struct msg *answer)
{
	struct call_wait *w = arg;
	struct msg *copy = w->want ? msg_copy(answer) : NULL;

	pthread_mutex_lock(&w->lock);
	w->status = w->want && !copy ? -ENOMEM : answer->status;
	w->answer = copy;
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int node_call_wait(struct node *n, struct msg *req, struct msg **ret_answer)
{
	struct call_wait w = {.want = ret_answer != NULL};

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.cond, NULL);
	node_call(n, req, call_answered, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	if (ret_answer)
		*ret_answer = w.answer;
	return w.status;
}

/* ---- notices ------------------------------------------------------------------------------------------------ */

struct gone {
	struct work work;
	struct node *n;
	uint64_t put_id, dir;
	char name[MSG_NAME_MAX + 1];
};

static void gone_job(struct work *w)
{
	struct gone *g = container_of(w, struct gone, work);

	pthread_rwlock_rdlock(&g->n->events_lock);
	if (g->n->events.gone)
		g->n->events.gone(g->n->events.arg, g->put_id, g->dir, g->name);
	pthread_rwlock_unlock(&g->n->events_lock);
	free(g);
}

void node_tell_gone(struct node *n, uint64_t put_id, uint64_t dir, const char *name)
{
	struct gone *g = calloc(1, sizeof(*g));

	if (g && name) {
		g->dir = dir;
		memcpy(g->name, name, strnlen(name, MSG_NAME_MAX));
	}
	if (name)
		names_forget(n, dir, name, 0);
	if (put_id)
		names_forget_id(n, put_id);
	/* Without memory the kernel learns it at its next open, which comes to us. */
	if (!g)
		return;
	g->n = n;
	g->put_id = put_id;
	pthread_rwlock_rdlock(&n->events_lock);
	if (atomic_load(&n->stopping))
		free(g);
	else
		workq_submit(n->wq, &g->work, gone_job);
	pthread_rwlock_unlock(&n->events_lock);
}

/* Without memory for it the master says it again. */
static void acknowledge(struct node *n, const struct msg *revoke)
{
	struct msg *m = msg_new(MSG_REVOKE_ACK);

	if (!m)
		return;
	m->u.revoke.seq = revoke->u.revoke.seq;
	node_call(n, m, NULL, NULL);
}

/*
 * The node's own table first, then the answer: every open asks that. The kernel is told by a job, whenever: to wait for
 * it could be to wait for a node that waits for us.
 */
static void revoked(struct node *n, const struct msg *m)
{
	const char *name = m->u.revoke.name;

	if (name[0])
		names_forget(n, m->u.revoke.dir, name, m->u.revoke.seq);
	else
		names_forget_dir(n, m->u.revoke.dir, m->u.revoke.seq);
	if (m->u.revoke.id)
		names_forget_id(n, m->u.revoke.id);
	if (m->u.revoke.ack)
		acknowledge(n, m);
	if (name[0] || m->u.revoke.id)
		node_tell_gone(n, m->u.revoke.id, m->u.revoke.dir, name[0] ? name : NULL);
}

static void notice(void *arg, const struct msg *m)
{
	struct node *n = arg;

	switch (m->type) {
	case MSG_NAME_REVOKE:
		revoked(n, m);
		break;
	case MSG_SSD_PERSIST:
		persist_items(n, m->items, m->n_items);
		break;
	case MSG_DROP:
		for (size_t i = 0; i < m->n_items; i++) {
			node_tell_gone(n, m->items[i].put_id, 0, NULL);
			block_drop_version(n, m->items[i].put_id, m->items[i].block);
		}
		break;
	default:
		log_warn("the master sent a %s notice, which a node does not know, ignoring", msg_type_name(m->type));
		break;
	}
}

void node_ssd_room(struct node *n, uint64_t *ret_capacity, uint64_t *ret_used)
{
	struct ssd_stats s = {0};

	if (n->ssd)
		ssd_stats(n->ssd, &s);
	*ret_capacity = s.capacity;
	if (ret_used)
		*ret_used = s.used;
}

/* ---- start and stop ----------------------------------------------------------------------------------------- */

/* The master in this process. */
static int join(struct node *n, const struct node_config *cfg, struct errmsg *e)
{
	struct msg *m = msg_new(MSG_JOIN), *answer = NULL;
	int r;

	if (!m)
		return errmsg_set(e, -ENOMEM, "out of memory");
	m->u.join.capacity = n->capacity;
	node_ssd_room(n, &m->u.join.ssd_capacity, NULL);
	m->u.join.kv_ssd_storage = n->ssd != NULL;
	strncpy(m->u.join.instance_key, cfg->instance_key, sizeof(m->u.join.instance_key) - 1);
	r = node_call_wait(n, m, &answer);
	n->joined = r == 0;
	if (r == 0)
		n->tomb_tag = answer->u.join.tomb_tag;
	else
		errmsg_set(e, r, "the master refused node \"%s\": %s", cfg->instance_key, strerror(-r));
	msg_free(answer);
	return r;
}

/* The master elsewhere. */
static int join_cluster(struct node *n, const struct node_config *cfg, struct errmsg *e)
{
	bool six = strchr(cfg->data_host, ':') != NULL;
	char address[MSG_ADDRESS_MAX + 1];
	int len, r = serve_start(n, cfg, e);

	if (r < 0)
		return r;
	len = snprintf(address, sizeof(address), six ? "[%s]:%u" : "%s:%u", cfg->data_host, serve_port(n));
	if (len < 0 || (size_t)len >= sizeof(address))
		return errmsg_set(e, -ENAMETOOLONG, "the host %s is too long for an address", cfg->data_host);
	return member_start(n, address, e);
}

static int open_ssd(struct node *n, const struct node_config *cfg, struct errmsg *e)
{
	struct ssd_root roots[SSD_MAX_ROOTS];
	struct ssd_config sc = {
	    .roots = roots,
	    .n_roots = cfg->n_ssd,
	    .cluster_name = cfg->cluster_name,
	    .instance_key = cfg->instance_key,
	    .shards_per_device = cfg->ssd_shards,
	    .io_depth = cfg->ssd_io_depth,
	    .direct = cfg->ssd_direct,
	    .retry_seconds = cfg->ssd_retry_seconds,
	    .evicted = persist_evicted,
	    .arg = n,
	};

	if (!cfg->n_ssd)
		return 0;
	if (cfg->n_ssd > SSD_MAX_ROOTS)
		return errmsg_set(e, -EINVAL, "%zu SSD paths are more than %u", cfg->n_ssd, SSD_MAX_ROOTS);
	/* Bytes that wait are memory that cannot be evicted, whatever device they wait for: the devices share the
	 * limit. */
	n->persist_backlog = cfg->persist_backlog ? cfg->persist_backlog : cfg->dram / 4;
	sc.backlog_limit = n->persist_backlog / cfg->n_ssd ? n->persist_backlog / cfg->n_ssd : 1;
	for (size_t i = 0; i < cfg->n_ssd; i++)
		roots[i] = (struct ssd_root){.path = cfg->ssd_paths[i], .limit = cfg->ssd_limits[i]};
	return ssd_store_open(&sc, &n->ssd, e);
}

static int open_segment(struct node *n, const struct node_config *cfg, struct errmsg *e)
{
	struct segment_config sc = {
	    .run_dir = cfg->run_dir,
	    .instance = cfg->instance_key,
	    .capacity = cfg->dram,
	    .allow_fallback = true,
	};
	struct segment_usage u;
	int r = segment_open(&sc, &n->seg, e);

	if (r < 0)
		return r;
	r = segment_usage(n->seg, &u);
	if (r < 0)
		return errmsg_set(e, r, "cannot read the segment's size: %s", strerror(-r));
	n->capacity = u.capacity;
	return 0;
}

static void init_locks(struct node *n)
{
	pthread_mutex_init(&n->policy_lock, NULL);
	pthread_rwlock_init(&n->events_lock, NULL);
	pthread_mutex_init(&n->persist_lock, NULL);
	pthread_cond_init(&n->persist_idle, NULL);
	pthread_mutex_init(&n->overlay.lock, NULL);
	list_init(&n->overlay.puts);
	pthread_mutex_init(&n->alias_lock, NULL);
	list_init(&n->aliases);
	pthread_mutex_init(&n->late_lock, NULL);
	list_init(&n->late);
	pthread_mutex_init(&n->tell_lock, NULL);
	pthread_cond_init(&n->tell_idle, NULL);
	evict_init(n);
}

/* Memory structures and threads that need nothing from outside. */
static int init_parts(struct node *n, const struct node_config *cfg)
{
	int r = block_index_init(n);

	names_init(n, cfg->name_cache ? cfg->name_cache : NAME_CACHE_DEFAULT);
	if (r < 0)
		return r;
	if (cfg->n_ssd)
		r = persist_init(n);
	if (r < 0)
		return r;
	if (cfg->data_listen) {
		n->member = member_new(n, cfg);
		n->holds = holds_new(n);
		if (!n->member || !n->holds)
			return -ENOMEM;
	}
	n->policy = policy_new(n->capacity);
	n->wq = workq_new(WORKERS_MAX);
	n->ends = workq_new(ENDERS_MAX);
	n->refilling = workq_new(REFILLERS_MAX);
	return n->policy && n->wq && n->ends && n->refilling ? 0 : -ENOMEM;
}

int node_start(const struct node_config *cfg, struct node **ret, struct errmsg *e)
{
	struct node *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return errmsg_set(e, -ENOMEM, "out of memory");
	n->ch = cfg->master;
	/* One that is late or lost costs no writer its put. */
	n->renew_ns = (cfg->put_deadline_ms ? cfg->put_deadline_ms : PUT_DEADLINE_DEFAULT_MS) * NS_PER_MS / 3;
	n->leg_deadline_ns = (cfg->leg_deadline_ms ? cfg->leg_deadline_ms : LEG_DEADLINE_DEFAULT_MS) * NS_PER_MS;
	init_locks(n);
	r = open_segment(n, cfg, e);
	if (r < 0)
		goto fail;
	r = init_parts(n, cfg);
	if (r < 0) {
		errmsg_set(e, r, "cannot set the node up: %s", strerror(-r));
		goto fail;
	}
	r = open_ssd(n, cfg, e);
	if (r < 0)
		goto fail;
	n->has_ssd = n->ssd != NULL;
	node_ssd_room(n, &n->ssd_capacity, NULL);
	n->ch->set_notice(n->ch, notice, n);
	r = n->member ? join_cluster(n, cfg, e) : join(n, cfg, e);
	if (r < 0)
		goto fail;
	r = evict_start(n);
	if (r < 0) {
		errmsg_set(e, r, "cannot start a thread: %s", strerror(-r));
		goto fail;
	}
	*ret = n;
	return 0;
fail:
	node_stop(n);
	return r;
}

static void leave(struct node *n)
{
	struct msg *m = n->joined ? msg_new(MSG_LEAVE) : NULL;

	/* Whatever waits for a master that does not answer must not keep the node from its end. */
	if (m)
		m->tomb_tag = n->tomb_tag;
	if (m && n->ch->last)
		n->ch->last(n->ch, m, LEAVE_NS);
	else if (m)
		node_call_wait(n, m, NULL);
	n->ch->set_notice(n->ch, NULL, NULL);
}

/* The sources of new work run dry, each while what it needs still stands. */
static void run_dry(struct node *n)
{
	pthread_rwlock_wrlock(&n->events_lock);
	n->events = (struct node_events){0};
	atomic_store(&n->stopping, true);
	pthread_rwlock_unlock(&n->events_lock);
	/* A join of its own would make a member of it again. */
	member_stop(n);
	leave(n);
	member_join_thread(n);
	serve_stop(n);
	n->wq = workq_free(n->wq);
	n->ends = workq_free(n->ends);
	n->refilling = workq_free(n->refilling);
	/* The evictor looks at the SSD tier: it ends first. What the tier still lets go of is reclaimed here. */
	evict_stop(n);
	if (n->ssd) {
		persist_drain(n);
		n->ssd = ssd_store_close(n->ssd);
	}
	evict_drain(n);
	wait_told(n);
}

struct node *node_stop(struct node *n)
{
	if (!n)
		return NULL;
	run_dry(n);
	serve_fini(n);
	evict_fini(n);
	persist_fini(n);
	names_fini(n);
	block_index_fini(n);
	policy_free(n->policy);
	member_free(n->member);
	holds_free(n->holds);
	segment_close(n->seg);
	pthread_cond_destroy(&n->tell_idle);
	pthread_mutex_destroy(&n->tell_lock);
	pthread_mutex_destroy(&n->late_lock);
	pthread_mutex_destroy(&n->alias_lock);
	pthread_mutex_destroy(&n->overlay.lock);
	pthread_cond_destroy(&n->persist_idle);
	pthread_mutex_destroy(&n->persist_lock);
	pthread_rwlock_destroy(&n->events_lock);
	pthread_mutex_destroy(&n->policy_lock);
	free(n);
	return NULL;
}

void node_set_events(struct node *n, const struct node_events *ev)
{
	pthread_rwlock_wrlock(&n->events_lock);
	n->events = *ev;
	pthread_rwlock_unlock(&n->events_lock);
}

/* ---- tools -------------------------------------------------------------------------------------------------- */

struct tool_job {
	struct work work;
	struct node *n;
	struct msg_attr attr;
	enum node_tier tier;
	bool force;
	node_done_fn fn;
	void *arg;
};

static void tool_submit(struct node *n, const struct tool_job *what, void (*run)(struct work *w))
{
	struct tool_job *j = malloc(sizeof(*j));

	if (!j) {
		what->fn(what->arg, -ENOMEM);
		return;
	}
	*j = *what;
	j->n = n;
	workq_submit(n->wq, &j->work, run);
}

static void evict_job(struct work *w)
{
	struct tool_job *j = container_of(w, struct tool_job, work);

	j->fn(j->arg, evict_version_wait(j->n, &j->attr, j->tier, j->force));
	free(j);
}

void node_evict(struct node *n, const struct msg_attr *a, enum node_tier tier, bool force, node_done_fn fn, void *arg)
{
	struct tool_job j = {.attr = *a, .tier = tier, .force = force, .fn = fn, .arg = arg};

	tool_submit(n, &j, evict_job);
}

static void prefetch_job(struct work *w)
{
	struct tool_job *j = container_of(w, struct tool_job, work);
	struct version *v = NULL;
	int r = version_hold(j->n, &j->attr, &v);

	if (r == 0)
		r = version_prefetch_wait(v);
	version_close(v);
	j->fn(j->arg, r);
	free(j);
}

void node_prefetch(struct node *n, const struct msg_attr *a, node_done_fn fn, void *arg)
{
	struct tool_job j = {.attr = *a, .fn = fn, .arg = arg};

	tool_submit(n, &j, prefetch_job);
}

int node_replicas(struct node *n, const struct msg_attr *a, struct node_replicas *ret)
{
	struct node_replicas sum = {.blocks = a->block_size ? block_count(a->size, a->block_size) : 0};

	for (uint64_t i = 0; i < sum.blocks; i++) {
		struct block_shard *s = block_lock(n, a->id, (uint32_t)i);
		struct block *b = block_find(s, a->id, (uint32_t)i);

		if (b && (b->flags & BLOCK_MEM))
			sum.in_dram++;
		if (b && (b->flags & BLOCK_SSD))
			sum.in_ssd++;
		if (b && (b->flags & BLOCK_SUM) && sum.blocks == 1) {
			sum.checksum = b->sum;
			sum.has_checksum = true;
		}
		pthread_mutex_unlock(&s->lock);
	}
	*ret = sum;
	return 0;
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

int node_scratch_file(struct node *n, int *ret_fd)
{
	return segment_scratch(n->seg, ret_fd);
}

void node_get_stats(struct node *n, struct node_stats *ret)
{
	struct ssd_stats ssd = {0};

	*ret = (struct node_stats){
	    .dram_capacity = n->capacity,
	    .dram_used = count_get(n, dram_used),
	    .dram_reserved = count_get(n, dram_reserved),
	    .dram_zombie = count_get(n, dram_zombie),
	    .dram_objects = count_get(n, mem_blocks),
	    .ssd_objects = count_get(n, ssd_blocks),
	    .hits_mem_local = count_get(n, hits_mem_local),
	    .hits_mem_remote = count_get(n, hits_mem_remote),
	    .hits_ssd_local = count_get(n, hits_ssd_local),
	    .hits_ssd_remote = count_get(n, hits_ssd_remote),
	    .hits_unknown = count_get(n, hits_unknown),
	    .miss_never = count_get(n, miss[MSG_MISS_NEVER]),
	    .miss_evicted = count_get(n, miss[MSG_MISS_EVICTED]),
	    .miss_expired = count_get(n, miss[MSG_MISS_EXPIRED]),
	    .miss_owner_lost = count_get(n, miss[MSG_MISS_LOST]),
	    .miss_checksum = count_get(n, miss_checksum),
	    .miss_timeout = count_get(n, miss_timeout),
	    .puts = count_get(n, puts),
	    .put_bytes = count_get(n, put_bytes),
	    .puts_revoked = count_get(n, puts_revoked),
	    .put_nospace = count_get(n, put_nospace),
	    .gets_bytes = count_get(n, gets_bytes),
	    .refills = count_get(n, refills),
	    .refill_bytes = count_get(n, refill_bytes),
	    .refill_failures = count_get(n, refill_failures),
	    .fetches = count_get(n, fetches),
	    .fetch_bytes = count_get(n, fetch_bytes),
	    .fetch_failures = count_get(n, fetch_failures),
	    .serves = count_get(n, serves),
	    .serve_bytes = count_get(n, serve_bytes),
	    .serve_failures = count_get(n, serve_failures),
	    .evictions_dram = count_get(n, evictions_dram),
	    .evictions_ssd = count_get(n, evictions_ssd),
	    .persists = count_get(n, persists),
	    .persist_bytes = count_get(n, persist_bytes),
	    .persist_failures = count_get(n, persist_failures),
	    .persist_dropped = count_get(n, persist_dropped),
	    .checksum_errors = count_get(n, checksum_errors),
	    .stale_routes = count_get(n, stale_routes),
	    .private_versions = count_get(n, private_versions),
	    .open_versions = count_get(n, open_versions),
	    .blocks = count_get(n, blocks),
	    .parked = count_get(n, parked),
	    .master_messages = count_get(n, master_messages),
	};
	if (!n->ssd)
		return;
	ssd_stats(n->ssd, &ssd);
	ret->ssd_capacity = ssd.capacity;
	ret->ssd_used = ssd.used;
	ret->persist_backlog_bytes = ssd.backlog;
}

uint64_t node_ssd_max_block(struct node *n)
{
	return n->ssd ? ssd_max_len(n->ssd) : UINT64_MAX;
}

int node_get_ssd_stats(struct node *n, struct ssd_stats *ret)
{
	if (!n->ssd)
		return -ENODATA;
	ssd_stats(n->ssd, ret);
	return 0;
}
