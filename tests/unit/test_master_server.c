/* SPDX-License-Identifier: Apache-2.0 */
/* A master that nodes reach over the network: who is who, answers that are lost, notices, the dead. */
#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "master/server.h"
#include "net/rpc_client.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"
#include "tests/unit/wait.h"

static char path[96], master_at[64];
static struct auth_key no_key;
static struct master_server_config cfg;
static struct master_server *server;

static void start(uint16_t port)
{
	struct errmsg e = {""};
	char at[64];
	int r;

	snprintf(at, sizeof(at), "127.0.0.1:%u", port);
	cfg.rpc.listen = at;
	r = master_server_start(&cfg, &server, &e);
	ck_assert_msg(!r, "%s", e.text);
	snprintf(master_at, sizeof(master_at), "127.0.0.1:%u", master_server_port(server));
}

static void set_up(void)
{
	temp_dir_empty();
	snprintf(path, sizeof(path), "%s/catalogue.db", temp_dir);
	cfg = (struct master_server_config){
	    .master = {.catalogue = path, .auto_namespace = true, .dead_after_ns = 60 * NS_PER_SEC}};
	ck_assert_int_eq(auth_key_load(NULL, &no_key, NULL), 0);
}

static void tear_down(void)
{
	server = master_server_stop(server);
}

/* ---- a node, on a channel ------------------------------------------------------------------------------------ */

struct node {
	struct rpc_client *client;
	struct channel *ch;
	uint64_t tag;
	atomic_uint revokes; /* of names, told */
	bool deaf;	     /* acknowledges nothing */
};

struct waiter {
	sem_t sem;
	struct msg answer; /* the part of fixed size */
};

static void told(void *arg, const struct msg *m)
{
	struct waiter *w = arg;

	w->answer = *m;
	sem_post(&w->sem);
}

static void ask_later(struct node *n, struct msg *m, struct waiter *w)
{
	sem_init(&w->sem, 0, 0);
	m->tomb_tag = n->tag;
	channel_call(n->ch, m, told, w);
}

static int answered_with(struct waiter *w, struct msg *ret)
{
	while (sem_wait(&w->sem))
		;
	sem_destroy(&w->sem);
	if (ret)
		*ret = w->answer;
	return w->answer.status;
}

static int ask(struct node *n, struct msg *m, struct msg *ret)
{
	struct waiter w;

	ask_later(n, m, &w);
	return answered_with(&w, ret);
}

static void take_notice(void *arg, const struct msg *m)
{
	struct node *n = arg;
	struct msg *ack;

	if (m->type != MSG_NAME_REVOKE)
		return;
	atomic_fetch_add(&n->revokes, 1);
	ck_assert(m->u.revoke.ack);
	if (n->deaf)
		return;
	ack = msg_new(MSG_REVOKE_ACK);
	ack->u.revoke.seq = m->u.revoke.seq;
	ack->tomb_tag = n->tag;
	channel_call(n->ch, ack, NULL, NULL);
}

static void connect_node(struct node *n)
{
	const struct rpc_client_config c = {.master = master_at, .back_off_ms = 2, .max_back_off_ms = 20};
	struct errmsg e = {""};

	ck_assert_msg(!rpc_client_start(&c, &n->client, &e), "%s", e.text);
	n->ch = rpc_client_channel(n->client);
	n->ch->set_notice(n->ch, take_notice, n);
}

static struct msg *join_msg(const char *key)
{
	struct msg *m = msg_new(MSG_JOIN);

	m->u.join.capacity = 1u << 30;
	strcpy(m->u.join.instance_key, key);
	return m;
}

static int join(struct node *n, const char *key)
{
	struct msg answer;
	int r = ask(n, join_msg(key), &answer);

	if (!r)
		n->tag = answer.u.join.tomb_tag;
	return r;
}

static struct msg *named(enum msg_type type, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(type);

	m->u.name.dir = dir;
	m->u.name.attr.mode = 0755;
	ck_assert_int_eq(msg_set_name(m->u.name.name, name), 0);
	return m;
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

START_TEST(two_nodes)
{
	struct node a = {0}, b = {0}, again = {0};
	struct msg answer;
	uint64_t dir;

	start(0);
	connect_node(&a);
	connect_node(&b);
	connect_node(&again);
	ck_assert_int_eq(ask(&a, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), NULL), -ESTALE);
	ck_assert_int_eq(join(&a, "a"), 0);
	ck_assert_int_eq(join(&b, "b"), 0);
	ck_assert_uint_ne(a.tag, b.tag);
	ck_assert_int_eq(join(&again, "a"), -EBUSY);
	ck_assert_int_eq(ask(&a, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), &answer), 0);
	dir = answer.u.entry.a.id;
	ck_assert_int_eq(ask(&a, named(MSG_MKDIR, dir, "x"), NULL), 0);
	/* what one has looked up, and the other takes away, is told */
	ck_assert_int_eq(ask(&b, named(MSG_LOOKUP, dir, "x"), NULL), 0);
	ck_assert_int_eq(ask(&a, named(MSG_RMDIR, dir, "x"), NULL), 0);
	ck_assert_int_eq(atomic_load(&b.revokes), 1);
	/* one that leaves may come back, and is another one then */
	ck_assert_int_eq(ask(&a, msg_new(MSG_LEAVE), NULL), 0);
	ck_assert_int_eq(join(&again, "a"), 0);
	ck_assert_uint_ne(again.tag, a.tag);
	ck_assert_int_eq(ask(&a, named(MSG_LOOKUP, dir, "x"), NULL), -ESTALE);
	rpc_client_stop(a.client);
	rpc_client_stop(b.client);
	rpc_client_stop(again.client);
}
END_TEST

