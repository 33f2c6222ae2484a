/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the SSD tier share: the store, its devices, and the requests that go through them.
 *
 * A device has three threads. The I/O thread (device.c, transfer.c) takes requests off the queues, gives writes their
 * range, and keeps io_depth pieces of at most 1 MiB in flight; it touches no payload, save for what must be copied
 * before a write. The finisher (finish.c) takes checksums of what is read, piece by piece and in order, while other
 * pieces are still in flight, copies out of scratch buffers, settles the entry and runs the done function. So neither a
 * checksum nor a slow done function leaves the device idle. The summer (sum.c) takes those of what is written, and
 * hands a write whose checksum is later than its I/O back to the finisher.
 *
 * Locking order: store->lock, then device->lock (one at a time), then the lock of the notices. None is held across I/O
 * or a callback. Sleeping beside a flag: whoever frees what the I/O thread may wait for (a pin, a scratch buffer)
 * does so under the lock that guards it, and then calls ssd_device_unblock(); the thread sets `stalled` under that
 * same lock, so it cannot miss it.
 */
#ifndef SSD_INTERNAL_H
#define SSD_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "common/list.h"
#include "ssd/io.h"
#include "ssd/notice.h"
#include "ssd/ring.h"
#include "ssd/root.h"

#define SSD_PIECE (1u << 20)
#define SSD_SCRATCH 16u	     /* scratch buffers of one piece a device */
#define SSD_QUEUE_MAX 16384u /* requests, each of the two queues of a device */
#define SSD_PAGE 4096u	     /* a written buffer is readable, and zero behind len, up to a multiple of this */

/* Bytes being written at once: a read that comes waits behind no more than this. */
#define SSD_WRITE_WINDOW (16u << 20)
/*
 * Bytes being read at once. They keep the fastest device busy (14 GB/s for 0.3 ms are 4 MiB), and more would only end
 * all together: the readers would copy at one time while the device idles, and wait for it at another.
 */
#define SSD_READ_WINDOW (4u << 20)

enum ssd_kind { SSD_OP_READ, SSD_OP_WRITE, SSD_OP_MOVE };

/*
 * One request. It belongs to the queue that it is in (device->lock), then to the I/O thread, then to the finisher; the
 * fields marked "sum" are the finisher's of a read, and the summer's from the start of a write on.
 */
struct ssd_op {
	XXH3_state_t state; /* sum */
	struct list list;   /* in a queue, or among the checksums to take */
	struct list pieces; /* in flight, in order; handed over from the front */
	struct list todo;   /* among those that the finisher has something to do for; device->lock */
	struct list ready;  /* pieces for the finisher, in order; device->lock */
	bool ended;	    /* no more pieces come; device->lock */
	struct ssd_device *dev;
	enum ssd_kind kind;
	uint32_t entry;
	struct ssd_move move;
	unsigned file;
	unsigned flags;
	unsigned in_flight;
	bool started;  /* the entry has its range */
	bool blocked;  /* was found BlockedByBusyIo, and counted */
	bool io_ended; /* of a write; device->lock */
	bool summed;   /* the checksum is there; of a write: device->lock, once it has started */
	int err;
	unsigned char *buf;
	uint64_t len, alen, capacity;
	uint64_t charge;   /* what of the backlog it accounts for; device->lock */
	uint64_t from, to; /* file offset of the bytes; to: of the copy of a move */
	uint64_t next;	   /* first byte for which no piece has been made */
	uint64_t hashed;   /* sum */
	uint64_t sum;	   /* sum */
	ssd_ready_fn tell; /* of a read; or NULL */
	ssd_done_fn done;
	void *arg;
};

/* Part of a request, at most SSD_PIECE bytes, one request of the engine at a time. */
struct ssd_piece {
	struct ssd_io_req req;
	struct list list; /* in the free list, or ready for the finisher */
	struct list in_op;
	struct ssd_op *op;
	void *scratch; /* or NULL: straight from or to op->buf */
	uint64_t off;  /* in the request */
	uint32_t len, got;
	unsigned tries;
	bool writing; /* of a move: the second half */
	bool came_back;
};

struct ssd_device {
	struct ssd_store *store;
	char *path;
	uint64_t limit;
	unsigned id;
	pthread_t thread, finisher, summer;
	bool thread_up, finisher_up, summer_up;

	/* Fixed from open on; a device that comes back must have the same. */
	uint32_t align, mem_align;
	unsigned n_rings;
	struct ssd_ring *rings; /* store->lock */

	/* store->lock */
	bool failed;
	uint64_t failures;

