/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <run_dir>/<instance>/fluxkvd.pid: who runs this instance. The lock on it is what counts; it goes with the process,
 * however that dies. One thread.
 */
#ifndef FUSE_PIDFILE_H
#define FUSE_PIDFILE_H

#include "common/errmsg.h"

struct pidfile;

/* Makes, locks and fills the file; its directory is there. -EBUSY: another process has it, e says which. */
int pidfile_lock(const char *path, const char *instance, struct pidfile **ret, struct errmsg *e);
/* Removes the file and lets go. Takes NULL, returns NULL. */
struct pidfile *pidfile_unlock(struct pidfile *p);

#endif
