/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting and stopping a node on a master that is none: it answers when the test wants, so that notices and answers
 * come at the moments at which a node has not all of its parts yet, or no more.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/list.h"
#include "common/log.h"
#include "store/node.h"
#include "tests/unit/base.h"
#include "tests/unit/run.h"

#define MIB (1ull << 20)
#define CALLS_MAX 64
#define LATE_US 200000

struct late_call {
	struct msg *req;
	channel_done_fn done;
	void *arg;
	pthread_t thread;
};

/* Answers each request on a thread of its own; DELETE_ACK late. */
struct fake_master {
	struct channel channel;
	int join_status;
	bool drop_at_join; /* a notice comes before the answer to JOIN */
	pthread_mutex_t lock;
	channel_notice_fn notice; /* lock */
	void *notice_arg;	  /* lock */
	unsigned notices_set;	  /* lock: calls of set_notice() */
	atomic_uint n_calls, acks, acks_answered, leaves;
	struct late_call calls[CALLS_MAX];
};

static char base[64];
static struct fake_master fake;

static void send_drop(void)
{
	struct msg *m = msg_new(MSG_DROP);

	ck_assert_int_eq(msg_alloc_items(m, 1), 0);
	m->items[0] = (struct msg_item){.put_id = 5, .block = 1};
	pthread_mutex_lock(&fake.lock);
	if (fake.notice)
		fake.notice(fake.notice_arg, m);
	pthread_mutex_unlock(&fake.lock);
	msg_free(m);
}

static void *answer_late(void *arg)
{
	struct late_call *c = arg;

	switch (c->req->type) {
	case MSG_JOIN:
		c->req->status = fake.join_status;
		c->req->u.join.tomb_tag = 1;
		if (fake.drop_at_join)
			send_drop();
		break;
	case MSG_DELETE_ACK:
		usleep(LATE_US);
		atomic_fetch_add(&fake.acks_answered, 1);
		break;
	default:
		break;
	}
	if (c->done)
		c->done(c->arg, c->req);
	msg_free(c->req);
	return NULL;
}

static void fake_call(struct channel *ch, struct msg *req, channel_done_fn done, void *arg)
{
	struct late_call *c = &fake.calls[atomic_fetch_add(&fake.n_calls, 1)];

	if (req->type == MSG_DELETE_ACK)
		atomic_fetch_add(&fake.acks, 1);
	if (req->type == MSG_LEAVE)
		atomic_fetch_add(&fake.leaves, 1);
	*c = (struct late_call){.req = req, .done = done, .arg = arg};
	ck_assert_int_eq(pthread_create(&c->thread, NULL, answer_late, c), 0);
}

static void fake_set_notice(struct channel *ch, channel_notice_fn fn, void *arg)
{
	pthread_mutex_lock(&fake.lock);
	fake.notice = fn;
	fake.notice_arg = arg;
	fake.notices_set++;
	pthread_mutex_unlock(&fake.lock);
}

static int start(struct node **ret)
{
	static char run[96];
	struct errmsg e = {""};
	struct node_config nc = {
	    .master = &fake.channel,
	    .instance_key = "unit",
	    .cluster_name = "unit",
	    .run_dir = run,
	    .dram = 16 * MIB,
	};

	log_setup(LOG_LVL_WARN, false);
	snprintf(run, sizeof(run), "%s/run", base);
	fake.channel = (struct channel){.call = fake_call, .set_notice = fake_set_notice};
	pthread_mutex_init(&fake.lock, NULL);
	return node_start(&nc, ret, &e);
}

static void join_calls(void)
{
	for (unsigned i = 0; i < atomic_load(&fake.n_calls); i++)
		pthread_join(fake.calls[i].thread, NULL);
}

START_TEST(no_answer_comes_after_the_stop)
{
	struct node *n;

	ck_assert_int_eq(start(&n), 0);
	send_drop();
	while (!atomic_load(&fake.acks))
		usleep(100);
	node_stop(n);
	ck_assert_uint_eq(atomic_load(&fake.acks_answered), 1);
	ck_assert_uint_eq(atomic_load(&fake.leaves), 1);
	ck_assert_ptr_null(fake.notice);
	join_calls();
}
END_TEST

START_TEST(a_notice_comes_right_behind_the_join)
{
	struct node *n;

	fake.drop_at_join = true;
	ck_assert_int_eq(start(&n), 0);
	while (!atomic_load(&fake.acks))
		usleep(100);
	node_stop(n);
	ck_assert_uint_eq(atomic_load(&fake.acks_answered), 1);
	join_calls();
}
END_TEST

START_TEST(a_refused_node_hears_nothing_more)
{
	struct node *n;

	fake.join_status = -EEXIST;
	fake.drop_at_join = true;
	ck_assert_int_eq(start(&n), -EEXIST);
	ck_assert_uint_ge(fake.notices_set, 2);
	ck_assert_ptr_null(fake.notice);
	ck_assert_uint_eq(atomic_load(&fake.leaves), 0);
	ck_assert_uint_eq(atomic_load(&fake.acks), atomic_load(&fake.acks_answered));
	join_calls();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node_stop");
	TCase *tc = tcase_create("node_stop");
	int failed;

	strcpy(base, "/dev/shm/fluxkv-stop-XXXXXX");
	base_make(base);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, no_answer_comes_after_the_stop);
	tcase_add_test(tc, a_notice_comes_right_behind_the_join);
	tcase_add_test(tc, a_refused_node_hears_nothing_more);
	suite_add_tcase(s, tc);
	failed = run_suite(s);
	base_remove(base);
	return failed;
}
