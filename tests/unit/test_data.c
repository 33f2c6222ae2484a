/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks over real sockets, and what happens to them when the other side, or the network, does as it likes. */
#include <check.h>
#include <dirent.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/hash.h"
#include "net/data_client.h"
#include "net/data_server.h"
#include "net/data_wire.h"
#include "net/msg.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"
#include "tests/unit/wait.h"

#define SHORT_MS 200 /* a deadline that is to pass */
#define SOON_MS 3000 /* what must not take long; machines are slow */
#define TAG 77ull
#define BLOCK_MAX (64ull << 20)

static struct auth_key no_key;

/* ---- the source ---------------------------------------------------------------------------------------------- */

enum source_kind { SUMMED_FILE, FILE_TO_SUM, STREAM, SOURCE_KINDS };

static int block_fd = -1;
static uint8_t *block; /* BLOCK_MAX bytes of block_fd; any plan's block is the first of them */

static struct {
	enum source_kind kind;
	uint64_t step;	    /* of a stream */
	uint64_t fail_at;   /* a stream has an error there; 0: none */
	uint64_t false_sum; /* added to the right one */
	int open_error;
	bool lies;		 /* a stream says that more is there than the block has */
	atomic_bool shut;	 /* a stream waits, behind its first step, until it is opened */
	atomic_ullong master_ns; /* 0: not known */
	atomic_uint opens, closes, waiting;
	atomic_int last_error;
	atomic_ullong last_sum; /* 0: has none */
} source;

static uint64_t master_ns(void *arg)
{
	return atomic_load(&source.master_ns);
}

struct stream {
	uint64_t len;
};

static int stream_wait(void *arg, uint64_t have, uint64_t *ret_ready, uint64_t *ret_sum)
{
	const struct stream *st = arg;
	uint64_t ready = st->len - have < source.step ? st->len : have + source.step;

	atomic_fetch_add(&source.waiting, 1);
	while (have && atomic_load(&source.shut))
		sleep_ms(1);
	atomic_fetch_sub(&source.waiting, 1);
	if (source.fail_at && ready >= source.fail_at)
		return -EIO;
	*ret_ready = source.lies ? st->len + 1 : ready;
	*ret_sum = hash_bytes(block, st->len, 0) + source.false_sum;
	return 0;
}

static int open_block(void *arg, const struct plan *p, struct data_source *ret)
{
	struct stream *st;

	ck_assert_int_eq(ret->fd, -1);
	if (source.open_error)
		return source.open_error;
	atomic_fetch_add(&source.opens, 1);
	if (source.kind == STREAM) {
		st = malloc(sizeof(*st));
		st->len = p->len;
		ret->arg = st;
		ret->wait = stream_wait;
		ret->buf = block;
		return 0;
	}
	ret->fd = block_fd;
	ret->buf = block;
	ret->has_sum = source.kind == SUMMED_FILE;
	if (ret->has_sum)
		ret->sum = hash_bytes(block, p->len, 0) + source.false_sum;
	return 0;
}

static void close_block(void *arg, struct data_source *src, int err)
{
	if (source.kind == STREAM)
		free(src->arg);
	atomic_store(&source.last_error, err);
	atomic_store(&source.last_sum, src->has_sum ? src->sum : 0);
	atomic_fetch_add(&source.closes, 1);
}

static struct data_server *server;
static struct data_server_config server_cfg;
static char listen_on[64], address[64];

static void start_server(uint16_t port)
{
	struct errmsg e = {""};
	int r;

	snprintf(listen_on, sizeof(listen_on), "127.0.0.1:%u", port);
	server_cfg.listen = listen_on;
	server_cfg.master_ns = master_ns;
	server_cfg.open = open_block;
	server_cfg.close = close_block;
	r = data_server_start(&server_cfg, TAG, &server, &e);
	ck_assert_msg(!r, "%s", e.text);
	snprintf(address, sizeof(address), "127.0.0.1:%u", data_server_port(server));
}

static struct data_server_stats at_server(void)
{
	struct data_server_stats st;

	data_server_get_stats(server, &st);
	return st;
}

/* ---- the requester ------------------------------------------------------------------------------------------- */

static struct data_client *client;
static struct data_client_config client_cfg;
static uint8_t *target; /* BLOCK_MAX bytes */

static void start_client(void)
{
	struct errmsg e = {""};
	int r = data_client_start(&client_cfg, &client, &e);

	ck_assert_msg(!r, "%s", e.text);
}

static struct data_client_stats at_client(void)
{
	struct data_client_stats st;

	data_client_get_stats(client, &st);
	return st;
}

static struct plan plan_of(uint64_t len)
{
	struct plan p = {.get_id = len * 3 + 1,
			 .put_id = 2,
			 .alloc = 3,
			 .len = len,
			 .source_tag = TAG,
			 .expires_ns = 1000,
			 .source = MSG_SOURCE_MEM_REMOTE};

	plan_seal(&no_key, &p);
	return p;
}

