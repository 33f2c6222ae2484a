/* SPDX-License-Identifier: Apache-2.0 */
/* mount(8)'s -o list: what of it is the helper's own, and what goes on to fluxkvd. Pure but for memory. */
#ifndef FUSE_MOUNT_OPTIONS_H
#define FUSE_MOUNT_OPTIONS_H

#include <stdbool.h>

struct mount_options {
	char *config; /* config=FILE; NULL: none */
	char *rest;   /* the others, comma separated; NULL before the first call */
	bool remount; /* not to mount, but to change what is mounted */
};

/* Adds a list to what is there; a later config= wins. A backslash before a comma keeps it in the value. 0 or -ENOMEM.
 */
int mount_options_add(struct mount_options *o, const char *list);
void mount_options_done(struct mount_options *o);

#endif
