/* SPDX-License-Identifier: Apache-2.0 */
/* The master inside the daemon: its channel, its threads, its catalogue on a disk that fails, and its end. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "master/local.h"
#include "tests/unit/bad_vfs.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"

#define CAPACITY (1ull << 30)

static char path[96];
static struct local_master_config cfg;
static struct local_master *lm;
static struct channel *ch;
static uint64_t tag;

/* For what children run too: the test library's own macros write to a pipe that a kill would leave half-written. */
static bool in_child;

#define MUST(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x)) {                                                                                            \
			if (in_child)                                                                                  \
				_exit(9);                                                                              \
			ck_abort_msg("%s", #x);                                                                        \
		}                                                                                                      \
	} while (0)

static void start(void)
{
	struct errmsg e = {""};
	int r = local_master_start(&cfg, &lm, &e);

	if (r < 0 && !in_child)
		ck_abort_msg("%s", e.text);
	MUST(!r);
	ch = local_master_channel(lm);
}

static void set_up(void)
{
	temp_dir_empty();
	snprintf(path, sizeof(path), "%s/catalogue.db", temp_dir);
	cfg = (struct local_master_config){.catalogue = path, .auto_namespace = true, .default_block_size = 1 << 20};
	start();
}

static void tear_down(void)
{
	lm = local_master_stop(lm);
}

/* ---- requests that wait ------------------------------------------------------------------------------------ */

struct waiter {
	sem_t sem;
	int status;
	struct msg *ret; /* the part of fixed size, or NULL */
};

static void waiter_done(void *arg, const struct msg *m)
{
	struct waiter *w = arg;

	w->status = m->status;
	if (w->ret) {
		*w->ret = *m;
		w->ret->items = NULL;
		w->ret->ents = NULL;
		w->ret->namespaces = NULL;
		w->ret->blob = NULL;
	}
	sem_post(&w->sem);
}

static int wait_for(struct msg *m, struct msg *ret)
{
	struct waiter w = {.ret = ret};

	sem_init(&w.sem, 0, 0);
	m->tomb_tag = tag;
	channel_call(ch, m, waiter_done, &w);
	while (sem_wait(&w.sem))
		;
	sem_destroy(&w.sem);
	return w.status;
}

static void join(void)
{
	struct msg *m = msg_new(MSG_JOIN), ret;

	m->u.join.capacity = CAPACITY;
	m->u.join.kv_ssd_storage = true;
	strcpy(m->u.join.instance_key, "one");
	MUST(!wait_for(m, &ret));
	tag = ret.u.join.tomb_tag;
}

static struct msg *named(enum msg_type type, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(type);

	m->u.name.dir = dir;
	MUST(!msg_set_name(m->u.name.name, name));
	m->u.name.attr.mode = 0750;
	return m;
}

static uint64_t make_dir(uint64_t dir, const char *name)
{
	struct msg ret;

	MUST(!wait_for(named(MSG_MKDIR, dir, name), &ret));
	return ret.u.entry.a.id;
}

static int lookup(uint64_t dir, const char *name, struct msg *ret)
{
	return wait_for(named(MSG_LOOKUP, dir, name), ret);
}

struct grant {
	sem_t sem;
	int status;
	uint64_t ticket, alloc;
};

static void granted(void *arg, const struct msg *m)
{
	struct grant *g = arg;

	g->status = m->status;
	if (!m->status) {
		g->ticket = m->u.put.ticket;
		g->alloc = m->items[0].alloc;
	}
	sem_post(&g->sem);
}

static struct msg *put_done_msg(const struct grant *g, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(MSG_PUT_DONE);

	m->tomb_tag = tag;
	m->u.put.ticket = g->ticket;
	m->u.put.dir = dir;
	m->u.put.bytes = 100;
	MUST(!msg_set_name(m->u.put.name, name));
	msg_alloc_items(m, 1);
	m->items[0] = (struct msg_item){.alloc = g->alloc, .bytes = 100, .flags = MSG_ITEM_MEM};
	return m;
}

