/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the requests of the control socket do. A request is handled on its connection's thread, which may wait.
 */
#ifndef FUSE_CTL_OPS_H
#define FUSE_CTL_OPS_H

#include <stdbool.h>

#include "fuse/calls.h"
#include "fuse/ctl.h"

struct ctl_request {
	const struct ctl_config *cfg;
	struct calls *calls;
	const json_t *body;
	uid_t uid; /* of the peer */
	gid_t gid;
	bool may_change;
	/* Sends one answer of several ahead of the last; takes over part. */
	int (*stream)(void *arg, json_t *part);
	void *stream_arg;
};

/* The answer, with "ok" in it; NULL: no memory, or the peer is gone. */
json_t *ctl_handle(const struct ctl_request *r);
/* {"ok": false, ...} */
json_t *ctl_error(int err, const char *line);

#endif
