/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the node share (store/node.h is what others see). One file has one job:
 *
 *   node.c     start, stop, the master's notices, calls to the master
 *   block.c    the block index: which blocks have a replica here, and who uses them
 *   version.c  published versions: holds and reads
 *   refill.c   SSD to memory          persist.c  memory to SSD
 *   holds.c    versions that others are to keep
 *   fetch.c    from node to node      member.c   life in a cluster    resume.c   behind a master's restart
 *   evict.c    the evictor's thread: victims, reclaiming, waiting for room
 *   names.c    lookups, what changes names      dir.c  reading directories
 *   leased.c   the names that are known under a lease      overlay.c  which names stand for a private version
 *   put.c      private versions: life, attributes     put_io.c  bytes     put_publish.c  publish, release
 *   spill.c    private versions that are too large for memory
 *
 * Locking order, outermost first; none is held across I/O or a call to the master, but put.work:
 *
 *   put.work  >  overlay.lock  >  put.lock  >  block_shard.lock  >  node.policy_lock
 *
 * The evictor walks the policy and looks at blocks, against the order: it tries the shard's lock and passes by.
 * Leaves, taken under any of them: names.lock, reclaimer.lock, space.lock, persist_lock, alias_lock, late_lock,
 * again.lock, tell_lock, that of the holds and what the SSD tier, the work queue and the channel lock inside.
 */
#ifndef STORE_IMPL_H
#define STORE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "common/buckets.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/list.h"
#include "net/channel.h"
#include "net/plan.h"
#include "ssd/ssd.h"
#include "store/node.h"
#include "store/policy.h"
#include "store/put.h"
#include "store/segment.h"
#include "store/version.h"
#include "store/workq.h"

/* ---- blocks ------------------------------------------------------------------------------------------------ */

enum block_flags {
	BLOCK_MEM = 1 << 0, /* a file of the segment has the bytes */
	BLOCK_SSD = 1 << 1, /* the SSD tier took them, and the master knows; a hold tells whether it has them still */
	BLOCK_PERSIST = 1 << 2, /* on its way to the SSD tier; holds a pin */
	BLOCK_EVICT = 1 << 3,	/* the master was asked whether the memory replica may go */
	BLOCK_REFILL = 1 << 4,	/* on its way into memory */
	BLOCK_DROP = 1 << 5,	/* no name leads here any more: no new holder, free when the last one goes */
	BLOCK_TEMP = 1 << 6,	/* the memory copy is no replica: it goes with its last reader or holder */
	BLOCK_HELD = 1 << 7,	/* has an ssd_hold() */
	BLOCK_SUM = 1 << 8,	/* sum is known */
	BLOCK_DUE = 1 << 9,	/* the master will ask for a copy on the SSD tier: not to be lost before */
	BLOCK_LATE = 1 << 11,	/* its refill came to the deadline and the device has not answered: nobody waits */
	BLOCK_SHARED = 1 << 12, /* programs have had the memory file itself, and may map it still */
	BLOCK_PIN = 1 << 10,	/* its object is pinned: the last copy stays, on the SSD tier by a hold */
	BLOCK_TIERED = 1 << 13, /* belongs on the SSD tier too: its namespace says so, and its version fits there */
	BLOCK_OLD = 1 << 14,	/* its memory copy is one that no master knows */
	BLOCK_ASKED = 1 << 15,	/* the master was asked whether its memory copy is a replica */
};

struct block_wait;
struct drop;

/* One block that has a replica here or is used here. All fields: the shard's lock, but policy. */
struct block {
	struct block *next;
	struct policy_node policy; /* policy_lock; freq: anybody */
	uint64_t put_id;
	uint64_t ssd_id; /* the SSD tier's key */
	uint64_t alloc, len;
	uint64_t sum;
	void *map;		    /* of the memory file, read-only, or NULL; lives while pinned */
	struct block_wait *waiters; /* for the refill */
	struct drop *drop;	    /* whom to tell when it is gone */
	struct reclaim *reclaim;    /* made ahead for the end of the memory copy; NULL: to be made then */
	uint64_t shared_until;	    /* clock_ns() up to which it is not asked again whether programs map it */
	uint32_t index;		    /* number in its version */
	uint32_t flags;
	uint32_t source;  /* enum msg_source: where its memory copy came from last */
	uint32_t holders; /* struct version that have it */
	uint32_t pins;	  /* readers and writers of the memory file at this moment */
};

