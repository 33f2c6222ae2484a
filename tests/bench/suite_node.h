/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount that all measures on: one that is there, or a fluxkvd of our own, which ends and takes all that it made with
 * it. Main thread.
 */
#ifndef TESTS_BENCH_SUITE_NODE_H
#define TESTS_BENCH_SUITE_NODE_H

#include "tests/bench/backend.h"
#include "tests/bench/options.h"

/*
 * A mount has room for runs of that many bytes, or for none: a refill puts a value of each thread at once, which a
 * backlog of the SSD tier, a quarter of the DRAM, must take.
 */
#define SUITE_NODE_LEAST (64ull << 20)

struct suite_node {
	struct backend backend; /* if started */
	bool started;
	const char *dir;       /* to work in; NULL: there is none */
	char socket[PATH_MAX]; /* of a daemon that was started */
	struct errmsg why;     /* there is none, or it has no passthrough */
	uint64_t ssd;	       /* bytes of the tier */
	uint64_t room;	       /* bytes of a run that the tiers can take */
	bool passthrough;
};

/*
 * Starts a daemon for runs of total bytes, with an SSD tier or without; options: more of -o, or NULL. 0, or a negative
 * errno with the reason in n->why. suite_node_end() in both cases.
 */
int suite_node_start(struct suite_node *n, const struct bench_options *o, uint64_t total, bool ssd,
		     const char *options);
/* Takes a directory on a mount. The same. */
int suite_node_take(struct suite_node *n, const char *dir);
/* Takes one that was not even begun, too, if it is all zeros. */
void suite_node_end(struct suite_node *n);

/* Bytes of memory that the kernel can give without swapping. 0 or -ENODATA. */
int suite_node_memory(uint64_t *ret);
/* The most bytes of a run that the machine has the memory and the disk for, when daemons are started. */
int suite_node_room(const struct bench_options *o, uint64_t *ret, struct errmsg *e);

#endif
