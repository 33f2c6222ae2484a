/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nearest.h"
#include "fuse/check.h"
#include "fuse/daemon.h"
#include "fuse/mountpoint.h"
#include "net/addr.h"

#define OPTIONS_MAX 64

struct command_line {
	struct daemon_args args;
	const char *options[OPTIONS_MAX];
	bool foreground, check, clean;
};

static void print_help(void)
{
	printf(
	    "usage: fluxkvd [-f] [-c FILE] [-o OPTION,...] SOURCE MOUNTPOINT\n\n"
	    "Serve a FluxKV node and mount it. SOURCE is standalone: this machine alone, no other service needed; or\n"
	    "HOST:PORT of a cluster's fluxkv-master(8).\n\n"
	    "  -f, --foreground       stay in the foreground, log to standard error\n"
	    "  -c, --config FILE      the configuration, see fluxkv.yaml(5)\n"
	    "  -o OPTION,...          keys of the configuration, which win over the file: dram=2GB,ssd=/data:8GB,...\n"
	    "      --check            only say whether the configuration is good, and fits this machine\n"
	    "      --clean MOUNTPOINT only unmount what a fluxkvd that died has left there\n"
	    "  -h, --help             this text\n"
	    "  -V, --version          the version\n\n"
	    "Example: fluxkvd -o dram=2GB,ssd=/data/fluxkv:8GB standalone /mnt/fluxkv\n"
	    "In the background it returns when the mount serves. Exit status: 0 it serves (with -f: it has served),\n"
	    "1 it cannot serve, 2 the command line or the configuration is wrong. See fluxkvd(8).\n");
}

static int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int usage_error(const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		errmsg_one_line(text);
	fprintf(stderr, "fluxkvd: %s\n", text ? text : "out of memory");
	free(text);
	return DAEMON_USAGE;
}

/* A word as getopt left it, for messages. */
static int option_error(int what, char **argv)
{
	if (what == ':')
		return usage_error("option %s needs a value; see: fluxkvd --help", argv[optind - 1]);
	if (!strncmp(argv[optind - 1], "--", 2) && strchr(argv[optind - 1], '='))
		return usage_error("option %s: unknown, or takes no value; see: fluxkvd --help", argv[optind - 1]);
	if (optopt && optopt < 256)
		return usage_error("unknown option -%c; see: fluxkvd --help", optopt);
	return usage_error("unknown option %s; see: fluxkvd --help", argv[optind - 1]);
}

static int take_option(int letter, char **argv, struct command_line *l)
{
	switch (letter) {
	case 'f':
		l->foreground = true;
		return -1;
	case 'c':
		if (!*optarg)
			return usage_error("option -c needs the name of a file");
		l->args.config_file = optarg;
		return -1;
	case 'o':
		if (l->args.n_options == OPTIONS_MAX)
			return usage_error("more than %d times -o; put the options into one list or into a file (-c)",
					   OPTIONS_MAX);
		l->options[l->args.n_options++] = optarg;
		return -1;
	case 'k':
		l->check = true;
		return -1;
	case 'x':
		l->clean = true;
		return -1;
	case 'h':
		print_help();
		return DAEMON_OK;
	case 'V':
		printf("fluxkvd %s\n", PACKAGE_VERSION);
		return DAEMON_OK;
	default:
		return option_error(letter, argv);
	}
}

static int check_source(const char *source, const char *mountpoint)
{
	static const char *const words[] = {"standalone", NULL};
	struct errmsg e;
	struct addr at;

	if (!*source || !*mountpoint)
		return usage_error("the %s is empty; for one machine: fluxkvd standalone MOUNTPOINT",
				   *source ? "mount point" : "source");
	if (!strcmp(source, "standalone"))
		return -1;
	if (!strcmp(mountpoint, "standalone"))
		return usage_error("the source comes first: fluxkvd standalone %s", source);
	if (nearest_word(source, words))
		return usage_error("%s: did you mean standalone?", source);
	if (!addr_parse(source, &at, &e))
		return -1;
	if (strchr(source, ':'))
		return usage_error("%s: %s", source, e.text);
	return usage_error("%s: the source is standalone, or HOST:PORT of a master", source);
}

