/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/fio.h"
#include "tests/bench/mountinfo.h"
#include "tests/bench/options.h"
#include "tests/bench/status.h"

#define WORDS_MAX 24

static struct bench_options o;
static struct errmsg e;
static const char *words[WORDS_MAX];
static unsigned n_words;

static int parse(unsigned command, int argc, const char *const *argv)
{
	char *copy[WORDS_MAX];

	for (int i = 0; i < argc; i++)
		copy[i] = (char *)(uintptr_t)argv[i];
	options_default(&o, command);
	memset(&e, 0, sizeof(e));
	return argv_parse(argc, copy, options_table, options_count, command, &o, words, &n_words, &e);
}

#define PARSE(command, ...)                                                                                            \
	parse(command, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

/* Refused, with that in the message. */
#define REFUSED(hint, command, ...)                                                                                    \
	do {                                                                                                           \
		ck_assert_int_eq(PARSE(command, __VA_ARGS__), -EINVAL);                                                \
		ck_assert_msg(strstr(e.text, hint), "'%s' is not in '%s'", hint, e.text);                              \
	} while (0)

START_TEST(takes_all_forms)
{
	ck_assert_int_eq(PARSE(CMD_READ, "--runs=7", "dir", "--threads", "3", "-s", "4KiB", "-s16MiB", "--json"), 0);
	ck_assert_uint_eq(o.runs, 7);
	ck_assert_uint_eq(o.threads, 3);
	ck_assert_uint_eq(o.sizes.n, 2);
	ck_assert_uint_eq(o.sizes.v[0], 4096);
	ck_assert_uint_eq(o.sizes.v[1], 16 << 20);
	ck_assert(o.json);
	ck_assert(!o.verify);
	ck_assert_uint_eq(n_words, 1);
	ck_assert_str_eq(words[0], "dir");
}
END_TEST

START_TEST(dashes_end_the_options)
{
	ck_assert_int_eq(PARSE(CMD_READ, "--", "--runs", "-x"), 0);
	ck_assert_uint_eq(n_words, 2);
	ck_assert_str_eq(words[1], "-x");
	ck_assert_int_eq(PARSE(CMD_READ, "-"), 0);
	ck_assert_uint_eq(n_words, 1);
}
END_TEST

START_TEST(choices_are_indices)
{
	ck_assert_int_eq(PARSE(CMD_PUT, "--by", "dd", "--baseline=none"), 0);
	ck_assert_uint_eq(o.by, PUT_DD);
	ck_assert_uint_eq(o.baseline, BASELINE_NONE);
	ck_assert_int_eq(PARSE(CMD_TRACE, "--store=in-place"), 0);
	ck_assert_uint_eq(o.store, STORE_IN_PLACE);
	ck_assert_int_eq(PARSE(CMD_MMAP, "--touch=all"), 0);
	ck_assert_uint_eq(o.touch, TOUCH_ALL);
}
END_TEST

START_TEST(mistakes_get_a_hint)
{
	REFUSED("did you mean '--size'", CMD_READ, "--sise=4");
	REFUSED("did you mean '--runs'", CMD_READ, "--run", "4");
	REFUSED("unknown option '--colour'", CMD_READ, "--colour");
	REFUSED("unknown option '-x'", CMD_READ, "-x");
	REFUSED("unknown option '--'", CMD_READ, "--=3");
	REFUSED("did you mean 'direct'", CMD_PUT, "--by=dirct");
	REFUSED("is none of", CMD_PUT, "--by=teleport");
	REFUSED("does not belong", CMD_PUT, "--ssd-dir=/x");
	REFUSED("unknown option '-b'", CMD_READ, "-b", "4");
}
END_TEST

START_TEST(values_are_checked)
{
	REFUSED("out of range (1 to 1000)", CMD_READ, "--runs=0");
	REFUSED("out of range", CMD_READ, "--runs=99999999999999999999999");
	REFUSED("not a number", CMD_READ, "--runs=-1");
	REFUSED("not a number", CMD_READ, "--runs=3x");
	REFUSED("not a number", CMD_READ, "--runs=");
	REFUSED("not a size", CMD_READ, "--size=4X");
	REFUSED("out of range", CMD_READ, "--size=2GiB");
	REFUSED("out of range", CMD_READ, "--size=0");
	REFUSED("needs a value", CMD_READ, "--runs");
	REFUSED("takes no value", CMD_READ, "--json=yes");
	REFUSED("is empty", CMD_PUT, "--ssd-compare=");
}
END_TEST

START_TEST(too_many_sizes)
{
	ck_assert_int_eq(PARSE(CMD_READ, "-s4", "-s4", "-s4", "-s4", "-s4", "-s4", "-s4", "-s4"), 0);
	ck_assert_uint_eq(o.sizes.n, 8);
	REFUSED("at most 16", CMD_READ, "-s1", "-s1", "-s1", "-s1", "-s1", "-s1", "-s1", "-s1", "-s1", "-s1", "-s1",
		"-s1", "-s1", "-s1", "-s1", "-s1", "-s1");
}
END_TEST

static int check(unsigned command)
{
	memset(&e, 0, sizeof(e));
	return options_check(&o, command, &e);
}

START_TEST(contradictions_are_refused)
{
	ck_assert_int_eq(PARSE(CMD_PUT, "--piece=1000"), 0);
	ck_assert_int_eq(check(CMD_PUT), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_PUT, "--piece=1000", "--by=write"), 0);
	ck_assert_int_eq(check(CMD_PUT), 0);
	ck_assert_int_eq(PARSE(CMD_READ, "--size=4MiB", "--total=1MiB"), 0);
	ck_assert_int_eq(check(CMD_READ), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_TRACE, "--store=in-place", "--threads=2"), 0);
	ck_assert_int_eq(check(CMD_TRACE), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_REFILL, "dir"), 0);
	ck_assert_int_eq(check(CMD_REFILL), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_REFILL, "--ssd-dir=/x", "dir"), 0);
	ck_assert_int_eq(check(CMD_REFILL), 0);
	ck_assert_int_eq(PARSE(CMD_REFILL, "--ssd-dir=/x", "--evict-cmd=x", "--socket=y"), 0);
	ck_assert_int_eq(check(CMD_REFILL), -EINVAL);
}
END_TEST

