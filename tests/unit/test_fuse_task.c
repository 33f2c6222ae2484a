/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says about a task: the parsers on text of any kind, and the real thing on children that end. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse/task.h"
#include "tests/unit/run.h"

/* Fields 3 to 52 of a real line; flags is field 9 and the exit code field 52. */
#define TAIL(flags, code)                                                                                              \
	" Z 1 2 2 0 -1 " flags " 95 0 0 0 0 0 0 0 20 0 1 0 5361 0 0 18446744073709551615 0 0 0 0 0 0 0 4096 1 0 0 0 "  \
	"17 1 0 0 0 0 0 0 0 0 0 0 0 0 " code "\n"

static int parse(const char *line, unsigned long *flags, int *code)
{
	return task_parse_stat(line, strlen(line), flags, code);
}

START_TEST(stat_of_a_killed_task)
{
	unsigned long flags = 0;
	int code = 0;

	ck_assert_int_eq(parse("31 (cat)" TAIL("4228100", "9"), &flags, &code), 0);
	ck_assert_uint_eq(flags, 4228100);
	ck_assert_int_eq(code, 9);
	ck_assert_int_eq(parse("31 (cat)" TAIL("4", "256"), &flags, &code), 0);
	ck_assert_int_eq(code & 0x7f, 0);
}
END_TEST

START_TEST(stat_of_a_task_with_a_nasty_name)
{
	static const char *const names[] = {"a b", "a) R 1 1 (", "((", "))", ") Z 4 (x", "", " ", "1 (x) S 1", "a\nb"};
	unsigned long flags;
	char line[512];
	int code;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(line, sizeof(line), "77 (%s)%s", names[i], TAIL("12", "15"));
		flags = 0;
		code = 0;
		ck_assert_int_eq(parse(line, &flags, &code), 0);
		ck_assert_uint_eq(flags, 12);
		ck_assert_int_eq(code, 15);
	}
}
END_TEST

START_TEST(stat_that_is_none)
{
	static const char line[] = "31 (cat)" TAIL("4228100", "9");
	static const char *const bad[] = {"",
					  "31",
					  "31 (cat",
					  "31 (cat)",
					  "31 (cat) ",
					  "31 (cat) Z",
					  "31 (cat) Z 1 2 3",
					  "31 (cat) Z x",
					  "31 (cat)" TAIL("4", "-9"),
					  "31 (cat)" TAIL("4", "99999999")};
	unsigned long flags = 1;
	int code = 1;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(parse(bad[i], &flags, &code), -EBADMSG);
	/* Cut anywhere before the last field: refused, and nothing is written; no byte behind it is read. */
	for (size_t len = 0; len + 2 < sizeof(line) - 1; len++) {
		char *copy = malloc(len + 1);

		memcpy(copy, line, len);
		ck_assert_int_eq(task_parse_stat(copy, len, &flags, &code), -EBADMSG);
		free(copy);
	}
	ck_assert_uint_eq(flags, 1);
	ck_assert_int_eq(code, 1);
}
END_TEST

START_TEST(status_of_tasks)
{
	bool killed = false;
	static const char fatal[] = "Name:\tx\nThreads:\t1\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n";
	static const char alarm[] = "Name:\tx\nSigPnd:\t0000000000002000\nShdPnd:\t0000000000000100\n";
	static const char none[] = "Name:\tSigPnd:\n";
	static const char empty[] = "Name:\tx\nSigPnd:\t\n";

	ck_assert_int_eq(task_parse_status(fatal, strlen(fatal), &killed), 0);
	ck_assert(killed);
	/* Another thread's signal is not this thread's death. */
	ck_assert_int_eq(task_parse_status(alarm, strlen(alarm), &killed), 0);
	ck_assert(!killed);
	ck_assert_int_eq(task_parse_status(none, strlen(none), &killed), -EBADMSG);
	ck_assert_int_eq(task_parse_status(empty, strlen(empty), &killed), -EBADMSG);
}
END_TEST

/* A child that has ended and is not waited for: its stat line is that of a task on its way out. */
static pid_t ended_child(int sig)
{
	pid_t pid = fork();
	siginfo_t info;

	if (!pid) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(sig ? sig : SIGUSR1, SIG_DFL);
		if (sig)
			raise(sig);
		_exit(3);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	return pid;
}

START_TEST(real_children)
{
	static const struct {
		int sig;
		bool killed;
	} all[] = {{0, false}, {SIGKILL, true}, {SIGTERM, true}, {SIGSEGV, true}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t pid = ended_child(all[i].sig);
		bool got = task_dies_by_signal(pid);

		waitpid(pid, NULL, 0);
		ck_assert_int_eq(got, all[i].killed);
		ck_assert(!task_dies_by_signal(pid));
	}
	ck_assert(!task_dies_by_signal(getpid()));
	ck_assert(!task_is_killed(getpid()));
	ck_assert(!task_is_killed(0));
	ck_assert(!task_dies_by_signal(-1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_task");
	TCase *t = tcase_create("task");

	tcase_add_test(t, stat_of_a_killed_task);
	tcase_add_test(t, stat_of_a_task_with_a_nasty_name);
	tcase_add_test(t, stat_that_is_none);
	tcase_add_test(t, status_of_tasks);
	tcase_add_test(t, real_children);
	suite_add_tcase(s, t);
	return run_suite(s);
}
