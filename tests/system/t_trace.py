# SPDX-License-Identifier: Apache-2.0
"""Request traces, replayed by fluxkv-bench: exact hits and stores where there is room, and every byte compared."""
import json
import os
import random
import subprocess
import tempfile
import threading
import time

import lib
from lib import BUILD_DIR, SLOW, Skip, check, run, same, test

BENCH = os.path.join(BUILD_DIR, "fluxkv-bench")
SOURCE_DIR = os.environ.get("top_srcdir") or os.path.dirname(os.path.dirname(lib.SYSTEM_DIR))
TRACE = os.environ.get("FLUXKV_TEST_TRACE") or f"{SOURCE_DIR}/../shared/data/conversation_trace_4000.jsonl"

# Without a mount the replay is tested on a plain directory all the same.
try:
    lib.need_fluxkv()
except Skip:
    lib.PLAIN_DIR = lib.PLAIN_DIR or tempfile.gettempdir()


def bench(*args, status=0, timeout=400):
    p = subprocess.run([BENCH, *map(str, args)], capture_output=True, text=True, timeout=timeout * SLOW, check=False)
    same((p.returncode, p.stderr if not status else ""), (status, ""), f"fluxkv-bench {' '.join(map(str, args))}")
    return p


def replay(trace, where, *options, block="1KiB"):
    """The counts of one replay, which must leave nothing behind."""
    result = json.loads(bench("trace", "--json", "--block-bytes", block, *options, trace, where).stdout)
    same(os.listdir(where), [], "names left by fluxkv-bench")
    counts = {r["op"]: r["runs"] for r in result["results"] if r["unit"] == "count" and not r["state"]}
    tiers = [r["runs"] for r in result["results"] if r["op"] == "hits" and r["state"]]
    if tiers:
        same([sum(run) for run in zip(*tiers)], counts["hits"], "hits in DRAM and on the SSD tier together")
    for latency in ("hit read", "store"):
        at = {r["state"]: r["median"] for r in result["results"] if r["op"] == latency and r["unit"] == "s"}
        check(0 < at["p50"] <= at["p95"] <= at["p99"] <= at["max"], f"percentiles of {latency}: {at}")
    return counts


def write_trace(path, requests):
    with open(path, "w") as f:
        for i, ids in enumerate(requests):
            f.write(json.dumps({"timestamp": i, "input_length": 512 * len(ids), "output_length": 1,
                                "hash_ids": ids}) + "\n")
    return path


def synthetic(ctx):
    """A trace whose counts are plain arithmetic: 20 groups of 50 requests share 8 blocks, each adds 3 of its own."""
    order = [(g, k) for g in range(20) for k in range(50)]
    random.Random(1).shuffle(order)
    requests = [[g * 10 + i for i in range(8)] + [1000 + 3 * (g * 50 + k) + i for i in range(3)] for g, k in order]
    counts = {"hits": [20 * 49 * 8], "misses": [1000], "stores": [20 * 8 + 1000 * 3], "no space": [0]}
    return write_trace(f"{ctx.temp('trace')}/t", requests), counts


def on_tmpfs(ctx, work):
    """In a directory in memory, if there is one."""
    with tempfile.TemporaryDirectory(prefix="fluxkv-t.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else ctx.base,
                                     ignore_cleanup_errors=True) as path:
        return work(path)


@test()
def a_synthetic_trace_on_tmpfs(ctx):
    trace, want = synthetic(ctx)
    same(on_tmpfs(ctx, lambda d: replay(trace, d)), want, "counts")


@test()
def stores_in_place_and_other_layouts(ctx):
    trace, want = synthetic(ctx)
    for options in (["--store=in-place"], ["--partitions=0"], ["--partitions=3", "--seed=7"]):
        same(on_tmpfs(ctx, lambda d: replay(trace, d, *options)), want, f"counts with {options}")


@test()
def several_threads_lose_nothing(ctx):
    """Who stores a block that another thread stores too is chance; that each reference is a hit or a store is not."""
    trace, want = synthetic(ctx)
    counts = on_tmpfs(ctx, lambda d: replay(trace, d, "--threads=4"))
    same(counts["hits"][0] + counts["stores"][0], 11000, "references")
    check(counts["stores"][0] >= want["stores"][0], f"{counts['stores'][0]} stores, of {want['stores'][0]} blocks")


@test()
def two_runs_begin_empty(ctx):
    trace, want = synthetic(ctx)
    counts = on_tmpfs(ctx, lambda d: replay(trace, d, "--runs=2", "--requests=100"))
    same([len(set(v)) for v in counts.values()], [1] * 4, f"both runs agree: {counts}")
    same(counts["misses"], [100, 100], "every request has a block of its own")


def flip_blocks(where, done, flipped):
    """Changes the last byte of each block that it finds, once."""
    while not done.is_set():
        for at, _, names in os.walk(where):
            for path in (os.path.join(at, n) for n in names if "." not in n):
                if path not in flipped:
                    with open(path, "r+b") as f:
                        f.seek(-1, 2)
                        last = f.read(1)
                        f.seek(-1, 2)
                        f.write(bytes([last[0] ^ 1]))
                    flipped.add(path)
        time.sleep(0.001)


@test()
def a_wrong_byte_is_found(ctx):
    trace = write_trace(f"{ctx.temp('trace')}/t", [list(range(20))] * 20000)
    done, flipped = threading.Event(), set()

    def work(where):
        flipper = threading.Thread(target=flip_blocks, args=(where, done, flipped))
        flipper.start()
        try:
            return bench("trace", "--block-bytes=1000", trace, where, status=1)
        finally:
            done.set()
            flipper.join()

    p = on_tmpfs(ctx, work)
    check(flipped, "no block was changed")
    check("offset 999 is wrong" in p.stderr, f"fluxkv-bench says: {p.stderr}")


def conversation_trace():
    if not os.path.exists(TRACE):
        raise Skip("the conversation trace is not here (FLUXKV_TEST_TRACE names it)")
    return TRACE


WANT = {"hits": [34480], "misses": [3972], "stores": [71424], "no space": [0]}


@test(timeout=120)
def the_conversation_trace_on_tmpfs(ctx):
    trace = conversation_trace()
    same(on_tmpfs(ctx, lambda d: replay(trace, d)), WANT, "counts")


@test(fluxkv=True)
def a_synthetic_trace_on_the_mount(ctx):
    trace, want = synthetic(ctx)
    same(replay(trace, ctx.dir()), want, "counts")
    same(replay(trace, ctx.dir(), "--store=in-place", "--partitions=0"), want, "counts, in place")


@test(fluxkv=True)
def several_threads_on_the_mount(ctx):
    trace, want = synthetic(ctx)
    counts = replay(trace, ctx.dir(), "--threads=4", block="70000")
    same(counts["hits"][0] + counts["stores"][0], 11000, "references")
    check(counts["stores"][0] >= want["stores"][0], f"{counts['stores'][0]} stores, of {want['stores'][0]} blocks")


@test(fluxkv=True, timeout=300)
def the_conversation_trace_on_the_mount(ctx):
    trace = conversation_trace()
    daemon = ctx.daemon(dram="1GB").start()
    where = os.path.join(daemon.mnt, "trace")
    os.mkdir(where)
    same(replay(trace, where), WANT, "counts")


run(globals(), dram="768MB")