START_TEST(objects_ascend)
{
	ck_assert_int_eq(PARSE(CMD_GROWTH, "-n10", "-n20", "--runs=4", "--warmup=1"), 0);
	ck_assert_int_eq(check(CMD_GROWTH), 0);
	ck_assert_int_eq(PARSE(CMD_GROWTH, "-n10", "-n19", "--runs=4", "--warmup=1"), 0);
	ck_assert_int_eq(check(CMD_GROWTH), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_GROWTH, "-n9", "--runs=4", "--warmup=1"), 0);
	ck_assert_int_eq(check(CMD_GROWTH), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_GROWTH, "-n20000", "-n10000"), 0);
	ck_assert_int_eq(check(CMD_GROWTH), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_MASTER, "-n1", "-n2"), 0);
	ck_assert_int_eq(check(CMD_MASTER), 0);
	ck_assert_int_eq(PARSE(CMD_MASTER, "-n2", "-n2"), 0);
	ck_assert_int_eq(check(CMD_MASTER), -EINVAL);
	ck_assert_int_eq(PARSE(CMD_GROWTH, "--start", "--socket=x"), 0);
	ck_assert_int_eq(check(CMD_GROWTH), -EINVAL);
}
END_TEST

START_TEST(defaults_hold_for_every_command)
{
	for (unsigned c = 1; c < CMD_ALL; c *= 2) {
		options_default(&o, c);
		if (c == CMD_SUITE)
			options_settle(&o);
		o.ssd_dir = "/x";
		ck_assert_int_eq(options_check(&o, c, &e), 0);
		ck_assert_uint_ge(o.runs, c & (CMD_TRACE | CMD_PRESSURE) ? 1 : 5);
	}
}
END_TEST

static int mount_of(const char *text, unsigned long long id, struct mountinfo *m)
{
	char line[512];

	strcpy(line, text);
	return mountinfo_parse(line, id, m);
}

START_TEST(mountinfo_lines)
{
	struct mountinfo m;

	ck_assert_int_eq(
	    mount_of("36 35 0:41 / /mnt/flux\\040kv rw,nosuid shared:1 - fuse.fluxkv standalone rw\n", 36, &m), 1);
	ck_assert_str_eq(m.type, "fuse.fluxkv");
	ck_assert_str_eq(m.root, "/mnt/flux kv");
	ck_assert_int_eq(mount_of("36 35 0:41 / / rw - tmpfs x rw", 36, &m), 1);
	ck_assert_str_eq(m.type, "tmpfs");
	ck_assert_int_eq(mount_of("36 35 0:41 / / rw - tmpfs x rw", 37, &m), 0);
	ck_assert_int_eq(mount_of("36 35 0:41 / / rw", 36, &m), -EBADMSG);
	ck_assert_int_eq(mount_of("36 -", 36, &m), -EBADMSG);
	ck_assert_int_eq(mount_of("", 36, &m), -EBADMSG);
}
END_TEST

START_TEST(fio_output)
{
	double v = 0;

	ck_assert_int_eq(
	    fio_parse("{\"jobs\": [{\"read\": {\"io_bytes\": 4096, \"bw_bytes\": 77, \"x\": 1}}]}", 4096, &v), 0);
	ck_assert_double_eq(v, 77);
	/* less was read than was asked for: no measurement */
	ck_assert_int_eq(fio_parse("{\"jobs\": [{\"read\": {\"io_bytes\": 4096, \"bw_bytes\": 77}}]}", 8192, &v),
			 -EBADMSG);
	ck_assert_int_eq(fio_parse("{\"jobs\": []}", 4096, &v), -EBADMSG);
	ck_assert_int_eq(fio_parse("fio: failed", 4096, &v), -EBADMSG);
}
END_TEST

#define HITS "fluxkv_hits_total{source="

