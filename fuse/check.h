/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would keep a daemon from serving on this machine, as far as that can be told without making or changing
 * anything. For the start and for `fluxkvd --check`; one thread.
 */
#ifndef FUSE_CHECK_H
#define FUSE_CHECK_H

#include "store/config.h"

/* Raises the soft limit on open files to the hard one. -EMFILE: the configuration needs more. */
int check_descriptors(const struct config *c, struct errmsg *e);
int check_fuse_device(struct errmsg *e);
/*
 * All of it: the mount point (NULL: none is given), the places, the SSD tier's directories, memory, descriptors. A
 * daemon that runs already with this configuration is no fault.
 */
int check_machine(const struct config *c, const char *mountpoint, struct errmsg *e);

#endif
