/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the core, shared by the files that make it up (master/core.h is what others see). One thread at a time.
 *
 * An inode is a directory or one version of an object. A version that a name stands for hangs in its directory and in
 * by_name; one that was deleted, overwritten or lost its last complete copy while some node still has bytes of it is an
 * orphan: it is found by id only, until each of those nodes has acknowledged its MSG_DROP.
 *
 * Ledger of a node: `reserved` are grants of puts and targets of gets; `used` are memory replicas (of orphans too) and
 * loose allocations, whose replica is gone but whose file is not yet said to be unlinked.
 */
#ifndef MASTER_STATE_H
#define MASTER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "master/core.h"
#include "master/pool.h"
#include "master/table.h"

#define PAGE 4096ull
#define BLOCK_SHIFT_MIN 12u
#define BLOCK_SHIFT_MAX 40u
#define NS_TICK_MAX 1000000000ull /* something waits: core_tick() is wanted within a second */
#define NODE_MAX 65534u
#define LEASE_MANY 65535u /* more than one node may hold a lease on the name */

#define TIER_MEM 1u
#define TIER_SSD 2u

#define INODE_MULTI 1u	/* the route is an array, not the one replica that fits the inode */
#define INODE_PIN 2u	/* MSG_ATTR_PIN */
#define INODE_XATTRS 4u /* there is an entry in the xattrs table */
#define INODE_ORPHAN 8u
#define INODE_LOOSE 16u /* allocations of it may be loose */
#define INODE_HELD 32u	/* there are struct holds of it */

struct slot {
	uint32_t cookie_lo, cookie_hi;
	uint32_t inode; /* 0: the name is gone */
};

/* The names of a directory, in the order of their cookies. */
struct dir {
	struct slot *slots;
	uint32_t n, cap; /* slots in use, dead ones too, and allocated */
	uint32_t live, subdirs;
	uint32_t self;	     /* the inode */
	struct space *space; /* the namespace whose root this is, or NULL */
	struct list dirty;   /* in core.dirty: the catalogue does not have its times yet */
};

struct replica {
	uint64_t alloc;
	uint32_t block;
	uint16_t node;
	uint8_t tiers; /* TIER_* */
};

/* Ascending by (block, node). */
struct route {
	uint32_t n, cap;
	struct replica r[];
};

/* 128 bytes, most of what an object costs; what a look-up walks over is in the first 64. */
struct inode {
	uint64_t id;
	char *name; /* name_len bytes, no NUL */
	union {
		uint32_t parent; /* the directory's inode; 0: the root, or an orphan */
		uint32_t orphan_prev;
	};
	union {
		uint32_t name_next;
		uint32_t orphan_next;
	};
	uint32_t id_next;
	uint32_t name_hash;
	uint32_t ns;
	uint32_t heap_pos; /* place in the expiry heap, from 1; 0: not there */
	uint8_t name_len;
	uint8_t kind; /* enum msg_kind; 0: a free element of the pool */
	uint8_t block_shift;
	uint8_t tiers; /* of the replica in alloc */
	uint8_t flags;
	uint16_t mode;
	uint16_t lease; /* the node that may hold a lease on its name; 0: none; LEASE_MANY */
	uint16_t home;	/* the node of the replica in alloc; of an empty object, the one that put it */
	union {
		uint64_t cookie;    /* of its name */
		uint64_t orphan_ns; /* when its MSG_DROPs were sent last */
	};

	union {
		struct dir *dir;
		struct {
			uint64_t storage_id, size;
			int64_t expires_ns;
			union {
				uint64_t alloc;
				struct route *route; /* INODE_MULTI */
			};
		};
	};
	int64_t mtime_ns, ctime_ns, atime_ns;
	uint32_t uid, gid;
};

/* A namespace. */
struct space {
	uint32_t number, kind, persist;
	uint8_t block_shift;
	uint64_t ttl_seconds;
	uint32_t root; /* inode */
	uint64_t objects, bytes;
};

struct grant {
	uint64_t alloc, bytes;
	uint32_t block;
};

