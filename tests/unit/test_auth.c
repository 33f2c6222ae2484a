/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: two that have the key, and everybody else. And the key's file. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/auth.h"
#include "tests/unit/run.h"
#include "tests/unit/temp_dir.h"

static struct auth_key key, other_key;
static struct auth client, server;
static struct buf to_client, to_server; /* all that was said, from the start */

static void begin_with(const struct auth_key *c, const struct auth_key *s)
{
	buf_free(&to_client);
	buf_free(&to_server);
	auth_client(&client, c, AUTH_RPC);
	ck_assert_int_eq(auth_server(&server, s, AUTH_RPC, &to_client), 0);
	ck_assert_uint_eq(to_client.len, AUTH_CHALLENGE_BYTES);
}

static void set_up(void)
{
	memset(&key, 1, sizeof(key));
	memset(&other_key, 2, sizeof(other_key));
	begin_with(&key, &key);
}

static void tear_down(void)
{
	buf_free(&to_client);
	buf_free(&to_server);
}

/* Gives a side bytes in pieces of step, as long as it takes them. */
static int give(struct auth *a, const uint8_t *bytes, size_t len, size_t step, size_t *ret_used, struct buf *out)
{
	size_t used;
	int r = 0;

	*ret_used = 0;
	while (!r && *ret_used < len) {
		size_t n = len - *ret_used < step ? len - *ret_used : step;
		/* a copy of exactly that length: reading beyond it is seen by ASan */
		uint8_t *copy = malloc(n);

		memcpy(copy, bytes + *ret_used, n);
		r = auth_take(a, copy, n, &used, out);
		free(copy);
		if (r >= 0) {
			ck_assert_uint_le(used, n);
			*ret_used += used;
		}
	}
	return r;
}

/* The whole handshake in pieces of that size. */
static void shake(size_t step, int *ret_client, int *ret_server)
{
	size_t used, more;

	*ret_server = 0;
	*ret_client = give(&client, to_client.data, to_client.len, step, &used, &to_server);
	if (!*ret_client)
		*ret_server = give(&server, to_server.data, to_server.len, step, &more, &to_client);
	if (*ret_server == 1)
		*ret_client = give(&client, to_client.data + used, to_client.len - used, step, &more, &to_server);
}

START_TEST(both_have_it)
{
	int c, s;

	for (size_t step = 1; step <= AUTH_PROOF_BYTES; step++) {
		begin_with(&key, &key);
		shake(step, &c, &s);
		ck_assert_int_eq(c, 1);
		ck_assert_int_eq(s, 1);
		ck_assert_uint_eq(to_server.len, AUTH_PROOF_BYTES);
		ck_assert_uint_eq(to_client.len, AUTH_CHALLENGE_BYTES + AUTH_CONFIRM_BYTES);
	}
}
END_TEST

START_TEST(another_key)
{
	int c, s;

	begin_with(&other_key, &key);
	shake(1000, &c, &s);
	ck_assert_int_eq(c, 0);
	ck_assert_int_eq(s, -EACCES);
	/* and the stranger gets no MAC to try keys on */
	ck_assert_uint_eq(to_client.len, AUTH_CHALLENGE_BYTES);
}
END_TEST

/* A server that has not the key, and says that all is well. */
START_TEST(false_server)
{
	uint8_t confirm[AUTH_CONFIRM_BYTES] = {0};
	size_t used;

	ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), 0);
	ck_assert_int_eq(auth_take(&client, confirm, sizeof(confirm), &used, &to_server), -EACCES);
	ck_assert_int_eq(client.state, AUTH_FAILED);
	/* one that is in a hurry is not even told the client's proof */
	begin_with(&key, &key);
	ck_assert_int_eq(buf_add(&to_client, confirm, sizeof(confirm)), 0);
	ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), -EACCES);
	ck_assert_uint_eq(to_server.len, 0);
}
END_TEST

START_TEST(another_purpose)
{
	int c, s;

	auth_client(&client, &key, (enum auth_purpose)(AUTH_RPC + 1));
	shake(1000, &c, &s);
	ck_assert_int_eq(s, -EACCES);
}
END_TEST

/* Neither side says or decides anything before it has heard all. */
START_TEST(truncated)
{
	struct buf none = {0};
	size_t used;

	for (size_t n = 0; n < AUTH_CHALLENGE_BYTES; n++) {
		auth_client(&client, &key, AUTH_RPC);
		ck_assert_int_eq(give(&client, to_client.data, n, 1000, &used, &none), 0);
		ck_assert_uint_eq(none.len, 0);
	}
	auth_client(&client, &key, AUTH_RPC);
	ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), 0);
	for (size_t n = 0; n < AUTH_PROOF_BYTES; n++) {
		struct auth copy = server;

		ck_assert_int_eq(give(&copy, to_server.data, n, 1000, &used, &none), 0);
		ck_assert_uint_eq(none.len, 0);
	}
	ck_assert_int_eq(auth_take(&server, to_server.data, to_server.len, &used, &to_client), 1);
	for (size_t n = 0; n < AUTH_CONFIRM_BYTES; n++) {
		struct auth copy = client;

		ck_assert_int_eq(give(&copy, to_client.data + AUTH_CHALLENGE_BYTES, n, 1000, &used, &none), 0);
	}
	ck_assert_uint_eq(none.len, 0);
}
END_TEST

