/* SPDX-License-Identifier: Apache-2.0 */
#include "net/auth.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>

#define HEAD_BYTES 5u /* magic, version */
#define NONCE_BYTES 32u
#define MAC_BYTES 32u

static const uint8_t head[HEAD_BYTES] = {'F', 'K', 'V', 'A', AUTH_VERSION};

/* As long as each other, so that no end of one is the beginning of what is said. */
static const char client_label[] = "fluxkv client 1";
static const char server_label[] = "fluxkv server 1";

static const size_t awaited_bytes[] = {
    [AUTH_WAITS_CHALLENGE] = AUTH_CHALLENGE_BYTES,
    [AUTH_WAITS_PROOF] = AUTH_PROOF_BYTES,
    [AUTH_WAITS_CONFIRM] = AUTH_CONFIRM_BYTES,
};

_Static_assert(AUTH_CHALLENGE_BYTES == HEAD_BYTES + NONCE_BYTES, "challenge");
_Static_assert(AUTH_PROOF_BYTES == HEAD_BYTES + 1 + NONCE_BYTES + MAC_BYTES, "proof");
_Static_assert(AUTH_CONFIRM_BYTES == MAC_BYTES, "confirm");
_Static_assert(sizeof(client_label) == sizeof(server_label), "labels");

/* Over the first n bytes of what was said. */
static void mac(const struct auth *a, const char *label, size_t n, uint8_t ret[MAC_BYTES])
{
	crypto_generichash_state st;

	/* None of these fails for sizes that are right. */
	crypto_generichash_init(&st, a->key.bytes, sizeof(a->key.bytes), MAC_BYTES);
	crypto_generichash_update(&st, (const uint8_t *)label, sizeof(client_label));
	crypto_generichash_update(&st, a->said, n);
	crypto_generichash_final(&st, ret, MAC_BYTES);
	sodium_memzero(&st, sizeof(st));
}

/* Whether the MAC at the end of what was said is that of all before it. */
static bool good_mac(const struct auth *a, const char *label)
{
	uint8_t want[MAC_BYTES];
	size_t n = a->n_said - MAC_BYTES;

	mac(a, label, n, want);
	return !sodium_memcmp(want, a->said + n, MAC_BYTES);
}

static void say(struct auth *a, const void *bytes, size_t n)
{
	memcpy(a->said + a->n_said, bytes, n);
	a->n_said += (uint8_t)n;
}

static int say_nonce(struct auth *a)
{
	uint8_t nonce[NONCE_BYTES];

	if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	say(a, nonce, sizeof(nonce));
	return 0;
}

static void say_mac(struct auth *a, const char *label)
{
	uint8_t m[MAC_BYTES];

	mac(a, label, a->n_said, m);
	say(a, m, sizeof(m));
}

static void begin(struct auth *a, const struct auth_key *key, enum auth_purpose purpose, enum auth_state state)
{
	*a = (struct auth){.state = state, .purpose = (uint8_t)purpose, .key = *key};
}

int auth_server(struct auth *a, const struct auth_key *key, enum auth_purpose purpose, struct buf *out)
{
	int r;

	begin(a, key, purpose, AUTH_WAITS_PROOF);
	say(a, head, sizeof(head));
	r = say_nonce(a);
	return r < 0 ? r : buf_add(out, a->said, a->n_said);
}

void auth_client(struct auth *a, const struct auth_key *key, enum auth_purpose purpose)
{
	begin(a, key, purpose, AUTH_WAITS_CHALLENGE);
}

/* ---- what the other side has said ---------------------------------------------------------------------------- */

static int take_challenge(struct auth *a, struct buf *out)
{
	size_t from = a->n_said;
	int r;

	say(a, head, sizeof(head));
	say(a, &a->purpose, 1);
	r = say_nonce(a);
	if (r < 0)
		return r;
	say_mac(a, client_label);
	a->state = AUTH_WAITS_CONFIRM;
	return buf_add(out, a->said + from, a->n_said - from);
}

static int take_proof(struct auth *a, struct buf *out)
{
	size_t from = a->n_said;
	int r;

	if (!good_mac(a, client_label) || a->said[AUTH_CHALLENGE_BYTES + HEAD_BYTES] != a->purpose)
		return -EACCES;
	say_mac(a, server_label);
	r = buf_add(out, a->said + from, a->n_said - from);
	if (r < 0)
		return r;
	a->state = AUTH_DONE;
	return 1;
}

static int take_confirm(struct auth *a)
{
	if (!good_mac(a, server_label))
		return -EACCES;
	a->state = AUTH_DONE;
	return 1;
}

static int take_message(struct auth *a, struct buf *out)
{
	a->n_said += a->n;
	a->n = 0;
	switch (a->state) {
	case AUTH_WAITS_CHALLENGE:
		return take_challenge(a, out);
	case AUTH_WAITS_PROOF:
		return take_proof(a, out);
	default:
		return take_confirm(a);
	}
}

/* Who does not begin as FluxKV does is not waited for. */
static bool good_head(const struct auth *a)
{
	size_t n = a->n < HEAD_BYTES ? a->n : HEAD_BYTES;

	return a->state == AUTH_WAITS_CONFIRM || !memcmp(a->said + a->n_said, head, n);
}

size_t auth_lacks(const struct auth *a)
{
	return a->state < AUTH_DONE ? awaited_bytes[a->state] - a->n : 0;
}

/* As much of bytes as the message that is awaited still lacks. 0: it is not whole. */
static int take_some(struct auth *a, const uint8_t *bytes, size_t len, size_t *ret_used, struct buf *out)
{
	size_t n = auth_lacks(a);

	if (n > len)
		n = len;
	if (n)
		memcpy(a->said + a->n_said + a->n, bytes, n);
	a->n += (uint8_t)n;
	*ret_used = n;
	if (!good_head(a))
		return -EPROTO;
	return a->n == awaited_bytes[a->state] ? take_message(a, out) : 0;
}

int auth_take(struct auth *a, const uint8_t *bytes, size_t len, size_t *ret_used, struct buf *out)
{
	size_t used = 0, n, before = out->len;
	int r = a->state >= AUTH_DONE ? -EPROTO : 0;

	while (!r && used < len) {
		r = take_some(a, bytes + used, len - used, &n, out);
		used += n;
	}
	if (r < 0) {
		a->state = AUTH_FAILED;
		out->len = before;
		return r;
	}
	*ret_used = used;
	return r;
}

void auth_end(struct auth *a)
{
	sodium_memzero(a, sizeof(*a));
	a->state = AUTH_FAILED;
}
