/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.fluxkv: what mount(8) runs for `mount -t fluxkv SOURCE MOUNTPOINT -o OPTIONS`, fstab and .mount units. It turns
 * its arguments into those of fluxkvd and becomes that. What is mounted has the type fuse.fluxkv, so for a remount
 * mount(8) runs it as mount.fuse.fluxkv.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse/mount_options.h"

/* mount(8)'s exit status for a wrong invocation; fluxkvd's own follow from there on. */
#define EXIT_USAGE 1
#define EXIT_SYSTEM 2

static void print_help(void)
{
	printf(
	    "usage: mount -t fluxkv SOURCE MOUNTPOINT [-o OPTION,...]\n\n"
	    "Mount a FluxKV node. SOURCE: standalone, or HOST:PORT of a cluster's master. OPTIONs are those of mount(8) and\n"
	    "the keys of fluxkv.yaml(5); config=FILE names a configuration file. See mount.fluxkv(8).\n");
}

/* The fluxkvd of the same installation: beside this program, else where it was to be installed. */
static const char *find_daemon(char buf[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", buf, PATH_MAX - sizeof("fluxkvd"));
	char *slash;

	if (n > 0) {
		buf[n] = '\0';
		slash = strrchr(buf, '/');
		if (slash) {
			strcpy(slash + 1, "fluxkvd");
			if (!access(buf, X_OK))
				return buf;
		}
	}
	return SBINDIR "/fluxkvd";
}

static int become_daemon(const char *source, const char *mountpoint, const struct mount_options *o, int fake,
			 int verbose)
{
	char path[PATH_MAX];
	const char *argv[12];
	int n = 0;

	argv[n++] = find_daemon(path);
	if (fake)
		argv[n++] = "--check";
	if (o->config) {
		argv[n++] = "-c";
		argv[n++] = o->config;
	}
	if (*o->rest) {
		argv[n++] = "-o";
		argv[n++] = o->rest;
	}
	argv[n++] = "--";
	argv[n++] = source;
	argv[n++] = mountpoint;
	argv[n] = NULL;
	if (verbose) {
		for (int i = 0; i < n; i++)
			printf("%s%s", argv[i], i + 1 < n ? " " : "\n");
		fflush(stdout);
	}
	execv(argv[0], (char **)argv);
	fprintf(stderr, "mount.fluxkv: %s: %s\n", argv[0], strerror(errno));
	return EXIT_SYSTEM;
}

static int run(int argc, char **argv, struct mount_options *o)
{
	int fake = 0, verbose = 0, letter;

	/* -s (sloppy) and -n (no mtab) ask for what is done anyway; -N and -t say nothing that matters here. */
	while ((letter = getopt(argc, argv, "o:sfnvN:t:hV")) != -1)
		switch (letter) {
		case 'o':
			if (mount_options_add(o, optarg)) {
				fprintf(stderr, "mount.fluxkv: out of memory\n");
				return EXIT_SYSTEM;
			}
			break;
		case 'f':
			fake = 1;
			break;
		case 'v':
			verbose = 1;
			break;
		case 's':
		case 'n':
		case 'N':
		case 't':
			break;
		case 'h':
			print_help();
			return 0;
		case 'V':
			printf("mount.fluxkv %s\n", PACKAGE_VERSION);
			return 0;
		default:
			return EXIT_USAGE;
		}
	if (argc - optind != 2) {
		fprintf(stderr,
			"mount.fluxkv: a source and a mount point are needed: mount -t fluxkv standalone MOUNTPOINT\n");
		return EXIT_USAGE;
	}
	if (mount_options_add(o, "")) /* rest is never NULL */
		return EXIT_SYSTEM;
	if (o->remount) {
		fprintf(stderr,
			"mount.fluxkv: %s: a mount of FluxKV cannot be changed by a remount; unmount it and mount it "
			"again\n",
			argv[optind + 1]);
		return EXIT_USAGE;
	}
	return become_daemon(argv[optind], argv[optind + 1], o, fake, verbose);
}

int main(int argc, char **argv)
{
	struct mount_options o = {0};
	int r = run(argc, argv, &o);

	mount_options_done(&o);
	return r;
}
