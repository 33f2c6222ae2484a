/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/size.h"

/* Every option of every command; a command takes those whose letters it lists. Capitals have no short form. */
static const struct cli_option {
	char letter;
	const char *name, *argument, *help;
} option_table[] = {
    {'j', "json", NULL, "print JSON; see fluxkv(1) for its fields"},
    {'l', "long", NULL, "a line each: where it is, size, time, name"},
    {'r', "recursive", NULL, "directories, with everything below them"},
    {'f', "force", NULL, "also the last copy: the object is gone then"},
    {'t', "tier", "dram|ssd", "which copies to drop"},
    {'p', "parents", NULL, "make missing directories"},
    {'q', "quiet", NULL, "no progress bar"},
    {'d', "delay", "SECONDS", "time between two looks (default 1)"},
    {'n', "count", "N", "leave after N looks"},
    {'b', "block-size", "SIZE", "size of a block (a power of two, 4KiB or more)"},
    {'T', "ttl", "TIME|none", "how long new objects live"},
    {'P', "persist", "yes|no", "whether objects go to the SSD tier"},
    {'m', "mode", "OCTAL", "permissions of the directory"},
    {'S', "socket", "PATH", "the daemon's control socket"},
    {'I', "instance", "NAME", "the daemon with that instance_key"},
    {'R', "run-dir", "DIR", "where the daemons' sockets are (default " RUNSTATEDIR "/fluxkv)"},
    {'h', "help", NULL, "this text"},
};

#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))
#define COMMON_LETTERS "SIRh"

void cli_error(const char *fmt, ...)
{
	va_list ap;
	char *text;

	fflush(stdout);
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		errmsg_one_line(text);
	fprintf(stderr, "fluxkv: %s\n", text ? text : "out of memory");
	free(text);
}

static bool takes(const struct command *c, char letter)
{
	return strchr(COMMON_LETTERS, letter) || (c->options && strchr(c->options, letter));
}

void cli_print_options(const char *letters)
{
	for (const struct cli_option *o = option_table; o < option_table + N_OPTIONS; o++) {
		char left[64];

		if (!strchr(letters, o->letter))
			continue;
		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter >= 'a' ? '-' : ' ',
			 o->letter >= 'a' ? o->letter : ' ', o->letter >= 'a' ? ", " : "  ", o->name,
			 o->argument ? " " : "", o->argument ? o->argument : "");
		printf("  %-28s %s\n", left, o->help);
	}
}

void cli_print_usage(const struct command *c, bool to_stderr)
{
	fprintf(to_stderr ? stderr : stdout, "usage: fluxkv %s %s\n", c->name, c->arguments);
}

static int print_help(const struct command *c)
{
	char letters[N_OPTIONS + 1];

	snprintf(letters, sizeof(letters), "%s" COMMON_LETTERS, c->options ? c->options : "");
	cli_print_usage(c, false);
	printf("\n%s.\n", c->summary);
	if (c->details)
		printf("\n%s", c->details);
	printf("\nOptions:\n");
	cli_print_options(letters);
	return -1;
}

/* Nanoseconds since 1970 must still fit 63 bits when this is added to now. */
#define SECONDS_MAX 4000000000ull

int cli_parse_seconds(const char *text, uint64_t *ret)
{
	static const struct {
		const char *name;
		unsigned seconds;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
	unsigned long long v;
	char *end;

	if (!strcmp(text, "none")) {
		*ret = 0;
		return 0;
	}
	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name))
			continue;
		if (errno || !v || v > SECONDS_MAX / units[i].seconds)
			return -EINVAL;
		*ret = v * units[i].seconds;
		return 0;
	}
	return -EINVAL;
}

static int bad_value(const struct command *c, const char *name, const char *value, const char *expected)
{
	cli_error("%s: --%s %s: expected %s", c->name, name, value, expected);
	return CLI_USAGE;
}

