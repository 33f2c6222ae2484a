# SPDX-License-Identifier: Apache-2.0
"""fluxkv-bench pressure and report: sums that hold, lies that are caught, and nothing left behind."""
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from lib import BUILD_DIR, FLUXKVD, MIB, SLOW, Skip, check, run, same, small_disk, test, wait_for

BENCH = os.path.join(BUILD_DIR, "fluxkv-bench")
MANY = ["--dataset=16MiB", "--payload=1MiB", "--warmup=0", "--window=1", "--pace=0"]
TINY = [*MANY, "--clients=2"]
PEERS = {"redis": "redis-server", "memcached": "memcached", "files": None}


def command(*args):
    return [BENCH, "pressure", f"--fluxkvd={FLUXKVD}", *map(str, args)]


def pressure(ctx, *args, status=0, env=None):
    """Runs it with a TMPDIR of its own, which must be empty afterwards. The SSD tier is there too."""
    tmp = ctx.temp("tmp")
    p = subprocess.run(command("--json", *args), capture_output=True, text=True, timeout=100 * SLOW, check=False,
                       env={**os.environ, "TMPDIR": tmp, **(env or {})})
    out = json.loads(p.stdout) if p.stdout else {"cells": []}
    bad = [c for c in out["cells"] if c["errors"] or c["hits"]["unknown"]]
    check(status is None or p.returncode == status, f"pressure {args} ends with {p.returncode}: {p.stderr}{bad}")
    same(os.listdir(tmp), [], "left in TMPDIR")
    for c in out["cells"]:
        check_cell(c)
    return out, p


def check_cell(c):
    """What must hold of every cell, whatever was measured."""
    h, b = c["hits"], c["bytes_per_s"]
    same(h["dram"] + h["ssd"] + h["unknown"], h["total"], f"hits of {c}")
    for tier in ("total", "dram", "ssd"):
        want = h[tier] * c["payload"] / c["seconds"]
        check(abs(b[tier] - want) <= 1e-3 * want, f"{tier}: {b[tier]}, not {want}")
    want = h["total"] / max(1, h["total"] + c["misses"])
    check(abs(c["hit_rate"] - want) < 1e-4, f"hit rate {c['hit_rate']}, not {want}")
    same((c["payload"], c["processes"] * c["threads"]), (c["size"] - 128, c["clients"]), "what was asked")
    t = c["latency"]
    check(0 <= t["p50"] <= t["p95"] <= t["p99"] <= t["max"] <= c["seconds"], f"latencies {t}")
    check(c["keys_missed"] <= min(c["keys"], c["misses"]) and (not c["misses"] or c["keys_missed"]), f"keys missed: {c}")
    check(not h["total"] or t["p50"] > 0, f"no time for {h['total']} hits")


def check_good(c):
    same((c["errors"], c["hits"]["unknown"], c["problem"]), (0, 0, ""), f"errors and unknown of {c}")
    check(c["hits"]["total"] > 0, f"no hits in {c}")


def keys_of(out, *names):
    return sorted(tuple(c[n] for n in names) for c in out["cells"])


def bench_left():
    """Control groups of ours that nobody is in."""
    return [g for g in glob.glob("/sys/fs/cgroup/**/fluxkv-bench.*", recursive=True)
            if not os.path.exists(f"/proc/{g.rsplit('.', 1)[1]}")]


@contextlib.contextmanager
def disk(ctx):
    """A directory on a device, if one can be made: plain files in memory have nothing to be measured."""
    try:
        path = small_disk(ctx, 512)
    except Skip:
        yield ctx.temp("ssd")
        return
    try:
        yield path
        same(os.listdir(path), ["lost+found"], "left on the disk")
    finally:
        subprocess.run(["umount", path], check=True)


