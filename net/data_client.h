/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requester's side of transfers between nodes: pulls a block's bytes from a node that has them, over TCP, right
 * into the caller's memory. Wire: net/data_wire.h; the other side: net/data_server.h. It knows nothing of what the
 * bytes are, nor of the master, whose plan (net/plan.h) it shows the source.
 *
 * A pull runs on its caller's thread, which waits; any number of threads may. Each pull has a connection to itself,
 * kept for the next one when it went well. A connection that the source has closed in the meantime is no failure: the
 * pull begins again over a fresh one, once.
 *
 * Every wait has an end: see silence_ms, connect_ms and min_rate, and data_client_stop().
 */
#ifndef NET_DATA_CLIENT_H
#define NET_DATA_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "net/plan.h"

struct data_client;

struct data_client_config {
	const char *key_file;	/* NULL: none. Used only until data_client_start() returns */
	uint64_t connect_ms;	/* to look a name up, connect and shake hands; 0: 5 s */
	uint64_t silence_ms;	/* while a source sends nothing; 0: 5 s */
	uint64_t min_rate;	/* bytes a second, over a whole pull, behind silence_ms; 0: 1 MiB */
	uint64_t idle_ms;	/* that a connection is kept without use; 0: 30 s */
	uint32_t max_idle;	/* connections kept; 0: 64 */
	uint32_t max_idle_each; /* to one address; 0: 4 */
};

/* Of one pull that went well: where its time has gone. */
struct data_timing {
	uint64_t connect_ns; /* 0: over a connection that was there */
	uint64_t wait_ns;    /* from the request to the answer's first bytes */
	uint64_t body_ns;    /* from there to its end */
};

struct data_client_stats {
	uint64_t pulls, bytes; /* that went well */
	uint64_t connects;     /* connections made */
	uint64_t replaced;     /* of those, in place of one that turned out closed */
	uint64_t idle;	       /* connections at rest now */
	/* pulls that failed: */
	uint64_t unreachable; /* no connection, in time or at all */
	uint64_t denied;      /* -EACCES: another key, or a plan that is not believed */
	uint64_t missing;     /* -ENOENT, -ESTALE: it is not there, or not with that plan */
	uint64_t timed_out;   /* the source was silent, or slow */
	uint64_t broken;      /* it went away */
	uint64_t malformed;   /* what it said is no answer */
	uint64_t checksum;    /* the bytes are not those that it meant to send */
	uint64_t other;	      /* the source says that it failed; no memory here; an end, by data_client_stop() */
};

/* On failure e says why in one line. */
int data_client_start(const struct data_client_config *cfg, struct data_client **ret, struct errmsg *e);
/* Ends all pulls, which are waited for, with -ESHUTDOWN, and those that come later. May be called again. */
void data_client_stop(struct data_client *c);
/* Stops, and frees: nobody calls any more. Takes NULL, returns NULL. */
struct data_client *data_client_free(struct data_client *c);

/*
 * Pulls the block from address ("HOST:PORT") into buf, which has room for p->len bytes. 0: all of them are there, and
 * are what the source meant to send: their XXH3, *ret_sum, has been taken here and is the one that came with them.
 * timing may be NULL.
 *
 * Else buf's contents are undefined, and: -EINVAL: that is no plan, or no address; -ECONNREFUSED, -EHOSTUNREACH,
 * -ENETUNREACH: nobody there; -ETIMEDOUT: nothing came for too long, or too little; -ECONNRESET: it went away; -EACCES:
 * one side's key or the plan is another cluster's; -ENOENT: the source has no such block; -ESTALE: the plan has
 * expired, or is for another incarnation of the source; -EBADMSG: the bytes are damaged; -EPROTO: that does not speak
 * as a source does; -ESHUTDOWN; another one: what failed at the source, or here (-ENOMEM, -EMFILE).
 */
int data_pull(struct data_client *c, const char *address, const struct plan *p, void *buf, uint64_t *ret_sum,
	      struct data_timing *timing);

void data_client_get_stats(struct data_client *c, struct data_client_stats *ret);

#endif