/* A put that runs. */
struct ticket {
	uint64_t id;
	struct list fifo; /* core.tickets_fifo, oldest sign of life first */
	uint64_t sign_ns;
	struct grant *grants; /* ascending by block */
	char *res_name;	      /* O_EXCL: the name it has reserved, or NULL */
	uint64_t res_dir;     /* in the directory of this id, which may be gone by now */
	uint32_t res_hash, res_next, id_next;
	uint32_t n, cap;
	uint32_t ns;
	uint16_t node;
	uint8_t res_len, block_shift;
	bool persist;
};

struct get {
	uint64_t id, put_id, alloc, bytes;
	struct list fifo; /* core.gets_fifo, oldest first */
	uint64_t start_ns;
	uint32_t block, id_next, block_next;
	uint16_t node, source_node;
	uint8_t source; /* enum msg_source */
};

/* A source elsewhere that has failed one who wanted a block. */
struct failed {
	uint64_t put_id, until_ns;
	uint32_t block;
	uint16_t node, source;
};

#define FAILED_MAX 256u /* of them are remembered; a power of two */

/* An allocation without a replica, until its file is unlinked. */
struct loose {
	uint64_t alloc, put_id, bytes;
	uint32_t alloc_next, put_next;
	uint16_t node;
};

/* A node that holds a version. */
struct hold {
	uint64_t put_id;
	uint32_t next;
	uint16_t node;
};

/* What was said of a name, while it may not have reached every node that leased it. */
struct moved {
	uint64_t seq, dir, id;
	char *name;	   /* len bytes, no NUL */
	struct list waits; /* struct wait_on: answers that wait for it */
	uint32_t hash, next;
	uint32_t told; /* nodes that have not acknowledged it */
	uint8_t len, reason;
};

/* One of these nodes. */
struct revoke {
	struct list fifo; /* member.revokes, oldest first */
	uint64_t said_ns; /* first */
	uint32_t self, moved;
};

struct wait_on {
	struct list list; /* in moved.waits, or nowhere */
	struct wait *wait;
	uint32_t hash; /* of the name */
};

/* A request that has no answer yet. */
struct wait {
	struct list list; /* core.waits, .held or .ready; oldest first */
	struct msg *m;	  /* the request, or the answer that it has become; its req_id is the caller's to change */
	struct wait_on on[2];
	uint64_t req_id, tag, seq; /* seq: what was said up to it counts */
	struct core_msg *after;	   /* notices that follow the answer */
	size_t n_after;
	uint32_t self, req_next, node;
	bool after_commit;
	bool twin; /* the same request again: is answered as the first is */
};

struct xattrs {
	uint64_t id;
	uint8_t *blob;
	uint32_t len, next;
};

struct drop {
	uint64_t put_id;
	uint32_t blocks;
};

/* A directory or object that was loaded and hangs nowhere yet. */
struct load_name {
	uint64_t parent, cookie;
	uint32_t inode;
	uint32_t len;
	char *name;
};

struct recent;
struct inventory;
struct recovery;

struct member {
	uint32_t node;
	char *key;     /* the instance key */
	char *address; /* where others get its blocks; NULL: nowhere */
	uint64_t tomb_tag;
	bool live, ssd;
	bool loaded;	 /* the catalogue gave it replicas, and it is not live */
	bool awaited;	 /* it may come back as tomb_tag (resume.h), and is not live until its inventory is in */
	bool over;	 /* what it has is being dropped */
	bool ended;	 /* its incarnation is over, and the catalogue is told so */
	bool revoke_all; /* is to be told, at the end of the step, that all its leases are over */
	bool lapsed;	 /* all its leases are over by time; none is renewed before it has said that it knows */
	bool unsettled;	 /* the catalogue knows it, and what it had leased from the master before may still be good */
	uint64_t capacity, zombie, used, reserved;
	uint64_t ssd_capacity, ssd_used;
	uint64_t sign_ns;
	uint64_t picked;     /* core.picks when it was chosen last as a source for another */
	uint32_t sources;    /* gets of others that it is the source of */
	struct list revokes; /* struct revoke: not acknowledged, oldest first */
	uint32_t n_revokes;
	uint64_t renewed_ns; /* no lease of it is good for longer than lease_ns from then */
	uint64_t told_ns;    /* when revokes were told last without being new */
	uint64_t all_from;   /* a revoke of all leases waits for its acknowledgement, for all said from here on; or 0 */
	uint64_t all_seq;    /* its sequence; 0: it is to be told (again) */
	struct drop *drops;  /* to be told in this step */
	size_t n_drops, cap_drops;
	struct recent *recent;
	struct inventory *inventory; /* of one that is coming back: what it has said so far; else NULL */
};

