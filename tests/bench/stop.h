/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping early. A first SIGINT, SIGTERM or SIGHUP asks every loop to end with -EINTR, so that the files of the run
 * are removed on the way out; a second one kills at once. Any thread may ask stop_wanted().
 */
#ifndef TESTS_BENCH_STOP_H
#define TESTS_BENCH_STOP_H

#include <stdbool.h>

/* Call before threads start. */
void stop_setup(void);
bool stop_wanted(void);
/* The signal that asked, 0 if none did. */
int stop_signal(void);

#endif