/* A reader that waits for a block. fn runs without locks; err 0: the block is pinned for it. */
struct block_wait {
	struct block_wait *next;
	void (*fn)(struct block_wait *w, int err);
};

struct block_shard {
	pthread_mutex_t lock;
	struct block **slots;
	size_t n_slots, n_blocks;
} __attribute__((aligned(64)));

#define BLOCK_SHARDS 64

/* ---- the overlay and the leased names ----------------------------------------------------------------------- */

#define OVERLAY_SLOTS 4096

struct overlay {
	pthread_mutex_t lock;
	struct put *slots[OVERLAY_SLOTS];
	struct list puts; /* every private version, with a name or without */
	atomic_uint count;
};

#define NAME_LEASES 16384 /* a power of two */

struct names {
	pthread_mutex_t lock;
	struct buckets by_name, by_id; /* lock: of struct leased */
	uint64_t hand;		       /* lock: where the next is to go when there are too many */
	uint64_t min;		       /* so many are kept however few blocks there are; does not change */
	uint64_t newest[NAME_LEASES];  /* lock: the newest lease seen, by the name's hash */
	uint32_t moving[NAME_LEASES];  /* lock: names that are being moved by requests of ours, by the same */
};

/* ---- waiting for room --------------------------------------------------------------------------------------- */

#define SPACE_WAIT_NS (5 * NS_PER_SEC) /* then -ENOSPC */

struct space {
	pthread_mutex_t lock;
	pthread_cond_t freed;  /* gen moved */
	uint64_t gen;	       /* lock: grows when the master's ledger may have fallen */
	uint64_t wanted;       /* lock: bytes that those who wait want together */
	uint64_t wanted_since; /* lock: when wanted left 0 */
	uint64_t last_log_ns;  /* lock */
	uint64_t refused;      /* lock: bytes the master refused to let go since the last that it did */
};

/* Memory that has lost its block: file and mapping to be removed, then the master told. */
struct reclaim {
	struct reclaim *next;
	uint64_t alloc, bytes;
	void *map;
	uint64_t map_len;
	struct drop *drop; /* alloc 0: the drop is over, acknowledge it */
	bool freed_notice; /* tell the master that the allocation is free */
	bool shared;	   /* programs may map the file still */
};

/* A version that the master dropped, until all its blocks here are gone. */
struct drop {
	uint64_t put_id;
	atomic_uint left; /* blocks, and one for the one who drops */
	struct reclaim over;
};

struct reclaimer {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct reclaim *head, **tail; /* lock */
	uint64_t pushed, taken, done; /* lock: records so far */
	bool kick, stop;	      /* lock */
	bool busy;		      /* lock: the thread works on what it took */
	pthread_cond_t progress;      /* done moved */
};

/* Blocks that should be on the SSD tier and are not: so many are remembered, the oldest first. */
#define AGAIN_MAX 65536

struct again_item {
	uint64_t put_id;
	uint32_t index;
};

struct again {
	pthread_mutex_t lock;
	struct again_item *items; /* lock: a ring; NULL: no SSD tier */
	size_t first, n;	  /* lock */
};

struct node_counters {
	atomic_ullong hits_mem_local, hits_mem_remote, hits_ssd_local, hits_ssd_remote, hits_unknown;
	atomic_ullong fetches, fetch_bytes, fetch_failures, serves, serve_bytes, serve_failures;
	atomic_ullong dram_old; /* bytes of BLOCK_OLD */
	atomic_ullong miss[8];	/* by enum msg_miss */
	atomic_ullong puts, put_bytes, puts_revoked, put_nospace, gets_bytes;
	atomic_ullong refills, refill_bytes, refill_failures, evictions_dram, evictions_ssd;
	atomic_ullong persists, persist_bytes, persist_failures, persist_dropped, checksum_errors, stale_routes;
	atomic_ullong miss_checksum, miss_timeout;
	atomic_ullong private_versions, open_versions, blocks, mem_blocks, ssd_blocks, parked, master_messages;
	atomic_ullong dram_used, dram_reserved; /* bytes: published and being filled */
	atomic_ullong dram_zombie;		/* of evicted files that somebody maps, as last seen */
	atomic_ullong maps;
};

