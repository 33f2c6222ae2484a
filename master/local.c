/* SPDX-License-Identifier: Apache-2.0 */
#include "master/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"
#include "common/list.h"
#include "common/log.h"
#include "master/catalogue.h"
#include "master/core.h"
#include "master/wake.h"
#include "master/writer.h"

#define BATCH_MAX 128u /* requests handled before their writes are given away */

/* A request on its way. Its address is the req_id of its answer from the core until it is given. */
struct call {
	struct call *next;
	struct msg *req;
	channel_done_fn done;
	void *arg;
	uint64_t req_id; /* the sender's */
	enum msg_type type;
	uint64_t deadline_ns;
	struct list waiting; /* wait_lock; in local_master.waiting while the answer waits for the catalogue */
	bool told;	     /* wait_lock; done has run */
};

struct local_master {
	struct channel channel; /* first: the callers know nothing else */
	struct catalogue *cat;
	struct core *core; /* the loop's */
	struct writer *writer;
	pthread_t thread;
	uint64_t answer_deadline_ns;
	void (*node_notice)(void *arg, uint32_t node, const struct msg *notice); /* NULL: to the channel */
	void *node_notice_arg;

	struct wake wake;
	_Atomic(struct call *) queue; /* newest first */
	atomic_bool over;
	atomic_ullong given;	 /* messages with after_commit */
	atomic_ullong committed; /* the counter that the catalogue has, from the writer to the loop */

	pthread_mutex_t notice_lock; /* held while a notice is delivered: none runs when set_notice() has returned */
	channel_notice_fn notice;    /* notice_lock */
	void *notice_arg;	     /* notice_lock */

	pthread_mutex_t wait_lock; /* held while a late answer is given: none behind it overtakes it */
	struct list waiting;	   /* wait_lock; by deadline */

	/* loop only */
	struct core_out out;
	uint64_t late_commits; /* one more than the commits when the log said last that answers are late */
	uint64_t tick_ns;      /* when core_tick() is wanted */

	struct {
		atomic_ullong requests[MSG_TYPES], notices[MSG_TYPES], late;
		atomic_ullong objects, directories, namespaces, orphans, tickets, gets, used, reserved;
	} stats;
};

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static void set(atomic_ullong *n, uint64_t v)
{
	atomic_store_explicit(n, v, memory_order_relaxed);
}

static uint64_t get(const atomic_ullong *n)
{
	return atomic_load_explicit((atomic_ullong *)n, memory_order_relaxed);
}

/* ---- the channel ------------------------------------------------------------------------------------------- */

static void push(struct local_master *lm, struct call *c)
{
	c->next = atomic_load_explicit(&lm->queue, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&lm->queue, &c->next, c))
		;
	wake_up(&lm->wake);
}

/* Everything queued, oldest first. */
static struct call *take_queue(struct local_master *lm)
{
	struct call *c = atomic_exchange(&lm->queue, NULL), *out = NULL;

	while (c) {
		struct call *next = c->next;

		c->next = out;
		out = c;
		c = next;
	}
	return out;
}

void local_master_call(struct local_master *lm, struct msg *req, channel_done_fn done, void *arg)
{
	struct call *c;

	/* The caller cannot be told of a failure in here, so there must be none: memory comes back. */
	while (!(c = malloc(sizeof(*c))))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	*c = (struct call){.req = req, .done = done, .arg = arg, .req_id = req->req_id, .type = req->type};
	list_init(&c->waiting);
	if ((unsigned)req->type < MSG_TYPES)
		count(&lm->stats.requests[req->type]);
	push(lm, c);
}

static void local_call(struct channel *ch, struct msg *req, channel_done_fn done, void *arg)
{
	req->node = LOCAL_MASTER_NODE;
	local_master_call((struct local_master *)ch, req, done, arg);
}

static void local_set_notice(struct channel *ch, channel_notice_fn fn, void *arg)
{
	struct local_master *lm = (struct local_master *)ch;

	pthread_mutex_lock(&lm->notice_lock);
	lm->notice = fn;
	lm->notice_arg = arg;
	pthread_mutex_unlock(&lm->notice_lock);
}

