/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/suite.h"

#include <math.h>
#include <stdio.h>

#include "tests/bench/commands.h"

#define MIB (1024ull * 1024)

const struct suite_job suite_jobs[SUITE_JOBS] = {
    [JOB_READ] = {"read", SUITE_AUTO, CMD_READ, cmd_read, NEEDS_PASSTHROUGH, BASELINE_HUGE, PUT_ALL, 0},
    [JOB_MAP] = {"mmap", SUITE_AUTO, CMD_MMAP, cmd_mmap, NEEDS_PASSTHROUGH, BASELINE_HUGE, PUT_ALL, 0},
    [JOB_DD] = {"put by dd", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_DD, 0},
    [JOB_CP] = {"put by cp", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_CP, 0},
    [JOB_WRITE] = {"put by write", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_WRITE, 0},
    [JOB_OPEN] = {"open", SUITE_AUTO, CMD_OPEN, cmd_open, NEEDS_PASSTHROUGH | NEEDS_AGAINST, BASELINE_NONE, PUT_ALL, 0},
    [JOB_REFILL] = {"refill", SUITE_AUTO, CMD_REFILL, cmd_refill, NEEDS_PASSTHROUGH | NEEDS_SSD, BASELINE_NONE, PUT_ALL,
		    0},
    [JOB_SSD_OFF] = {"put, SSD tier on and off", SUITE_AUTO, CMD_PUT, cmd_put, NEEDS_SSD_OFF, BASELINE_NONE, PUT_WRITE,
		     0},
    [JOB_HELD] = {"read, one open", SUITE_AUTO, CMD_READ, cmd_read, NEEDS_PASSTHROUGH, BASELINE_NONE, PUT_ALL, 0},
    [JOB_READ_COPY] = {"read, no passthrough", SUITE_COPY, CMD_READ, cmd_read, 0, BASELINE_TMPFS, PUT_ALL, 0},
    [JOB_OPEN_COPY] = {"open, no passthrough", SUITE_COPY, CMD_OPEN, cmd_open, NEEDS_AGAINST, BASELINE_NONE, PUT_ALL,
		       0},
    [JOB_REFILL_COPY] = {"refill, no passthrough", SUITE_COPY, CMD_REFILL, cmd_refill, NEEDS_SSD, BASELINE_NONE,
			 PUT_ALL, 0},
    [JOB_READ_BEFORE] = {"read, and before", SUITE_COPY, CMD_READ, cmd_read, NEEDS_BEFORE, BASELINE_NONE, PUT_ALL, 0},
    [JOB_MAP_BEFORE] = {"mmap, and before", SUITE_COPY, CMD_MMAP, cmd_mmap, NEEDS_BEFORE, BASELINE_NONE, PUT_ALL, 0},
    [JOB_WRITE_BEFORE] = {"put, and before", SUITE_COPY, CMD_PUT, cmd_put, NEEDS_BEFORE, BASELINE_NONE, PUT_WRITE, 0},
    [JOB_OPEN_BEFORE] = {"open, and before", SUITE_COPY, CMD_OPEN, cmd_open, NEEDS_BEFORE, BASELINE_NONE, PUT_ALL, 0},
    /* A core, and a Redis server; the file, what its daemon keeps of it and what the kernel keeps on both sides. */
    [JOB_MASTER] = {"master", SUITE_NONE, CMD_MASTER, master_measure, 0, BASELINE_NONE, PUT_ALL, 768},
    [JOB_GROWTH] = {"growth", SUITE_NONE, CMD_GROWTH, growth_measure, NEEDS_START, BASELINE_NONE, PUT_ALL, 10240},
};

#define HUGE_COLD "tmpfs, huge pages, cold"
#define SMALL_COLD "tmpfs, 4 KiB pages, cold"
#define SMALL "tmpfs, 4 KiB pages"
#define EXAMPLE "the bare FUSE example"
#define FIO "fio, io_uring, direct"
#define OFF "SSD tier off"
#define OLDER "before, no passthrough"
#define FEWER "" /* said by suite_line_of() */

#define BYTES(of, when, mib)                                                                                           \
	{                                                                                                              \
		.op = (of), .state = (when), .size = (mib)*MIB, .unit = REPORT_BYTES_PER_S                             \
	}
#define FILES                                                                                                          \
	{                                                                                                              \
		.op = "open+read", .state = "warm", .unit = REPORT_PER_S                                               \
	}

#define ROW(job, what, against, key, target, goal)                                                                     \
	{                                                                                                              \
		job, what, against, key, target, goal, SUITE_RATIO, SUITE_PLAIN, 0                                     \
	}
/* Nothing to reach: two daemons of one program differ too, by as much as the noise of the machine. */
#define BEFORE(job, what, key)                                                                                         \
	{                                                                                                              \
		job, "as before: " what, OLDER, key, "against", 0, SUITE_RATIO, SUITE_PLAIN, 0                         \
	}