#define GUESS_SLOTS 256

struct node {
	struct channel *ch;
	_Atomic uint64_t tomb_tag;  /* changes when the node joins anew (member.c) */
	struct member *member;	    /* NULL: standalone, with the master in this process */
	struct data_server *server; /* with member: what other nodes ask for, */
	struct data_client *client; /* and what is asked of them */
	struct staging *staging;
	struct holds *holds; /* with member */
	bool joined;	     /* the master has taken it in */
	bool evictor_runs;
	atomic_bool stopping; /* events_lock to write: node_stop() has begun, no new jobs */
	struct segment *seg;
	atomic_ullong capacity;		     /* of the segment: grows when what an earlier daemon left is unmapped */
	uint64_t persist_backlog;	     /* bytes that may wait for all devices together */
	uint64_t ssd_capacity, ssd_failures; /* of the SSD tier, as last seen by the evictor's thread */
	uint64_t renew_ns;		     /* from one sign of life of the private versions to the next */
	struct ssd_store *ssd;		     /* NULL: no SSD tier */
	uint64_t leg_deadline_ns;	     /* how long a reader waits for the device */
	bool has_ssd;			     /* whether there is one; does not change */
	struct workq *wq;
	struct workq *ends;	      /* of FLUSH and RELEASE, which free room: not behind those that wait for it */
	struct workq *refilling;      /* refills, which jobs of the others wait for */
	pthread_rwlock_t events_lock; /* read-locked while the file system is told something */
	struct node_events events;    /* events_lock */

	struct block_shard shards[BLOCK_SHARDS];
	pthread_mutex_t policy_lock;
	struct policy *policy;

	struct overlay overlay;
	struct names names;
	struct space space;
	struct reclaimer reclaimer;
	pthread_t evictor;
	atomic_ullong next_private;
	atomic_uint publishing;		  /* MSG_PUT_DONEs that have no answer yet */
	atomic_ullong newest_known;	  /* put_id: what was published here up to it has its blocks in the index */
	atomic_ullong guess[GUESS_SLOTS]; /* last size put, by directory */

	pthread_mutex_t persist_lock;
	unsigned persist_running;    /* persist_lock: persists, refills and their last requests on the way */
	pthread_cond_t persist_idle; /* persist_running fell to 0 */

	struct again again;

	pthread_mutex_t tell_lock;
	unsigned telling;	  /* tell_lock: answers that node_told() has not been called for */
	pthread_cond_t tell_idle; /* telling fell to 0 */

	pthread_mutex_t alias_lock;
	struct list aliases; /* alias_lock */
	atomic_uint n_aliases;

	pthread_mutex_t late_lock;
	struct list late; /* late_lock: reads into private versions that nobody waits for any more (spill.c) */

	struct node_counters count;
};

#define count_add(n, field, by) atomic_fetch_add_explicit(&(n)->count.field, (by), memory_order_relaxed)
#define count_sub(n, field, by) atomic_fetch_sub_explicit(&(n)->count.field, (by), memory_order_relaxed)
#define count_get(n, field) atomic_load_explicit(&(n)->count.field, memory_order_relaxed)

/* ---- node.c ------------------------------------------------------------------------------------------------- */

/* node_call(), with no regard to what the answer is. */
void node_send(struct node *n, struct msg *req, channel_done_fn done, void *arg);
/* node_call() with the node as arg; node_stop() waits until done has ended with node_told(). */
void node_tell(struct node *n, struct msg *req, channel_done_fn done);
void node_told(struct node *n);
/*
 * Sends and waits; not on a thread of the channel. Returns the status. *ret_answer (may be NULL) is a copy with its
 * items, set whenever an answer came; the caller frees it.
 */