@test(fluxkv=True)
def matrix_on_two_mounts(ctx):
    """With an SSD tier every read hits, and both tiers have a part; without one there are misses."""
    mounts = []
    for ssd in ("256MB", None):
        d = ctx.daemon(dram="12MB", **({"ssd": ssd} if ssd else {})).start()
        mounts.append(os.path.join(d.mnt, "ns"))
        os.mkdir(mounts[-1])
    out, _ = pressure(ctx, *MANY, "--clients=8", "--on-miss=both", "--pace=64MiB", f"--ssd-compare={mounts[1]}", mounts[0])
    same(keys_of(out, "tiers", "output", "on_miss", "clients"), sorted(
        (t, o, m, n) for t in ("dram", "dram+ssd") for o in ("holder", "bytes") for m in ("leave", "put") for n in (8,)
    ), "cells")
    for c in out["cells"]:
        check_good(c)
        same((c["target"], c["keys"], c["processes"]), ("fluxkv", 16, 2), "what was run")
        if c["tiers"] == "dram+ssd":
            same((c["hit_rate"], c["misses"], c["bound"]["static"]), (1, 0, 1), f"every read hits: {c}")
            check(c["hits"]["dram"] and c["hits"]["ssd"], f"both tiers: {c['hits']}")
        else:
            same((c["hits"]["ssd"], c["ssd"]), (0, 0), "no SSD")
            check(c["misses"] and 0.5 < c["bound"]["share"] < 0.8, f"not all fits: {c}")
            check(c["on_miss"] == "put" or c["keys_missed"] <= 16 * (1 - c["bound"]["share"]) + 1, f"too few kept: {c}")
            same(c["puts"] > 0, c["on_miss"] == "put", f"puts: {c}")
    for m in mounts:
        same(os.listdir(m), [], "left on the mount")


@test(fluxkv=True)
def what_is_started_ends(ctx):
    """All targets, each started for its cells; those that are not installed are named, with what to install."""
    before = bench_left()
    with disk(ctx) as ssd:
        out, _ = pressure(ctx, *TINY, "--pace=16MiB", "--start", "--output=bytes", "--verify",
                          f"--ssd-dir={os.path.relpath(ssd)}")
    names = {c["target"] for c in out["cells"]}
    for c in out["cells"]:
        check_good(c)
        same(c["tiers"] == "dram", c["ssd"] == 0 or c["target"] == "redis", f"the limits of {c}")
        if (c["target"], c["tiers"]) == ("fluxkv", "dram+ssd"):
            check(c["hits"]["ssd"] and c["hit_rate"] == 1, f"DRAM has not all, SSD has: {c}")
    check("fluxkv" in names, f"targets: {names}")
    for peer, program in PEERS.items():
        notes = [n for n in out["notes"] if n.startswith(peer)]
        check((peer in names) != bool(notes) or "control group" in str(notes), f"{peer}: measured or a note, not {notes}")
        if notes and program and not shutil.which(program):
            check("apt-get install" in notes[0] or "built without" in notes[0], notes[0])
    same(bench_left(), before, "control groups")


@test()
def the_page_cache_of_files_is_limited(ctx):
    """More is read than the control group lets stay in memory: some of it comes from the disk."""
    with disk(ctx) as ssd:
        out, p = pressure(ctx, *TINY, "--dataset=64MiB", "--start", "--target=files", f"--ssd-dir={ssd}", status=None)
    if p.returncode and ("control group" in str(out["notes"]) or "in memory" in str(out["notes"])):
        raise Skip(out["notes"][-1])
    same((p.returncode, len(out["cells"])), (0, 2), f"{p.stderr}")
    for c in out["cells"]:
        check_good(c)
        check(c["hits"]["ssd"] > 0.01 * c["hits"]["total"] and c["hits"]["dram"], f"both: {c['hits']}")


def bytes_read(path):
    """From the device that the path is on."""
    dev = os.stat(path).st_dev
    with open(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}/stat") as f:
        return int(f.read().split()[2]) * 512


