/* SPDX-License-Identifier: Apache-2.0 */
/* net/status.h and net/json.h: the status as text. */
#include <stdlib.h>
#include <string.h>

#include "net/json.h"
#include "net/status.h"
#include "tests/unit/run.h"

static const char full[] =
    "{\"version\": \"1.2\", \"instance\": \"n1\", \"cluster\": \"c\", \"source\": \"standalone\", \"pid\": 7,"
    " \"uptime_seconds\": 93784.9, \"mountpoint\": \"/mnt/x\","
    " \"dram\": {\"capacity\": 1048576, \"used\": 524288, \"reserved\": 4096, \"zombie\": 8192, \"objects\": 3},"
    " \"ssd\": {\"capacity\": 2097152, \"used\": 1048576, \"reserved\": 0, \"objects\": 2,"
    "  \"devices\": [{\"path\": \"/a\", \"capacity\": 1048576, \"used\": 1024, \"failed\": false},"
    "                {\"path\": \"/b\", \"capacity\": 1048576, \"used\": 0, \"failed\": true}]},"
    " \"hits\": {\"memory_local\": 5, \"ssd_local\": 2}, \"misses\": {\"never_stored\": 1, \"evicted\": 0},"
    " \"puts\": {\"done\": 4, \"bytes\": 2048, \"revoked\": 1, \"no_space\": 0},"
    " \"refills\": {\"done\": 2, \"bytes\": 1024, \"failed\": 0},"
    " \"persists\": {\"done\": 3, \"bytes\": 3072, \"backlog_bytes\": 512, \"dropped\": 1, \"failed\": 0},"
    " \"evictions\": {\"dram\": 9, \"ssd\": 1}, \"now\": {\"private_versions\": 1, \"parked\": 2},"
    " \"fs\": {\"passthrough\": {\"on\": true, \"why_not\": null, \"held\": 4096}},"
    " \"checksum_errors\": 1, \"stale_routes\": 0}";

static const char expected[] = "FluxKV 1.2: instance n1 of cluster c (standalone), pid 7, up 1 d 2 h\n"
			       "mounted on /mnt/x\n"
			       "\n"
			       "TIER    CAPACITY       USED          RESERVED     BLOCKS\n"
			       "dram       1 MiB    512 KiB  50.0%      4 KiB          3\n"
			       "  8 KiB more are held by readers of values that are gone\n"
			       "ssd        2 MiB      1 MiB  50.0%        0 B          2\n"
			       "  /a: 1 KiB of 1 MiB used\n"
			       "  /b: 0 B of 1 MiB used, FAILED, taken out\n"
			       "\n"
			       "hits              7: memory local 5, ssd local 2\n"
			       "misses            1: never stored 1, evicted 0\n"
			       "puts              4: 2 KiB written; given up 1, no space 0\n"
			       "refills           2: 1 KiB read from the SSD; failed 0\n"
			       "persists          3: 3 KiB written to the SSD, 512 B to go; dropped 1, failed 0\n"
			       "evicted          10: dram 9, ssd 1\n"
			       "now                  private versions 1, parked 2\n"
			       "reads                by the kernel from memory (passthrough); 4 KiB open\n"
			       "troubles checksum errors 1, stale routes 0\n";

START_TEST(prints_all)
{
	json_t *j = json_loads(full, 0, NULL);
	char *text;

	ck_assert_ptr_nonnull(j);
	text = status_text(j);
	ck_assert_str_eq(text, expected);
	free(text);
	json_decref(j);
}
END_TEST

static void check_uptime(double seconds, const char *want)
{
	json_t *j = json_pack("{s:f}", "uptime_seconds", seconds);
	char *text = status_text(j);

	ck_assert_ptr_nonnull(strstr(text, want));
	free(text);
	json_decref(j);
}

START_TEST(says_how_long)
{
	check_uptime(0.9, "up 0 s\n");
	check_uptime(59.9, "up 59 s\n");
	check_uptime(61, "up 1 min 1 s\n");
	check_uptime(7384, "up 2 h 3 min\n");
}
END_TEST

START_TEST(says_why_reads_are_copied)
{
	json_t *j = json_pack("{s:{s:{s:b,s:s}}}", "fs", "passthrough", "on", 0, "why_not", "switched off");
	char *text = status_text(j);

	ck_assert_ptr_nonnull(strstr(text, "copied by the daemon; no passthrough: switched off\n"));
	free(text);
	json_decref(j);
}
END_TEST

START_TEST(says_what_is_left_of_a_mount)
{
	json_t *j = json_pack("{s:b,s:s}", "mounted", 0, "mountpoint", "/mnt/x");
	char *text = status_text(j);

	ck_assert_ptr_nonnull(strstr(text, "\nunmounted from /mnt/x, and still in use by open files, or by a mount "
					   "namespace that has a copy of the mount; SIGTERM ends it\n"));
	free(text);
	json_object_set_new(j, "mounted", json_true());
	text = status_text(j);
	ck_assert_ptr_nonnull(strstr(text, "\nmounted on /mnt/x\n"));
	free(text);
	json_decref(j);
}
END_TEST

/* An older or newer daemon may leave something out. */
START_TEST(takes_what_is_there)
{
	static const char *const some[] = {"{}", "{\"ssd\": null}", "{\"hits\": 5, \"dram\": []}", "[]", "null"};

	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		json_t *j = json_loads(some[i], JSON_DECODE_ANY, NULL);
		char *text = status_text(j);

		ck_assert_ptr_nonnull(strstr(text, "ssd   none\n"));
		free(text);
		json_decref(j);
	}
}
END_TEST

START_TEST(finds_the_way)
{
	json_t *j = json_loads("{\"a\": {\"b\": {\"c\": 5, \"n\": -1, \"s\": \"x\"}}, \"r\": 1.5}", 0, NULL);

	ck_assert_uint_eq(json_u64(j, "a.b.c"), 5);
	ck_assert_uint_eq(json_u64(j, "a.b.n"), 0);
	ck_assert_uint_eq(json_u64(j, "a.b"), 0);
	ck_assert_uint_eq(json_u64(j, "a.x.c"), 0);
	ck_assert_uint_eq(json_u64(j, "a.b.c.d"), 0);
	ck_assert_str_eq(json_str(j, "a.b.s"), "x");
	ck_assert_str_eq(json_str(j, "a.b.c"), "");
	ck_assert(json_num(j, "r") > 1.4 && json_num(j, "a.b.c") > 4.9);
	ck_assert_ptr_null(json_at(j, "b"));
	ck_assert_ptr_null(json_at(NULL, "b"));
	json_decref(j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("status");
	TCase *t = tcase_create("status");

	tcase_add_test(t, prints_all);
	tcase_add_test(t, says_how_long);
	tcase_add_test(t, says_why_reads_are_copied);
	tcase_add_test(t, says_what_is_left_of_a_mount);
	tcase_add_test(t, takes_what_is_there);
	tcase_add_test(t, finds_the_way);
	suite_add_tcase(s, t);
	return run_suite(s);
}
