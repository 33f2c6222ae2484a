/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue: what it keeps, what it refuses, and that nothing it said it has is lost to a kill or a failing disk.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "master/catalogue.h"
#include "master/schema.h"
#include "tests/unit/bad_vfs.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"

static char path[96];

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

static void set_up(void)
{
	temp_dir_empty();
	snprintf(path, sizeof(path), "%s/catalogue.db", temp_dir);
}

/* ---- helpers ----------------------------------------------------------------------------------------------- */

static struct catalogue *must_open(void)
{
	struct catalogue *cat = NULL;
	struct errmsg e = {""};
	int r = catalogue_open(path, &cat, &e);

	if (r < 0 && !in_child)
		ck_abort_msg("%s", e.text);
	MUST(!r);
	return cat;
}

static void refused(int err, const char *word)
{
	struct catalogue *cat;
	struct errmsg e = {""};
	int r = catalogue_open(path, &cat, &e);

	ck_assert_int_eq(r, err);
	ck_assert_msg(strstr(e.text, word) && strstr(e.text, path) && !strchr(e.text, '\n'), "%s", e.text);
}

static void add(struct writes *w, struct write_rec rec, const char *data)
{
	rec.data = (const uint8_t *)data;
	rec.len = data ? (uint32_t)strlen(data) : 0;
	MUST(!writes_add(w, &rec));
}

static struct write_rec object(uint64_t id, uint64_t parent)
{
	return (struct write_rec){.type = WRITE_OBJECT,
				  .u.inode = {.id = id,
					      .parent = parent,
					      .cookie = id,
					      .storage_id = id - 1,
					      .size = 4000,
					      .mtime_ns = -5,
					      .expires_ns = INT64_MAX,
					      .mode = S_IFREG | 0600,
					      .uid = UINT32_MAX,
					      .ns = 1,
					      .home = 1,
					      .tiers = 1,
					      .alloc = id + 1,
					      .block_shift = 12}};
}

/* A namespace "a" with its root directory 10. */
static void base(struct writes *w)
{
	add(w, (struct write_rec){.type = WRITE_COUNTER, .u.counter = 1000000}, NULL);
	add(w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 10, .parent = 1, .cookie = 10, .mode = 0755}},
	    "a");
	add(w,
	    (struct write_rec){.type = WRITE_NAMESPACE,
			       .u.ns = {.number = 1, .root_dir = 10, .block_size = 4096, .persist = 1}},
	    "a");
}

static void must_apply(struct catalogue *cat, struct writes *w)
{
	struct errmsg e;

	ck_assert_msg(!catalogue_apply(cat, w, &e), "%s", e.text);
	writes_free(w);
}

static struct core *load_core(struct catalogue *cat, bool objects)
{
	const struct core_config cfg = {0};
	struct core *c = core_new(&cfg);
	struct core_out out = {0};
	struct errmsg e;
	char why[128];

	ck_assert_msg(!catalogue_load(cat, c, objects, &e), "%s", e.text);
	ck_assert(!core_load_end(c, &out));
	ck_assert_msg(!core_check(c, why, sizeof(why)), "%s", why);
	core_out_clear(&out);
	return c;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The state as sorted text, one record a line. */
static char *describe(struct core *c)
{
	struct writes w = {0};
	const struct write_rec *rec;
	char *lines[256], *text;
	size_t pos = 0, n = 0, len = 1;

	ck_assert(!core_dump(c, &w));
	while ((rec = writes_next(&w, &pos))) {
		const struct write_inode *i = &rec->u.inode;

		ck_assert_uint_lt(n, 256);
		if (rec->type == WRITE_DIR || rec->type == WRITE_OBJECT)
			ck_assert_int_gt(asprintf(&lines[n],
						  "%d %llu in %llu cookie %llu size %llu sid %llu mtime %lld exp %lld "
						  "mode %o uid %u home %u tiers %u alloc %llu flags %u %.*s\n",
						  rec->type, (unsigned long long)i->id, (unsigned long long)i->parent,
						  (unsigned long long)i->cookie, (unsigned long long)i->size,
						  (unsigned long long)i->storage_id, (long long)i->mtime_ns,
						  (long long)i->expires_ns, i->mode, i->uid, i->home, i->tiers,
						  (unsigned long long)i->alloc, i->flags, (int)rec->len, rec->data),
					 0);
		else if (rec->type == WRITE_REPLICA)
			ck_assert_int_gt(asprintf(&lines[n], "replica %llu %u %u %llu %u\n",
						  (unsigned long long)rec->u.replica.put_id, rec->u.replica.block,
						  rec->u.replica.node, (unsigned long long)rec->u.replica.alloc,
						  rec->u.replica.tiers),
					 0);
		else
			ck_assert_int_gt(asprintf(&lines[n], "%d %llu len %u %.*s\n", rec->type,
						  rec->type == WRITE_COUNTER ? 0ull : (unsigned long long)rec->u.key.id,
						  rec->len, (int)rec->len, rec->data),
					 0);
		len += strlen(lines[n++]);
	}
	qsort(lines, n, sizeof(lines[0]), by_bytes);
	text = calloc(1, len);
	for (size_t k = 0; k < n; k++) {
		strcat(text, lines[k]);
		free(lines[k]);
	}
	writes_free(&w);
	return text;
}

static void exec_sql(const char *sql)
{
	sqlite3 *db;
	char *msg = NULL;

	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, &msg) == SQLITE_OK, "%s", msg);
	sqlite3_close(db);
}