static int pull_into(uint8_t *to, uint64_t len)
{
	struct plan p = plan_of(len);
	uint64_t sum = 0;
	int r = data_pull(client, address, &p, to, &sum, NULL);

	if (!r) {
		ck_assert_mem_eq(to, block, len);
		ck_assert_uint_eq(sum, hash_bytes(block, len, 0));
	}
	return r;
}

static int pull(uint64_t len)
{
	return pull_into(target, len);
}

/* ---- fixtures ------------------------------------------------------------------------------------------------ */

static unsigned count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned fds_before;

static void make_block(void)
{
	uint64_t x = 1;

	block_fd = memfd_create("block", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(block_fd, BLOCK_MAX), 0);
	block = mmap(NULL, BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, block_fd, 0);
	target = mmap(NULL, BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(block != MAP_FAILED && target != MAP_FAILED);
	for (uint64_t k = 0; k < BLOCK_MAX / 8; k++, x = x * 6364136223846793005 + 1442695040888963407)
		memcpy(block + k * 8, &x, 8);
}

static void set_up(void)
{
	ck_assert_int_eq(auth_key_load(NULL, &no_key, NULL), 0);
	make_block();
	memset(&source, 0, sizeof(source));
	source.step = 1 << 20;
	server_cfg = (struct data_server_config){0};
	client_cfg = (struct data_client_config){0};
	fds_before = count_entries("/proc/self/fd");
}

static void tear_down(void)
{
	atomic_store(&source.shut, false);
	client = data_client_free(client);
	server = data_server_stop(server);
	ck_assert_uint_eq(atomic_load(&source.opens), atomic_load(&source.closes));
	/* no thread and no descriptor is left; ThreadSanitizer has a thread of its own */
#ifndef WITH_TSAN
	WAIT_FOR(count_entries("/proc/self/task") == 3); /* with . and .. */
#endif
	WAIT_FOR(count_entries("/proc/self/fd") == fds_before);
}

static void start_both(void)
{
	start_server(0);
	start_client();
}

/* ---- what goes well ------------------------------------------------------------------------------------------ */

static const uint64_t sizes[] = {
    1,	     2, 27, 4095, 4096, 65537, 262143, 262144, 262145, (1 << 20) - 128, 1 << 20, (1 << 20) + 1, (16 << 20) - 1,
    64 << 20};

START_TEST(all_sizes)
{
	const size_t n = sizeof(sizes) / sizeof(*sizes);
	uint64_t bytes = 0;

	start_both();
	source.kind = (enum source_kind)_i;
	for (size_t k = 0; k < n; k++) {
		memset(target, 0, sizes[k] < 4096 ? sizes[k] + 1 : 4096);
		ck_assert_int_eq(pull(sizes[k]), 0);
		bytes += sizes[k];
		WAIT_FOR(at_server().pulls == k + 1);
		ck_assert_int_eq(atomic_load(&source.last_error), 0);
		/* a sum that was taken here is told to who keeps it */
		if (source.kind != STREAM)
			ck_assert_uint_eq(atomic_load(&source.last_sum), hash_bytes(block, sizes[k], 0));
	}
	ck_assert_uint_eq(at_client().pulls, n);
	ck_assert_uint_eq(at_client().bytes, bytes);
	WAIT_FOR(at_server().bytes == bytes);
	/* all over one connection */
	ck_assert_uint_eq(at_client().connects, 1);
	ck_assert_uint_eq(at_server().accepted, 1);
	ck_assert_uint_eq(at_server().connections, 1);
}
END_TEST

START_TEST(timing)
{
	struct plan p = plan_of(1 << 20);
	struct data_timing t = {0};
	uint64_t sum;

	start_both();
	ck_assert_int_eq(data_pull(client, address, &p, target, &sum, &t), 0);
	ck_assert_uint_gt(t.connect_ns, 0);
	ck_assert_uint_gt(t.wait_ns, 0);
	ck_assert_uint_gt(t.body_ns, 0);
	ck_assert_int_eq(data_pull(client, address, &p, target, &sum, &t), 0);
	ck_assert_uint_eq(t.connect_ns, 0);
}
END_TEST

#define PULLERS 8u
#define PULLS 40u

static void *puller(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;
	uint8_t *to = malloc(1 << 20);

	for (unsigned k = 0; k < PULLS; k++) {
		seed = hash_u64(seed + 1);
		ck_assert_int_eq(pull_into(to, 1 + seed % (1 << 20)), 0);
	}
	free(to);
	return NULL;
}

START_TEST(at_one_time)
{
	pthread_t t[PULLERS];

	start_both();
	source.kind = (enum source_kind)_i;
	for (size_t k = 0; k < PULLERS; k++)
		ck_assert_int_eq(pthread_create(&t[k], NULL, puller, (void *)(k + 1)), 0);
	for (size_t k = 0; k < PULLERS; k++)
		pthread_join(t[k], NULL);
	ck_assert_uint_eq(at_client().pulls, PULLERS * PULLS);
	ck_assert_uint_le(at_client().idle, 4);
	ck_assert_uint_le(at_client().connects, PULLERS * PULLS);
	WAIT_FOR(at_server().connections <= 4);
}
END_TEST

/* ---- what the source cannot give ----------------------------------------------------------------------------- */

START_TEST(not_there)
{
	start_both();
	source.open_error = -ENOENT;
	ck_assert_int_eq(pull(100), -ENOENT);
	source.open_error = -ENOMEM;
	ck_assert_int_eq(pull(100), -ENOMEM);
	source.open_error = 0;
	ck_assert_int_eq(pull(100), 0);
	ck_assert_uint_eq(at_client().missing, 1);
	ck_assert_uint_eq(at_server().missing, 2);
	ck_assert_uint_eq(at_client().connects, 1);
}
END_TEST

/* It is told where it happens, and the connection is good for the next. */
START_TEST(stream_fails)
{
	start_both();
	source.kind = STREAM;
	source.fail_at = 5 << 20;
	ck_assert_int_eq(pull(8 << 20), -EIO);
	/* the source is told behind the requester */
	WAIT_FOR(atomic_load(&source.last_error) == -EIO);
	source.fail_at = 1;
	ck_assert_int_eq(pull(8 << 20), -EIO);
	source.fail_at = 0;
	ck_assert_int_eq(pull(8 << 20), 0);
	source.lies = true;
	ck_assert_int_eq(pull(8 << 20), -EIO);
	ck_assert_uint_eq(at_client().connects, 1);
	WAIT_FOR(at_server().failed == 3);
}
END_TEST

START_TEST(file_too_short)
{
	start_both();
	/* whose sum is not taken before: what is mapped behind its end must not be touched */
	source.kind = FILE_TO_SUM;
	ck_assert_int_eq(ftruncate(block_fd, 1 << 20), 0);
	ck_assert_int_eq(pull((1 << 20) + 4096), -ECONNRESET);
	WAIT_FOR(atomic_load(&source.closes) == 1);
	ck_assert_int_eq(atomic_load(&source.last_error), -EIO);
	ck_assert_int_eq(pull(1 << 20), 0);
	ck_assert_uint_eq(at_client().connects, 2);
	ck_assert_uint_eq(at_client().broken, 1);
}
END_TEST

START_TEST(false_sum)
{
	start_both();
	source.false_sum = 1;
	source.kind = (enum source_kind)_i;
	ck_assert_int_eq(pull(100000), source.kind == FILE_TO_SUM ? 0 : -EBADMSG);
	ck_assert_uint_eq(at_client().checksum, source.kind == FILE_TO_SUM ? 0 : 1);
}
END_TEST

/* ---- plans --------------------------------------------------------------------------------------------------- */

static int show(const struct plan *p)
{
	uint64_t sum;

	return data_pull(client, address, p, target, &sum, NULL);
}

START_TEST(altered)
{
	struct plan p = plan_of(1000), q;

	start_both();
	for (size_t k = 0; k < 9; k++) {
		q = p;
		switch (k) {
		case 0:
			q.get_id++;
			break;
		case 1:
			q.put_id++;
			break;
		case 2:
			q.alloc++;
			break;
		case 3:
			q.len--;
			break;
		case 4:
			q.source_tag++;
			break;
		case 5:
			q.expires_ns++;
			break;
		case 6:
			q.block++;
			break;
		case 7:
			q.source = MSG_SOURCE_SSD_REMOTE;
			break;
		default:
			q.mac[0] ^= 1;
		}
		ck_assert_int_eq(show(&q), -EACCES);
	}
	ck_assert_int_eq(show(&p), 0);
	ck_assert_uint_eq(at_server().denied, 9);
	ck_assert_uint_eq(at_client().denied, 9);
	ck_assert_uint_eq(atomic_load(&source.opens), 1);
}
END_TEST

START_TEST(expired)
{
	struct plan p = plan_of(1000);

	start_both();
	atomic_store(&source.master_ns, 999);
	ck_assert_int_eq(show(&p), 0);
	atomic_store(&source.master_ns, 1000);
	ck_assert_int_eq(show(&p), -ESTALE);
	atomic_store(&source.master_ns, 0);
	ck_assert_int_eq(show(&p), 0);
	ck_assert_uint_eq(at_server().stale, 1);
}
END_TEST

START_TEST(another_incarnation)
{
	struct plan p = plan_of(1000);

	start_both();
	data_server_set_tag(server, TAG + 1);
	ck_assert_int_eq(show(&p), -ESTALE);
	data_server_set_tag(server, TAG);
	ck_assert_int_eq(show(&p), 0);
	/* one that has none serves nobody, not even who knows that */
	data_server_set_tag(server, 0);
	p.source_tag = 0;
	plan_seal(&no_key, &p);
	ck_assert_int_eq(show(&p), -ESTALE);
	ck_assert_uint_eq(at_client().missing, 2);
}
END_TEST

/* A connection of ours, to the server. */
static int join_server(void)
{
	int fd = raw_connect(data_server_port(server));

	ck_assert(raw_join_for(fd, &no_key, AUTH_DATA));
	return fd;
}

static bool request(int fd, const struct plan *p)
{
	uint8_t bytes[DATA_REQUEST_BYTES];

	data_encode_request(p, bytes);
	return raw_write(fd, bytes, sizeof(bytes));
}

/* What can be no plan is refused on both sides, though its MAC is right. */
START_TEST(no_plan)
{
	struct plan p = plan_of(0);
	uint8_t bytes[DATA_PART_BYTES];
	struct data_part d;
	int fd;

	start_both();
	ck_assert_int_eq(show(&p), -EINVAL);
	ck_assert_uint_eq(at_server().accepted, 0);
	fd = join_server();
	ck_assert(request(fd, &p));
	ck_assert(raw_read(fd, bytes, sizeof(bytes)));
	ck_assert_int_eq(data_decode_part(bytes, &d), 0);
	ck_assert_int_eq(d.status, -EINVAL);
	close(fd);
}
END_TEST

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static char key_path[2][128];

static void write_keys(void)
{
	for (int k = 0; k < 2; k++) {
		char bytes[32];
		FILE *f;

		snprintf(key_path[k], sizeof(key_path[k]), "%s/key%d", temp_dir, k);
		memset(bytes, 'a' + k, sizeof(bytes));
		f = fopen(key_path[k], "we");
		ck_assert_uint_eq(fwrite(bytes, 1, sizeof(bytes), f), sizeof(bytes));
		fclose(f);
		chmod(key_path[k], 0600);
	}
}

START_TEST(keys)
{
	struct errmsg e;
	struct plan p = plan_of(1000);

	write_keys();
	server_cfg.key_file = key_path[0];
	client_cfg.key_file = key_path[1];
	start_both();
	ck_assert_int_eq(show(&p), -EACCES);
	ck_assert_uint_eq(at_server().strangers, 1);
	data_client_free(client);
	client_cfg.key_file = key_path[0];
	start_client();
	/* now they talk to each other, but the plan is of those without a key */
	ck_assert_int_eq(show(&p), -EACCES);
	ck_assert_uint_eq(at_server().denied, 1);
	ck_assert_int_eq(auth_key_load(key_path[0], &no_key, &e), 0);
	plan_seal(&no_key, &p);
	ck_assert_int_eq(show(&p), 0);
}
END_TEST

START_TEST(only_the_loopback)
{
	struct data_server_config cfg = {.listen = "0.0.0.0:0"};
	struct data_server *s = NULL;
	struct errmsg e = {""};

	ck_assert_int_eq(data_server_start(&cfg, TAG, &s, &e), -EPERM);
	ck_assert_ptr_nonnull(strstr(e.text, "0.0.0.0:0"));
	write_keys();
	cfg.key_file = key_path[0];
	ck_assert_int_eq(data_server_start(&cfg, TAG, &s, &e), 0);
	data_server_stop(s);
}
END_TEST

START_TEST(port_in_use)
{
	struct data_server *s = NULL;
	struct errmsg e = {""};

	start_server(0);
	server_cfg.listen = address;
	ck_assert_int_eq(data_server_start(&server_cfg, TAG, &s, &e), -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(e.text, address));
}
END_TEST

/* ---- peers that do as they like ------------------------------------------------------------------------------ */

START_TEST(strangers)
{
	static const char http[] = "GET / HTTP/1.1\r\n\r\n";
	int fd;

	server_cfg.handshake_ms = SHORT_MS;
	start_both();
	fd = raw_connect(data_server_port(server));
	ck_assert(raw_write(fd, http, sizeof(http) - 1));
	ck_assert(raw_ends(fd, SOON_MS));
	close(fd);
	/* one of another kind of connection */
	fd = raw_connect(data_server_port(server));
	ck_assert(!raw_join_for(fd, &no_key, AUTH_RPC));
	close(fd);
	WAIT_FOR(at_server().strangers == 2);
	/* silence */
	fd = raw_connect(data_server_port(server));
	ck_assert(raw_ends(fd, SOON_MS));
	close(fd);
	WAIT_FOR(at_server().refused == 1);
	ck_assert_int_eq(pull(1000), 0);
}
END_TEST

START_TEST(many_strangers)
{
	int fd[6];

	server_cfg.max_strangers = 4;
	start_both();
	for (size_t k = 0; k < 6; k++) {
		fd[k] = raw_connect(data_server_port(server));
		WAIT_FOR(at_server().accepted == k + 1);
	}
	/* the oldest have made place, the others are still there */
	ck_assert(raw_ends(fd[0], SOON_MS));
	ck_assert(raw_ends(fd[1], SOON_MS));
	ck_assert(!raw_ends(fd[2], 50));
	ck_assert_uint_eq(at_server().refused, 2);
	ck_assert_int_eq(pull(1000), 0);
	for (size_t k = 0; k < 6; k++)
		close(fd[k]);
}
END_TEST

START_TEST(many_connections)
{
	struct plan p = plan_of(4 << 20);
	int fd[4], more;

	server_cfg.max_connections = 4;
	start_both();
	for (size_t k = 0; k < 4; k++) {
		fd[k] = join_server();
		WAIT_FOR(at_server().connections == k + 1);
	}
	/* who is at rest makes place: the one that has been for longest */
	more = join_server();
	ck_assert(raw_ends(fd[0], SOON_MS));
	close(fd[0]);
	fd[0] = more;
	/* who is at work does not */
	source.kind = STREAM;
	atomic_store(&source.shut, true);
	for (size_t k = 0; k < 4; k++)
		ck_assert(request(fd[k], &p));
	WAIT_FOR(atomic_load(&source.waiting) == 4);
	more = raw_connect(data_server_port(server));
	ck_assert(raw_ends(more, SOON_MS));
	close(more);
	ck_assert_uint_eq(at_server().refused, 1);
	atomic_store(&source.shut, false);
	for (size_t k = 0; k < 4; k++)
		close(fd[k]);
}
END_TEST

START_TEST(bad_requests)
{
	struct plan p = plan_of(1000);
	uint8_t bytes[DATA_REQUEST_BYTES];
	int fd;

	server_cfg.silence_ms = SHORT_MS;
	start_both();
	memset(bytes, 'x', sizeof(bytes));
	fd = join_server();
	ck_assert(raw_write(fd, bytes, sizeof(bytes)));
	ck_assert(raw_ends(fd, SOON_MS));
	close(fd);
	WAIT_FOR(at_server().malformed == 1);
	/* half of one, and silence; then half of one, and the end */
	data_encode_request(&p, bytes);
	for (int k = 0; k < 2; k++) {
		fd = join_server();
		ck_assert(raw_write(fd, bytes, sizeof(bytes) / 2));
		if (k)
			raw_reset(fd);
		else
			ck_assert(raw_ends(fd, SOON_MS));
		WAIT_FOR(at_server().malformed == 2 + (unsigned)k);
		if (!k)
			close(fd);
	}
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(atomic_load(&source.opens), 1);
}
END_TEST

START_TEST(nothing_asked)
{
	int fd;

	server_cfg.idle_ms = SHORT_MS;
	start_both();
	fd = join_server();
	ck_assert(!raw_ends(fd, SHORT_MS / 4));
	ck_assert(raw_ends(fd, SOON_MS));
	close(fd);
	WAIT_FOR(at_server().connections == 0);
}
END_TEST

/* Who takes nothing, or hardly anything, is left. */
START_TEST(takes_nothing)
{
	struct plan p = plan_of(64 << 20);
	char some[1024];
	int fd;

	server_cfg.silence_ms = SHORT_MS;
	server_cfg.min_rate = 1ull << 30;
	start_both();
	source.kind = _i & 1 ? STREAM : SUMMED_FILE;
	fd = join_server();
	ck_assert(request(fd, &p));
	for (unsigned k = 0; !atomic_load(&source.closes) && k < 1000; k++) {
		if (_i & 2)
			recv(fd, some, sizeof(some), MSG_DONTWAIT);
		sleep_ms(5);
	}
	ck_assert_uint_eq(atomic_load(&source.closes), 1);
	ck_assert_int_eq(atomic_load(&source.last_error), -ETIMEDOUT);
	WAIT_FOR(at_server().slow == 1);
	close(fd);
}
END_TEST

START_TEST(goes_away)
{
	struct plan p = plan_of(64 << 20);
	char some[65536];
	int fd;

	start_both();
	source.kind = (enum source_kind)_i;
	fd = join_server();
	ck_assert(request(fd, &p));
	ck_assert(raw_read(fd, some, sizeof(some)));
	raw_reset(fd);
	WAIT_FOR(at_server().broken == 1);
	ck_assert_int_eq(atomic_load(&source.last_error), -ECONNRESET);
	ck_assert_int_eq(pull(1000), 0);
}
END_TEST

/* ---- stops --------------------------------------------------------------------------------------------------- */

static void must_be_soon(uint64_t began)
{
	ck_assert_uint_lt(clock_ns() - began, SOON_MS * NS_PER_MS);
}

struct waiter {
	pthread_t thread;
	uint8_t *to;
	uint64_t len;
	int r;
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->r = pull_into(w->to, w->len);
	return NULL;
}

static void begin_pull(struct waiter *w, uint64_t len)
{
	w->len = len;
	w->to = malloc(len);
	ck_assert_int_eq(pthread_create(&w->thread, NULL, waiter_main, w), 0);
}

static int end_pull(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	free(w->to);
	return w->r;
}

START_TEST(client_stops)
{
	struct waiter w;
	uint64_t began;

	start_both();
	source.kind = STREAM;
	atomic_store(&source.shut, true);
	begin_pull(&w, 8 << 20);
	WAIT_FOR(atomic_load(&source.waiting));
	began = clock_ns();
	data_client_stop(client);
	must_be_soon(began);
	ck_assert_int_eq(end_pull(&w), -ESHUTDOWN);
	ck_assert_int_eq(pull(1000), -ESHUTDOWN);
	data_client_stop(client);
	atomic_store(&source.shut, false);
}
END_TEST

/* While one that is connected to says nothing. */
START_TEST(client_stops_early)
{
	uint16_t port;
	int fd = raw_listen(&port);
	struct waiter w;
	uint64_t began;

	start_client();
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	begin_pull(&w, 1000);
	sleep_ms(50);
	began = clock_ns();
	data_client_stop(client);
	must_be_soon(began);
	ck_assert_int_eq(end_pull(&w), -ESHUTDOWN);
	close(fd);
}
END_TEST

/* In the middle of a transfer, and with everybody else it may have. */
START_TEST(server_stops)
{
	struct plan p = plan_of(64 << 20);
	int stranger, idle, slow;
	struct waiter w;
	uint64_t began;

	server_cfg.silence_ms = server_cfg.handshake_ms = 60000;
	start_both();
	stranger = raw_connect(data_server_port(server));
	idle = join_server();
	slow = join_server();
	ck_assert(request(slow, &p));
	WAIT_FOR(atomic_load(&source.opens) == 1);
	WAIT_FOR(at_server().accepted == 3);
	begin_pull(&w, 64 << 20);
	WAIT_FOR(atomic_load(&source.opens) == 2 || at_client().pulls);
	began = clock_ns();
	server = data_server_stop(server);
	must_be_soon(began);
	/* it may have been too late for that */
	if (end_pull(&w))
		ck_assert_int_eq(w.r, -ECONNRESET);
	ck_assert(raw_ends(stranger, SOON_MS) && raw_ends(idle, SOON_MS) && raw_ends(slow, SOON_MS));
	close(stranger);
	close(idle);
	close(slow);
}
END_TEST

/* A server in a process of its own, whose stream never goes on. */
static pid_t start_far_server(void)
{
	int pipe_fd[2];
	uint16_t port = 0;
	pid_t pid;

	ck_assert_int_eq(pipe(pipe_fd), 0);
	source.kind = STREAM;
	atomic_store(&source.shut, true);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		die_with_parent();
		start_server(0);
		port = data_server_port(server);
		if (write(pipe_fd[1], &port, sizeof(port)) == sizeof(port))
			for (;;)
				pause();
		_exit(1);
	}
	ck_assert_int_eq(read(pipe_fd[0], &port, sizeof(port)), sizeof(port));
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	return pid;
}

