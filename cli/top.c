/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top: the status again and again, as rates. On a terminal it takes the alternate screen and reads keys; into a file or
 * a pipe it prints one block a look.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/session.h"
#include "common/clock.h"
#include "common/size.h"
#include "net/json.h"

#define BAR 40

static volatile sig_atomic_t ended;

static struct {
	struct termios saved;
	bool active;
} screen;

static void on_end(int sig)
{
	ended = 1;
}

static void screen_leave(void)
{
	if (!screen.active)
		return;
	screen.active = false;
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &screen.saved);
}

static void screen_enter(void)
{
	struct termios raw;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &screen.saved))
		return;
	raw = screen.saved;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw))
		return;
	screen.active = true;
	fputs("\033[?1049h\033[?25l", stdout);
}

static void print_bar(const char *name, const json_t *tier)
{
	uint64_t capacity = json_u64(tier, "capacity"), used = json_u64(tier, "used");
	double part = capacity ? (double)used / (double)capacity : 0;
	size_t filled = part >= 1 ? BAR : (size_t)(part * BAR);
	char bar[BAR + 1], a[24], b[24];

	memset(bar, '-', BAR);
	memset(bar, '#', filled);
	bar[BAR] = '\0';
	printf("%-5s [%s] %5.1f%%  %s of %s, %" PRIu64 " blocks\n", name, bar, 100 * part,
	       size_format(used, a, sizeof(a)), size_format(capacity, b, sizeof(b)), json_u64(tier, "objects"));
}

static const struct row {
	const char *title, *key;
	bool bytes;
} rows[] = {
    {"hits in memory", "hits.memory_local", false},
    {"hits on SSD", "hits.ssd_local", false},
    {"misses: never stored", "misses.never_stored", false},
    {"misses: evicted", "misses.evicted", false},
    {"misses: expired", "misses.expired", false},
    {"copied to readers", "gets.bytes", true},
    {"put", "puts.done", false},
    {"written", "puts.bytes", true},
    {"refilled from SSD", "refills.bytes", true},
    {"persisted to SSD", "persists.bytes", true},
    {"not persisted", "persists.dropped", false},
    {"evicted from DRAM", "evictions.dram", false},
    {"evicted from SSD", "evictions.ssd", false},
    {"messages to the master", "master.messages", false},
};

static void print_row(const struct row *r, const json_t *now, const json_t *before, double seconds)
{
	uint64_t v = json_u64(now, r->key), old = json_u64(before, r->key);
	double rate = v > old && seconds > 0 ? (double)(v - old) / seconds : 0;
	char a[24], b[24];

	if (r->bytes)
		printf("%-24s %12s/s %14s\n", r->title, size_format((uint64_t)rate, a, sizeof(a)),
		       size_format(v, b, sizeof(b)));
	else
		printf("%-24s %12.0f/s %14" PRIu64 "\n", r->title, rate, v);
}

/* What the kernel reads by itself nobody counts; without this, "copied" would look as if nothing was read. */
static void print_passthrough(const json_t *p)
{
	char held[24];

	if (json_is_true(json_at(p, "on")))
		printf(
		    "the kernel reads values in memory by itself (passthrough): %s open; what it reads is counted as "
		    "hits, not as bytes\n",
		    size_format(json_u64(p, "held"), held, sizeof(held)));
}

static void print_look(const json_t *now, const json_t *before, double seconds)
{
	char backlog[24];

	if (screen.active)
		fputs("\033[H\033[J", stdout);
	printf("FluxKV %s  instance %s  pid %" PRIu64 "  %s%s\n\n", json_str(now, "version"), json_str(now, "instance"),
	       json_u64(now, "pid"), json_str(now, "mountpoint"), screen.active ? "   (q leaves)" : "");
	print_bar("dram", json_at(now, "dram"));
	if (json_is_object(json_at(now, "ssd")))
		print_bar("ssd", json_at(now, "ssd"));
	printf("\n%-24s %14s %14s\n", "", "NOW", "TOTAL");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		print_row(&rows[i], now, before, seconds);
	printf("\nopen for reading %" PRIu64 ", being written %" PRIu64 ", waiting requests %" PRIu64
	       ", persist backlog %s\n",
	       json_u64(now, "now.open_versions"), json_u64(now, "now.private_versions"), json_u64(now, "now.parked"),
	       size_format(json_u64(now, "persists.backlog_bytes"), backlog, sizeof(backlog)));
	print_passthrough(json_at(now, "fs.passthrough"));
	if (!screen.active)
		putchar('\n');
	fflush(stdout);
}

/* Waits for the next look; true when it is time to leave. */
static bool wait_or_key(double seconds)
{
	uint64_t end = clock_ns() + (uint64_t)(seconds * (double)NS_PER_SEC);

	while (!ended) {
		struct pollfd p = {.fd = screen.active ? STDIN_FILENO : -1, .events = POLLIN};
		uint64_t now = clock_ns();
		char key;

		if (now >= end)
			return false;
		if (poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) > 0) {
			if (read(STDIN_FILENO, &key, 1) != 1)
				return true; /* the terminal is gone */
			if (key == 'q' || key == 'Q' || key == 4)
				return true;
		}
	}
	return true;
}

static int watch(const struct cli_options *o, struct session *s)
{
	json_t *now, *before = NULL;
	uint64_t at, at_before = 0;
	int r;

	for (unsigned long i = 0;; i++) {
		r = session_call(s, json_pack("{s:s}", "op", "status"), &now);
		if (r)
			break;
		at = clock_ns();
		print_look(now, before ? before : now, (double)(at - at_before) / (double)NS_PER_SEC);
		json_decref(before);
		before = now;
		at_before = at;
		if (ferror(stdout) || (o->count && i + 1 == o->count))
			break;
		if (wait_or_key(o->delay > 0 ? o->delay : 1))
			break;
	}
	json_decref(before);
	return r;
}

int cmd_top(const struct cli_options *o, int n, char **words)
{
	struct sigaction sa = {.sa_handler = on_end};
	struct session s;
	int r;

	r = session_open(o, NULL, &s);
	if (r)
		return r;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	screen_enter();
	/* An error line belongs on the screen that stays. */
	atexit(screen_leave);
	r = watch(o, &s);
	screen_leave();
	session_close(&s);
	return r;
}