/* Both join; a makes a directory, and b has a lease on its name. */
static void know_kv(struct node *a, struct node *b)
{
	connect_node(a);
	connect_node(b);
	ck_assert_int_eq(join(a, "a"), 0);
	ck_assert_int_eq(join(b, "b"), 0);
	ck_assert_int_eq(ask(a, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), NULL), 0);
	ck_assert_int_eq(ask(b, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), NULL), 0);
}

/* One that does not acknowledge is waited for as long as its leases are good. */
START_TEST(deaf_node)
{
	struct node a = {0}, b = {.deaf = true};
	uint64_t begin;
	struct msg answer;

	cfg.master.lease_ns = 700 * NS_PER_MS;
	start(0);
	know_kv(&a, &b);
	ck_assert_int_eq(ask(&b, msg_new(MSG_HEARTBEAT), &answer), 0);
	ck_assert_uint_eq(answer.u.heartbeat.lease_ns, 700 * NS_PER_MS);
	begin = clock_ns();
	ck_assert_int_eq(ask(&a, named(MSG_RMDIR, MSG_ROOT_DIR, "kv"), NULL), 0);
	ck_assert_uint_gt(clock_ns() - begin, 600 * NS_PER_MS);
	ck_assert_int_eq(ask(&b, msg_new(MSG_HEARTBEAT), &answer), 0);
	ck_assert_uint_eq(answer.u.heartbeat.lease_ns, 0);
	rpc_client_stop(a.client);
	rpc_client_stop(b.client);
}
END_TEST

/* What waits when the master ends is not answered. */
START_TEST(ends_while_one_waits)
{
	struct node a = {0}, b = {.deaf = true};
	struct waiter w;

	start(0);
	know_kv(&a, &b);
	ask_later(&a, named(MSG_RMDIR, MSG_ROOT_DIR, "kv"), &w);
	WAIT_FOR(atomic_load(&b.revokes) == 1);
	server = master_server_stop(server);
	ck_assert_int_ne(sem_trywait(&w.sem), 0);
	rpc_client_stop(a.client);
	ck_assert_int_eq(answered_with(&w, NULL), -ESHUTDOWN);
	rpc_client_stop(b.client);
}
END_TEST

START_TEST(dead_node)
{
	struct node a = {0}, again = {0};

	cfg.master.dead_after_ns = 200 * NS_PER_MS;
	start(0);
	connect_node(&a);
	connect_node(&again);
	ck_assert_int_eq(join(&a, "a"), 0);
	ck_assert_int_eq(join(&again, "a"), -EBUSY);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
	ck_assert_int_eq(join(&again, "a"), 0);
	ck_assert_int_eq(ask(&a, msg_new(MSG_HEARTBEAT), NULL), -ESTALE);
	rpc_client_stop(a.client);
	rpc_client_stop(again.client);
}
END_TEST

/* ---- with hands ---------------------------------------------------------------------------------------------- */

static int enter(void)
{
	int fd = raw_connect(master_server_port(server));

	ck_assert(raw_join(fd, &no_key));
	return fd;
}

static void put(int fd, struct msg *m, uint64_t id, uint64_t tag)
{
	m->req_id = id;
	m->tomb_tag = tag;
	ck_assert(raw_put(fd, WIRE_REQUEST, m));
	msg_free(m);
}

/* The answer's status; its fixed part in ret. Notices that come before it are counted. */
static int get(int fd, struct msg *ret, unsigned *notices)
{
	struct wire_msg w;

	for (;;) {
		ck_assert(raw_get(fd, &w));
		if (w.kind == WIRE_ANSWER)
			break;
		*notices += 1;
		msg_free(w.m);
	}
	*ret = *w.m;
	msg_free(w.m);
	return ret->status;
}

