/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew of threads that do parts of one measurement. They start together, behind a barrier, when all of them exist.
 */
#ifndef TESTS_BENCH_CREW_H
#define TESTS_BENCH_CREW_H

#include <stdint.h>

#define CREW_MAX 256

/* One thread's part; *ret_ns is the time that counts, without what the thread did for its own sake. 0 or -errno. */
typedef int (*crew_fn)(void *arg, unsigned thread, uint64_t *ret_ns);

/*
 * Runs fn in n (1 to CREW_MAX) threads, in the caller's own if n is 1, and waits for them. *ret_ns is the time of
 * the slowest. Returns the error of the first thread that had one.
 */
int crew_run(unsigned n, crew_fn fn, void *arg, uint64_t *ret_ns);

#endif
