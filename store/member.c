/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life in a cluster: the node joins its master, says each second that it lives, and by the answers knows for how long
 * what it was told of names may be believed.
 *
 * A master that had to do without it for too long has given it up: all that it had is nobody's then, and the node joins
 * anew, with nothing. What its readers have open they keep. A master that was started again is told what it has
 * (resume.c), and goes on with it.
 *
 * One thread of its own does all of that, since others wait for the master.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "store/impl.h"

#define BEAT_NS NS_PER_SEC
#define JOIN_AGAIN_NS NS_PER_SEC
#define NEXT_NS (8 * NS_PER_SEC)  /* that a request waits for the node to join anew */
#define BUSY_NS (10 * NS_PER_SEC) /* an incarnation that was killed is taken for living so long, at most */

struct member {
	struct node *n;
	char instance_key[256];
	char address[MSG_ADDRESS_MAX + 1];
	pthread_t thread;
	bool runs;
	atomic_ullong lease_until; /* clock_ns() */

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;	    /* lock */
	uint64_t over;	    /* lock: an incarnation that the master does not know any more; 0: none */
	bool unattached;    /* lock: a master that was started again waits for us */
	bool beating;	    /* lock: a heartbeat has no answer yet */
	uint64_t beat_ns;   /* lock: when it was sent */
	uint64_t heard_ns;  /* lock: when the master told its clock last, */
	uint64_t master_ns; /* lock: and what it said */
};

/* ---- what others ask ----------------------------------------------------------------------------------------- */

bool member_has_leases(struct node *n)
{
	return !n->member || clock_ns() < atomic_load_explicit(&n->member->lease_until, memory_order_acquire);
}

