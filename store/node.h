/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node: one per daemon. It owns the segment, the SSD tier, the block index and the private (not yet published)
 * versions, and speaks with the master through a channel. The file system above it, and the control socket, use
 * this header, store/put.h (writing) and store/version.h (reading); all three describe one module.
 *
 * Threads: every function may be called from any thread unless it says otherwise. Functions with a callback never
 * block on I/O, on memory or on the master: what must wait is parked, and the callback runs exactly once: either
 * inline, before the function returns, or later on a thread of the node. Callbacks must not block; they may call the
 * node again. Arguments of a callback belong to the node and are gone when it returns, unless it says otherwise.
 * Functions named *_wait block and are for start-up, tools and the control socket.
 */
#ifndef STORE_NODE_H
#define STORE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "net/channel.h"
#include "net/msg.h"

struct node;
struct put;
struct version;
struct ssd_stats;

/* What the node tells the file system, from threads of its own that answer nobody: the callee may block. */
struct node_events {
	/* The version is no longer what its name stands for, and not by a request of this mount's kernel: evicted
	 * from every tier, expired, removed through the control socket, moved by another node. */
	void (*gone)(void *arg, uint64_t put_id, uint64_t dir, const char *name);
	void *arg;
};

struct node_config {
	struct channel *master; /* borrowed, outlives the node */
	const char *instance_key;
	const char *cluster_name;
	const char *run_dir;	      /* the segment is <run_dir>/<instance_key>/segment */
	uint64_t dram;		      /* bytes of the segment */
	const char *const *ssd_paths; /* device roots, n_ssd of them, with their limits in bytes; none: no SSD tier */
	const uint64_t *ssd_limits;
	size_t n_ssd;
	bool ssd_direct;
	unsigned ssd_io_depth, ssd_shards, ssd_retry_seconds; /* 0: the default */
	uint64_t
	    persist_backlog; /* bytes queued for the SSD tier before blocks are not persisted; 0: a quarter of dram */
	uint64_t put_deadline_ms; /* of the master: how long a writer may be silent; 0: the default, 60 s */
	uint64_t leg_deadline_ms; /* how long a reader waits for an SSD; 0: the default, 5 s */
	uint64_t name_cache;	  /* leased names kept, or more: one a block that is here; 0: the default */

	/*
	 * Of a cluster: the master is another process, and so are the nodes that have what is not here. data_listen
	 * NULL: standalone. data_host: what others are told, with the port that data_listen has.
	 */
	const char *data_listen, *data_host;
	const char *key_file; /* NULL: none */
	uint64_t staging;     /* bytes on their way from the SSD to others; 0: the default */
};

int node_start(const struct node_config *cfg, struct node **ret, struct errmsg *e);
/* Leaves the cluster and frees all. The file system is unmounted by then: no handle, no callback outstanding. */
struct node *node_stop(struct node *n);
/* Set before the mount serves, and again to none when it is over: no event runs any more when this returns. */
void node_set_events(struct node *n, const struct node_events *ev);

/* A private version's attr.id has this bit; no id from the master has. */
#define NODE_PRIVATE_ID (1ull << 63)

/*
 * What the channel hears when a master was started again: it waits for the node to say what it has. Any thread, also one
 * of the channel's.
 */
void node_unattached(struct node *n);

/* ---- names ------------------------------------------------------------------------------------------------- */

/*
 * Whether the version is what some name is known to stand for. A node of a cluster whose kernel has remembered more
 * must look that up again before it opens it; standalone it is always true.
 */
bool node_is_current(struct node *n, uint64_t put_id);

/* What a name stands for on this node. */
struct node_entry {
	struct msg_attr attr; /* of a private version: id is the put's, size its present size */
	struct put *put;      /* the private version, or NULL. A reference for the callback to keep (put_unref) */
};

/* err: 0 or a negative errno; e is NULL unless err is 0. */
typedef void (*node_entry_fn)(void *arg, int err, const struct node_entry *e);
typedef void (*node_done_fn)(void *arg, int err);

void node_lookup(struct node *n, uint64_t dir, const char *name, node_entry_fn fn, void *arg);
/*
 * Whether a private version of this name is open, though the name stands for what it was published as: the next write
 * to it takes the name back without anybody asking, so a kernel must not cache what the name stands for. Never waits.
 */
bool node_name_unsettled(struct node *n, uint64_t dir, const char *name);
/* A directory's or a published version's attributes by id, from the master. */
void node_getattr(struct node *n, uint64_t id, node_entry_fn fn, void *arg);
/* mask: MSG_SET_*. For directories and published versions; a private one has put_setattr(). */
void node_setattr(struct node *n, const struct msg_attr *a, uint32_t mask, node_entry_fn fn, void *arg);
void node_mkdir(struct node *n, uint64_t dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
		node_entry_fn fn, void *arg);
