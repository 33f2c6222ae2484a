/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SSD tier of one owner: takes (key, bytes), keeps them in rings on the configured devices, gives them back, and
 * tells its caller which ones the ring has overwritten. It knows nothing of routes, masters or files.
 *
 * It is a run-time tier: opening a store removes the shard files that an earlier run left and begins empty; closing
 * it removes them again.
 *
 * Threads: every function may be called from any thread, ssd_store_close() once and last. No function waits for
 * I/O but open and close. The done functions and the eviction notice run on threads of the store's own with no lock
 * held: they may call everything here but ssd_store_close(), and must not block for long, since the completions of
 * the device wait behind them.
 *
 * Life of an entry: ssd_write() makes it Writing, done(0) says Committed; from then on it can be read and held, until
 * the ring overwrites it (a notice tells) or ssd_drop() takes it away. A commit pin, which done(0) leaves behind, and
 * reads in flight keep the ring from overwriting it; a hold makes the ring keep it somewhere else.
 */
#ifndef SSD_SSD_H
#define SSD_SSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

struct ssd_store;
struct ssd_io_ops; /* ssd/io.h */

#define SSD_MAX_ROOTS 32u
#define SSD_MAX_SHARDS 64u /* a device */

/* Opaque here: what the caller calls one block of one version. A key is written at most once at a time. */
struct ssd_key {
	uint64_t id;
	uint32_t block;
};

/* A directory that is there already, and how many bytes its rings may hold (the shard files have this size). */
struct ssd_root {
	const char *path;
	uint64_t limit;
};

/* sum: XXH3 of the payload (hash_bytes() with seed 0), where err is 0. */
typedef void (*ssd_done_fn)(void *arg, int err, uint64_t sum);
typedef void (*ssd_ready_fn)(void *arg, uint64_t bytes);

/* The strings are copied; io and the arguments must live as long as the store. 0 asks for the default. */
struct ssd_config {
	const struct ssd_root *roots;
	size_t n_roots;
	const char *cluster_name, *instance_key; /* together the directory under each root; escaped, so any text */
	unsigned shards_per_device;		 /* 4 */
	unsigned io_depth;			 /* 128 requests in flight a device */
	bool direct;				 /* O_DIRECT; false: through the page cache */
	unsigned retry_seconds;			 /* 30: a device that failed is tried again after this */
	uint64_t backlog_limit;			 /* 1 GiB: bytes queued for writing, a device */
	uint32_t max_entries;			 /* 16 Mi, at about 56 bytes of memory each; beyond, the oldest goes */
	/*
	 * The ring has overwritten these, or lost them with a device: up to 256 at a time, at 256 or 10 ms after the
	 * first. What does not fit the bounded queue before it is counted (notices_lost), never waited for. May be
	 * NULL.
	 */
	void (*evicted)(void *arg, const struct ssd_key *keys, size_t n);
	void *arg;
	const struct ssd_io_ops *io; /* NULL: io_uring. Tests fail, shorten, delay and reorder I/O here */
};

/*
 * Makes the cache root <path>/<cluster>_cluster_kv_ssd_storage/<instance>/ on each device, locks it, preallocates its
 * shard files and starts the threads. Two roots on one device are one: the second is dropped with a warning in the
 * log. Errors, each with one line in e: -EINVAL (limit under 512 bytes, no roots), -EBUSY (another daemon has the
 * root; its pid is named), -ENOSPC (no room for the limit), -EOPNOTSUPP (no O_DIRECT, no fallocate), other errnos.
 */
int ssd_store_open(const struct ssd_config *cfg, struct ssd_store **ret, struct errmsg *e);

/*
 * Lets what is in flight finish, cancels what is queued (done runs with -ECANCELED), sends the last notices, joins the
 * threads, removes the shard files. When it returns every done function has run. NULL is allowed; returns NULL.
 */
struct ssd_store *ssd_store_close(struct ssd_store *s);

/* The largest value that any device of the store can take. */
uint64_t ssd_max_len(const struct ssd_store *s);

enum ssd_write_flags {
	/*
	 * Not to be dropped for the sake of others: this write is queued beyond the backlog limit, and is no candidate
	 * when room is made there. It waits for whatever ends by itself. Never blocks the calling thread either.
	 */
	SSD_WAIT = 1u << 0,
};

/*
 * Persists len bytes. buf is a page-aligned mapping that stays valid and unchanged until done has run; the bytes
 * behind len up to the end of its last page are zero. sum: the payload's checksum where the caller has it, else NULL.
 *
 * Returns 0, and then done runs exactly once:
 *   0           Committed; the entry has a commit pin until ssd_commit_done() or ssd_drop()
 *   -ENOBUFS    dropped: newer writes needed its place in the backlog or in the queue (without SSD_WAIT)
 *   -ENOSPC     dropped: too much of the ring is held
 *   -ECANCELED  ssd_drop() or ssd_store_close() came first
 *   -EIO        the device failed, or took less than it was given
 * or an error, and then done does not run and buf is not touched:
 *   -EEXIST     the key is there, or on its way
 *   -EFBIG      longer than ssd_max_len(); -EINVAL: empty
 *   -ENOBUFS    the backlog or the queue is full of writes that may not be dropped, or no entry is left
 *   -ENODEV     no device that could take it works at present
 *   -ENOMEM
 */
