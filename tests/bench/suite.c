/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/suite.h"

#include "tests/bench/commands.h"

#define MIB (1024ull * 1024)

const struct suite_job suite_jobs[SUITE_JOBS] = {
    [JOB_READ] = {"read", SUITE_AUTO, CMD_READ, cmd_read, NEEDS_PASSTHROUGH, BASELINE_HUGE, PUT_ALL},
    [JOB_MAP] = {"mmap", SUITE_AUTO, CMD_MMAP, cmd_mmap, NEEDS_PASSTHROUGH, BASELINE_HUGE, PUT_ALL},
    [JOB_DD] = {"put by dd", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_DD},
    [JOB_CP] = {"put by cp", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_CP},
    [JOB_WRITE] = {"put by write", SUITE_AUTO, CMD_PUT, cmd_put, 0, BASELINE_TMPFS, PUT_WRITE},
    [JOB_OPEN] = {"open", SUITE_AUTO, CMD_OPEN, cmd_open, NEEDS_PASSTHROUGH | NEEDS_AGAINST, BASELINE_NONE, PUT_ALL},
    [JOB_REFILL] = {"refill", SUITE_AUTO, CMD_REFILL, cmd_refill, NEEDS_PASSTHROUGH | NEEDS_SSD, BASELINE_NONE,
		    PUT_ALL},
    [JOB_SSD_OFF] = {"put, SSD tier on and off", SUITE_AUTO, CMD_PUT, cmd_put, NEEDS_SSD_OFF, BASELINE_NONE, PUT_WRITE},
    [JOB_READ_COPY] = {"read, no passthrough", SUITE_COPY, CMD_READ, cmd_read, 0, BASELINE_TMPFS, PUT_ALL},
    [JOB_OPEN_COPY] = {"open, no passthrough", SUITE_COPY, CMD_OPEN, cmd_open, NEEDS_AGAINST, BASELINE_NONE, PUT_ALL},
    [JOB_REFILL_COPY] = {"refill, no passthrough", SUITE_COPY, CMD_REFILL, cmd_refill, NEEDS_SSD, BASELINE_NONE,
			 PUT_ALL},
};

#define HUGE_COLD "tmpfs, huge pages, cold"
#define SMALL_COLD "tmpfs, 4 KiB pages, cold"
#define SMALL "tmpfs, 4 KiB pages"
#define EXAMPLE "the bare FUSE example"
#define FIO "fio, io_uring, direct"
#define OFF "SSD tier off"

#define BYTES(of, when, mib)                                                                                           \
	{                                                                                                              \
		.op = (of), .state = (when), .size = (mib)*MIB, .unit = REPORT_BYTES_PER_S                             \
	}
#define FILES                                                                                                          \
	{                                                                                                              \
		.op = "open+read", .state = "warm", .unit = REPORT_PER_S                                               \
	}

const struct suite_row suite_rows[] = {
    {JOB_READ, "read, first open, 16 MiB", HUGE_COLD, BYTES("read", "cold", 16), "tmpfs-huge", 0.95},
    {JOB_READ, "read, first open, 4 MiB", HUGE_COLD, BYTES("read", "cold", 4), "tmpfs-huge", 0.85},
    {JOB_READ, "read, first open, 1 MiB", HUGE_COLD, BYTES("read", "cold", 1), "tmpfs-huge", 0.75},
    {JOB_MAP, "mmap, all bytes, first open, 16 MiB", HUGE_COLD, BYTES("mmap", "cold", 16), "tmpfs-huge", 0.95},
    {JOB_MAP, "mmap, all bytes, first open, 4 MiB", HUGE_COLD, BYTES("mmap", "cold", 4), "tmpfs-huge", 0.65},
    {JOB_MAP, "mmap, all bytes, first open, 1 MiB", HUGE_COLD, BYTES("mmap", "cold", 1), "tmpfs-huge", 1.0},
    {JOB_DD, "put by dd bs=1M, 16 MiB", SMALL, BYTES("put dd", "", 16), "tmpfs", 1.3},
    {JOB_DD, "put by dd bs=1M, 4 MiB", SMALL, BYTES("put dd", "", 4), "tmpfs", 1.0},
    {JOB_CP, "put by cp, 16 MiB", SMALL, BYTES("put cp", "", 16), "tmpfs", 0.9},
    {JOB_CP, "put by cp, 4 MiB", SMALL, BYTES("put cp", "", 4), "tmpfs", 0.9},
    {JOB_WRITE, "put by write of 1 MiB, 16 MiB", SMALL, BYTES("put write", "", 16), "tmpfs", 0},
    {JOB_WRITE, "put by write of 1 MiB, 4 MiB", SMALL, BYTES("put write", "", 4), "tmpfs", 0},
    {JOB_OPEN, "open + read + close, 4 KiB, warm", EXAMPLE, FILES, "against", 0.9},
    {JOB_REFILL, "SSD refill, 4 threads, 16 MiB", FIO, BYTES("refill", "cold", 16), "fio", 0.9},
    {JOB_REFILL, "SSD refill, 4 threads, 4 MiB", FIO, BYTES("refill", "cold", 4), "fio", 0.9},
    {JOB_SSD_OFF, "put, SSD tier on, 16 MiB", OFF, BYTES("put write", "", 16), "ssd-off", 0.9},
    {JOB_SSD_OFF, "put, SSD tier on, 4 MiB", OFF, BYTES("put write", "", 4), "ssd-off", 0.9},
    {JOB_READ_COPY, "no passthrough: read, first open, 16 MiB", SMALL_COLD, BYTES("read", "cold", 16), "tmpfs", 0.25},
    {JOB_READ_COPY, "no passthrough: read, first open, 4 MiB", SMALL_COLD, BYTES("read", "cold", 4), "tmpfs", 0.25},
    {JOB_READ_COPY, "no passthrough: read, first open, 1 MiB", SMALL_COLD, BYTES("read", "cold", 1), "tmpfs", 0.3},
    {JOB_OPEN_COPY, "no passthrough: open + read + close, 4 KiB", EXAMPLE, FILES, "against", 0.9},
    {JOB_REFILL_COPY, "no passthrough: SSD refill, 16 MiB", FIO, BYTES("refill", "cold", 16), "fio", 0.9},
    {JOB_REFILL_COPY, "no passthrough: SSD refill, 4 MiB", FIO, BYTES("refill", "cold", 4), "fio", 0.9},
    {0},
};
