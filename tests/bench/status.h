/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a FluxKV mount says about itself in its virtual files: .fluxkv/metrics has counters, to be read before and after
 * the work, .fluxkv/status whether the kernel reads values by itself. No state; main thread.
 */
#ifndef TESTS_BENCH_STATUS_H
#define TESTS_BENCH_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/errmsg.h"
#include "tests/bench/target.h"

struct status {
	uint64_t hits_dram, hits_ssd, hits_unknown; /* opens for reading, by where the bytes were */
	uint64_t persists, dropped;	      /* blocks that were written to the SSD tier, and that were given up */
	uint64_t backlog;		      /* bytes that are still to be written */
	uint64_t dram_capacity, ssd_capacity; /* bytes that the tiers may hold */
};

/* 0, -ENODATA if the target is on another file system, or another negative errno. */
int status_read(const struct target *t, struct status *ret);
/* The counters in the file's text, a NUL-terminated string. Pure. 0, or -EBADMSG if one is not there. */
int status_parse(const char *text, struct status *ret);
/* Whether the mount has passthrough; if not, why not is in e. 0, or as status_read(). */
int status_passthrough(const struct target *t, bool *ret, struct errmsg *e);
/* The same from the file's text, a NUL-terminated string. Pure. A mount that says nothing of it has none. */
bool status_parse_passthrough(const char *text, struct errmsg *e);
/* The process that serves the mount, as it names itself. 0, -EBADMSG, or as status_read(). */
int status_pid(const struct target *t, pid_t *ret);
/* The same from the file's text, a NUL-terminated string. Pure. 0 or -EBADMSG. */
int status_parse_pid(const char *text, pid_t *ret);
/* What was counted since before. */
struct status status_since(const struct status *now, const struct status *before);

#endif