int ssd_write(struct ssd_store *s, struct ssd_key key, const void *buf, uint64_t len, const uint64_t *sum,
	      unsigned flags, ssd_done_fn done, void *arg);

/* The master has answered (or will not): the ring may overwrite the entry from now on. */
void ssd_commit_done(struct ssd_store *s, struct ssd_key key);

/*
 * Reads the whole payload, whose length the caller knows, into buf and verifies its checksum. capacity: how many bytes
 * at buf may be overwritten; with a page-aligned buf and a capacity of whole pages nothing is copied, else the part
 * that does not fit goes through a scratch buffer. Bytes behind len may be overwritten with zeros, up to capacity.
 *
 * Returns 0, and then done runs exactly once (until then buf must stay valid):
 *   0           all of it is in buf, sum is its checksum
 *   -EBADMSG    not what was written: the entry is dropped, and a notice of it sent
 *   -EIO        the device failed; -ENOENT: the entry went meanwhile; -ECANCELED: the store is closing
 * or an error, and then done does not run: -ENOENT (not there, not Committed), -EINVAL (another length than was
 * written, capacity under len), -EAGAIN (the queue is full), -ENOMEM.
 */
int ssd_read(struct ssd_store *s, struct ssd_key key, void *buf, uint64_t capacity, uint64_t len, ssd_done_fn done,
	     void *arg);

/*
 * The same, and ready tells how far it has come: the first `bytes` of the payload are in buf, so that they can go on
 * to somebody else while the rest is still being read. bytes grows from call to call, up to len; the calls come one
 * after the other, under the rules of the done functions, and none after done. What is there is not verified yet: only
 * done(0) says that it is what was written. ready may be NULL.
 */
int ssd_read_progress(struct ssd_store *s, struct ssd_key key, void *buf, uint64_t capacity, uint64_t len,
		      ssd_ready_fn ready, ssd_done_fn done, void *arg);

/* Committed and readable at this moment. */
bool ssd_has(struct ssd_store *s, struct ssd_key key);

/*
 * A held entry is not overwritten: when the ring comes around to it, it keeps it in place or copies it to head.
 * Counted. Only the loss of its device takes a held entry away. 0, or -ENOENT when there is no Committed entry.
 */
int ssd_hold(struct ssd_store *s, struct ssd_key key);
void ssd_unhold(struct ssd_store *s, struct ssd_key key);

/*
 * The caller does not want it any longer (deleted, overwritten, a write given up). No notice is sent. A queued write
 * ends with -ECANCELED; reads in flight finish. A held entry goes at its last ssd_unhold() and can be read until then.
 */
void ssd_drop(struct ssd_store *s, struct ssd_key key);

struct ssd_device_stats {
	const char *path; /* the root as configured; valid until the store is closed */
	bool failed;
	unsigned shards;
	uint64_t failures;	 /* how often it was taken out */
	uint64_t capacity, used; /* bytes; used: aligned lengths of the entries that are Writing or Committed */
	uint64_t held;		 /* of used: under ssd_hold() */
	uint64_t entries;	 /* Writing or Committed */
	uint64_t backlog;	 /* bytes queued or being written */
	uint64_t queued_reads, queued_writes, io_in_flight;
};

/* Counters only grow; the others are of this moment. */
struct ssd_stats {
	uint64_t capacity; /* of the devices that work */
	uint64_t used, held, entries, backlog;
	uint64_t queued;      /* entries whose write has not got its place in a ring yet */
	uint64_t index_bytes; /* memory of the index */
	uint64_t writes_ok, writes_failed, write_bytes;
	uint64_t reads_ok, reads_failed, read_bytes; /* failed: everything but 0, -ENOENT and -ECANCELED */
	uint64_t dropped_backlog, dropped_held, dropped_too_big, dropped_no_device, dropped_memory;
	uint64_t cancelled;  /* writes ended by ssd_drop() or close */
	uint64_t busy_waits; /* writes that found the ring BlockedByBusyIo */
	uint64_t evicted, notices_sent, notices_lost;
	uint64_t checksum_errors;
	uint64_t kept_in_place, copied_to_head, copied_bytes; /* held entries that the ring came around to */
	unsigned n_devices;
	struct ssd_device_stats dev[SSD_MAX_ROOTS];
};

void ssd_stats(struct ssd_store *s, struct ssd_stats *ret);
/* The number of the device that has the key or is to get it; -ENOENT: none. */
int ssd_device_of(struct ssd_store *s, struct ssd_key key);
/* Grows with whatever that device gets done, were it a part of a request only. */
uint64_t ssd_progress(const struct ssd_store *s, unsigned device);

#endif
