/* SPDX-License-Identifier: Apache-2.0 */
/* read and mmap: memory-resident values, each opened for the first time (cold) and once more (warm). */
#include "tests/bench/commands.h"

#include <errno.h>
#include <time.h>

#include "common/clock.h"
#include "tests/bench/status.h"
#include "tests/bench/stop.h"

#define SETTLE_LIMIT (60 * NS_PER_SEC)

/* Writing to the SSD tier what was put is no part of reading it: waits for the end of it, or goes on after a minute. */
static int settle(const struct target *t)
{
	const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
	uint64_t deadline = clock_ns() + SETTLE_LIMIT;
	struct status s;

	while (status_read(t, &s) == 0 && s.backlog && clock_ns() < deadline) {
		if (stop_wanted())
			return -EINTR;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Puts a set on one target, reads it cold and warm, removes it. */
static int measure_target(struct bench *b, const struct set *s, enum set_op op, unsigned round)
{
	struct report_key key = {
	    .op = op == SET_MAP ? "mmap" : "read", .state = "cold", .size = s->size, .unit = REPORT_BYTES_PER_S};
	uint64_t ns;
	int r = set_run(b, s, SET_PUT, 0, &ns);

	if (r == 0)
		r = settle(s->t);
	if (r == 0 && target_keeps_cache(s->t))
		r = set_run(b, s, SET_DROP, 0, &ns);
	if (r == 0)
		r = set_measure(b, s, op, 0, &key, round);
	key.state = "warm";
	if (r == 0)
		r = set_measure(b, s, op, 0, &key, round);
	if (r == 0)
		r = set_run(b, s, SET_REMOVE, 0, &ns);
	return r;
}

static int measure(struct bench *b, enum set_op op)
{
	const struct bench_options *o = b->o;
	struct set s;
	int r = 0;

	for (unsigned i = 0; i < o->sizes.n; i++)
		for (unsigned round = 0; round < o->warmup + o->runs; round++)
			for (unsigned t = 0; r == 0 && t < b->n_targets; t++) {
				s = (struct set){.t = &b->targets[t],
						 .size = o->sizes.v[i],
						 .n = set_count(o, o->sizes.v[i]),
						 .first_id = (uint64_t)(round * BENCH_TARGETS + t) << 16};
				if (set_fits(&s))
					r = measure_target(b, &s, op, round);
			}
	return r;
}

int cmd_read(struct bench *b)
{
	return measure(b, SET_READ);
}

int cmd_mmap(struct bench *b)
{
	return measure(b, SET_MAP);
}
