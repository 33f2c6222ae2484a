/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cells that an earlier pressure run left in its --save file, for a later one that goes on with them. They are only
 * taken if all that a rate depends on is the same. Main thread.
 */
#ifndef TESTS_BENCH_KEPT_H
#define TESTS_BENCH_KEPT_H

#include <jansson.h>
#include <stdbool.h>

#include "common/errmsg.h"
#include "tests/bench/cell.h"

/* Zeroed: there are none. */
struct kept {
	json_t *file;  /* all of it; NULL: there was no file */
	json_t *cells; /* in it */
	bool *taken;   /* one a cell */
};

/*
 * Reads the file, if it is there. now is what this run would write. -EBADMSG: no result of a pressure run; -EEXIST: of
 * one with other parameters, or of another machine. 0 or a negative errno with the reason in e.
 */
int kept_load(struct kept *k, const char *file, const json_t *now, struct errmsg *e);
void kept_free(struct kept *k);

/* The cell as it was measured, the file's; NULL if it was not, or was given out before. */
json_t *kept_take(struct kept *k, const struct cell *c);

#endif
