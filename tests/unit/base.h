/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for the nodes of a suite, which its main() makes and, whatever became of the tests, removes. */
#ifndef TESTS_UNIT_BASE_H
#define TESTS_UNIT_BASE_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

/*
 * The template is mkdtemp()'s. In a mount namespace of its own where that is allowed, so that a test that dies leaves
 * no segment mounted.
 */
static inline void base_make(char *template)
{
	if (unshare(CLONE_NEWNS) == 0)
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (!mkdtemp(template))
		exit(1);
}

/* The nodes' run_dir is run, here or in a folder below, and their instance "unit". */
static inline void base_remove(const char *base)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "umount -l %s/run/unit/segment %s/*/run/unit/segment 2>/dev/null; rm -rf %s", base,
		 base, base);
	if (system(cmd) != 0)
		fprintf(stderr, "could not remove %s\n", base);
}

#endif
