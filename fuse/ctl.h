/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's control socket: <run_dir>/<instance>/control, a Unix stream socket that the fluxkv tool talks to. The
 * framing is net/ctl.h. It owns the socket, a thread that accepts, and one thread a connection (CTL_MAX_CONNECTIONS at
 * most; one more gets an error answer and is closed). A connection may send any number of requests, one after the
 * other; one that is idle for a minute is closed.
 *
 * Who may connect is said by the socket's mode. Root and the daemon's own user may do everything, others look only
 * (the requests marked *). A malformed request gets one error answer, and the connection is closed.
 *
 *   request                                             answer, beside "ok": true
 *   {"op": "hello"} *                                   protocol, version, pid, instance, mountpoint
 *   {"op": "status"} *                                  fluxkv(1), section STATUS
 *   {"op": "stat", "path": P} *                         kind, id, size, mode, uid, gid, mtime_ns, and of an object:
 *                                                       expires_ns, pin, private, blocks, in_dram, in_ssd, checksum
 *   {"op": "ls", "path": P} *                           entries: [{name, and as stat}]; streams
 *   {"op": "rm" | "rmdir" | "prefetch", "path": P}
 *   {"op": "evict", "path": P, "tier": "dram" | "ssd", "force": BOOL}
 *   {"op": "pin", "path": P, "pin": BOOL}
 *   {"op": "ttl", "path": P, "seconds": N}              0: never expires
 *   {"op": "ns_create" | "ns_set", "name": N, "block_size": BYTES, "ttl_seconds": N, "persist": BOOL, "mode": MODE}
 *   {"op": "ns_list"} *                                 namespaces: [{name, objects, bytes, and as above}]
 *   {"op": "ns_rm", "name": N}
 *
 * A path P is relative to the root of the file system; "" is the root.
 */
#ifndef FUSE_CTL_H
#define FUSE_CTL_H

#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "common/errmsg.h"

struct ctl;
struct node;

#define CTL_MAX_CONNECTIONS 32

struct ctl_config {
	const char *path;
	mode_t mode; /* of the socket */
	struct node *node;
	/* Fresh objects, called from connection threads; NULL: no memory. */
	json_t *(*hello)(void *arg);
	json_t *(*status)(void *arg);
	/*
	 * What the name stands for has changed: the mount must not answer from what it knew. removed: the id of the
	 * object whose name was removed, or 0.
	 */
	void (*name_changed)(void *arg, uint64_t dir, const char *name, uint64_t removed);
	void *arg;
};

/* Binds and serves. A socket that nobody listens on any more is replaced; a live one is -EADDRINUSE. */
int ctl_start(const struct ctl_config *cfg, struct ctl **ret, struct errmsg *e);
/* Removes the socket, ends what runs, waits for its threads. Takes NULL, returns NULL. */
struct ctl *ctl_stop(struct ctl *c);

#endif
