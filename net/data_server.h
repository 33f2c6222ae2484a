/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source's side of transfers between nodes: shows a block's bytes to whoever comes with a plan for it
 * (net/plan.h), over TCP. Wire: net/data_wire.h; the other side: net/data_client.h. Where the bytes come from is the
 * owner's business, which it is asked for by the callbacks; so this knows of no segment and no SSD.
 *
 * A plan is believed because of its MAC, if it is for this incarnation of the node and has not expired; nobody else is
 * asked. A file's bytes are sent without a copy; a stream's as they come, while the next ones are read.
 *
 * Threads: one that listens, and one for each connection, which serves its requests one after the other and runs the
 * callbacks for them; they may wait. Connections are bounded: those of strangers (the oldest makes place for another),
 * and all of them (a stranger makes place, or else the one that has been without a request for longest, or the new one
 * is refused). The functions may be called from any thread.
 */
#ifndef NET_DATA_SERVER_H
#define NET_DATA_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "net/plan.h"

struct data_server;

/* Where the bytes of one transfer are. open() gets one with fd -1 and zeros. */
struct data_source {
	/* A file: len bytes of fd from off on, which nobody changes. */
	int fd;
	uint64_t off;
	/*
	 * Or a stream, where there is a wait(): bytes that appear at buf, one after the other. It blocks until more
	 * than `have` of them are there (0 is had at the start), or all; then *ret_ready is how many, and with the last
	 * ones *ret_sum is the sum. Or a negative errno: there will be no more.
	 */
	const void *buf;
	int (*wait)(void *arg, uint64_t have, uint64_t *ret_ready, uint64_t *ret_sum);
	void *arg; /* wait()'s; whatever else the owner makes of it */
	/*
	 * XXH3 of all bytes (hash_bytes() with seed 0). A file whose sum nobody has taken yet leaves has_sum false and
	 * has its bytes at buf, too: then it is taken here, while they are sent, and is in sum when close() is called
	 * with 0.
	 */
	bool has_sum;
	uint64_t sum;
};

struct data_server_config {
	const char *listen;	  /* "ADDR:PORT", a number; port 0: any */
	const char *key_file;	  /* NULL: none, and then listen must be on the loopback */
	uint32_t max_connections; /* 0: 256 */
	uint32_t max_strangers;	  /* 0: 64 */
	uint64_t handshake_ms;	  /* 0: 5 s */
	uint64_t silence_ms;	  /* a peer that takes nothing, or does not end its request; 0: 5 s */
	uint64_t min_rate;	  /* bytes a second, over a whole answer, behind silence_ms; 0: 1 MiB */
	uint64_t idle_ms;	  /* that a connection is kept without a request; 0: 60 s */

	/* The master's monotonic clock shows at least this now; 0: not known, and then nothing has expired. */
	uint64_t (*master_ns)(void *arg);
	/*
	 * The block of a plan that is good. 0: *ret tells where it is, until close(). -ENOENT: it is not here; another
	 * negative errno, which the other side is told.
	 */
	int (*open)(void *arg, const struct plan *p, struct data_source *ret);
	/* Once for each open() that was 0. err: 0 when all was sent, and with it what was right. */
	void (*close)(void *arg, struct data_source *src, int err);
	void *arg;
};

struct data_server_stats {
	uint64_t accepted, refused; /* refused: there were too many, or they took too long */
	uint64_t strangers;	    /* without the key, or not FluxKV */
	uint64_t malformed;	    /* connections closed for what they sent */
	uint64_t connections;	    /* now */
	uint64_t pulls, bytes;	    /* served to the end */
	uint64_t denied;	    /* plans whose MAC is wrong */
	uint64_t stale;		    /* that have expired, or are for another incarnation */
	uint64_t missing;	    /* for what open() does not have, or refuses */
	uint64_t slow;		    /* given up because the peer took nothing, or too little */
	uint64_t broken;	    /* the peer went away */
	uint64_t failed;	    /* the source failed */
};

/* Listens when it returns 0; what it serves are plans for the incarnation tag. On failure e says why in one line. */
int data_server_start(const struct data_server_config *cfg, uint64_t tag, struct data_server **ret, struct errmsg *e);
/*
 * Ends all connections, wherever they are. Callbacks are waited for, so whoever stops sees to it that they end; none
 * runs behind it. Takes NULL, returns NULL.
 */
struct data_server *data_server_stop(struct data_server *s);
/* The node's incarnation is another from here on; 0: it has none, and nothing is served. */
void data_server_set_tag(struct data_server *s, uint64_t tag);
/* The port that it listens on. */
uint16_t data_server_port(const struct data_server *s);
void data_server_get_stats(struct data_server *s, struct data_server_stats *ret);

#endif
