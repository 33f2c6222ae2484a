/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many small requests to a Redis server, sent without waiting for the answer of each: what it does when only its own
 * processor limits it. Keys are those of the core's objects. Main thread.
 */
#ifndef TESTS_BENCH_REDIS_PIPE_H
#define TESTS_BENCH_REDIS_PIPE_H

#include "common/errmsg.h"
#include "tests/bench/backend.h"

struct redis_pipe;

enum redis_pipe_op {
	REDIS_PIPE_SET,
	REDIS_PIPE_GET,
	REDIS_PIPE_DEL,
};

/* To a server that was started. 0 or a negative errno with the reason in e; -ENOSYS: built without hiredis. */
int redis_pipe_open(const struct backend *b, struct redis_pipe **ret, struct errmsg *e);
struct redis_pipe *redis_pipe_close(struct redis_pipe *p); /* takes NULL, returns NULL */
/* The operation on n keys; an answer that is not as it must be is -EBADMSG. 0 or a negative errno. */
int redis_pipe_run(struct redis_pipe *p, enum redis_pipe_op op, const uint64_t *keys, unsigned n);

#endif
