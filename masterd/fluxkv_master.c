/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "masterd/serve.h"

#define PROGRAM "fluxkv-master"
#define SEE_HELP "; see: " PROGRAM " --help"

struct command_line {
	struct settings_args args;
	bool foreground, help, version;
};

static void print_help(void)
{
	printf(
	    "usage: " PROGRAM " [-f] [-c FILE] [--listen ADDR:PORT] [--catalog FILE]\n\n"
	    "Serve the master of a FluxKV cluster: names, placement and the catalogue. No values pass through it.\n\n"
	    "  -f, --foreground       stay in the foreground, log to standard error\n"
	    "  -c, --config FILE      the configuration, see fluxkv.yaml(5)\n"
	    "      --listen ADDR:PORT where nodes reach it, in numbers; the loopback alone unless there is a\n"
	    "                         cluster_key_file\n"
	    "      --catalog FILE     the catalogue, made if it is not there\n"
	    "  -h, --help             this text\n"
	    "  -V, --version          the version\n\n"
	    "In the background it returns when it serves. Exit status: 0 it serves (with -f: it has served),\n"
	    "1 it cannot serve, 2 the command line or the configuration is wrong. See fluxkv-master(8).\n");
}

/* A word as getopt left it, for messages. */
static int option_error(int what, char **argv, struct errmsg *e)
{
	const char *word = argv[optind - 1];

	if (what == ':')
		return errmsg_set(e, -EINVAL, "option %s needs a value" SEE_HELP, word);
	if (!strncmp(word, "--", 2))
		return errmsg_set(e, -EINVAL, "option %s: unknown, or takes no value" SEE_HELP, word);
	return errmsg_set(e, -EINVAL, "unknown option -%c" SEE_HELP, optopt);
}

static int take_value(const char *option, const char **ret, struct errmsg *e)
{
	if (!*optarg)
		return errmsg_set(e, -EINVAL, "option %s needs a value" SEE_HELP, option);
	*ret = optarg;
	return 0;
}

static int take_option(int letter, char **argv, struct command_line *l, struct errmsg *e)
{
	switch (letter) {
	case 'f':
		l->foreground = true;
		return 0;
	case 'h':
		l->help = true;
		return 0;
	case 'V':
		l->version = true;
		return 0;
	case 'c':
		return take_value("-c", &l->args.config_file, e);
	case 'l':
		return take_value("--listen", &l->args.listen, e);
	case 'd':
		return take_value("--catalog", &l->args.catalog, e);
	default:
		return option_error(letter, argv, e);
	}
}

static int parse(int argc, char **argv, struct command_line *l, struct errmsg *e)
{
	static const struct option longs[] = {
	    {"foreground", no_argument, NULL, 'f'},
	    {"config", required_argument, NULL, 'c'},
	    {"listen", required_argument, NULL, 'l'},
	    {"catalog", required_argument, NULL, 'd'},
	    {"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'},
	    {NULL, 0, NULL, 0},
	};
	int letter, r;

	opterr = 0;
	while ((letter = getopt_long(argc, argv, ":fc:hV", longs, NULL)) != -1) {
		r = take_option(letter, argv, l, e);
		if (r || l->help || l->version)
			return r;
	}
	if (optind < argc)
		return errmsg_set(e, -EINVAL, "%s: no argument is expected" SEE_HELP, argv[optind]);
	return 0;
}

static int run(struct command_line *l, struct settings *s)
{
	struct ready ready;
	int r;

	if (l->foreground) {
		ready_foreground(&ready, PROGRAM);
		return serve_run(&l->args, s, &ready);
	}
	r = ready_background(&ready, PROGRAM);
	if (r < 0)
		return serve_run(&l->args, s, &ready);
	settings_done(s);
	return r;
}

int main(int argc, char **argv)
{
	static char file[PATH_MAX];
	struct command_line l = {.foreground = false};
	struct settings s;
	struct errmsg e;
	int r = parse(argc, argv, &l, &e);

	if (!r && l.help) {
		print_help();
		return SERVE_OK;
	}
	if (!r && l.version) {
		printf(PROGRAM " %s\n", PACKAGE_VERSION);
		return SERVE_OK;
	}
	/* Absolute, for a reload from another directory. A file that is not there is config_load()'s to tell. */
	if (!r && l.args.config_file && realpath(l.args.config_file, file))
		l.args.config_file = file;
	if (!r)
		r = settings_read(&l.args, &s, &e);
	if (r) {
		fprintf(stderr, PROGRAM ": %s\n", e.text);
		return SERVE_USAGE;
	}
	return run(&l, &s);
}
