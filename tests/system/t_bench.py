# SPDX-License-Identifier: Apache-2.0
"""fluxkv-bench: what it prints, what it refuses, and that it leaves nothing behind."""
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import lib
from lib import BUILD_DIR, FLUXKV, FLUXKVD, MIB, SLOW, Skip, check, run, same, test, wait_for

BENCH = os.path.join(BUILD_DIR, "fluxkv-bench")
SMALL = ["--runs=3", "--warmup=0", "--total=2MiB"]

# Without a mount the program is tested on a plain directory all the same.
try:
    lib.need_fluxkv()
except Skip:
    lib.PLAIN_DIR = lib.PLAIN_DIR or tempfile.gettempdir()


def bench(ctx, *args, status=0):
    """Runs it with a TMPDIR of its own, which must be empty afterwards."""
    tmp = ctx.temp("tmp")
    p = subprocess.run([BENCH, *map(str, args)], capture_output=True, text=True, timeout=100 * SLOW, check=False,
                       env={**os.environ, "TMPDIR": tmp})
    check(p.returncode == status, f"fluxkv-bench {args} ends with {p.returncode}: {p.stderr}")
    same(os.listdir(tmp), [], "left in TMPDIR")
    return p


def measure(ctx, command, where, *options):
    out = json.loads(bench(ctx, command, "--json", *options, where).stdout)
    same(os.listdir(where), [], "left in the directory")
    check_schema(out, command)
    return out


def check_schema(out, command):
    same((out["schema"], out["program"], out["command"]), (1, "fluxkv-bench", command), "what this is")
    check(out["machine"]["cpus"] >= 1 and out["machine"]["fs"] and out["machine"]["kernel"], f"{out['machine']}")
    for r in out["results"]:
        same(len(r["runs"]), 1 if r["unit"] == "bytes" else out["runs"], f"samples of {r}")
        check(abs(r["median"] - statistics.median(r["runs"])) <= 1e-4 * r["median"], f"the median of {r}")
        same((r["min"], r["max"]), (min(r["runs"]), max(r["runs"])), "the spread")
    for q in out["ratios"]:
        tested = find(out, q, q["target"])["runs"]
        other = find(out, {**q, "objects": q["against_objects"]}, q["against"])["runs"]
        want = statistics.median(a / b for a, b in zip(tested, other))
        check(abs(q["median"] - want) <= 1e-3 * want, f"{q}, not {want}")
        check(q["min"] <= q["median"] <= q["max"], f"{q}")


def find(out, key, target):
    found = [r for r in out["results"] if r["target"] == target and
             all(r[k] == key[k] for k in ("op", "state", "size", "objects"))]
    same(len(found), 1, f"results of {key} on {target}")
    return found[0]


def measured(out):
    """But for shares, which a FluxKV mount alone has."""
    return sorted({(r["op"], r["state"], r["size"]) for r in out["results"] if r["unit"] != "share"})


def shares(out):
    return {(r["op"], r["state"], r["size"], r["target"]): r["median"] for r in out["results"] if r["unit"] == "share"}


def baselines(out):
    return sorted({r["target"] for r in out["results"]} - {"dir"})


@test()
def read_and_mmap(ctx):
    sizes = ["--total=1MiB", "--size=16KiB", "--size=100001", "--size=1MiB"]
    for command in ("read", "mmap"):
        for extra in ([], ["--verify"], ["--threads=3"], ["--touch=all"] if command == "mmap" else ["--piece=4096"]):
            out = measure(ctx, command, ctx.dir(), *SMALL, *sizes, *extra)
            same(measured(out), sorted((command, s, n) for s in ("cold", "warm") for n in (16384, 100001, MIB)), "rows")
            check("tmpfs" in baselines(out), f"targets: {baselines(out)}")


