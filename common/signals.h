/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that takes a daemon's signals: SIGTERM and SIGINT ask for the end, SIGHUP for a reload. The callbacks run
 * on it, so they may lock and wait.
 */
#ifndef COMMON_SIGNALS_H
#define COMMON_SIGNALS_H

#include <stdbool.h>

#include "common/errmsg.h"

struct signals;

/* For the main thread, before any other is started: those inherit that they get none of these. SIGPIPE is ignored. */
void signals_block(void);

int signals_start(void (*stop)(void *arg, int sig), void (*reload)(void *arg), void *arg, struct signals **ret,
		  struct errmsg *e);
/* Takes NULL, returns NULL. */
struct signals *signals_stop(struct signals *s);

#endif
