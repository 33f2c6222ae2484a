/* SPDX-License-Identifier: Apache-2.0 */
/* One command over many objects. One thread. */
#ifndef CLI_WALK_H
#define CLI_WALK_H

#include <stdbool.h>

#include "cli/session.h"

struct walk {
	bool recursive;
	/* Directories too, each after all that is below it. */
	bool directories;
	/* The request about one object or directory; NULL: out of memory. */
	json_t *(*request)(const struct walk *w, const char *path, bool dir);
	const void *arg; /* the request's own */
};

/* Each word, and with recursive all below it; goes on after an error. CLI_OK, or the last other status. */
int walk_words(const struct cli_options *o, const struct walk *w, int n, char **words);

#endif