static void write_file(const char *bytes, size_t len)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq((int)write(fd, bytes, len), (int)len);
	close(fd);
}

/* ---- what it keeps ----------------------------------------------------------------------------------------- */

START_TEST(everything_comes_back)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct write_rec rec;
	struct core *c;
	char *text;

	base(&w);
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 12, .parent = 10, .cookie = 12, .mode = 0700}},
	    "sub");
	/* a child with a lower id than its parent: it was renamed into it */
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 11, .parent = 12, .cookie = 40}}, "in");
	add(&w, object(20, 10), "x");
	add(&w, object(30, 11), "\xff\x01");
	rec = object(50, 12);
	rec.u.inode.size = 4096 * 2 + 1;
	rec.u.inode.tiers = 0;
	rec.u.inode.alloc = 0;
	rec.u.inode.flags = WRITE_OF_MULTI | WRITE_OF_PIN;
	add(&w, rec, "big");
	for (uint32_t b = 0; b < 3; b++)
		add(&w, (struct write_rec){.type = WRITE_REPLICA, .u.replica = {50, 60 + b, b, 1, 1}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_REPLICA, .u.replica = {50, 70, 1, 2, 3}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_MEMBER, .u.member = {5, 1000, 0, 1}}, "key");
	must_apply(cat, &w);
	catalogue_close(cat);
	cat = must_open();
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_str_eq(
	    text,
	    "0 0 len 0 \n"
	    "1 10 len 1 a\n"
	    "10 5 len 3 key\n"
	    "3 1 in 0 cookie 0 size 0 sid 0 mtime 0 exp 0 mode 40755 uid 0 home 0 tiers 0 alloc 0 flags 8 \n"
	    "3 10 in 1 cookie 10 size 0 sid 0 mtime 0 exp 0 mode 40755 uid 0 home 0 tiers 0 alloc 0 flags 8 a\n"
	    "3 11 in 12 cookie 40 size 0 sid 0 mtime 0 exp 0 mode 40000 uid 0 home 0 tiers 0 alloc 0 flags 8 in\n"
	    "3 12 in 10 cookie 12 size 0 sid 0 mtime 0 exp 0 mode 40700 uid 0 home 0 tiers 0 alloc 0 flags 8 sub\n"
	    "5 20 in 10 cookie 20 size 4000 sid 19 mtime -5 exp 9223372036854775807 mode 100600 uid 4294967295 home 1 "
	    "tiers 1 alloc 21 flags 0 x\n"
	    "5 30 in 11 cookie 30 size 4000 sid 29 mtime -5 exp 9223372036854775807 mode 100600 uid 4294967295 home 1 "
	    "tiers 1 alloc 31 flags 0 \xff\x01\n"
	    "5 50 in 12 cookie 50 size 8193 sid 49 mtime -5 exp 9223372036854775807 mode 100600 uid 4294967295 home 1 "
	    "tiers 0 alloc 0 flags 3 big\n"
	    "replica 50 0 1 60 1\n"
	    "replica 50 1 1 61 1\n"
	    "replica 50 1 2 70 3\n"
	    "replica 50 2 1 62 1\n");
	free(text);
	core_free(c);
	/* without objects they are gone from the file too, directories are not */
	c = load_core(cat, false);
	core_free(c);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_null(strstr(text, "\n5 "));
	ck_assert_ptr_null(strstr(text, "replica"));
	ck_assert_ptr_nonnull(strstr(text, "3 11 in 12"));
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