int node_call_wait(struct node *n, struct msg *req, struct msg **ret_answer);
/* What the SSD tier's working devices hold now, in bytes; 0 without one. ret_used may be NULL. */
void node_ssd_room(struct node *n, uint64_t *ret_capacity, uint64_t *ret_used);
/* The kernel may still know a name of this version: tells the file system, from a job. */
void node_tell_gone(struct node *n, uint64_t put_id, uint64_t dir, const char *name);

/* ---- block.c ------------------------------------------------------------------------------------------------ */

static inline uint64_t block_hash(uint64_t put_id, uint32_t index)
{
	return hash_u64(put_id + (uint64_t)index * 0x9e3779b97f4a7c15ull);
}

/* The shard takes the hash's top bits, the slot in it the low ones. */
static inline struct block_shard *block_shard(struct node *n, uint64_t put_id, uint32_t index)
{
	return &n->shards[block_hash(put_id, index) >> 58];
}

int block_index_init(struct node *n);
void block_index_fini(struct node *n);

struct block_shard *block_lock(struct node *n, uint64_t put_id, uint32_t index);
struct block *block_find(struct block_shard *s, uint64_t put_id, uint32_t index); /* call with s locked */
/* Finds or makes; NULL: no memory. Call with s locked. */
struct block *block_get(struct node *n, struct block_shard *s, uint64_t put_id, uint32_t index, uint64_t len);
/*
 * After any use of the block ended: frees what nobody needs any more, perhaps the block. Call with s locked; b may be
 * gone afterwards.
 */
void block_settle(struct node *n, struct block_shard *s, struct block *b);
/*
 * The policy remembers an evicted block by its name, since a value that is stored again is another version: a new name
 * is told here.
 */
void block_rekey(struct node *n, const struct msg_attr *a, uint64_t dir, const char *name);
/* Whether each block of the version has a replica and may be opened. */
bool block_all_present(struct node *n, const struct msg_attr *a);

/* The memory replica is there now: counts it and gives it to the policy. Call with the shard locked. */
void block_has_memory(struct node *n, struct block *b, uint64_t alloc);
/* Maps the memory file if it is not. Call with the shard locked and BLOCK_MEM set. */
int block_map(struct node *n, struct block *b);
/* Call with the shard locked, while nobody pins it. */
void block_unmap(struct node *n, struct block *b);
/* Takes the memory copy away and hands it to the reclaimer. Call with the shard locked and pins 0. */
void block_drop_memory(struct node *n, struct block *b, bool freed_notice);
/* Forgets the SSD copy, held or not. Call with the shard locked. */
void block_drop_ssd(struct node *n, struct block *b);
/* Sets or clears BLOCK_SSD, counting. Call with the shard locked. */
void block_set_ssd(struct node *n, struct block *b, bool on);

static inline struct ssd_key block_key(const struct block *b)
{
	return (struct ssd_key){.id = b->ssd_id, .block = b->index};
}

/* Keeps the SSD copy from being overwritten. False: it is gone. Call with the shard locked. */
bool block_hold_ssd(struct node *n, struct block *b);
/* The object is pinned now, or no longer. */
void block_set_pin(struct node *n, const struct msg_attr *a, bool on);

/* Number of blocks of an object. */
static inline uint64_t block_count(uint64_t size, uint64_t block_size)
{
	return size ? (size - 1) / block_size + 1 : 0;
}

static inline uint64_t block_len(uint64_t size, uint64_t block_size, uint64_t index)
{
	uint64_t left = size - index * block_size;

	return left < block_size ? left : block_size;
}

/* MSG_DROP. */
void block_drop_version(struct node *n, uint64_t put_id, uint64_t n_blocks);
/*
 * What the master does not know is nobody's; open handles keep what they have in memory. All: what was published under
 * an incarnation that is over.
 */
