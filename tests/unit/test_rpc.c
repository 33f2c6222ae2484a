/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over real sockets, and what happens to them when the other side, or the network, does as it likes. */
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "net/addr.h"
#include "net/rpc_client.h"
#include "net/rpc_server.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"
#include "tests/unit/wait.h"

#define SHORT_MS 150 /* a deadline that is to pass */

static struct auth_key no_key;
static struct rpc_server *server;
static struct rpc_client *client;
static struct channel *ch;

/* ---- the server's side --------------------------------------------------------------------------------------- */

#define HELD_MAX 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool awaits;	  /* was started again, and refuses all but a resume until that is done */
	size_t n_refused; /* so */
	bool hold;	  /* keep requests, do not answer */
	unsigned cut;	  /* so many requests end their connection instead of being answered */
	size_t n, n_seen; /* held; ever come */
	struct msg *held[HELD_MAX];
	uint64_t conn[HELD_MAX];
	uint64_t seen[HELD_MAX]; /* ids */
	uint64_t deadline_ns;	 /* of the last */
	unsigned closed;
} at_server; /* lock */

static void fill_answer(struct msg *m)
{
	if (m->type == MSG_LOOKUP) {
		uint64_t dir = m->u.name.dir;

		memset(&m->u, 0, sizeof(m->u));
		m->u.entry.a.id = dir + 1;
	}
}

static void answer(uint64_t conn, struct msg *m)
{
	struct wire_msg w = {.kind = WIRE_ANSWER, .m = m};

	fill_answer(m);
	ck_assert_int_eq(rpc_server_send(server, conn, &w), 0);
	msg_free(m);
}

/* Call with lock held. */
static void refuse_awaited(struct msg *m)
{
	if (m->type == MSG_INVENTORY && m->u.inventory.end)
		at_server.awaits = false;
	if (!at_server.awaits || m->type == MSG_JOIN || m->type == MSG_INVENTORY)
		return;
	m->status = -EUNATCH;
	at_server.n_refused++;
}

static void take_request(void *arg, uint64_t conn, struct msg *m, uint64_t deadline_ns)
{
	bool hold, cut;

	pthread_mutex_lock(&lock);
	refuse_awaited(m);
	hold = at_server.hold;
	cut = !hold && at_server.cut && at_server.cut--;
	at_server.deadline_ns = deadline_ns;
	at_server.seen[at_server.n_seen++ % HELD_MAX] = m->req_id;
	if (hold) {
		at_server.held[at_server.n] = m;
		at_server.conn[at_server.n++] = conn;
	}
	pthread_mutex_unlock(&lock);
	if (cut) {
		rpc_server_close(server, conn);
		msg_free(m);
	} else if (!hold) {
		answer(conn, m);
	}
}

static void take_closed(void *arg, uint64_t conn)
{
	pthread_mutex_lock(&lock);
	at_server.closed++;
	pthread_mutex_unlock(&lock);
}

static size_t held(void)
{
	size_t n;

	pthread_mutex_lock(&lock);
	n = at_server.n;
	pthread_mutex_unlock(&lock);
	return n;
}

/* Of the first that is held. */
static uint64_t held_conn(void)
{
	uint64_t conn;

	pthread_mutex_lock(&lock);
	conn = at_server.conn[0];
	pthread_mutex_unlock(&lock);
	return conn;
}

static unsigned n_closed(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = at_server.closed;
	pthread_mutex_unlock(&lock);
	return n;
}

static void set_hold(bool hold)
{
	pthread_mutex_lock(&lock);
	at_server.hold = hold;
	pthread_mutex_unlock(&lock);
}

/* Answers what is held, the last first. */
static void answer_held(void)
{
	pthread_mutex_lock(&lock);
	while (at_server.n) {
		at_server.n--;
		answer(at_server.conn[at_server.n], at_server.held[at_server.n]);
	}
	pthread_mutex_unlock(&lock);
}

static struct rpc_server_config server_cfg;
static char listen_on[64], master[64], key_path[128];

static void start_server(uint16_t port)
{
	struct errmsg e = {""};
	int r;

	snprintf(listen_on, sizeof(listen_on), "127.0.0.1:%u", port);
	server_cfg.listen = listen_on;
	server_cfg.request = take_request;
	server_cfg.closed = take_closed;
	r = rpc_server_start(&server_cfg, &server, &e);
	ck_assert_msg(!r, "%s", e.text);
}

static void stop_server(void)
{
	server = rpc_server_stop(server);
	for (size_t k = 0; k < at_server.n; k++)
		msg_free(at_server.held[k]);
	memset(&at_server, 0, sizeof(at_server));
}