/* Killed, or stopped by a signal: then only its silence tells. */
START_TEST(server_dies)
{
	pid_t pid = start_far_server();
	struct waiter w;
	uint64_t began;

	client_cfg.silence_ms = _i ? SHORT_MS : 60000;
	start_client();
	begin_pull(&w, 8 << 20);
	sleep_ms(50);
	began = clock_ns();
	kill(pid, _i ? SIGSTOP : SIGKILL);
	ck_assert_int_eq(end_pull(&w), _i ? -ETIMEDOUT : -ECONNRESET);
	must_be_soon(began);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(pull(1000), -ECONNREFUSED);
	ck_assert_uint_eq(at_client().unreachable, 1);
	ck_assert_uint_eq(_i ? at_client().timed_out : at_client().broken, 1);
}
END_TEST

START_TEST(server_again)
{
	uint16_t port;

	start_both();
	ck_assert_int_eq(pull(1000), 0);
	port = data_server_port(server);
	server = data_server_stop(server);
	start_server(port);
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(at_client().connects, 2);
	/* it was seen to have ended before anything was asked over it */
	ck_assert_uint_eq(at_client().replaced, 0);
}
END_TEST

/* ---- connections at rest ------------------------------------------------------------------------------------- */

START_TEST(rest_ends)
{
	client_cfg.idle_ms = SHORT_MS;
	start_both();
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(at_client().idle, 1);
	WAIT_FOR(at_client().idle == 0);
	WAIT_FOR(at_server().connections == 0);
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(at_client().connects, 2);
}
END_TEST

