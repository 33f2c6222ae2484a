/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master of a cluster: master/local.h's threads, and nodes that reach them over the network (net/rpc_server.h).
 *
 * Who a node is, its MSG_JOIN says: the instance key stands for a number, and the tomb_tag that the answer gives for
 * that node from then on, over whatever connection it comes. Notices go where the node has spoken last; those for a
 * node without a connection are lost, and said again as far as they matter (struct core_config's repeat_ns).
 *
 * Requests come in on the network's thread, answers and notices on the master's two; none of them waits for another.
 */
#ifndef MASTER_SERVER_H
#define MASTER_SERVER_H

#include "master/local.h"
#include "net/rpc_server.h"

struct master_server;

struct master_server_config {
	struct local_master_config
	    master; /* without what this fills in: recent answers, notices; times of 0: 5 s, 2 s, 5 s, 30 s */
	struct rpc_server_config rpc; /* without the callbacks */
};

/* Serves when it returns 0. On failure e says why in one line. */
int master_server_start(const struct master_server_config *cfg, struct master_server **ret, struct errmsg *e);
/* Answers what has come, commits, closes. Takes NULL, returns NULL. */
struct master_server *master_server_stop(struct master_server *s);
uint16_t master_server_port(const struct master_server *s);

#endif