void block_forget(struct node *n, uint64_t put_id, uint32_t index);
void block_forget_all(struct node *n);
/* One part of a drop is done; the last tells the reclaimer. */
void drop_part_done(struct node *n, struct drop *d);

/* ---- fetch.c, member.c: in a cluster alone ------------------------------------------------------------------ */

/*
 * Pulls the block of a plan into map, and waits for it. *ret_sum: of its bytes. -ENOENT, -EBADMSG, -EIO: that copy is
 * no good; others: see data_pull().
 */
int fetch_block(struct node *n, const char *address, const struct plan *plan, void *map, uint64_t *ret_sum);
/* Listens for other nodes, but serves none of them before serve_as(), as that incarnation; 0: none again. */
int serve_start(struct node *n, const struct node_config *cfg, struct errmsg *e);
uint16_t serve_port(const struct node *n);
void serve_as(struct node *n, uint64_t tag);
/* No one is served any more, and none of our own fetches waits: they end with -ESHUTDOWN. */
void serve_stop(struct node *n);
/* Nothing is read for others any more either. */
void serve_fini(struct node *n);

/* holds.c. NULL: no memory. */
struct holds *holds_new(struct node *n);
void holds_free(struct holds *h);
/* fn, once the master knows that the version is open here; -ESTALE: it is none any more; -ENOMEM. Counted. */
void holds_take(struct holds *h, uint64_t put_id, void (*fn)(void *arg, int err), void *arg);
void holds_release(struct holds *h, uint64_t put_id);
/* Says what has been released since. */
void holds_flush(struct holds *h);
/* To a master that was started again. */
void holds_say_again(struct holds *h);

/* NULL: no memory. It makes n a member: from here on what is not here may be elsewhere. */
struct member *member_new(struct node *n, const struct node_config *cfg);
void member_free(struct member *m);
/* Joins, which waits for the master, and begins to say that it lives. address: where others get blocks from it. */
int member_start(struct node *n, const char *address, struct errmsg *e);
/* It joins no more; the thread may still wait for the master, and ends when the channel is of no more use. */
void member_stop(struct node *n);
void member_join_thread(struct node *n);
/*
 * Requests that are about no ticket and no get: where the answer is that the sender's incarnation is over, nothing has
 * happened, and the next incarnation asks again.
 */
bool member_asks_again(enum msg_type type);
void member_call(struct node *n, struct msg *req, channel_done_fn done, void *arg);
/* resume.c: says all that the node has. 0; -ESTALE: the master does not know the node after all; -ESHUTDOWN; -ENOMEM.
 */
int resume_stock(struct node *n);
/* Whether what is known under a lease may be believed: always, standalone. */
bool member_has_leases(struct node *n);
/* The master's clock shows at least this; 0: not known. */
uint64_t member_master_ns(struct node *n);

/* ---- version.c ---------------------------------------------------------------------------------------------- */

struct version {
	struct node *n;
	uint64_t put_id, size, block_size;
	atomic_uint refs;
	atomic_bool away; /* some block has no copy here, and its get is not counted yet */
	bool held;	  /* the master was told that it is open here */
	uint32_t n_blocks;
	struct block *blocks[];
};

/* One with room for so many blocks and none yet; version_close() at any time lets go of those that it has. */
struct version *version_new(struct node *n, const struct msg_attr *a, uint32_t blocks);
/* One holder fewer. */
void version_release_block(struct node *n, struct block *b);
/* As version_open(), but counts no get: for writers and tools. */
int version_hold(struct node *n, const struct msg_attr *a, struct version **ret);
/* Whether the SSD tier alone has the block, at this moment, and under which key. */
bool version_block_on_ssd(struct version *v, uint32_t i, struct ssd_key *ret);
struct version *version_ref(struct version *v);
/* Reads and waits, into buf. Not on a thread of the channel or the device. */
int version_read_wait(struct version *v, uint64_t off, void *buf, size_t len);
int version_prefetch_wait(struct version *v);

/* ---- refill.c, persist.c ------------------------------------------------------------------------------------ */

/*
 * Pins the block's memory copy, and maps it if map. 1: done. 0: w waits (and it will be mapped), its fn will run.
 * Negative errno: -EIO, the block has no replica any more.
 */
