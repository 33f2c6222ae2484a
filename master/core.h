/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master's core: all of its state and every decision, as a state machine. It is given a message and the time, and
 * returns messages and catalogue writes. It opens no file and no socket, reads no clock, takes no lock and makes no
 * thread, so a test can run a whole cluster of it from one seed.
 *
 * Time is passed in: now_ns is monotonic (deadlines), real_ns is since the epoch (what users see, and expiry). Neither
 * may go back within a core's life as far as the core cares: a now_ns that does is taken as "no time has passed", a
 * real_ns that does only makes expiry late.
 *
 * Ownership: core_handle() takes the message over and makes the answer of it. What it puts out belongs to the caller.
 * Threads: one at a time (master/local.c owns it on one thread).
 */
#ifndef MASTER_CORE_H
#define MASTER_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/writes.h"
#include "net/msg.h"

struct core;

struct core_config {
	bool auto_namespace;	     /* a mkdir below the root makes a namespace with default attributes */
	uint64_t default_block_size; /* of namespaces that do not say; 0: 64 MiB */
	uint64_t put_deadline_ns;    /* a put without a sign of life ends; 0: 60 s */
	uint64_t get_deadline_ns;    /* 0: 60 s */
	uint64_t dead_after_ns;	     /* a node without a heartbeat is dead; 0: never (the channel itself tells) */
	uint64_t repeat_ns;	     /* unacknowledged MSG_DROPs are sent again; 0: never (a channel that loses none) */
	uint64_t lease_ns;	     /* leases are good for so long, and a request that moves a name waits for others to
					know; dead_after_ns at most. 0: for ever, for nodes that are told reliably */
	uint64_t resume_ns;	     /* owners of an earlier run may come back for so long; 0: they never do */
	uint32_t recent_answers;     /* remembered per node, for requests that come twice; 0: they never do */
	uint64_t max_inodes;	     /* objects and directories; 0: 64 million. -ENOSPC above */
	uint64_t max_xattr_bytes;    /* of all user xattrs together; 0: 256 MiB. -ENOSPC above */
	uint32_t max_namespaces;     /* 0: 65536. -ENOSPC above */
	uint64_t hash_seed;	     /* keeps users from choosing names that collide */
	uint64_t id_block;	     /* ids are taken in blocks of so many; 0: a million */
	uint32_t root_mode, root_uid, root_gid; /* of a new root directory; mode 0: 0755 */
};

/* A message to a node. */
struct core_msg {
	uint32_t node;
	bool after_commit; /* not before the catalogue has every write so far, this step's included */
	struct msg *msg;
};

/*
 * What steps leave to be done, in order. Zeroed memory is an empty one; steps append. The writes of one step must be
 * committed together; messages to one node that carry after_commit must keep their order (a notice always does, so
 * that it cannot overtake the answer it follows).
 */
struct core_out {
	struct core_msg *msgs;
	size_t n_msgs, cap_msgs;
	struct writes writes;
};

void core_out_clear(struct core_out *out); /* frees all, messages too */

struct core *core_new(const struct core_config *cfg);
struct core *core_free(struct core *c);

/*
 * `in` becomes its answer, and is put out once: mostly by this step, and by a later one (another request's, or
 * core_tick()) where it has to wait for what other nodes say. Until it is put out the caller may change its req_id, by
 * which he finds the request of an answer, and nothing else of it. A request that comes again while the first waits is
 * answered with it, each in its own message.
 *
 * -ENOMEM: not even that could be made; nothing has happened, and `in` is still the caller's. If core_has_done() it, it
 * must be tried again, for to say so would be wrong.
 */
int core_handle(struct core *c, struct msg *in, uint64_t now_ns, int64_t real_ns, struct core_out *out);

/*
 * Does what time alone brings: expiry, deadlines of puts and gets, dead nodes, repeats, the times of directories to
 * the catalogue. Returns the nanoseconds until it wants to be called again (at most one second when anything at all
 * is waiting, 0 when it has left some for the next time, UINT64_MAX when nothing is); calling it earlier or later is
 * harmless.
 */
uint64_t core_tick(struct core *c, uint64_t now_ns, int64_t real_ns, struct core_out *out);

/*
 * Loading, before the first core_handle(): the catalogue gives what it holds, each kind after those before it: the
 * counter, directories (parents in any order), namespaces, objects, replicas, xattrs, members. Returns -EBADMSG for a
 * record that contradicts what is there, -ENOMEM.
 */
int core_load(struct core *c, const struct write_rec *rec);
/*
 * Ends the loading: hangs everything in. What hangs nowhere, or where it may not, is dropped, and said to the
 * catalogue. The writes, which also take the first block of ids, must be committed before the first core_handle().
 */
int core_load_end(struct core *c, struct core_out *out);

/*
 * For an orderly end: says what the catalogue would have been told later, the times of directories; and puts out every
 * request that waits, with -ESHUTDOWN, which is no answer for its sender: it may have been done.
 */
void core_flush(struct core *c, struct core_out *out);

/* The whole durable state as the records that would load it, for tests that compare two cores. */
int core_dump(struct core *c, struct writes *ret);

/*
 * The catalogue has a WRITE_COUNTER record of this value (struct writes tells the highest of a batch). Ids above what
 * was confirmed are not given out, so that no crash can issue one twice; requests that need one fail with -EIO.
 */
void core_committed(struct core *c, uint64_t counter);

/*
 * So many of the messages with after_commit have been given to their nodes, in all. With recent_answers an answer is
 * remembered at least until then.
 */
void core_given(struct core *c, uint64_t n);

/* Whether it has come again: core_handle() answers it as it did and does nothing, so it may be let in always. */
bool core_has_done(const struct core *c, const struct msg *in);

/* The number of the node of an earlier run that may come back with this tomb_tag; 0: there is none. */
uint32_t core_node_awaited(const struct core *c, uint64_t tomb_tag);
/* The number of the node with that instance key, else one that nobody has had; 0: there are too many. */
uint32_t core_node_named(const struct core *c, const char *key);

struct core_ledger {
	uint64_t capacity, zombie, used, reserved;
};

struct core_counts {
	uint64_t objects, directories, namespaces, orphans;
	uint64_t tickets, gets, loose; /* loose: allocations that wait for MSG_ALLOC_FREED */
	uint64_t holds;		       /* of versions by nodes */
	uint64_t revokes, waiting;     /* not acknowledged; requests that wait */
	uint64_t next_id;
	uint64_t memory; /* bytes of the index, names and routes not counted */
};

int core_ledger(const struct core *c, uint32_t node, struct core_ledger *ret); /* -ENOENT */
void core_counts(const struct core *c, struct core_counts *ret);
/* Recounts everything from scratch: 0, or -EUCLEAN with what is wrong in why. Slow; for tests. */
int core_check(struct core *c, char *why, size_t why_len);

#endif
