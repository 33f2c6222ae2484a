/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two clocks. Deadlines and intervals use the monotonic one, times that a user sees the real one.
 * The master core reads neither: it is told the time. Any thread may call these.
 */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_SEC 1000000000ull
#define NS_PER_MS 1000000ull

/* Nanoseconds since an arbitrary start; never goes back. */
static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_SEC), .tv_nsec = (long)(ns % NS_PER_SEC)};
}

/* A condition whose timed waits go by clock_ns(). */
static inline void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Nanoseconds since the Unix epoch. */
static inline int64_t clock_real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * (int64_t)NS_PER_SEC + ts.tv_nsec;
}

#endif
