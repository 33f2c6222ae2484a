/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a data connection, from the plan to the answer's end: a part of net/data_server.c. Any thread. */
#ifndef NET_DATA_SERVE_H
#define NET_DATA_SERVE_H

#include <stdatomic.h>

#include "net/data_server.h"
#include "net/sock.h"

/* What all requests are served with, and where they are counted. */
struct data_desk {
	struct data_server_config cfg; /* with its defaults; constant, as key is */
	struct auth_key key;
	atomic_ullong tag;
	struct {
		atomic_ullong pulls, bytes, denied, stale, missing, slow, broken, failed;
	} stats;
};

/* 0: the peer has its answer, whatever that says. A negative errno: the connection is to be closed. */
int data_serve(struct data_desk *d, struct sock *s, const struct plan *p);

#endif
