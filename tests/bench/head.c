/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/head.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

json_t *head_json(const struct bench_options *o, const char *command, const char *directory, const char *fs)
{
	struct utsname u;

	uname(&u);
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:{s:s, s:s, s:s, s:s, s:i}, s:i, s:I}", "schema", 1, "program",
			 "fluxkv-bench", "version", PACKAGE_VERSION, "command", command, "time", (json_int_t)time(NULL),
			 "machine", "directory", directory, "fs", fs, "kernel", u.release, "arch", u.machine, "cpus",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "runs", (int)o->runs, "seed", (json_int_t)o->seed);
}
