/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the exerciser: each does one thing to the file system and to the model and compares. */
#ifndef TESTS_SYSTEM_EX_OPS_H
#define TESTS_SYSTEM_EX_OPS_H

#include "tests/system/ex_world.h"

/* One random operation. 0, or -1 with w->error set: the file system and the model differ. */
int ops_step(struct world *w);
/* Compares every name and every handle, closes all, removes all (unless opt->keep). As ops_step. */
int ops_finish(struct world *w);

#endif
