/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processor time, which other programs on the machine disturb less than the wall clock. Any thread.
 */
#ifndef TESTS_BENCH_CPU_TIME_H
#define TESTS_BENCH_CPU_TIME_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Nanoseconds that the calling thread has used. */
uint64_t cpu_time_thread(void);
/* The clock of what all threads of a process use. 0 or a negative errno. */
int cpu_time_clock(pid_t pid, clockid_t *ret);
/* Its nanoseconds; 0 when the process is no more. */
uint64_t cpu_time_of(clockid_t clock);

#endif