/* Whichever bit is changed on its way: somebody notices, and it is never the client alone that is content. */
START_TEST(changed)
{
	const size_t bits = 8 * (AUTH_CHALLENGE_BYTES + AUTH_PROOF_BYTES + AUTH_CONFIRM_BYTES);

	for (size_t bit = 0; bit < bits; bit++) {
		size_t at = bit / 8, used, more;
		int c, s = 0;

		begin_with(&key, &key);
		if (at < AUTH_CHALLENGE_BYTES)
			to_client.data[at] ^= (uint8_t)(1u << bit % 8);
		c = auth_take(&client, to_client.data, to_client.len, &used, &to_server);
		if (c < 0) {
			ck_assert_int_eq(c, -EPROTO);
			ck_assert_uint_eq(to_server.len, 0);
			continue;
		}
		if (at >= AUTH_CHALLENGE_BYTES && at - AUTH_CHALLENGE_BYTES < AUTH_PROOF_BYTES)
			to_server.data[at - AUTH_CHALLENGE_BYTES] ^= (uint8_t)(1u << bit % 8);
		s = auth_take(&server, to_server.data, to_server.len, &more, &to_client);
		if (at < AUTH_CHALLENGE_BYTES + AUTH_PROOF_BYTES) {
			ck_assert_msg(s == -EACCES || s == -EPROTO, "byte %zu", at);
			ck_assert_uint_eq(to_client.len, AUTH_CHALLENGE_BYTES);
			continue;
		}
		to_client.data[at - AUTH_PROOF_BYTES] ^= (uint8_t)(1u << bit % 8);
		c = auth_take(&client, to_client.data + used, to_client.len - used, &more, &to_server);
		ck_assert_int_eq(c, -EACCES);
	}
}
END_TEST

/* What was heard once, said again. */
START_TEST(replayed)
{
	struct buf heard_by_client = {0}, heard_by_server = {0};
	size_t used;
	int c, s;

	shake(1000, &c, &s);
	ck_assert_int_eq(s, 1);
	heard_by_client = to_client;
	heard_by_server = to_server;
	to_client = to_server = (struct buf){0};
	begin_with(&key, &key);
	s = auth_take(&server, heard_by_server.data, heard_by_server.len, &used, &to_client);
	ck_assert_int_eq(s, -EACCES);
	c = auth_take(&client, heard_by_client.data, heard_by_client.len, &used, &to_server);
	ck_assert_int_eq(c, -EACCES);
	buf_free(&heard_by_client);
	buf_free(&heard_by_server);
}
END_TEST

/* What a side has said itself, given back to it, in whatever place it would fit. */
START_TEST(reflected)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct auth again = server;
	size_t used;

	/* the client's own MAC as the server's */
	ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), 0);
	ck_assert_int_eq(auth_take(&client, to_server.data + AUTH_PROOF_BYTES - 32, 32, &used, &to_server), -EACCES);
	/* the server's challenge as a proof, and its MAC as a client's */
	ck_assert_int_eq(auth_take(&server, to_server.data, AUTH_PROOF_BYTES, &used, &to_client), 1);
	memcpy(proof, to_server.data, sizeof(proof));
	memcpy(proof + AUTH_PROOF_BYTES - 32, to_client.data + AUTH_CHALLENGE_BYTES, 32);
	ck_assert_int_eq(auth_take(&again, proof, sizeof(proof), &used, &to_client), -EACCES);
	begin_with(&key, &key);
	ck_assert_int_le(auth_take(&server, to_client.data, AUTH_CHALLENGE_BYTES, &used, &to_client), 0);
	/* a server that is told what another server says */
	ck_assert_int_ne(auth_take(&server, to_client.data, AUTH_CHALLENGE_BYTES, &used, &to_client), 1);
}
END_TEST

/* Who is not FluxKV is not waited for, and another version is told from another key. */
START_TEST(strangers)
{
	static const char *const said[] = {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "S", "FKVB", "FKVA\x02", "FKVA\x00x"};
	size_t used;

	for (size_t k = 0; k < sizeof(said) / sizeof(said[0]); k++) {
		begin_with(&key, &key);
		ck_assert_int_eq(
		    give(&server, (const uint8_t *)said[k], k == 5 ? 6 : strlen(said[k]), 1, &used, &to_client),
		    -EPROTO);
		ck_assert_int_eq(
		    give(&client, (const uint8_t *)said[k], k == 5 ? 6 : strlen(said[k]), 1, &used, &to_server),
		    -EPROTO);
		ck_assert_uint_eq(to_client.len, AUTH_CHALLENGE_BYTES);
		ck_assert_uint_eq(to_server.len, 0);
	}
}
END_TEST

