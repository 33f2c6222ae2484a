/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a connection: before anything else is said on it, each side proves to the other that it
 *has the cluster's key, and never shows it. Bytes in, bytes out; the sockets are somebody else's.
 *
 *	server -> client: "FKVA", version, 32 random bytes
 *	client -> server: "FKVA", version, purpose, 32 random bytes, MAC over "client" and all of the above
 *	server -> client: MAC over "server" and all of the above, the client's MAC too
 *
 * The MAC is keyed BLAKE2b (libsodium). Each side's random bytes are new, so what was heard once is of no use later; a
 *MAC says which side made it and for what, so it is of no use the other way round, nor for another kind of connection.
 *Who has no key gets the server's random bytes, and nothing else. What is said afterwards is neither sealed nor secret:
 *who can change what is on the wire is not kept out by this.
 *
 * Without a key file both sides use a key that everybody knows. That tells FluxKV from others and no more, so a
 * listener without a file stays on the loopback.
 *
 * A handshake is one connection's, one thread's at a time. Keys are constant once they are loaded; any thread.
 */
#ifndef NET_AUTH_H
#define NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"
#include "net/buf.h"

#define AUTH_VERSION 1u
#define AUTH_KEY_MIN 32u   /* bytes of a key file */
#define AUTH_KEY_MAX 4096u /* above that it is some other file */
#define AUTH_CHALLENGE_BYTES 37u
#define AUTH_PROOF_BYTES 70u
#define AUTH_CONFIRM_BYTES 32u

struct auth_key {
	uint8_t bytes[32];
};

/*
 * From a file of AUTH_KEY_MIN bytes or more, all of which count, that is this user's or root's and nobody else may read
 * or write. path NULL: the key of those that have none. On failure e says what to do about it.
 */
int auth_key_load(const char *path, struct auth_key *ret, struct errmsg *e);

/* What a connection is for; the server says what it takes. */
enum auth_purpose {
	AUTH_RPC = 1,
	AUTH_DATA = 2,
};

enum auth_state {
	AUTH_WAITS_CHALLENGE,
	AUTH_WAITS_PROOF,
	AUTH_WAITS_CONFIRM,
	AUTH_DONE,
	AUTH_FAILED,
};

struct auth {
	enum auth_state state;
	uint8_t purpose;
	uint8_t n; /* bytes of the message that is awaited which are there, at the end of said */
	uint8_t n_said;
	struct auth_key key;
	/* what both sides have said so far, in order, and room for the message that is awaited */
	uint8_t said[AUTH_CHALLENGE_BYTES + AUTH_PROOF_BYTES + AUTH_CONFIRM_BYTES];
};

/*
 * Begins one. What is to be sent is appended to out: the server speaks first, a client has nothing yet. The key is
 * copied. -ENOMEM, -EIO (no random numbers).
 */
int auth_server(struct auth *a, const struct auth_key *key, enum auth_purpose purpose, struct buf *out);
void auth_client(struct auth *a, const struct auth_key *key, enum auth_purpose purpose);

/*
 * Takes what has come, as much of it as is the handshake's: *ret_used bytes of it. What is to be sent is appended to
 * out. 1: the other side has proved itself; what follows is the connection's. 0: there is more to come. -EPROTO: that
 * is not FluxKV, or another version of it; -EACCES: it has another key, or is there for something else; -ENOMEM, -EIO.
 * After an error nothing is to be sent, and the connection is to be closed.
 */
int auth_take(struct auth *a, const uint8_t *bytes, size_t len, size_t *ret_used, struct buf *out);

/* Bytes that the message which is awaited still lacks. A side that reads no more than that reads none of what follows.
 */
size_t auth_lacks(const struct auth *a);

/* Forgets the key. */
void auth_end(struct auth *a);

#endif