START_TEST(what_is_gone_is_gone)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct write_rec rec = object(50, 10);
	struct core *c;
	char *text;

	base(&w);
	rec.u.inode.size = 4096 + 1;
	rec.u.inode.tiers = 0;
	rec.u.inode.flags = WRITE_OF_MULTI;
	add(&w, rec, "big");
	add(&w, (struct write_rec){.type = WRITE_REPLICA, .u.replica = {50, 60, 0, 1, 1}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_REPLICA, .u.replica = {50, 61, 1, 1, 1}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 12, .parent = 10, .cookie = 12}}, "sub");
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 13, .parent = 1, .cookie = 13}}, "b");
	add(&w, (struct write_rec){.type = WRITE_NAMESPACE, .u.ns = {.number = 2, .root_dir = 13, .block_size = 4096}},
	    "b");
	must_apply(cat, &w);
	add(&w, (struct write_rec){.type = WRITE_OBJECT_GONE, .u.key = {50, WRITE_OF_MULTI}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_DIR_GONE, .u.key = {12, WRITE_OF_DIR}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_NAMESPACE_GONE, .u.key = {2, 0}}, NULL);
	add(&w, (struct write_rec){.type = WRITE_DIR_GONE, .u.key = {13, WRITE_OF_DIR}}, NULL);
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_str_eq(
	    text, "0 0 len 0 \n"
		  "1 10 len 1 a\n"
		  "3 1 in 0 cookie 0 size 0 sid 0 mtime 0 exp 0 mode 40755 uid 0 home 0 tiers 0 alloc 0 flags 8 \n"
		  "3 10 in 1 cookie 10 size 0 sid 0 mtime 0 exp 0 mode 40755 uid 0 home 0 tiers 0 alloc 0 flags 8 a\n");
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

/* A route that has rows of its own keeps them, also when one replica is left that would fit the object's row. */
START_TEST(a_route_in_rows_stays_in_rows)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct write_rec rec = object(50, 10);
	struct core *c;
	char *text;

	base(&w);
	rec.u.inode.tiers = 0;
	rec.u.inode.alloc = 0;
	rec.u.inode.flags = WRITE_OF_MULTI;
	add(&w, rec, "x");
	add(&w, (struct write_rec){.type = WRITE_REPLICA, .u.replica = {50, 60, 0, 1, 1}}, NULL);
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "tiers 0 alloc 0 flags 1 x"));
	ck_assert_ptr_nonnull(strstr(text, "replica 50 0 1 60 1"));
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

START_TEST(xattrs_go_with_what_has_them)
{
	static const char blob[] = {1, 1, 0, 0, 0, 'n', 'v'};
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct write_rec x = {.type = WRITE_XATTRS, .len = sizeof(blob), .data = (const uint8_t *)blob};
	struct core *c;
	char *text;

	base(&w);
	add(&w, object(20, 10), "x");
	add(&w, object(21, 10), "y");
	x.u.key = (struct write_key){20, 0};
	ck_assert(!writes_add(&w, &x));
	x.u.key = (struct write_key){21, 0};
	ck_assert(!writes_add(&w, &x));
	x.u.key = (struct write_key){10, WRITE_OF_DIR};
	ck_assert(!writes_add(&w, &x));
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "9 10 len 7"));
	ck_assert_ptr_nonnull(strstr(text, "9 20 len 7"));
	free(text);
	core_free(c);
	/* the object's go with the object */
	add(&w, (struct write_rec){.type = WRITE_OBJECT_GONE, .u.key = {20, WRITE_OF_XATTRS}}, NULL);
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_null(strstr(text, "9 20 len 7"));
	ck_assert_ptr_nonnull(strstr(text, "9 21 len 7"));
	free(text);
	core_free(c);
	/* the directory's stay, also over a start without objects */
	core_free(load_core(cat, false));
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "9 10 len 7"));
	ck_assert_ptr_null(strstr(text, "9 21 len 7"));
	free(text);
	core_free(c);
	/* an empty set is none */
	add(&w, (struct write_rec){.type = WRITE_XATTRS, .u.key = {10, WRITE_OF_DIR}}, NULL);
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_null(strstr(text, "9 10 len 7"));
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

