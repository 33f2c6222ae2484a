/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories and files that a daemon makes before it serves, and takes away again when it cannot. One thread.
 */
#ifndef COMMON_PLACES_H
#define COMMON_PLACES_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/errmsg.h"

#define PLACES_MAX 32

/* Zeroed memory is an empty one. */
struct places {
	struct {
		char *path;
		bool dir;
	} made[PLACES_MAX];
	unsigned n;
};

/* Makes the directory and what is missing above it (0755), and remembers what was made. path is absolute. */
int places_mkdir(struct places *p, const char *path, mode_t mode, struct errmsg *e);
/* Whether places_mkdir() could make what is missing, and we could then make files in path. Makes nothing. */
int places_check(const char *path, struct errmsg *e);
/* A file that is about to be made: remembered unless it is there already. */
int places_expect(struct places *p, const char *path, struct errmsg *e);
/* Removes what was remembered, last first; a directory that somebody else uses by now stays. */
void places_undo(struct places *p);
/* Forgets: all of it stays. */
void places_keep(struct places *p);

#endif
