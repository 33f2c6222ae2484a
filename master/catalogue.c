/* SPDX-License-Identifier: Apache-2.0 */
#include "master/catalogue.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "master/schema.h"

enum statement {
	ST_BEGIN,
	ST_COMMIT,
	ST_ROLLBACK,
	ST_COUNTER,
	ST_NAMESPACE,
	ST_NAMESPACE_GONE,
	ST_DIR,
	ST_DIR_GONE,
	ST_OBJECT,
	ST_OBJECT_GONE,
	ST_REPLICA,
	ST_REPLICA_GONE,
	ST_REPLICAS_GONE,
	ST_DIR_XATTRS,
	ST_DIR_XATTRS_GONE,
	ST_OBJECT_XATTRS,
	ST_OBJECT_XATTRS_GONE,
	ST_MEMBER,
	ST_N
};

static const char *const sql[ST_N] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_COUNTER] = "INSERT OR REPLACE INTO counters VALUES('id', ?)",
    [ST_NAMESPACE] =
	"INSERT OR REPLACE INTO namespaces(number, name, root_dir, kind, block_size, ttl_seconds, persist) "
	"VALUES(?, ?, ?, ?, ?, ?, ?)",
    [ST_NAMESPACE_GONE] = "DELETE FROM namespaces WHERE number = ?",
    [ST_DIR] = "INSERT OR REPLACE INTO dirs(id, parent, name, cookie, ns, mode, uid, gid, mtime, ctime, atime) "
	       "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [ST_DIR_GONE] = "DELETE FROM dirs WHERE id = ?",
    [ST_OBJECT] = "INSERT OR REPLACE INTO objects(put_id, dir, name, cookie, storage_id, size, block_shift, mode, uid, "
		  "gid, mtime, ctime, atime, expires, flags, home, alloc, tiers) "
		  "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [ST_OBJECT_GONE] = "DELETE FROM objects WHERE put_id = ?",
    [ST_REPLICA] = "INSERT OR REPLACE INTO replicas(put_id, block, node, alloc, tiers) VALUES(?, ?, ?, ?, ?)",
    [ST_REPLICA_GONE] = "DELETE FROM replicas WHERE put_id = ? AND block = ? AND node = ?",
    [ST_REPLICAS_GONE] = "DELETE FROM replicas WHERE put_id = ?",
    [ST_DIR_XATTRS] = "INSERT OR REPLACE INTO dir_xattrs VALUES(?, ?)",
    [ST_DIR_XATTRS_GONE] = "DELETE FROM dir_xattrs WHERE id = ?",
    [ST_OBJECT_XATTRS] = "INSERT OR REPLACE INTO object_xattrs VALUES(?, ?)",
    [ST_OBJECT_XATTRS_GONE] = "DELETE FROM object_xattrs WHERE id = ?",
    [ST_MEMBER] = "INSERT OR REPLACE INTO members(node, instance_key, tomb_tag, capacity, ssd_capacity) "
		  "VALUES(?, ?, ?, ?, ?)",
};

/* Whole tables at once: SQLite frees their pages without looking at the rows. */
static const char clear_objects[] = "DELETE FROM objects; DELETE FROM replicas; DELETE FROM object_xattrs;";

struct catalogue {
	sqlite3 *db;
	char *path;
	sqlite3_stmt *st[ST_N];
};

/*
 * locking_mode comes before WAL, so that the WAL's index is private memory and no transaction takes a file lock. The
 * WAL is copied back when it has 16 MiB; smaller steps would stop the writer more often for the same pages.
 */
static const char *const pragmas[] = {
    "PRAGMA locking_mode=EXCLUSIVE",  "PRAGMA journal_mode=WAL",  "PRAGMA synchronous=OFF",
    "PRAGMA wal_autocheckpoint=4096", "PRAGMA cache_size=-16384", "PRAGMA temp_store=MEMORY",
};

