/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <run_dir>/<instance>/fluxkvd.pid: who runs this instance. The lock on it is what counts; it goes with the process,
 * however that dies. Beside it `mount` says where that one serves: its device number and its mount point. umount(8)
 * returns before the daemon has ended, so by that a start tells one that ends, which it waits for, from one that
 * serves. One thread, but for pidfile_ends().
 */
#ifndef FUSE_PIDFILE_H
#define FUSE_PIDFILE_H

#include <sys/types.h>

#include "common/errmsg.h"

struct pidfile;

/*
 * Makes, locks and fills the file in dir. A process that has it and does not serve gets 15 s to end. -EBUSY: another
 * one has it, e says which; -ENOENT: there is no such directory, or no more.
 */
int pidfile_lock(const char *dir, const char *instance, struct pidfile **ret, struct errmsg *e);
/* From here on, and as long as the mount is there, another start is refused at once. */
int pidfile_serves(struct pidfile *p, dev_t device, const char *mountpoint, struct errmsg *e);
/* The end was asked for: the mount does not count any more. Any thread. */
void pidfile_ends(struct pidfile *p);
/* Removes the files and lets go. Takes NULL, returns NULL. */
struct pidfile *pidfile_unlock(struct pidfile *p);

#endif
