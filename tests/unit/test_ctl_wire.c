/* SPDX-License-Identifier: Apache-2.0 */
/* net/ctl.h and net/utf8.h: the control socket's lines, over a pair of sockets. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "net/ctl.h"
#include "net/utf8.h"
#include "tests/unit/run.h"

static int raw; /* the other end */
static struct ctl_stream *stream;

static void open_pair(size_t max_line)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	raw = fds[0];
	stream = ctl_stream_new(fds[1], max_line);
	ck_assert_ptr_nonnull(stream);
}

static void close_pair(void)
{
	if (raw >= 0)
		close(raw);
	stream = ctl_stream_free(stream);
}

static void say(const char *text)
{
	ck_assert_int_eq(write(raw, text, strlen(text)), (ssize_t)strlen(text));
}

static uint64_t soon(void)
{
	return clock_ns() + 5 * NS_PER_SEC;
}

START_TEST(takes_lines_apart)
{
	json_t *m;

	open_pair(1024);
	say("{\"a\": 1}\n{\"a\": 2}\n{\"a\"");
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(m, "a")), 1);
	json_decref(m);
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(m, "a")), 2);
	json_decref(m);
	ck_assert_int_eq(ctl_recv(stream, clock_ns() + 20 * NS_PER_MS, &m), -ETIMEDOUT);
	say(": 3}\n");
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(m, "a")), 3);
	json_decref(m);
	close_pair();
}
END_TEST

START_TEST(refuses_what_is_no_object)
{
	static const char *const bad[] = {
	    "\n", "[]\n", "1\n", "{\"a\"}\n", "{} {}\n", "{\"a\":1,\"a\":2}\n", "\xff\n", "{\"a\":\"\xff\"}\n"};
	json_t *m = NULL;

	open_pair(1024);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		say(bad[i]);
		ck_assert_int_eq(ctl_recv(stream, soon(), &m), -EBADMSG);
		ck_assert_ptr_null(m);
	}
	/* The next line is a message again. */
	say("{}\n");
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	json_decref(m);
	close_pair();
}
END_TEST

/* Valid JSON, which would take the parser's stack; brackets in a string are none. */
START_TEST(refuses_what_is_too_deep)
{
	char text[8192];
	json_t *m;

	open_pair(sizeof(text));
	for (int n = 40; n <= 2000; n *= 7) {
		strcpy(text, "{\"a\":");
		memset(text + 5, '[', n);
		memset(text + 5 + n, ']', n);
		strcpy(text + 5 + 2 * n, "}\n");
		say(text);
		ck_assert_int_eq(ctl_recv(stream, soon(), &m), -EBADMSG);
	}
	strcpy(text, "{\"a\":\"\\\"");
	memset(text + 8, '[', 2000);
	strcpy(text + 2008, "\",\"b\":[[],[],[[{}]]]}\n");
	say(text);
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	ck_assert_uint_eq(json_string_length(json_object_get(m, "a")), 2001);
	json_decref(m);
	close_pair();
}
END_TEST

START_TEST(bounds_a_line)
{
	char big[8192];
	json_t *m;

	open_pair(5000);
	memset(big, ' ', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	say(big);
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), -EMSGSIZE);
	close_pair();
	/* One that is exactly as long as allowed is read. */
	open_pair(5000);
	big[5000] = '\0';
	memcpy(big, "{}", 2);
	big[4999] = '\n';
	say(big);
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	json_decref(m);
	close_pair();
}
END_TEST

START_TEST(tells_how_a_peer_left)
{
	json_t *m;

	open_pair(100);
	say("{}\n");
	close(raw);
	raw = -1;
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), 0);
	json_decref(m);
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), -ENODATA);
	m = json_object();
	ck_assert_int_eq(ctl_send(stream, soon(), m), -EPIPE);
	json_decref(m);
	close_pair();
	open_pair(100);
	say("{");
	close(raw);
	raw = -1;
	ck_assert_int_eq(ctl_recv(stream, soon(), &m), -ECONNRESET);
	close_pair();
}
END_TEST

START_TEST(sends_no_further_than_the_peer_reads)
{
	json_t *m = json_object();
	char *big = malloc(4 << 20);

	memset(big, 'x', (4 << 20) - 1);
	big[(4 << 20) - 1] = '\0';
	json_object_set_new(m, "big", json_string(big));
	open_pair(100);
	ck_assert_int_eq(ctl_send(stream, clock_ns() + 50 * NS_PER_MS, m), -ETIMEDOUT);
	json_decref(m);
	free(big);
	close_pair();
}
END_TEST

