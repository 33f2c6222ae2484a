/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master inside the daemon: one thread that owns the core, one that writes the catalogue, and a channel to them.
 *
 * The event loop takes whatever has been queued, lets the core handle it, gives the catalogue writes to the writer
 * thread, and delivers the answers that need not wait for them; the writer delivers the others once they are
 * committed. So the channel's callbacks run on two threads; notices and answers that wait for the catalogue keep
 * their order among themselves. An answer that has waited for as long as one may is given as it is.
 *
 * The channel is that of node 1 (LOCAL_MASTER_NODE). Its calls may be made from any thread, until local_master_stop()
 * is called. Where there are many nodes (master/server.h) it is not used: local_master_call() takes a request of any,
 * and the configuration says where notices go.
 */
#ifndef MASTER_LOCAL_H
#define MASTER_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "net/channel.h"

#define LOCAL_MASTER_NODE 1u

struct local_master;

struct local_master_config {
	const char *catalogue;			/* path of the SQLite file, made if it is not there */
	bool auto_namespace;			/* a mkdir below the root makes a namespace */
	uint64_t default_block_size;		/* 0: 64 MiB */
	uint64_t put_deadline_ns;		/* 0: 60 s */
	uint64_t answer_deadline_ns;		/* an answer waits no longer for the catalogue; 0: 30 s */
	uint32_t root_mode, root_uid, root_gid; /* of a root directory that is made now; mode 0: 0755 */

	/* For nodes that may vanish, and a way to them that loses messages; see struct core_config. */
	uint64_t dead_after_ns, repeat_ns, lease_ns;
	uint32_t recent_answers;
	/* Objects of an earlier run are kept, and their owners may come back for so long. 0: they are gone. */
	uint64_t resume_ns;
	/* Notices, on the threads that answers come on; belongs to the master, must not block. NULL: to the channel. */
	void (*notice)(void *arg, uint32_t node, const struct msg *notice);
	void *notice_arg;
};

struct local_master_stats {
	uint64_t requests[MSG_TYPES]; /* by type, since the start */
	uint64_t notices[MSG_TYPES];
	uint64_t commits;	  /* transactions of the catalogue */
	uint64_t commit_failures; /* each is tried again */
	uint64_t late;		  /* answers that the catalogue did not have in time */
	uint64_t objects, directories, namespaces, orphans, tickets, gets; /* now */
	uint64_t used, reserved;					   /* now, of the node's ledger */
};

/*
 * Opens the catalogue and starts. Without resume_ns objects of an earlier run are gone (their owner comes back empty);
 * namespaces and directories stay. On failure e says why in one line.
 */
int local_master_start(const struct local_master_config *cfg, struct local_master **ret, struct errmsg *e);
/* Answers what is queued, commits, closes. NULL is fine; returns NULL. The node has left by then. */
struct local_master *local_master_stop(struct local_master *lm);

struct channel *local_master_channel(struct local_master *lm);
/*
 * As channel_call(), for the node that req->node says. A MSG_JOIN of node 0 is given the number of the node with its
 * key, or a new one, which the answer says.
 */
void local_master_call(struct local_master *lm, struct msg *req, channel_done_fn done, void *arg);
/* Any thread; a request is counted when it is sent, the rest as of the loop's last step. */
void local_master_get_stats(struct local_master *lm, struct local_master_stats *ret);

#endif
