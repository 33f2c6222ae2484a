/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of a daemon for a person: the same text from `fluxkv status` and in <mount>/.fluxkv/status. What goes in
 * is the "status" answer of the control socket (fluxkv(1), section STATUS, describes each field). Pure; any thread.
 */
#ifndef NET_STATUS_H
#define NET_STATUS_H

#include <jansson.h>

/* malloc'ed, lines end in '\n'; NULL without memory. */
char *status_text(const json_t *status);

#endif
