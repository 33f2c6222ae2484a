/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The results of a run: series of samples, one for each (operation, state, size, objects, target), shown as a table for
 * people and as JSON for programs (fluxkv-bench(1) describes it). The first target that a measurement is added for is
 * the one under test; the others are what it is compared with. A series that differs from an earlier one in nothing but
 * the number of objects is compared with that: what does it cost that there are more? Owned by the command; used by one
 * thread.
 */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/bench/stats.h"

enum report_unit {
	REPORT_BYTES_PER_S,
	REPORT_PER_S,
	REPORT_SECONDS,
	REPORT_BYTES,
	REPORT_COUNT, /* never compared */
	REPORT_SHARE, /* neither; 0 to 1 */
};

struct report_key {
	const char *op;	   /* "read"; must live as long as the report, as must state */
	const char *state; /* "cold", "warm" or "" */
	uint64_t size;	   /* bytes of a value; 0: does not apply */
	uint64_t objects;  /* how many there are meanwhile; 0: does not apply */
	enum report_unit unit;
};

/* Writes the value as people read it ("1.53 GB/s") into buf and returns buf. 32 bytes are always enough. */
const char *report_value(enum report_unit unit, double v, char *buf, size_t len);
/* The unit's name in the JSON. */
const char *report_unit_name(enum report_unit unit);
/* The unit with that name in the JSON, or -EINVAL. */
int report_unit_of(const char *name);

struct report;

/* Two series of one kind that were taken in turn, or one. */
struct report_pair {
	double median, min, max;		/* of the quotients, run by run; or of the samples */
	const struct samples *tested, *against; /* the report's; against is NULL if there is only one */
};

struct report *report_new(void);
struct report *report_free(struct report *r);

/* One more sample. target is copied. 0 or -ENOMEM. */
int report_add(struct report *r, const struct report_key *key, const char *target, double value);
/* A line that goes before the table and into the JSON, once. 0 or -ENOMEM. */
int report_note(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void report_print(const struct report *r, FILE *f);
/* What was tested by what it was compared with. 0; -ENOENT: not both were measured; -ENOMEM. */
int report_pair(const struct report *r, const struct report_key *key, const char *against, struct report_pair *ret);
/* The series of the key on that target by the same with the least number of objects. The same. */
int report_growth(const struct report *r, const struct report_key *key, const char *target, struct report_pair *ret);
/* The series itself, its samples those of tested. The same. */
int report_single(const struct report *r, const struct report_key *key, const char *target, struct report_pair *ret);
/* The first note, NULL if there is none. */
const char *report_first_note(const struct report *r);
/* Adds the notes of another report, each behind "prefix: ". 0 or -ENOMEM. */
int report_copy_notes(struct report *r, const char *prefix, const struct report *from);
/* A new array of the samples, NULL when there is no memory. */
json_t *report_samples_json(const struct samples *s);
/* Adds "results", "ratios" and "notes" to the object. 0 or -ENOMEM. */
int report_json(const struct report *r, json_t *object);

#endif