static void put_start(uint64_t dir, struct grant *g)
{
	struct msg *m = msg_new(MSG_PUT_START);

	sem_init(&g->sem, 0, 0);
	m->tomb_tag = tag;
	m->u.put.dir = dir;
	channel_call(ch, m, granted, g);
	sem_wait(&g->sem);
	sem_destroy(&g->sem);
	MUST(!g->status);
}

static uint64_t put(uint64_t dir, const char *name)
{
	struct grant g;
	struct msg ret;

	put_start(dir, &g);
	MUST(!wait_for(put_done_msg(&g, dir, name), &ret));
	return ret.u.entry.a.id;
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

START_TEST(directories_outlive_the_process_and_objects_do_not)
{
	uint64_t a, id, old = tag;
	struct msg ret;

	join();
	a = make_dir(MSG_ROOT_DIR, "a");
	make_dir(a, "sub");
	id = put(a, "x");
	ck_assert_int_eq(lookup(a, "x", &ret), 0);
	ck_assert_uint_eq(ret.u.entry.a.id, id);
	ck_assert_int_eq(wait_for(msg_new(MSG_LEAVE), &ret), 0);
	lm = local_master_stop(lm);
	start();
	ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), -ESTALE); /* nobody has joined */
	join();
	ck_assert_uint_gt(tag, old);
	ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), 0);
	ck_assert_uint_eq(ret.u.entry.a.id, a);
	ck_assert_uint_eq(ret.u.entry.a.mode & 07777, 0750);
	ck_assert_uint_ne(ret.u.entry.a.ns, 0);
	ck_assert_int_eq(lookup(a, "sub", &ret), 0);
	ck_assert_int_eq(lookup(a, "x", &ret), -ENOENT);
	ck_assert_uint_gt(put(a, "x"), id);
}
END_TEST

START_TEST(a_start_that_cannot_be_says_why)
{
	struct local_master_config bad_cfg = cfg;
	struct local_master *other;
	struct errmsg e = {""};

	bad_cfg.catalogue = "/nowhere/at/all";
	ck_assert_int_lt(local_master_start(&bad_cfg, &other, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, "/nowhere/at/all"));
}
END_TEST

START_TEST(requests_are_counted)
{
	struct local_master_stats s;
	struct msg ret;
	uint64_t a;

	join();
	a = make_dir(MSG_ROOT_DIR, "a");
	put(a, "x");
	for (int k = 0; k < 5; k++)
		lookup(a, "x", &ret);
	local_master_get_stats(lm, &s);
	ck_assert_uint_eq(s.requests[MSG_LOOKUP], 5);
	ck_assert_uint_eq(s.requests[MSG_PUT_DONE], 1);
	/* the notice comes behind the answer, and the loop says the rest after it has answered */
	for (int k = 0; k < 5000 && (s.used != 4096 || !s.notices[MSG_SSD_PERSIST]); k++) {
		usleep(1000);
		local_master_get_stats(lm, &s);
	}
	ck_assert_uint_eq(s.notices[MSG_SSD_PERSIST], 1);
	ck_assert_uint_eq(s.notices[MSG_DROP], 0);
	ck_assert_uint_ge(s.commits, 2);
	ck_assert_uint_eq(s.objects, 1);
	ck_assert_uint_eq(s.directories, 2);
	ck_assert_uint_eq(s.used, 4096);
}
END_TEST

/* Many threads at once: each request is answered exactly once, with its own answer. */
#define THREADS 6
#define REQUESTS 3000

struct crowd {
	atomic_uint answered, wrong;
	uint64_t dir;
};

struct asked {
	struct crowd *crowd;
	uint64_t req_id;
	atomic_uint times;
	bool there;
};

static void counted(void *arg, const struct msg *m)
{
	struct asked *q = arg;

	if (m->req_id != q->req_id || atomic_fetch_add(&q->times, 1) || m->status != (q->there ? 0 : -ENOENT))
		atomic_fetch_add(&q->crowd->wrong, 1);
	atomic_fetch_add(&q->crowd->answered, 1);
}