uint64_t member_master_ns(struct node *n)
{
	struct member *m = n->member;
	uint64_t ns;

	pthread_mutex_lock(&m->lock);
	/* The answer was made before it came. */
	ns = m->heard_ns ? m->master_ns + (clock_ns() - m->heard_ns) : 0;
	pthread_mutex_unlock(&m->lock);
	return ns;
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

/* tag: to go on as, or 0. */
static struct msg *join_msg(struct node *n, uint64_t tag)
{
	const struct member *m = n->member;
	struct msg *j = msg_new(MSG_JOIN);

	if (!j)
		return NULL;
	j->u.join.tomb_tag = tag;
	j->u.join.capacity = n->capacity;
	node_ssd_room(n, &j->u.join.ssd_capacity, NULL);
	j->u.join.kv_ssd_storage = n->ssd != NULL;
	memcpy(j->u.join.instance_key, m->instance_key, sizeof(m->instance_key));
	memcpy(j->u.join.address, m->address, sizeof(m->address));
	return j;
}

/* 0 with the incarnation's tag: the one that *tag asked for, or a new one. */
static int join_once(struct node *n, uint64_t *tag)
{
	struct msg *j = join_msg(n, *tag), *answer = NULL;
	int r = j ? node_call_wait(n, j, &answer) : -ENOMEM;

	if (r == 0)
		*tag = answer->u.join.tomb_tag;
	msg_free(answer);
	return r;
}

/* Waits. False: the node ends. */
static bool pause_for(struct member *m, uint64_t ns)
{
	struct timespec until = clock_timespec(clock_ns() + ns);
	bool stop;
	int r = 0;

	pthread_mutex_lock(&m->lock);
	while (!m->stop && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&m->wake, &m->lock, &until);
	stop = m->stop;
	pthread_mutex_unlock(&m->lock);
	return !stop;
}

static int join_first(struct node *n, struct errmsg *e)
{
	uint64_t until = clock_ns() + BUSY_NS, tag = 0;
	int r;

	while ((r = join_once(n, &tag)) == -EBUSY && clock_ns() < until)
		pause_for(n->member, JOIN_AGAIN_NS);
	n->tomb_tag = tag;
	n->joined = r == 0;
	serve_as(n, tag);
	if (r == -EBUSY)
		return errmsg_set(e, r,
				  "the master has a living node \"%s\" already; give this one another instance_key",
				  n->member->instance_key);
	if (r == -ETIMEDOUT)
		return errmsg_set(e, r, "the master does not answer");
	return r < 0 ? errmsg_set(e, r, "the master refused node \"%s\": %s", n->member->instance_key, strerror(-r))
		     : 0;
}

/* Until it is answered. 0; -EBUSY: as that incarnation it is there already; -ESHUTDOWN: the node ends. */
static int join_until(struct member *m, uint64_t *tag)
{
	uint64_t asked = *tag;
	int r;

	while ((r = join_once(m->n, tag)) < 0) {
		*tag = asked;
		if (r == -EBUSY && asked)
			return r;
		if (!pause_for(m, JOIN_AGAIN_NS))
			return -ESHUTDOWN;
	}
	return 0;
}

/* What was had under the old incarnation is nobody's, and what is still on its way to it finds no one. */
static void forget_incarnation(struct member *m)
{
	struct node *n = m->n;

	log_warn("the master has given up node \"%s\": what it had in the cluster is gone, and it joins anew",
		 m->instance_key);
	atomic_store(&m->lease_until, 0);
	n->tomb_tag = 0;
	serve_as(n, 0);
	names_forget_all(n);
	block_forget_all(n);
	reclaim_flush(n);
}

static void begin_incarnation(struct member *m, uint64_t tag)
{
	serve_as(m->n, tag);
	pthread_mutex_lock(&m->lock);
	m->n->tomb_tag = tag;
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
	log_info("node \"%s\" has joined again", m->instance_key);
}

static void join_again(struct member *m)
{
	uint64_t tag = 0;

	forget_incarnation(m);
	if (join_until(m, &tag) == 0)
		begin_incarnation(m, tag);
}

/* 0: the node is one of the cluster again, as this incarnation or as another. */
static int attach(struct member *m)
{
	struct node *n = m->n;
	uint64_t tag = n->tomb_tag;
	int r = join_until(m, &tag);

	if (r < 0)
		return r;
	if (tag != n->tomb_tag) {
		/* The master has waited for us in vain before. */
		forget_incarnation(m);
		begin_incarnation(m, tag);
		return 0;
	}
	r = resume_stock(n);
	if (r < 0)
		return r;
	holds_say_again(n->holds);
	log_info("the master was started again, and knows what node \"%s\" has", m->instance_key);
	return 0;
}

/* The master was started again, and knows this incarnation from its catalogue. */
static void go_on(struct member *m)
{
	int r;

	atomic_store(&m->lease_until, 0);
	while ((r = attach(m)) < 0 && r != -EBUSY && r != -ESTALE && r != -ESHUTDOWN)
		if (!pause_for(m, JOIN_AGAIN_NS))
			return;
	if (r == -ESTALE)
		join_again(m);
}

void node_unattached(struct node *n)
{
	struct member *m = n->member;

	pthread_mutex_lock(&m->lock);
	m->unattached = true;
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
}

/* ---- requests that outlive an incarnation --------------------------------------------------------------------- */

bool member_asks_again(enum msg_type type)
{
	switch (type) {
	case MSG_LOOKUP:
	case MSG_GETATTR:
	case MSG_SETATTR:
	case MSG_READDIR:
	case MSG_MKDIR:
	case MSG_RMDIR:
	case MSG_RENAME:
	case MSG_DELETE:
	case MSG_GETXATTRS:
	case MSG_SETXATTRS:
	case MSG_STATFS:
	case MSG_NS_CREATE:
	case MSG_NS_SET:
	case MSG_NS_LIST:
	case MSG_NS_REMOVE:
	case MSG_PUT_START:
	case MSG_GET_START:
		return true;
	default:
		return false;
	}
}

struct asked {
	struct work work;
	struct node *n;
	struct msg *again; /* the request, to be sent once more */
	struct msg *answer;
	channel_done_fn done;
	void *arg;
	uint64_t tag; /* of the incarnation that has asked */
};

static void asked_free(struct asked *a)
{
	msg_free(a->again);
	msg_free(a->answer);
	free(a);
}

/* Waits until the node is another incarnation than that. False: it is not, in good time. */
static bool wait_for_next(struct member *m, uint64_t tag)
{
	struct timespec until = clock_timespec(clock_ns() + NEXT_NS);
	bool next;
	int r = 0;

	pthread_mutex_lock(&m->lock);
	if (m->n->tomb_tag == tag) {
		m->over = tag;
		pthread_cond_broadcast(&m->wake);
	}
	while (!(next = m->n->tomb_tag && m->n->tomb_tag != tag) && !m->stop && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&m->wake, &m->lock, &until);
	pthread_mutex_unlock(&m->lock);
	return next;
}

static void ask_again_job(struct work *w)
{
	struct asked *a = container_of(w, struct asked, work);
	struct msg *again = a->again;

	if (wait_for_next(a->n->member, a->tag)) {
		a->again = NULL;
		node_send(a->n, again, a->done, a->arg);
	} else {
		a->answer->status = -EIO;
		a->done(a->arg, a->answer);
	}
	asked_free(a);
}

static void asked_answered(void *arg, const struct msg *answer)
{
	struct asked *a = arg;
	struct node *n = a->n;

	a->answer = answer->status == -ESTALE ? msg_copy(answer) : NULL;
	a->tag = answer->tomb_tag;
	pthread_rwlock_rdlock(&n->events_lock);
	if (a->answer && a->again && !atomic_load(&n->stopping)) {
		workq_submit(n->wq, &a->work, ask_again_job);
		a = NULL;
	}
	pthread_rwlock_unlock(&n->events_lock);
	if (!a)
		return;
	a->done(a->arg, answer);
	asked_free(a);
}

void member_call(struct node *n, struct msg *req, channel_done_fn done, void *arg)
{
	struct asked *a = done ? malloc(sizeof(*a)) : NULL;

	if (!a) {
		node_send(n, req, done, arg);
		return;
	}
	*a = (struct asked){.n = n, .again = msg_copy(req), .done = done, .arg = arg};
	node_send(n, req, asked_answered, a);
}

/* ---- heartbeats ---------------------------------------------------------------------------------------------- */

static void renew(struct member *m, uint64_t sent_ns, uint64_t lease_ns)
{
	if (lease_ns == UINT64_MAX)
		atomic_store(&m->lease_until, UINT64_MAX);
	else if (lease_ns)
		atomic_store_explicit(&m->lease_until, sent_ns + lease_ns, memory_order_release);
}

static void beat_answer(void *arg, const struct msg *answer)
{
	struct node *n = arg;
	struct member *m = n->member;

	pthread_mutex_lock(&m->lock);
	m->beating = false;
	/* Of this incarnation, and not of one that was given up meanwhile. */
	if (answer->tomb_tag == n->tomb_tag && answer->status == 0) {
		m->heard_ns = clock_ns();
		m->master_ns = answer->u.heartbeat.master_ns;
		renew(m, m->beat_ns, answer->u.heartbeat.lease_ns);
	} else if (answer->tomb_tag == n->tomb_tag && answer->status == -ESTALE) {
		m->over = n->tomb_tag;
		pthread_cond_broadcast(&m->wake);
	}
	pthread_mutex_unlock(&m->lock);
	space_freed(n);
	node_told(n);
}

static void beat(struct member *m)
{
	bool send;

	pthread_mutex_lock(&m->lock);
	/* One at a time: what comes behind one that waits for the master would say nothing new. */
	send = !m->beating;
	if (send) {
		m->beating = true;
		m->beat_ns = clock_ns();
	}
	pthread_mutex_unlock(&m->lock);
	if (!send || evict_heartbeat(m->n, beat_answer) == 0)
		return;
	pthread_mutex_lock(&m->lock);
	m->beating = false;
	pthread_mutex_unlock(&m->lock);
}

/* What was said of an earlier one, or while there was none, is of no concern. Call with m locked. */
static bool is_over(const struct member *m)
{
	return m->over && m->over == m->n->tomb_tag;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	uint64_t next = 0;
	bool stop, over, unattached;

	for (;;) {
		struct timespec until;
		int r = 0;

		if (clock_ns() >= next) {
			beat(m);
			holds_flush(m->n->holds);
			next = clock_ns() + BEAT_NS;
		}
		until = clock_timespec(next);
		pthread_mutex_lock(&m->lock);
		while (!m->stop && !is_over(m) && !m->unattached && r != ETIMEDOUT)
			r = pthread_cond_timedwait(&m->wake, &m->lock, &until);
		stop = m->stop;
		over = is_over(m);
		unattached = m->unattached;
		m->unattached = false;
		pthread_mutex_unlock(&m->lock);
		if (stop)
			return NULL;
		if (over)
			join_again(m);
		else if (unattached)
			go_on(m);
		if (over || unattached)
			next = 0;
	}
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

struct member *member_new(struct node *n, const struct node_config *cfg)
{
	struct member *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->n = n;
	strncpy(m->instance_key, cfg->instance_key, sizeof(m->instance_key) - 1);
	pthread_mutex_init(&m->lock, NULL);
	clock_cond_init(&m->wake);
	return m;
}

void member_free(struct member *m)
{
	if (!m)
		return;
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

int member_start(struct node *n, const char *address, struct errmsg *e)
{
	struct member *m = n->member;
	int r;

	if (strlen(address) > MSG_ADDRESS_MAX)
		return errmsg_set(e, -ENAMETOOLONG, "the address %s is too long", address);
	strcpy(m->address, address);
	r = join_first(n, e);
	if (r < 0)
		return r;
	r = pthread_create(&m->thread, NULL, member_main, m);
	if (r)
		return errmsg_set(e, -r, "cannot start a thread: %s", strerror(r));
	pthread_setname_np(m->thread, "fkv-member");
	m->runs = true;
	return 0;
}

void member_stop(struct node *n)
{
	struct member *m = n->member;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->stop = true;
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
}

void member_join_thread(struct node *n)
{
	struct member *m = n->member;

	if (m && m->runs)
		pthread_join(m->thread, NULL);
	if (m)
		m->runs = false;
}