/* The connection ends before the answer has come: asked again, it is the same, and nothing is done twice. */
START_TEST(lost_answers)
{
	struct msg answer;
	uint64_t tag, dir;
	unsigned notices = 0;
	int fd;

	start(0);
	fd = enter();
	put(fd, join_msg("a"), 77, 0);
	close(fd);
	fd = enter();
	put(fd, join_msg("a"), 77, 0);
	/* Unless the first was lost itself, it is not a second node of that key. */
	ck_assert_int_eq(get(fd, &answer, &notices), 0);
	tag = answer.u.join.tomb_tag;
	put(fd, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), 78, tag);
	ck_assert_int_eq(get(fd, &answer, &notices), 0);
	dir = answer.u.entry.a.id;
	for (int k = 0; k < 3; k++) {
		close(fd);
		fd = enter();
		put(fd, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), 78, tag);
		ck_assert_int_eq(get(fd, &answer, &notices), 0);
		ck_assert_uint_eq(answer.u.entry.a.id, dir);
		ck_assert_uint_eq(answer.req_id, 78);
	}
	put(fd, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), 79, tag);
	ck_assert_int_eq(get(fd, &answer, &notices), -EEXIST);
	close(fd);
}
END_TEST

/* Notices follow a node to where it speaks from now. */
START_TEST(notices_follow)
{
	struct node b = {0};
	struct msg answer;
	struct wire_msg told_of;
	struct waiter w;
	struct msg *ack;
	unsigned notices = 0;
	uint64_t tag;
	int old, new;

	start(0);
	connect_node(&b);
	ck_assert_int_eq(join(&b, "b"), 0);
	old = enter();
	put(old, join_msg("a"), 1, 0);
	ck_assert_int_eq(get(old, &answer, &notices), 0);
	tag = answer.u.join.tomb_tag;
	ck_assert_int_eq(ask(&b, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), NULL), 0);
	new = enter();
	put(new, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), 2, tag);
	ck_assert_int_eq(get(new, &answer, &notices), 0);
	/* the end of the one that it has left is not the end of the other */
	close(old);
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	ask_later(&b, named(MSG_RMDIR, MSG_ROOT_DIR, "kv"), &w);
	ck_assert(raw_get(new, &told_of));
	ck_assert_int_eq(told_of.kind, WIRE_NOTICE);
	ck_assert_int_eq(told_of.m->type, MSG_NAME_REVOKE);
	ck_assert_int_ne(sem_trywait(&w.sem), 0);
	ack = msg_new(MSG_REVOKE_ACK);
	ack->u.revoke.seq = told_of.m->u.revoke.seq;
	put(new, ack, 3, tag);
	ck_assert_int_eq(get(new, &answer, &notices), 0);
	ck_assert_int_eq(answered_with(&w, NULL), 0);
	msg_free(told_of.m);
	ck_assert_uint_eq(notices, 0);
	close(new);
	rpc_client_stop(b.client);
}
END_TEST

/* Directories are there again; who was a member is none until it joins. */
START_TEST(restarted)
{
	struct node a = {0};
	struct msg answer, *m;
	uint64_t tag;
	uint16_t port;

	start(0);
	port = master_server_port(server);
	connect_node(&a);
	ck_assert_int_eq(join(&a, "a"), 0);
	ck_assert_int_eq(ask(&a, named(MSG_MKDIR, MSG_ROOT_DIR, "kv"), NULL), 0);
	server = master_server_stop(server);
	start(port);
	/* one that it does not know, one that it waits for */
	tag = a.tag;
	a.tag++;
	ck_assert_int_eq(ask(&a, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), NULL), -ESTALE);
	a.tag = tag;
	ck_assert_int_eq(ask(&a, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), NULL), -EUNATCH);
	m = join_msg("a");
	m->u.join.tomb_tag = tag;
	ck_assert_int_eq(ask(&a, m, &answer), 0);
	ck_assert_uint_eq(answer.u.join.tomb_tag, tag);
	m = msg_new(MSG_INVENTORY);
	m->u.inventory.end = true;
	ck_assert_int_eq(ask(&a, m, NULL), 0);
	ck_assert_int_eq(ask(&a, named(MSG_LOOKUP, MSG_ROOT_DIR, "kv"), NULL), 0);
	rpc_client_stop(a.client);
}
END_TEST

START_TEST(cannot_start)
{
	struct errmsg e = {""};

	cfg.rpc.listen = "0.0.0.0:0";
	ck_assert_int_eq(master_server_start(&cfg, &server, &e), -EPERM);
	cfg.rpc.listen = "127.0.0.1:0";
	cfg.master.catalogue = "/nowhere/at/all";
	ck_assert_int_lt(master_server_start(&cfg, &server, &e), 0);
	ck_assert(strstr(e.text, "/nowhere/at/all"));
	ck_assert_ptr_null(server);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master server");
	TCase *tc = tcase_create("server");

	tcase_set_timeout(tc, 30);
	tcase_add_unchecked_fixture(tc, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, two_nodes);
	tcase_add_test(tc, dead_node);
	tcase_add_test(tc, deaf_node);
	tcase_add_test(tc, ends_while_one_waits);
	tcase_add_test(tc, lost_answers);
	tcase_add_test(tc, notices_follow);
	tcase_add_test(tc, restarted);
	tcase_add_test(tc, cannot_start);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