START_TEST(status_file)
{
	static const char full[] = "# HELP fluxkv_persists_total blocks\n# TYPE fluxkv_persists_total counter\n" HITS
				   "\"memory-local\"} 5\n" HITS "\"memory-remote\"} 2\n" HITS "\"ssd-local\"} 3\n" HITS
				   "\"ssd-remote\"} 8\n" HITS "\"unknown\"} 100\nfluxkv_persists_total_x 77\n"
				   "kvcache_segment_capacity_bytes 4096\nkv_ssd_capacity_bytes 8192\n"
				   "fluxkv_persists_total 9\nfluxkv_persist_backlog_bytes 77\n"
				   "fluxkv_persist_dropped_total 1\n";
	struct status s, d, before = {.hits_dram = 3, .hits_ssd = 1, .persists = 9};
	char cut[sizeof(full)];

	ck_assert_int_eq(status_parse(full, &s), 0);
	d = status_since(&s, &before);
	ck_assert_uint_eq(d.hits_dram, 4);
	ck_assert_uint_eq(d.hits_ssd, 10);
	ck_assert_uint_eq(d.hits_unknown, 100);
	ck_assert_uint_eq(d.dram_capacity, 4096);
	ck_assert_uint_eq(d.ssd_capacity, 8192);
	ck_assert_uint_eq(d.persists, 0);
	ck_assert_uint_eq(d.dropped, 1);
	ck_assert_uint_eq(d.backlog, 77);
	strcpy(cut, full);
	*strrchr(cut, '1') = '\0'; /* the last counter has no value */
	ck_assert_int_eq(status_parse(cut, &s), -EBADMSG);
	*strrchr(cut, 'd') = '\0';
	ck_assert_int_eq(status_parse(cut, &s), -EBADMSG);
	ck_assert_int_eq(status_parse("", &s), -EBADMSG);
}
END_TEST

START_TEST(passthrough_in_the_status)
{
	ck_assert(status_parse_passthrough("x\nreads   by the kernel from memory (passthrough); 4 KiB open\n", &e));
	ck_assert(!status_parse_passthrough("x\nreads   copied; no passthrough: too old\nnote    y\n", &e));
	ck_assert_str_eq(e.text, "no passthrough: too old");
	/* Another line's reason is not this one's. */
	ck_assert(status_parse_passthrough("x\nreads   by the kernel\nnote    no passthrough: it said\n", &e));
	ck_assert(!status_parse_passthrough("puts    7\n", &e));
	ck_assert_str_eq(e.text, "the mount does not say whether it has passthrough");
}
END_TEST

START_TEST(pid_in_the_status)
{
	pid_t pid = 0;

	ck_assert_int_eq(status_parse_pid("FluxKV 1: instance a, pid 7, of x (y), pid 123, up 1 s\n, pid 9,\n", &pid),
			 0);
	ck_assert_int_eq(pid, 123);
	ck_assert_int_eq(status_parse_pid("FluxKV 1: up\n, pid 9,\n", &pid), -EBADMSG);
	ck_assert_int_eq(status_parse_pid("x, pid 123 \n", &pid), -EBADMSG);
	ck_assert_int_eq(status_parse_pid("x, pid 0,\n", &pid), -EBADMSG);
	ck_assert_int_eq(status_parse_pid("x, pid 4294967297,\n", &pid), -EBADMSG);
	ck_assert_int_eq(status_parse_pid("x, pid 12,", &pid), -EBADMSG);
}
END_TEST

START_TEST(all_settles_what_was_not_given)
{
	ck_assert_int_eq(PARSE(CMD_SUITE, "--start"), 0);
	options_settle(&o);
	ck_assert_uint_eq(o.runs, 5);
	ck_assert_uint_eq(o.total, 256 << 20);
	ck_assert_int_eq(PARSE(CMD_SUITE, "--runs=7", "--quick"), 0);
	options_settle(&o);
	ck_assert_uint_eq(o.runs, 7);
	ck_assert_uint_eq(o.total, 64 << 20);
	ck_assert_uint_eq(o.files, 1000);
	REFUSED("--total", CMD_SUITE, "--total=15MiB");
	ck_assert_int_eq(PARSE(CMD_SUITE, "--start", "--socket=/x"), 0);
	ck_assert_int_eq(options_check(&o, CMD_SUITE, &e), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_argv");
	TCase *t = tcase_create("argv");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, takes_all_forms);
	tcase_add_test(t, dashes_end_the_options);
	tcase_add_test(t, choices_are_indices);
	tcase_add_test(t, mistakes_get_a_hint);
	tcase_add_test(t, values_are_checked);
	tcase_add_test(t, too_many_sizes);
	tcase_add_test(t, contradictions_are_refused);
	tcase_add_test(t, objects_ascend);
	tcase_add_test(t, defaults_hold_for_every_command);
	tcase_add_test(t, mountinfo_lines);
	tcase_add_test(t, fio_output);
	tcase_add_test(t, status_file);
	tcase_add_test(t, pid_in_the_status);
	tcase_add_test(t, passthrough_in_the_status);
	tcase_add_test(t, all_settles_what_was_not_given);
	suite_add_tcase(s, t);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