static void *ask_many(void *arg)
{
	struct crowd *crowd = arg;
	struct asked *q = calloc(REQUESTS, sizeof(*q));

	for (unsigned k = 0; k < REQUESTS; k++) {
		struct msg *m = named(MSG_LOOKUP, crowd->dir, k % 3 ? "x" : "none");

		q[k] = (struct asked){.crowd = crowd, .req_id = (uint64_t)k << 32 | 7, .there = k % 3 != 0};
		m->req_id = q[k].req_id;
		m->tomb_tag = tag;
		channel_call(ch, m, counted, &q[k]);
	}
	return q;
}

START_TEST(each_request_is_answered_once)
{
	struct crowd crowd = {0};
	pthread_t t[THREADS];
	void *asked[THREADS];
	struct msg ret;

	join();
	crowd.dir = make_dir(MSG_ROOT_DIR, "a");
	put(crowd.dir, "x");
	for (int k = 0; k < THREADS; k++)
		ck_assert(!pthread_create(&t[k], NULL, ask_many, &crowd));
	for (int k = 0; k < 200; k++)
		put(crowd.dir, "x"); /* answers of both threads of the channel */
	for (int k = 0; k < THREADS; k++)
		pthread_join(t[k], &asked[k]);
	lookup(crowd.dir, "x", &ret); /* behind all of them */
	ck_assert_uint_eq(crowd.answered, THREADS * REQUESTS);
	ck_assert_uint_eq(crowd.wrong, 0);
	for (int k = 0; k < THREADS; k++)
		free(asked[k]);
}
END_TEST

/* Pauses let the loop fall asleep each time: a lost wakeup would hang here. */
START_TEST(no_wakeup_is_lost)
{
	struct msg ret;

	join();
	for (unsigned k = 0; k < 3000; k++) {
		for (volatile unsigned spin = 0; spin < k * 7 % 5000; spin++)
			;
		ck_assert_int_eq(lookup(MSG_ROOT_DIR, "none", &ret), -ENOENT);
	}
}
END_TEST

/* What came, in its order: the put_id of an answer, that with a bit for a notice. */
#define SAW_PERSIST (1ull << 62)
#define SAW_DROP (1ull << 61)

static struct {
	pthread_mutex_t lock;
	uint64_t what[4096];
	size_t n;
	sem_t answers;
} saw;

static void see(uint64_t what)
{
	pthread_mutex_lock(&saw.lock);
	if (saw.n < sizeof(saw.what) / sizeof(saw.what[0]))
		saw.what[saw.n++] = what;
	pthread_mutex_unlock(&saw.lock);
}

static void see_answer(void *arg, const struct msg *m)
{
	see(m->status ? 0 : m->u.entry.a.id);
	sem_post(&saw.answers);
}

static void see_notice(void *arg, const struct msg *m)
{
	for (size_t k = 0; k < m->n_items; k++)
		see((m->type == MSG_DROP ? SAW_DROP : SAW_PERSIST) | m->items[k].put_id);
}

static size_t place_of(uint64_t what)
{
	for (size_t k = 0; k < saw.n; k++)
		if (saw.what[k] == what)
			return k;
	return SIZE_MAX;
}

/* A version's notices come behind the answer that made it known. */
START_TEST(notices_follow_the_answer)
{
	enum { PUTS = 300 };
	uint64_t a;

	pthread_mutex_init(&saw.lock, NULL);
	sem_init(&saw.answers, 0, 0);
	saw.n = 0;
	ch->set_notice(ch, see_notice, NULL);
	join();
	a = make_dir(MSG_ROOT_DIR, "a");
	for (int k = 0; k < PUTS; k++) {
		struct grant g;

		put_start(a, &g);
		channel_call(ch, put_done_msg(&g, a, "x"), see_answer, NULL);
	}
	for (int k = 0; k < PUTS; k++)
		sem_wait(&saw.answers);
	ch->set_notice(ch, NULL, NULL);
	for (size_t k = 0; k < saw.n; k++) {
		ck_assert_uint_ne(saw.what[k], 0);
		if (saw.what[k] & (SAW_PERSIST | SAW_DROP))
			ck_assert_uint_lt(place_of(saw.what[k] & ~(SAW_PERSIST | SAW_DROP)), k);
	}
	ck_assert_uint_ge(saw.n, 3 * PUTS - 4);
}
END_TEST

/* ---- a catalogue that cannot be written -------------------------------------------------------------------- */

