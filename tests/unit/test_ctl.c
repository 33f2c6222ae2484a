/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket's server over a node that is made here, so that answers can be kept back: what comes after the
 * end of a connection, or of the server, must find nobody and leak nothing.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "fuse/ctl.h"
#include "net/ctl.h"
#include "net/json.h"
#include "store/put.h"
#include "tests/unit/run.h"

/* ---- a node: the root holds "ns", which holds FILES files, a private version "w", and "slow", which nobody answers
 * --- */

#define NS_DIR 2ull
#define FILES 1300ull /* three pages of a listing */
#define FIRST_FILE 100ull
#define PRIVATE (NODE_PRIVATE_ID | 7)

struct late {
	node_entry_fn entry;
	node_dir_fn dir;
	void *arg;
};

static struct {
	pthread_mutex_t lock;
	struct late kept[64]; /* lock */
	unsigned n_kept;      /* lock */
	bool slow_dir;	      /* lock: pages are kept back as well */
	_Atomic int refs;     /* of the private version */
	_Atomic int dirs;     /* open node_dirs */
	_Atomic uint32_t mask;
	_Atomic uint64_t evicted, prefetched, removed;
	struct msg_namespace made; /* lock */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(struct late l)
{
	pthread_mutex_lock(&fake.lock);
	ck_assert_uint_lt(fake.n_kept, 64);
	fake.kept[fake.n_kept++] = l;
	pthread_mutex_unlock(&fake.lock);
}

static void wait_kept(unsigned n)
{
	for (unsigned have = 0; have < n;) {
		pthread_mutex_lock(&fake.lock);
		have = fake.n_kept;
		pthread_mutex_unlock(&fake.lock);
		usleep(1000);
	}
}

static struct msg_attr file_attr(uint64_t id)
{
	return (struct msg_attr){.id = id, .size = id, .kind = MSG_KIND_FILE, .mode = S_IFREG | 0644, .mtime_ns = 5};
}

static struct msg_attr dir_attr(uint64_t id)
{
	return (struct msg_attr){.id = id, .kind = MSG_KIND_DIR, .mode = S_IFDIR | 0755};
}

/* Answers all that was kept back, as a slow master would. */
static void answer_kept(void)
{
	struct node_entry e = {.attr = file_attr(PRIVATE)};

	pthread_mutex_lock(&fake.lock);
	for (unsigned i = 0; i < fake.n_kept; i++) {
		struct late l = fake.kept[i];

		if (l.dir) {
			l.dir(l.arg, -EIO, NULL, 0, false);
			continue;
		}
		atomic_fetch_add(&fake.refs, 1);
		e.put = (struct put *)&fake;
		l.entry(l.arg, 0, &e);
	}
	fake.n_kept = 0;
	pthread_mutex_unlock(&fake.lock);
}

void node_lookup(struct node *n, uint64_t dir, const char *name, node_entry_fn fn, void *arg)
{
	struct node_entry e = {.attr = dir_attr(NS_DIR)};
	unsigned long i;

	if (dir == MSG_ROOT_DIR && !strcmp(name, "ns")) {
		fn(arg, 0, &e);
	} else if (dir == NS_DIR && !strcmp(name, "slow")) {
		keep((struct late){.entry = fn, .arg = arg});
	} else if (dir == NS_DIR && !strcmp(name, "w")) {
		atomic_fetch_add(&fake.refs, 1);
		e.attr = file_attr(PRIVATE);
		e.put = (struct put *)&fake;
		fn(arg, 0, &e);
	} else if (dir == NS_DIR && sscanf(name, "f%lu", &i) == 1 && i < FILES) {
		e.attr = file_attr(FIRST_FILE + i);
		fn(arg, 0, &e);
	} else {
		fn(arg, -ENOENT, NULL);
	}
}

void node_getattr(struct node *n, uint64_t id, node_entry_fn fn, void *arg)
{
	struct node_entry e = {.attr = dir_attr(id)};

	fn(arg, 0, &e);
}

void node_setattr(struct node *n, const struct msg_attr *a, uint32_t mask, node_entry_fn fn, void *arg)
{
	struct node_entry e = {.attr = *a};

	fake.mask = mask;
	fn(arg, 0, &e);
}

void put_setattr(struct put *p, const struct msg_attr *a, uint32_t mask, node_done_fn fn, void *arg)
{
	fake.mask = mask | 1u << 31;
	fn(arg, 0);
}

struct put *put_unref(struct put *p)
{
	if (p)
		atomic_fetch_sub(&fake.refs, 1);
	return NULL;
}

void node_unlink(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg)
{
	fake.removed++;
	fn(arg, 0);
}

void node_rmdir(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg)
{
	fn(arg, -ENOTEMPTY);
}

void node_evict(struct node *n, const struct msg_attr *a, enum node_tier tier, bool force, node_done_fn fn, void *arg)
{
	fake.evicted = a->id << 8 | (uint64_t)tier << 4 | force;
	fn(arg, tier == NODE_TIER_SSD && !force ? -EBUSY : 0);
}

void node_prefetch(struct node *n, const struct msg_attr *a, node_done_fn fn, void *arg)
{
	fake.prefetched = a->id;
	fn(arg, -ENOSPC);
}

int node_replicas(struct node *n, const struct msg_attr *a, struct node_replicas *ret)
{
	*ret = (struct node_replicas){.blocks = 1, .in_dram = 1, .checksum = 0xabc, .has_checksum = true};
	return 0;
}

int node_dir_open(struct node *n, uint64_t dir, struct node_dir **ret)
{
	fake.dirs++;
	*ret = (struct node_dir *)&fake;
	return 0;
}

struct node_dir *node_dir_close(struct node_dir *d)
{
	fake.dirs--;
	return NULL;
}

void node_dir_read(struct node_dir *d, uint64_t cookie, uint32_t max, node_dir_fn fn, void *arg)
{
	struct msg_dirent *ents = calloc(max, sizeof(*ents));
	uint32_t n = 0;
	bool slow;

	pthread_mutex_lock(&fake.lock);
	slow = fake.slow_dir;
	pthread_mutex_unlock(&fake.lock);
	if (slow) {
		free(ents);
		keep((struct late){.dir = fn, .arg = arg});
		return;
	}
	for (; n < max && cookie + n < FILES; n++) {
		ents[n].cookie = cookie + n + 1;
		ents[n].attr = file_attr(FIRST_FILE + cookie + n);
		snprintf(ents[n].name, sizeof(ents[n].name), "f%lu", (unsigned long)(cookie + n));
	}
	fn(arg, 0, ents, n, cookie + n == FILES);
	free(ents);
}

void node_call(struct node *n, struct msg *req, channel_done_fn done, void *arg)
{
	struct msg_namespace list[2] = {{.name = "a/b", .block_size = 4096, .persist = 1}, {.name = "\xff"}};
	struct msg answer = {.type = req->type};

	pthread_mutex_lock(&fake.lock);
	fake.made = req->u.ns;
	pthread_mutex_unlock(&fake.lock);
	if (req->type == MSG_NS_LIST) {
		answer.namespaces = list;
		answer.n_namespaces = 2;
	} else if (req->type == MSG_NS_REMOVE) {
		answer.status = -ENOTEMPTY;
	}
	msg_free(req);
	done(arg, &answer);
}

/* ---- a server ----------------------------------------------------------------------------------------------- */

static char dir[64], path[96];
static struct ctl *ctl;

static json_t *say_hello(void *arg)
{
	return json_pack("{s:b,s:s}", "ok", 1, "instance", (const char *)arg);
}

static json_t *no_memory(void *arg)
{
	return NULL;
}

/* Counts, and remembers the last. */
static unsigned changed;
static char changed_name[MSG_NAME_MAX + 1];
static uint64_t changed_removed;

static void name_changed(void *arg, uint64_t at, const char *name, uint64_t removed)
{
	changed++;
	changed_removed = removed;
	snprintf(changed_name, sizeof(changed_name), "%s", name);
}

static struct ctl_config config(void)
{
	return (struct ctl_config){.path = path,
				   .mode = 0600,
				   .hello = say_hello,
				   .status = no_memory,
				   .name_changed = name_changed,
				   .arg = (void *)"me"};
}

static void setup(void)
{
	struct ctl_config cfg = config();
	struct errmsg e;

	snprintf(dir, sizeof(dir), "%s/fluxkv-ctl-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/control", dir);
	fake.refs = fake.dirs = 0;
	fake.slow_dir = false;
	ck_assert_int_eq(ctl_start(&cfg, &ctl, &e), 0);
}

static void teardown(void)
{
	ctl = ctl_stop(ctl);
	answer_kept();
	ck_assert_int_eq(fake.refs, 0);
	ck_assert_int_eq(fake.dirs, 0);
	/* Nothing but the socket was made, and that is gone. */
	ck_assert_int_eq(rmdir(dir), 0);
}

static struct ctl_stream *dial(void)
{
	struct ctl_stream *s;
	struct errmsg e;