static int open_error(const struct catalogue *cat, int rc, struct errmsg *e)
{
	switch (rc & 0xff) {
	case SQLITE_NOTADB:
		return errmsg_set(e, -EBADMSG, "catalogue %s: not a database", cat->path);
	case SQLITE_BUSY:
		return errmsg_set(e, -EBUSY, "catalogue %s: in use by another process", cat->path);
	case SQLITE_CORRUPT:
		return errmsg_set(e, -EBADMSG, "catalogue %s: damaged; move it away to begin with an empty one",
				  cat->path);
	default:
		return errmsg_set(e, sqlite_errno(rc), "catalogue %s: %s", cat->path, sqlite3_errmsg(cat->db));
	}
}

static int set_up(struct catalogue *cat, struct errmsg *e)
{
	int rc = SQLITE_OK, r;

	for (size_t k = 0; k < sizeof(pragmas) / sizeof(pragmas[0]) && rc == SQLITE_OK; k++)
		rc = sqlite3_exec(cat->db, pragmas[k], NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return open_error(cat, rc, e);
	r = schema_prepare(cat->db, cat->path, e);
	if (r == -EBUSY)
		return open_error(cat, SQLITE_BUSY, e);
	for (int k = 0; k < ST_N && !r; k++) {
		rc = sqlite3_prepare_v3(cat->db, sql[k], -1, SQLITE_PREPARE_PERSISTENT, &cat->st[k], NULL);
		if (rc != SQLITE_OK)
			r = open_error(cat, rc, e);
	}
	return r;
}

int catalogue_open(const char *path, struct catalogue **ret, struct errmsg *e)
{
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
	struct catalogue *cat = calloc(1, sizeof(*cat));
	int rc, r;

	if (cat)
		cat->path = strdup(path);
	if (!cat || !cat->path) {
		catalogue_close(cat);
		return errmsg_set(e, -ENOMEM, "catalogue %s: out of memory", path);
	}
	rc = sqlite3_open_v2(path, &cat->db, flags, NULL);
	r = rc == SQLITE_OK ? set_up(cat, e) : open_error(cat, rc, e);
	if (r < 0) {
		catalogue_close(cat);
		return r;
	}
	*ret = cat;
	return 0;
}

struct catalogue *catalogue_close(struct catalogue *cat)
{
	if (!cat)
		return NULL;
	for (int k = 0; k < ST_N; k++)
		sqlite3_finalize(cat->st[k]);
	/* The last connection copies the WAL back and removes it. */
	sqlite3_close(cat->db);
	free(cat->path);
	free(cat);
	return NULL;
}

static int run(struct catalogue *cat, enum statement k)
{
	int rc = sqlite3_step(cat->st[k]);

	/* reset gives the step's error once more; what matters is that the statement can be used again */
	sqlite3_reset(cat->st[k]);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void bind_int(struct catalogue *cat, enum statement k, int at, uint64_t v)
{
	sqlite3_bind_int64(cat->st[k], at, (sqlite3_int64)v);
}

/* The bytes stay where they are until the statement has run. */
static void bind_data(struct catalogue *cat, enum statement k, int at, const struct write_rec *rec)
{
	sqlite3_bind_blob64(cat->st[k], at, rec->len ? (const void *)rec->data : "", rec->len, SQLITE_STATIC);
}

static int run_key(struct catalogue *cat, enum statement k, uint64_t id)
{
	bind_int(cat, k, 1, id);
	return run(cat, k);
}

static int apply_namespace(struct catalogue *cat, const struct write_rec *rec)
{
	const struct write_ns *w = &rec->u.ns;
	const enum statement k = ST_NAMESPACE;

	bind_int(cat, k, 1, w->number);
	bind_data(cat, k, 2, rec);
	bind_int(cat, k, 3, w->root_dir);
	bind_int(cat, k, 4, w->kind);
	bind_int(cat, k, 5, w->block_size);
	bind_int(cat, k, 6, w->ttl_seconds);
	bind_int(cat, k, 7, w->persist);
	return run(cat, k);
}

static int apply_dir(struct catalogue *cat, const struct write_rec *rec)
{
	const struct write_inode *w = &rec->u.inode;
	const enum statement k = ST_DIR;

	bind_int(cat, k, 1, w->id);
	bind_int(cat, k, 2, w->parent);
	bind_data(cat, k, 3, rec);
	bind_int(cat, k, 4, w->cookie);
	bind_int(cat, k, 5, w->ns);
	bind_int(cat, k, 6, w->mode);
	bind_int(cat, k, 7, w->uid);
	bind_int(cat, k, 8, w->gid);
	bind_int(cat, k, 9, (uint64_t)w->mtime_ns);
	bind_int(cat, k, 10, (uint64_t)w->ctime_ns);
	bind_int(cat, k, 11, (uint64_t)w->atime_ns);
	return run(cat, k);
}

static int apply_dir_gone(struct catalogue *cat, const struct write_key *key)
{
	int rc = run_key(cat, ST_DIR_GONE, key->id);

	return rc == SQLITE_OK && (key->flags & WRITE_OF_XATTRS) ? run_key(cat, ST_DIR_XATTRS_GONE, key->id) : rc;
}

static int apply_object(struct catalogue *cat, const struct write_rec *rec)
{
	const struct write_inode *w = &rec->u.inode;
	const enum statement k = ST_OBJECT;

	bind_int(cat, k, 1, w->id);
	bind_int(cat, k, 2, w->parent);
	bind_data(cat, k, 3, rec);
	bind_int(cat, k, 4, w->cookie);
	bind_int(cat, k, 5, w->storage_id);
	bind_int(cat, k, 6, w->size);
	bind_int(cat, k, 7, w->block_shift);
	bind_int(cat, k, 8, w->mode);
	bind_int(cat, k, 9, w->uid);
	bind_int(cat, k, 10, w->gid);
	bind_int(cat, k, 11, (uint64_t)w->mtime_ns);
	bind_int(cat, k, 12, (uint64_t)w->ctime_ns);
	bind_int(cat, k, 13, (uint64_t)w->atime_ns);
	bind_int(cat, k, 14, (uint64_t)w->expires_ns);
	bind_int(cat, k, 15, w->flags);
	bind_int(cat, k, 16, w->home);
	bind_int(cat, k, 17, w->alloc);
	bind_int(cat, k, 18, w->tiers);
	return run(cat, k);
}

static int apply_object_gone(struct catalogue *cat, const struct write_key *key)
{
	int rc = run_key(cat, ST_OBJECT_GONE, key->id);

	if (rc == SQLITE_OK && (key->flags & WRITE_OF_MULTI))
		rc = run_key(cat, ST_REPLICAS_GONE, key->id);
	if (rc == SQLITE_OK && (key->flags & WRITE_OF_XATTRS))
		rc = run_key(cat, ST_OBJECT_XATTRS_GONE, key->id);
	return rc;
}

static int apply_replica(struct catalogue *cat, const struct write_replica *w, bool gone)
{
	const enum statement k = gone ? ST_REPLICA_GONE : ST_REPLICA;

	bind_int(cat, k, 1, w->put_id);
	bind_int(cat, k, 2, w->block);
	bind_int(cat, k, 3, w->node);
	if (!gone) {
		bind_int(cat, k, 4, w->alloc);
		bind_int(cat, k, 5, w->tiers);
	}
	return run(cat, k);
}

static int apply_xattrs(struct catalogue *cat, const struct write_rec *rec)
{
	bool dir = rec->u.key.flags & WRITE_OF_DIR;
	enum statement k = dir ? ST_DIR_XATTRS : ST_OBJECT_XATTRS;

	if (!rec->len)
		return run_key(cat, dir ? ST_DIR_XATTRS_GONE : ST_OBJECT_XATTRS_GONE, rec->u.key.id);
	bind_int(cat, k, 1, rec->u.key.id);
	bind_data(cat, k, 2, rec);
	return run(cat, k);
}

static int apply_member(struct catalogue *cat, const struct write_rec *rec)
{
	const struct write_member *w = &rec->u.member;
	const enum statement k = ST_MEMBER;

	bind_int(cat, k, 1, w->node);
	bind_data(cat, k, 2, rec);
	bind_int(cat, k, 3, w->tomb_tag);
	bind_int(cat, k, 4, w->capacity);
	bind_int(cat, k, 5, w->ssd_capacity);
	return run(cat, k);
}

static int apply(struct catalogue *cat, const struct write_rec *rec)
{
	switch (rec->type) {
	case WRITE_COUNTER:
		return run_key(cat, ST_COUNTER, rec->u.counter);
	case WRITE_NAMESPACE:
		return apply_namespace(cat, rec);
	case WRITE_NAMESPACE_GONE:
		return run_key(cat, ST_NAMESPACE_GONE, rec->u.key.id);
	case WRITE_DIR:
		return apply_dir(cat, rec);
	case WRITE_DIR_GONE:
		return apply_dir_gone(cat, &rec->u.key);
	case WRITE_OBJECT:
		return apply_object(cat, rec);
	case WRITE_OBJECT_GONE:
		return apply_object_gone(cat, &rec->u.key);
	case WRITE_REPLICA:
		return apply_replica(cat, &rec->u.replica, false);
	case WRITE_REPLICA_GONE:
		return apply_replica(cat, &rec->u.replica, true);
	case WRITE_XATTRS:
		return apply_xattrs(cat, rec);
	case WRITE_MEMBER:
		return apply_member(cat, rec);
	case WRITE_OBJECTS_CLEAR:
		return sqlite3_exec(cat->db, clear_objects, NULL, NULL, NULL);
	case WRITE_TYPES:
		break;
	}
	return SQLITE_MISUSE;
}

static int apply_all(struct catalogue *cat, const struct writes *w)
{
	const struct write_rec *rec;
	size_t pos = 0;
	int rc = run(cat, ST_BEGIN);

	/* Records are whole rows, so it does no harm that a batch which failed late is applied again. */
	while (rc == SQLITE_OK && (rec = writes_next(w, &pos)))
		rc = apply(cat, rec);
	return rc == SQLITE_OK ? run(cat, ST_COMMIT) : rc;
}

int catalogue_apply(struct catalogue *cat, const struct writes *w, struct errmsg *e)
{
	int rc, r;

	if (!w->n)
		return 0;
	rc = apply_all(cat, w);
	if (rc == SQLITE_OK)
		return 0;
	r = errmsg_set(e, sqlite_errno(rc), "catalogue %s: %s", cat->path, sqlite3_errmsg(cat->db));
	/* Some errors have rolled it back already, and then another one would be an error of its own. */
	if (!sqlite3_get_autocommit(cat->db))
		run(cat, ST_ROLLBACK);
	return r ? r : -EIO;
}

/* ---- loading ----------------------------------------------------------------------------------------------- */

static uint64_t column(sqlite3_stmt *st, int at)
{
	return (uint64_t)sqlite3_column_int64(st, at);
}

static void column_data(sqlite3_stmt *st, int at, struct write_rec *rec)
{
	rec->data = sqlite3_column_blob(st, at);
	rec->len = (uint32_t)sqlite3_column_bytes(st, at);
}

static void read_counter(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.counter = column(st, 0);
}

static void read_dir(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.inode = (struct write_inode){
	    .id = column(st, 0),
	    .parent = column(st, 1),
	    .cookie = column(st, 3),
	    .ns = (uint32_t)column(st, 4),
	    .mode = (uint32_t)column(st, 5),
	    .uid = (uint32_t)column(st, 6),
	    .gid = (uint32_t)column(st, 7),
	    .mtime_ns = (int64_t)column(st, 8),
	    .ctime_ns = (int64_t)column(st, 9),
	    .atime_ns = (int64_t)column(st, 10),
	};
	column_data(st, 2, rec);
}

static void read_namespace(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.ns = (struct write_ns){
	    .number = (uint32_t)column(st, 0),
	    .root_dir = column(st, 2),
	    .kind = (uint32_t)column(st, 3),
	    .block_size = column(st, 4),
	    .ttl_seconds = column(st, 5),
	    .persist = (uint32_t)column(st, 6),
	};
	column_data(st, 1, rec);
}

static void read_object(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.inode = (struct write_inode){
	    .id = column(st, 0),
	    .parent = column(st, 1),
	    .cookie = column(st, 3),
	    .storage_id = column(st, 4),
	    .size = column(st, 5),
	    .block_shift = (uint8_t)column(st, 6),
	    .mode = (uint32_t)column(st, 7),
	    .uid = (uint32_t)column(st, 8),
	    .gid = (uint32_t)column(st, 9),
	    .mtime_ns = (int64_t)column(st, 10),
	    .ctime_ns = (int64_t)column(st, 11),
	    .atime_ns = (int64_t)column(st, 12),
	    .expires_ns = (int64_t)column(st, 13),
	    .flags = (uint8_t)column(st, 14),
	    .home = (uint32_t)column(st, 15),
	    .alloc = column(st, 16),
	    .tiers = (uint8_t)column(st, 17),
	};
	column_data(st, 2, rec);
}

static void read_replica(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.replica = (struct write_replica){
	    .put_id = column(st, 0),
	    .block = (uint32_t)column(st, 1),
	    .node = (uint32_t)column(st, 2),
	    .alloc = column(st, 3),
	    .tiers = (uint8_t)column(st, 4),
	};
}

static void read_xattrs(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.key.id = column(st, 0);
	column_data(st, 1, rec);
}

static void read_member(sqlite3_stmt *st, struct write_rec *rec)
{
	rec->u.member = (struct write_member){
	    .node = (uint32_t)column(st, 0),
	    .tomb_tag = column(st, 2),
	    .capacity = column(st, 3),
	    .ssd_capacity = column(st, 4),
	};
	column_data(st, 1, rec);
}

struct source {
	const char *sql;
	enum write_type type;
	void (*read)(sqlite3_stmt *st, struct write_rec *rec);
	bool objects; /* only when objects are loaded */
};

/* In the order that core_load() wants. */
static const struct source sources[] = {
    {"SELECT value FROM counters WHERE name = 'id'", WRITE_COUNTER, read_counter, false},
    {"SELECT id, parent, name, cookie, ns, mode, uid, gid, mtime, ctime, atime FROM dirs", WRITE_DIR, read_dir, false},
    {"SELECT number, name, root_dir, kind, block_size, ttl_seconds, persist FROM namespaces", WRITE_NAMESPACE,
     read_namespace, false},
    {"SELECT put_id, dir, name, cookie, storage_id, size, block_shift, mode, uid, gid, mtime, ctime, atime, expires, "
     "flags, home, alloc, tiers FROM objects",
     WRITE_OBJECT, read_object, true},
    {"SELECT put_id, block, node, alloc, tiers FROM replicas", WRITE_REPLICA, read_replica, true},
    {"SELECT id, data FROM dir_xattrs", WRITE_XATTRS, read_xattrs, false},
    {"SELECT id, data FROM object_xattrs", WRITE_XATTRS, read_xattrs, true},
    {"SELECT node, instance_key, tomb_tag, capacity, ssd_capacity FROM members", WRITE_MEMBER, read_member, false},
};

static int load_rows(struct catalogue *cat, struct core *core, const struct source *s, sqlite3_stmt *st,
		     struct errmsg *e)
{
	int rc, r;

	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct write_rec rec = {.type = s->type};

		s->read(st, &rec);
		r = core_load(core, &rec);
		if (r == -EBADMSG)
			return errmsg_set(e, r, "catalogue %s: damaged: a row of it contradicts others (%s)", cat->path,
					  s->sql);
		if (r < 0)
			return errmsg_set(e, r, "catalogue %s: out of memory, or of a limit, while loading", cat->path);
	}
	return rc == SQLITE_DONE ? 0 : open_error(cat, rc, e);
}

static int load_source(struct catalogue *cat, struct core *core, const struct source *s, struct errmsg *e)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(cat->db, s->sql, -1, &st, NULL), r;

	if (rc != SQLITE_OK)
		return open_error(cat, rc, e);
	r = load_rows(cat, core, s, st, e);
	sqlite3_finalize(st);
	return r;
}

static int drop_objects(struct catalogue *cat, struct errmsg *e)
{
	struct writes w = {0};
	const struct write_rec rec = {.type = WRITE_OBJECTS_CLEAR};
	int r = writes_add(&w, &rec);

	r = r < 0 ? errmsg_set(e, r, "catalogue %s: out of memory", cat->path) : catalogue_apply(cat, &w, e);
	writes_free(&w);
	return r;
}

int catalogue_load(struct catalogue *cat, struct core *core, bool objects, struct errmsg *e)
{
	int r = objects ? 0 : drop_objects(cat, e);

	for (size_t k = 0; k < sizeof(sources) / sizeof(sources[0]) && !r; k++)
		if (objects || !sources[k].objects)
			r = load_source(cat, core, &sources[k], e);
	return r;
}
