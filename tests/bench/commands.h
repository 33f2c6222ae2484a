/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands. Each runs on the main thread with open targets and buffers, adds to b->report, and returns 0 or a
 * negative errno with the reason in b->fault (-EINTR: asked to stop).
 */
#ifndef TESTS_BENCH_COMMANDS_H
#define TESTS_BENCH_COMMANDS_H

#include "tests/bench/set.h"

int cmd_read(struct bench *b); /* read and mmap */
int cmd_mmap(struct bench *b);
int cmd_put(struct bench *b);
int cmd_open(struct bench *b);
int cmd_refill(struct bench *b);
int cmd_trace(struct bench *b);
/* What growth and master measure, without targets and buffers that were made for them. */
int growth_measure(struct bench *b);
int master_measure(struct bench *b);
/* These have none made for them either, and print by themselves. */
int cmd_growth(struct bench *b);
int cmd_master(struct bench *b);
int cmd_pressure(struct bench *b);
int cmd_all(struct bench *b);
int cmd_report(struct bench *b);

#endif
