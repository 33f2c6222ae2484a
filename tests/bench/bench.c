/* SPDX-License-Identifier: Apache-2.0 */
/* fluxkv-bench: the command line, the targets of a run, and the output. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nearest.h"
#include "tests/bench/commands.h"
#include "tests/bench/measure.h"
#include "tests/bench/output.h"
#include "tests/bench/stop.h"

struct command {
	const char *name;
	unsigned bit;
	const char *words, *help;
	int (*run)(struct bench *b);
	bool alone; /* makes its own targets and prints by itself */
};

static const struct command commands[] = {
    {"read", CMD_READ, "DIR", "read values with read(2), cold and warm", cmd_read, false},
    {"mmap", CMD_MMAP, "DIR", "map values and touch every page, cold and warm", cmd_mmap, false},
    {"put", CMD_PUT, "DIR", "write new values: write(2), O_DIRECT, cp, dd", cmd_put, false},
    {"open", CMD_OPEN, "DIR", "small files: open, stat, absent names, create, readdir", cmd_open, false},
    {"growth", CMD_GROWTH, "[DIR]", "what a file costs among ten thousand, and among a million", cmd_growth, true},
    {"master", CMD_MASTER, "", "requests to the master's core and its catalogue, without a mount", cmd_master, true},
    {"refill", CMD_REFILL, "DIR", "read values that are only on the SSD tier, against fio", cmd_refill, false},
    {"trace", CMD_TRACE, "FILE DIR", "replay a trace of KV-cache requests", cmd_trace, false},
    {"pressure", CMD_PRESSURE, "[DIR]", "more values than DRAM holds, read by popularity, against other stores",
     cmd_pressure, true},
    {"all", CMD_SUITE, "[DIR]", "everything that one node is to reach, in one table", cmd_all, true},
    {"report", CMD_REPORT, "FILE...", "tables and pictures of what --json or --save wrote", cmd_report, true},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int complain(const char *text)
{
	fprintf(stderr, "fluxkv-bench: %s\n", text);
	return EXIT_FAILURE;
}

/* The exit status of who has printed and was asked for no more. */
static int printed(void)
{
	struct fault f = {.lock = PTHREAD_MUTEX_INITIALIZER};

	return output_flush(&f) < 0 ? complain(f.e.text) : EXIT_SUCCESS;
}

static int print_usage(void)
{
	printf("Usage: fluxkv-bench COMMAND [OPTION]... DIR\n\n"
	       "Measures a directory, usually on a FluxKV mount, against tmpfs or fio in the same run.\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %-9s %-9s %s\n", commands[i].name, commands[i].words, commands[i].help);
	printf("\n'fluxkv-bench COMMAND --help' lists the options of a command; fluxkv-bench(1) has the rest.\n");
	return printed();
}

static int print_help(const struct command *c)
{
	printf("Usage: fluxkv-bench %s [OPTION]... %s\n\n%s.\n\n", c->name, c->words, c->help);
	options_print(c->bit);
	return printed();
}

static const struct command *find_command(const char *word)
{
	const char *names[N_COMMANDS + 1], *near;

	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(commands[i].name, word))
			return &commands[i];
		names[i] = commands[i].name;
	}
	names[N_COMMANDS] = NULL;
	near = nearest_word(word, names);
	fprintf(stderr, "fluxkv-bench: no command '%s'%s%s%s\n", word, near ? "; did you mean '" : "", near ? near : "",
		near ? "'?" : "");
	return NULL;
}

/* Ends as the signal that asked would have ended us, so that a shell sees it. */
static int end_by_signal(void)
{
	signal(stop_signal(), SIG_DFL);
	raise(stop_signal());
	return EXIT_FAILURE;
}

static int run_on_targets(struct bench *b, const struct command *c)
{
	int r = bench_measure(b, c->bit, c->run);

	return r < 0 ? r : output_print(b, c->name, b->dir, b->targets[0].mount.type);
}

static int run_command(struct bench *b, const struct command *c)
{
	int r = -ENOMEM;

	b->report = report_new();
	if (b->report)
		r = c->alone ? c->run(b) : run_on_targets(b, c);
	report_free(b->report);
	if (stop_wanted())
		return end_by_signal();
	return r < 0 ? complain(b->fault.set ? b->fault.e.text : strerror(-r)) : EXIT_SUCCESS;
}

/* Whether DIR may be missing, because --start makes what is measured. */
static bool may_start(const struct command *c)
{
	return c->bit & (CMD_PRESSURE | CMD_GROWTH | CMD_SUITE);
}

/* Takes the words that are no options: FILE for trace, then DIR, which some have only without --start. */
static int take_words(struct bench *b, const struct command *c, const char **words, unsigned n, struct errmsg *e)
{
	unsigned want = c->bit == CMD_TRACE ? 2 : c->bit == CMD_MASTER ? 0 : 1;

	b->files = words;
	b->n_files = n;
	if (c->bit == CMD_REPORT && n)
		return 0;
	if (c->bit == CMD_MASTER && !n)
		return 0;
	if (may_start(c) && b->o->start) {
		if (n)
			return errmsg_set(e, -EINVAL, "%s: --start and DIR exclude each other", c->name);
		return 0;
	}
	if (may_start(c) && !n)
		return errmsg_set(e, -EINVAL, "%s: needs DIR, on a FluxKV mount, or --start", c->name);
	if (n != want)
		return errmsg_set(e, -EINVAL, "%s: %s than %s was given (see 'fluxkv-bench %s --help')", c->name,
				  n < want ? "less" : "more", c->words, c->name);
	b->trace_file = words[0];
	b->dir = want ? words[want - 1] : NULL;
	return 0;
}

static int parse_and_run(const struct command *c, int argc, char **argv)
{
	struct bench_options o;
	struct bench b = {.o = &o, .fault = {.lock = PTHREAD_MUTEX_INITIALIZER}};
	const char **words = calloc((size_t)argc + 1, sizeof(*words));
	struct errmsg e = {{0}};
	unsigned n;
	int r;

	if (!words)
		return complain(strerror(ENOMEM));
	options_default(&o, c->bit);
	r = argv_parse(argc, argv, options_table, options_count, c->bit, &o, words, &n, &e);
	if (r == 0 && !o.help)
		r = take_words(&b, c, words, n, &e);
	if (r == 0 && !o.help)
		r = options_check(&o, c->bit, &e);
	if (r < 0) {
		complain(e.text);
		r = 2;
	} else if (o.help) {
		r = print_help(c);
	} else {
		stop_setup();
		r = run_command(&b, c);
	}
	free(words);
	return r;
}

int main(int argc, char **argv)
{
	const struct command *c;

	if (argc < 2) {
		complain("which command? (see 'fluxkv-bench --help')");
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return print_usage();
	if (!strcmp(argv[1], "--version")) {
		printf("fluxkv-bench %s\n", PACKAGE_VERSION);
		return printed();
	}
	c = find_command(argv[1]);
	return c ? parse_and_run(c, argc - 2, argv + 2) : 2;
}
