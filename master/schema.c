/* SPDX-License-Identifier: Apache-2.0 */
#include "master/schema.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

/* Names and keys are bytes, so they are BLOBs. WITHOUT ROWID where the key is not one integer. */
#define TABLES_V1                                                                                                      \
	"CREATE TABLE dir_xattrs(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"                                         \
	"CREATE TABLE objects(put_id INTEGER PRIMARY KEY, dir INTEGER, name BLOB, cookie INTEGER, storage_id "         \
	"INTEGER, "                                                                                                    \
	"size INTEGER, block_shift INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, mtime INTEGER, ctime INTEGER, "    \
	"atime INTEGER, expires INTEGER, flags INTEGER, home INTEGER, alloc INTEGER, tiers INTEGER);"                  \
	"CREATE TABLE replicas(put_id INTEGER, block INTEGER, node INTEGER, alloc INTEGER, tiers INTEGER, "            \
	"PRIMARY KEY(put_id, block, node)) WITHOUT ROWID;"                                                             \
	"CREATE TABLE object_xattrs(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"                                      \
	"CREATE TABLE members(node INTEGER PRIMARY KEY, instance_key BLOB, tomb_tag INTEGER, capacity INTEGER, "       \
	"ssd_capacity INTEGER);"

static const char fresh[] =
    "CREATE TABLE schema(version INTEGER NOT NULL);"
    "INSERT INTO schema VALUES(1);"
    "CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE namespaces(number INTEGER PRIMARY KEY, name BLOB, root_dir INTEGER, kind INTEGER, "
    "block_size INTEGER, ttl_seconds INTEGER NOT NULL DEFAULT 0, persist INTEGER NOT NULL DEFAULT 1);"
    "CREATE TABLE dirs(id INTEGER PRIMARY KEY, parent INTEGER, name BLOB, cookie INTEGER, ns INTEGER, mode INTEGER, "
    "uid INTEGER, gid INTEGER, mtime INTEGER, ctime INTEGER, atime INTEGER, UNIQUE(parent, name));" TABLES_V1;

/* migrations[v] makes version v + 1 of version v. Version 0 kept namespaces and directories only. */
static const char *const migrations[SCHEMA_VERSION] = {
    "ALTER TABLE namespaces ADD COLUMN ttl_seconds INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE namespaces ADD COLUMN persist INTEGER NOT NULL DEFAULT 1;" TABLES_V1,
};

int sqlite_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
	case SQLITE_ROW:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
		return -EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	default:
		return -EIO;
	}
}

/* One integer that a statement gives; fallback if it gives none. */
static int query_int(sqlite3 *db, const char *sql, int64_t fallback, int64_t *ret)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(st);
	*ret = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : fallback;
	sqlite3_finalize(st);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int set_application_id(sqlite3 *db)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "PRAGMA application_id=%d", SCHEMA_APPLICATION_ID);
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int make_fresh(sqlite3 *db)
{
	int rc = set_application_id(db);

	return rc == SQLITE_OK ? sqlite3_exec(db, fresh, NULL, NULL, NULL) : rc;
}

static int migrate(sqlite3 *db, int64_t version)
{
	char sql[64];
	int rc = SQLITE_OK;

	for (; rc == SQLITE_OK && version < SCHEMA_VERSION; version++)
		rc = sqlite3_exec(db, migrations[version], NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return rc;
	snprintf(sql, sizeof(sql), "UPDATE schema SET version=%d", SCHEMA_VERSION);
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int prepare(sqlite3 *db, const char *path, struct errmsg *e)
{
	int64_t tables, app, version;
	int rc = query_int(db, "SELECT count(*) FROM sqlite_schema", 0, &tables);

	if (rc == SQLITE_OK)
		rc = query_int(db, "PRAGMA application_id", 0, &app);
	if (rc != SQLITE_OK)
		return errmsg_set(e, sqlite_errno(rc), "catalogue %s: %s", path, sqlite3_errmsg(db));
	if (!tables) {
		rc = make_fresh(db);
		return rc == SQLITE_OK ? 0
				       : errmsg_set(e, sqlite_errno(rc), "catalogue %s: cannot make its tables: %s",
						    path, sqlite3_errmsg(db));
	}
	if (app != SCHEMA_APPLICATION_ID)
		return errmsg_set(e, -EBADMSG, "catalogue %s: the database of some other program", path);
	rc = query_int(db, "SELECT version FROM schema", -1, &version);
	if (rc != SQLITE_OK || version < 0)
		return errmsg_set(e, -EBADMSG, "catalogue %s: damaged: it does not tell its version", path);
	if (version > SCHEMA_VERSION)
		return errmsg_set(e, -EPROTONOSUPPORT,
				  "catalogue %s: written by a newer version (layout %lld, this program knows %d)", path,
				  (long long)version, SCHEMA_VERSION);
	rc = migrate(db, version);
	return rc == SQLITE_OK
		   ? 0
		   : errmsg_set(e, sqlite_errno(rc), "catalogue %s: cannot bring layout %lld up to date: %s", path,
				(long long)version, sqlite3_errmsg(db));
}

int schema_prepare(sqlite3 *db, const char *path, struct errmsg *e)
{
	int rc = sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), r;

	if (rc != SQLITE_OK)
		return errmsg_set(e, sqlite_errno(rc), "catalogue %s: %s", path, sqlite3_errmsg(db));
	r = prepare(db, path, e);
	if (!r) {
		rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			return 0;
		r = errmsg_set(e, sqlite_errno(rc), "catalogue %s: %s", path, sqlite3_errmsg(db));
	}
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}
