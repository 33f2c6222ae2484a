# SPDX-License-Identifier: Apache-2.0
"""fluxkv-bench all: what its table and its JSON look like, what is left out and why, and nothing left behind."""
import contextlib
import glob
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import time

from lib import BUILD_DIR, FLUXKV, FLUXKVD, MIB, SLOW, Skip, check, run, same, small_disk, test, wait_for

BENCH = os.path.join(BUILD_DIR, "fluxkv-bench")
TINY = ["--runs=2", "--warmup=0", "--total=16MiB", "--files=40", "--master-objects=2000", "--grown-files=3000"]
RESULTS = ("reached", "missed", "measured", "failed", "not measured")
EXAMPLE = "the bare FUSE example"


def command(*args):
    return [BENCH, "all", f"--fluxkvd={FLUXKVD}", f"--fluxkv={FLUXKV}", *map(str, args)]


def bench_all(ctx, *args, status=0):
    """Runs it with a TMPDIR of its own, which must be empty afterwards."""
    tmp = ctx.temp("tmp")
    p = subprocess.run(command(*args), capture_output=True, text=True, timeout=100 * SLOW, check=False,
                       env={**os.environ, "TMPDIR": tmp})
    if p.returncode and not status and "too little free memory" in p.stderr:
        raise Skip(p.stderr.strip())
    check(p.returncode == status, f"all {args} ends with {p.returncode}: {p.stderr} {p.stdout}")
    same((os.listdir(tmp), daemons_below(tmp)), ([], []), "left behind")
    return p


def measure(ctx, *args, status=0):
    p = bench_all(ctx, "--json", *args, status=status)
    out = json.loads(p.stdout)
    same((out["schema"], out["program"], out["command"]), (1, "fluxkv-bench", "all"), "what this is")
    for row in out["rows"]:
        check_row(row, out["runs"])
    return out, p


def check_row(row, runs):
    """The verdict follows from the samples, or there is a reason why there is none."""
    check(row["what"] and row["against"] and row["result"] in RESULTS, f"{row}")
    if row["result"] in ("failed", "not measured"):
        same((row["median"], row["min"], row["max"], row["tested"], row["compared"]), (None, None, None, [], []), f"{row}")
        check(row["why"], f"no reason: {row}")
        return
    n = 1 if row["unit"] == "bytes" else runs
    same((len(row["tested"]), len(row["compared"]), row["why"]), (n, 0 if row["kind"] == "value" else n, ""), f"{row}")
    ratios = [a / b for a, b in zip(row["tested"], row["compared"])] or row["tested"]
    same(row["at_most"], row["kind"] != "ratio", f"{row}")
    for name, want in (("median", statistics.median(ratios)), ("min", min(ratios)), ("max", max(ratios))):
        check(abs(row[name] - want) <= 1e-3 * want, f"{name} of {row} is not {want}")
    if row["to_reach"] is None:
        same(row["result"], "measured", f"{row}")
    elif abs(row["median"] - row["to_reach"]) > 1e-4 * row["to_reach"]:
        good = row["median"] < row["to_reach"] if row["at_most"] else row["median"] > row["to_reach"]
        same(row["result"], "reached" if good else "missed", f"{row}")