START_TEST(a_batch_that_fails_leaves_nothing)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct errmsg e = {""};
	struct core *c;
	char *text;

	base(&w);
	add(&w, object(20, 10), "x");
	add(&w, (struct write_rec){.type = WRITE_TYPES}, NULL); /* no such record */
	ck_assert_int_lt(catalogue_apply(cat, &w, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, path));
	writes_clear(&w);
	base(&w);
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "1 10 len 1 a"));
	ck_assert_ptr_null(strstr(text, "5 20 in"));
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

START_TEST(a_file_of_contradictions_loads_what_hangs_together)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	struct core *c;
	struct core_counts n;
	char *text;

	base(&w);
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 20, .parent = 21, .cookie = 20}}, "circle");
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 21, .parent = 20, .cookie = 21}}, "circle");
	add(&w, (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 22, .parent = 999, .cookie = 22}}, "lost");
	add(&w, object(30, 22), "in-lost");
	add(&w, object(31, 1), "outside");
	add(&w, object(32, 10), "twice");
	add(&w, object(33, 10), "twice");
	add(&w, object(34, 32), "in-object");
	must_apply(cat, &w);
	c = load_core(cat, true);
	core_counts(c, &n);
	ck_assert_uint_eq(n.objects, 1);
	ck_assert_uint_eq(n.directories, 2);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "5 32 in 10"));
	free(text);
	core_free(c);
	catalogue_close(cat);
}
END_TEST

/* ---- what it refuses --------------------------------------------------------------------------------------- */

START_TEST(older_layouts_are_brought_up_to_date)
{
	struct catalogue *cat;
	struct core *c;
	struct writes w = {0};
	char *text;

	exec_sql(
	    "PRAGMA application_id=1179342385;"
	    "CREATE TABLE schema(version INTEGER NOT NULL); INSERT INTO schema VALUES(0);"
	    "CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
	    "INSERT INTO counters VALUES('id', 500);"
	    "CREATE TABLE namespaces(number INTEGER PRIMARY KEY, name BLOB, root_dir INTEGER, kind INTEGER, "
	    "block_size INTEGER);"
	    "INSERT INTO namespaces VALUES(1, CAST('a' AS BLOB), 10, 0, 8192);"
	    "CREATE TABLE dirs(id INTEGER PRIMARY KEY, parent INTEGER, name BLOB, cookie INTEGER, ns INTEGER, mode "
	    "INTEGER, uid INTEGER, gid INTEGER, mtime INTEGER, ctime INTEGER, atime INTEGER, UNIQUE(parent, name));"
	    "INSERT INTO dirs VALUES(10, 1, CAST('a' AS BLOB), 10, 1, 493, 3, 4, 5, 6, 7);");
	cat = must_open();
	add(&w, object(20, 10), "x");
	must_apply(cat, &w);
	c = load_core(cat, true);
	text = describe(c);
	ck_assert_ptr_nonnull(strstr(text, "1 10 len 1 a"));
	ck_assert_ptr_nonnull(strstr(text, "3 10 in 1 cookie 10 size 0 sid 0 mtime 5 exp 0 mode 40755 uid 3"));
	ck_assert_ptr_nonnull(strstr(text, "5 20 in 10"));
	free(text);
	core_free(c);
	catalogue_close(cat);
	/* once only */
	catalogue_close(must_open());
}
END_TEST

START_TEST(what_is_not_a_catalogue_is_refused)
{
	char junk[8192];

	memset(junk, 'x', sizeof(junk));
	write_file(junk, sizeof(junk));
	refused(-EBADMSG, "not a database");
	unlink(path);
	exec_sql("CREATE TABLE t(x)");
	refused(-EBADMSG, "some other program");
	unlink(path);
	catalogue_close(must_open());
	exec_sql("UPDATE schema SET version = 2");
	refused(-EPROTONOSUPPORT, "newer version");
	exec_sql("DELETE FROM schema");
	refused(-EBADMSG, "does not tell its version");
	exec_sql("DROP TABLE schema");
	refused(-EBADMSG, "does not tell its version");
	unlink(path);
	snprintf(path, sizeof(path), "%s/no/such/place", temp_dir);
	refused(-EIO, "unable to open");
	snprintf(path, sizeof(path), "%s", temp_dir);
	refused(-EIO, "unable to open");
	snprintf(path, sizeof(path), "%s/catalogue.db", temp_dir);
}
END_TEST