	ck_assert_int_eq(ctl_connect(path, &s, &e), 0);
	return s;
}

/* Asks with the given text; the answer's error, or 0 with *ret (if not NULL). */
static int ask(struct ctl_stream *s, const char *text, json_t **ret, struct errmsg *e)
{
	json_t *req = json_loads(text, 0, NULL), *answer = NULL;
	int r;

	ck_assert_ptr_nonnull(req);
	r = ctl_call(s, req, 10000, &answer, e);
	if (ret && !r)
		*ret = answer;
	else
		json_decref(answer);
	return r;
}

static int ask_once(const char *text, struct errmsg *e)
{
	struct ctl_stream *s = dial();
	int r = ask(s, text, NULL, e);

	ctl_stream_free(s);
	return r;
}

START_TEST(answers_about_files)
{
	struct ctl_stream *s = dial();
	struct errmsg e;
	json_t *j;

	ck_assert_int_eq(ask(s, "{\"op\": \"hello\"}", &j, &e), 0);
	ck_assert_str_eq(json_str(j, "instance"), "me");
	json_decref(j);
	ck_assert_int_eq(ask(s, "{\"op\": \"stat\", \"path\": \"ns/f5\"}", &j, &e), 0);
	ck_assert_uint_eq(json_u64(j, "id"), FIRST_FILE + 5);
	ck_assert_str_eq(json_str(j, "kind"), "file");
	ck_assert_str_eq(json_str(j, "checksum"), "0000000000000abc");
	ck_assert_uint_eq(json_u64(j, "in_dram"), 1);
	json_decref(j);
	ck_assert_int_eq(ask(s, "{\"op\": \"stat\", \"path\": \"ns/w\"}", &j, &e), 0);
	ck_assert(json_is_true(json_at(j, "private")));
	ck_assert_uint_eq(json_u64(j, "id"), 7);
	ck_assert_ptr_null(json_at(j, "blocks"));
	json_decref(j);
	ck_assert_int_eq(ask(s, "{\"op\": \"stat\", \"path\": \"\"}", &j, &e), 0);
	ck_assert_str_eq(json_str(j, "kind"), "dir");
	json_decref(j);
	ck_assert_int_eq(ask(s, "{\"op\": \"stat\", \"path\": \"ns/x\"}", NULL, &e), -ENOENT);
	ck_assert_int_eq(ask(s, "{\"op\": \"stat\", \"path\": \"ns/f1/x\"}", NULL, &e), -ENOTDIR);
	/* An answer that cannot be made ends the connection. */
	ck_assert_int_eq(ask(s, "{\"op\": \"status\"}", NULL, &e), -ECONNRESET);
	ctl_stream_free(s);
}
END_TEST

START_TEST(lists_in_pages)
{
	struct ctl_stream *s = dial();
	uint64_t n = 0, pages = 0;
	struct errmsg e;
	json_t *j;

	ck_assert_int_eq(ask(s, "{\"op\": \"ls\", \"path\": \"ns\"}", &j, &e), 0);
	for (;;) {
		bool more = json_is_true(json_at(j, "more"));
		char name[16];
		json_t *entry;
		size_t i;

		json_array_foreach (json_at(j, "entries"), i, entry) {
			snprintf(name, sizeof(name), "f%lu", (unsigned long)n++);
			ck_assert_str_eq(json_str(entry, "name"), name);
		}
		pages++;
		json_decref(j);
		if (!more)
			break;
		ck_assert_int_eq(ctl_next(s, 10000, &j, &e), 0);
	}
	ck_assert_uint_eq(n, FILES);
	ck_assert_uint_eq(pages, 3);
	ctl_stream_free(s);
}
END_TEST

START_TEST(changes)
{
	struct errmsg e;

	ck_assert_int_eq(ask_once("{\"op\": \"evict\", \"path\": \"ns/f1\", \"tier\": \"dram\"}", &e), 0);
	ck_assert_uint_eq(fake.evicted, (FIRST_FILE + 1) << 8 | NODE_TIER_DRAM << 4);
	ck_assert_int_eq(ask_once("{\"op\": \"evict\", \"path\": \"ns/f1\", \"tier\": \"ssd\"}", &e), -EBUSY);
	ck_assert_ptr_nonnull(strstr(e.text, "--force"));
	ck_assert_int_eq(ask_once("{\"op\": \"evict\", \"path\": \"ns/f1\", \"tier\": \"ssd\", \"force\": true}", &e),
			 0);
	ck_assert_uint_eq(fake.evicted, (FIRST_FILE + 1) << 8 | NODE_TIER_SSD << 4 | 1);
	ck_assert_int_eq(ask_once("{\"op\": \"evict\", \"path\": \"ns/w\", \"tier\": \"ssd\", \"force\": true}", &e),
			 -EBUSY);
	ck_assert_int_eq(ask_once("{\"op\": \"prefetch\", \"path\": \"ns/f2\"}", &e), -ENOSPC);
	ck_assert_uint_eq(fake.prefetched, FIRST_FILE + 2);
	ck_assert_int_eq(ask_once("{\"op\": \"prefetch\", \"path\": \"ns/w\"}", &e), 0);
	ck_assert_int_eq(ask_once("{\"op\": \"pin\", \"path\": \"ns/f1\", \"pin\": true}", &e), 0);
	ck_assert_uint_eq(fake.mask, MSG_SET_PIN);
	ck_assert_int_eq(ask_once("{\"op\": \"ttl\", \"path\": \"ns/w\", \"seconds\": 5}", &e), 0);
	ck_assert_uint_eq(fake.mask, MSG_SET_TTL | 1u << 31);
	ck_assert_int_eq(ask_once("{\"op\": \"rm\", \"path\": \"ns/f1\"}", &e), 0);
	ck_assert_int_eq(ask_once("{\"op\": \"rm\", \"path\": \"ns\"}", &e), -EISDIR);
	ck_assert_uint_eq(fake.removed, 1);
	/* The mount was told of the forced evict and the removal, not of what failed or changed no name. */
	ck_assert_uint_eq(changed, 2);
	ck_assert_str_eq(changed_name, "f1");
	ck_assert_uint_ne(changed_removed, 0);
	ck_assert_int_eq(ask_once("{\"op\": \"rmdir\", \"path\": \"ns\"}", &e), -ENOTEMPTY);
	ck_assert_int_eq(ask_once("{\"op\": \"rmdir\", \"path\": \"ns/f1\"}", &e), -ENOTDIR);
	ck_assert_int_eq(ask_once("{\"op\": \"pin\", \"path\": \"ns\", \"pin\": true}", &e), -EISDIR);
}
END_TEST

START_TEST(speaks_of_namespaces)
{
	struct ctl_stream *s = dial();
	struct errmsg e;
	json_t *j;

	ck_assert_int_eq(
	    ask(s, "{\"op\": \"ns_create\", \"name\": \"x/y%25\", \"block_size\": 8192, \"mode\": 448}", NULL, &e), 0);
	ck_assert_str_eq(fake.made.name, "x/y%");
	ck_assert_uint_eq(fake.made.mask, MSG_NS_BLOCK_SIZE);
	ck_assert_uint_eq(fake.made.block_size, 8192);
	ck_assert_uint_eq(fake.made.mode, S_IFDIR | 0700);
	ck_assert_uint_eq(fake.made.uid, geteuid());
	ck_assert_int_eq(
	    ask(s, "{\"op\": \"ns_set\", \"name\": \"x\", \"persist\": false, \"ttl_seconds\": 0}", NULL, &e), 0);
	ck_assert_uint_eq(fake.made.mask, MSG_NS_PERSIST | MSG_NS_TTL);
	ck_assert_uint_eq(fake.made.persist, 0);
	ck_assert_int_eq(ask(s, "{\"op\": \"ns_rm\", \"name\": \"x\"}", NULL, &e), -ENOTEMPTY);
	ck_assert_int_eq(ask(s, "{\"op\": \"ns_list\"}", &j, &e), 0);
	ck_assert_uint_eq(json_array_size(json_at(j, "namespaces")), 2);
	ck_assert_str_eq(json_str(json_array_get(json_at(j, "namespaces"), 1), "name"), "%FF");
	json_decref(j);
	ctl_stream_free(s);
}
END_TEST

START_TEST(refuses_the_malformed_once)
{
	struct ctl_stream *s = dial();
	struct errmsg e;
	json_t *j;

	ck_assert_int_eq(write(ctl_stream_fd(s), "{} {}\n{\"op\": \"hello\"}\n", 22), 22);
	ck_assert_int_eq(ctl_next(s, 10000, &j, &e), -EBADMSG);
	ck_assert_int_eq(ctl_next(s, 10000, &j, &e), -ECONNRESET);
	ctl_stream_free(s);
	ck_assert_int_eq(ask_once("{\"op\": \"frobnicate\"}", &e), -EOPNOTSUPP);
	ck_assert_int_eq(ask_once("{\"op\": \"stat\"}", &e), -EINVAL);
	ck_assert_int_eq(ask_once("{\"op\": \"stat\", \"path\": \"%\"}", &e), -EINVAL);
	ck_assert_int_eq(ask_once("{\"op\": \"ttl\", \"path\": \"ns/f1\", \"seconds\": 1.5}", &e), -EINVAL);
}
END_TEST

START_TEST(takes_so_many_connections)
{
	struct ctl_stream *s[CTL_MAX_CONNECTIONS];
	struct errmsg e;

	for (unsigned i = 0; i < CTL_MAX_CONNECTIONS; i++) {
		s[i] = dial();
		ck_assert_int_eq(ask(s[i], "{\"op\": \"hello\"}", NULL, &e), 0);
	}
	ck_assert_int_eq(ask_once("{\"op\": \"hello\"}", &e), -EBUSY);
	ctl_stream_free(s[0]);
	while (ask_once("{\"op\": \"hello\"}", &e))
		ck_assert_ptr_nonnull(strstr(e.text, "as many"));
	for (unsigned i = 1; i < CTL_MAX_CONNECTIONS; i++)
		ctl_stream_free(s[i]);
}
END_TEST

static void *ask_for_slow(void *arg)
{
	struct errmsg e;

	return (void *)(intptr_t)ask_once(arg, &e);
}

/* One that waits does not hold up another; the end of the server ends both, and the answers may come later. */
START_TEST(ends_while_requests_wait)
{
	pthread_t slow, slow_ls;
	struct errmsg e;
	void *r;

	ck_assert_int_eq(pthread_create(&slow, NULL, ask_for_slow, "{\"op\": \"stat\", \"path\": \"ns/slow\"}"), 0);
	wait_kept(1);
	pthread_mutex_lock(&fake.lock);
	fake.slow_dir = true;
	pthread_mutex_unlock(&fake.lock);
	ck_assert_int_eq(pthread_create(&slow_ls, NULL, ask_for_slow, "{\"op\": \"ls\", \"path\": \"ns\"}"), 0);
	wait_kept(2);
	ck_assert_int_eq(ask_once("{\"op\": \"hello\"}", &e), 0);
	ctl = ctl_stop(ctl);
	pthread_join(slow, &r);
	ck_assert_int_eq((int)(intptr_t)r, -ESHUTDOWN);
	pthread_join(slow_ls, &r);
	ck_assert_int_eq((int)(intptr_t)r, -ESHUTDOWN);
	/* The directory is in use until its answer comes: teardown() checks that it is closed then. */
	ck_assert_int_eq(fake.dirs, 1);
}
END_TEST

/* Answers that come while the server ends, from many sides at once. */
START_TEST(races_answers_with_the_end)
{
	pthread_t t[16];

	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, ask_for_slow, "{\"op\": \"stat\", \"path\": \"ns/slow\"}"),
				 0);
	wait_kept(16);
	answer_kept();
	ctl = ctl_stop(ctl);
	for (unsigned i = 0; i < 16; i++) {
		void *r;

		pthread_join(t[i], &r);
		ck_assert((intptr_t)r == 0 || (intptr_t)r == -ESHUTDOWN || (intptr_t)r == -ECONNRESET);
	}
}
END_TEST

