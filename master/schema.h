/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the catalogue file, and how older ones become it.
 */
#ifndef MASTER_SCHEMA_H
#define MASTER_SCHEMA_H

#include <sqlite3.h>

#include "common/errmsg.h"

#define SCHEMA_VERSION 1
#define SCHEMA_APPLICATION_ID 0x464b5631 /* "FKV1" */

/*
 * Makes an empty database ours, brings an older one up to date, refuses a newer or a foreign one. What it does is one
 * transaction. 0, or a negative errno with the reason in e.
 */
int schema_prepare(sqlite3 *db, const char *path, struct errmsg *e);

/* What a result code of SQLite means to us: 0 or a negative errno. */
int sqlite_errno(int rc);

#endif