/* ---- answers and notices ----------------------------------------------------------------------------------- */

/* Only requests have a req_id: the address of their call. */
static bool is_notice(const struct msg *m)
{
	return !m->req_id;
}

/* Takes the call out of the waiting ones. True if it has had its answer at its deadline. */
static bool stop_waiting(struct local_master *lm, struct call *c)
{
	bool told;

	pthread_mutex_lock(&lm->wait_lock);
	list_del(&c->waiting);
	told = c->told;
	pthread_mutex_unlock(&lm->wait_lock);
	return told;
}

static void answer(struct local_master *lm, struct msg *m, bool waited)
{
	struct call *c = (struct call *)(uintptr_t)m->req_id;
	bool told = waited && stop_waiting(lm, c);

	/* The callback sees the number its caller has given. */
	m->req_id = c->req_id;
	if (!told && c->done)
		c->done(c->arg, m);
	msg_free(m);
	free(c);
}

static void deliver_notice(struct local_master *lm, uint32_t node, struct msg *m)
{
	count(&lm->stats.notices[m->type]);
	if (lm->node_notice) {
		lm->node_notice(lm->node_notice_arg, node, m);
	} else {
		pthread_mutex_lock(&lm->notice_lock);
		if (lm->notice)
			lm->notice(lm->notice_arg, m);
		pthread_mutex_unlock(&lm->notice_lock);
	}
	msg_free(m);
}

static void deliver(struct local_master *lm, struct core_msg *cm, bool waited)
{
	bool counts = cm->after_commit;

	if (is_notice(cm->msg))
		deliver_notice(lm, cm->node, cm->msg);
	else
		answer(lm, cm->msg, waited);
	if (counts)
		atomic_fetch_add(&lm->given, 1);
}

/* On the writer's thread. */
static void deliver_committed(void *arg, struct core_msg *cm)
{
	deliver(arg, cm, true);
}

static void counter_committed(void *arg, uint64_t counter)
{
	struct local_master *lm = arg;

	atomic_store(&lm->committed, counter);
}

/* An answer that waits for the catalogue gets a deadline. */
static void wait_for_commit(struct local_master *lm, const struct core_msg *cm, uint64_t now)
{
	struct call *c = (struct call *)(uintptr_t)cm->msg->req_id;

	c->deadline_ns = now + lm->answer_deadline_ns;
	pthread_mutex_lock(&lm->wait_lock);
	list_add_tail(&c->waiting, &lm->waiting);
	pthread_mutex_unlock(&lm->wait_lock);
}

/* Once for as long as nothing is committed. */
static void log_late(struct local_master *lm)
{
	uint64_t commits = writer_commits(lm->writer) + 1;

	if (lm->late_commits != commits)
		log_error("the catalogue has not been written for %llu ms: changes that wait for it are answered all "
			  "the same, but a daemon that is killed now forgets them",
			  (unsigned long long)(lm->answer_deadline_ns / NS_PER_MS));
	lm->late_commits = commits;
}

/*
 * The step has been done and is not undone, so its true answer is given, and not an error: the sender would go on
 * with a state that is not the core's. Only the catalogue does not have it yet. Call with wait_lock held.
 */
static void answer_late(struct local_master *lm, struct call *c)
{
	struct msg m = *c->req; /* the message itself still has the number that the writer finds the call by */

	list_del(&c->waiting);
	c->told = true;
	m.req_id = c->req_id;
	count(&lm->stats.late);
	log_late(lm);
	if (c->done)
		c->done(c->arg, &m);
}

