/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting in tests of what other threads do; behind check.h. */
#ifndef TESTS_UNIT_WAIT_H
#define TESTS_UNIT_WAIT_H

#include <time.h>

static inline void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* Until x, for ten seconds; then the test fails. */
#define WAIT_FOR(x)                                                                                                    \
	do {                                                                                                           \
		unsigned tries = 0;                                                                                    \
                                                                                                                       \
		while (!(x) && tries++ < 2000)                                                                         \
			sleep_ms(5);                                                                                   \
		ck_assert_msg(x, "%s", #x);                                                                            \
	} while (0)

#endif
