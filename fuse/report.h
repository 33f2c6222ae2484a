/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon tells about itself: the status (control socket, .fluxkv/status) and the metrics (.fluxkv/metrics).
 * The struct does not change after start-up, but for fs; any thread may ask. Nothing here waits for the master or the
 * file system.
 */
#ifndef FUSE_REPORT_H
#define FUSE_REPORT_H

#include <stdint.h>

#include <jansson.h>

struct fs;
struct local_master;
struct node;
struct rpc_client;

struct report {
	const char *instance, *cluster, *source, *mountpoint;
	uint64_t started; /* clock_ns() */
	struct node *node;
	struct local_master *master; /* standalone, */
	struct rpc_client *rpc;	     /* or the way to it */
	/* Set when the mount serves; a reader of the mount's own files may be quicker. */
	_Atomic(struct fs *) fs;
};

/* The answer of "status", with "ok"; NULL without memory. */
json_t *report_status(const struct report *r);
json_t *report_hello(const struct report *r);
/* Prometheus' text format, malloc'ed; NULL without memory. */
char *report_metrics(const struct report *r);

#endif