@test(fluxkv=True)
def the_daemons_share(ctx):
    """Its part of the work is that of the opens: it goes when a value is read often for each of them."""
    same(shares(measure(ctx, "read", ctx.temp("plain"), *SMALL, "--size=64KiB")), {}, "shares without a daemon")
    daemon = ctx.daemon(dram="64MB").start()
    where = os.path.join(daemon.mnt, "ns")
    os.mkdir(where)
    options = ["--runs=5", "--warmup=1", "--total=8MiB", "--size=1MiB", "--baseline=tmpfs"]
    once = {}
    for command in ("read", "mmap"):
        once.update(shares(measure(ctx, command, where, *options)))
    same(sorted(once), sorted((f"{c} daemon cpu", s, MIB, "dir") for c in ("read", "mmap") for s in ("cold", "warm")),
         "shares, of the mount alone")
    check(all(v > 0.001 for v in once.values()), f"an open takes time: {once}")
    often = shares(measure(ctx, "read", where, *options, "--passes=200"))
    key = ("read daemon cpu", "warm", MIB, "dir")
    check(often[key] < once[key] / 4, f"{often[key]} with 200 passes for an open, {once[key]} with one")
    daemon.check_empty()


@test()
def put_in_all_ways(ctx):
    out = measure(ctx, "put", ctx.dir(), *SMALL, "--size=1MiB", "--size=100001", "--verify")
    ways = ("put cp", "put dd", "put direct", "put write")
    same(measured(out), sorted((w, "", n) for w in ways for n in (MIB, 100001)), "rows")
    out = measure(ctx, "put", ctx.dir(), *SMALL, "--size=1MiB", "--by=cp", "--baseline=none")
    same((measured(out), baselines(out), out["ratios"]), ([("put cp", "", MIB)], [], []), "cp alone")


@test()
def put_compares_two_directories(ctx):
    out = measure(ctx, "put", ctx.dir(), *SMALL, "--size=64KiB", "--by=write", f"--ssd-compare={ctx.dir()}")
    same(baselines(out), ["ssd-off"], "targets")
    same([(q["target"], q["against"]) for q in out["ratios"]], [("dir", "ssd-off")], "ratios")


@test()
def another_directory_to_compare_with(ctx):
    out = measure(ctx, "read", ctx.dir(), *SMALL, "--size=64KiB", "--baseline=tmpfs", f"--against={ctx.dir()}")
    same(baselines(out), ["against", "tmpfs"], "targets")


@test()
def small_files(ctx):
    out = measure(ctx, "open", ctx.dir(), "--runs=2", "--warmup=1", "--files=300")
    same(measured(out), sorted((op, s, 0) for op, s in (
        ("create+write", ""), ("open+read", "cold"), ("open+read", "warm"), ("stat", "warm"), ("absent", "cold"),
        ("absent", "warm"), ("create+unlink", ""), ("readdir", ""), ("readdir+stat", ""))), "rows")
    measure(ctx, "open", ctx.dir(), "--runs=1", "--warmup=0", "--files=7", "--threads=4")


@test()
def refill_with_a_command(ctx):
    """A command that notes which files were to be evicted, and says no until it has been asked twice."""
    if not shutil.which("fio"):
        raise Skip("needs fio")
    d, ssd, asked = ctx.temp("plain"), ctx.temp("ssd"), f"{ctx.temp('asked')}/list"
    command = f'echo "$@" >> {asked}; test $(grep -c "$1" {asked}) -ge 2'
    out = measure(ctx, "refill", d, "--runs=2", "--warmup=0", "--size=256KiB", "--total=1MiB", f"--ssd-dir={ssd}",
                  f"--evict-cmd={command}")
    same((measured(out), baselines(out)), ([("refill", "cold", 256 << 10)], ["fio"]), "rows")
    same(os.listdir(ssd), [], "left where fio read")
    with open(asked) as f:
        same(len(f.readlines()), 4 * (2 + 1 + 1), "evictions: 4 values, asked twice after the put, once before a run")