struct core {
	struct core_config cfg;

	/* this step's */
	uint64_t now_ns;
	int64_t real_ns;
	struct core_out *out;
	struct core_msg *after; /* notices that follow the answer */
	size_t n_after, cap_after;
	bool answer_after_commit;
	bool flush;	   /* some member has drops or a revoke_all to be told */
	uint32_t names[2]; /* hashes of the names that the step moves */
	unsigned n_names;
	uint64_t said;	/* messages so far that had after_commit */
	uint64_t given; /* of them */

	/* leases with a time */
	struct pool holds;
	struct table holds_by_put;

	struct pool moved, revokes, waiting;
	struct table moved_by_hash, waits_by_req;
	struct list waits, held, ready; /* held: not done yet, for no name may move; ready: to be given */
	uint32_t n_alls;		/* members whose revoke of all leases is waited for */
	uint32_t spare;			/* a struct wait for the request that is handled now, or 0 */
	bool started;
	bool no_moves; /* a master that has started again moves no name until hold_ns */
	uint64_t hold_ns;

	/* ids */
	uint64_t next_id, id_limit, id_safe; /* below limit: said to the catalogue; below safe: it has it */
	uint64_t lease_seq;
	uint32_t next_ns;

	struct pool inodes, tickets, gets, looses, xattrs;
	struct table by_id, by_name, tickets_by_id, tickets_by_name, gets_by_id, gets_by_block, loose_by_alloc,
	    loose_by_put, xattrs_by_id;
	uint32_t root; /* inode */
	struct list tickets_fifo, gets_fifo, dirty;
	struct failed failed[FAILED_MAX]; /* by hash: what falls on another takes its place */
	uint64_t picks;
	uint64_t dirty_ns;		   /* when the dirty list was written last */
	uint32_t orphan_head, orphan_tail; /* oldest drop first */
	bool drops_lost;		   /* some MSG_DROP could not be made: tell all orphans again */

	uint32_t *heap; /* inodes that expire, soonest first; heap[0] unused */
	uint32_t heap_n, heap_cap;

	struct space **spaces; /* ascending by number */
	uint32_t n_spaces, cap_spaces;
	struct member **members; /* by node */
	uint32_t n_members;

	uint16_t *misses;
	uint64_t n_objects, n_dirs, n_orphans;
	uint64_t live_bytes, orphan_bytes; /* pages of objects, each once */
	uint64_t xattr_bytes, route_bytes, name_bytes, slot_bytes;

	/* after a start; see resume.h */
	bool recovering; /* some owner may come back, so what has no replica is not known to be lost */
	struct recovery *recovery;

	/* while loading */
	struct load_name *loading;
	size_t n_loading, cap_loading;
};

static inline struct inode *inode_get(const struct core *c, uint32_t h)
{
	return pool_get(&c->inodes, h);
}

static inline bool is_block_size(uint64_t b)
{
	return !(b & (b - 1)) && b >= 1ull << BLOCK_SHIFT_MIN && b <= 1ull << BLOCK_SHIFT_MAX;
}

/* Of a block size, which is a power of two. */
static inline uint8_t shift_of(uint64_t block_size)
{
	return (uint8_t)__builtin_ctzll(block_size);
}

static inline uint64_t pages_of(uint64_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

/* Blocks of an object of that size. */
static inline uint64_t blocks_of(uint64_t size, uint8_t shift)
{
	return (size >> shift) + ((size & ((1ull << shift) - 1)) != 0);
}

static inline uint64_t block_len(uint64_t size, uint8_t shift, uint32_t block)
{
	uint64_t begin = (uint64_t)block << shift, left = size - begin;

	return left < 1ull << shift ? left : 1ull << shift;
}

#endif
