/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/node_cpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/cpu_time.h"
#include "tests/bench/status.h"

/* The daemon names itself by the pid that it has where it runs, which may be somebody else's here. */
static bool is_daemon(pid_t pid)
{
	char path[48], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	return !strncmp(name, "fluxkvd", strlen("fluxkvd"));
}

int node_cpu_find(struct node_cpu *n, const struct target *t, struct errmsg *e)
{
	struct node_cpu found = {.known = true};
	pid_t pid;
	int r = status_pid(t, &pid);

	if (r < 0)
		return errmsg_set(e, r,
				  "the daemon's CPU time is not known: its status does not say which process it is");
	if (!is_daemon(pid))
		return errmsg_set(e, -ESRCH, "the daemon's CPU time is not known: its process %d is not seen from here",
				  (int)pid);
	r = cpu_time_clock(pid, &found.clock);
	if (r < 0)
		return errmsg_set(e, r, "the daemon's CPU time is not known: %s", strerror(-r));
	*n = found;
	return 0;
}

uint64_t node_cpu_ns(const struct node_cpu *n)
{
	return n->known ? cpu_time_of(n->clock) : 0;
}