@test()
def an_eviction_that_never_works_ends(ctx):
    """Status 1 is asked again until the timeout, another one is a failure at once."""
    for code, least, most in ((1, 1, 60), (3, 0, 60)):
        started = time.monotonic()
        p = bench(ctx, "refill", "--runs=1", "--size=64KiB", "--total=64KiB", f"--timeout={1 if code == 1 else 1000}",
                  f"--ssd-dir={ctx.temp('ssd')}", f"--evict-cmd=echo it is busy >&2; exit {code}", ctx.dir(), status=1)
        check(least <= time.monotonic() - started <= most * SLOW, f"took {time.monotonic() - started} s")
        check("cannot evict" in p.stderr and f"status {code}: it is busy" in p.stderr, p.stderr)


@test()
def mistakes_are_named(ctx):
    for args, text in ((["raed", "/"], "did you mean 'read'"), (["read", "--runz=3", "/"], "did you mean '--runs'"),
                       (["read"], "less than DIR"), (["read", "/", "/"], "more than DIR"), ([], "which command"),
                       (["trace", "/"], "less than FILE DIR"), (["growth"], "needs DIR"),
                       (["growth", "--start", "/"], "exclude each other"), (["growth", "-n", "9", "/"], "too few"),
                       (["master", "/"], "more than"), (["master", "-n2", "-n1"], "not ascending"), (["refill", "/"], "needs --ssd-dir")):
        p = bench(ctx, *args, status=2)
        same((text in p.stderr, p.stdout, p.stderr.count("\n")), (True, "", 1), f"{args}: {p.stderr}")
    p = bench(ctx, "read", f"{ctx.temp('no')}/such", status=1)
    check("No such file or directory" in p.stderr, p.stderr)
    for args in (["--help"], ["--version"], ["put", "--help"]):
        check(bench(ctx, *args).stdout, f"{args} print nothing")


@test()
def a_full_directory_is_an_error(ctx):
    """No room is said, with the file's name, and what was written is removed."""
    where = ctx.temp("full")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "x", where], check=False).returncode:
        raise Skip("needs the right to mount")
    p = bench(ctx, "read", *SMALL, "--size=1MiB", "--total=8MiB", where, status=1)
    check("No space left on device" in p.stderr, p.stderr)
    same(os.listdir(where), [], "left behind")
    subprocess.run(["umount", where], check=True)