struct slow {
	sem_t sem;
	atomic_int times, status;
};

static void slow_done(void *arg, const struct msg *m)
{
	struct slow *s = arg;

	atomic_store(&s->status, m->status);
	atomic_fetch_add(&s->times, 1);
	sem_post(&s->sem);
}

static void restart_with_deadline(uint64_t ns)
{
	lm = local_master_stop(lm);
	cfg.answer_deadline_ns = ns;
	bad_install();
	log_set_level(LOG_LVL_ERROR - 1); /* what is to fail need not be in the test's output */
	start();
	join();
}

/* What was done in the core is told as done, to those who would else go on with another state than the core's. */
START_TEST(a_failing_catalogue_delays_answers_up_to_their_deadline)
{
	struct slow s = {.times = 0};
	struct local_master_stats st;
	struct msg *m, ret;
	uint64_t a;

	restart_with_deadline(300 * NS_PER_MS);
	a = make_dir(MSG_ROOT_DIR, "a");
	sem_init(&s.sem, 0, 0);
	bad.sticky = true;
	bad.error = SQLITE_FULL;
	bad.countdown = 0;
	m = named(MSG_MKDIR, a, "late");
	m->tomb_tag = tag;
	channel_call(ch, m, slow_done, &s);
	/* reads go on, and see what is only in memory yet */
	ck_assert_int_eq(lookup(a, "late", &ret), 0);
	ck_assert_int_eq(s.times, 0);
	sem_wait(&s.sem);
	ck_assert_int_eq(s.status, 0);
	bad.countdown = -1;
	make_dir(a, "after"); /* committed behind what waited */
	local_master_get_stats(lm, &st);
	ck_assert_uint_ge(st.commit_failures, 1);
	ck_assert_uint_eq(st.late, 1);
	ck_assert_int_eq(s.times, 1); /* it is not told again */
	lm = local_master_stop(lm);
	bad_uninstall();
	start();
	join();
	ck_assert_int_eq(lookup(a, "late", &ret), 0);
	ck_assert_int_eq(lookup(a, "after", &ret), 0);
	sem_destroy(&s.sem);
}
END_TEST

/* A put that is published has an owner with its bytes: its answer says so, however long the disk hangs. */
START_TEST(a_publish_is_true_while_the_disk_hangs)
{
	struct msg *m, ret;
	struct grant g;
	uint64_t a, id;

	restart_with_deadline(200 * NS_PER_MS);
	a = make_dir(MSG_ROOT_DIR, "a");
	put_start(a, &g);
	bad.hang = true;
	ck_assert_int_eq(wait_for(put_done_msg(&g, a, "x"), &ret), 0);
	id = ret.u.entry.a.id;
	ck_assert_uint_gt(ret.u.entry.lease, 0);
	ck_assert_int_eq(lookup(a, "x", &ret), 0);
	ck_assert_uint_eq(ret.u.entry.a.id, id);
	/* the put is spent, as after any success */
	m = put_done_msg(&g, a, "x");
	ck_assert_int_eq(wait_for(m, NULL), -ESTALE);
	ck_assert_int_eq(wait_for(named(MSG_DELETE, a, "x"), &ret), 0);
	ck_assert_uint_gt(ret.u.entry.lease, 0);
	ck_assert_int_eq(lookup(a, "x", &ret), -ENOENT);
	bad.hang = false;
	make_dir(a, "after");
	lm = local_master_stop(lm);
	bad_uninstall();
}
END_TEST

/* Answers at the deadline and answers behind the commit, at once: each call has one, in the order of the calls. */
#define LATE_CALLS 400

struct in_turn {
	atomic_uint next, wrong;
};

struct turn {
	struct in_turn *all;
	unsigned k;
};

static void turn_done(void *arg, const struct msg *m)
{
	struct turn *t = arg;

	if (m->status || m->req_id != t->k + 1 || atomic_fetch_add(&t->all->next, 1) != t->k)
		atomic_fetch_add(&t->all->wrong, 1);
}

