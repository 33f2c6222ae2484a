/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the other side of a handshake. The first one says which side is ours and how large the pieces are that
 * the rest comes in. It ends well for exactly the bytes that one with the key would have said, and takes none behind
 * them. Random numbers are not random here, or no input could be a good one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "net/auth.h"
#include "tests/fuzz/fuzz.h"

static uint8_t next_random;

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags);

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags)
{
	memset(buf, next_random++, len);
	return (ssize_t)len;
}

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* What two with the key say to each other. */
static void good_talk(const struct auth_key *key, struct buf *to_client, struct buf *to_server)
{
	struct auth client, server;
	size_t used, n = AUTH_CHALLENGE_BYTES;

	next_random = 1;
	auth_client(&client, key, AUTH_RPC);
	must(!auth_server(&server, key, AUTH_RPC, to_client));
	must(!auth_take(&client, to_client->data, n, &used, to_server));
	must(auth_take(&server, to_server->data, to_server->len, &used, to_client) == 1);
	must(auth_take(&client, to_client->data + n, to_client->len - n, &used, to_server) == 1);
}

static int feed(struct auth *a, const uint8_t *data, size_t len, size_t step, size_t *ret_used, struct buf *out)
{
	size_t used = 0, n;
	int r = 0;

	for (*ret_used = 0; !r && *ret_used < len; *ret_used += used) {
		n = len - *ret_used < step ? len - *ret_used : step;
		r = auth_take(a, data + *ret_used, n, &used, out);
		if (r < 0)
			break;
		must(used <= n && (used == n || r == 1));
	}
	return r;
}

static void check(struct auth *a, const struct buf *good, const struct buf *good_out, const uint8_t *data, size_t len,
		  size_t step, struct buf *out)
{
	size_t used, same = len < good->len ? len : good->len;
	bool begins = !memcmp(data, good->data, same);
	int r = feed(a, data, len, step, &used, out);

	must(r == 1 || r == 0 || r == -EPROTO || r == -EACCES);
	must((r == 1) == (begins && same == good->len));
	must(r != 1 || used == good->len);
	must(r >= 0 || !begins);
	must(!begins || (out->len <= good_out->len && !memcmp(out->data, good_out->data, out->len)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct auth_key key = {{1, 2, 3}};
	struct buf to_client = {0}, to_server = {0}, out = {0};
	size_t step = size ? 1 + data[0] / 2 : 0;
	struct auth a;

	if (!size)
		return 0;
	must(!buf_add(&out, "", 0));
	good_talk(&key, &to_client, &to_server);
	if (data[0] & 1) {
		next_random = 1;
		must(!auth_server(&a, &key, AUTH_RPC, &out));
		check(&a, &to_server, &to_client, data + 1, size - 1, step, &out);
	} else {
		next_random = 2; /* behind the server's */
		auth_client(&a, &key, AUTH_RPC);
		check(&a, &to_client, &to_server, data + 1, size - 1, step, &out);
	}
	auth_end(&a);
	buf_free(&to_client);
	buf_free(&to_server);
	buf_free(&out);
	return 0;
}