/* It is over when it is over: the rest is the connection's, and a handshake that failed does not come back. */
START_TEST(over)
{
	size_t used;
	int c, s;

	ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), 0);
	ck_assert_int_eq(buf_add(&to_server, "frame", 5), 0);
	ck_assert_int_eq(auth_take(&server, to_server.data, to_server.len, &used, &to_client), 1);
	ck_assert_uint_eq(used, AUTH_PROOF_BYTES);
	ck_assert_int_eq(auth_take(&server, (const uint8_t *)"frame", 5, &used, &to_client), -EPROTO);
	begin_with(&key, &key);
	ck_assert_int_eq(auth_take(&server, (const uint8_t *)"x", 1, &used, &to_client), -EPROTO);
	shake(1000, &c, &s);
	ck_assert_int_eq(s, -EPROTO);
	auth_end(&client);
	for (size_t k = 0; k < sizeof(client.key); k++)
		ck_assert_uint_eq(client.key.bytes[k], 0);
}
END_TEST

static int by_nonce(const void *a, const void *b)
{
	return memcmp(a, b, 32);
}

START_TEST(always_new)
{
	static uint8_t nonces[2000][32];
	size_t used;

	for (size_t k = 0; k < 2000; k += 2) {
		begin_with(&key, &key);
		ck_assert_int_eq(auth_take(&client, to_client.data, to_client.len, &used, &to_server), 0);
		memcpy(nonces[k], to_client.data + 5, 32);
		memcpy(nonces[k + 1], to_server.data + 6, 32);
	}
	qsort(nonces, 2000, 32, by_nonce);
	for (size_t k = 1; k < 2000; k++)
		ck_assert_int_ne(memcmp(nonces[k - 1], nonces[k], 32), 0);
}
END_TEST

/* ---- the file ------------------------------------------------------------------------------------------------ */

static char path[128];

static void make_file(size_t bytes, int mode, char fill)
{
	FILE *f;

	snprintf(path, sizeof(path), "%s/key", temp_dir);
	remove(path);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	for (size_t k = 0; k < bytes; k++)
		fputc(fill, f);
	fclose(f);
	ck_assert_int_eq(chmod(path, (mode_t)mode), 0);
}

static int load(struct auth_key *k)
{
	struct errmsg e = {""};
	int r = auth_key_load(path, k, &e);

	ck_assert_int_eq(r < 0, !!*e.text);
	if (r < 0)
		ck_assert_msg(strstr(e.text, path) && !strchr(e.text, '\n'), "%s", e.text);
	return r;
}

START_TEST(good_files)
{
	struct auth_key a, b, c, none;

	make_file(32, 0600, 'a');
	ck_assert_int_eq(load(&a), 0);
	make_file(32, 0400, 'a');
	ck_assert_int_eq(load(&b), 0);
	ck_assert_int_eq(memcmp(&a, &b, sizeof(a)), 0);
	/* every byte counts, also those behind the 32nd */
	make_file(33, 0600, 'a');
	ck_assert_int_eq(load(&b), 0);
	make_file(AUTH_KEY_MAX, 0600, 'a');
	ck_assert_int_eq(load(&c), 0);
	ck_assert_int_eq(auth_key_load(NULL, &none, NULL), 0);
	ck_assert_int_ne(memcmp(&a, &b, sizeof(a)), 0);
	ck_assert_int_ne(memcmp(&b, &c, sizeof(a)), 0);
	ck_assert_int_ne(memcmp(&a, &none, sizeof(a)), 0);
	ck_assert_int_eq(auth_key_load(NULL, &a, NULL), 0);
	ck_assert_int_eq(memcmp(&a, &none, sizeof(a)), 0);
}
END_TEST

START_TEST(bad_files)
{
	struct auth_key k;

	make_file(31, 0600, 'a');
	ck_assert_int_eq(load(&k), -EINVAL);
	make_file(0, 0600, 'a');
	ck_assert_int_eq(load(&k), -EINVAL);
	make_file(AUTH_KEY_MAX + 1, 0600, 'a');
	ck_assert_int_eq(load(&k), -EINVAL);
	for (int bit = 1; bit < 0100; bit <<= 1) {
		make_file(32, 0600 | bit, 'a');
		ck_assert_int_eq(load(&k), -EPERM);
	}
	remove(path);
	ck_assert_int_eq(load(&k), -ENOENT);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(load(&k), -EINVAL);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(load(&k), -EINVAL);
	make_file(32, 0600, 'a');
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(path, 12345, 0), 0);
		ck_assert_int_eq(load(&k), -EPERM);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("auth");
	TCase *tc = tcase_create("handshake"), *files = tcase_create("key file");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, both_have_it);
	tcase_add_test(tc, another_key);
	tcase_add_test(tc, false_server);
	tcase_add_test(tc, another_purpose);
	tcase_add_test(tc, truncated);
	tcase_add_test(tc, changed);
	tcase_add_test(tc, replayed);
	tcase_add_test(tc, reflected);
	tcase_add_test(tc, strangers);
	tcase_add_test(tc, over);
	tcase_add_test(tc, always_new);
	suite_add_tcase(s, tc);
	tcase_add_unchecked_fixture(files, temp_dir_make, temp_dir_remove);
	tcase_add_test(files, good_files);
	tcase_add_test(files, bad_files);
	suite_add_tcase(s, files);
	return run_suite(s);
}
