/* SPDX-License-Identifier: Apache-2.0 */
/* Tables in Markdown of what the commands wrote as JSON. Main thread. */
#ifndef TESTS_BENCH_MARKDOWN_H
#define TESTS_BENCH_MARKDOWN_H

#include <jansson.h>
#include <stdio.h>

#include "common/errmsg.h"

/* The table of one object, of any command. 0, or -EBADMSG with the reason in e; the table may then end early. */
int markdown_write(json_t *file, FILE *f, struct errmsg *e);

#endif
