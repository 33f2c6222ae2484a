/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fluxkvd's life: what it starts, in which order, and how it ends. One thread, but for the signals', which only asks
 * for the end or for a reload.
 */
#ifndef FUSE_DAEMON_H
#define FUSE_DAEMON_H

#include "common/ready.h"
#include "store/config.h"

enum {
	DAEMON_OK = 0,
	DAEMON_CANNOT_SERVE = 1,
	DAEMON_USAGE = 2,
};

struct daemon_args {
	const char *config_file;    /* absolute; NULL: none */
	const char *const *options; /* -o lists, n_options of them */
	size_t n_options;
	const char *source;	/* "standalone", or HOST:PORT of a master */
	const char *mountpoint; /* as given */
};

bool daemon_is_standalone(const char *source);
/* The configuration that file and options make. 0, or a negative errno with the line in e. */
int daemon_configure(const struct daemon_args *args, struct config *ret, struct errmsg *e);
/* Serves until somebody unmounts or a signal comes. Takes over cfg. Returns the status to exit with. */
int daemon_run(const struct daemon_args *args, struct config *cfg, struct ready *ready);

#endif
