/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table-driven command line: --name VALUE, --name=VALUE, -x VALUE, flags, and positional words anywhere; "--" ends
 * the options. What is wrong is said in one line, with the nearest option where one was mistyped. No state; any
 * thread. Strings in the result point into argv.
 */
#ifndef TESTS_BENCH_ARGV_H
#define TESTS_BENCH_ARGV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

enum argv_kind {
	ARGV_FLAG,   /* bool */
	ARGV_UINT,   /* unsigned */
	ARGV_SIZE,   /* uint64_t, as "4MiB" */
	ARGV_SIZES,  /* struct argv_sizes; repeatable, the first use replaces the default */
	ARGV_UINTS,  /* the same, of plain numbers */
	ARGV_STRING, /* const char * */
	ARGV_CHOICE, /* unsigned: the index in choices */
	ARGV_SET,    /* unsigned: a bit for each index in choices; repeatable */
};

#define ARGV_SIZES_MAX 16

struct argv_sizes {
	uint64_t v[ARGV_SIZES_MAX];
	unsigned n;
	bool given;
};

struct argv_option {
	const char *name; /* without the dashes */
	char letter;	  /* 0: none */
	enum argv_kind kind;
	size_t offset;		    /* of the field in the result */
	uint64_t min, max;	    /* of a number or a size */
	const char *const *choices; /* of ARGV_CHOICE, up to NULL */
	unsigned commands;	    /* a mask of the commands that take it; a name may stand for each of them once */
	const char *metavar, *help;
};

/*
 * Reads argv[0..argc) for the command (one bit of .commands) into the fields of out. Positional words are put to
 * ret_words (room for argc of them). 0, or -EINVAL with the reason in e.
 */
int argv_parse(int argc, char **argv, const struct argv_option *table, size_t n, unsigned command, void *out,
	       const char **ret_words, unsigned *ret_n_words, struct errmsg *e);

#endif