#define SHARE(job, what, of, when)                                                                                     \
	{                                                                                                              \
		job, what ": daemon's CPU", "the reader's CPU time",                                                   \
		    {.op = (of), .state = (when), .size = 16 * MIB, .unit = REPORT_SHARE}, "dir", 0.01, SUITE_VALUE,   \
		    SUITE_PLAIN, 0                                                                                     \
	}
#define REQUESTS(what, redis, of, goal)                                                                                \
	{                                                                                                              \
		JOB_MASTER, "master: " what, "Redis " redis ", 64 at once",                                            \
		    {.op = (of), .state = "cpu", .unit = REPORT_PER_S}, "redis", goal, SUITE_RATIO, SUITE_PLAIN, 2     \
	}
#define MASTER(what, against, of, clock, in, most, kind, goal)                                                         \
	{                                                                                                              \
		JOB_MASTER, what, against, {.op = (of), .state = (clock), .unit = (in)}, "master", most, kind, goal, 2 \
	}
#define COST(what, of, n)                                                                                              \
	{                                                                                                              \
		JOB_GROWTH, what ": CPU time", FEWER,                                                                  \
		    {.op = (of), .state = "cpu", .size = 4096, .unit = REPORT_SECONDS}, "fluxkv", 1.2, SUITE_GROWTH,   \
		    SUITE_PLAIN, n                                                                                     \
	}

const struct suite_row suite_rows[] = {
    ROW(JOB_READ, "read, first open, 16 MiB", HUGE_COLD, BYTES("read", "cold", 16), "tmpfs-huge", 0.95),
    ROW(JOB_READ, "read, first open, 4 MiB", HUGE_COLD, BYTES("read", "cold", 4), "tmpfs-huge", 0.85),
    ROW(JOB_READ, "read, first open, 1 MiB", HUGE_COLD, BYTES("read", "cold", 1), "tmpfs-huge", 0.75),
    SHARE(JOB_READ, "read, first open, 16 MiB", SET_READ_NODE_CPU, "cold"),
    ROW(JOB_MAP, "mmap, all bytes, first open, 16 MiB", HUGE_COLD, BYTES("mmap", "cold", 16), "tmpfs-huge", 0.95),
    ROW(JOB_MAP, "mmap, all bytes, first open, 4 MiB", HUGE_COLD, BYTES("mmap", "cold", 4), "tmpfs-huge", 0.65),
    ROW(JOB_MAP, "mmap, all bytes, first open, 1 MiB", HUGE_COLD, BYTES("mmap", "cold", 1), "tmpfs-huge", 1.0),
    SHARE(JOB_MAP, "mmap, first open, 16 MiB", SET_MAP_NODE_CPU, "cold"),
    ROW(JOB_DD, "put by dd bs=1M, 16 MiB", SMALL, BYTES("put dd", "", 16), "tmpfs", 1.3),
    ROW(JOB_DD, "put by dd bs=1M, 4 MiB", SMALL, BYTES("put dd", "", 4), "tmpfs", 1.0),
    ROW(JOB_CP, "put by cp, 16 MiB", SMALL, BYTES("put cp", "", 16), "tmpfs", 0.9),
    ROW(JOB_CP, "put by cp, 4 MiB", SMALL, BYTES("put cp", "", 4), "tmpfs", 0.9),
    ROW(JOB_WRITE, "put by write of 1 MiB, 16 MiB", SMALL, BYTES("put write", "", 16), "tmpfs", 0),
    ROW(JOB_WRITE, "put by write of 1 MiB, 4 MiB", SMALL, BYTES("put write", "", 4), "tmpfs", 0),
    ROW(JOB_OPEN, "open + read + close, 4 KiB, warm", EXAMPLE, FILES, "against", 0.9),
    ROW(JOB_REFILL, "SSD refill, 4 threads, 16 MiB", FIO, BYTES("refill", "cold", 16), "fio", 0.9),
    ROW(JOB_REFILL, "SSD refill, 4 threads, 4 MiB", FIO, BYTES("refill", "cold", 4), "fio", 0.9),
    ROW(JOB_SSD_OFF, "put, SSD tier on, 16 MiB", OFF, BYTES("put write", "", 16), "ssd-off", 0.9),
    ROW(JOB_SSD_OFF, "put, SSD tier on, 4 MiB", OFF, BYTES("put write", "", 4), "ssd-off", 0.9),
    SHARE(JOB_HELD, "read 40 times an open, 16 MiB", SET_READ_NODE_CPU, "warm"),
    ROW(JOB_READ_COPY, "no passthrough: read, first open, 16 MiB", SMALL_COLD, BYTES("read", "cold", 16), "tmpfs",
	0.25),
    ROW(JOB_READ_COPY, "no passthrough: read, first open, 4 MiB", SMALL_COLD, BYTES("read", "cold", 4), "tmpfs", 0.25),
    ROW(JOB_READ_COPY, "no passthrough: read, first open, 1 MiB", SMALL_COLD, BYTES("read", "cold", 1), "tmpfs", 0.3),
    ROW(JOB_OPEN_COPY, "no passthrough: open + read + close, 4 KiB", EXAMPLE, FILES, "against", 0.9),
    ROW(JOB_REFILL_COPY, "no passthrough: SSD refill, 16 MiB", FIO, BYTES("refill", "cold", 16), "fio", 0.9),
    ROW(JOB_REFILL_COPY, "no passthrough: SSD refill, 4 MiB", FIO, BYTES("refill", "cold", 4), "fio", 0.9),
    BEFORE(JOB_READ_BEFORE, "read, first open, 16 MiB", BYTES("read", "cold", 16)),
    BEFORE(JOB_READ_BEFORE, "read, first open, 4 MiB", BYTES("read", "cold", 4)),
    BEFORE(JOB_READ_BEFORE, "read, first open, 1 MiB", BYTES("read", "cold", 1)),
    BEFORE(JOB_READ_BEFORE, "read, second open, 16 MiB", BYTES("read", "warm", 16)),
    BEFORE(JOB_MAP_BEFORE, "mmap, all bytes, first open, 16 MiB", BYTES("mmap", "cold", 16)),
    BEFORE(JOB_WRITE_BEFORE, "put by write, 16 MiB", BYTES("put write", "", 16)),
    BEFORE(JOB_WRITE_BEFORE, "put by write, 4 MiB", BYTES("put write", "", 4)),
    BEFORE(JOB_OPEN_BEFORE, "open + read + close, 4 KiB, warm", FILES),
    REQUESTS("PutStart + PutDone", "SET", "PutStart+PutDone", 0.5),
    REQUESTS("GetStart + GetDone", "GET", "GetStart+GetDone", 0.5),
    REQUESTS("Lookup", "GET", "Lookup", 1.0),
    MASTER("master: memory of an object", "without its name", "memory", "", REPORT_BYTES, 200, SUITE_VALUE,
	   SUITE_PLAIN),
    MASTER("catalogue: load until ready", "60 s for ten million", "catalogue load", "wall", REPORT_SECONDS, 60 / 1e7,
	   SUITE_VALUE, SUITE_EACH),
    MASTER("catalogue: bytes for a put", FEWER, "catalogue size", "", REPORT_BYTES, 1, SUITE_GROWTH, SUITE_LOG),
    MASTER("catalogue: to write a put, CPU time", FEWER, "catalogue put", "cpu", REPORT_SECONDS, 0, SUITE_GROWTH,
	   SUITE_PLAIN),
    COST("open + read + close, 4 KiB", "open+read", 2),
    COST("open + read + close, 4 KiB", "open+read", 3),
    COST("put of 4 KiB", "put", 2),
    COST("put of 4 KiB", "put", 3),
    COST("evict, 4 KiB", "evict", 2),
    COST("evict, 4 KiB", "evict", 3),
    {.what = NULL},
};

