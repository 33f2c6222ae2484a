/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One conversation with a daemon: which one, how to reach it, what paths mean to it. One thread. Errors are printed
 * here, once.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <limits.h>

#include "cli/cli.h"

struct session {
	struct ctl_stream *stream;
	json_t *hello; /* the daemon's answer to "hello" */
	char mountpoint[PATH_MAX];
	char cwd[PATH_MAX]; /* "" where it is not known */
	bool lost;	    /* the daemon no longer answers: nothing more can be asked */
};

/*
 * The daemon that --socket, FLUXKV_SOCKET or --instance name; else the only one that runs; else the one whose mount
 * point has path (may be NULL) or the current directory below it. CLI_OK, CLI_USAGE or CLI_UNREACHABLE.
 */
int session_open(const struct cli_options *o, const char *path, struct session *ret);
void session_close(struct session *s);

/* The path as the daemon knows it; CLI_OK or an exit status. */
int session_path(struct session *s, const char *arg, char out[PATH_MAX]);
/* A request about one path, in whichever form it was given. Takes over req. CLI_OK, or CLI_FAILED with the error
 * printed; ret may be NULL. */
int session_call(struct session *s, json_t *req, json_t **ret);
/* {"op": op, "path": path} */
json_t *session_request(const char *op, const char *path);

/* Lists a directory; each() returns 0 to go on. CLI_OK, or the first other status. */
typedef int (*session_entry_fn)(void *arg, const json_t *entry, const char *name);
int session_list(struct session *s, const char *path, session_entry_fn each, void *arg);

#endif