int block_pin(struct node *n, struct block *b, bool map, struct block_wait *w);
void block_unpin(struct node *n, struct block *b);

void persist_items(struct node *n, const struct msg_item *items, size_t n_items);
/* The ring has overwritten these. A callback of the SSD tier. */
void persist_evicted(void *arg, const struct ssd_key *keys, size_t n_keys);
/*
 * Waits until *over (lock; cond goes by the monotonic clock), or until the device has got nothing done for the leg's
 * deadline: whoever waits in a long queue waits on, but not because another device works. device: of ssd_device_of(),
 * also when that found none. Call with lock held.
 */
void tier_wait(struct node *n, int device, pthread_mutex_t *lock, pthread_cond_t *cond, const bool *over);
/* The tier has not got what the master takes for a replica: tells the master. Not with a shard locked. */
void persist_lost(struct node *n, uint64_t put_id, uint32_t index);
/* Counts one that persist_drain() must wait for, and that it is over. */
void persist_begin(struct node *n);
void persist_end(struct node *n);
/* 0 or -ENOMEM. */
int persist_init(struct node *n);
void persist_fini(struct node *n);
/*
 * The evictor's thread, now and then: what was dropped from the backlog, or was on its way to a device that failed,
 * goes again when the others have caught up; and all that is in memory alone, when a device has failed or come back.
 * True: some are left.
 */
bool persist_again(struct node *n);
/* Waits until none is on its way, nor a refill. Nothing new may come. */
void persist_drain(struct node *n);

/* ---- evict.c ------------------------------------------------------------------------------------------------ */

void evict_init(struct node *n);
/* Says what the segment has, and that the node lives. done ends with node_told(). 0, or an error and done does not run.
 */
int evict_heartbeat(struct node *n, channel_done_fn done);
int evict_start(struct node *n);
/* Ends the thread, if it runs; the locks stay, and what is still pushed waits for evict_drain(). */
void evict_stop(struct node *n);
/* Reclaims what was pushed since. No other thread may push. */
void evict_drain(struct node *n);
void evict_fini(struct node *n);
/* The master's ledger may have fallen: those who wait try again. */
void space_freed(struct node *n);
/* Evicts or drops what node_evict() is asked for. Waits: for jobs only. */
int evict_version_wait(struct node *n, const struct msg_attr *a, enum node_tier tier, bool force);
/* Wakes the evictor when little is free. */
void evict_check(struct node *n);
/*
 * Sends the request that make() builds again and again, while the answer is -ENOSPC, evicting meanwhile, for
 * SPACE_WAIT_NS at most. Waits: for jobs only.
 */
int space_call(struct node *n, struct msg *(*make)(void *arg), void *arg, uint64_t bytes, struct msg **ret_answer);
/* Counts it, and says now and then what is in the way. */
void space_refused(struct node *n, uint64_t bytes);
/* Never NULL: waits for memory. */
struct reclaim *reclaim_new(void);
/* Hands memory over to be unlinked and unmapped. Takes over r, which is malloc'ed or that of a drop. */
void reclaim_push(struct node *n, struct reclaim *r);
/* Waits until what was pushed before is done. */
void reclaim_flush(struct node *n);

/* ---- overlay.c, names.c ------------------------------------------------------------------------------------- */

uint64_t node_name_hash(uint64_t dir, const char *name);

/* All with overlay.lock held. */
struct put *overlay_find(struct node *n, uint64_t dir, const char *name);
void overlay_insert(struct node *n, struct put *p); /* under p->dir, p->name; p->named becomes true */
void overlay_remove(struct node *n, struct put *p); /* p->named becomes false; harmless when it was */
/* Whether any private version that is to be seen lies in this directory. Takes the lock. */
bool overlay_dir_in_use(struct node *n, uint64_t dir);

void names_init(struct node *n, uint64_t min_names);
void names_fini(struct node *n);
/* Remembers what a name stands for, unless something newer than this lease is known, or the incarnation that it was
 * granted to is over. */
