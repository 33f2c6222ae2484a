/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of equal-sized values in one target, and doing one thing to all of them with the crew. The context that the
 * commands share stands here too. Main thread, except where the crew's functions take the const parts.
 */
#ifndef TESTS_BENCH_SET_H
#define TESTS_BENCH_SET_H

#include <stdint.h>

#include "tests/bench/fault.h"
#include "tests/bench/node_cpu.h"
#include "tests/bench/options.h"
#include "tests/bench/report.h"
#include "tests/bench/target.h"

#define BENCH_TARGETS 4

struct bench {
	const struct bench_options *o;
	const char *dir;	/* the directory under test */
	const char *trace_file; /* of trace */
	const char **files;	/* of report */
	unsigned n_files;
	struct report *report;
	struct fault fault;
	struct target targets[BENCH_TARGETS]; /* [0] is under test */
	unsigned n_targets;
	struct node_cpu node; /* the daemon of targets[0], if it is one's and is known */
	char **bufs;	      /* one a thread, of buf_len bytes */
	size_t buf_len;
};

enum set_op {
	SET_PUT,
	SET_READ,
	SET_MAP,
	SET_DROP,
	SET_REMOVE,
};

struct set {
	const struct target *t;
	uint64_t size, first_id; /* the value number from + i has the id first_id + i */
	unsigned from, n;
};

#define SET_NAME_LEN 16
/* The name of value i in its directory. */
void set_name(unsigned i, char name[SET_NAME_LEN]);

/* How many values of that size make up a run: --total, at least one, at most 4096. */
unsigned set_count(const struct bench_options *o, uint64_t size);

/*
 * Whether the set may be put there at all: a small file still takes a whole huge page, and thousands of them would take
 * the machine's memory.
 */
bool set_fits(const struct set *s);

/* What the report calls the daemon's share of a set_measure(). */
#define SET_READ_NODE_CPU "read daemon cpu"
#define SET_MAP_NODE_CPU "mmap daemon cpu"

/* flags: O_DIRECT or 0. *ret_ns: the slowest thread's time. 0 or a negative errno with the reason in b->fault. */
int set_run(struct bench *b, const struct set *s, enum set_op op, int flags, uint64_t *ret_ns);
/*
 * The same, as a sample of the report in bytes per second, unless the round is one of the warm-up. Where the daemon is
 * known, its share is another sample: its processor time by that of the threads that worked.
 */
int set_measure(struct bench *b, const struct set *s, enum set_op op, int flags, const struct report_key *key,
		unsigned round);

/* Adds n bytes or operations in ns to the report, unless the round is one of the warm-up. */
int bench_add_rate(struct bench *b, unsigned round, const struct report_key *key, const char *target, double n,
		   uint64_t ns);

/* Makes the crew's buffers. 0 or -ENOMEM; bench_drop_buffers() in both cases. */
int bench_buffers(struct bench *b, size_t len);
void bench_drop_buffers(struct bench *b);

#endif
