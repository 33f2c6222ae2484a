/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/cpu_time.h"

#include "common/clock.h"

uint64_t cpu_time_of(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t cpu_time_thread(void)
{
	return cpu_time_of(CLOCK_THREAD_CPUTIME_ID);
}

int cpu_time_clock(pid_t pid, clockid_t *ret)
{
	return -clock_getcpuclockid(pid, ret);
}