struct argv_sizes suite_objects(enum suite_job_id job, const struct bench_options *o)
{
	if (job == JOB_MASTER)
		return (struct argv_sizes){.v = {o->master_objects / 100, o->master_objects}, .n = 2};
	if (job == JOB_GROWTH)
		return (struct argv_sizes){.v = {o->grown_files / 100, o->grown_files / 10, o->grown_files}, .n = 3};
	return (struct argv_sizes){.n = 0};
}

static double goal_of(const struct suite_row *row, const struct argv_sizes *n)
{
	double most = (double)(row->nth ? n->v[row->nth - 1] : 0);

	switch (row->goal) {
	case SUITE_EACH:
		return row->to_reach * most;
	case SUITE_LOG:
		return row->to_reach * log(most) / log((double)n->v[0]);
	default:
		return row->to_reach;
	}
}

struct suite_line suite_line_of(const struct suite_row *row, const struct bench_options *o)
{
	const struct argv_sizes n = suite_objects(row->job, o);
	struct suite_line l = {.row = row, .key = row->key, .to_reach = goal_of(row, &n)};

	snprintf(l.what, sizeof(l.what), "%s", row->what);
	snprintf(l.against, sizeof(l.against), "%s", row->against);
	if (!row->nth)
		return l;
	l.key.objects = n.v[row->nth - 1];
	snprintf(l.what, sizeof(l.what), "%s, among %llu", row->what, (unsigned long long)l.key.objects);
	if (row->kind == SUITE_GROWTH)
		snprintf(l.against, sizeof(l.against), "the same among %llu", (unsigned long long)n.v[0]);
	return l;
}
