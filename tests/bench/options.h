/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of all commands, in one struct, and the table that describes them. Filled once at start, read-only after.
 */
#ifndef TESTS_BENCH_OPTIONS_H
#define TESTS_BENCH_OPTIONS_H

#include "tests/bench/argv.h"

/* A bit a command: which options belong to which. */
enum {
	CMD_READ = 1,
	CMD_MMAP = 2,
	CMD_PUT = 4,
	CMD_OPEN = 8,
	CMD_REFILL = 16,
	CMD_TRACE = 32,
	CMD_PRESSURE = 64,
	CMD_REPORT = 128,
	CMD_GROWTH = 256,
	CMD_MASTER = 512,
	CMD_SUITE = 1024, /* all */
	CMD_TIMED =
	    CMD_READ | CMD_MMAP | CMD_PUT | CMD_OPEN | CMD_REFILL | CMD_TRACE, /* one set, in runs and threads */
	CMD_MEASURE = CMD_TIMED | CMD_PRESSURE | CMD_GROWTH | CMD_MASTER | CMD_SUITE,
	CMD_ALL = CMD_MEASURE | CMD_REPORT,
};

enum baseline {
	BASELINE_BOTH,
	BASELINE_TMPFS,
	BASELINE_HUGE,
	BASELINE_NONE,
};

/* How put writes; the index in the choices of --by. */
enum put_by {
	PUT_ALL,
	PUT_WRITE,
	PUT_DIRECT,
	PUT_CP,
	PUT_DD,
	PUT_BYS, /* how many there are */
};

enum store_by {
	STORE_RENAME,
	STORE_IN_PLACE,
};

/* What mmap loads of each page. */
enum touch {
	TOUCH_PAGE,
	TOUCH_ALL,
};

/* Whether pressure runs with an SSD tier: the index in the choices of --tiers. */
enum tiers {
	TIERS_BOTH,
	TIERS_DRAM,
	TIERS_SSD,
};

/* What pressure does of two ways, or both. */
enum either {
	EITHER_FIRST,
	EITHER_SECOND,
	EITHER_BOTH,
};

struct pressure_options {
	struct argv_sizes payloads, clients;
	uint64_t dataset, dram, ssd, pace; /* dram and ssd: 0 stands for a share of the dataset */
	unsigned warmup, window;
	unsigned cells;	  /* to be measured now, at most */
	unsigned targets; /* a bit for each of backend_list; 0: none was named */
	unsigned tiers, output, on_miss;
	const char *save;
};

/* Of growth and master. */
struct growth_options {
	struct argv_sizes objects; /* ascending */
	unsigned ops;		   /* of one sample */
	bool empty;
};

struct bench_options {
	struct argv_sizes sizes;
	uint64_t piece, total, block_bytes;
	unsigned runs, warmup, seed, threads, files, requests, digits, timeout, passes;
	unsigned baseline, by, store, touch;
	bool json, verify, start, help, quick;
	unsigned master_objects, grown_files; /* of all: the most */
	struct pressure_options pressure;
	struct growth_options growth;
	const char *out_dir; /* of report */
	const char *against, *before, *ssd_compare, *ssd_dir, *fluxkv, *fluxkvd, *evict_cmd, *socket;
};

extern const struct argv_option options_table[];
extern const size_t options_count;

/* The values that hold where the command line says nothing. */
void options_default(struct bench_options *o, unsigned command);
/* For all: what is 0 because it was not given, as --quick or its absence says. */
void options_settle(struct bench_options *o);
/* What the table cannot say: options that exclude or need each other. 0 or -EINVAL with the reason in e. */
int options_check(const struct bench_options *o, unsigned command, struct errmsg *e);
/* The options of one command, a line each, to stdout. */
void options_print(unsigned command);

#endif
