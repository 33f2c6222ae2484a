/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listen.h"

#include <errno.h>

#include "net/addr.h"

int listen_read(const char *listen, const char *key_file, struct sockaddr_storage *ret_at, struct auth_key *ret_key,
		struct errmsg *e)
{
	struct sockaddr_storage at;
	int r = addr_parse_number(listen, &at, e);

	if (r < 0)
		return r;
	if (!key_file && !addr_is_loopback(&at))
		return errmsg_set(e, -EPERM, "listen %s: without cluster_key_file only the loopback may be listened on",
				  listen);
	r = auth_key_load(key_file, ret_key, e);
	if (!r)
		*ret_at = at;
	return r;
}
