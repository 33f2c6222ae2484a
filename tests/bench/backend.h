/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pressure benchmark can drive: one table of functions a kind of store, so that all of them are measured by
 * the same code. start, stop, count and the struct backend belong to the main thread; a session belongs to one worker
 * thread, of another process than the main thread's.
 *
 * Where a hit came from. Either each hit tells (FROM_DRAM, FROM_SSD), or the target counts, and the counters are read
 * when no worker runs, before and after the window (FROM_COUNTED). Counters must add up to the hits that the workers
 * had, or nothing is believed: then all hits of the cell are unknown.
 */
#ifndef TESTS_BENCH_BACKEND_H
#define TESTS_BENCH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "tests/bench/cgroup.h"
#include "tests/bench/service.h"
#include "tests/bench/target.h"

enum output {
	OUTPUT_HOLDER, /* a reference to bytes that are in memory */
	OUTPUT_BYTES,  /* the bytes, copied to the caller */
	OUTPUTS,
};

enum from {
	FROM_COUNTED,
	FROM_DRAM,
	FROM_SSD,
};

struct hits {
	uint64_t dram, ssd, unknown;
};

struct got {
	const void *data;
	size_t len;
	enum from from;
	void *handle; /* the backend's own */
};

/* What a cell asks of the target. */
struct backend_setup {
	uint64_t dram, ssd; /* bytes it may have; ssd 0: no SSD tier */
	uint64_t payload;
	unsigned clients;
	const char *dir;     /* a directory that is there already; NULL: starts its own */
	const char *ssd_dir; /* where to put what is on the SSD */
	const char *fluxkvd; /* the program */
	const char *options; /* more of its -o options, or NULL */
};

struct backend_ops;

struct backend {
	const struct backend_ops *ops;
	struct backend_setup setup;
	struct target work;   /* a private directory: sockets, mount point, state */
	struct target ssd;    /* where the SSD tier's files are */
	struct target values; /* where the values are, if they are files */
	struct service service;
	struct cgroup cgroup; /* that the workers enter */
	struct cgroup held;   /* that the service is in */
	char address[108];    /* of the socket */
};

struct session;

struct backend_ops {
	const char *name;
	const char *program, *package; /* that it needs, and what to install for it; NULL: none */
	bool no_ssd, only_ssd;	       /* which of the two states of the SSD tier it does not have */
	bool built;		       /* the library that it needs was there */
	const char *how;	       /* how hits are attributed, for the report */

	/* 0, or a negative errno with the reason in e. stop is called in both cases. */
	int (*start)(struct backend *b, struct errmsg *e);
	void (*stop)(struct backend *b);
	/* The hits since the target was started; NULL: each hit tells. */
	int (*count)(const struct backend *b, struct hits *ret);

	int (*open)(const struct backend *b, struct session **ret, struct errmsg *e);
	void (*close)(struct session *s);
	/* 0; -ENOSPC: refused for want of space; another negative errno. Readers see the old or the new value. */
	int (*put)(struct session *s, unsigned key, const void *buf, size_t len);
	/* 0, *ret is good until release; -ENOENT: a miss; another negative errno. */
	int (*get)(struct session *s, unsigned key, enum output output, struct got *ret);
	void (*release)(struct session *s, struct got *g);
};

/* A mount of FluxKV; any other directory, here with the page cache limited; and the peers. */
extern const struct backend_ops backend_fluxkv, backend_dir, backend_files, backend_redis, backend_memcached;

/* Those that have a name for --target, NULL-ended, with or without what they need. */
extern const struct backend_ops *const backend_list[];
/* Starts it as setup says; backend_end() afterwards, in any case. 0 or a negative errno with the reason in e. */
int backend_start(struct backend *b, const struct backend_ops *ops, const struct backend_setup *setup,
		  struct errmsg *e);
void backend_end(struct backend *b);
/* For the backends: the private directory, and in it the address of a socket. */
int backend_work(struct backend *b, const char *socket, struct errmsg *e);
/* Why the backend cannot run here ("redis: ...; install redis-server"), in e, and false; or true. */
bool backend_here(const struct backend_ops *ops, const char *fluxkvd, struct errmsg *e);
/* The control socket of a fluxkvd that was started. */
void backend_fluxkv_socket(const struct backend *b, char ret[static PATH_MAX]);
/* The name of a key on the target. */
#define KEY_LEN 16
void backend_key(unsigned key, char name[static KEY_LEN]);

#endif
