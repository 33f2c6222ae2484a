/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int signal_seen; /* written by the handler, which may run in any thread */

static void on_signal(int sig)
{
	atomic_store(&signal_seen, sig);
}

void stop_setup(void)
{
	/* No SA_RESTART: a blocking call should come back and see the flag. */
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

bool stop_wanted(void)
{
	return atomic_load(&signal_seen) != 0;
}

int stop_signal(void)
{
	return atomic_load(&signal_seen);
}
