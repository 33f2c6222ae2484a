/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/ssd_place.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/bench/target.h"

const char *ssd_place(const struct bench_options *o)
{
	const char *temp = getenv("TMPDIR");

	return o->ssd_dir ? o->ssd_dir : temp && *temp ? temp : "/var/tmp";
}

int ssd_place_check(const char *dir, struct errmsg *e)
{
	struct target t = TARGET_CLOSED;
	int r = target_open(&t, "ssd", dir, e);

	if (r < 0)
		return r;
	if (target_in_memory(&t))
		r = errmsg_set(e, -ENOTBLK, "%s is in memory (%s): what is called SSD is none; see --ssd-dir", dir,
			       t.mount.type);
	target_close(&t);
	return r;
}