@test()
def results_that_are_lost_are_an_error(ctx):
    """What cannot be printed is said, and nothing is left behind all the same."""
    results, plain = f"{ctx.temp('results')}/r.json", ctx.temp("plain")
    with open(results, "w") as f:
        json.dump(measure(ctx, "read", plain, *SMALL, "--size=64KiB"), f)
    pressure = ["pressure", "--dataset=1MiB", "--payload=64KiB", "--clients=1", "--output=bytes", "--warmup=0", "--window=1",
                "--pace=0", plain]
    read = ["read", *SMALL, "--size=64KiB", plain]
    master = ["master", "--objects=2000", "--runs=1", "--warmup=0"]
    for args in (["--help"], ["--version"], ["put", "--help"], ["report", results], read, [*read, "--json"],
                 [*master, "--json"], pressure, [*pressure, "--json"]):
        tmp = ctx.temp("tmp")
        with open("/dev/full", "w") as full:
            p = subprocess.run([BENCH, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                               env={**os.environ, "TMPDIR": tmp})
        same((p.returncode, p.stderr), (1, "fluxkv-bench: cannot write to standard output: No space left on device\n"),
             f"{args}")
        same((os.listdir(tmp), os.listdir(plain)), ([], []), f"left behind by {args}")


def interrupt(ctx, sig, *args):
    where, tmp = args[-1], ctx.temp("tmp")
    p = subprocess.Popen([BENCH, *args], stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": tmp})
    try:
        wait_for(lambda: any(names for at, _, names in os.walk(where)), "it has begun")
        time.sleep(0.1)
        p.send_signal(sig)
        same(p.wait(20 * SLOW), -sig, f"status of {args[0]} after {sig}")
    finally:
        p.kill()
        p.wait()
    same((os.listdir(where), os.listdir(tmp)), ([], []), f"left behind by {args[0]}")


@test()
def a_signal_cleans_up(ctx):
    endless = ["--runs=1000", "--total=16MiB"]
    interrupt(ctx, signal.SIGINT, "read", *endless, ctx.dir())
    interrupt(ctx, signal.SIGTERM, "put", *endless, "--by=dd", ctx.dir())
    interrupt(ctx, signal.SIGINT, "mmap", *endless, "--threads=4", ctx.dir())
    interrupt(ctx, signal.SIGHUP, "open", "--runs=1000", "--files=2000", ctx.dir())
    interrupt(ctx, signal.SIGTERM, "growth", "--objects=10000000", ctx.dir())


def check_growth(out, target, last, clocks=("wall", "cpu"), size=4096, objects=(48, 200)):
    """Every operation at each number of files, by each clock, and each number against the least."""
    ops = ("put", "open+read", "stat", "stat again", last)
    same(sorted((r["op"], r["state"], r["objects"]) for r in out["results"]),
         sorted((op, s, n) for op in ops for s in clocks for n in objects), "rows")
    same({(r["target"], r["size"], r["unit"]) for r in out["results"]}, {(target, size, "s")}, "what they are of")
    check(all(r["min"] > 0 for r in out["results"]), f"{out['results']}")
    same(sorted((q["op"], q["state"], q["objects"], q["against_objects"], q["against"]) for q in out["ratios"]),
         sorted((op, s, n, objects[0], target) for op in ops for s in clocks for n in objects[1:]), "ratios")


GROWTH = ["--objects=48", "--objects=200", "--runs=3", "--warmup=1", "--ops=100", "--partitions=1"]


@test()
def growth_in_a_plain_directory(ctx):
    """No file is asked for twice: 48 of them are enough for 6 operations in each of 4 rounds."""
    where = ctx.temp("plain")
    for extra, size in (([], 4096), (["--empty", "--partitions=0"], 0)):
        out = measure(ctx, "growth", where, *GROWTH, *extra)
        check_growth(out, "dir", "unlink", size=size)
        same(out["notes"], ["each run is the mean of 6 operations"], "notes")
    p = bench(ctx, "growth", *GROWTH, where)
    check(p.stdout.count(" of that with 48") == 10, p.stdout)
    p = bench(ctx, "growth", "--socket=/no/such", where, status=1)
    check("is not on a FluxKV mount" in p.stderr, p.stderr)
    same(os.listdir(where), [], "left in the directory")


@test()
def growth_is_named_in_the_report(ctx):
    path = f"{ctx.temp('out')}/growth.json"
    with open(path, "w") as f:
        json.dump(measure(ctx, "growth", ctx.temp("plain"), *GROWTH), f)
    p = subprocess.run([BENCH, "report", path], capture_output=True, text=True, check=True)
    same((p.stdout.count("| 4 KiB × 48 | dir |"), p.stdout.count(" of that with 48 |")), (10, 10), p.stdout)


@test(fluxkv=True)
def growth_on_the_mount(ctx):
    """The control socket evicts; without it nothing is evicted, and nobody knows the daemon's time."""
    daemon = ctx.daemon(dram="64MB").start()
    where = os.path.join(daemon.mnt, "ns")
    os.mkdir(where)
    before = daemon.status()
    out = measure(ctx, "growth", where, *GROWTH, f"--socket={daemon.socket}")
    check_growth(out, "dir", "evict")
    same(daemon.status()["evictions"]["dram"] - before["evictions"]["dram"], 2 * 4 * 6, "evicted")
    out = measure(ctx, "growth", where, *GROWTH)
    check_growth(out, "dir", "unlink", clocks=("wall",))
    other = ctx.daemon(dram="64MB").start()
    p = bench(ctx, "growth", *GROWTH, f"--socket={other.socket}", where, status=1)
    check("not on the mount of the daemon" in p.stderr, p.stderr)
    daemon.check_empty()


@test(fluxkv=True)
def growth_starts_daemons_of_its_own(ctx):
    out = json.loads(bench(ctx, "growth", "--json", "--start", f"--fluxkvd={FLUXKVD}", *GROWTH).stdout)
    check_schema(out, "growth")
    check_growth(out, "fluxkv", "evict")
    p = bench(ctx, "growth", "--start", "--fluxkvd=/no/such", status=1)
    check("/no/such" in p.stderr, p.stderr)


MASTER = ["master", "--objects=2000", "--objects=6000", "--runs=2", "--warmup=1", "--ops=1500"]


@test()
def the_master_alone(ctx):
    """Requests to it, against Redis where that is there; its memory; and its catalogue."""
    out = json.loads(bench(ctx, *MASTER, "--json").stdout)
    check_schema(out, "master")
    targets = ["master", "redis"]
    if any(n.startswith("redis: ") and "left out" in n for n in out["notes"]):
        targets.remove("redis")
    requests = [(op, "cpu", t) for op in ("PutStart+PutDone", "GetStart+GetDone", "Lookup") for t in targets]
    catalogue = [(f"catalogue {op}", clock, "master") for op in ("put", "load") for clock in ("wall", "cpu")]
    bytes_of = [(op, "", "master") for op in ("memory", "catalogue size")]
    rows = requests + catalogue + bytes_of
    same(sorted((r["op"], r["state"], r["target"], r["objects"]) for r in out["results"]),
         sorted((*row, n) for row in rows for n in (2000, 6000)), "rows")
    check(all(r["min"] > 0 for r in out["results"]), f"{out['results']}")
    same(sorted((q["op"], q["state"], q["against"]) for q in out["ratios"] if q["objects"] != q["against_objects"]),
         sorted(rows), "ratios to the least number")
    same(sorted((q["op"], q["objects"]) for q in out["ratios"] if q["target"] != q["against"]),
         sorted((r[0], n) for r in requests if r[2] == "redis" for n in (2000, 6000)), "ratios to Redis")
    size = [r["median"] for r in out["results"] if r["op"] == "catalogue size"]
    check(all(24 < s < 1000 for s in size), f"bytes of an object in the catalogue, with a name of 24: {size}")


@test()
def a_signal_ends_the_master(ctx):
    tmp = ctx.temp("tmp")
    with subprocess.Popen([BENCH, "master", "--objects=10000000"], stdout=subprocess.DEVNULL,
                          env={**os.environ, "TMPDIR": tmp}) as p:
        time.sleep(0.5)
        p.send_signal(signal.SIGINT)
        same(p.wait(20 * SLOW), -signal.SIGINT, "status")
    same(os.listdir(tmp), [], "left in TMPDIR")


@test(fluxkv=True, timeout=120)
def refill_on_the_mount(ctx):
    """The tool itself evicts; every value that is read comes from the SSD tier."""
    if not shutil.which("fio"):
        raise Skip("needs fio")
    daemon = ctx.daemon(dram="256MB", ssd="256MB").start()
    where = os.path.join(daemon.mnt, "ns")
    os.mkdir(where)
    out = measure(ctx, "refill", where, "--runs=2", "--warmup=0", "--size=1MiB", "--total=16MiB", "--verify",
                  f"--ssd-dir={daemon.ssd_path}", f"--fluxkv={FLUXKV}", f"--socket={daemon.socket}")
    same((measured(out), baselines(out)), ([("refill", "cold", MIB)], ["fio"]), "rows")
    daemon.check_empty()


run(globals())
