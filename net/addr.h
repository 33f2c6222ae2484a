/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them: "HOST:PORT", "[IPV6]:PORT". Pure; any thread. */
#ifndef NET_ADDR_H
#define NET_ADDR_H

#include <stdbool.h>
#include <sys/socket.h>

#include "common/errmsg.h"

struct addr {
	char host[256]; /* a name or a number, without brackets */
	char port[8];	/* digits */
};

/* -EINVAL with a line in e. */
int addr_parse(const char *text, struct addr *ret, struct errmsg *e);
/* One whose host is a number; port 0 is allowed: any. -EINVAL with a line in e. */
int addr_parse_number(const char *text, struct sockaddr_storage *ret, struct errmsg *e);
bool addr_is_loopback(const struct sockaddr_storage *a);

#endif