void names_insert(struct node *n, uint64_t dir, const char *name, const struct msg_attr *a, uint64_t lease,
		  uint64_t tomb_tag);
/* True with what the name stands for, if that is known and its bytes are here. */
bool names_find(struct node *n, uint64_t dir, const char *name, struct msg_attr *ret);
/* Forgets the name; leases up to this one are over. */
void names_forget(struct node *n, uint64_t dir, const char *name, uint64_t lease);
/*
 * A request of ours that moves the name is on its way: others may know it as what it will be before we have the answer,
 * so from here to the end nothing is known of it here. lease: of the answer; 0: it has none, or has failed.
 */
void names_move_begin(struct node *n, uint64_t dir, const char *name);
void names_move_end(struct node *n, uint64_t dir, const char *name, uint64_t lease);
/* Forgets the name of this version, whatever it is. */
void names_forget_id(struct node *n, uint64_t id);
/* Forgets all names of a directory, or of all (dir 0); leases up to this one are over. */
void names_forget_dir(struct node *n, uint64_t dir, uint64_t lease);
void names_forget_all(struct node *n);
/* Whether a name is known to stand for this version. */
bool names_has_id(struct node *n, uint64_t id);
/* node_setattr() of a version that no private one follows. With overlay.lock and a put's lock held, too. */
void names_send_attr(struct node *n, const struct msg_attr *a, uint32_t mask, node_entry_fn fn, void *arg);

/* ---- put.c -------------------------------------------------------------------------------------------------- */

enum put_state {
	PUT_CLEAN,	/* no bytes of its own: those of base, or none at all */
	PUT_STARTING,	/* its first ticket is on its way */
	PUT_OPEN,	/* has a ticket and files */
	PUT_PUBLISHING, /* PutDone is on its way: nothing may change */
};

struct put_block {
	uint64_t alloc;
	uint64_t granted; /* bytes the master granted for it */
	uint64_t filled;  /* the file's length: it has all pages up to here */
	int fd;		  /* -1: no file yet, or spilled */
	bool spilled;	  /* the SSD tier has it, under the ticket, held */
};

struct put_waiter {
	struct put_waiter *next;
	node_done_fn fn;
	void *arg;
};

/* Writes that are answered and still being copied: so many at once for a put. */
#define PUT_BEHIND_MAX 4

struct put_behind {
	uint64_t off, end; /* end 0: not used */
};

struct put {
	struct node *n;
	uint64_t id; /* for ever; with NODE_PRIVATE_ID */
	uint64_t block_size;

	/* overlay.lock */
	struct list all; /* in overlay.puts */
	struct put *next;
	unsigned refs;
	bool named;   /* in the overlay, under dir and name */
	bool exposed; /* the name stands for it here */

	/* overlay.lock and lock to write, either to read */
	uint64_t dir;
	char *name;

	pthread_mutex_t work; /* held by the one job that changes state, allocation or name; the outermost lock */

	/* lock */
	pthread_mutex_t lock;
	pthread_cond_t settled; /* users fell to 0, frozen fell, or state left PUT_PUBLISHING or PUT_STARTING */
	enum put_state state;
	unsigned handles;			  /* all of them */
	unsigned writers;			  /* of them */
	unsigned users;				  /* reads and writes of the files at this moment */
	unsigned frozen;			  /* jobs that keep new users out */
	struct put_behind behind[PUT_BEHIND_MAX]; /* of the users */
	int lost;				  /* -errno: bytes of an answered write could not be copied */
	bool dirty;				  /* bytes were written since the open or the last publish */
	bool born;	 /* new, or emptied by its open: published at the last release at the latest */
	bool abandoned;	 /* its writer was killed */
	bool persist;	 /* the master will ask for copies on the SSD tier */
	bool over;	 /* the last writer is gone, and its name: neither comes back */
	bool on_master;	 /* the master has an object under the name: what it was made from or published as */
	uint64_t ticket; /* 0: none */
	uint64_t size;
	struct put_block *blocks;
	size_t n_blocks;
	struct version *base; /* PUT_CLEAN: whose bytes it has; NULL: it is empty */
	uint64_t base_id;     /* the version it was made from or last published as; 0: none */
	struct msg_attr attr; /* mode, uid, gid, times, flags, expires_ns */
	uint8_t *xattrs;
	size_t xattrs_len;
	bool xattrs_known;	     /* false: those of base_id are newer, not fetched yet */
	struct put_waiter *flushers; /* wait for the publish on its way */
	uint32_t late_mask;	     /* MSG_SET_*: attributes that changed while it was */
	bool late_xattrs;
};

