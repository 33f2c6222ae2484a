/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/resident.h"

#include <stdio.h>
#include <unistd.h>

uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long long size = 0, rss = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &rss) != 2)
		rss = 0;
	fclose(f);
	return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}