@test()
def the_page_cache_of_memcached_is_limited(ctx):
    """What it has on the SSD it reads from there, with memory to spare in the machine."""
    if not shutil.which(PEERS["memcached"]):
        raise Skip("needs memcached")
    ssd = small_disk(ctx, 1024)
    try:
        before = bytes_read(ssd)
        # At a pace that extstore keeps: what it has not written it drops.
        out, p = pressure(ctx, *TINY, "--dataset=400MiB", "--dram=200MiB", "--output=bytes", "--window=2",
                          "--pace=100MiB", "--start", "--target=memcached", "--tiers=ssd", f"--ssd-dir={ssd}",
                          status=None)
        read = bytes_read(ssd) - before
    finally:
        subprocess.run(["umount", ssd], check=True)
    if p.returncode and ("control group" in str(out["notes"]) or "built without" in str(out["notes"])):
        raise Skip(out["notes"][-1])
    same((p.returncode, len(out["cells"])), (0, 1), f"{p.stderr}")
    c = out["cells"][0]
    check_good(c)
    hits = c["hits"]["ssd"] * c["payload"]
    # The popular ones of them are in what there is of a page cache.
    check(hits > 32 * MIB and read > 16 * MIB, f"{read} bytes were read for hits of {hits}")


@test()
def peers_that_are_not_there_are_named(ctx):
    """With nothing in PATH, what is asked for is said, and a run of nothing else is an error."""
    out, p = pressure(ctx, *TINY, "--start", "--target=fluxkv", "--fluxkvd=/no/such", status=1)
    check("nothing to measure: see the notes" in p.stderr, p.stderr)
    same((len(out["notes"]), "/no/such" in out["notes"][0]), (1, True), f"the notes: {out['notes']}")
    for args, text in ((["--start", ctx.temp("d")], "exclude each other"), ([], "needs DIR"),
                       (["--start", "--clients=5"], "multiple of 4"), (["--start", "--target=reddis"], "'redis'"),
                       (["--start", "--dataset=1MiB", "--payload=4MiB"], "not one value")):
        p = subprocess.run(command(*args), capture_output=True, text=True, check=False)
        same((p.returncode, text in p.stderr, p.stdout), (2, True, ""), f"{args}: {p.stderr}")


@test()
def a_plain_directory(ctx):
    """Where the kernel's own counters attribute the hits, and nobody knows how much fits."""
    where = ctx.temp("plain")
    out, _ = pressure(ctx, *MANY, "--clients=1", "--clients=3", "--runs=2", where)
    same(keys_of(out, "target", "output", "clients", "run"), sorted(
        ("dir", o, n, r) for o in ("holder", "bytes") for n in (1, 3) for r in (0, 1)), "cells")
    for c in out["cells"]:
        check_good(c)
        same((c["hit_rate"], c["bound"]), (1, None), f"{c}")
    same(os.listdir(where), [], "left in the directory")