static struct rpc_server_stats server_stats(void)
{
	struct rpc_server_stats st;

	rpc_server_get_stats(server, &st);
	return st;
}

/* ---- the client's side --------------------------------------------------------------------------------------- */

static struct rpc_client_config client_cfg;

static void start_client(uint16_t port)
{
	struct errmsg e = {""};
	int r;

	snprintf(master, sizeof(master), "127.0.0.1:%u", port);
	client_cfg.master = master;
	r = rpc_client_start(&client_cfg, &client, &e);
	ck_assert_msg(!r, "%s", e.text);
	ch = rpc_client_channel(client);
}

static struct rpc_client_stats client_stats(void)
{
	struct rpc_client_stats st;

	rpc_client_get_stats(client, &st);
	return st;
}

struct waiter {
	atomic_uint told;
	int status;
	uint64_t id, req_id;
	size_t n_items;
};

static void waiter_done(void *arg, const struct msg *m)
{
	struct waiter *w = arg;

	w->status = m->status;
	w->id = m->type == MSG_LOOKUP ? m->u.entry.a.id : 0;
	w->req_id = m->req_id;
	w->n_items = m->n_items;
	atomic_fetch_add(&w->told, 1);
}

static struct msg *lookup(uint64_t dir)
{
	struct msg *m = msg_new(MSG_LOOKUP);

	m->u.name.dir = dir;
	m->req_id = dir * 3;
	ck_assert_int_eq(msg_set_name(m->u.name.name, "name"), 0);
	return m;
}

static struct msg *change(void)
{
	return msg_new(MSG_PUT_RENEW);
}

static void begin(struct waiter *w, struct msg *m)
{
	*w = (struct waiter){0};
	channel_call(ch, m, waiter_done, w);
}

static void wait_end(struct waiter *w)
{
	WAIT_FOR(atomic_load(&w->told));
	ck_assert_uint_eq(atomic_load(&w->told), 1);
}

static int ask(struct msg *m)
{
	struct waiter w;

	begin(&w, m);
	wait_end(&w);
	return w.status;
}

static void set_up(void)
{
	ck_assert_int_eq(auth_key_load(NULL, &no_key, NULL), 0);
	server_cfg = (struct rpc_server_config){0};
	client_cfg = (struct rpc_client_config){.back_off_ms = 2, .max_back_off_ms = 20};
}

static void tear_down(void)
{
	client = rpc_client_stop(client);
	if (server)
		stop_server();
}