void node_rmdir(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg);
void node_unlink(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg);
/* flags: 0 or RENAME_NOREPLACE; -EINVAL for others, -EXDEV across namespaces. */
void node_rename(struct node *n, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, unsigned flags,
		 node_done_fn fn, void *arg);

/*
 * One page of a directory: private names first (a snapshot taken by node_dir_open), then the master's. A name that
 * is there during the whole scan is given exactly once. cookie 0 starts; ents[] and end are as in MSG_READDIR. An entry
 * with NODE_PRIVATE_ID in its id is a private version: a kernel must look it up before it may cache anything of it.
 */
struct node_dir;
int node_dir_open(struct node *n, uint64_t dir, struct node_dir **ret);
struct node_dir *node_dir_close(struct node_dir *d);
typedef void (*node_dir_fn)(void *arg, int err, const struct msg_dirent *ents, size_t n, bool end);
void node_dir_read(struct node_dir *d, uint64_t cookie, uint32_t max, node_dir_fn fn, void *arg);

/* The whole set of user xattrs as one blob (net/xattr.h). of a directory or a published version; put_*xattrs() for
 * a private one. The setter copies the blob. */
typedef void (*node_blob_fn)(void *arg, int err, const uint8_t *blob, size_t len);
void node_getxattrs(struct node *n, uint64_t id, node_blob_fn fn, void *arg);
void node_setxattrs(struct node *n, uint64_t id, const uint8_t *blob, size_t len, node_done_fn fn, void *arg);

struct node_statfs {
	uint64_t total_bytes, used_bytes, objects;
};
typedef void (*node_statfs_fn)(void *arg, int err, const struct node_statfs *s);
void node_statfs(struct node *n, uint64_t dir, node_statfs_fn fn, void *arg);

/* ---- replicas, for the control socket and virtual xattrs --------------------------------------------------- */

enum node_tier {
	NODE_TIER_DRAM = 1,
	NODE_TIER_SSD = 2,
};

/* Drops the version's replicas on that tier: -EBUSY when one is in use or the last copy and not force, -ENODATA when
 * there is none. With force a last copy goes too, unless an open handle or a pin holds it (-EBUSY). */
void node_evict(struct node *n, const struct msg_attr *a, enum node_tier tier, bool force, node_done_fn fn, void *arg);
/* Brings every block of the version into memory. */
void node_prefetch(struct node *n, const struct msg_attr *a, node_done_fn fn, void *arg);

struct node_replicas {
	uint64_t blocks;	  /* of the version */
	uint64_t in_dram, in_ssd; /* blocks that have a replica there, on this node */
	uint64_t checksum;	  /* XXH3 of a one-block version, if has_checksum */
	bool has_checksum;
};
int node_replicas(struct node *n, const struct msg_attr *a, struct node_replicas *ret);

/* A request to the master that this header has no function for (MSG_NS_*), in the node's name. Takes over req; done
 * may be NULL. */
void node_call(struct node *n, struct msg *req, channel_done_fn done, void *arg);

/* A file of the segment without a name and without bytes, to try out what the kernel lets one do with such a file. */
int node_scratch_file(struct node *n, int *ret_fd);

/* ---- numbers ----------------------------------------------------------------------------------------------- */

struct node_stats {
	/* the segment */
	uint64_t dram_capacity, dram_used, dram_reserved, dram_zombie, dram_objects;
	/* the SSD tier, summed over devices; ssd is NULL-safe detail in ssd_stats() */
	uint64_t ssd_capacity, ssd_used, ssd_objects;
	/* each successful open for reading of a non-empty version is one get, from exactly one source */
	uint64_t hits_mem_local, hits_mem_remote, hits_ssd_local, hits_ssd_remote, hits_unknown;
	/* lookups and opens that found nothing, by reason */
	uint64_t miss_never, miss_evicted, miss_expired, miss_owner_lost, miss_checksum, miss_timeout;
	uint64_t puts, put_bytes, puts_revoked, put_nospace;
	uint64_t gets_bytes; /* answered to readers */
	uint64_t refills, refill_bytes, refill_failures;
	uint64_t fetches, fetch_bytes, fetch_failures; /* from other nodes */
	uint64_t serves, serve_bytes, serve_failures;  /* to other nodes */
	uint64_t evictions_dram, evictions_ssd;
	uint64_t persists, persist_bytes, persist_failures, persist_dropped, persist_backlog_bytes;
	uint64_t checksum_errors, stale_routes;
	uint64_t private_versions, open_versions, blocks, parked;
	uint64_t master_messages; /* requests sent to the master */
};
void node_get_stats(struct node *n, struct node_stats *ret);
/* The longest block that the SSD tier takes, in bytes; UINT64_MAX: there is no tier. */
uint64_t node_ssd_max_block(struct node *n);
/* -ENODATA without an SSD tier. */
int node_get_ssd_stats(struct node *n, struct ssd_stats *ret);

#endif
