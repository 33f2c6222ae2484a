/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of the rows of all: lines for people as soon as they are known, and JSON (fluxkv-bench(1) describes it).
 * Main thread.
 */
#ifndef TESTS_BENCH_SUITE_TABLE_H
#define TESTS_BENCH_SUITE_TABLE_H

#include "tests/bench/suite.h"

struct suite_table {
	FILE *out;    /* where lines go; NULL: nowhere */
	json_t *rows; /* an array */
	unsigned measured, missed, failed;
};

void suite_table_head(const struct suite_table *t);
/* The row was measured, and p is its ratio, or value. 0 or -ENOMEM. */
int suite_table_add(struct suite_table *t, const struct suite_line *l, const struct report_pair *p);
/* It could not be measured, or it was tried and went wrong. 0 or -ENOMEM. */
int suite_table_none(struct suite_table *t, const struct suite_line *l, bool failed, const char *why);
/* How many came to what. */
void suite_table_foot(const struct suite_table *t);

#endif