/* Answers what has waited too long. Returns the nanoseconds until the next has. */
static uint64_t end_late(struct local_master *lm, uint64_t now)
{
	uint64_t left = UINT64_MAX;

	pthread_mutex_lock(&lm->wait_lock);
	while (left == UINT64_MAX && !list_empty(&lm->waiting)) {
		struct call *c = list_first(&lm->waiting, struct call, waiting);

		if (c->deadline_ns > now)
			left = c->deadline_ns - now;
		else
			answer_late(lm, c); /* it is freed when it comes out of the writer */
	}
	pthread_mutex_unlock(&lm->wait_lock);
	return left;
}

/* ---- the loop ---------------------------------------------------------------------------------------------- */

/* Sends what need not wait, from the first message of this step on; the others stay in out. */
static void send_at_once(struct local_master *lm, size_t first)
{
	struct core_out *out = &lm->out;
	size_t n = first;

	for (size_t k = first; k < out->n_msgs; k++) {
		if (out->msgs[k].after_commit)
			out->msgs[n++] = out->msgs[k];
		else
			deliver(lm, &out->msgs[k], false);
	}
	out->n_msgs = n;
}

/* Sends the rest: through the writer, or at once if it has nothing of ours and gets nothing now. */
static void send_rest(struct local_master *lm, uint64_t now)
{
	struct core_out *out = &lm->out;

	if (!out->n_msgs && !out->writes.n)
		return;
	if (!out->writes.n && writer_idle(lm->writer)) {
		for (size_t k = 0; k < out->n_msgs; k++)
			deliver(lm, &out->msgs[k], false);
		out->n_msgs = 0;
		return;
	}
	for (size_t k = 0; k < out->n_msgs; k++)
		if (!is_notice(out->msgs[k].msg))
			wait_for_commit(lm, &out->msgs[k], now);
	/* Nothing may be lost here; memory comes back. */
	while (writer_submit(lm->writer, out) < 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Waits while too much waits for the catalogue; deadlines hold meanwhile. False: it cannot be written. */
static bool may_write(struct local_master *lm)
{
	uint64_t now = 0, left = 0;
	int r;

	while ((r = writer_wait_room(lm->writer, now + left)) == -EAGAIN) {
		now = clock_ns();
		left = end_late(lm, now);
		if (left > lm->answer_deadline_ns)
			left = lm->answer_deadline_ns;
	}
	return !r;
}

/*
 * Whether the core may have it while too much waits for the catalogue. What gives something back has a record at most,
 * a lost SSD replica's, and would be charged until the next start if it were refused.
 */
static bool goes_on(enum msg_type type)
{
	return msg_only_reads(type) || msg_gives_back(type);
}

/* What has been done must not be answered as if it had not; memory comes back. */
static int ask_core(struct local_master *lm, struct msg *m, uint64_t now)
{
	int r;

	while ((r = core_handle(lm->core, m, now, clock_real_ns(), &lm->out)) < 0 && core_has_done(lm->core, m))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return r;
}

static void handle(struct local_master *lm, struct call *c, bool writable, uint64_t now)
{
	size_t first = lm->out.n_msgs;
	struct msg *m = c->req;
	int r = 0;

	if (m->type == MSG_JOIN && !m->node)
		m->node = core_node_named(lm->core, m->u.join.instance_key);
	else if (!m->node)
		m->node = core_node_awaited(lm->core, m->tomb_tag);
	if (!writable && !goes_on(m->type) && !core_has_done(lm->core, m))
		r = -EIO;
	if (!r)
		r = ask_core(lm, m, now);
	/* It is the answer now, or will be; the core knows it by the sender's number. */
	m->req_id = (uintptr_t)c;
	if (r < 0) {
		m->status = r;
		answer(lm, m, false);
		return;
	}
	send_at_once(lm, first);
}

static struct call *handle_some(struct local_master *lm, struct call *c)
{
	bool writable = may_write(lm);
	uint64_t now = clock_ns();

	core_committed(lm->core, atomic_load(&lm->committed));
	core_given(lm->core, atomic_load(&lm->given));
	/* One look at the clock serves them all: what they are for is seconds. */
	for (unsigned n = 0; c && n < BATCH_MAX; n++) {
		struct call *next = c->next;

		handle(lm, c, writable, now);
		c = next;
	}
	send_rest(lm, now);
	return c;
}

static void publish_stats(struct local_master *lm)
{
	struct core_ledger l;
	struct core_counts n;

	core_counts(lm->core, &n);
	set(&lm->stats.objects, n.objects);
	set(&lm->stats.directories, n.directories);
	set(&lm->stats.namespaces, n.namespaces);
	set(&lm->stats.orphans, n.orphans);
	set(&lm->stats.tickets, n.tickets);
	set(&lm->stats.gets, n.gets);
	if (core_ledger(lm->core, LOCAL_MASTER_NODE, &l) < 0)
		return;
	set(&lm->stats.used, l.used);
	set(&lm->stats.reserved, l.reserved);
}

/* Lets time pass for the core, if it wants that by now. */
static void tick(struct local_master *lm, uint64_t now)
{
	uint64_t left;

	if (now < lm->tick_ns || !may_write(lm))
		return;
	left = core_tick(lm->core, now, clock_real_ns(), &lm->out);
	lm->tick_ns = left == UINT64_MAX ? UINT64_MAX : now + left;
	send_at_once(lm, 0);
	send_rest(lm, now);
}

/* How long the loop may sleep. Also ends what is late, and ticks. */
static uint64_t pass_time(struct local_master *lm)
{
	uint64_t now = clock_ns(), left, tick_left;

	tick(lm, now);
	left = end_late(lm, now);
	if (lm->tick_ns == UINT64_MAX)
		return left;
	tick_left = lm->tick_ns > now ? lm->tick_ns - now : NS_PER_MS;
	return tick_left < left ? tick_left : left;
}

/* A request may have started something that ends by time: ask the core soon, but not for every request. */
static void want_tick(struct local_master *lm)
{
	uint64_t soon = clock_ns() + NS_PER_SEC / 4;

	if (soon < lm->tick_ns)
		lm->tick_ns = soon;
}

static void *loop_main(void *arg)
{
	struct local_master *lm = arg;
	bool over = false;

	while (!over) {
		struct call *c;
		uint64_t left = pass_time(lm);

		wake_prepare(&lm->wake);
		over = atomic_load(&lm->over); /* before the queue: what was sent before the stop is answered */
		if (!over && !atomic_load(&lm->queue))
			wake_wait(&lm->wake, left);
		else
			wake_cancel(&lm->wake);
		c = take_queue(lm);
		if (!c)
			continue;
		while (c)
			c = handle_some(lm, c);
		want_tick(lm);
		publish_stats(lm);
	}
	/* The writer is stopped behind this and commits what is left. */
	core_flush(lm->core, &lm->out);
	send_at_once(lm, 0);
	send_rest(lm, clock_ns());
	return NULL;
}

/* ---- start and stop ---------------------------------------------------------------------------------------- */

static struct core *new_core(const struct local_master_config *cfg)
{
	struct core_config k = {
	    .auto_namespace = cfg->auto_namespace,
	    .default_block_size = cfg->default_block_size,
	    .put_deadline_ns = cfg->put_deadline_ns,
	    .root_mode = cfg->root_mode,
	    .root_uid = cfg->root_uid,
	    .root_gid = cfg->root_gid,
	    .dead_after_ns = cfg->dead_after_ns,
	    .repeat_ns = cfg->repeat_ns,
	    .lease_ns = cfg->lease_ns,
	    .resume_ns = cfg->resume_ns,
	    .recent_answers = cfg->recent_answers,
	};

	/* Without it names can be made to collide, which makes them slow but not wrong. */
	if (getrandom(&k.hash_seed, sizeof(k.hash_seed), GRND_NONBLOCK) < 0)
		k.hash_seed = clock_ns();
	return core_new(&k);
}

/* Loads, and commits what the load itself has to say. */
static int load(struct local_master *lm, bool objects, struct errmsg *e)
{
	uint64_t counter;
	int r = catalogue_load(lm->cat, lm->core, objects, e);

	if (r < 0)
		return r;
	r = core_load_end(lm->core, &lm->out);
	if (r < 0)
		return errmsg_set(e, r,
				  r == -EBADMSG ? "catalogue: damaged: two directories of one name"
						: "catalogue: out of memory while loading");
	counter = lm->out.writes.counter;
	r = catalogue_apply(lm->cat, &lm->out.writes, e);
	if (r < 0)
		return r;
	writes_clear(&lm->out.writes);
	atomic_store(&lm->committed, counter);
	return 0;
}

static int start_threads(struct local_master *lm, struct errmsg *e)
{
	const struct writer_ops ops = {
	    .deliver = deliver_committed,
	    .counter = counter_committed,
	    .arg = lm,
	    .stall_ns = lm->answer_deadline_ns,
	};
	int r = writer_start(lm->cat, &ops, &lm->writer);

	if (r < 0)
		return errmsg_set(e, r, "cannot start the catalogue's thread: %s", strerror(-r));
	r = pthread_create(&lm->thread, NULL, loop_main, lm);
	if (r)
		return errmsg_set(e, -r, "cannot start the master's thread: %s", strerror(r));
	pthread_setname_np(lm->thread, "fkv-master");
	return 0;
}

static struct local_master *local_free(struct local_master *lm)
{
	writer_stop(lm->writer);
	core_free(lm->core);
	core_out_clear(&lm->out);
	catalogue_close(lm->cat);
	pthread_mutex_destroy(&lm->notice_lock);
	pthread_mutex_destroy(&lm->wait_lock);
	free(lm);
	return NULL;
}

int local_master_start(const struct local_master_config *cfg, struct local_master **ret, struct errmsg *e)
{
	struct local_master *lm = calloc(1, sizeof(*lm));
	int r;

	if (!lm)
		return errmsg_set(e, -ENOMEM, "out of memory");
	lm->channel = (struct channel){.call = local_call, .set_notice = local_set_notice};
	lm->answer_deadline_ns = cfg->answer_deadline_ns ? cfg->answer_deadline_ns : 30 * NS_PER_SEC;
	lm->node_notice = cfg->notice;
	lm->node_notice_arg = cfg->notice_arg;
	pthread_mutex_init(&lm->notice_lock, NULL);
	pthread_mutex_init(&lm->wait_lock, NULL);
	list_init(&lm->waiting);
	r = catalogue_open(cfg->catalogue, &lm->cat, e);
	if (!r) {
		lm->core = new_core(cfg);
		r = lm->core ? load(lm, cfg->resume_ns != 0, e) : errmsg_set(e, -ENOMEM, "out of memory");
	}
	if (!r)
		r = start_threads(lm, e);
	if (r < 0) {
		local_free(lm);
		return r;
	}
	*ret = lm;
	return 0;
}

struct local_master *local_master_stop(struct local_master *lm)
{
	if (!lm)
		return NULL;
	atomic_store(&lm->over, true);
	wake_up(&lm->wake);
	pthread_join(lm->thread, NULL);
	return local_free(lm);
}

struct channel *local_master_channel(struct local_master *lm)
{
	return &lm->channel;
}

void local_master_get_stats(struct local_master *lm, struct local_master_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (int t = 0; t < MSG_TYPES; t++) {
		ret->requests[t] = get(&lm->stats.requests[t]);
		ret->notices[t] = get(&lm->stats.notices[t]);
	}
	ret->commits = writer_commits(lm->writer);
	ret->commit_failures = writer_failures(lm->writer);
	ret->late = get(&lm->stats.late);
	ret->objects = get(&lm->stats.objects);
	ret->directories = get(&lm->stats.directories);
	ret->namespaces = get(&lm->stats.namespaces);
	ret->orphans = get(&lm->stats.orphans);
	ret->tickets = get(&lm->stats.tickets);
	ret->gets = get(&lm->stats.gets);
	ret->used = get(&lm->stats.used);
	ret->reserved = get(&lm->stats.reserved);
}
