/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private directory for the files of a test case. As unchecked fixtures its two functions run in the process that
 * forks for each test, so the directory goes also when a test fails, crashes or is killed.
 */
#ifndef TESTS_TEMP_DIR_H
#define TESTS_TEMP_DIR_H

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char temp_dir[64];

static inline void temp_dir_make(void)
{
	strcpy(temp_dir, "/tmp/fluxkv-unit-XXXXXX");
	if (!mkdtemp(temp_dir)) {
		perror("mkdtemp");
		exit(1);
	}
}

/* Takes away what is in it. */
static inline void temp_dir_empty(void)
{
	DIR *d = opendir(temp_dir);
	const struct dirent *e;
	char p[512];

	while (d && (e = readdir(d))) {
		snprintf(p, sizeof(p), "%s/%s", temp_dir, e->d_name);
		unlink(p);
	}
	if (d)
		closedir(d);
}

static inline void temp_dir_remove(void)
{
	temp_dir_empty();
	rmdir(temp_dir);
}

/* In a child: it goes with its parent, however that ends. */
static inline void die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

#endif