START_TEST(turns_answers_into_errors)
{
	struct errmsg e = {.text = ""};
	json_t *m;

	open_pair(1024);
	say("{\"ok\": true, \"x\": 7}\n");
	ck_assert_int_eq(ctl_call(stream, json_object(), 5000, &m, &e), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(m, "x")), 7);
	json_decref(m);
	say("{\"ok\": false, \"errno\": 16, \"error\": \"busy here\"}\n");
	ck_assert_int_eq(ctl_call(stream, json_object(), 5000, &m, &e), -EBUSY);
	ck_assert_str_eq(e.text, "busy here");
	/* A refusal without a number is one all the same. */
	say("{\"ok\": 1}\n");
	ck_assert_int_eq(ctl_call(stream, json_object(), 5000, &m, &e), -EIO);
	ck_assert_int_eq(ctl_call(stream, json_object(), 20, &m, &e), -ETIMEDOUT);
	ck_assert_int_eq(ctl_call(stream, NULL, 20, &m, &e), -ENOMEM);
	close_pair();
}
END_TEST

static void check_name(const char *bytes, const char *text)
{
	json_t *j = ctl_name_to_json(bytes);
	char back[64];

	ck_assert_str_eq(json_string_value(j), text);
	ck_assert_int_eq(ctl_name_from_json(text, back, sizeof(back)), 0);
	ck_assert_str_eq(back, bytes);
	json_decref(j);
}

START_TEST(carries_names_of_any_bytes)
{
	char every[256], back[256];
	json_t *j;

	check_name("", "");
	check_name("plain-name_1.bin", "plain-name_1.bin");
	check_name("50%", "50%25");
	check_name("a\nb\x7f", "a%0Ab%7F");
	check_name("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f");
	check_name("\xff\xc3", "%FF%C3");
	check_name("\xed\xa0\x80", "%ED%A0%80"); /* a surrogate */
	for (int i = 1; i < 256; i++)
		every[i - 1] = (char)i;
	every[255] = '\0';
	j = ctl_name_to_json(every);
	ck_assert_int_eq(ctl_name_from_json(json_string_value(j), back, sizeof(back)), 0);
	ck_assert_str_eq(back, every);
	json_decref(j);
}
END_TEST

START_TEST(refuses_malformed_names)
{
	char out[8] = "before";

	ck_assert_int_eq(ctl_name_from_json("%", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(ctl_name_from_json("%4", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(ctl_name_from_json("%4g", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(ctl_name_from_json("%00", out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(ctl_name_from_json("12345678", out, sizeof(out)), -ENAMETOOLONG);
	ck_assert_int_eq(ctl_name_from_json("1234567", out, sizeof(out)), 0);
	ck_assert_str_eq(out, "1234567");
}
END_TEST

START_TEST(knows_utf8)
{
	ck_assert_uint_eq(utf8_sequence("", 0), 0);
	ck_assert_uint_eq(utf8_sequence("a", 1), 1);
	ck_assert_uint_eq(utf8_sequence("\xc3\xbc", 2), 2);
	ck_assert_uint_eq(utf8_sequence("\xc3\xbc", 1), 0);
	ck_assert_uint_eq(utf8_sequence("\xe2\x82\xac", 3), 3);
	ck_assert_uint_eq(utf8_sequence("\xf0\x9f\x98\x80", 4), 4);
	ck_assert_uint_eq(utf8_sequence("\xf4\x90\x80\x80", 4), 0); /* above U+10FFFF */
	ck_assert_uint_eq(utf8_sequence("\xc0\x80", 2), 0);	    /* overlong */
	ck_assert_uint_eq(utf8_sequence("\xe0\x80\x80", 3), 0);
	ck_assert_uint_eq(utf8_sequence("\xf0\x80\x80\x80", 4), 0);
	ck_assert_uint_eq(utf8_sequence("\xc3"
					"a",
					2),
			  0);
	ck_assert_uint_eq(utf8_sequence("\x80", 1), 0);
	ck_assert_uint_eq(utf8_code_point("\x7f", 1), 0x7f);
	ck_assert_uint_eq(utf8_code_point("\xdf\xbf", 2), 0x7ff);
	ck_assert_uint_eq(utf8_code_point("\xef\xbf\xbf", 3), 0xffff);
	ck_assert_uint_eq(utf8_code_point("\xf4\x8f\xbf\xbf", 4), 0x10ffff);
	ck_assert_uint_eq(utf8_code_point("\xe2\x82\xac", 3), 0x20ac);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_wire");
	TCase *t = tcase_create("ctl_wire");

	tcase_add_test(t, takes_lines_apart);
	tcase_add_test(t, refuses_what_is_no_object);
	tcase_add_test(t, refuses_what_is_too_deep);
	tcase_add_test(t, bounds_a_line);
	tcase_add_test(t, tells_how_a_peer_left);
	tcase_add_test(t, sends_no_further_than_the_peer_reads);
	tcase_add_test(t, turns_answers_into_errors);
	tcase_add_test(t, carries_names_of_any_bytes);
	tcase_add_test(t, refuses_malformed_names);
	tcase_add_test(t, knows_utf8);
	suite_add_tcase(s, t);
	return run_suite(s);
}