static int set_number(const struct command *c, char letter, const char *arg, struct cli_options *o)
{
	char *end;

	errno = 0;
	switch (letter) {
	case 'd':
		o->delay = strtod(arg, &end);
		if (*end || errno || !(o->delay >= 0.1 && o->delay <= 3600))
			return bad_value(c, "delay", arg, "seconds between 0.1 and 3600");
		return 0;
	case 'n':
		o->count = strtoul(arg, &end, 10);
		if (*end || errno || !o->count || *arg == '-')
			return bad_value(c, "count", arg, "a number from 1 on");
		return 0;
	case 'm':
		o->mode = strtoul(arg, &end, 8);
		if (*end || errno || o->mode > 07777 || *arg == '-' || end == arg)
			return bad_value(c, "mode", arg, "octal permissions such as 0755");
		o->has_mode = true;
		return 0;
	default:
		if (size_parse(arg, &o->block_size) || o->block_size < 4096 || o->block_size & (o->block_size - 1))
			return bad_value(c, "block-size", arg, "a power of two from 4KiB on, such as 64MiB");
		return 0;
	}
}

static int set_word(const struct command *c, char letter, const char *arg, struct cli_options *o)
{
	uint64_t seconds;

	switch (letter) {
	case 't':
		o->tier = arg;
		if (strcmp(arg, "dram") && strcmp(arg, "ssd"))
			return bad_value(c, "tier", arg, "dram or ssd");
		return 0;
	case 'T':
		o->ttl = arg;
		if (cli_parse_seconds(arg, &seconds))
			return bad_value(c, "ttl", arg, CLI_TIME_EXPECTED);
		return 0;
	case 'P':
		o->persist = arg;
		if (strcmp(arg, "yes") && strcmp(arg, "no"))
			return bad_value(c, "persist", arg, "yes or no");
		return 0;
	case 'S':
		o->socket = arg;
		return 0;
	case 'I':
		o->instance = arg;
		if (!*arg || strchr(arg, '/'))
			return bad_value(c, "instance", arg, "the instance_key of a daemon");
		return 0;
	default:
		o->run_dir = arg;
		return 0;
	}
}

static int set_option(const struct command *c, char letter, const char *arg, struct cli_options *o)
{
	switch (letter) {
	case 'j':
		o->json = true;
		return 0;
	case 'l':
		o->long_format = true;
		return 0;
	case 'r':
		o->recursive = true;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case 'p':
		o->parents = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case 'd':
	case 'n':
	case 'm':
	case 'b':
		return set_number(c, letter, arg, o);
	default:
		return set_word(c, letter, arg, o);
	}
}

static void build_getopt(const struct command *c, struct option *longs, char *shorts)
{
	*shorts++ = ':';
	for (const struct cli_option *o = option_table; o < option_table + N_OPTIONS; o++) {
		if (!takes(c, o->letter))
			continue;
		*longs++ = (struct option){o->name, o->argument ? required_argument : no_argument, NULL, o->letter};
		if (o->letter < 'a')
			continue;
		*shorts++ = o->letter;
		if (o->argument)
			*shorts++ = ':';
	}
	*longs = (struct option){0};
	*shorts = '\0';
}

/* optind is behind the word at fault, unless that is a cluster of short ones. */
static int option_error(const struct command *c, int what, char **argv)
{
	const char *word = argv[optind - 1];

	if (what == ':')
		cli_error("%s: option %s needs a value; see: fluxkv help %s", c->name, word, c->name);
	else if (optopt && optopt < 128 && !(word[0] == '-' && word[1] == '-'))
		cli_error("%s: unknown option -%c; see: fluxkv help %s", c->name, optopt, c->name);
	else
		cli_error("%s: unknown option %s; see: fluxkv help %s", c->name, word, c->name);
	return CLI_USAGE;
}

static int check_words(const struct command *c, int n)
{
	if (n >= c->min_words && (c->max_words < 0 || n <= c->max_words))
		return 0;
	cli_error("%s: %s", c->name, n < c->min_words ? "something is missing" : "too many arguments");
	cli_print_usage(c, true);
	return CLI_USAGE;
}

int cli_parse(const struct command *c, int argc, char **argv, struct cli_options *o, int *n)
{
	struct option longs[N_OPTIONS + 1];
	char shorts[2 * N_OPTIONS + 2];
	int letter, r;

	build_getopt(c, longs, shorts);
	optind = 0; /* start anew: the global options were parsed before */
	opterr = 0;
	while ((letter = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (letter == '?' || letter == ':')
			return option_error(c, letter, argv);
		if (letter == 'h')
			return print_help(c);
		r = set_option(c, (char)letter, optarg, o);
		if (r)
			return r;
	}
	*n = argc - optind;
	r = check_words(c, *n);
	if (!r)
		memmove(argv + 1, argv + optind, (size_t)*n * sizeof(*argv));
	return r;
}
