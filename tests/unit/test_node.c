/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node over the real master core and the real SSD tier, in one process and without FUSE: so that a race detector
 * sees all of it. Every value's bytes say whose they are, so a mixture of two versions cannot pass.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "master/local.h"
#include "ssd/ssd.h"
#include "store/impl.h"
#include "store/node.h"
#include "store/put.h"
#include "store/version.h"
#include "tests/unit/base.h"
#include "tests/unit/run.h"
#include "tests/unit/ssd_faulty.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

/* ---- waiting for callbacks ---------------------------------------------------------------------------------- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;
	int err;
	struct node_entry e;
	struct put *put;
	struct version_read read;
	size_t n;
	char names[64][MSG_NAME_MAX + 1];
	uint64_t cookie;
	bool end;
};

static void waiter_init(struct waiter *w)
{
	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
}

static void over(struct waiter *w, int err)
{
	pthread_mutex_lock(&w->lock);
	w->err = err;
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->over)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	return w->err;
}

static void done_cb(void *arg, int err)
{
	over(arg, err);
}

static void entry_cb(void *arg, int err, const struct node_entry *e)
{
	struct waiter *w = arg;

	if (!err)
		w->e = *e;
	over(w, err);
}

static void put_cb(void *arg, int err, struct put *p)
{
	struct waiter *w = arg;

	w->put = p;
	over(w, err);
}

static void read_cb(void *arg, int err, struct version_read *r)
{
	struct waiter *w = arg;

	if (!err)
		w->read = *r;
	over(w, err);
}

static void put_read_cb(void *arg, int err, size_t n)
{
	struct waiter *w = arg;

	w->n = n;
	over(w, err);
}

static void answer_cb(void *arg, const struct msg *answer)
{
	over(arg, answer->status);
}

static void dir_cb(void *arg, int err, const struct msg_dirent *ents, size_t n, bool end)
{
	struct waiter *w = arg;

	for (size_t i = 0; i < n && i < 64; i++) {
		strcpy(w->names[i], ents[i].name);
		w->cookie = ents[i].cookie;
	}
	w->n = n;
	w->end = end;
	over(w, err);
}

/* ---- a node ------------------------------------------------------------------------------------------------- */

static char base[64];	    /* the parent's, which removes it whatever became of the tests */
static char second_ssd[80]; /* below base: a file system of its own for one more SSD; "": none could be made */
static char tmp[96];
static struct local_master *master;
static struct node *node;
static uint64_t ns_dir;

/* The device under the node fails and waits when a test says so, and the test sees what the node asks the tier for. */
static struct faulty faulty;
static struct ssd_config ssd_asked;
static struct ssd_store *ssd_store;
static atomic_bool lose_notices; /* of what the ring has overwritten */

static void tier_evicted(void *arg, const struct ssd_key *keys, size_t n)
{
	if (!atomic_load(&lose_notices))
		ssd_asked.evicted(arg, keys, n);
}

int __real_ssd_store_open(const struct ssd_config *cfg, struct ssd_store **ret, struct errmsg *e);
int __wrap_ssd_store_open(const struct ssd_config *cfg, struct ssd_store **ret, struct errmsg *e);
int __wrap_ssd_store_open(const struct ssd_config *cfg, struct ssd_store **ret, struct errmsg *e)
{
	struct ssd_config c = *cfg;
	int r;

	ssd_asked = *cfg;
	c.io = &faulty.ops;
	c.evicted = tier_evicted;
	r = __real_ssd_store_open(&c, ret, e);
	ssd_store = r ? NULL : *ret;
	return r;
}

/* What passes between the node and its master. */
static struct {
	struct channel ch;
	struct channel *real;
	channel_notice_fn notice; /* the node's */
	void *arg;
	atomic_bool keep_persist; /* the request to persist does not reach the node: it is kept */
	struct msg_item kept;
	atomic_bool has_kept;
	atomic_bool keep_publish; /* nor does the next publish reach the master */
	atomic_bool has_publish;
	struct msg *publish;
	channel_done_fn publish_done;
	void *publish_arg;
	atomic_bool repeat_drops; /* the node hears them twice */
	atomic_uint drops, acks;
	atomic_bool lose_copy; /* the tier loses what is committed next, before the master has answered */
} wire;

static void wire_call(struct channel *ch, struct msg *req, channel_done_fn done, void *arg)
{
	if (req->type == MSG_SSD_COMMIT && atomic_exchange(&wire.lose_copy, false))
		ssd_drop(ssd_store, (struct ssd_key){.id = req->items[0].put_id, .block = req->items[0].block});
	if (req->type == MSG_DELETE_ACK)
		atomic_fetch_add(&wire.acks, (unsigned)req->n_items);
	if (req->type == MSG_PUT_DONE && atomic_exchange(&wire.keep_publish, false)) {
		wire.publish = req;
		wire.publish_done = done;
		wire.publish_arg = arg;
		atomic_store(&wire.has_publish, true);
		return;
	}
	channel_call(wire.real, req, done, arg);
}

static void wire_notice(void *arg, const struct msg *m)
{
	if (m->type == MSG_SSD_PERSIST && atomic_load(&wire.keep_persist)) {
		wire.kept = m->items[0];
		atomic_store(&wire.has_kept, true);
		return;
	}
	wire.notice(wire.arg, m);
	if (m->type != MSG_DROP)
		return;
	if (atomic_load(&wire.repeat_drops))
		wire.notice(wire.arg, m);
	atomic_fetch_add(&wire.drops, 1);
}

static void wire_set_notice(struct channel *ch, channel_notice_fn fn, void *arg)
{
	wire.notice = fn;
	wire.arg = arg;
	wire.real->set_notice(wire.real, fn ? wire_notice : NULL, NULL);
}

static struct channel *wire_open(struct channel *real)
{
	wire.real = real;
	wire.ch = (struct channel){.call = wire_call, .set_notice = wire_set_notice};
	return &wire.ch;
}

static uint64_t leg_deadline_ms;	   /* of the next node */
static uint64_t persist_backlog = 1 << 30; /* of the next node: what is put there all gets its copy */

static uint64_t put_deadline_ms; /* of the next master and its node */
static bool two_devices;	 /* has the next node */

