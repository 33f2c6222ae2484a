/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fluxkv-master's life: what it starts, in which order, and how it ends. One thread, but for the signals', which only
 * asks for the end or for a reload.
 */
#ifndef MASTERD_SERVE_H
#define MASTERD_SERVE_H

#include "common/ready.h"
#include "masterd/settings.h"

enum {
	SERVE_OK = 0,
	SERVE_CANNOT = 1,
	SERVE_USAGE = 2,
};

/* Serves until a signal comes. Takes over s. Returns the status to exit with. */
int serve_run(const struct settings_args *args, struct settings *s, struct ready *ready);

#endif
