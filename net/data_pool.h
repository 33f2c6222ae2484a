/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that net/data_client.c keeps for the next transfer from the same address. Bounded for each address and
 * over all; the one that has rested longest goes first, and each goes when it has rested long enough: a thread of its
 * own sees to that. Any thread may call.
 */
#ifndef NET_DATA_POOL_H
#define NET_DATA_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "common/list.h"
#include "net/sock.h"

/* A connection; whoever has it may use it alone. */
struct data_link {
	struct list idle;  /* the pool's */
	uint64_t since_ns; /* the pool's: at rest since then */
	struct sock sock;
	char address[];
};

struct data_pool_config {
	size_t max;	  /* in all */
	size_t max_each;  /* of an address */
	uint64_t idle_ms; /* at rest */
};

struct data_pool;

/* On failure e says why. */
int data_pool_start(const struct data_pool_config *cfg, struct data_pool **ret, struct errmsg *e);
/* Closes those that are at rest. Takes NULL, returns NULL. */
struct data_pool *data_pool_stop(struct data_pool *p);

/* One to that address over which nothing has come meanwhile, not even its end; NULL: there is none. */
struct data_link *data_pool_take(struct data_pool *p, const char *address);
/* It is the pool's from here on, which may close it. */
void data_pool_give(struct data_pool *p, struct data_link *l);
size_t data_pool_count(struct data_pool *p); /* at rest now */

/* One that has no connection yet. NULL without memory. */
struct data_link *data_link_new(const char *address);
/* Closes it. Takes NULL, returns NULL. */
struct data_link *data_link_free(struct data_link *l);

#endif
