/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of requests to a KV cache, one JSON object a line: "timestamp" (ms), "input_length", "output_length"
 * (tokens) and "hash_ids", the blocks of the request's prefix in order. Only hash_ids is used. Read once, then
 * constant.
 */
#ifndef TESTS_BENCH_TRACE_H
#define TESTS_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

struct trace_request {
	size_t first; /* index of its first block in ids */
	size_t n;
};

/* Zero-initialised is empty. */
struct trace {
	uint64_t *ids;
	size_t n_ids, cap_ids;
	struct trace_request *requests;
	size_t n_requests, cap_requests;
};

/* Reads at most max requests. 0, or a negative errno with the file and the line in e. */
int trace_load(const char *path, size_t max, struct trace *ret, struct errmsg *e);
/* Appends the request that one line describes. 0, -EBADMSG with the reason in e, -ENOMEM. */
int trace_add_line(struct trace *t, const char *line, size_t len, struct errmsg *e);
void trace_free(struct trace *t);

struct trace_bound {
	size_t hits, stores, distinct;
};

/* What one thread must get from a cache that has room for everything. 0 or -ENOMEM. */
int trace_bound(const struct trace *t, struct trace_bound *ret);

#endif