def daemons_below(where):
    """The pids of fluxkvd that have that directory on their command line."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as f:
            words = f.read().split(b"\0")
            if words[0].endswith(b"fluxkvd") and os.fsencode(where) in b" ".join(words):
                found.append((int(path.split("/")[2]), b" ".join(words).decode()))
    return found


def not_measured(out):
    return {r["what"]: r["why"] for r in out["rows"] if r["result"] == "not measured"}


def check_own(out):
    """The rows of the master and of growth: which, with what goals, and where nothing was left out."""
    rows = {(r["op"], r["objects"]): r for r in out["rows"] if r["objects"]}
    files, n = (30, 300, 3000), 2000
    same(sorted(rows), sorted([(op, x) for op in ("open+read", "put", "evict") for x in files[1:]] +
                              [(op, n) for op in ("PutStart+PutDone", "GetStart+GetDone", "Lookup", "memory",
                                                  "catalogue load", "catalogue size", "catalogue put")]), "rows")
    same({rows[op, x]["to_reach"] for op, x in rows if x in files}, {1.2}, "what files may cost")
    goals = {"PutStart+PutDone": 0.5, "GetStart+GetDone": 0.5, "Lookup": 1.0, "memory": 200, "catalogue load": n * 6e-6,
             "catalogue size": math.log(n) / math.log(n // 100), "catalogue put": None}
    for op, goal in goals.items():
        r = rows[op, n]
        check(r["to_reach"] is goal or abs(r["to_reach"] - goal) <= 1e-4 * goal, f"{r}")
        redis = goal in (0.5, 1.0)
        same(r["kind"], "ratio" if redis else "value" if op in ("memory", "catalogue load") else "growth", f"{r}")
        if redis and not shutil.which("redis-server"):
            same((r["result"], r["why"][:25]), ("not measured", "skipped: no redis-server:"), f"{r}")
        elif not (redis and "skipped: " in r["why"]):
            check(r["tested"] and min(r["tested"]) > 0, f"{r}")
    return rows


def report(path):
    return subprocess.run([BENCH, "report", path], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def without_redis():
    """Nobody in this mount namespace can run it, wherever it is looked for."""
    path = shutil.which("redis-server")
    if not path:
        yield
        return
    subprocess.run(["mount", "--bind", "/dev/null", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def disk(ctx):
    path = small_disk(ctx, 2048)
    try:
        yield path
        same(os.listdir(path), ["lost+found"], "left on the disk")
    finally:
        subprocess.run(["umount", path], check=True)


@test(fluxkv=True, timeout=180)
def all_that_is_started(ctx):
    """Every row is measured, or says why not; the report has the same rows."""
    with disk(ctx) as ssd:
        out, p = measure(ctx, *TINY, "--start", "--verify", f"--ssd-dir={ssd}", f"--before={FLUXKVD}")
    same(p.stderr, "", "said")
    left_out = not_measured(out)
    for what, why in left_out.items():
        check("no passthrough: " in why or (not shutil.which("fio") and "needs fio" in why) or "needs --against" in why
              or "huge" in why or "skipped: no redis-server" in why, f"{what} is left out: {why}")
    same({r["what"] for r in out["rows"] if r["result"] == "failed"}, set(), "failed")
    for r in out["rows"]:
        if r["what"].startswith("put ") or r["what"].startswith("no passthrough: read"):
            check(r["what"] not in left_out, f"{r}")
        check(r["against"] != EXAMPLE or r["what"] in left_out, f"{r}")
        check(not r["what"].startswith("as before: ") or r["result"] == "measured", f"{r}")
    same(sum(r["what"].startswith("as before: ") for r in out["rows"]), 8, "rows of what was before")
    check(len({r["what"] for r in out["rows"]}) == len(out["rows"]) > 20, "each row once")
    check(all(r["tested"] for (_, n), r in check_own(out).items() if n != 2000), f"what files cost: {out['rows']}")
    path = f"{ctx.temp('out')}/all.json"
    with open(path, "w") as f:
        f.write(p.stdout)
    lines = report(path).splitlines()
    for r in out["rows"]:
        goal = "" if r["to_reach"] is None or r["kind"] == "value" else f"{r['to_reach']:.2f}"
        goal = f"≤ {goal}" if r["at_most"] and r["to_reach"] else goal
        ratio = "" if r["median"] is None else f"{r['median']:.2f} ({r['min']:.2f} – {r['max']:.2f})"
        if r["kind"] == "value": # of the others, in whatever unit it reads best
            ratio = f"{r['median']:.1f} B ({r['min']:.1f} B – {r['max']:.1f} B)" if r["unit"] == "bytes" else ""
        start = " | ".join(x for x in (f"| {r['what']}", r["against"].replace("_", "\\_"), ratio))
        found = [line for line in lines if line.startswith(start) and r["result"] in line and f"| {goal}" in line]
        same(len(found), 1, f"lines of the report for {r}")


@test(fluxkv=True, timeout=180)
def a_mount_that_is_there(ctx):
    """What it is decides which rows there are; the rest says what it needs."""
    d = ctx.daemon(dram="256MB", ssd="512MB", passthrough="off").start()
    off = ctx.daemon(dram="256MB").start()
    dirs = [os.path.join(x.mnt, "ns") for x in (d, off)]
    for x in dirs:
        os.mkdir(x)
    out, _ = measure(ctx, *TINY, dirs[0])
    same({w.split(":")[0] for w in set(not_measured(out).values())}, {
        "no passthrough", "needs --against, where the bare FUSE example is mounted",
        "needs --ssd-dir, a directory on the SSD tier's device",
        "needs --ssd-compare, a directory on a mount without an SSD tier", "needs --start",
        "needs --before, an earlier fluxkvd, and --start"} |
         ({"skipped"} if "skipped: no redis" in str(out["rows"]) else set()), "reasons")
    same({r["result"] for (_, n), r in check_own(out).items() if n != 2000}, {"not measured"}, "what files cost")
    with without_redis():
        p = bench_all(ctx, *TINY, f"--against={ctx.temp('example')}", f"--ssd-compare={dirs[1]}",
                      f"--ssd-dir={d.ssd_path}", f"--socket={d.socket}", dirs[0])
    redis = [line for line in p.stdout.splitlines() if " Redis " in line]
    same((len(redis), {"not measured: skipped: no redis-server: " in x for x in redis}), (3, {True}), f"{redis}")
    lines = p.stdout.splitlines()
    same(lines[0].split(), ["what", "against", "ratio", "to", "reach"], "the head")
    n = len(out["rows"])
    same([line[:20] for line in lines[1:n + 1]], [f"{r['what']:20}"[:20] for r in out["rows"]], "the rows, in their order")
    check(lines[-1].startswith(f"{n} rows: ") and " 0 failed" in lines[-1], f"the foot: {lines[-1]}")
    example = [line for line in lines[1:n + 1] if EXAMPLE in line]
    same([("not measured: no passthrough" in x, "missed" in x or "reached" in x) for x in example],
         [(True, False), (False, True)], f"small files: {example}")
    for line in lines[1:n + 1]:
        known = "fio" not in line or shutil.which("fio") or "needs fio" in line or "in memory" in line
        check("failed" not in line and known, line)
        check("SSD tier off" not in line or "not measured" not in line, line)
    for x, daemon in zip(dirs, (d, off)):
        same(os.listdir(x), [], "left on the mount")
        daemon.check_empty()


@test(fluxkv=True)
def what_cannot_be_measured_at_all(ctx):
    """No daemon, no mount, no room: an error, and for the first the table that says so."""
    out, p = measure(ctx, *TINY, "--start", "--fluxkvd=/no/such", status=1)
    same({r["result"] for r in out["rows"]}, {"not measured"}, "rows")
    check("nothing was measured" in p.stderr and "/no/such" in p.stderr, p.stderr)
    d = ctx.daemon(dram="64MB").start()
    where = os.path.join(d.mnt, "ns")
    os.mkdir(where)
    for args, text in (([ctx.temp("plain")], "is not on a FluxKV mount"), ([where], "there is room for runs of 16 MiB"),
                       (["--start", "--total=1PiB"], "--total"), (["--start", "--total=1TiB"], "there is room for runs"),
                       (["--start", "--ssd-dir=/no/such"], "No such file")):
        p = bench_all(ctx, *args, status=2 if text == "--total" else 1)
        same((text in p.stderr, p.stderr.count("\n")), (True, 1), f"{args}: {p.stderr}")
    same(os.listdir(where), [], "left on the mount")


@test()
def mistakes_are_named(ctx):
    for args, text in (([], "needs DIR"), (["--start", "/"], "exclude each other"), (["/", "/"], "more than [DIR]"),
                       (["--start", "--ssd-compare=/"], "it starts both"), (["--start", "--socket=/x"], "its own"),
                       (["--start", "--total=1MiB"], "--total"),
                       (["--start", "--runs=9", "--grown-files=1000"], "--grown-files: a hundredth of 1000 is too few")):
        p = bench_all(ctx, *args, status=2)
        same((text in p.stderr, p.stdout, p.stderr.count("\n")), (True, "", 1), f"{args}: {p.stderr}")
    check("--quick" in bench_all(ctx, "--help").stdout, "--help")


@contextlib.contextmanager
def started(ctx, *args):
    """The process, and its TMPDIR, which must be empty at the end."""
    tmp = ctx.temp("tmp")
    p = subprocess.Popen(command("--json", *TINY, "--start", *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env={**os.environ, "TMPDIR": tmp})
    try:
        yield p, tmp
    finally:
        p.kill()
        p.communicate()
    wait_for(lambda: not daemons_below(tmp), "its daemons have ended", 30)
    same(os.listdir(tmp), [], "left in TMPDIR")


@test(fluxkv=True, timeout=120)
def a_signal_cleans_up(ctx):
    """While the first daemon runs, while two run, while the one without passthrough does, which small files keep busy
    for seconds, and while those of growth do."""
    example = ctx.temp("example")
    def one(tmp):
        return daemons_below(tmp)

    def two(tmp):
        return len(daemons_below(tmp)) == 2

    def three(tmp):
        return len(daemons_below(tmp)) == 3

    def last(tmp):
        return "passthrough=off" in str(daemons_below(tmp))

    for sig, when, more in ((signal.SIGINT, one, []), (signal.SIGTERM, two, ["--runs=8"]),
                            (signal.SIGINT, last, [f"--against={example}", "--files=3000"]), (signal.SIGTERM, three, [])):
        with disk(ctx) as ssd, started(ctx, f"--ssd-dir={ssd}", *more) as (p, tmp):
            wait_for(lambda w=when, t=tmp: w(t), f"daemons: {when.__name__}", 60)
            time.sleep(0.1)
            p.send_signal(sig)
            same(p.wait(60 * SLOW), -sig, f"status after {sig}, {when.__name__}")
            same((os.listdir(tmp), os.listdir(example), daemons_below(tmp)), ([], [], []), f"left behind, {when.__name__}")
            same(p.stdout.read(), "", "no half of a result")


@test(fluxkv=True, timeout=120)
def a_daemon_that_dies_is_said(ctx):
    """Its rows have failed, and those of the next daemon are measured."""
    with disk(ctx) as ssd, started(ctx, f"--ssd-dir={ssd}", "--runs=10") as (p, tmp):
        pid, _ = wait_for(lambda: daemons_below(tmp), "a daemon", 60)[0]
        wait_for(lambda: glob.glob(f"{tmp}/fluxkv-bench.*/state/*"), "it is up")
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        text, err = p.communicate(timeout=100 * SLOW)
    rows = json.loads(text)["rows"]
    failed = [r["why"] for r in rows if r["result"] == "failed"]
    check(failed and "fluxkvd has ended" in str(failed), f"{failed}")
    same((p.returncode, f"{len(failed)} rows have failed" in err), (1, True), f"ends with {err}")
    check(all(r["tested"] for r in rows if r["what"].startswith("no passthrough: read")), f"{rows}")


run(globals())