static void start_both(void)
{
	start_server(0);
	start_client(rpc_server_port(server));
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

#define CALLS (RPC_WINDOW - 12)

START_TEST(answers_in_any_order)
{
	static struct waiter w[CALLS];

	start_both();
	set_hold(true);
	for (size_t k = 0; k < CALLS; k++)
		begin(&w[k], lookup(k + 1));
	WAIT_FOR(held() == CALLS);
	ck_assert_uint_eq(atomic_load(&w[0].told), 0);
	/* in the order of the calls, and the sender's time with them */
	pthread_mutex_lock(&lock);
	for (size_t k = 1; k < CALLS; k++)
		ck_assert_uint_eq(at_server.seen[k], at_server.seen[k - 1] + 1);
	ck_assert_uint_gt(at_server.deadline_ns, clock_ns() + 20 * NS_PER_SEC);
	ck_assert_uint_le(at_server.deadline_ns, clock_ns() + 30 * NS_PER_SEC);
	pthread_mutex_unlock(&lock);
	answer_held();
	for (size_t k = 0; k < CALLS; k++) {
		wait_end(&w[k]);
		ck_assert_int_eq(w[k].status, 0);
		ck_assert_uint_eq(w[k].id, k + 2);
		ck_assert_uint_eq(w[k].req_id, (k + 1) * 3);
	}
}
END_TEST

static size_t refused(void)
{
	size_t n;

	pthread_mutex_lock(&lock);
	n = at_server.n_refused;
	pthread_mutex_unlock(&lock);
	return n;
}

static void count_unattached(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

static struct msg *resume_msg(enum msg_type type, bool end)
{
	struct msg *m = msg_new(type);

	if (type == MSG_JOIN) {
		m->u.join.tomb_tag = 7;
		strcpy(m->u.join.instance_key, "n");
	} else {
		m->u.inventory.end = end;
	}
	return m;
}

/* A master that was started again refuses: the node is told once, and what it calls waits for the end of its resume. */
START_TEST(a_master_that_waits_for_the_node)
{
	static struct waiter w[20];
	struct waiter beat;
	atomic_uint told = 0;
	size_t n;

	client_cfg.unattached = count_unattached;
	client_cfg.arg = &told;
	at_server.awaits = true;
	start_both();
	for (size_t k = 0; k < 10; k++)
		begin(&w[k], k % 2 ? change() : lookup(k + 1));
	WAIT_FOR(refused());
	WAIT_FOR(atomic_load(&told) == 1);
	sleep_ms(50);
	n = refused();
	for (size_t k = 10; k < 20; k++)
		begin(&w[k], k % 2 ? change() : lookup(k + 1));
	/* a heartbeat goes out, and its answer is the caller's */
	begin(&beat, msg_new(MSG_HEARTBEAT));
	wait_end(&beat);
	ck_assert_int_eq(beat.status, -EUNATCH);
	ck_assert_int_eq(ask(resume_msg(MSG_JOIN, false)), 0);
	ck_assert_int_eq(ask(resume_msg(MSG_INVENTORY, false)), 0);
	sleep_ms(100);
	ck_assert_uint_eq(refused(), n + 1);
	ck_assert_uint_eq(atomic_load(&told), 1);
	for (size_t k = 0; k < 20; k++)
		ck_assert_uint_eq(atomic_load(&w[k].told), 0);
	ck_assert_int_eq(ask(resume_msg(MSG_INVENTORY, true)), 0);
	for (size_t k = 0; k < 20; k++) {
		wait_end(&w[k]);
		ck_assert_int_eq(w[k].status, 0);
	}
	/* the last twenty came in the order of their calls, with the numbers they had */
	pthread_mutex_lock(&lock);
	for (size_t k = at_server.n_seen - 19; k < at_server.n_seen; k++)
		ck_assert_uint_gt(at_server.seen[k], at_server.seen[k - 1]);
	at_server.awaits = true;
	pthread_mutex_unlock(&lock);
	/* another time */
	begin(&w[0], change());
	WAIT_FOR(atomic_load(&told) == 2);
	ck_assert_int_eq(ask(resume_msg(MSG_INVENTORY, true)), 0);
	wait_end(&w[0]);
	ck_assert_int_eq(w[0].status, 0);
}
END_TEST

/* A master has to remember no more than that. */
START_TEST(window)
{
	static struct waiter w[2 * RPC_WINDOW];

	start_both();
	set_hold(true);
	for (size_t k = 0; k < 2 * RPC_WINDOW; k++)
		begin(&w[k], change());
	WAIT_FOR(held() == RPC_WINDOW);
	sleep_ms(50);
	ck_assert_uint_eq(held(), RPC_WINDOW);
	/* those that have been sent go before the others also over the next connection */
	rpc_server_close(server, held_conn());
	WAIT_FOR(held() == 2 * RPC_WINDOW);
	pthread_mutex_lock(&lock);
	for (size_t k = 0; k < RPC_WINDOW; k++)
		ck_assert_uint_eq(at_server.seen[k], at_server.seen[RPC_WINDOW + k]);
	pthread_mutex_unlock(&lock);
	answer_held();
	WAIT_FOR(held() == RPC_WINDOW);
	answer_held();
	for (size_t k = 0; k < 2 * RPC_WINDOW; k++)
		wait_end(&w[k]);
}
END_TEST

/* What others wait for waits for no answer of the rest, and has a window of its own. */
START_TEST(what_goes_first)
{
	static struct waiter w[RPC_WINDOW + 8], first[RPC_BEYOND + 8];

	start_both();
	set_hold(true);
	for (size_t k = 0; k < RPC_WINDOW + 8; k++)
		begin(&w[k], change());
	WAIT_FOR(held() == RPC_WINDOW);
	for (size_t k = 0; k < RPC_BEYOND + 8; k++)
		begin(&first[k], msg_new(k % 2 ? MSG_REVOKE_ACK : MSG_HEARTBEAT));
	WAIT_FOR(held() == RPC_WINDOW + RPC_BEYOND);
	sleep_ms(50);
	ck_assert_uint_eq(held(), RPC_WINDOW + RPC_BEYOND);
	/* over the next connection as well */
	rpc_server_close(server, held_conn());
	WAIT_FOR(held() == 2 * (RPC_WINDOW + RPC_BEYOND));
	answer_held();
	WAIT_FOR(held() == 16);
	answer_held();
	for (size_t k = 0; k < RPC_WINDOW + 8; k++)
		wait_end(&w[k]);
	for (size_t k = 0; k < RPC_BEYOND + 8; k++)
		wait_end(&first[k]);
}
END_TEST

START_TEST(long_messages)
{
	struct msg *m = msg_new(MSG_DELETE_ACK);
	struct waiter w;

	start_both();
	ck_assert_int_eq(msg_alloc_items(m, MSG_MAX_ITEMS), 0);
	for (size_t k = 0; k < m->n_items; k++)
		m->items[k].put_id = UINT64_MAX - k;
	begin(&w, m);
	wait_end(&w);
	ck_assert_int_eq(w.status, 0);
	ck_assert_uint_eq(w.n_items, MSG_MAX_ITEMS);
}
END_TEST

/* What cannot be sent is an error at once, and of no other call. */
START_TEST(cannot_be_sent)
{
	struct msg *m = lookup(1);

	start_both();
	memset(m->u.name.name, 'x', sizeof(m->u.name.name));
	ck_assert_int_eq(ask(m), -EINVAL);
	ck_assert_int_eq(ask(lookup(1)), 0);
	ck_assert_uint_eq(client_stats().breaks, 0);
}
END_TEST

static atomic_uint n_notices;
static uint64_t last_seq;

static void take_notice(void *arg, const struct msg *m)
{
	ck_assert_uint_gt(m->u.revoke.seq, last_seq);
	last_seq = m->u.revoke.seq;
	atomic_fetch_add((atomic_uint *)arg, 1);
}

static void send_notices(uint64_t conn, uint64_t first, uint64_t n)
{
	struct msg *m = msg_new(MSG_NAME_REVOKE);
	struct wire_msg w = {.kind = WIRE_NOTICE, .m = m};

	for (uint64_t k = 0; k < n; k++) {
		m->u.revoke.seq = first + k;
		ck_assert_int_eq(rpc_server_send(server, conn, &w), 0);
	}
	msg_free(m);
}

START_TEST(notices)
{
	struct waiter w;
	uint64_t conn;

	start_both();
	ch->set_notice(ch, take_notice, &n_notices);
	set_hold(true);
	begin(&w, lookup(1));
	WAIT_FOR(held() == 1);
	conn = held_conn();
	send_notices(conn, 1, 500);
	WAIT_FOR(atomic_load(&n_notices) == 500);
	ch->set_notice(ch, NULL, NULL);
	send_notices(conn, 501, 500);
	answer_held();
	wait_end(&w);
	ck_assert_uint_eq(atomic_load(&n_notices), 500);
}
END_TEST

/* ---- breaks -------------------------------------------------------------------------------------------------- */

START_TEST(asked_again)
{
	struct waiter w[3];

	start_both();
	at_server.cut = 7;
	for (size_t k = 0; k < 3; k++)
		begin(&w[k], change());
	for (size_t k = 0; k < 3; k++) {
		wait_end(&w[k]);
		ck_assert_int_eq(w[k].status, 0);
	}
	ck_assert_uint_ge(client_stats().resent, 3);
	ck_assert_uint_ge(client_stats().breaks, 3);
	/* always under the ids they had */
	pthread_mutex_lock(&lock);
	for (size_t k = 0; k < at_server.n_seen; k++)
		ck_assert_uint_lt(at_server.seen[k] - at_server.seen[0], 3);
	pthread_mutex_unlock(&lock);
	WAIT_FOR(n_closed() >= 3);
}
END_TEST

static uint16_t unused_port(void)
{
	uint16_t port;

	close(raw_listen(&port));
	return port;
}

START_TEST(no_master)
{
	uint16_t port = unused_port();
	uint64_t begun = clock_ns();

	client_cfg.timeout_ms = SHORT_MS;
	start_client(port);
	ck_assert_int_eq(ask(change()), -ETIMEDOUT);
	ck_assert_uint_ge(clock_ns() - begun, SHORT_MS * NS_PER_MS);
	ck_assert_int_eq(ask(lookup(1)), -ETIMEDOUT);
	ck_assert_int_eq(client_stats().error, -ECONNREFUSED);
	/* and when it is there, it is found */
	start_server(port);
	WAIT_FOR(client_stats().up);
	ck_assert_int_eq(ask(change()), 0);
	ck_assert_int_eq(client_stats().error, 0);
}
END_TEST

/* Of what may have happened nobody says that it has not. */
START_TEST(unknown_is_not_an_error)
{
	struct waiter changes, reads;

	client_cfg.timeout_ms = SHORT_MS;
	start_both();
	set_hold(true);
	begin(&changes, change());
	begin(&reads, lookup(1));
	wait_end(&reads);
	ck_assert_int_eq(reads.status, -ETIMEDOUT);
	sleep_ms(2 * SHORT_MS);
	ck_assert_uint_eq(atomic_load(&changes.told), 0);
	/* nor when the connection is lost meanwhile */
	rpc_server_close(server, held_conn());
	WAIT_FOR(held() == 3);
	ck_assert_uint_eq(atomic_load(&changes.told), 0);
	answer_held();
	wait_end(&changes);
	ck_assert_int_eq(changes.status, 0);
	ck_assert_uint_eq(atomic_load(&reads.told), 1);
}
END_TEST

START_TEST(stopped)
{
	struct waiter w[2];

	start_both();
	set_hold(true);
	begin(&w[0], change());
	WAIT_FOR(held() == 1);
	begin(&w[1], lookup(1));
	client = rpc_client_stop(client);
	for (size_t k = 0; k < 2; k++) {
		ck_assert_uint_eq(atomic_load(&w[k].told), 1);
		ck_assert_int_eq(w[k].status, -ESHUTDOWN);
	}
}
END_TEST

START_TEST(silent_master)
{
	struct waiter w;

	client_cfg.silence_ms = SHORT_MS;
	start_both();
	set_hold(true);
	begin(&w, change());
	WAIT_FOR(held() == 2);
	answer_held();
	wait_end(&w);
	ck_assert_uint_ge(client_stats().breaks, 1);
	/* where nothing is due, silence is nothing */
	set_hold(false);
	WAIT_FOR(client_stats().up);
	uint64_t breaks = client_stats().breaks;

	sleep_ms(3 * SHORT_MS);
	ck_assert_uint_eq(client_stats().breaks, breaks);
}
END_TEST

/* ---- a master that misbehaves -------------------------------------------------------------------------------- */

struct bad_master {
	pthread_t thread;
	int listener;
	size_t left;	      /* bytes that it sends over a connection before it resets it */
	size_t longest;	      /* what it would have sent */
	unsigned connections; /* so far */
	bool dribbles;
	int wrong; /* so many answers are wrong, each in another way */
};

static void dribble(int fd, const uint8_t *bytes, size_t len)
{
	for (size_t k = 0; k < len; k++) {
		raw_write(fd, bytes + k, 1);
		if (k % 8 == 0)
			sleep_ms(1);
	}
}

/* Wrong in its n-th way. */
static struct msg *wrong_answer(const struct msg *req, int n)
{
	struct msg *m = msg_new(n == 1 ? MSG_PUT_REVOKE : MSG_DELETE_ACK);

	m->req_id = req->req_id;
	ck_assert_int_eq(msg_alloc_items(m, n == 2 ? 1 : n == 3 ? 3 : 0), 0);
	return m;
}

static bool serve_one(struct bad_master *b, int fd)
{
	struct wire_msg w, out = {.kind = WIRE_ANSWER};
	struct buf bytes = {0};
	size_t left = b->left, n;
	bool whole = false;

	if (!raw_welcome(fd, &no_key, &left) || !raw_get(fd, &w))
		return false;
	out.m = b->wrong ? wrong_answer(w.m, b->wrong--) : w.m;
	ck_assert_int_eq(wire_encode(&out, &bytes), 0);
	b->longest = AUTH_CHALLENGE_BYTES + AUTH_CONFIRM_BYTES + bytes.len;
	n = bytes.len < left ? bytes.len : left;
	if (b->dribbles)
		dribble(fd, bytes.data, n);
	else
		raw_write(fd, bytes.data, n);
	whole = n == bytes.len && out.m == w.m;
	if (out.m != w.m)
		msg_free(out.m);
	msg_free(w.m);
	buf_free(&bytes);
	return whole;
}

/* Each connection gets one byte further, until one has been served. */
static void *bad_master_main(void *arg)
{
	struct bad_master *b = arg;
	bool served = false;

	while (!served) {
		int fd = raw_accept(b->listener);

		b->connections++;
		served = serve_one(b, fd);
		if (served)
			raw_ends(fd, 2000);
		raw_reset(fd);
		b->left++;
	}
	return NULL;
}

static void bad_master_start(struct bad_master *b)
{
	uint16_t port;

	b->listener = raw_listen(&port);
	ck_assert_int_eq(pthread_create(&b->thread, NULL, bad_master_main, b), 0);
	start_client(port);
}

static void bad_master_end(struct bad_master *b)
{
	client = rpc_client_stop(client);
	pthread_join(b->thread, NULL);
	close(b->listener);
}

START_TEST(reset_at_every_byte)
{
	struct bad_master b = {0};
	struct waiter w;

	client_cfg.back_off_ms = client_cfg.max_back_off_ms = 1;
	bad_master_start(&b);
	begin(&w, change());
	wait_end(&w);
	ck_assert_int_eq(w.status, 0);
	bad_master_end(&b);
	ck_assert_uint_ge(b.connections, b.longest);
}
END_TEST

START_TEST(one_byte_at_a_time)
{
	struct bad_master b = {.left = 1000, .dribbles = true};
	struct waiter w;

	bad_master_start(&b);
	begin(&w, change());
	wait_end(&w);
	ck_assert_int_eq(w.status, 0);
	bad_master_end(&b);
	ck_assert_uint_eq(b.connections, 1);
}
END_TEST

START_TEST(wrong_answers)
{
	struct bad_master b = {.left = 1000, .wrong = 4};
	struct msg *m = msg_new(MSG_DELETE_ACK);
	struct waiter w;

	ck_assert_int_eq(msg_alloc_items(m, 2), 0);
	bad_master_start(&b);
	begin(&w, m);
	wait_end(&w);
	ck_assert_int_eq(w.status, 0);
	ck_assert_uint_eq(w.n_items, 2);
	bad_master_end(&b);
	ck_assert_uint_eq(b.connections, 5);
}
END_TEST

/* ---- who is not wanted --------------------------------------------------------------------------------------- */

static void make_key(void)
{
	FILE *f;

	snprintf(key_path, sizeof(key_path), "%s/key", temp_dir);
	f = fopen(key_path, "we");
	ck_assert_ptr_nonnull(f);
	fputs("a key of at least thirty-two bytes, that is", f);
	fclose(f);
	ck_assert_int_eq(chmod(key_path, 0600), 0);
}

START_TEST(keys)
{
	make_key();
	server_cfg.key_file = client_cfg.key_file = key_path;
	start_both();
	ck_assert_int_eq(ask(lookup(1)), 0);
	client = rpc_client_stop(client);
	client_cfg.key_file = NULL;
	start_client(rpc_server_port(server));
	WAIT_FOR(client_stats().error == -EACCES);
	ck_assert(!client_stats().up);
	WAIT_FOR(server_stats().strangers >= 1);
	ck_assert_uint_eq(server_stats().requests, 1);
}
END_TEST

/* Whoever it is, the others do not notice. */
START_TEST(strangers)
{
	static const struct {
		const char *say;
		size_t len;
	} t[] = {{"GET / HTTP/1.1\r\n\r\n", 18}, {"FKVA\2", 5}, {"\0", 1}};
	int fd;

	start_both();
	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
		fd = raw_connect(rpc_server_port(server));
		raw_write(fd, t[k].say, t[k].len);
		ck_assert(raw_ends(fd, 2000));
		close(fd);
		ck_assert_int_eq(ask(lookup(k)), 0);
	}
	WAIT_FOR(server_stats().strangers == 3);
	ck_assert_uint_eq(client_stats().breaks, 0);
}
END_TEST

START_TEST(slow_handshakes)
{
	int idle, slow;

	server_cfg.handshake_ms = SHORT_MS;
	start_both();
	idle = raw_connect(rpc_server_port(server));
	slow = raw_connect(rpc_server_port(server));
	for (int k = 0; k < 5; k++) {
		raw_write(slow, &"FKVA\1"[k], 1);
		sleep_ms(SHORT_MS / 10);
	}
	ck_assert(raw_ends(idle, 2000));
	ck_assert(raw_ends(slow, 2000));
	close(idle);
	close(slow);
	WAIT_FOR(server_stats().refused == 2);
	/* what has proved itself may be idle */
	ck_assert_int_eq(ask(lookup(1)), 0);
	sleep_ms(2 * SHORT_MS);
	ck_assert_int_eq(ask(lookup(1)), 0);
	ck_assert_uint_eq(client_stats().breaks, 0);
}
END_TEST

/* However many stand at the door, who has the key gets in. */
START_TEST(crowd)
{
	int fds[40];

	server_cfg.max_strangers = 8;
	server_cfg.max_connections = 16;
	server_cfg.handshake_ms = 60000;
	start_server(0);
	for (size_t k = 0; k < 40; k++)
		fds[k] = raw_connect(rpc_server_port(server));
	start_client(rpc_server_port(server));
	ck_assert_int_eq(ask(lookup(1)), 0);
	WAIT_FOR(server_stats().refused >= 32);
	for (size_t k = 0; k < 40; k++)
		close(fds[k]);
}
END_TEST

START_TEST(full_house)
{
	int a, b, c;

	server_cfg.max_connections = 2;
	start_server(0);
	a = raw_connect(rpc_server_port(server));
	b = raw_connect(rpc_server_port(server));
	ck_assert(raw_join(a, &no_key));
	ck_assert(raw_join(b, &no_key));
	c = raw_connect(rpc_server_port(server));
	ck_assert(raw_ends(c, 2000));
	close(c);
	close(a);
	WAIT_FOR(server_stats().connections == 1);
	start_client(rpc_server_port(server));
	ck_assert_int_eq(ask(lookup(1)), 0);
	close(b);
}
END_TEST

/* Nor do they keep anybody out by being as many as there are places for. */
START_TEST(crowd_in_a_full_house)
{
	int known, idle;

	server_cfg.max_connections = 2;
	server_cfg.handshake_ms = 60000;
	start_server(0);
	known = raw_connect(rpc_server_port(server));
	ck_assert(raw_join(known, &no_key));
	idle = raw_connect(rpc_server_port(server));
	start_client(rpc_server_port(server));
	ck_assert_int_eq(ask(lookup(1)), 0);
	ck_assert(raw_ends(idle, 2000));
	ck_assert_uint_eq(server_stats().connections, 2);
	close(idle);
	close(known);
}
END_TEST

/* A member that is out of its mind. */
static void check_malformed(const void *bytes, size_t len)
{
	uint64_t before = server_stats().malformed;
	int fd = raw_connect(rpc_server_port(server));

	ck_assert(raw_join(fd, &no_key));
	raw_write(fd, bytes, len);
	ck_assert(raw_ends(fd, 2000));
	close(fd);
	WAIT_FOR(server_stats().malformed == before + 1);
}

START_TEST(malformed)
{
	struct msg *m = change();
	struct wire_msg w = {.kind = WIRE_ANSWER, .m = m};
	struct buf b = {0};

	start_both();
	check_malformed("\0\0\0\0", 4);
	check_malformed("\1\0\x10\0", 4);
	check_malformed("\xff\xff\xff\xff", 4);
	check_malformed("\4\0\0\0abcd", 8);
	m->req_id = 1;
	ck_assert_int_eq(wire_encode(&w, &b), 0);
	check_malformed(b.data, b.len);
	buf_free(&b);
	msg_free(m);
	ck_assert_int_eq(ask(lookup(1)), 0);
	ck_assert_uint_eq(client_stats().breaks, 0);
	ck_assert_uint_eq(server_stats().requests, 1);
}
END_TEST

static void put_requests(int fd, unsigned n, enum msg_type type)
{
	struct msg *m = msg_new(type);

	if (type == MSG_DELETE_ACK)
		ck_assert_int_eq(msg_alloc_items(m, 10000), 0);
	for (size_t k = 0; k < m->n_items; k++)
		m->items[k].put_id = UINT64_MAX;
	for (unsigned k = 0; k < n; k++) {
		m->req_id = k + 1;
		if (!raw_put(fd, WIRE_REQUEST, m))
			break;
	}
	msg_free(m);
}

START_TEST(does_not_read)
{
	int fd;

	server_cfg.backlog = 1 << 20;
	start_both();
	fd = raw_connect(rpc_server_port(server));
	ck_assert(raw_join(fd, &no_key));
	/* more than the sockets' own buffers and the backlog can hold */
	put_requests(fd, 400, MSG_DELETE_ACK);
	WAIT_FOR(server_stats().slow == 1);
	close(fd);
	ck_assert_int_eq(ask(lookup(1)), 0);
}
END_TEST

START_TEST(asks_too_much)
{
	struct wire_msg w;
	int fd;

	server_cfg.max_requests = 4;
	start_server(0);
	set_hold(true);
	fd = raw_connect(rpc_server_port(server));
	ck_assert(raw_join(fd, &no_key));
	put_requests(fd, 10, MSG_PUT_RENEW);
	WAIT_FOR(held() == 4);
	sleep_ms(50);
	ck_assert_uint_eq(held(), 4);
	for (unsigned k = 0; k < 10; k++) {
		WAIT_FOR(held() >= 1);
		pthread_mutex_lock(&lock);
		at_server.n--;
		answer(at_server.conn[at_server.n], at_server.held[at_server.n]);
		pthread_mutex_unlock(&lock);
		ck_assert(raw_get(fd, &w));
		msg_free(w.m);
		ck_assert_uint_le(held(), 4);
	}
	close(fd);
}
END_TEST

/* ---- starting ------------------------------------------------------------------------------------------------ */

START_TEST(bad_starts)
{
	struct rpc_server_config cfg = {.request = take_request, .closed = take_closed};
	struct rpc_client_config bad_client = {.master = "nowhere"};
	struct rpc_server *s;
	struct rpc_client *c;
	struct errmsg e = {""};
	char taken[64];

	start_server(0);
	snprintf(taken, sizeof(taken), "127.0.0.1:%u", rpc_server_port(server));
	cfg.listen = taken;
	ck_assert_int_eq(rpc_server_start(&cfg, &s, &e), -EADDRINUSE);
	ck_assert_msg(strstr(e.text, taken), "%s", e.text);
	cfg.listen = "0.0.0.0:0";
	ck_assert_int_eq(rpc_server_start(&cfg, &s, &e), -EPERM);
	ck_assert_msg(strstr(e.text, "cluster_key_file"), "%s", e.text);
	cfg.listen = "[::]:0";
	ck_assert_int_eq(rpc_server_start(&cfg, &s, &e), -EPERM);
	cfg.listen = "127.0.0.1";
	ck_assert_int_eq(rpc_server_start(&cfg, &s, &e), -EINVAL);
	ck_assert_int_eq(rpc_client_start(&bad_client, &c, &e), -EINVAL);
	make_key();
	cfg.key_file = key_path;
	cfg.listen = "0.0.0.0:0";
	ck_assert_int_eq(rpc_server_start(&cfg, &s, &e), 0);
	rpc_server_stop(s);
}
END_TEST

START_TEST(addresses)
{
	static const struct {
		const char *text, *host, *port;
	} t[] = {
	    {"127.0.0.1:7", "127.0.0.1", "7"},
	    {"a.b:65535", "a.b", "65535"},
	    {"[::1]:80", "::1", "80"},
	    {"a", NULL, NULL},
	    {"a:", NULL, NULL},
	    {":80", NULL, NULL},
	    {"[]:80", NULL, NULL},
	    {"[::1:80", NULL, NULL},
	    {"::1:80", NULL, NULL},
	    {"a:65536", NULL, NULL},
	    {"a:-1", NULL, NULL},
	    {"a:8 ", NULL, NULL},
	    {"a:999999", NULL, NULL},
	    {"", NULL, NULL},
	};
	struct sockaddr_storage at;
	struct errmsg e;
	struct addr a;

	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
		ck_assert_msg(addr_parse(t[k].text, &a, &e) == (t[k].host ? 0 : -EINVAL), "%s", t[k].text);
		if (!t[k].host)
			continue;
		ck_assert_str_eq(a.host, t[k].host);
		ck_assert_str_eq(a.port, t[k].port);
	}
	ck_assert_int_eq(addr_parse_number("localhost:1", &at, &e), -EINVAL);
	ck_assert_int_eq(addr_parse_number("127.9.8.7:1", &at, &e), 0);
	ck_assert(addr_is_loopback(&at));
	ck_assert_int_eq(addr_parse_number("128.0.0.1:1", &at, &e), 0);
	ck_assert(!addr_is_loopback(&at));
	ck_assert_int_eq(addr_parse_number("[::1]:1", &at, &e), 0);
	ck_assert(addr_is_loopback(&at));
	ck_assert_int_eq(addr_parse_number("[::2]:1", &at, &e), 0);
	ck_assert(!addr_is_loopback(&at));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc");
	TCase *tc = tcase_create("rpc");

	tcase_set_timeout(tc, 30);
	tcase_add_unchecked_fixture(tc, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, answers_in_any_order);
	tcase_add_test(tc, a_master_that_waits_for_the_node);
	tcase_add_test(tc, window);
	tcase_add_test(tc, what_goes_first);
	tcase_add_test(tc, long_messages);
	tcase_add_test(tc, cannot_be_sent);
	tcase_add_test(tc, notices);
	tcase_add_test(tc, asked_again);
	tcase_add_test(tc, no_master);
	tcase_add_test(tc, unknown_is_not_an_error);
	tcase_add_test(tc, stopped);
	tcase_add_test(tc, silent_master);
	tcase_add_test(tc, reset_at_every_byte);
	tcase_add_test(tc, one_byte_at_a_time);
	tcase_add_test(tc, wrong_answers);
	tcase_add_test(tc, keys);
	tcase_add_test(tc, strangers);
	tcase_add_test(tc, slow_handshakes);
	tcase_add_test(tc, crowd);
	tcase_add_test(tc, full_house);
	tcase_add_test(tc, crowd_in_a_full_house);
	tcase_add_test(tc, malformed);
	tcase_add_test(tc, does_not_read);
	tcase_add_test(tc, asks_too_much);
	tcase_add_test(tc, bad_starts);
	tcase_add_test(tc, addresses);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
