/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all measures: the table of what one node is to reach. A job is one run of a command with the options that it
 * needs, on one of the mounts; a row is a ratio that the job's report has. One more row is one more line in
 * suite_rows[], and a job if no other measures it already. Constants; any thread.
 */
#ifndef TESTS_BENCH_SUITE_H
#define TESTS_BENCH_SUITE_H

#include <stdbool.h>

#include "tests/bench/set.h"

enum suite_mount {
	SUITE_AUTO, /* as it comes: with passthrough, where there is some */
	SUITE_COPY, /* passthrough=off */
	SUITE_MOUNTS,
};

/* What a job cannot be measured without. */
enum {
	NEEDS_PASSTHROUGH = 1,
	NEEDS_SSD = 2, /* an SSD tier on a device, and fio to compare it with */
	NEEDS_SSD_OFF = 4,
	NEEDS_AGAINST = 8, /* --against */
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
	JOB_READ_COPY,
	JOB_OPEN_COPY,
	JOB_REFILL_COPY,
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
};

struct suite_row {
	enum suite_job_id job;
	const char *what, *against; /* in words */
	struct report_key key;
	const char *target; /* what the report calls the other side */
	double to_reach;    /* 0: nobody said */
};

extern const struct suite_job suite_jobs[SUITE_JOBS]; /* in the order of their mounts */
extern const struct suite_row suite_rows[];	      /* in the order of their jobs; what is NULL: the end */

#endif
