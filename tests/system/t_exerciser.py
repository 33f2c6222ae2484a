# SPDX-License-Identifier: Apache-2.0
"""The exerciser against the file system, with and without eviction, and against its own lies."""
import os
import re
import subprocess

from lib import EXERCISER, FLUXKV, LONG, SLOW, Failed, Skip, check, diag, run, test, write_file

SEEDS = [int(s) for s in os.environ.get("FLUXKV_TEST_SEEDS", "1,2,3").split(",")]


def exercise(ctx, *options, want=0, where=None, timeout=600):
    if not os.access(EXERCISER, os.X_OK):
        raise Skip(f"{EXERCISER} is not built")
    command = [EXERCISER, f"--semantics={ctx.semantics}", *options, where or ctx.dir()]
    p = subprocess.run(command, capture_output=True, text=True, timeout=timeout * SLOW, check=False)
    if p.returncode != want:
        raise Failed(f"{' '.join(command)} ends with {p.returncode}\n{p.stdout[-6000:]}{p.stderr}")
    return p.stdout


def result(out, word):
    return int(re.search(rf"\b{word}=(\d+)", out).group(1))


def operations(few, many=200000):
    """Of the few a part where all is slow, under sanitizers: they look for other faults than the model does."""
    return many if LONG else few // 3 if SLOW > 1 else few


@test(timeout=120, long_timeout=1800)
def random_operations(ctx):
    ops = operations(20000)
    for seed in SEEDS:
        diag(exercise(ctx, f"--seed={seed}", f"--ops={ops}", "--threads=2", "--files=8").strip())


@test(timeout=120, long_timeout=1800)
def random_operations_of_many_threads_on_small_files(ctx):
    ops = operations(20000)
    exercise(ctx, "--seed=11", f"--ops={ops}", "--threads=8", "--files=4", "--max-size=64KB")


@test(timeout=120, long_timeout=1800)
def random_operations_on_few_large_files(ctx):
    ops = operations(3000, 50000)
    exercise(ctx, "--seed=12", f"--ops={ops}", "--threads=2", "--files=2", "--max-size=9MB")


@test(timeout=60)
def every_lie_is_found(ctx):
    """A check of the checker: a file system that answers wrongly once is caught."""
    for kind in ("flip", "short", "zero", "write", "trunc", "rename", "unlink", "missing", "mapped"):
        for at in (1, 20):
            where = ctx.temp("lie")
            out = subprocess.run([EXERCISER, "--seed=5", "--ops=20000", f"--break={kind}:{at}", where],
                                 capture_output=True, text=True, timeout=60, check=False)
            check(out.returncode == 1 and "DIFFERENCE at seed 5" in out.stdout,
                  f"--break={kind}:{at} is not found: exit {out.returncode} {out.stdout[-300:]}")


@test(fluxkv=True, timeout=60)
def readers_hold_versions(ctx):
    """The model of plain POSIX must not fit a FluxKV mount, or the exerciser does not look at held versions."""
    out = subprocess.run([EXERCISER, "--seed=5", "--ops=20000", "--semantics=posix", ctx.dir()], capture_output=True,
                         text=True, timeout=60 * SLOW, check=False)
    check(out.returncode == 1, f"exit {out.returncode}: {out.stdout[-500:]}")


@test(fluxkv=True, timeout=180, long_timeout=1800)
def random_operations_with_forced_eviction(ctx):
    d = ctx.daemon(dram="512MB", ssd="1GB").start()
    os.mkdir(f"{d.mnt}/ex")
    tool = f"{FLUXKV} --socket {d.socket} evict --force --tier"
    ops = operations(40000)
    script = f"{d.dir}/evict"
    # From either tier alone, where the other has it, or from both, so that the name is gone.
    write_file(script, f"""#!/bin/sh
case $(shuf -i 0-2 -n 1) in
0) tiers=dram ;;
1) tiers=ssd ;;
2) tiers="ssd dram" ;;
esac
busy=1
for t in $tiers; do {tool} "$t" "$1" 2>/dev/null && busy=0; done
exit $busy
""".encode())
    os.chmod(script, 0o755)
    for seed in SEEDS:
        before = d.status()
        out = exercise(ctx, f"--seed={seed}", f"--ops={ops}", f"--evict-cmd={script}", where=f"{d.mnt}/ex/{seed}")
        diag(out.strip())
        check(result(out, "evicted") > 0, f"seed {seed}: no name was found evicted")
        check(d.status()["evictions"]["dram"] > before["evictions"]["dram"], "nothing was evicted from memory")
    d.check_empty()


@test(fluxkv=True, timeout=180, long_timeout=1800)
def random_operations_at_full_memory_without_ssd(ctx):
    """Files of far more than the memory: what is closed may vanish, never change."""
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ex")
    out = exercise(ctx, "--seed=21", f"--ops={200000 if LONG else 10000}", "--threads=4", "--files=40",
                   "--max-size=4MB", "--evict-any", where=f"{d.mnt}/ex/full")
    diag(out.strip())
    check(result(out, "evicted") > 0, "nothing was evicted: the test does not fill the memory")
    d.check_empty()


@test(fluxkv=True, timeout=180, long_timeout=1800)
def random_operations_through_a_small_memory_with_ssd(ctx):
    """The same with an SSD tier that has room: nothing may vanish."""
    d = ctx.daemon(dram="128MB", ssd="2GB").start()
    os.mkdir(f"{d.mnt}/ex")
    exercise(ctx, "--seed=22", f"--ops={operations(40000)}", "--threads=4", "--files=120", "--max-size=4MB",
             where=f"{d.mnt}/ex/ssd")
    s = d.status()
    diag(f"evictions {s['evictions']}, hits {s['hits']}")
    check(not LONG or s["evictions"]["dram"] > 0 and s["hits"]["ssd_local"] > 0, "memory was not too small")
    d.check_empty()


run(globals())