START_TEST(keeps_its_socket_to_itself)
{
	struct ctl_config cfg = config();
	struct ctl *other = NULL;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct errmsg e;
	struct stat st;
	int fd;

	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(ctl_start(&cfg, &other, &e), -EADDRINUSE);
	ck_assert_ptr_null(other);
	ck_assert_int_eq(ask_once("{\"op\": \"hello\"}", &e), 0);
	ctl = ctl_stop(ctl);
	ck_assert_int_eq(access(path, F_OK), -1);
	/* One that a crash left is replaced, something else is not. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(fd);
	ck_assert_int_eq(ctl_start(&cfg, &ctl, &e), 0);
	ctl = ctl_stop(ctl);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(ctl_start(&cfg, &ctl, &e), -EEXIST);
	ck_assert_int_eq(rmdir(path), 0);
	cfg.path =
	    "/tmp/a-path-that-is-longer-than-the-hundred-and-seven-bytes-that-a-socket-may-have-on-linux-as-everybody-"
	    "finds-out-some-day";
	ck_assert_int_eq(ctl_start(&cfg, &ctl, &e), -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl");
	TCase *t = tcase_create("ctl");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, answers_about_files);
	tcase_add_test(t, lists_in_pages);
	tcase_add_test(t, changes);
	tcase_add_test(t, speaks_of_namespaces);
	tcase_add_test(t, refuses_the_malformed_once);
	tcase_add_test(t, takes_so_many_connections);
	tcase_add_test(t, ends_while_requests_wait);
	tcase_add_test(t, races_answers_with_the_end);
	tcase_add_test(t, keeps_its_socket_to_itself);
	suite_add_tcase(s, t);
	return run_suite(s);
}
