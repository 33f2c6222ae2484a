/* SPDX-License-Identifier: Apache-2.0 */
#include "master/placement.h"

#include <errno.h>

#include "master/ledger.h"
#include "master/members.h"

int placement_pick(const struct core *c, const struct space *s, uint32_t writer, uint64_t bytes, struct placement *ret)
{
	struct member *mem = member_live(c, writer);

	if (!mem)
		return -ESTALE;
	ret->target = mem;
	ret->persist = s->persist && mem->ssd;
	return bytes > ledger_free(mem) ? -ENOSPC : 0;
}
