/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fluxkv, the command-line tool: what its commands share. One thread. A command gets its parsed options and the words
 * that are left, prints its errors with cli_error() and returns an exit status.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/errmsg.h"
#include "net/ctl.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,	     /* the daemon or the system said no */
	CLI_USAGE = 2,	     /* the command line is wrong; nothing was done */
	CLI_UNREACHABLE = 3, /* no daemon answers */
};

struct cli_options {
	const char *socket, *instance, *run_dir;
	bool json, long_format, force, recursive, parents, quiet;
	const char *tier;    /* "dram" or "ssd" */
	double delay;	     /* seconds; 0: the default */
	unsigned long count; /* 0: for ever */
	uint64_t block_size; /* 0: not said */
	const char *ttl;     /* seconds or "none"; NULL: not said */
	const char *persist; /* "yes" or "no"; NULL: not said */
	unsigned long mode;  /* octal */
	bool has_mode;
};

struct command {
	const char *name;
	const char *arguments;	  /* as in the usage line */
	const char *summary;	  /* one line */
	const char *details;	  /* what help says further, lines; may be NULL */
	const char *options;	  /* letters of the options that it takes, see cli_option_table */
	int min_words, max_words; /* max < 0: any number */
	int (*run)(const struct cli_options *o, int n, char **words);
};

extern const struct command cli_commands[];
const struct command *cli_find_command(const char *name);

void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Options of one command line: fills *o, moves the words that are left to argv[1...] and their number to *n. 0, or the
 * exit status with the reason printed; -1: help was asked for and printed. */
int cli_parse(const struct command *c, int argc, char **argv, struct cli_options *o, int *n);
void cli_print_usage(const struct command *c, bool to_stderr);
void cli_print_options(const char *letters);

/* ttl words: seconds, minutes, hours or days, or "none" as 0. -EINVAL. */
#define CLI_TIME_EXPECTED "a time such as 90, 30m, 12h or 7d, at most 4000000000 seconds, or none"
int cli_parse_seconds(const char *text, uint64_t *ret);

int cmd_doctor(const struct cli_options *o, int n, char **words);
int cmd_evict(const struct cli_options *o, int n, char **words);
int cmd_get(const struct cli_options *o, int n, char **words);
int cmd_help(const struct cli_options *o, int n, char **words);
int cmd_ls(const struct cli_options *o, int n, char **words);
int cmd_ns(const struct cli_options *o, int n, char **words);
int cmd_pin(const struct cli_options *o, int n, char **words);
int cmd_prefetch(const struct cli_options *o, int n, char **words);
int cmd_put(const struct cli_options *o, int n, char **words);
int cmd_rm(const struct cli_options *o, int n, char **words);
int cmd_stat(const struct cli_options *o, int n, char **words);
int cmd_status(const struct cli_options *o, int n, char **words);
int cmd_top(const struct cli_options *o, int n, char **words);
int cmd_ttl(const struct cli_options *o, int n, char **words);
int cmd_unpin(const struct cli_options *o, int n, char **words);

#endif