START_TEST(late_answers_keep_their_order)
{
	struct turn turns[LATE_CALLS];
	struct in_turn all = {0};
	struct local_master_stats st;
	uint64_t a;

	restart_with_deadline(2 * NS_PER_MS);
	a = make_dir(MSG_ROOT_DIR, "a");
	for (unsigned k = 0; k < LATE_CALLS; k++) {
		struct msg *m;
		char name[32];

		snprintf(name, sizeof(name), "d%u", k);
		m = named(MSG_MKDIR, a, name);
		m->tomb_tag = tag;
		m->req_id = k + 1;
		turns[k] = (struct turn){&all, k};
		bad.hang = k % 8 < 5;
		channel_call(ch, m, turn_done, &turns[k]);
		usleep(700);
	}
	bad.hang = false;
	make_dir(a, "after");
	ck_assert_uint_eq(all.next, LATE_CALLS);
	ck_assert_uint_eq(all.wrong, 0);
	local_master_get_stats(lm, &st);
	ck_assert_uint_gt(st.late, LATE_CALLS / 10);
	ck_assert_uint_lt(st.late, LATE_CALLS);
	lm = local_master_stop(lm);
	bad_uninstall();
}
END_TEST

START_TEST(a_stop_does_not_hang_on_a_failing_catalogue)
{
	struct slow s = {.times = 0};
	struct msg *m;

	restart_with_deadline(0);
	sem_init(&s.sem, 0, 0);
	bad.sticky = true;
	bad.error = SQLITE_IOERR_WRITE;
	bad.countdown = 0;
	m = named(MSG_MKDIR, MSG_ROOT_DIR, "a");
	m->tomb_tag = tag;
	channel_call(ch, m, slow_done, &s);
	lm = local_master_stop(lm);
	ck_assert_int_eq(s.times, 1);
	ck_assert_int_eq(s.status, -EIO);
	bad_uninstall();
	sem_destroy(&s.sem);
}
END_TEST

/* What fills the queue fast: one attribute of nearly all the bytes that an entry may have. */
#define BIG 60000u

static struct msg *big_xattrs(uint64_t dir)
{
	struct msg *m = msg_new(MSG_SETXATTRS);

	m->tomb_tag = tag;
	m->u.attr.a.id = dir;
	m->blob = calloc(1, BIG);
	m->blob_len = BIG;
	m->blob[0] = 1;
	m->blob[1] = (uint8_t)((BIG - 6) & 0xff);
	m->blob[2] = (uint8_t)((BIG - 6) >> 8);
	m->blob[5] = 'n';
	return m;
}

START_TEST(a_failing_catalogue_does_not_take_all_memory)
{
	struct msg ret;
	int r = 0;
	char name[32];
	uint64_t a;

	restart_with_deadline(2 * NS_PER_SEC);
	a = make_dir(MSG_ROOT_DIR, "a");
	bad.sticky = true;
	bad.error = SQLITE_FULL;
	bad.countdown = 0;
	for (int k = 0; k < 4000 && r != -EIO; k++) {
		r = wait_for(big_xattrs(a), &ret);
		ck_assert(!r || r == -EIO);
	}
	ck_assert_int_eq(r, -EIO);
	ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), 0);
	bad.countdown = -1;
	for (int k = 0; k < 100 && r; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		r = wait_for(named(MSG_MKDIR, a, name), &ret);
		usleep(20000);
	}
	ck_assert_int_eq(r, 0);
	lm = local_master_stop(lm);
	bad_uninstall();
}
END_TEST

/* Whoever asks again for what was done would take an error for the news that it was not. */
START_TEST(a_failing_catalogue_does_not_refuse_what_was_done)
{
	struct msg *m;
	uint64_t a, id = 1;
	int r = 0;

	cfg.recent_answers = 16;
	restart_with_deadline(NS_PER_SEC / 10);
	a = make_dir(MSG_ROOT_DIR, "a");
	bad.sticky = true;
	bad.error = SQLITE_FULL;
	bad.countdown = 0;
	for (int k = 0; k < 4000 && r != -EIO; k++) {
		m = big_xattrs(a);
		m->req_id = ++id;
		r = wait_for(m, NULL);
	}
	ck_assert_int_eq(r, -EIO);
	m = big_xattrs(a);
	m->req_id = id - 1;
	ck_assert_int_eq(wait_for(m, NULL), 0);
	bad.countdown = -1;
	lm = local_master_stop(lm);
	bad_uninstall();
}
END_TEST

