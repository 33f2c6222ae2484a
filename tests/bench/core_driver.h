/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the master's core in this process, without a thread or a socket: two nodes that have joined, and one directory
 * in a namespace, where object k has a name that follows from k and one block of a page, put by the first node. One
 * thread.
 */
#ifndef TESTS_BENCH_CORE_DRIVER_H
#define TESTS_BENCH_CORE_DRIVER_H

#include <stdint.h>

#include "master/core.h"

#define CORE_DRIVER_NODES 2u

struct core_driver {
	struct core *core;
	struct core_out out;
	/* What the catalogue is told stays in out, for the caller, who says core_committed(); else it is dropped. */
	bool keep_writes;
	uint64_t tags[CORE_DRIVER_NODES + 1]; /* by node */
	uint64_t dir, now;
};

/* 24 digits without an order, as those of the hashes that name KV blocks. */
#define CORE_DRIVER_NAME 24
void core_driver_name(uint64_t k, char name[static MSG_NAME_MAX + 1]);

/* Zeroed memory is one that has not started; core_driver_end() takes it. 0 or a negative errno. */
int core_driver_start(struct core_driver *d, bool keep_writes);
void core_driver_end(struct core_driver *d);

/*
 * Hands the request in, from node, and takes it over (NULL: -ENOMEM). 0 or the negative errno of the step or the
 * answer; ret, if not NULL, is the answer without its variable part, *ret_item its first item.
 */
int core_driver_call(struct core_driver *d, uint32_t node, struct msg *m, struct msg *ret, struct msg_item *ret_item);

/* PUT_START and PUT_DONE. *ret_replaced, if not NULL: the version that the name stood for, 0 for none. */
int core_driver_put(struct core_driver *d, uint64_t k, uint64_t *ret_replaced);
/* *ret_id, if not NULL: the version. */
int core_driver_lookup(struct core_driver *d, uint64_t k, uint64_t *ret_id);
int core_driver_delete(struct core_driver *d, uint64_t k, uint64_t *ret_id);
/* The first node has let go of a version that was replaced or deleted. */
int core_driver_let_go(struct core_driver *d, uint64_t id);
/* GET_START and GET_DONE: the second node copies what the first one has, as *ret_alloc. */
int core_driver_get(struct core_driver *d, uint64_t id, uint64_t *ret_alloc);
/* The second node evicts that copy. */
int core_driver_forget(struct core_driver *d, uint64_t id, uint64_t alloc);

#endif