START_TEST(rest_is_bounded)
{
	struct data_server *s[4];
	struct waiter w[3];

	client_cfg.max_idle = 3;
	client_cfg.max_idle_each = 2;
	start_client();
	source.kind = STREAM;
	for (size_t k = 0; k < 4; k++) {
		start_server(0);
		s[k] = server;
		/* three at one time to each: as many connections */
		atomic_store(&source.shut, true);
		for (size_t n = 0; n < 3; n++)
			begin_pull(&w[n], 4 << 20);
		WAIT_FOR(atomic_load(&source.waiting) == 3);
		atomic_store(&source.shut, false);
		for (size_t n = 0; n < 3; n++)
			end_pull(&w[n]);
		ck_assert_uint_eq(at_client().idle, k ? 3 : 2);
	}
	for (size_t k = 0; k < 3; k++)
		data_server_stop(s[k]);
}
END_TEST

/* ---- sources that do as they like ---------------------------------------------------------------------------- */

/* What a source of ours does with the connections that it gets, one after the other. */
static struct {
	int listener;
	pthread_t thread;
	void (*serve)(int fd, unsigned n);
	unsigned n;
	atomic_uint served;
} raw;

static void *raw_main(void *arg)
{
	size_t left;
	int fd;

	while ((fd = accept4(raw.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		left = SIZE_MAX;
		if (raw_welcome_for(fd, &no_key, AUTH_DATA, &left))
			raw.serve(fd, raw.n++);
		close(fd);
		atomic_fetch_add(&raw.served, 1);
	}
	return NULL;
}

static void start_raw(void (*serve)(int fd, unsigned n))
{
	uint16_t port;

	raw.listener = raw_listen(&port);
	raw.serve = serve;
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	ck_assert_int_eq(pthread_create(&raw.thread, NULL, raw_main, NULL), 0);
}

static void stop_raw(void)
{
	shutdown(raw.listener, SHUT_RDWR);
	pthread_join(raw.thread, NULL);
	close(raw.listener);
}

static bool hear(int fd, struct plan *ret)
{
	uint8_t bytes[DATA_REQUEST_BYTES];

	return raw_read(fd, bytes, sizeof(bytes)) && !data_decode_request(bytes, ret);
}

static void say(int fd, enum data_kind kind, int status, uint64_t get_id, uint64_t value)
{
	uint8_t bytes[DATA_PART_BYTES];

	data_encode_part(&(struct data_part){kind, status, get_id, value}, bytes);
	raw_write(fd, bytes, sizeof(bytes));
}

/* A whole answer, whose payload has a bit turned over where flip says; UINT64_MAX: nowhere. */
static void answer_well(int fd, const struct plan *p, uint64_t flip)
{
	uint8_t *copy = malloc(p->len);

	memcpy(copy, block, p->len);
	if (flip < p->len * 8)
		copy[flip / 8] ^= (uint8_t)(1 << flip % 8);
	say(fd, DATA_BEGIN, 0, p->get_id, p->len);
	say(fd, DATA_PIECE, 0, p->get_id, p->len);
	raw_write(fd, copy, p->len);
	say(fd, DATA_END, 0, p->get_id, hash_bytes(block, p->len, 0));
	free(copy);
}

static uint64_t flip_bit;

static void serve_flipped(int fd, unsigned n)
{
	struct plan p;

	while (hear(fd, &p))
		answer_well(fd, &p, flip_bit);
}

START_TEST(bit_flipped)
{
	start_client();
	start_raw(serve_flipped);
	flip_bit = UINT64_MAX;
	ck_assert_int_eq(pull(600000), 0);
	for (size_t k = 0; k < 3; k++) {
		flip_bit = (uint64_t[]){0, 262144 * 8 + 5, 600000 * 8 - 1}[k];
		ck_assert_int_eq(pull(600000), -EBADMSG);
	}
	ck_assert_uint_eq(at_client().checksum, 3);
	client = data_client_free(client);
	stop_raw();
}
END_TEST

/* The connection ends in the moment that something is asked over it the second time. */
static void serve_once(int fd, unsigned n)
{
	struct plan p;

	if (hear(fd, &p))
		answer_well(fd, &p, UINT64_MAX);
	hear(fd, &p);
}

START_TEST(ended_meanwhile)
{
	start_client();
	start_raw(serve_once);
	for (unsigned k = 0; k < 3; k++)
		ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(at_client().connects, 3);
	ck_assert_uint_eq(at_client().replaced, 2);
	ck_assert_uint_eq(at_client().broken, 0);
	client = data_client_free(client);
	stop_raw();
}
END_TEST

/* A fresh one that ends at once, and one that ends within an answer: nothing is asked again. */
static void serve_badly(int fd, unsigned n)
{
	struct plan p;

	if (!hear(fd, &p) || !n)
		return;
	if (n == 1) {
		answer_well(fd, &p, UINT64_MAX);
		hear(fd, &p);
	}
	say(fd, DATA_BEGIN, 0, p.get_id, p.len);
	say(fd, DATA_PIECE, 0, p.get_id, p.len);
	raw_write(fd, block, p.len / 2);
}

START_TEST(ends_within)
{
	start_client();
	start_raw(serve_badly);
	ck_assert_int_eq(pull(1000), -ECONNRESET);
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_int_eq(pull(1000), -ECONNRESET);
	ck_assert_uint_eq(at_client().connects, 2);
	ck_assert_uint_eq(at_client().replaced, 0);
	client = data_client_free(client);
	stop_raw();
}
END_TEST

static atomic_int nonsense;

static void serve_nonsense(int fd, unsigned n)
{
	int which = atomic_load(&nonsense);
	struct plan p;

	if (!hear(fd, &p))
		return;
	if (which == 0) {
		raw_write(fd, block, DATA_PART_BYTES);
		return;
	}
	say(fd, DATA_BEGIN, 0, p.get_id + (which == 1), p.len + (which == 2));
	if (which == 3)
		say(fd, DATA_PIECE, 0, p.get_id, p.len + 1);
	if (which == 4)
		say(fd, DATA_END, 0, p.get_id, hash_bytes(block, 0, 0));
	hear(fd, &p);
}

START_TEST(no_answer)
{
	start_client();
	start_raw(serve_nonsense);
	for (int k = 0; k < 5; k++) {
		atomic_store(&nonsense, k);
		ck_assert_int_eq(pull(1000), -EPROTO);
	}
	ck_assert_uint_eq(at_client().malformed, 5);
	ck_assert_uint_eq(at_client().idle, 0);
	client = data_client_free(client);
	stop_raw();
}
END_TEST

/* Says something, then nothing, or hardly anything. */
static void serve_slowly(int fd, unsigned n)
{
	struct plan p;

	if (!hear(fd, &p))
		return;
	say(fd, DATA_BEGIN, 0, p.get_id, p.len);
	say(fd, DATA_PIECE, 0, p.get_id, p.len);
	for (uint64_t k = 0; n && k < p.len && raw_write(fd, block + k, 1); k++)
		sleep_ms(20);
	hear(fd, &p);
}

START_TEST(silent_source)
{
	uint64_t began;

	client_cfg.silence_ms = SHORT_MS;
	client_cfg.min_rate = 1 << 20;
	start_client();
	start_raw(serve_slowly);
	for (int k = 0; k < 2; k++) {
		began = clock_ns();
		ck_assert_int_eq(pull(100000), -ETIMEDOUT);
		must_be_soon(began);
	}
	ck_assert_uint_eq(at_client().timed_out, 2);
	client = data_client_free(client);
	stop_raw();
}
END_TEST

/* ---- addresses ----------------------------------------------------------------------------------------------- */

static atomic_int resolver; /* what it answers; 0: as the real one does */
static atomic_bool resolver_hangs;
static atomic_uint n_resolved;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret)
{
	atomic_fetch_add(&n_resolved, 1);
	while (atomic_load(&resolver_hangs))
		sleep_ms(1);
	if (atomic_load(&resolver))
		return atomic_load(&resolver);
	return __real_getaddrinfo(host, port, hints, ret);
}

START_TEST(names)
{
	struct waiter w;
	uint64_t began;

	client_cfg.connect_ms = SHORT_MS;
	start_both();
	ck_assert_int_eq(pull(1000), 0);
	/* a number does not depend on it */
	ck_assert_uint_eq(atomic_load(&n_resolved), 0);
	snprintf(address, sizeof(address), "localhost:%u", data_server_port(server));
	ck_assert_int_eq(pull(1000), 0);
	ck_assert_uint_eq(atomic_load(&n_resolved), 1);
	strcpy(address, "nobody.invalid:1");
	atomic_store(&resolver, EAI_NONAME);
	ck_assert_int_eq(pull(1000), -EHOSTUNREACH);
	strcpy(address, "no address");
	ck_assert_int_eq(pull(1000), -EINVAL);
	/* one that takes its time */
	strcpy(address, "somebody.invalid:1");
	atomic_store(&resolver_hangs, true);
	began = clock_ns();
	ck_assert_int_eq(pull(1000), -ETIMEDOUT);
	must_be_soon(began);
	begin_pull(&w, 1000);
	WAIT_FOR(atomic_load(&n_resolved) == 4);
	began = clock_ns();
	data_client_stop(client);
	must_be_soon(began);
	ck_assert(end_pull(&w) == -ESHUTDOWN || w.r == -ETIMEDOUT);
	client = data_client_free(client);
	atomic_store(&resolver_hangs, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("data");
	TCase *tc = tcase_create("data");

	tcase_add_unchecked_fixture(tc, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, all_sizes, 0, SOURCE_KINDS);
	tcase_add_test(tc, timing);
	tcase_add_loop_test(tc, at_one_time, 0, SOURCE_KINDS);
	tcase_add_test(tc, not_there);
	tcase_add_test(tc, stream_fails);
	tcase_add_test(tc, file_too_short);
	tcase_add_loop_test(tc, false_sum, 0, SOURCE_KINDS);
	tcase_add_test(tc, altered);
	tcase_add_test(tc, expired);
	tcase_add_test(tc, another_incarnation);
	tcase_add_test(tc, no_plan);
	tcase_add_test(tc, keys);
	tcase_add_test(tc, only_the_loopback);
	tcase_add_test(tc, port_in_use);
	tcase_add_test(tc, strangers);
	tcase_add_test(tc, many_strangers);
	tcase_add_test(tc, many_connections);
	tcase_add_test(tc, bad_requests);
	tcase_add_test(tc, nothing_asked);
	tcase_add_loop_test(tc, takes_nothing, 0, 4);
	tcase_add_loop_test(tc, goes_away, 0, SOURCE_KINDS);
	tcase_add_test(tc, client_stops);
	tcase_add_test(tc, client_stops_early);
	tcase_add_test(tc, server_stops);
	tcase_add_loop_test(tc, server_dies, 0, 2);
	tcase_add_test(tc, server_again);
	tcase_add_test(tc, rest_ends);
	tcase_add_test(tc, rest_is_bounded);
	tcase_add_test(tc, bit_flipped);
	tcase_add_test(tc, ended_meanwhile);
	tcase_add_test(tc, ends_within);
	tcase_add_test(tc, no_answer);
	tcase_add_test(tc, silent_source);
	tcase_add_test(tc, names);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