static struct msg *one_item(enum msg_type type, uint64_t put_id)
{
	struct msg *m = msg_new(type);

	msg_alloc_items(m, 1);
	m->items[0].put_id = put_id;
	return m;
}

/* Nobody says it twice: a release that is refused would be charged for ever. */
START_TEST(a_failing_catalogue_does_not_refuse_what_comes_back)
{
	struct local_master_stats st;
	struct grant g;
	struct msg *m, ret;
	uint64_t a, id;
	int r = 0;

	restart_with_deadline(0);
	a = make_dir(MSG_ROOT_DIR, "a");
	id = put(a, "x");
	ck_assert_int_eq(wait_for(named(MSG_DELETE, a, "x"), &ret), 0);
	put_start(a, &g);
	bad.sticky = true;
	bad.error = SQLITE_FULL;
	bad.countdown = 0;
	for (int k = 0; k < 4000 && r != -EIO; k++)
		r = wait_for(big_xattrs(a), NULL);
	ck_assert_int_eq(r, -EIO);
	m = msg_new(MSG_PUT_RENEW);
	m->u.put.ticket = g.ticket;
	ck_assert_int_eq(wait_for(m, NULL), 0);
	m = msg_new(MSG_PUT_REVOKE);
	m->u.put.ticket = g.ticket;
	ck_assert_int_eq(wait_for(m, NULL), 0);
	ck_assert_int_eq(wait_for(one_item(MSG_DELETE_ACK, id), NULL), 0);
	ck_assert_int_eq(wait_for(one_item(MSG_ALLOC_FREED, 0), NULL), 0);
	ck_assert_int_eq(wait_for(msg_new(MSG_GET_REVOKE), NULL), -ESTALE); /* there is none */
	ck_assert_int_eq(wait_for(big_xattrs(a), NULL), -EIO);
	for (int k = 0; k < 5000; k++) {
		local_master_get_stats(lm, &st);
		if (!st.used && !st.reserved && !st.orphans)
			break;
		usleep(1000);
	}
	ck_assert_uint_eq(st.used, 0);
	ck_assert_uint_eq(st.reserved, 0);
	ck_assert_uint_eq(st.orphans, 0);
	bad.countdown = -1;
	lm = local_master_stop(lm);
	bad_uninstall();
}
END_TEST

/* What a queue takes, and a batch of the loop more. */
#define FILL ((32u << 20) / BIG + 128)

/* More records than may be queued behind a commit that takes its time, in calls that s counts. */
static void fill_behind_a_commit(uint64_t dir, struct slow *s)
{
	struct msg *m = msg_new(MSG_SETATTR);

	bad.hang = true;
	bad.writes = 0;
	m->u.attr.a.id = dir;
	m->u.attr.mask = MSG_SET_UID;
	ck_assert_int_eq(wait_for(m, NULL), 0);
	while (!bad.writes)
		usleep(1000);
	for (unsigned k = 0; k < FILL; k++)
		channel_call(ch, big_xattrs(dir), slow_done, s);
	while (s->times < (int)((32u << 20) / BIG))
		usleep(1000);
}

/* Too much for the queue comes at once: what waits for room is woken by the commit that makes it. */
START_TEST(a_full_queue_is_waited_for)
{
	struct slow s = {.times = 0};
	struct msg ret;
	uint64_t a, began;

	restart_with_deadline(0);
	a = make_dir(MSG_ROOT_DIR, "a");
	sem_init(&s.sem, 0, 0);
	fill_behind_a_commit(a, &s);
	bad.hang = false;
	began = clock_ns();
	ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), 0);
	ck_assert_uint_lt(clock_ns() - began, 15 * NS_PER_SEC); /* not by the deadline of 30 s */
	ck_assert_int_eq(s.times, (int)FILL);
	ck_assert_int_eq(s.status, 0);
	lm = local_master_stop(lm);
	bad_uninstall();
	sem_destroy(&s.sem);
}
END_TEST