static bool direct_in(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void start(uint64_t dram, uint64_t ssd)
{
	static const char *paths[2];
	static uint64_t limits[2];
	static char catalogue[160], run[160], ssd_dir[160];
	struct errmsg e = {""};
	struct local_master_config mc = {
	    .catalogue = catalogue,
	    .auto_namespace = true,
	    .put_deadline_ns = put_deadline_ms * 1000000,
	};
	struct node_config nc = {
	    .instance_key = "unit",
	    .cluster_name = "unit",
	    .run_dir = run,
	    .dram = dram,
	    .ssd_paths = paths,
	    .ssd_limits = limits,
	    .n_ssd = !ssd	   ? 0
		     : two_devices ? 2
				   : 1,
	    .ssd_direct = true,
	    .ssd_shards = 2,
	    .persist_backlog = persist_backlog,
	    .put_deadline_ms = put_deadline_ms,
	    .leg_deadline_ms = leg_deadline_ms,
	};
	struct waiter w;

	log_setup(LOG_LVL_WARN, false);
	faulty_init(&faulty, 1);
	snprintf(tmp, sizeof(tmp), "%s/XXXXXX", base);
	ck_assert_ptr_nonnull(mkdtemp(tmp));
	snprintf(catalogue, sizeof(catalogue), "%s/catalogue.db", tmp);
	snprintf(run, sizeof(run), "%s/run", tmp);
	snprintf(ssd_dir, sizeof(ssd_dir), "%s/ssd", tmp);
	ck_assert_int_eq(mkdir(ssd_dir, 0700), 0);
	paths[0] = ssd_dir;
	paths[1] = second_ssd;
	limits[0] = limits[1] = ssd;
	ck_assert_msg(local_master_start(&mc, &master, &e) == 0, "%s", e.text);
	nc.master = wire_open(local_master_channel(master));
	ck_assert_msg(node_start(&nc, &node, &e) == 0, "%s", e.text);
	waiter_init(&w);
	node_mkdir(node, MSG_ROOT_DIR, "ns", 0755, 0, 0, entry_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ns_dir = w.e.attr.id;
}

static void stop(void)
{
	node = node_stop(node);
	master = local_master_stop(master);
}

static struct node_stats stats(void)
{
	struct node_stats s;

	node_get_stats(node, &s);
	return s;
}

/* Everything is deleted and closed: every ledger comes to 0. */
static void check_empty(void)
{
	struct local_master_stats m;
	struct node_stats s;

	for (int i = 0; i < 500; i++) {
		s = stats();
		local_master_get_stats(master, &m);
		if (!s.dram_used && !s.dram_reserved && !s.blocks && !s.private_versions && !s.ssd_used && !m.used &&
		    !m.reserved && !m.orphans && !m.tickets && !m.gets)
			return;
		usleep(10000);
	}
	ck_abort_msg(
	    "left: dram used %llu reserved %llu, blocks %llu, private %llu, ssd %llu; master used %llu reserved "
	    "%llu orphans %llu tickets %llu gets %llu",
	    (unsigned long long)s.dram_used, (unsigned long long)s.dram_reserved, (unsigned long long)s.blocks,
	    (unsigned long long)s.private_versions, (unsigned long long)s.ssd_used, (unsigned long long)m.used,
	    (unsigned long long)m.reserved, (unsigned long long)m.orphans, (unsigned long long)m.tickets,
	    (unsigned long long)m.gets);
}

/* ---- operations --------------------------------------------------------------------------------------------- */

static int lookup(const char *name, struct node_entry *ret)
{
	struct waiter w;
	int r;

	waiter_init(&w);
	node_lookup(node, ns_dir, name, entry_cb, &w);
	r = wait_for(&w);
	if (!r)
		*ret = w.e;
	return r;
}

static struct put *create(const char *name)
{
	struct waiter w;

	waiter_init(&w);
	put_create(node, ns_dir, name, false, 0644, 0, 0, put_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_int_eq(put_open(w.put, true), 0);
	return w.put;
}

static void written_cb(void *arg, int err)
{
	struct waiter *w = arg;

	w->err = err;
}

static void copied_cb(void *arg)
{
	struct waiter *w = arg;

	over(w, w->err);
}

static int write_at(struct put *p, uint64_t off, const void *buf, size_t len)
{
	struct waiter w;

	waiter_init(&w);
	put_write(p, off, buf, len, written_cb, copied_cb, &w);
	return wait_for(&w);
}

static int flush(struct put *p)
{
	struct waiter w;

	waiter_init(&w);
	put_flush(p, false, done_cb, &w);
	return wait_for(&w);
}

static void release(struct put *p)
{
	put_release(p, true);
	put_unref(p);
}

static int unlink_name(const char *name)
{
	struct waiter w;

	waiter_init(&w);
	node_unlink(node, ns_dir, name, done_cb, &w);
	return wait_for(&w);
}

static int rename_name(const char *from, const char *to)
{
	struct waiter w;

	waiter_init(&w);
	node_rename(node, ns_dir, from, ns_dir, to, 0, done_cb, &w);
	return wait_for(&w);
}

/* Words that say which value and version they belong to, and where they lie. */
static void stamp(uint64_t *buf, size_t words, uint32_t value, uint32_t version, uint64_t at)
{
	for (size_t i = 0; i < words; i++)
		buf[i] = (uint64_t)value << 48 | (uint64_t)(version & 0xffff) << 32 | ((at + i) & 0xffffffff);
}

static int put_value(const char *name, uint32_t value, uint32_t version, uint64_t bytes)
{
	uint64_t *buf = malloc(MIB);
	struct put *p = create(name);
	int r = 0;

	for (uint64_t off = 0; off < bytes && !r; off += MIB) {
		size_t n = bytes - off < MIB ? bytes - off : MIB;

		stamp(buf, n / 8, value, version, off / 8);
		r = write_at(p, off, buf, n);
	}
	if (!r)
		r = flush(p);
	release(p);
	free(buf);
	return r;
}

/* Reads the whole version and checks that it is one version of that value. Returns the version number, or an errno. */
static int check_version(struct version *v, uint32_t value)
{
	uint64_t size = version_size(v), off = 0;
	int64_t version = -1;

	while (off < size) {
		struct waiter w;
		int r;

		waiter_init(&w);
		version_read(v, off, MIB, read_cb, &w);
		r = wait_for(&w);
		if (r)
			return r;
		ck_assert_uint_eq(w.read.len, size - off < MIB ? size - off : MIB);
		for (int i = 0; i < w.read.n_iov; i++) {
			const uint64_t *words = w.read.iov[i].iov_base;

			for (size_t k = 0; k < w.read.iov[i].iov_len / 8; k++, off += 8) {
				uint64_t want;

				if (version < 0)
					version = words[k] >> 32 & 0xffff;
				want = (uint64_t)value << 48 | (uint64_t)version << 32 | ((off / 8) & 0xffffffff);
				/* Each assertion that holds is told to the test's parent. */
				if (words[k] != want)
					ck_assert_uint_eq(words[k], want);
			}
		}
		version_read_done(&w.read);
	}
	return (int)version;
}

static int get_value(const char *name, uint32_t value)
{
	struct node_entry e;
	struct version *v;
	int r;

	for (int tries = 0; tries < 10000; tries++) {
		r = lookup(name, &e);
		if (r)
			return r;
		if (e.put) {
			put_unref(e.put);
			usleep(100);
			continue;
		}
		r = version_open(node, &e.attr, &v);
		if (r == -ESTALE)
			continue;
		if (r)
			return r;
		r = check_version(v, value);
		version_close(v);
		return r;
	}
	return -ETIMEDOUT;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

START_TEST(put_get_delete)
{
	start(64 * MIB, 0);
	ck_assert_int_eq(get_value("a", 1), -ENOENT);
	ck_assert_int_eq(put_value("a", 1, 7, 4 * MIB), 0);
	ck_assert_int_eq(get_value("a", 1), 7);
	ck_assert_int_eq(put_value("b", 2, 8, 4 * MIB - 128), 0);
	ck_assert_int_eq(get_value("b", 2), 8);
	ck_assert_uint_eq(stats().hits_mem_local, 2);
	ck_assert_uint_eq(stats().dram_used, 8 * MIB);
	ck_assert_int_eq(unlink_name("a"), 0);
	ck_assert_int_eq(unlink_name("a"), -ENOENT);
	ck_assert_int_eq(unlink_name("b"), 0);
	check_empty();
	stop();
}
END_TEST

START_TEST(a_holder_keeps_its_version)
{
	struct node_entry e;
	struct version *v;

	start(64 * MIB, 0);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(version_open(node, &e.attr, &v), 0);
	ck_assert_int_eq(put_value("a", 1, 2, 2 * MIB), 0);
	ck_assert_int_eq(get_value("a", 1), 2);
	ck_assert_int_eq(check_version(v, 1), 1);
	ck_assert_int_eq(unlink_name("a"), 0);
	ck_assert_int_eq(check_version(v, 1), 1);
	version_close(v);
	check_empty();
	stop();
}
END_TEST

/* What it holds is the master's to grant again once it has been acknowledged as dropped. */
START_TEST(a_drop_said_twice_is_over_once)
{
	struct node_entry e;
	struct version *v;

	start(64 * MIB, 0);
	atomic_store(&wire.repeat_drops, true);
	atomic_store(&wire.drops, 0);
	atomic_store(&wire.acks, 0);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(version_open(node, &e.attr, &v), 0);
	ck_assert_int_eq(unlink_name("a"), 0);
	while (!atomic_load(&wire.drops))
		usleep(1000);
	reclaim_flush(node);
	ck_assert_uint_eq(atomic_load(&wire.acks), 0);
	version_close(v);
	check_empty();
	ck_assert_uint_eq(atomic_load(&wire.acks), 1);
	stop();
	atomic_store(&wire.repeat_drops, false);
}
END_TEST

START_TEST(a_write_after_publish_is_a_new_version)
{
	struct node_entry e1, e2;
	struct version *v;
	struct waiter w;
	char buf[8];
	struct put *p;

	start(64 * MIB, 0);
	p = create("a");
	ck_assert_int_eq(write_at(p, 0, "one", 3), 0);
	ck_assert_int_eq(lookup("a", &e1), 0);
	ck_assert_ptr_eq(e1.put, p);
	put_unref(e1.put);
	ck_assert_int_eq(flush(p), 0);
	ck_assert_int_eq(lookup("a", &e1), 0);
	ck_assert_ptr_null(e1.put);
	ck_assert_uint_eq(e1.attr.size, 3);
	ck_assert_int_eq(version_open(node, &e1.attr, &v), 0);
	ck_assert_int_eq(write_at(p, 3, "two", 3), 0);
	ck_assert_int_eq(lookup("a", &e2), 0);
	ck_assert_ptr_eq(e2.put, p);
	ck_assert_uint_eq(e2.attr.size, 6);
	put_unref(e2.put);
	waiter_init(&w);
	put_read(p, 0, buf, sizeof(buf), put_read_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_uint_eq(w.n, 6);
	ck_assert_mem_eq(buf, "onetwo", 6);
	ck_assert_int_eq(flush(p), 0);
	ck_assert_int_eq(lookup("a", &e2), 0);
	ck_assert_uint_gt(e2.attr.id, e1.attr.id);
	waiter_init(&w);
	version_read(v, 0, 8, read_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_uint_eq(w.read.len, 3);
	ck_assert_mem_eq(w.read.iov[0].iov_base, "one", 3);
	version_read_done(&w.read);
	version_close(v);
	release(p);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	stop();
}
END_TEST

/* A write whose answer asks for its bytes at once, and for a publish: they come before the copy. */
struct eager {
	struct put *p;
	char got[256 * KIB];
	struct waiter read, flush, copied;
};

static void eager_written(void *arg, int err)
{
	struct eager *g = arg;

	g->copied.err = err;
	put_read(g->p, 0, g->got, sizeof(g->got), put_read_cb, &g->read);
	put_flush(g->p, false, done_cb, &g->flush);
}

static void eager_copied(void *arg)
{
	struct eager *g = arg;

	over(&g->copied, g->copied.err);
}

static void write_eagerly(struct eager *g, struct put *p, const void *buf)
{
	g->p = p;
	waiter_init(&g->read);
	waiter_init(&g->flush);
	waiter_init(&g->copied);
	put_write(p, 0, buf, sizeof(g->got), eager_written, eager_copied, g);
	ck_assert_int_eq(wait_for(&g->copied), 0);
}

START_TEST(an_answered_write_is_there)
{
	struct eager *g = malloc(sizeof(*g));
	char *buf = malloc(sizeof(g->got));

	start(64 * MIB, 0);
	g->p = create("a");
	/* The first has to make room for itself, the others not, and start from a published version or an open one. */
	for (int i = 1; i < 20; i++) {
		memset(buf, i, sizeof(g->got));
		write_eagerly(g, g->p, buf);
		ck_assert_int_eq(wait_for(&g->read), 0);
		ck_assert_int_eq(wait_for(&g->flush), 0);
		ck_assert_uint_eq(g->read.n, sizeof(g->got));
		ck_assert_mem_eq(g->got, buf, sizeof(g->got));
		if (i % 2)
			ck_assert_int_eq(write_at(g->p, 0, "x", 1), 0);
	}
	release(g->p);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	stop();
	free(buf);
	free(g);
}
END_TEST

START_TEST(an_answered_write_that_is_lost_is_told)
{
	struct eager *g = malloc(sizeof(*g));
	char *buf = calloc(1, sizeof(g->got));
	struct rlimit old, none;
	struct node_entry e;
	struct waiter w;

	signal(SIGXFSZ, SIG_IGN);
	start(64 * MIB, 0);
	g->p = create("a");
	waiter_init(&w);
	put_allocate(g->p, 0, sizeof(g->got), true, done_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	none = old;
	none.rlim_cur = 4096;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	write_eagerly(g, g->p, buf);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
	ck_assert_int_lt(wait_for(&g->read), 0);
	ck_assert_int_lt(wait_for(&g->flush), 0);
	ck_assert_int_lt(write_at(g->p, 0, "x", 1), 0);
	ck_assert_int_lt(flush(g->p), 0);
	release(g->p);
	/* The last close is a job: until it has ended the name stands for what nobody can open. */
	while (lookup("a", &e) == 0) {
		put_unref(e.put);
		usleep(1000);
	}
	check_empty();
	stop();
	free(buf);
	free(g);
}
END_TEST

/* What changes while a publish is on its way is the published version's. */
START_TEST(attributes_change_during_a_publish)
{
	struct msg_attr a = {.mode = 0600};
	struct waiter flushed, set, xset;
	struct node_entry e;
	struct put *p;

	start(64 * MIB, 0);
	p = create("a");
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(write_at(p, 0, "bytes", 5), 0);
		a.mode = i % 2 ? 0600 : 0640;
		waiter_init(&flushed);
		waiter_init(&set);
		waiter_init(&xset);
		put_flush(p, false, done_cb, &flushed);
		put_setattr(p, &a, MSG_SET_MODE, done_cb, &set);
		put_setxattrs(p, NULL, 0, done_cb, &xset);
		ck_assert_int_eq(wait_for(&flushed), 0);
		ck_assert_int_eq(wait_for(&set), 0);
		ck_assert_int_eq(wait_for(&xset), 0);
		ck_assert_int_eq(lookup("a", &e), 0);
		ck_assert_ptr_null(e.put);
		ck_assert_uint_eq(e.attr.mode & 0777, a.mode);
	}
	release(p);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	stop();
}
END_TEST

START_TEST(killed_writers_and_empty_files)
{
	struct node_entry e;
	struct waiter w;
	struct put *p;

	start(64 * MIB, 0);
	p = create("killed");
	ck_assert_int_eq(write_at(p, 0, "half", 4), 0);
	waiter_init(&w);
	put_flush(p, true, done_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	release(p);
	p = create("empty");
	ck_assert_int_eq(flush(p), 0);
	ck_assert_int_eq(lookup("empty", &e), 0);
	ck_assert_ptr_nonnull(e.put);
	put_unref(e.put);
	release(p);
	for (int i = 0; i < 200 && (lookup("empty", &e) || e.put); i++) {
		put_unref(e.put);
		usleep(5000);
	}
	ck_assert_int_eq(lookup("empty", &e), 0);
	ck_assert_uint_eq(e.attr.size, 0);
	ck_assert_int_eq(lookup("killed", &e), -ENOENT);
	ck_assert_int_eq(unlink_name("empty"), 0);
	check_empty();
	stop();
}
END_TEST

START_TEST(sparse_truncate_rename)
{
	struct node_entry e;
	struct waiter w;
	struct put *p;
	char *buf = calloc(1, MIB), *zero = calloc(1, MIB);

	start(64 * MIB, 0);
	p = create("t");
	ck_assert_int_eq(write_at(p, 3 * MIB + 5, "x", 1), 0);
	waiter_init(&w);
	put_read(p, MIB, buf, MIB, put_read_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_uint_eq(w.n, MIB);
	ck_assert_mem_eq(buf, zero, MIB);
	waiter_init(&w);
	put_truncate(p, 10, done_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	waiter_init(&w);
	put_truncate(p, 2 * MIB, done_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_int_eq(rename_name("t", "u"), 0);
	ck_assert_int_eq(lookup("t", &e), -ENOENT);
	ck_assert_int_eq(flush(p), 0);
	ck_assert_int_eq(lookup("u", &e), 0);
	ck_assert_uint_eq(e.attr.size, 2 * MIB);
	ck_assert_int_eq(lookup("t", &e), -ENOENT);
	/* The name moves while the writer still has it open. */
	ck_assert_int_eq(rename_name("u", "v"), 0);
	ck_assert_int_eq(write_at(p, 0, "again", 5), 0);
	ck_assert_int_eq(flush(p), 0);
	ck_assert_int_eq(lookup("u", &e), -ENOENT);
	ck_assert_int_eq(lookup("v", &e), 0);
	ck_assert_int_eq(unlink_name("v"), 0);
	/* A put without a name is never published. */
	ck_assert_int_eq(write_at(p, 0, "gone", 4), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(lookup("v", &e), -ENOENT);
	check_empty();
	stop();
	free(buf);
	free(zero);
}
END_TEST

START_TEST(directories_show_private_names_once)
{
	struct node_dir *d;
	struct waiter w;
	struct put *p, *q;
	int seen[3] = {0};
	uint64_t cookie = 0;
	bool end = false;

	start(64 * MIB, 0);
	p = create("p");
	ck_assert_int_eq(put_value("m", 1, 1, 4096), 0);
	q = create("q");
	ck_assert_int_eq(node_dir_open(node, ns_dir, &d), 0);
	while (!end) {
		waiter_init(&w);
		node_dir_read(d, cookie, 1, dir_cb, &w);
		ck_assert_int_eq(wait_for(&w), 0);
		for (size_t i = 0; i < w.n; i++)
			seen[w.names[i][0] == 'p' ? 0 : w.names[i][0] == 'q' ? 1 : 2]++;
		if (w.n)
			cookie = w.cookie;
		end = w.end;
		/* Becomes one of the master's in the middle of the scan. */
		if (seen[0] == 1 && !seen[2]) {
			ck_assert_int_eq(write_at(p, 0, "1", 1), 0);
			ck_assert_int_eq(flush(p), 0);
		}
	}
	node_dir_close(d);
	ck_assert_int_eq(seen[0], 1);
	ck_assert_int_eq(seen[1], 1);
	ck_assert_int_eq(seen[2], 1);
	release(p);
	release(q);
	for (int i = 0; i < 200 && unlink_name("q"); i++)
		usleep(5000);
	ck_assert_int_eq(unlink_name("p"), 0);
	ck_assert_int_eq(unlink_name("m"), 0);
	check_empty();
	stop();
}
END_TEST

#define MANY_WRITERS 160
#define MANY_BYTES (32 * KIB)

/* More writers wait for room than there are threads to wait in, and the end of another is what makes it. */
START_TEST(an_end_waits_for_no_writer)
{
	static struct waiter w[MANY_WRITERS];
	struct put *hog, *p[MANY_WRITERS];
	char *buf = calloc(1, 15 * MIB), name[16];

	start(16 * MIB, 0);
	for (int i = 0; i < MANY_WRITERS; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		p[i] = create(name);
	}
	hog = create("hog");
	ck_assert_int_eq(write_at(hog, 0, buf, 15 * MIB), 0);
	for (int i = 0; i < MANY_WRITERS; i++) {
		waiter_init(&w[i]);
		put_write(p[i], 0, buf, MANY_BYTES, written_cb, copied_cb, &w[i]);
	}
	usleep(200000);
	ck_assert_uint_gt(stats().parked, 128);
	put_flush(hog, true, written_cb, &(struct waiter){0});
	release(hog);
	for (int i = 0; i < MANY_WRITERS; i++)
		ck_assert_int_eq(wait_for(&w[i]), 0);
	for (int i = 0; i < MANY_WRITERS; i++) {
		put_flush(p[i], true, written_cb, &(struct waiter){0});
		release(p[i]);
	}
	check_empty();
	stop();
	free(buf);
}
END_TEST

START_TEST(no_room_is_said_at_the_write)
{
	struct node_entry e;
	struct version *v[8];
	char name[16], *buf = malloc(MIB);
	struct put *p;
	int n, r = 0;

	memset(buf, 1, MIB);
	start(16 * MIB, 0);
	for (n = 0; n < 3; n++) {
		snprintf(name, sizeof(name), "h%d", n);
		ck_assert_int_eq(put_value(name, (uint32_t)n, 1, 4 * MIB), 0);
		ck_assert_int_eq(lookup(name, &e), 0);
		ck_assert_int_eq(version_open(node, &e.attr, &v[n]), 0);
	}
	p = create("big");
	for (uint64_t off = 0; off < 8 * MIB && !r; off += MIB)
		r = write_at(p, off, buf, MIB);
	ck_assert_int_eq(r, -ENOSPC);
	/* Letting go of one makes room. */
	version_close(v[0]);
	ck_assert_int_eq(write_at(p, 4 * MIB, buf, MIB), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(check_version(v[1], 1), 1);
	version_close(v[1]);
	version_close(v[2]);
	unlink_name("h0");
	ck_assert_int_eq(unlink_name("h1"), 0);
	ck_assert_int_eq(unlink_name("h2"), 0);
	ck_assert_int_eq(unlink_name("big"), 0);
	check_empty();
	stop();
	free(buf);
}
END_TEST

/* What waits for the tier cannot be evicted: by itself that is a quarter of the memory at most. */
START_TEST(the_backlog_has_its_limit)
{
	persist_backlog = 0;
	start(16 * MIB, 64 * MIB);
	ck_assert_uint_eq(ssd_asked.backlog_limit, stats().dram_capacity / 4);
	stop();
	persist_backlog = 3 * MIB;
	start(16 * MIB, 64 * MIB);
	ck_assert_uint_eq(ssd_asked.backlog_limit, 3 * MIB);
	stop();
}
END_TEST

/* Waits until a counter has come to n. */
#define await(counter, n)                                                                                              \
	do {                                                                                                           \
		for (int await_i = 0; (counter) < (n) && await_i < 2000; await_i++)                                    \
			usleep(5000);                                                                                  \
		ck_assert_uint_ge(counter, n);                                                                         \
	} while (0)

static int evict(const char *name, enum node_tier tier)
{
	struct node_entry e;
	struct waiter w;

	ck_assert_int_eq(lookup(name, &e), 0);
	waiter_init(&w);
	node_evict(node, &e.attr, tier, false, done_cb, &w);
	return wait_for(&w);
}

/* Each of them waits in a thread for what only the tier has. */
#define SLEEPERS 200
static struct waiter sleepers[SLEEPERS];

static void put_on_ssd_alone(void)
{
	char name[16];

	for (uint32_t i = 0; i < SLEEPERS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(put_value(name, i, 1, 64 * KIB), 0);
	}
	await(stats().ssd_objects, SLEEPERS);
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(evict(name, NODE_TIER_DRAM), 0);
	}
}

static void start_sleepers(struct version **v)
{
	struct node_entry e;
	char name[16];

	put_on_ssd_alone();
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(lookup(name, &e), 0);
		ck_assert_int_eq(version_open(node, &e.attr, &v[i]), 0);
	}
	faulty_hold(&faulty, FAULTY_READ);
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		waiter_init(&sleepers[i]);
		version_read(v[i], 0, 64 * KIB, read_cb, &sleepers[i]);
	}
	/* The others wait for their turn at the device, or for a thread. */
	faulty_wait_held(&faulty, 60);
}

/* Memory may be full of blocks that wait for their copy, and every job may wait for that memory. */
START_TEST(a_copy_needs_no_job)
{
	struct version *v[SLEEPERS];
	uint64_t before;
	struct msg *m;

	start(64 * MIB, 64 * MIB);
	atomic_store(&wire.keep_persist, true);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	await(atomic_load(&wire.has_kept), true);
	atomic_store(&wire.keep_persist, false);
	start_sleepers(v);
	before = stats().persists;
	m = msg_new(MSG_SSD_PERSIST);
	ck_assert_int_eq(msg_alloc_items(m, 1), 0);
	m->items[0] = wire.kept;
	wire.notice(wire.arg, m);
	msg_free(m);
	await(stats().persists, before + 1);
	faulty_hold(&faulty, 0);
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		ck_assert_int_eq(wait_for(&sleepers[i]), 0);
		version_read_done(&sleepers[i].read);
		version_close(v[i]);
	}
	stop();
}
END_TEST

/* The ring overwrites a copy and nobody hears of it: who opens the value finds out, and its name goes. */
START_TEST(a_lost_notice_is_made_up_for)
{
	struct put *other;
	struct node_entry e;
	struct waiter w;
	char name[16];

	start(32 * MIB, 8 * MIB);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("a", NODE_TIER_DRAM), 0);
	atomic_store(&lose_notices, true);
	for (uint32_t i = 0; i < 16; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(put_value(name, i, 1, MIB), 0);
	}
	await(stats().persists, 17);
	ck_assert_int_eq(lookup("a", &e), 0);
	/* Also while another value is being published. */
	other = create("other");
	ck_assert_int_eq(write_at(other, 0, "x", 1), 0);
	waiter_init(&w);
	atomic_store(&wire.keep_publish, true);
	put_flush(other, false, done_cb, &w);
	await(atomic_load(&wire.has_publish), true);
	ck_assert_int_eq(get_value("a", 1), -ENOENT);
	await(stats().stale_routes, 1);
	channel_call(wire.real, wire.publish, wire.publish_done, wire.publish_arg);
	ck_assert_int_eq(wait_for(&w), 0);
	release(other);
	ck_assert_int_eq(unlink_name("other"), 0);
	for (uint32_t i = 0; i < 16; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(get_value(name, i), 1);
		ck_assert_int_eq(unlink_name(name), 0);
	}
	check_empty();
	stop();
}
END_TEST

/* The master alone is told: what is leased here stays, as when its word of a change is still on its way. */
static void rename_at_master(const char *from, const char *to)
{
	struct msg *m = msg_new(MSG_RENAME);
	struct waiter w;

	m->u.rename.from_dir = m->u.rename.to_dir = ns_dir;
	strcpy(m->u.rename.from, from);
	strcpy(m->u.rename.to, to);
	waiter_init(&w);
	node_call(node, m, answer_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
}

/* Who was told that a name is not there must not then be told that it is. */
static void told_that_it_is_gone(void)
{
	struct node_entry e;

	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	ck_assert_int_eq(put_value("b", 2, 1, MIB), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(lookup("b", &e), 0);
	rename_at_master("a", "c");
	rename_at_master("b", "d");
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(unlink_name("a"), -ENOENT);
	ck_assert_int_eq(lookup("a", &e), -ENOENT);
	ck_assert_int_eq(lookup("b", &e), 0);
	ck_assert_int_eq(rename_name("b", "e"), -ENOENT);
	ck_assert_int_eq(lookup("b", &e), -ENOENT);
	ck_assert_int_eq(unlink_name("c"), 0);
	ck_assert_int_eq(unlink_name("d"), 0);
}

/* Beside a private version of another name, too: names go another way then. */
START_TEST(a_lease_is_not_believed_against_the_master)
{
	struct put *p;

	start(32 * MIB, 0);
	told_that_it_is_gone();
	p = create("other");
	told_that_it_is_gone();
	release(p);
	ck_assert_int_eq(unlink_name("other"), 0);
	check_empty();
	stop();
}
END_TEST

/* The device fails between the write and the master's answer: the copy in memory is the only one. */
START_TEST(a_copy_is_lost_while_it_is_committed)
{
	start(32 * MIB, 32 * MIB);
	atomic_store(&wire.lose_copy, true);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	await(stats().persists, 1);
	/* What is committed later is answered later. */
	ck_assert_int_eq(put_value("b", 2, 1, MIB), 0);
	await(stats().persists, 2);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("b", NODE_TIER_DRAM), 0);
	ck_assert_int_eq(evict("a", NODE_TIER_DRAM), -EBUSY);
	ck_assert_int_eq(get_value("a", 1), 1);
	ck_assert_int_eq(unlink_name("a"), 0);
	ck_assert_int_eq(unlink_name("b"), 0);
	check_empty();
	stop();
}
END_TEST

/* Readers do not wait for ever; what the device brings later is as good as ever, and nothing is left of it. */
START_TEST(a_device_that_does_not_answer)
{
	struct node_entry e;
	struct version *v;
	struct waiter w;
	uint64_t from;

	leg_deadline_ms = 200;
	start(32 * MIB, 32 * MIB);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("a", NODE_TIER_DRAM), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(version_open(node, &e.attr, &v), 0);
	faulty_hold(&faulty, FAULTY_READ);
	for (int i = 0; i < 3; i++) {
		from = clock_ns();
		waiter_init(&w);
		version_read(v, 0, MIB, read_cb, &w);
		ck_assert_int_eq(wait_for(&w), -EIO);
		/* The first has waited; while the device is silent nobody does it again. */
		ck_assert(i ? clock_ns() - from < 200 * NS_PER_MS : clock_ns() - from >= 200 * NS_PER_MS);
	}
	ck_assert_uint_eq(stats().miss_timeout, 1);
	ck_assert_uint_eq(stats().dram_reserved, MIB);
	faulty_hold(&faulty, 0);
	await(stats().refills, 1);
	await(!stats().dram_reserved, true);
	ck_assert_int_eq(check_version(v, 1), 1);
	version_close(v);
	ck_assert_int_eq(get_value("a", 1), 1);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	/* It fails in the end, and the node stops meanwhile. */
	ck_assert_int_eq(put_value("b", 2, 1, MIB), 0);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("b", NODE_TIER_DRAM), 0);
	faulty_hold(&faulty, FAULTY_READ);
	ck_assert_int_eq(get_value("b", 2), -EIO);
	faulty_fail(&faulty, FAULTY_READ, 0, 1, -EIO, -1);
	faulty_hold(&faulty, 0);
	stop();
}
END_TEST

/* As a_device_that_does_not_answer, for those who change the value. */
START_TEST(editors_and_a_silent_device)
{
	struct node_entry e;
	struct waiter w;
	uint64_t from;

	leg_deadline_ms = 200;
	start(8 * MIB, 32 * MIB);
	ck_assert_int_eq(put_value("a", 1, 1, MIB), 0);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("a", NODE_TIER_DRAM), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	faulty_hold(&faulty, FAULTY_READ);
	for (int i = 0; i < 16; i++) {
		waiter_init(&w);
		put_edit(node, ns_dir, "a", &e.attr, false, put_cb, &w);
		ck_assert_int_eq(wait_for(&w), 0);
		ck_assert_int_eq(put_open(w.put, true), 0);
		from = clock_ns();
		ck_assert_int_eq(write_at(w.put, 8, &from, 8), -EIO);
		ck_assert(i ? clock_ns() - from < 200 * NS_PER_MS : clock_ns() - from >= 200 * NS_PER_MS);
		release(w.put);
	}
	ck_assert_uint_eq(stats().miss_timeout, 1);
	await(!stats().dram_reserved, true);
	faulty_hold(&faulty, 0);
	await(get_value("a", 1) == 1, true);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	stop();
}
END_TEST

/* A device that brings a value piece by piece, the whole later than the deadline, is slow and not silent. */
START_TEST(a_device_that_is_slow)
{
	struct node_entry e;
	struct version *v;
	struct waiter w;

	leg_deadline_ms = 400;
	start(32 * MIB, 64 * MIB);
	ck_assert_int_eq(put_value("a", 1, 1, 8 * MIB), 0);
	await(stats().ssd_objects, 1);
	ck_assert_int_eq(evict("a", NODE_TIER_DRAM), 0);
	ck_assert_int_eq(lookup("a", &e), 0);
	ck_assert_int_eq(version_open(node, &e.attr, &v), 0);
	faulty_hold(&faulty, FAULTY_READ);
	waiter_init(&w);
	version_read(v, 0, MIB, read_cb, &w);
	for (int i = 0; i < 8; i++) {
		usleep(150000);
		faulty_release(&faulty, FAULTY_READ);
	}
	ck_assert_int_eq(wait_for(&w), 0);
	version_read_done(&w.read);
	ck_assert_uint_eq(stats().miss_timeout, 0);
	faulty_hold(&faulty, 0);
	version_close(v);
	ck_assert_int_eq(get_value("a", 1), 1);
	ck_assert_int_eq(unlink_name("a"), 0);
	check_empty();
	stop();
}
END_TEST

/* Reads so many values, and counts those that are right (*ret_ok) and those whose device is silent. */
static unsigned read_all(unsigned n, unsigned *ret_ok)
{
	unsigned silent = 0;
	char name[16];

	*ret_ok = 0;
	for (unsigned i = 0; i < n; i++) {
		int r;

		snprintf(name, sizeof(name), "v%u", i);
		r = get_value(name, i);
		ck_assert_msg(r == 1 || r == -EIO, "value %u: %d", i, r);
		*ret_ok += r == 1;
		silent += r == -EIO;
	}
	return silent;
}

static void *put_on(void *arg)
{
	atomic_bool *over = arg;

	while (!atomic_load(over)) {
		ck_assert_int_eq(put_value("other", 9, 1, MIB), 0);
		usleep(10000); /* slowly: the ring is not to come round */
	}
	return NULL;
}

/* One device is silent, and another gets a lot done: whoever reads from the first does not wait for the second to end.
 */
START_TEST(one_silent_device_of_two)
{
	atomic_bool over = false;
	pthread_t writer;
	char name[16];
	unsigned ok;

	if (!second_ssd[0])
		return;
	two_devices = true;
	leg_deadline_ms = 200;
	persist_backlog = 8 * MIB;
	start(64 * MIB, 256 * MIB);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		ck_assert_int_eq(put_value(name, i, 1, MIB), 0);
		await(stats().ssd_objects, i + 1);
		ck_assert_int_eq(evict(name, NODE_TIER_DRAM), 0);
	}
	faulty_hold_device(&faulty, FAULTY_READ | FAULTY_WRITE, 1);
	ck_assert_int_eq(pthread_create(&writer, NULL, put_on, &over), 0);
	ck_assert_uint_eq(read_all(4, &ok), 2);
	ck_assert_uint_eq(ok, 2);
	atomic_store(&over, true);
	pthread_join(writer, NULL);
	faulty_hold(&faulty, 0);
	await(stats().refills, 4);
	/* On a busy machine it may seem silent once more. */
	for (int i = 0; i < 20 && read_all(4, &ok); i++)
		usleep(100000);
	ck_assert_uint_eq(ok, 4);
	stop();
}
END_TEST

START_TEST(ssd_holds_what_memory_cannot)
{
	char name[16];
	struct node_stats s;

	start(16 * MIB, 128 * MIB);
	for (uint32_t i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(put_value(name, i, 3, MIB - 128), 0);
	}
	for (uint32_t i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_msg(get_value(name, i) == 3, "value %u is lost", i);
	}
	s = stats();
	ck_assert_uint_eq(s.hits_mem_local + s.hits_ssd_local, 64);
	ck_assert_uint_gt(s.hits_ssd_local, 0);
	ck_assert_uint_gt(s.refills, 0);
	ck_assert_uint_eq(s.checksum_errors, 0);
	for (uint32_t i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(unlink_name(name), 0);
	}
	check_empty();
	stop();
}
END_TEST

/* The names below are those of a namespace with blocks of 2 MiB from now on. */
static void make_large(void)
{
	struct msg *m;
	struct waiter w;

	m = msg_new(MSG_NS_CREATE);
	strcpy(m->u.ns.name, "large");
	m->u.ns.mask = MSG_NS_BLOCK_SIZE;
	m->u.ns.block_size = 2 * MIB;
	m->u.ns.mode = 0755;
	waiter_init(&w);
	node_call(node, m, answer_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	waiter_init(&w);
	node_lookup(node, MSG_ROOT_DIR, "large", entry_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ns_dir = w.e.attr.id;
}

/* A file of several blocks that is larger than memory: its older blocks are on the SSD tier before it is closed. */
START_TEST(larger_than_memory)
{
	struct node_entry e;
	struct waiter w;
	struct put *p;
	uint64_t word;

	start(16 * MIB, 160 * MIB);
	make_large();
	ck_assert_int_eq(put_value("big", 9, 1, 48 * MIB), 0);
	ck_assert_int_eq(get_value("big", 9), 1);
	/* An edit of one word copies the rest, and what was spilled can be read and written again before the close. */
	ck_assert_int_eq(lookup("big", &e), 0);
	waiter_init(&w);
	put_edit(node, ns_dir, "big", &e.attr, false, put_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	p = w.put;
	ck_assert_int_eq(put_open(p, true), 0);
	word = 77;
	ck_assert_int_eq(write_at(p, 40 * MIB, &word, 8), 0);
	waiter_init(&w);
	put_read(p, 0, &word, 8, put_read_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_uint_eq(word, 9ull << 48 | 1ull << 32);
	word = 9ull << 48 | 1ull << 32;
	ck_assert_int_eq(write_at(p, 0, &word, 8), 0);
	word |= 40 * MIB / 8;
	ck_assert_int_eq(write_at(p, 40 * MIB, &word, 8), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(get_value("big", 9), 1);
	ck_assert_int_eq(unlink_name("big"), 0);
	check_empty();
	stop();
}
END_TEST

/* Each would fit half of the memory, and all together do not fit all of it. */
START_TEST(several_large_files_at_once)
{
	uint64_t *buf = malloc(MIB);
	struct put *p[4];
	char name[16];

	start(16 * MIB, 160 * MIB);
	make_large();
	for (uint32_t k = 0; k < 4; k++) {
		snprintf(name, sizeof(name), "big%u", k);
		p[k] = create(name);
	}
	for (uint64_t off = 0; off < 12 * MIB; off += MIB)
		for (uint32_t k = 0; k < 4; k++) {
			stamp(buf, MIB / 8, k, 1, off / 8);
			ck_assert_int_eq(write_at(p[k], off, buf, MIB), 0);
		}
	for (uint32_t k = 0; k < 4; k++) {
		ck_assert_int_eq(flush(p[k]), 0);
		release(p[k]);
	}
	for (uint32_t k = 0; k < 4; k++) {
		snprintf(name, sizeof(name), "big%u", k);
		ck_assert_int_eq(get_value(name, k), 1);
		ck_assert_int_eq(unlink_name(name), 0);
	}
	check_empty();
	stop();
	free(buf);
}
END_TEST

static int read_word(struct put *p, uint64_t *ret)
{
	struct waiter w;

	waiter_init(&w);
	put_read(p, 0, ret, sizeof(*ret), put_read_cb, &w);
	return wait_for(&w);
}

/* A writer does not wait for ever for a device that is silent, neither out nor back. */
START_TEST(a_silent_device_and_a_large_file)
{
	struct put *p;
	uint64_t *buf = malloc(MIB), word;

	leg_deadline_ms = 200;
	start(16 * MIB, 160 * MIB);
	make_large();
	faulty_hold(&faulty, FAULTY_WRITE);
	ck_assert_int_eq(put_value("big", 9, 1, 48 * MIB), -ENOSPC);
	faulty_hold(&faulty, 0);
	/* What was written before is there. */
	ck_assert_int_eq(get_value("big", 9), 1);
	ck_assert_int_eq(unlink_name("big"), 0);
	check_empty();
	p = create("big");
	for (uint64_t off = 0; off < 24 * MIB; off += MIB) {
		stamp(buf, MIB / 8, 9, 1, off / 8);
		ck_assert_int_eq(write_at(p, off, buf, MIB), 0);
	}
	faulty_hold(&faulty, FAULTY_READ);
	ck_assert_int_eq(read_word(p, &word), -EIO);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(read_word(p, &word), -EIO);
	/* One has waited, and taken memory for it. */
	ck_assert_uint_eq(stats().miss_timeout, 1);
	faulty_hold(&faulty, 0);
	await(read_word(p, &word) == 0, true);
	ck_assert_uint_eq(word, 9ull << 48 | 1ull << 32);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(get_value("big", 9), 1);
	ck_assert_int_eq(unlink_name("big"), 0);
	check_empty();
	stop();
	free(buf);
}
END_TEST

/* Four times what both tiers hold goes through; what is pinned stays, wherever it is. */
static void set_pin(const char *name, bool on)
{
	struct node_entry e;
	struct waiter w;

	ck_assert_int_eq(lookup(name, &e), 0);
	ck_assert_ptr_null(e.put);
	e.attr.flags = on ? MSG_ATTR_PIN : 0;
	waiter_init(&w);
	node_setattr(node, &e.attr, MSG_SET_PIN, entry_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
}

static void write_and_publish(struct put *p, uint32_t value, uint32_t version)
{
	uint64_t *buf = malloc(MIB);

	stamp(buf, MIB / 8, value, version, 0);
	ck_assert_int_eq(write_at(p, 0, buf, MIB), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	free(buf);
}

/* Pinned before its first publish. */
static void put_pinned(const char *name, uint32_t value)
{
	struct msg_attr a = {.flags = MSG_ATTR_PIN};
	struct put *p = create(name);
	struct waiter w;

	waiter_init(&w);
	put_setattr(p, &a, MSG_SET_PIN, done_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	write_and_publish(p, value, 1);
}

/* A pinned value is written anew. */
static void overwrite(const char *name, uint32_t value)
{
	struct node_entry e;
	struct waiter w;

	ck_assert_int_eq(lookup(name, &e), 0);
	waiter_init(&w);
	put_edit(node, ns_dir, name, &e.attr, true, put_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	ck_assert_int_eq(put_open(w.put, true), 0);
	write_and_publish(w.put, value, 2);
}

START_TEST(a_pin_keeps_the_last_copy)
{
	char name[16];

	start(16 * MIB, 24 * MIB);
	ck_assert_int_eq(put_value("pinned", 500, 1, MIB), 0);
	ck_assert_int_eq(put_value("plain", 501, 1, MIB), 0);
	set_pin("pinned", true);
	put_pinned("born", 502);
	ck_assert_int_eq(put_value("again", 503, 1, MIB), 0);
	set_pin("again", true);
	overwrite("again", 503);
	for (uint32_t i = 0; i < 160; i++) {
		snprintf(name, sizeof(name), "f%u", i % 100);
		ck_assert_int_eq(put_value(name, i % 100, 1, MIB), 0);
	}
	ck_assert_int_eq(get_value("pinned", 500), 1);
	ck_assert_int_eq(get_value("born", 502), 1);
	ck_assert_int_eq(get_value("again", 503), 2);
	ck_assert_int_eq(get_value("plain", 501), -ENOENT);
	set_pin("pinned", false);
	for (uint32_t i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		unlink_name(name);
	}
	ck_assert_int_eq(unlink_name("pinned"), 0);
	ck_assert_int_eq(unlink_name("born"), 0);
	ck_assert_int_eq(unlink_name("again"), 0);
	check_empty();
	stop();
}
END_TEST

static void wait_persisted(const struct msg_attr *a)
{
	struct node_replicas r = {0};

	for (int i = 0; i < 1000 && (r.in_ssd < r.blocks || !r.blocks); i++) {
		ck_assert_int_eq(node_replicas(node, a, &r), 0);
		usleep(5000);
	}
	ck_assert_uint_eq(r.in_ssd, r.blocks);
}

/*
 * More writes than there are jobs wait for a truncate, which keeps a part of a block that only the tier has: somebody
 * else brings it in. (Whole blocks are read straight into the put's own files.)
 */
START_TEST(a_refill_needs_no_free_job)
{
	struct node_entry e;
	uint64_t word = 7;
	struct waiter w, cut;
	struct put *p;

	start(64 * MIB, 64 * MIB);
	make_large();
	ck_assert_int_eq(put_value("big", 9, 1, 6 * MIB), 0);
	ck_assert_int_eq(lookup("big", &e), 0);
	wait_persisted(&e.attr);
	ck_assert_int_eq(evict("big", NODE_TIER_DRAM), 0);
	waiter_init(&w);
	put_edit(node, ns_dir, "big", &e.attr, false, put_cb, &w);
	ck_assert_int_eq(wait_for(&w), 0);
	p = w.put;
	ck_assert_int_eq(put_open(p, true), 0);
	faulty_hold(&faulty, FAULTY_READ);
	waiter_init(&cut);
	put_truncate(p, 5 * MIB, done_cb, &cut);
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		waiter_init(&sleepers[i]);
		put_write(p, 8 * i, &word, sizeof(word), written_cb, copied_cb, &sleepers[i]);
	}
	faulty_wait_held(&faulty, 1);
	usleep(200000); /* for the others to take what threads there are */
	faulty_hold(&faulty, 0);
	ck_assert_int_eq(wait_for(&cut), 0);
	for (uint32_t i = 0; i < SLEEPERS; i++)
		ck_assert_int_eq(wait_for(&sleepers[i]), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(unlink_name("big"), 0);
	check_empty();
	stop();
}
END_TEST

/* A writer that takes its time keeps its put, however short the deadline. */
START_TEST(a_slow_writer_keeps_its_put)
{
	struct put *p;

	put_deadline_ms = 5000;
	start(64 * MIB, 0);
	p = create("slow");
	ck_assert_int_eq(write_at(p, 0, "early", 5), 0);
	usleep(7500000);
	ck_assert_int_eq(write_at(p, 5, "late", 4), 0);
	ck_assert_int_eq(flush(p), 0);
	release(p);
	ck_assert_int_eq(unlink_name("slow"), 0);
	check_empty();
	stop();
}
END_TEST

/* Of two that ask at once for both copies of a value, and do not force it, one is refused. */
START_TEST(both_tiers_evicted_at_once_keep_the_value)
{
	struct waiter dram, ssd;
	struct node_entry e;
	int both = 0;

	start(64 * MIB, 128 * MIB);
	for (uint32_t i = 0; i < 500; i++) {
		int a, b;

		ck_assert_int_eq(put_value("v", 7, i, 4096), 0);
		ck_assert_int_eq(lookup("v", &e), 0);
		wait_persisted(&e.attr);
		waiter_init(&dram);
		waiter_init(&ssd);
		node_evict(node, &e.attr, NODE_TIER_DRAM, false, done_cb, &dram);
		node_evict(node, &e.attr, NODE_TIER_SSD, false, done_cb, &ssd);
		a = wait_for(&dram);
		b = wait_for(&ssd);
		ck_assert_msg(a == 0 || a == -EBUSY, "dram: %d", a);
		ck_assert_msg(b == 0 || b == -EBUSY, "ssd: %d", b);
		both += a == 0 && b == 0;
		ck_assert_int_eq(get_value("v", 7), (int)i);
	}
	ck_assert_int_eq(both, 0);
	ck_assert_int_eq(unlink_name("v"), 0);
	check_empty();
	stop();
}
END_TEST

struct reader {
	struct version *v;
	atomic_bool stop;
	unsigned reads;
};

static void *read_on(void *arg)
{
	struct reader *rd = arg;

	for (; !atomic_load(&rd->stop); rd->reads++)
		ck_assert_int_ge(check_version(rd->v, 7), 0);
	return NULL;
}

static uint64_t dram_used_soon(uint64_t want)
{
	for (int i = 0; i < 500 && stats().dram_used != want; i++)
		usleep(10000);
	return stats().dram_used;
}

/* Evicted while it is read, a copy goes with the read, not with the open file: that one can have it from the SSD. */
START_TEST(what_was_evicted_is_not_kept_by_an_open_file)
{
	struct reader rd = {.stop = false};
	struct node_entry e;
	struct waiter w;
	pthread_t thread;
	int r;

	start(64 * MIB, 128 * MIB);
	for (uint32_t i = 0; i < 20; i++) {
		ck_assert_int_eq(put_value("v", 7, i, 4096), 0);
		ck_assert_int_eq(lookup("v", &e), 0);
		wait_persisted(&e.attr);
		ck_assert_int_eq(version_open(node, &e.attr, &rd.v), 0);
		atomic_store(&rd.stop, false);
		ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &rd), 0);
		for (int k = 0; k < 50; k++) {
			waiter_init(&w);
			node_evict(node, &e.attr, NODE_TIER_DRAM, false, done_cb, &w);
			r = wait_for(&w);
			ck_assert_msg(r == 0 || r == -EBUSY || r == -ENODATA, "%d", r);
		}
		atomic_store(&rd.stop, true);
		pthread_join(thread, NULL);
		waiter_init(&w);
		node_evict(node, &e.attr, NODE_TIER_DRAM, false, done_cb, &w);
		r = wait_for(&w);
		ck_assert_msg(r == 0 || r == -ENODATA, "%d", r);
		ck_assert_uint_eq(dram_used_soon(0), 0);
		ck_assert_int_eq(check_version(rd.v, 7), (int)i);
		version_close(rd.v);
	}
	ck_assert_uint_gt(rd.reads, 1000);
	ck_assert_int_eq(unlink_name("v"), 0);
	check_empty();
	stop();
}
END_TEST

#define CHURN_NAMES 40
#define CHURN_THREADS 4

static atomic_uint churn_gets, churn_misses;

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uint32_t version = 0;

	for (int i = 0; i < 300; i++) {
		uint32_t value = (uint32_t)rand_r(&seed) % CHURN_NAMES;
		/* Each thread writes names of its own; all read all. */
		uint32_t mine = value - value % CHURN_THREADS + (uint32_t)(uintptr_t)arg % CHURN_THREADS;
		char name[16], other[16];
		int r;

		snprintf(name, sizeof(name), "c%u", mine);
		snprintf(other, sizeof(other), "c%u", value);
		switch (rand_r(&seed) % 6) {
		case 0:
		case 1:
			r = put_value(name, mine, ++version, (rand_r(&seed) % 8 + 1) * 131072);
			ck_assert_msg(r == 0, "put: %s", strerror(-r));
			break;
		case 2:
			r = unlink_name(name);
			ck_assert_msg(r == 0 || r == -ENOENT, "unlink: %s", strerror(-r));
			break;
		default:
			r = get_value(other, value);
			ck_assert_msg(r >= 0 || r == -ENOENT || r == -ETIMEDOUT, "get: %s", strerror(-r));
			atomic_fetch_add(r >= 0 ? &churn_gets : &churn_misses, 1);
			break;
		}
	}
	return NULL;
}

static void run_churn(uint64_t dram, uint64_t ssd)
{
	pthread_t t[CHURN_THREADS];
	struct node_stats s;
	char name[16];

	start(dram, ssd);
	atomic_store(&churn_gets, 0);
	for (size_t i = 0; i < CHURN_THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (size_t i = 0; i < CHURN_THREADS; i++)
		pthread_join(t[i], NULL);
	s = stats();
	ck_assert_uint_eq(s.hits_unknown, 0);
	ck_assert_uint_ge(s.hits_mem_local + s.hits_ssd_local, atomic_load(&churn_gets));
	for (uint32_t i = 0; i < CHURN_NAMES; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		unlink_name(name);
	}
	check_empty();
	stop();
}

START_TEST(churn_in_memory)
{
	run_churn(128 * MIB, 0);
}
END_TEST

START_TEST(churn_with_eviction)
{
	run_churn(12 * MIB, 0);
}
END_TEST

START_TEST(churn_with_ssd)
{
	run_churn(12 * MIB, 24 * MIB);
}
END_TEST

static void make_second_ssd(void)
{
	snprintf(second_ssd, sizeof(second_ssd), "%s/second", base);
	if (mkdir(second_ssd, 0700) == 0 && mount("fluxkv-node", second_ssd, "tmpfs", 0, NULL) == 0 &&
	    direct_in(second_ssd))
		return;
	umount2(second_ssd, MNT_DETACH);
	second_ssd[0] = '\0';
}

int main(void)
{
	Suite *s = suite_create("node");
	TCase *tc = tcase_create("node"), *evict = tcase_create("evict"), *churn_tc = tcase_create("churn");
	int failed;

	/* What is tested is not the disk: memory, where that takes O_DIRECT (a tmpfs since Linux 6.6). */
	strcpy(base, direct_in("/dev/shm") ? "/dev/shm/fluxkv-node-XXXXXX" : "/var/tmp/fluxkv-node-XXXXXX");
	base_make(base);
	make_second_ssd();
	tcase_set_timeout(tc, 300);
	tcase_set_timeout(evict, 300);
	tcase_set_timeout(churn_tc, 300);
	tcase_add_test(tc, put_get_delete);
	tcase_add_test(tc, a_holder_keeps_its_version);
	tcase_add_test(tc, a_drop_said_twice_is_over_once);
	tcase_add_test(tc, a_write_after_publish_is_a_new_version);
	tcase_add_test(tc, an_answered_write_is_there);
	tcase_add_test(tc, an_answered_write_that_is_lost_is_told);
	tcase_add_test(tc, attributes_change_during_a_publish);
	tcase_add_test(tc, killed_writers_and_empty_files);
	tcase_add_test(tc, sparse_truncate_rename);
	tcase_add_test(tc, directories_show_private_names_once);
	tcase_add_test(evict, an_end_waits_for_no_writer);
	tcase_add_test(evict, no_room_is_said_at_the_write);
	tcase_add_test(evict, ssd_holds_what_memory_cannot);
	tcase_add_test(evict, a_pin_keeps_the_last_copy);
	tcase_add_test(evict, a_slow_writer_keeps_its_put);
	tcase_add_test(evict, both_tiers_evicted_at_once_keep_the_value);
	tcase_add_test(evict, what_was_evicted_is_not_kept_by_an_open_file);
	tcase_add_test(tc, larger_than_memory);
	tcase_add_test(tc, several_large_files_at_once);
	tcase_add_test(churn_tc, churn_in_memory);
	tcase_add_test(churn_tc, churn_with_eviction);
	tcase_add_test(churn_tc, churn_with_ssd);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, evict);
	suite_add_tcase(s, churn_tc);
	tc = tcase_create("tier");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, the_backlog_has_its_limit);
	tcase_add_test(tc, a_copy_needs_no_job);
	tcase_add_test(tc, a_refill_needs_no_free_job);
	tcase_add_test(tc, a_lost_notice_is_made_up_for);
	tcase_add_test(tc, a_lease_is_not_believed_against_the_master);
	tcase_add_test(tc, a_copy_is_lost_while_it_is_committed);
	tcase_add_test(tc, a_device_that_does_not_answer);
	tcase_add_test(tc, editors_and_a_silent_device);
	tcase_add_test(tc, a_device_that_is_slow);
	tcase_add_test(tc, one_silent_device_of_two);
	tcase_add_test(tc, a_silent_device_and_a_large_file);
	suite_add_tcase(s, tc);
	failed = run_suite(s);
	umount2(second_ssd, MNT_DETACH);
	base_remove(base);
	return failed;
}