	pthread_mutex_t lock;
	pthread_cond_t cond;	 /* the I/O thread, while it has no engine */
	pthread_cond_t fin_cond; /* the finisher */
	pthread_cond_t sum_cond; /* the summer */
	/* lock */
	void *io; /* the engine; NULL while the device is down */
	struct list reads, writes;
	unsigned n_reads, n_writes;
	uint64_t backlog;
	bool kicked, stalled, stop, fin_stop, sum_stop;
	struct list todo;	/* requests with something ready for the finisher */
	struct list sums;	/* writes without a checksum */
	struct ssd_op *summing; /* the one of them of which a piece is just taken */
	struct list free_pieces;
	void *free_scratch[SSD_SCRATCH];
	unsigned n_scratch;

	/* the I/O thread's, or of whoever opens and closes while it does not run */
	struct ssd_dir dir;
	struct ssd_shards shards;
	struct ssd_op *cur_read, *cur_write, *waiting;
	dev_t dev;	      /* of the first time: never another one's bytes are used instead */
	struct ssd_op *moves; /* one a ring */
	struct list moving;
	unsigned next_ring;
	uint64_t write_bytes, read_bytes;	       /* in flight */
	int bad;				       /* the error that takes the device out */
	atomic_uint reads_in_flight, writes_in_flight; /* others look for the statistics */
	atomic_ullong progress; /* pieces that came back, and pieces of checksums; others look whether it grows */

	struct ssd_piece *pieces;
	unsigned char *scratch;
};

struct ssd_store {
	struct ssd_device *devs;
	unsigned n_devs;
	unsigned io_depth, shards_per_device, retry_seconds;
	bool direct;
	uint64_t backlog_limit, max_len;
	char *cluster, *instance;
	const struct ssd_io_ops *io;
	struct ssd_notices *notices;

	pthread_mutex_t lock;
	/* lock */
	struct ssd_index index;
	struct ssd_ring *rings[SSD_MAX_ROOTS * SSD_MAX_SHARDS]; /* by entry.ring */
	unsigned next_dev, next_evict;
	uint64_t queued;
	struct ssd_stats st; /* the counters of it */
};

/* device.c */

/* Makes a device that is down and has no threads. */
int ssd_device_init(struct ssd_device *d, struct ssd_store *s, unsigned id, const struct ssd_root *root);
/* Copes with whatever there is of it; the shard files go. */
void ssd_device_free(struct ssd_device *d);
/* Takes the cache root, makes the shard files and the engine, and the first time the rings. */
int ssd_device_open(struct ssd_device *d, struct errmsg *e);
int ssd_device_start(struct ssd_device *d);
/* Ends the threads; what is queued is cancelled, what is in flight ends. */
void ssd_device_stop(struct ssd_device *d);
/* Makes the I/O thread look. Call with d locked. */
void ssd_device_kick(struct ssd_device *d);
/* Something went that the I/O thread may wait for. Call with d locked. */
void ssd_device_unblock(struct ssd_device *d);

/* transfer.c: the I/O thread */

/* Puts one more piece in flight, of a read or of a write as the bias has it. False: there is none, or nowhere to. */
bool ssd_transfer_next(struct ssd_device *d);
/* A piece has come back from the engine. */
void ssd_transfer_ended(struct ssd_device *d, struct ssd_io_req *req);
/* Gives up what has been begun and is not in flight, with err. */
void ssd_transfer_abort(struct ssd_device *d, int err);
/* A free piece, with a scratch buffer where one is asked for, goes back. Takes d's lock. Any thread. */
void ssd_piece_free(struct ssd_device *d, struct ssd_piece *p);

/* finish.c */

void *ssd_finisher(void *arg);
/* Hands over a piece that was read, a request that has ended. Take d's lock. */
void ssd_finish_piece(struct ssd_device *d, struct ssd_piece *p);
void ssd_finish_op(struct ssd_device *d, struct ssd_op *op);
/* As ssd_finish_op(). Call with d locked. */
void ssd_finish_op_locked(struct ssd_device *d, struct ssd_op *op);

struct ssd_op *ssd_op_new(struct ssd_device *d, enum ssd_kind kind, ssd_done_fn done, void *arg);
void ssd_op_init(struct ssd_op *op, struct ssd_device *d, enum ssd_kind kind);

/* sum.c */

void *ssd_summer(void *arg);
/* Takes n more bytes of the payload into the checksum. True: it is there. */
bool ssd_sum_more(struct ssd_op *op, const void *p, uint64_t n);
/* The checksum of a write that has got its range is to be taken, unless the caller knew it. Takes d's lock. */
void ssd_sum_start(struct ssd_device *d, struct ssd_op *op);
/* The I/O of a write is over. False: the summer hands it over once more, when it has its checksum. Takes d's lock. */
bool ssd_sum_ends(struct ssd_device *d, struct ssd_op *op);

#endif