/* -1 to go on, or the status to exit with. */
static int parse(int argc, char **argv, struct command_line *l)
{
	static const struct option longs[] = {
	    {"foreground", no_argument, NULL, 'f'},
	    {"config", required_argument, NULL, 'c'},
	    {"check", no_argument, NULL, 'k'},
	    {"clean", no_argument, NULL, 'x'},
	    {"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'},
	    {NULL, 0, NULL, 0},
	};
	int letter, r, n;

	opterr = 0;
	while ((letter = getopt_long(argc, argv, ":fc:o:hV", longs, NULL)) != -1) {
		r = take_option(letter, argv, l);
		if (r >= 0)
			return r;
	}
	n = argc - optind;
	if (l->clean) {
		if (n != 1 || !*argv[optind])
			return usage_error("--clean takes one mount point; see: fluxkvd --help");
		if (l->check)
			return usage_error("--check only looks, and --clean unmounts; give one of them");
		l->args.mountpoint = argv[optind];
		return -1;
	}
	if (n > 2)
		return usage_error("too many arguments from %s on; see: fluxkvd --help", argv[optind + 2]);
	if (n < 2 && !(l->check && !n))
		return usage_error("%s is missing; for one machine: fluxkvd standalone MOUNTPOINT",
				   n ? "the mount point" : "the source");
	if (!n)
		return -1;
	l->args.source = argv[optind];
	l->args.mountpoint = argv[optind + 1];
	return check_source(l->args.source, l->args.mountpoint);
}

static int clean(const char *mountpoint)
{
	struct errmsg e;
	char *path;
	int r;

	r = mountpoint_resolve(mountpoint, &path, &e);
	if (r == -ENOENT)
		errmsg_set(&e, r, "mount point %s does not exist", mountpoint);
	if (!r) {
		r = mountpoint_clear_stale(path, NULL, &e);
		free(path);
	}
	if (r)
		fprintf(stderr, "fluxkvd: %s\n", e.text);
	return r ? DAEMON_CANNOT_SERVE : DAEMON_OK;
}

static int configure(struct command_line *l, struct config *ret)
{
	static char file[PATH_MAX];
	struct errmsg e;

	/* Absolute, for a reload from another directory. A file that is not there is config_load()'s to tell. */
	if (l->args.config_file && realpath(l->args.config_file, file))
		l->args.config_file = file;
	l->args.options = l->options;
	return daemon_configure(&l->args, ret, &e) ? usage_error("%s", e.text) : -1;
}

/* The configuration is good; is the machine? */
static int check(const struct command_line *l, struct config *cfg)
{
	struct errmsg e;
	int r = check_machine(cfg, l->args.mountpoint, &e);

	config_done(cfg);
	if (r)
		fprintf(stderr, "fluxkvd: %s\n", e.text);
	return r ? DAEMON_CANNOT_SERVE : DAEMON_OK;
}

int main(int argc, char **argv)
{
	struct command_line l = {0};
	struct ready ready;
	struct config cfg;
	int r;

	r = parse(argc, argv, &l);
	if (r >= 0)
		return r;
	if (l.clean)
		return clean(l.args.mountpoint);
	r = configure(&l, &cfg);
	if (r >= 0)
		return r;
	if (l.check)
		return check(&l, &cfg);
	if (l.foreground) {
		ready_foreground(&ready, "fluxkvd");
	} else {
		r = ready_background(&ready, "fluxkvd");
		if (r >= 0) {
			config_done(&cfg);
			return r;
		}
	}
	return daemon_run(&l.args, &cfg, &ready);
}