/* A disk that hangs is not waited for by those who only read, and changes end. */
START_TEST(a_hanging_catalogue_stops_changes_alone)
{
	struct slow s = {.times = 0};
	struct msg ret;
	uint64_t a;

	restart_with_deadline(200 * NS_PER_MS);
	a = make_dir(MSG_ROOT_DIR, "a");
	sem_init(&s.sem, 0, 0);
	fill_behind_a_commit(a, &s);
	ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), 0);
	ck_assert_int_eq(s.times, (int)FILL);
	ck_assert_int_eq(wait_for(big_xattrs(a), NULL), -EIO);
	bad.hang = false;
	lm = local_master_stop(lm);
	bad_uninstall();
	sem_destroy(&s.sem);
}
END_TEST

/* ---- kill -9 ----------------------------------------------------------------------------------------------- */

static void child_makes_dirs(int fd, unsigned n)
{
	char name[32];
	uint64_t a;
	struct msg ret;

	in_child = true;
	die_with_parent();
	start();
	join();
	if (wait_for(named(MSG_MKDIR, MSG_ROOT_DIR, "a"), &ret) == -EEXIST)
		lookup(MSG_ROOT_DIR, "a", &ret);
	a = ret.u.entry.a.id;
	for (;; n++) {
		snprintf(name, sizeof(name), "d%u", n);
		put(a, "x");
		if (wait_for(named(MSG_MKDIR, a, name), &ret) || write(fd, &n, sizeof(n)) != sizeof(n))
			_exit(1);
	}
}

START_TEST(what_was_answered_outlives_a_kill)
{
	unsigned next = 0, n, rnd = 99;
	char name[32];

	lm = local_master_stop(lm);
	for (int round = 0; round < 12; round++) {
		struct msg ret;
		uint64_t a;
		int p[2];
		pid_t pid;

		ck_assert(!pipe(p));
		pid = fork();
		if (!pid)
			child_makes_dirs(p[1], next);
		close(p[1]);
		/* Once it has begun, however slow the machine is. */
		ck_assert_int_eq((int)read(p[0], &n, sizeof(n)), (int)sizeof(n));
		next = n + 1;
		rnd = rnd * 1103515245 + 12345;
		usleep((rnd >> 8) % 30000);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		while (read(p[0], &n, sizeof(n)) == sizeof(n))
			next = n + 1;
		close(p[0]);
		start();
		join();
		if (next)
			ck_assert_int_eq(lookup(MSG_ROOT_DIR, "a", &ret), 0);
		a = ret.u.entry.a.id;
		for (unsigned k = 0; k < next; k++) {
			snprintf(name, sizeof(name), "d%u", k);
			ck_assert_int_eq(lookup(a, name, &ret), 0);
		}
		/* the one that was under way may be there as well */
		if (next) {
			snprintf(name, sizeof(name), "d%u", next);
			if (!lookup(a, name, &ret))
				next++;
		}
		lm = local_master_stop(lm);
	}
	ck_assert_uint_gt(next, 10);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master/local");
	TCase *tc = tcase_create("local");

	tcase_add_unchecked_fixture(tc, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, directories_outlive_the_process_and_objects_do_not);
	tcase_add_test(tc, a_start_that_cannot_be_says_why);
	tcase_add_test(tc, requests_are_counted);
	tcase_add_test(tc, each_request_is_answered_once);
	tcase_add_test(tc, no_wakeup_is_lost);
	tcase_add_test(tc, notices_follow_the_answer);
	tcase_add_test(tc, a_failing_catalogue_delays_answers_up_to_their_deadline);
	tcase_add_test(tc, a_publish_is_true_while_the_disk_hangs);
	tcase_add_test(tc, late_answers_keep_their_order);
	tcase_add_test(tc, a_stop_does_not_hang_on_a_failing_catalogue);
	tcase_add_test(tc, a_failing_catalogue_does_not_take_all_memory);
	tcase_add_test(tc, a_failing_catalogue_does_not_refuse_what_was_done);
	tcase_add_test(tc, a_failing_catalogue_does_not_refuse_what_comes_back);
	tcase_add_test(tc, a_full_queue_is_waited_for);
	tcase_add_test(tc, a_hanging_catalogue_stops_changes_alone);
	tcase_add_test(tc, what_was_answered_outlives_a_kill);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
