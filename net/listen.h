/* SPDX-License-Identifier: Apache-2.0 */
/* Where to listen, and with which key: what all listeners of a node have in common. Any thread. */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H

#include <sys/socket.h>

#include "common/errmsg.h"
#include "net/auth.h"

/*
 * listen: "ADDR:PORT", the host a number; port 0: any. key_file NULL: none, and then only the loopback will do, -EPERM.
 * Or see addr_parse_number() and auth_key_load(). On failure e says why in one line.
 */
int listen_read(const char *listen, const char *key_file, struct sockaddr_storage *ret_at, struct auth_key *ret_key,
		struct errmsg *e);

#endif