START_TEST(a_damaged_file_is_refused_in_one_line)
{
	struct catalogue *cat = must_open();
	struct writes w = {0};
	char junk[16384], name[32];
	const struct core_config cfg = {0};
	struct core *c = core_new(&cfg);
	struct errmsg e = {""};
	int fd, r;

	base(&w);
	for (uint64_t k = 0; k < 2000; k++) {
		snprintf(name, sizeof(name), "d%llu", (unsigned long long)k);
		add(&w,
		    (struct write_rec){.type = WRITE_DIR, .u.inode = {.id = 100 + k, .parent = 10, .cookie = 100 + k}},
		    name);
	}
	must_apply(cat, &w);
	catalogue_close(cat);
	fd = open(path, O_WRONLY);
	memset(junk, 0x5a, sizeof(junk));
	ck_assert_int_eq((int)pwrite(fd, junk, sizeof(junk), 65536), (int)sizeof(junk));
	close(fd);
	r = catalogue_open(path, &cat, &e);
	if (!r) {
		r = catalogue_load(cat, c, false, &e);
		catalogue_close(cat);
	}
	ck_assert_int_eq(r, -EBADMSG);
	ck_assert_msg(strstr(e.text, "damaged") && strstr(e.text, path), "%s", e.text);
	core_free(c);
}
END_TEST

START_TEST(one_process_at_a_time)
{
	struct catalogue *cat = must_open();
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct catalogue *other;
		struct errmsg e = {""};
		int r = catalogue_open(path, &other, &e);

		_exit(r == -EBUSY && strstr(e.text, "in use by another process") ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	catalogue_close(cat);
	catalogue_close(must_open());
}
END_TEST

/* ---- kill -9 ----------------------------------------------------------------------------------------------- */

#define KEEP_OBJECTS 10u

/* Batch n makes object n, ends object n - KEEP_OBJECTS and sets the counter to n: what is there tells which it was. */
static void batch(struct writes *w, uint64_t n)
{
	char name[32];

	writes_clear(w);
	if (n == 1)
		base(w);
	snprintf(name, sizeof(name), "o%llu", (unsigned long long)n);
	add(w, object(1000 + n, 10), name);
	if (n > KEEP_OBJECTS)
		add(w, (struct write_rec){.type = WRITE_OBJECT_GONE, .u.key = {1000 + n - KEEP_OBJECTS, 0}}, NULL);
	add(w, (struct write_rec){.type = WRITE_COUNTER, .u.counter = 1000000 + n}, NULL);
}

/* Which batch was the last; checks that all of it is there and nothing of the next. */
static uint64_t last_batch(void)
{
	struct catalogue *cat = must_open();
	struct core *c = load_core(cat, true);
	struct writes w = {0};
	const struct write_rec *rec;
	struct core_counts n;
	size_t pos = 0;
	uint64_t last;

	core_counts(c, &n);
	last = n.next_id > 1000000 ? n.next_id - 1000000 : 0;
	ck_assert_uint_eq(n.objects, last < KEEP_OBJECTS ? last : KEEP_OBJECTS);
	ck_assert(!core_dump(c, &w));
	while ((rec = writes_next(&w, &pos)))
		if (rec->type == WRITE_OBJECT) {
			ck_assert_uint_le(rec->u.inode.id, 1000 + last);
			ck_assert_uint_gt(rec->u.inode.id + KEEP_OBJECTS, 1000 + last);
		}
	writes_free(&w);
	core_free(c);
	catalogue_close(cat);
	return last;
}

static void kill_child_writes(int fd, uint64_t n)
{
	struct writes w = {0};
	struct catalogue *cat;
	struct errmsg e;

	in_child = true;
	die_with_parent();
	cat = must_open();
	for (;;) {
		batch(&w, n);
		if (catalogue_apply(cat, &w, &e) < 0 || write(fd, &n, sizeof(n)) != sizeof(n))
			_exit(1);
		n++;
	}
}

/* Everything acknowledged before the kill is there, and at most the one batch that was under way besides. */
START_TEST(nothing_acknowledged_is_lost_to_a_kill)
{
	uint64_t done = 0, n;
	unsigned rnd = 4711;

	for (int round = 0; round < 60; round++) {
		int pipe_fd[2], status;
		uint64_t there;
		pid_t pid;

		ck_assert(!pipe(pipe_fd));
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			close(pipe_fd[0]);
			kill_child_writes(pipe_fd[1], done + 1);
		}
		close(pipe_fd[1]);
		/* Once it has begun, however slow the machine is. */
		ck_assert_int_eq((int)read(pipe_fd[0], &done, sizeof(done)), (int)sizeof(done));
		rnd = rnd * 1103515245 + 12345;
		usleep((rnd >> 8) % 15000);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status));
		while (read(pipe_fd[0], &n, sizeof(n)) == sizeof(n))
			done = n;
		close(pipe_fd[0]);
		there = last_batch();
		ck_assert_msg(there == done || there == done + 1, "acknowledged %llu, there is %llu",
			      (unsigned long long)done, (unsigned long long)there);
		done = there;
	}
	ck_assert_uint_ge(done, 60);
}
END_TEST

