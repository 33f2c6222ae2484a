/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/measure.h"

/* Opens a tmpfs to compare with. Where that is not allowed, says so and goes on, with /dev/shm for 4 KiB pages. */
static int open_baseline(struct bench *b, const char *name, bool huge)
{
	struct target *t = &b->targets[b->n_targets];
	struct errmsg e = {{0}};
	int r = target_open_tmpfs(t, name, huge, &e);

	if (r < 0)
		report_note(b->report, "%s: %s; %s", name, e.text, huge ? "left out" : "/dev/shm is used");
	if (r < 0 && !huge)
		r = target_open(t, name, "/dev/shm", &e);
	if (r == 0)
		b->n_targets++;
	return r < 0 && !huge ? fault_set(&b->fault, r, "%s", e.text) : 0;
}

/* One more directory to work in. */
static int open_target(struct bench *b, const char *name, const char *dir)
{
	struct errmsg e = {{0}};
	int r = target_open(&b->targets[b->n_targets], name, dir, &e);

	if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	b->n_targets++;
	return 0;
}

static int open_targets(struct bench *b, unsigned command)
{
	unsigned with = b->o->ssd_compare || command == CMD_REFILL ? BASELINE_NONE : b->o->baseline;
	int r = open_target(b, "dir", b->dir);

	if (r == 0 && b->o->ssd_compare)
		r = open_target(b, "ssd-off", b->o->ssd_compare);
	if (r == 0 && b->o->against)
		r = open_target(b, "against", b->o->against);
	if (r == 0 && (with == BASELINE_BOTH || with == BASELINE_TMPFS))
		r = open_baseline(b, "tmpfs", false);
	if (r == 0 && (with == BASELINE_BOTH || with == BASELINE_HUGE))
		r = open_baseline(b, "tmpfs-huge", true);
	return r;
}

/* Whose time is to be told from the readers'. */
static int find_node(struct bench *b)
{
	struct errmsg e = {{0}};

	if (!target_is_fluxkv(&b->targets[0]) || node_cpu_find(&b->node, &b->targets[0], &e) == 0)
		return 0;
	return report_note(b->report, "%s", e.text);
}

/* The largest piece of memory that a thread of the command needs. */
static size_t buffer_bytes(const struct bench_options *o, unsigned command)
{
	uint64_t n = o->piece;

	if (command == CMD_TRACE)
		return (size_t)o->block_bytes + 1;
	for (unsigned i = 0; command != CMD_OPEN && i < o->sizes.n; i++)
		if (o->sizes.v[i] > n)
			n = o->sizes.v[i];
	return (size_t)n;
}

int bench_measure(struct bench *b, unsigned command, int (*run)(struct bench *b))
{
	int r = bench_buffers(b, buffer_bytes(b->o, command));

	if (r == 0)
		r = open_targets(b, command);
	if (r == 0 && command & (CMD_READ | CMD_MMAP))
		r = find_node(b);
	if (r == 0)
		r = run(b);
	for (unsigned i = 0; i < b->n_targets; i++)
		target_close(&b->targets[i]);
	bench_drop_buffers(b);
	return r;
}
