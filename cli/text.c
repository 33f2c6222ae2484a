/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/clock.h"
#include "common/size.h"
#include "net/ctl.h"

#define SHOW_AFTER (NS_PER_SEC / 2)
#define SHOW_EVERY (NS_PER_SEC / 10)
#define BAR 30

void text_print_name(const char *name)
{
	json_t *safe;

	if (!isatty(STDOUT_FILENO)) {
		fputs(name, stdout);
		return;
	}
	safe = ctl_name_to_json(name);
	fputs(safe ? json_string_value(safe) : "?", stdout);
	json_decref(safe);
}

void progress_start(struct progress *p, const char *title, uint64_t total, bool quiet)
{
	*p = (struct progress){.title = title, .total = total, .started = clock_ns()};
	p->shown = p->started + SHOW_AFTER - SHOW_EVERY;
	p->enabled = !quiet && isatty(STDERR_FILENO);
}

static void draw(const struct progress *p, uint64_t now)
{
	double seconds = (double)(now - p->started + 1) / (double)NS_PER_SEC;
	char done[24], total[24], rate[24], bar[BAR + 1];
	size_t filled;

	size_format(p->done, done, sizeof(done));
	size_format((uint64_t)((double)p->done / seconds), rate, sizeof(rate));
	if (!p->total) {
		fprintf(stderr, "\r\033[K%s %s, %s/s", p->title, done, rate);
		return;
	}
	filled = p->done >= p->total ? BAR : (size_t)((double)p->done / (double)p->total * BAR);
	memset(bar, '-', BAR);
	memset(bar, '#', filled);
	bar[BAR] = '\0';
	fprintf(stderr, "\r\033[K%s [%s] %s of %s, %s/s", p->title, bar, done,
		size_format(p->total, total, sizeof(total)), rate);
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->enabled)
		return;
	now = clock_ns();
	if (now < p->shown + SHOW_EVERY)
		return;
	p->shown = now;
	p->visible = true;
	draw(p, now);
}

void progress_end(struct progress *p)
{
	if (p->visible)
		fputs("\r\033[K", stderr);
	p->visible = false;
}
