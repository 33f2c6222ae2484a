/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/nearest.h"

const struct command cli_commands[] = {
    {"status", "[--json]", "Show the tiers, where reads were served from, and what is going on",
     "The same text stands in the file .fluxkv/status of the mount.\n", "j", 0, 0, cmd_status},
    {"stat", "[--json] PATH...", "Show all about objects and directories: size, version, copies by tier", NULL, "j", 1,
     -1, cmd_stat},
    {"ls", "[-l] [--json] [PATH]", "List a directory, with the tiers that hold each object",
     "With -l the first letters say where an object's blocks are: D all in DRAM, d some, S all on the SSD, s some,\n"
     "P pinned, w being written. --json prints one object a line.\n",
     "lj", 0, 1, cmd_ls},
    {"put", "[-p] [-q] SRC|- PATH", "Store a file, or standard input with -, as one object",
     "The object appears when all of it is there: never half. A PATH that is a directory gets SRC's name.\n", "pq", 2,
     2, cmd_put},
    {"get", "[-q] PATH DST|-", "Copy one object into a file, or to standard output with -",
     "DST appears when all of it is there. A DST that is a directory gets the object's name.\n", "q", 2, 2, cmd_get},
    {"rm", "[-r] PATH...", "Remove objects; with -r also directories and all below them", NULL, "r", 1, -1, cmd_rm},
    {"evict", "--tier dram|ssd [-f] [-r] PATH...", "Drop the copies that objects have on one tier",
     "Refused for the last copy, unless --force says that the object may go. Objects in use are refused.\n", "tfr", 1,
     -1, cmd_evict},
    {"prefetch", "[-r] PATH...", "Bring objects into DRAM", NULL, "r", 1, -1, cmd_prefetch},
    {"pin", "[-r] PATH...", "Never evict the last copy of these objects", NULL, "r", 1, -1, cmd_pin},
    {"unpin", "[-r] PATH...", "Undo pin", NULL, "r", 1, -1, cmd_unpin},
    {"ttl", "[-r] PATH TIME|none", "Let an object expire so long from now (90, 30m, 12h, 7d), or never", NULL, "r", 2,
     2, cmd_ttl},
    {"ns", "create|set|list|rm [OPTIONS] [NAME]", "Make, change, list and remove namespaces",
     "  fluxkv ns create NAME [--block-size SIZE] [--ttl TIME|none] [--persist yes|no] [--mode OCTAL]\n"
     "  fluxkv ns set NAME [--block-size SIZE] [--ttl TIME|none] [--persist yes|no]\n"
     "  fluxkv ns list [--json]\n"
     "  fluxkv ns rm NAME\n"
     "A NAME may have several parts (kvcache/v1). What set changes holds for objects stored from then on. Only an "
     "empty\n"
     "namespace can be removed.\n",
     "bTPmj", 1, 2, cmd_ns},
    {"top", "[-d SECONDS] [-n N]", "Watch a daemon at work; q leaves", NULL, "dn", 0, 0, cmd_top},
    {"doctor", "", "Check this machine for what FluxKV needs, and say what to change", NULL, NULL, 0, 0, cmd_doctor},
    {"help", "[COMMAND]", "Explain a command", NULL, NULL, 0, 1, cmd_help},
    {NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const struct command *cli_find_command(const char *name)
{
	for (const struct command *c = cli_commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

static int print_overview(void)
{
	printf("usage: fluxkv [--socket PATH | --instance NAME] COMMAND [ARGUMENTS]\n\n"
	       "Look at and steer the FluxKV daemon (fluxkvd) of this machine.\n\nCommands:\n");
	for (const struct command *c = cli_commands; c->name; c++)
		printf("  %-10s %s\n", c->name, c->summary);
	printf("\nOptions:\n");
	cli_print_options("SIR");
	printf("  -h,  --help                  this text; `fluxkv help COMMAND` explains a command\n"
	       "       --version               the version\n\n"
	       "A PATH is absolute below the mount point, relative to the current directory there, or a path from the "
	       "root\n"
	       "of the file system (NAMESPACE/KEY). Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon.\n");
	return CLI_OK;
}

static int unknown_command(const char *word)
{
	const char *names[32];
	const char *near;
	size_t n = 0;

	/* So mount(8) runs us for a remount, where it does not find the helper mount.fuse.fluxkv. */
	if (!strcmp(word, "standalone")) {
		cli_error("no command 'standalone'; to mount: fluxkvd standalone MOUNTPOINT. What is mounted cannot be "
			  "changed: unmount it and mount it again");
		return CLI_USAGE;
	}
	for (const struct command *c = cli_commands; c->name; c++)
		names[n++] = c->name;
	names[n] = NULL;
	near = nearest_word(word, names);
	if (near)
		cli_error("no command '%s'; did you mean '%s'? All commands: fluxkv help", word, near);
	else
		cli_error("no command '%s'; all commands: fluxkv help", word);
	return CLI_USAGE;
}

int cmd_help(const struct cli_options *o, int n, char **words)
{
	char *argv[] = {"fluxkv", "--help", NULL};
	struct cli_options unused = {0};
	const struct command *c;
	int left;

	if (!n)
		return print_overview();
	c = cli_find_command(words[0]);
	if (!c)
		return unknown_command(words[0]);
	cli_parse(c, 2, argv, &unused, &left);
	return CLI_OK;
}

static int run_command(struct cli_options *o, int argc, char **argv)
{
	const struct command *c = cli_find_command(argv[0]);
	int n, r;

	if (!c)
		return unknown_command(argv[0]);
	r = cli_parse(c, argc, argv, o, &n);
	if (r)
		return r < 0 ? CLI_OK : r;
	r = c->run(o, n, argv + 1);
	/* A full disk behind standard output is a failure, too. */
	if (fflush(stdout) && r == CLI_OK) {
		cli_error("standard output: %s", strerror(errno));
		return CLI_FAILED;
	}
	return r;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
	    {"socket", required_argument, NULL, 'S'},  {"instance", required_argument, NULL, 'I'},
	    {"run-dir", required_argument, NULL, 'R'}, {"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'},       {NULL, 0, NULL, 0},
	};
	struct cli_options o = {0};
	int letter;

	opterr = 0;
	while ((letter = getopt_long(argc, argv, "+:h", longs, NULL)) != -1)
		switch (letter) {
		case 'S':
			o.socket = optarg;
			break;
		case 'I':
			o.instance = optarg;
			break;
		case 'R':
			o.run_dir = optarg;
			break;
		case 'h':
			return print_overview();
		case 'V':
			printf("fluxkv %s\n", PACKAGE_VERSION);
			return CLI_OK;
		default:
			cli_error("%s option %s; see: fluxkv --help",
				  letter == ':' ? "a value is missing for" : "unknown", argv[optind - 1]);
			return CLI_USAGE;
		}
	if (optind == argc) {
		cli_error("which command? See: fluxkv help");
		return CLI_USAGE;
	}
	return run_command(&o, argc - optind, argv + optind);
}