/* A reference. */
struct put *put_new(struct node *n, uint64_t dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid);
/* Tells the master that the writers of this node live. */
void put_renew_all(struct node *n);
/* Whether the master has an object under the put's name; whether the name stands for the put here. Take p->lock. */
bool put_is_on_master(struct put *p);
bool put_is_exposed(struct put *p);
/* Takes the put out of the overlay: it has no name any more. Takes overlay.lock. */
void put_detach(struct put *p);
/* Same, with overlay.lock held. */
void put_detach_locked(struct put *p);
/* The published version's attributes change: so do those of the private one that made it and may publish again. */
void put_follow_base(struct node *n, const struct msg_attr *a, uint32_t mask);

/* PutStart for a put without a ticket, then it is PUT_OPEN. block_size 0: the namespace's. In a job, with p->work held.
 */
int put_start_wait(struct put *p, uint64_t guess, uint64_t block_size);

/* put_io.c; in a job, with p->work held and, but for freeze and thaw, the put frozen */

/* Waits until nobody uses the files and no ticket or publish is on its way, and keeps it so until put_thaw(). Counted.
 */
void put_freeze(struct put *p);
void put_thaw(struct put *p);
/* Makes sure that the put is PUT_OPEN, with a copy of the first keep bytes of its base. */
int put_unshare(struct put *p, uint64_t keep);
/* Frees all files and the ticket: PUT_CLEAN. Takes p->lock. put_discard() lets go of the base too. */
void put_discard_files(struct put *p);
void put_discard(struct put *p);

/* Closes the files, which somebody else owns now. Users are kept out. */
void put_forget_files(struct put *p);
/* Cuts the files to the size; blocks beyond lose theirs. Users are kept out. */
int put_trim(struct put *p, uint64_t size);

/* Raises the grant of a block to want bytes, or at least to need; evicts for need only. Waits. */
int put_grant(struct put *p, uint32_t block, uint64_t need, uint64_t want);

/* spill.c; in a job, with p->work held and the put frozen */

/*
 * Reads a value of the SSD tier into a file of the segment, which has its pages; waits for the device. -ENOENT,
 * -EBADMSG: that copy is no good. -EAGAIN: too many wait for the device already. After -EIO the device may still write
 * there.
 */
int spill_load(struct node *n, struct ssd_key key, int fd, uint64_t len);
/*
 * Whether a read of it came to the deadline and the device has not answered yet: whoever tries again is refused before
 * he gets memory for it, since each try keeps its own until the device answers.
 */
bool spill_is_late(struct node *n, struct ssd_key key);
/* Before need more bytes are granted: copies blocks that lie wholly below full, but not keep, to the SSD tier. */
int spill_make_room(struct put *p, uint64_t need, uint64_t full, uint32_t keep);
/* Brings a block that was spilled back into memory; harmless for any other. */
int spill_restore(struct put *p, uint64_t full, uint32_t i);
/* Forgets the SSD copy of a spilled block. */
void spill_drop(struct node *n, uint64_t ticket, uint32_t i);

/* The SSD tier's keys that are not put_ids: blocks number of them mean blocks of put_id. */
int alias_add(struct node *n, uint64_t ssd_id, uint64_t put_id, uint64_t blocks);
void alias_put(struct node *n, uint64_t ssd_id);
uint64_t alias_resolve(struct node *n, uint64_t ssd_id);

/* put_publish.c */
/* In a job, with p->work held: publishes and waits. */
int put_publish_wait(struct put *p);

#endif
