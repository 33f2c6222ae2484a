/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all measures: the table of what one node is to reach. A job is one run of a command with the options that it
 * needs, on one of the mounts; a row is a ratio or a value that the job's report has. One more row is one more line in
 * suite_rows[], and a job if no other measures it already. Constants and pure functions; any thread.
 */
#ifndef TESTS_BENCH_SUITE_H
#define TESTS_BENCH_SUITE_H

#include <stdbool.h>

#include "tests/bench/set.h"

enum suite_mount {
	SUITE_AUTO, /* as it comes: with passthrough, where there is some */
	SUITE_COPY, /* passthrough=off */
	SUITE_MOUNTS,
	SUITE_NONE = SUITE_MOUNTS, /* the command makes what it needs */
};

/* What a job cannot be measured without. */
enum {
	NEEDS_PASSTHROUGH = 1,
	NEEDS_SSD = 2, /* an SSD tier on a device, and fio to compare it with */
	NEEDS_SSD_OFF = 4,
	NEEDS_AGAINST = 8, /* --against */
	NEEDS_START = 16,
	NEEDS_BEFORE = 32, /* --before, and --start */
};

enum suite_job_id {
	JOB_READ,
	JOB_MAP,
	JOB_DD,
	JOB_CP,
	JOB_WRITE,
	JOB_OPEN,
	JOB_REFILL,
	JOB_SSD_OFF,
	JOB_HELD,
	JOB_READ_COPY,
	JOB_OPEN_COPY,
	JOB_REFILL_COPY,
	JOB_READ_BEFORE,
	JOB_MAP_BEFORE,
	JOB_WRITE_BEFORE,
	JOB_OPEN_BEFORE,
	JOB_MASTER,
	JOB_GROWTH,
	SUITE_JOBS,
};

struct suite_job {
	const char *name; /* for its notes */
	enum suite_mount mount;
	unsigned command; /* its bit */
	int (*run)(struct bench *b);
	unsigned needs;
	enum baseline baseline;
	enum put_by by;
	unsigned object_bytes; /* of memory that each of its objects takes meanwhile, about */
};

/* What a row shows. */
enum suite_kind {
	SUITE_RATIO,  /* what is tested by what it is compared with, to be so much at least */
	SUITE_GROWTH, /* with the row's objects by that with the least number of them, to be so much at most */
	SUITE_VALUE,  /* itself, to be so much at most */
};

/* How to_reach is meant. */
enum suite_goal {
	SUITE_PLAIN,
	SUITE_EACH, /* for each object */
	SUITE_LOG,  /* as log n grows; to_reach is a factor */
};

struct suite_row {
	enum suite_job_id job;
	const char *what, *against; /* in words */
	struct report_key key;
	const char *target; /* what the report calls the other side */
	double to_reach;    /* 0: nobody said */
	enum suite_kind kind;
	enum suite_goal goal;
	unsigned nth; /* of the job's numbers of objects, from 1; 0: it has none */
};

/* A row with the numbers of a run. */
struct suite_line {
	const struct suite_row *row;
	char what[80], against[48];
	struct report_key key;
	double to_reach;
};

extern const struct suite_job suite_jobs[SUITE_JOBS]; /* in the order of their mounts */
extern const struct suite_row suite_rows[];	      /* in the order of their jobs; what is NULL: the end */

/* The numbers of objects of a job: of the master, or of files; none for all others. */
struct argv_sizes suite_objects(enum suite_job_id job, const struct bench_options *o);
struct suite_line suite_line_of(const struct suite_row *row, const struct bench_options *o);

#endif
