/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses that a host's name stands for, for threads that may wait, though never for longer than they said: the
 * resolver of the C library knows no deadline, so it runs on a thread of its own, which is left behind where it takes
 * too long, and ends by itself. Numbers need no resolver. Any thread.
 */
#ifndef NET_LOOKUP_H
#define NET_LOOKUP_H

#include <stddef.h>
#include <sys/socket.h>

#include "net/sock.h"

#define LOOKUP_MAX 8u	       /* addresses of a name that are told */
#define LOOKUP_MAX_THREADS 32u /* that look a name up in this process at one time */

/*
 * address: "HOST:PORT". wait: its fd does not count, what it says of waiting does. 0 with at least one; -EINVAL: no
 * address; -EHOSTUNREACH: the name is not known; -EAGAIN: too many look-ups; -ETIMEDOUT, -ESHUTDOWN, -ENOMEM.
 */
int lookup(const char *address, const struct sock *wait, struct sockaddr_storage ret[LOOKUP_MAX], size_t *ret_n);

#endif
