/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue: what of the core's state outlives the process, in one SQLite file (WAL, no fsync: it survives the
 * process at any moment, and a cache promises no more for the machine). Each batch of writes is one transaction, so
 * after any crash the file says what was true at some moment.
 *
 * The file is locked for as long as it is open: a second process is refused. Threads: one at a time.
 */
#ifndef MASTER_CATALOGUE_H
#define MASTER_CATALOGUE_H

#include <stdbool.h>

#include "common/errmsg.h"
#include "master/core.h"
#include "master/writes.h"

struct catalogue;

/*
 * Opens the file, or makes it, and brings an older layout up to date. -EBADMSG: not a catalogue, or damaged; -EBUSY:
 * another process has it; -EPROTONOSUPPORT: from a newer version.
 */
int catalogue_open(const char *path, struct catalogue **ret, struct errmsg *e);
struct catalogue *catalogue_close(struct catalogue *cat); /* takes NULL, returns NULL */

/* All of the writes, or (negative errno) none of them; it may then be tried again. */
int catalogue_apply(struct catalogue *cat, const struct writes *w, struct errmsg *e);

/*
 * Gives the core everything, up to, not including, core_load_end(). Without objects, they are deleted from the file
 * first, as a whole: their owners have come back empty.
 */
int catalogue_load(struct catalogue *cat, struct core *core, bool objects, struct errmsg *e);

#endif