def while_it_reads(ctx, where, act, *args):
    """Runs act(directory of the values) as soon as all 16 values are there."""
    tmp = ctx.temp("tmp")
    with subprocess.Popen(command("--json", *TINY, f"--window={round(3 * SLOW)}", "--output=bytes", *args, where),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TMPDIR": tmp}) as p:
        try:
            def loaded():
                dirs = [d for d in os.listdir(where) if d.startswith("fluxkv-bench.")]
                return [d for d in dirs if sum(n.startswith("k") for n in os.listdir(os.path.join(where, d))) == 16]

            act(os.path.join(where, wait_for(loaded, "the values are there", 20)[0]))
            out, err = p.communicate(timeout=60 * SLOW)
        finally:
            p.kill()
    same(os.listdir(tmp), [], "left in TMPDIR")
    return p.returncode, json.loads(out)["cells"][0], err


@test()
def a_target_that_lies_is_caught(ctx):
    """Bytes of another key, a changed last byte, a value cut short: each is an error, not a hit."""
    def other_key(d):
        shutil.copyfile(f"{d}/k00000001", f"{d}/.x")
        os.rename(f"{d}/.x", f"{d}/k00000000")

    def last_byte(d):
        with open(f"{d}/k00000000", "rb") as f:
            data = bytearray(f.read())
        data[-1] ^= 1
        with open(f"{d}/.x", "wb") as f:
            f.write(data)
        os.rename(f"{d}/.x", f"{d}/k00000000")

    def cut(d):
        shutil.copyfile(f"{d}/k00000000", f"{d}/.x")
        os.truncate(f"{d}/.x", MIB // 2)
        os.rename(f"{d}/.x", f"{d}/k00000000")

    for act, text in ((other_key, "those of key 1, not 0"), (last_byte, "not those of one value"),
                      (cut, "the length is 524288")):
        code, cell, err = while_it_reads(ctx, ctx.dir(), act)
        check(cell["errors"] > 0 and text in cell["problem"], f"{act.__name__}: {cell}")
        same((code, "1 cell has errors" in err), (1, True), f"{act.__name__} ends with {err}")
    if not ctx.plain:
        same(cell["hits"]["unknown"], cell["hits"]["total"], "the daemon counted what was no hit: nothing is believed")


@test()
def an_old_version_is_caught(ctx):
    """A key is gone, and put again by who missed it; then what it was before comes back."""
    def forget_and_remember(d):
        shutil.copyfile(f"{d}/k00000000", f"{d}/.x")
        os.unlink(f"{d}/k00000000")
        wait_for(lambda: os.path.exists(f"{d}/k00000000"), "it is put again")
        time.sleep(0.2) # who put it says so
        os.rename(f"{d}/.x", f"{d}/k00000000")

    code, cell, _ = while_it_reads(ctx, ctx.temp("plain"), forget_and_remember, "--on-miss=put")
    same((code, "an old version, 1, not 2" in cell["problem"]), (1, True), f"{cell}")
    check(cell["puts"] >= 1 and cell["misses"] >= 1 and cell["hits"]["total"], f"{cell}")


@test()
def a_wrong_byte_inside_is_found_with_verify(ctx):
    """Both ends are right, and only who compares everything sees it."""
    def middle(d):
        with open(f"{d}/k00000000", "rb") as f:
            data = bytearray(f.read())
        data[MIB // 2] ^= 1
        with open(f"{d}/.x", "wb") as f:
            f.write(data)
        os.rename(f"{d}/.x", f"{d}/k00000000")

    code, cell, _ = while_it_reads(ctx, ctx.temp("plain"), middle, "--verify")
    same((code, f"a wrong byte at offset {MIB // 2}" in cell["problem"]), (1, True), f"{cell}")
    code, cell, _ = while_it_reads(ctx, ctx.temp("plain"), middle)
    same((code, cell["errors"]), (0, 0), "without --verify")


@test(fluxkv=True)
def somebody_elses_reads_are_not_ours(ctx):
    """Who else opens values on the mount in the window makes the counters wrong: nothing is attributed."""
    d = ctx.daemon(dram="64MB").start()
    where = os.path.join(d.mnt, "ns")
    os.mkdir(where)

    def read_on(values):
        with contextlib.suppress(OSError): # to the end, when it is removed
            while True:
                with open(f"{values}/k00000003", "rb") as f:
                    f.read(1)

    code, cell, err = while_it_reads(ctx, where, lambda values: threading.Thread(target=read_on, args=(values,)).start())
    same((code, cell["errors"], cell["hits"]["unknown"]), (1, 0, cell["hits"]["total"]), f"{cell} {err}")


def interrupted(ctx, sig, *args):
    tmp, out = ctx.temp("tmp"), f"{ctx.temp('out')}/json"
    p = subprocess.Popen(command(*TINY, "--window=30", "--output=holder", f"--save={out}", *args),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": tmp})
    try:
        time.sleep(2)
        p.send_signal(sig)
        same(p.wait(30 * SLOW), -sig, f"status of {args} after {sig}")
    finally:
        p.kill()
        p.wait()
    same(os.listdir(tmp), [], f"left behind by {args}")
    check(not os.path.exists(out), "no cell was finished")


@test(fluxkv=True, timeout=120)
def a_signal_cleans_up(ctx):
    before = bench_left()
    with disk(ctx) as ssd:
        for i, target in enumerate(("fluxkv", "redis", "memcached", "files")):
            if PEERS.get(target) and not shutil.which(PEERS[target]):
                continue
            interrupted(ctx, (signal.SIGINT, signal.SIGTERM)[i % 2], "--start", f"--target={target}",
                        f"--ssd-dir={ssd}")
    same(bench_left(), before, "control groups")


@test(fluxkv=True)
def a_daemon_that_dies_is_said(ctx):
    tmp = ctx.temp("tmp")
    p = subprocess.Popen(command(*TINY, "--window=30", "--output=bytes", "--start", "--target=fluxkv", "--tiers=dram"),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": tmp})
    try:
        pid = wait_for(lambda: daemon_of(p.pid), "a daemon of its own")
        wait_for(lambda: has_values(f"/proc/{p.pid}/root{tmp}"), "its values are there", 30)
        time.sleep(1) # the rest of them is put; the window is much longer
        os.kill(pid, signal.SIGKILL)
        _, err = p.communicate(timeout=30 * SLOW)
    finally:
        p.kill()
        p.wait()
    same((p.returncode, "fluxkvd has ended" in err), (1, True), f"ends with {err}")
    same(os.listdir(tmp), [], "left in TMPDIR")


def has_values(where):
    return any(sum(n.startswith("k") for n in names) >= 8 for _, _, names in os.walk(where))


def daemon_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in f.read().split():
            with open(f"/proc/{child}/comm") as c:
                if c.read().strip() == "fluxkvd":
                    return int(child)
    return None


@test()
def results_are_saved(ctx):
    """The file is that of --json, also where a table is printed."""
    out = f"{ctx.temp('out')}/p.json"
    p = subprocess.run(command(*TINY, "--output=bytes", f"--save={out}", ctx.temp("plain")), capture_output=True,
                       text=True, check=False)
    same((p.returncode, p.stderr), (0, ""), "ends with")
    with open(out) as f:
        saved = json.load(f)
    same((saved["command"], saved["workload"]["theta"], len(saved["cells"])), ("pressure", 0.99, 1), "saved")
    same(os.listdir(os.path.dirname(out)), ["p.json"], "beside it")
    row = p.stdout.splitlines()[-1].split()
    same((row[0], row[2:4], row[4], row[-2:]), ("dir", ["1", "MiB"], "c2", ["0", "0"]), p.stdout)


@test()
def pieces_become_one(ctx):
    """What is in the file stays and is not measured again; what differs from it in more than the cells is refused."""
    where, out = ctx.temp("plain"), f"{ctx.temp('out')}/p.json"

    def piece(*args, cells, left, status=0):
        before = saved(out)
        now, p = pressure(ctx, *TINY, f"--save={out}", *args, where, status=status)
        after = saved(out)
        same((after == now, after["left"], len(after["cells"])), (True, left, cells), f"after {args}")
        same(after["cells"][:len(before["cells"])], before["cells"], f"what was there before {args}")
        return p

    piece("--cells=1", cells=1, left=1)
    piece(cells=2, left=0)
    started = time.monotonic()
    piece(cells=2, left=0)
    piece("--output=bytes", cells=2, left=0)
    check(time.monotonic() - started < 2 * SLOW, "two windows of a second, of which nothing was to be measured")
    piece("--clients=1", "--output=holder", "--runs=2", cells=5, left=0)
    whole = saved(out)
    same(sorted((c["output"], c["clients"], c["run"]) for c in whole["cells"]),
         [("bytes", 2, 0), ("holder", 1, 0), ("holder", 1, 1), ("holder", 2, 0), ("holder", 2, 1)], "cells")
    for args, what in ((["--window=2"], "window"), (["--seed=2"], "seed"), (["--verify"], "verify"),
                       (["--dataset=17MiB"], "dataset"), (["--start", "--target=files"], "directory")):
        p = subprocess.run(command(*TINY, f"--save={out}", *args, *([] if "--start" in args else [where])),
                           capture_output=True, text=True, check=False)
        same((p.returncode, f"has the cells of a run with another {what}" in p.stderr), (1, True), f"{args}: {p.stderr}")
    same(saved(out), whole, "the file")
    whole["cells"][1]["errors"] = 3
    for text, why in (("{}", "not written by this command"), ("nothing", "line 1"), (json.dumps(whole), "1 cell has errors")):
        with open(out, "w") as f:
            f.write(text)
        p = subprocess.run(command(*TINY, f"--save={out}", where), capture_output=True, text=True, check=False)
        same((p.returncode, why in p.stderr), (1, True), f"{why}: {p.stderr}")
        with open(out) as f:
            same(text in ("{}", "nothing"), f.read() == text, "what is not ours is not overwritten")
    p = subprocess.run(command("--cells=1", where), capture_output=True, text=True, check=False)
    same((p.returncode, "--cells needs --save" in p.stderr), (2, True), p.stderr)


def saved(path):
    if not os.path.exists(path):
        return {"cells": []}
    with open(path) as f:
        return json.load(f)


@test()
def an_interrupted_run_goes_on(ctx):
    where, out = ctx.temp("plain"), f"{ctx.temp('out')}/p.json"
    p = subprocess.Popen(command(*TINY, f"--save={out}", "--runs=20", "--output=bytes", where), stdout=subprocess.DEVNULL,
                         env={**os.environ, "TMPDIR": ctx.temp("tmp")})
    try:
        wait_for(lambda: saved(out)["cells"], "a cell is there", 30)
        p.send_signal(signal.SIGINT)
        same(p.wait(30 * SLOW), -signal.SIGINT, "status")
    finally:
        p.kill()
        p.wait()
    before = saved(out)
    n = len(before["cells"])
    same(before["left"], 20 - n, "what is left")
    now, _ = pressure(ctx, *TINY, f"--save={out}", f"--runs={n + 1}", "--output=bytes", where)
    same(([c["run"] for c in now["cells"]], now["cells"][:n]), (list(range(n + 1)), before["cells"]), "cells")


def report(*args, status=0):
    p = subprocess.run([BENCH, "report", *args], capture_output=True, text=True, check=False)
    same(p.returncode, status, f"report {args} ends with {p.stderr}")
    return p


@test()
def what_was_measured_is_reported(ctx):
    """Tables of two commands, and the pictures of the one that has some."""
    files, out = ctx.temp("files"), ctx.temp("out")
    results, _ = pressure(ctx, *TINY, "--on-miss=both", ctx.temp("plain"), f"--save={files}/p.json")
    with open(f"{files}/r.json", "w") as f:
        subprocess.run([BENCH, "read", "--json", "--runs=2", "--warmup=0", "--total=1MiB", "--size=64KiB",
                        "--baseline=none", ctx.temp("plain")], stdout=f, check=True)
    p = report(f"--out-dir={out}", f"{files}/p.json", f"{files}/r.json")
    for c in results["cells"]:
        row = f"| 1 MiB | c2 | {c['output']} | {c['on_miss']} | dir | as-is | {c['bytes_per_s']['total'] / 2**30:.3f} |"
        check(p.stdout.count(row) == 1, f"no row {row} in {p.stdout}")
    for state in ("cold", "warm"):
        same(p.stdout.count(f"| read | {state} | 64 KiB | dir |"), 1, f"rows of read in {p.stdout}")
    wanted = [f"pressure-{m}.{kind}" for m in ("leave", "put") for kind in ("png", "svg")]
    if "without cairo" in p.stderr:
        wanted = []
    same((sorted(os.listdir(out)), "](pressure-put.svg)" in p.stdout), (sorted(wanted), bool(wanted)), "pictures")


@test()
def what_is_no_result_is_refused(ctx):
    path = f"{ctx.temp('files')}/x.json"
    for text, why in (("{", "line 1"), ("{}", "not written by fluxkv-bench"), ("[]", "not written by fluxkv-bench")):
        with open(path, "w") as f:
            f.write(text)
        check(why in report(path, status=1).stderr, f"{text}: {why}")
    check("No such file" in report("/no/such", status=1).stderr, "a file that is not there")
    check("less than FILE..." in report(status=2).stderr, "no file")


run(globals())