/* ---- a disk that fails ------------------------------------------------------------------------------------- */

/* Batches until one fails or there have been enough. Returns the last that succeeded; opening may fail too. */
static uint64_t run_batches(uint64_t enough, bool retry)
{
	struct catalogue *cat;
	struct writes w = {0};
	struct errmsg e = {""};
	uint64_t n = 0;

	if (catalogue_open(path, &cat, &e) < 0) {
		ck_assert_uint_ne(strlen(e.text), 0);
		return 0;
	}
	while (n < enough) {
		batch(&w, n + 1);
		if (!catalogue_apply(cat, &w, &e)) {
			n++;
			continue;
		}
		ck_assert_uint_ne(strlen(e.text), 0);
		if (!retry)
			break;
	}
	writes_free(&w);
	catalogue_close(cat);
	return n;
}

#define SOME_BATCHES 14u

/* The loop's number: the first half fails once, the other for good; odd ones with a full disk, even ones with an I/O
 * error. */
START_TEST(every_write_fails_in_turn)
{
	int64_t total;

	bad_install();
	ck_assert_uint_eq(run_batches(SOME_BATCHES, false), SOME_BATCHES);
	total = bad.writes;
	ck_assert_int_gt(total, 50);
	for (int64_t k = 0; k < 2 * total; k++) {
		uint64_t done, there;
		bool once = k < total;

		temp_dir_empty();
		bad.countdown = k % total;
		bad.sticky = !once;
		bad.error = k % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
		done = run_batches(SOME_BATCHES, once);
		bad.countdown = -1;
		there = last_batch();
		/* what failed once is there after the retry; what failed for good may be there, but not what came
		 * behind */
		ck_assert_msg(there == done || (!once && there == done + 1), "write %lld: done %llu, there %llu",
			      (long long)k, (unsigned long long)done, (unsigned long long)there);
	}
	bad_uninstall();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master/catalogue");
	TCase *tc = tcase_create("catalogue");

	tcase_add_unchecked_fixture(tc, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, everything_comes_back);
	tcase_add_test(tc, what_is_gone_is_gone);
	tcase_add_test(tc, a_route_in_rows_stays_in_rows);
	tcase_add_test(tc, xattrs_go_with_what_has_them);
	tcase_add_test(tc, a_batch_that_fails_leaves_nothing);
	tcase_add_test(tc, a_file_of_contradictions_loads_what_hangs_together);
	tcase_add_test(tc, older_layouts_are_brought_up_to_date);
	tcase_add_test(tc, what_is_not_a_catalogue_is_refused);
	tcase_add_test(tc, a_damaged_file_is_refused_in_one_line);
	tcase_add_test(tc, one_process_at_a_time);
	tcase_add_test(tc, nothing_acknowledged_is_lost_to_a_kill);
	tcase_add_test(tc, every_write_fails_in_turn);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
