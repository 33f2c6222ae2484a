# SPDX-License-Identifier: Apache-2.0
"""The fluxkv tool, on a mount of its own: every command, what it prints, how it fails."""
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

from lib import (BUILD_DIR, FLUXKV, MIB, SLOW, Skip, big_stamped, check, check_bytes, left_behind, process_state, read_file,
                 run, same, test, wait_for, write_file)

FAILED, USAGE, UNREACHABLE = 1, 2, 3


def start(ctx, **options):
    d = ctx.daemon(dram="64MB", ssd="128MB", **options).start()
    os.mkdir(f"{d.mnt}/ns")
    return d


def says(d, status, words, *args, **kwargs):
    """The command must end with that status and one line that has the words."""
    p = d.cli(*args, ok=False, **kwargs)
    text = f"fluxkv {' '.join(args)}: {p.returncode} {p.stderr!r}"
    same(p.returncode, status, text)
    same(len(p.stderr.strip().splitlines()), 1, f"lines of {text}")
    for w in [words] if isinstance(words, str) else words:
        check(re.search(w, p.stderr), f"no {w!r} in {text}")
    return p


def entries(d, path):
    return {e["name"]: e for e in map(json.loads, d.cli("ls", "--json", path).stdout.splitlines())}


def on_both_tiers(d, path):
    def both():
        s = json.loads(d.cli("stat", "--json", path).stdout)
        return s["blocks"] == s["in_dram"] == s["in_ssd"]
    wait_for(both, f"{path} is on both tiers", 20)


@test(fluxkv=True)
def the_mount_that_is_meant_is_named(ctx):
    """Where no socket is found, the mount of the path or of the current directory, not another one's."""
    daemons = [ctx.daemon(dram="16MB").start() for _ in range(3)]
    empty = ctx.temp("run")
    for d in daemons:
        for args, cwd in (([d.mnt], "/"), ([f"{d.mnt}/x/y"], "/"), ([], d.mnt), (["x"], d.mnt)):
            p = subprocess.run([FLUXKV, "--run-dir", empty, "ls", *args], capture_output=True, text=True, cwd=cwd,
                               check=False, timeout=20 * SLOW)
            check(p.returncode != 0 and f"the daemon that serves {d.mnt} is not found" in p.stderr,
                  f"ls {args} in {cwd}: {p.stderr}")


@test(fluxkv=True)
def blocks_that_no_ring_can_take_are_told(ctx):
    d = ctx.daemon(dram="16MB", ssd="64MB").start()
    check("the SSD tier takes blocks of at most 16" in d.log_text(), f"the log: {d.log_text()}")
    fits = ctx.daemon(dram="16MB", ssd="64MB", block_size="8MiB").start()
    check("takes blocks of at most" not in fits.log_text(), f"the log: {fits.log_text()}")


@test(fluxkv=True)
def usage_and_help(ctx):
    d = start(ctx)
    for args, words in ((["stauts"], "did you mean 'status'"), (["frobnicate"], "no command"),
                        (["standalone", d.mnt, "-o", "rw,remount"], "to mount: fluxkvd"), ([], "which command"),
                        (["ls", "--frob"], ["--frob", "fluxkv help ls"]), (["ls", "-x"], "-x"),
                        (["evict", "ns/f"], "--tier"), (["evict", "--tier", "tape", "ns/f"], "dram or ssd"),
                        (["evict", "--tier"], "needs a value"), (["ns", "lsit"], "did you mean 'ns list'"),
                        (["ns", "rm"], "which namespace"), (["ns", "list", "x"], "no name"), (["ns", "set", "ns"], "what"),
                        (["ttl", "ns/f", "soon"], "30m"), (["ttl", "ns/f", "0"], "30m"),
                        (["ttl", "ns/f", "2w"], "30m"), (["ttl", "ns/f", "46297d"], "4000000000"),
                        (["ttl", "ns/f", "-1"], "-1"), (["top", "-d", "0"], "0.1"), (["top", "-n", "x"], "number"),
                        (["ns", "create", "x", "--block-size", "12345"], "power of two"),
                        (["ns", "create", "x", "--persist", "perhaps"], "yes or no"),
                        (["--instance", "x", "status"], "--socket"), (["--socket", "", "status"], "--socket: the path is empty"),
                        (["stat", ""], "an empty path"), (["rm", "-r", ""], "an empty path"), (["put", "/etc/passwd", ""], "an empty path"),
                        (["get", "ns/f", ""], "an empty path"), (["rm", "-r", d.mnt], "the root"), (["rm", "-r", "."], "the root"),
                        (["put", "-", "ns/"], "ns/NAME"), (["fr\nob\033[2J"], r"no command 'fr\?ob\?\[2J'")):
        says(d, USAGE, words, *args)
    same(os.listdir(d.mnt), ["ns"], "nothing was removed")
    says(d, FAILED, "NAMESPACE/KEY", "put", "/etc/passwd", "x")
    for args, status, words in ((["--instance", ""], USAGE, "not a name"), (["--instance", "../x"], USAGE, "not a name"),
                                (["--run-dir", ""], USAGE, "--run-dir: the path is empty"),
                                (["--socket", "/etc/passwd"], UNREACHABLE, "/etc/passwd is not a socket")):
        p = subprocess.run([FLUXKV, *args, "status"], capture_output=True, text=True, timeout=20 * SLOW, check=False)
        same(p.returncode, status, f"{args}: {p.stderr!r}")
        check(words in p.stderr and len(p.stderr.splitlines()) == 1, p.stderr)
    p = d.cli("stat", ok=False)
    same((p.returncode, len(p.stderr.splitlines())), (USAGE, 2), "what is missing, and the usage")
    overview = d.cli("help").stdout
    commands = re.findall(r"^  ([a-z]+) ", overview[overview.index("Commands:"):overview.index("Options:")], re.M)
    check(len(commands) == 15, commands)
    for c in commands:
        check(d.cli("help", c).stdout.startswith(f"usage: fluxkv {c} "), f"help {c}")
        same(d.cli(c, "--help").stdout, d.cli("help", c).stdout, f"{c} --help")
    check("fluxkv " in d.cli("--version").stdout, "--version")
    d.stop()


@test(fluxkv=True)
def put_and_get(ctx):
    d = start(ctx)
    local = ctx.temp("local")
    for size in (0, 1, 4095, MIB, 4 * MIB, 9 * MIB + 17):
        data = big_stamped("put", size, size)
        write_file(f"{local}/src", data)
        d.cli("put", f"{local}/src", f"ns/{size}")
        check_bytes(read_file(f"{d.mnt}/ns/{size}"), data, f"put of {size} bytes")
        d.cli("get", f"ns/{size}", f"{local}/dst")
        check_bytes(read_file(f"{local}/dst"), data, f"get of {size} bytes")
        p = subprocess.run([FLUXKV, "--socket", d.socket, "put", "-", f"ns/pipe{size}"], input=data, check=True)
        p = subprocess.run([FLUXKV, "--socket", d.socket, "get", f"ns/pipe{size}", "-"], capture_output=True, check=True)
        check_bytes(p.stdout, data, f"through pipes, {size} bytes")
        same(p.stderr, b"", "no progress where there is no terminal")
    d.cli("put", f"{local}/src", "ns")
    d.cli("put", f"{local}/src", "ns/deep/er/", "-p")
    check_bytes(read_file(f"{d.mnt}/ns/src"), data, "a directory as the target")
    check_bytes(read_file(f"{d.mnt}/ns/deep/er/src"), data, "--parents")
    os.mkdir(f"{local}/in")
    d.cli("get", "ns/src", f"{local}/in")
    check_bytes(read_file(f"{local}/in/src"), data, "get into a directory")
    d.cli("get", "ns/src", "/dev/null")
    check(os.path.exists("/dev/null") and not os.path.isfile("/dev/null"), "/dev/null is still a device")
    with open(f"{local}/src", "rb") as f:
        f.seek(MIB)
        subprocess.run([FLUXKV, "--socket", d.socket, "put", "-", "ns/rest"], stdin=f, check=True)
    check_bytes(read_file(f"{d.mnt}/ns/rest"), data[MIB:], "the rest of a file as standard input")
    same([n for n in os.listdir(f"{d.mnt}/ns") + os.listdir(local) if n.startswith(".")], [], "temporary files")
    d.stop()


@test(fluxkv=True)
def failed_transfers_leave_nothing(ctx):
    d = start(ctx)
    local = ctx.temp("local")
    write_file(f"{local}/src", b"source")
    write_file(f"{d.mnt}/ns/old", b"old")
    says(d, FAILED, "No such file", "put", f"{local}/none", "ns/x")
    says(d, FAILED, "is a directory", "put", local, "ns/x")
    says(d, FAILED, ["nowhere/x", "--parents"], "put", f"{local}/src", "nowhere/x")
    says(d, FAILED, "ns create", "put", f"{local}/src", "nowhere/")
    says(d, USAGE, "no name", "put", "-", "ns", stdin=subprocess.DEVNULL)
    says(d, FAILED, "no such object", "get", "ns/none", f"{local}/x")
    says(d, FAILED, "fluxkv ls", "get", "ns", f"{local}/x")
    says(d, FAILED, f"{local}/none/x", "get", "ns/old", f"{local}/none/x")
    # More than both tiers can hold in one value: the exact error, and the name is as before.
    with open(f"{local}/big", "wb") as f:
        f.truncate(300 * MIB)
    says(d, FAILED, ["no space left after \\d+ of 314572800 bytes"], "put", f"{local}/big", "ns/old")
    check_bytes(read_file(f"{d.mnt}/ns/old"), b"old", "the old value, after a put that failed")
    # A source that ends early: a pipe has no length, a file that shrinks has.
    p = subprocess.run(["sh", "-c", f'"{FLUXKV}" --socket "{d.socket}" get ns/old /dev/full'], capture_output=True, text=True,
                       check=False)
    same(p.returncode, FAILED, "get to a full device")
    check("No space" in p.stderr or "no space" in p.stderr, p.stderr)
    # Interrupted: what was begun is gone.
    p = subprocess.Popen([FLUXKV, "--socket", d.socket, "put", "-", "ns/interrupted"], stdin=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    p.stdin.write("x" * 100000)
    p.stdin.flush()
    wait_for(lambda: [n for n in os.listdir(f"{d.mnt}/ns") if n.startswith(".")], "the temporary file is there")
    p.send_signal(signal.SIGINT)
    same(p.wait(10 * SLOW), FAILED, "an interrupted put")
    check("interrupted" in p.stderr.read(), "it says so")
    same(sorted(os.listdir(f"{d.mnt}/ns")), ["old"], "names")
    same(sorted(os.listdir(local)), ["big", "src"], "local names")
    d.stop()


@test(fluxkv=True)
def paths(ctx):
    d = start(ctx)
    write_file(f"{d.mnt}/ns/f", b"f")
    os.makedirs(f"{d.mnt}/ns/a/b")
    write_file(f"{d.mnt}/ns/a/b/g", b"g")
    link = f"{d.dir}/link"
    os.symlink(d.mnt, link)
    for cwd, path in (("/", "ns/f"), ("/", f"{d.mnt}/ns/f"), (d.mnt, "ns/f"), (f"{d.mnt}/ns", "f"),
                      (f"{d.mnt}/ns/a/b", "../../f"), (d.dir, "mnt/ns/f"), ("/", "ns//./f"), ("/", f"{link}/ns/f"),
                      ("/", "ns/a/../f")):
        same(json.loads(d.cli("stat", "--json", path, cwd=cwd).stdout)["path"], "ns/f", f"{path} from {cwd}")
    same(d.cli("ls", cwd=f"{d.mnt}/ns/a").stdout, "b/\n", "ls of the current directory")
    same(d.cli("ls", f"{d.mnt}/ns/f").stdout, "f\n", "ls of a file")
    same(d.cli("ls").stdout, "ns/\n", "ls of the root")
    same(d.cli("get", "f", "-", cwd=f"{d.mnt}/ns").stdout, "f", "get from the current directory")
    says(d, USAGE, "not below the mount point", "stat", "/etc/passwd")
    says(d, USAGE, "above the root", "stat", "../x", cwd="/")
    says(d, FAILED, "no such object", "stat", "ns/none")
    says(d, FAILED, "not a directory", "stat", "ns/f/x")
    says(d, FAILED, "too long", "stat", "ns/" + "x" * 256)
    p = d.cli("stat", "ns/f", "ns/none", "ns/a", ok=False)
    same(p.returncode, FAILED, "one of several is not there")
    check("ns/f:" in p.stdout and "ns/a:" in p.stdout, "the others are shown")
    os.unlink(link)
    d.stop()


@test(fluxkv=True)
def somewhere_on_the_mount(ctx):
    """In a bind mount, and deeper than a path can be, a relative name is not one from the mount's root."""
    d = start(ctx)
    os.makedirs(f"{d.mnt}/ns/x")
    os.makedirs(f"{d.mnt}/other/ns/x")
    bound = ctx.temp("bound")
    subprocess.run(["mount", "--bind", d.mnt, bound], check=True)
    try:
        p = d.cli("rm", "-r", "ns/x", ok=False, cwd=f"{bound}/other")
        check(p.returncode == USAGE and "whole path" in p.stderr, f"{p.returncode} {p.stderr}")
    finally:
        subprocess.run(["umount", bound], check=True)
    before = os.getcwd()
    os.chdir(f"{d.mnt}/other")
    try:
        for _ in range(20):
            os.mkdir("q" * 250)
            os.chdir("q" * 250)
        p = d.cli("rm", "-r", "ns/x", ok=False)
        check(p.returncode == USAGE and "whole path" in p.stderr, f"{p.returncode} {p.stderr}")
    finally:
        os.chdir(before)
    check(os.path.isdir(f"{d.mnt}/ns/x"), "what has the same name at the root stays")
    shutil.rmtree(f"{d.mnt}/other")
    d.cli("rm", "-r", "ns/x")
    d.stop()


@test(fluxkv=True)
def names_of_any_bytes(ctx):
    d = start(ctx)
    names = [b"plain", b"with blank", b"50%", b"\xff\xfe", "grün".encode(), b"new\nline", b"\x1b[31m", b"-r", b"\xed\xa0\x80"]
    for n in names:
        with open(os.path.join(os.fsencode(d.mnt), b"ns", n), "wb") as f:
            f.write(n)
    listed = subprocess.run([FLUXKV, "--socket", d.socket, "ls", "ns"], capture_output=True, check=True).stdout
    same(sorted(listed), sorted(b"".join(n + b"\n" for n in names)), "bytes of the listing")
    check("50%25" in entries(d, "ns") and "%FF%FE" in entries(d, "ns") and "grün" in entries(d, "ns"), "names in JSON")
    for n in names:
        got = subprocess.run([os.fsencode(FLUXKV), b"--socket", os.fsencode(d.socket), b"get", b"ns/" + n, b"-"],
                             capture_output=True, check=True).stdout
        same(got, n, "what the name holds")
    subprocess.run([FLUXKV, "--socket", d.socket, "rm", "-r", "ns"], check=True)
    same(os.listdir(d.mnt), [], "rm -r of the namespace")
    d.stop()


@test(fluxkv=True)
def tiers(ctx):
    d = start(ctx)
    for n in ("a", "b", "c"):
        write_file(f"{d.mnt}/ns/{n}", big_stamped(n, 1, 3 * MIB))
        on_both_tiers(d, f"ns/{n}")
    d.cli("evict", "--tier", "dram", "ns/a")
    d.cli("evict", "-t", "ssd", "ns/b")
    letters = {line.split()[-1]: line.split()[0] for line in d.cli("ls", "-l", "ns").stdout.splitlines()}
    same(letters, {"a": "-S--", "b": "D---", "c": "DS--"}, "letters of ls -l")
    same([(e["in_dram"], e["in_ssd"]) for e in entries(d, "ns").values()], [(0, 1), (1, 0), (1, 1)], "ls --json")
    says(d, FAILED, "no copy on that tier", "evict", "--tier", "dram", "ns/a")
    says(d, FAILED, "--force", "evict", "--tier", "ssd", "ns/a")
    with open(f"{d.mnt}/ns/b", "rb") as f:
        says(d, FAILED, "in use", "evict", "--force", "--tier", "dram", "ns/b")
        f.read(1)
    write_file(f"{d.mnt}/ns/held", big_stamped("held", 1, 3 * MIB))
    on_both_tiers(d, "ns/held")
    with open(f"{d.mnt}/ns/held", "rb") as f:
        d.cli("evict", "--force", "--tier", "ssd", "ns/held")
        check_bytes(f.read(), big_stamped("held", 1, 3 * MIB), "an open object that has lost one of two copies")
        same(os.fstat(f.fileno()).st_nlink, 1, "its links")
    os.unlink(f"{d.mnt}/ns/held")
    d.cli("prefetch", "ns/a")
    on_both_tiers(d, "ns/a")
    check_bytes(read_file(f"{d.mnt}/ns/a"), big_stamped("a", 1, 3 * MIB), "a, brought back")
    d.cli("evict", "--force", "--tier", "dram", "ns/b")
    check(not os.path.exists(f"{d.mnt}/ns/b"), "an object without a copy is gone")
    says(d, FAILED, "no such object", "stat", "ns/b")
    says(d, FAILED, "--recursive", "evict", "--tier", "dram", "ns")
    d.cli("evict", "-r", "--tier", "dram", "ns")
    same([(e["in_dram"], e["in_ssd"]) for e in entries(d, "ns").values()], [(0, 1), (0, 1)], "evict -r")
    # Once more: what has no copy there is as it was wanted. And one that is refused keeps no other.
    d.cli("evict", "-r", "--tier", "dram", "ns")
    write_file(f"{d.mnt}/ns/0empty", b"")
    d.cli("prefetch", "-r", "ns/a", "ns/c")
    d.cli("evict", "-r", "--tier", "ssd", "ns/c")
    says(d, FAILED, "ns/c: its last copy", "evict", "-r", "--tier", "dram", "ns")
    same({n: (e["in_dram"], e["in_ssd"]) for n, e in entries(d, "ns").items() if n != "0empty"},
         {"a": (0, 1), "c": (1, 0)}, "evict -r beside one that is refused")
    d.cli("pin", "ns/c")
    says(d, FAILED, "pinned", "evict", "-f", "--tier", "dram", "ns/c")
    check_bytes(read_file(f"{d.mnt}/ns/c"), big_stamped("c", 1, 3 * MIB), "pinned, and not evicted by force")
    d.cli("unpin", "ns/c")
    os.unlink(f"{d.mnt}/ns/0empty")
    d.cli("prefetch", "-r", "ns")
    same([(e["in_dram"], e["in_ssd"]) for e in entries(d, "ns").values()], [(1, 1), (1, 0)], "prefetch -r")
    d.stop()


@test(fluxkv=True)
def pin_and_ttl(ctx):
    d = start(ctx)
    write_file(f"{d.mnt}/ns/f", big_stamped("f", 1, MIB))
    d.cli("pin", "ns/f")
    same(os.getxattr(f"{d.mnt}/ns/f", "user.fluxkv.pin"), b"1", "the pin, as an attribute")
    check(entries(d, "ns")["f"]["pin"], "the pin in ls")
    d.cli("unpin", "ns/f")
    same(os.getxattr(f"{d.mnt}/ns/f", "user.fluxkv.pin"), b"0", "unpinned")
    d.cli("pin", "-r", "ns")
    check(entries(d, "ns")["f"]["pin"], "pin -r")
    d.cli("ttl", "ns/f", "100")
    left = int(os.getxattr(f"{d.mnt}/ns/f", "user.fluxkv.ttl"))
    check(98 <= left <= 100, f"seconds left: {left}")
    d.cli("ttl", "ns/f", "2h")
    left = int(os.getxattr(f"{d.mnt}/ns/f", "user.fluxkv.ttl"))
    check(7190 <= left <= 7200, f"seconds left of two hours: {left}")
    d.cli("ttl", "ns/f", "none")
    same(json.loads(d.cli("stat", "--json", "ns/f").stdout)["expires_ns"], 0, "no expiry")
    d.cli("ttl", "ns/f", "1")
    wait_for(lambda: not os.path.exists(f"{d.mnt}/ns/f"), "the file expires", 5)
    # What is being written has them, too, and keeps them when it is published. (The tool must not close the file.)
    fd = os.open(f"{d.mnt}/ns/w", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(fd, True)
    os.write(fd, b"x")
    listed = d.cli("ls", "--json", "ns", pass_fds=[fd]).stdout
    d.cli("pin", "ns/w", pass_fds=[fd])
    os.close(fd)
    same(json.loads(listed)["private"], True, "being written")
    check(entries(d, "ns")["w"]["pin"], "pinned while it was written")
    says(d, FAILED, "recursive", "pin", "ns")
    d.stop()


@test(fluxkv=True)
def removing(ctx):
    d = start(ctx)
    os.makedirs(f"{d.mnt}/ns/a/b/c")
    for i in range(600):
        write_file(f"{d.mnt}/ns/a/b/{i}", b"x")
    write_file(f"{d.mnt}/ns/f", b"x")
    says(d, FAILED, "--recursive", "rm", "ns/a")
    d.cli("rm", "ns/f")
    check(not os.path.lexists(f"{d.mnt}/ns/f"), "the name is gone at once")
    same(os.listdir(f"{d.mnt}/ns"), ["a"], "listing")
    d.cli("rm", "-r", "ns/a")
    same(os.listdir(f"{d.mnt}/ns"), [], "listing after rm -r")
    says(d, FAILED, "no such object", "rm", "ns/a")
    # An open handle goes on.
    write_file(f"{d.mnt}/ns/held", big_stamped("held", 1, MIB))
    with open(f"{d.mnt}/ns/held", "rb") as f:
        d.cli("rm", "ns/held")
        check_bytes(f.read(), big_stamped("held", 1, MIB), "a removed file that is open")
    d.stop()


@test(fluxkv=True)
def namespaces(ctx):
    d = start(ctx)
    d.cli("ns", "create", "kvcache/v1", "--block-size", "1MiB", "--ttl", "3600", "--persist", "no", "--mode", "0750")
    same(os.stat(f"{d.mnt}/kvcache/v1").st_mode & 0o7777, 0o750, "its mode")
    listed = {n["name"]: n for n in json.loads(d.cli("ns", "list", "--json").stdout)}
    same(sorted(listed), ["kvcache/v1", "ns"], "names")
    ns = listed["kvcache/v1"]
    same((ns["block_size"], ns["ttl_seconds"], ns["persist"]), (MIB, 3600, False), "attributes")
    write_file(f"{d.mnt}/kvcache/v1/f", big_stamped("f", 1, 3 * MIB))
    s = json.loads(d.cli("stat", "--json", "kvcache/v1/f").stdout)
    same(s["blocks"], 3, "blocks of an object")
    check(0 < s["expires_ns"] - time.time_ns() <= 3600e9, "its expiry")
    time.sleep(0.3)
    same(json.loads(d.cli("stat", "--json", "kvcache/v1/f").stdout)["in_ssd"], 0, "not persisted")
    d.cli("ns", "set", "kvcache/v1", "--persist", "yes", "--ttl", "none")
    write_file(f"{d.mnt}/kvcache/v1/g", big_stamped("g", 1, 2 * MIB))
    on_both_tiers(d, "kvcache/v1/g")
    same(json.loads(d.cli("stat", "--json", "kvcache/v1/g").stdout)["expires_ns"], 0, "no expiry any more")
    says(d, FAILED, "not empty", "ns", "rm", "kvcache/v1")
    says(d, FAILED, "already", "ns", "create", "ns")
    says(d, FAILED, "no such namespace", "ns", "rm", "none")
    says(d, FAILED, "no such namespace", "ns", "set", "none", "--ttl", "5")
    says(d, FAILED, "", "ns", "create", "a//b/../c")
    d.cli("rm", "-r", "kvcache/v1/f", "kvcache/v1/g")
    d.cli("ns", "rm", "kvcache/v1")
    check("kvcache" not in d.cli("ns", "list").stdout, "it is gone")
    d.stop()


@test(fluxkv=True)
def status_numbers(ctx):
    d = start(ctx)
    for i in range(10):
        write_file(f"{d.mnt}/ns/{i}", big_stamped("s", i, MIB))
        read_file(f"{d.mnt}/ns/{i}")
    check(not os.path.exists(f"{d.mnt}/ns/none"), "a miss")
    wait_for(lambda: d.status()["persists"]["done"] == 10, "all are persisted", 10)
    s = d.status()
    same((s["instance"], s["mountpoint"], s["source"], s["pid"]), (d.instance, d.mnt, "standalone", d.pid), "who it is")
    same((s["dram"]["capacity"], s["ssd"]["capacity"]), (64 * MIB, 128 * MIB), "capacities")
    same((s["dram"]["used"], s["dram"]["objects"], s["dram"]["reserved"]), (10 * MIB, 10, 0), "the memory tier")
    same((s["ssd"]["objects"], len(s["ssd"]["devices"])), (10, 1), "the SSD tier")
    same(sum(s["hits"].values()), 10, "hits")
    same((s["hits"]["memory_local"], s["hits"]["unknown"]), (10, 0), "hits by source")
    check(s["misses"]["never_stored"] >= 1, "misses")
    same((s["puts"]["done"], s["puts"]["bytes"]), (10, 10 * MIB), "puts")
    same(s["fs"]["max_write"], MIB, "the largest request")
    text = d.cli("status").stdout
    for word in ("dram", "ssd", "hits", "misses", "64 MiB", "128 MiB", d.mnt, d.instance):
        check(word in text, f"{word} is not in the status:\n{text}")
    metrics = dict(line.rsplit(" ", 1) for line in read_file(f"{d.mnt}/.fluxkv/metrics").decode().splitlines()
                   if not line.startswith("#"))
    for name, value in (("kvcache_segment_capacity_bytes", 64 * MIB), ("kvcache_segment_used_bytes", 10 * MIB),
                        ("kv_ssd_capacity_bytes", 128 * MIB), ('fluxkv_hits_total{source="memory-local"}', 10),
                        ('fluxkv_hits_total{source="unknown"}', 0), ("fluxkv_puts_total", 10),
                        ('fluxkv_evictions_total{tier="dram"}', 0)):
        same(int(metrics[name]), value, name)
    check(int(metrics["kv_ssd_used_bytes"]) >= 10 * MIB, "kv_ssd_used_bytes")
    # Each family has its help and type, and stands in one place.
    families = re.findall(r"^# TYPE (\w+) ", read_file(f"{d.mnt}/.fluxkv/metrics").decode(), re.M)
    same(len(families), len(set(families)), "families of metrics")
    same({name.split("{")[0] for name in metrics} - set(families), set(), "metrics without a type")
    d.stop()


@test(fluxkv=True)
def finding_the_daemon(ctx):
    a = start(ctx, instance="one")
    b = ctx.daemon(instance="two")
    env = {**os.environ, "FLUXKV_RUN_DIR": a.run_dir}
    env.pop("FLUXKV_SOCKET", None)

    def tool(*args, cwd="/", **more):
        return subprocess.run([FLUXKV, *args], capture_output=True, text=True, cwd=cwd, env={**env, **more}, timeout=30 * SLOW,
                              check=False)

    def instance(*args, **kwargs):
        p = tool(*args, "status", "--json", **kwargs)
        same(p.returncode, 0, f"{args}: {p.stderr}")
        return json.loads(p.stdout)["instance"]

    same(instance(), "one", "the only one")
    b.run_dir = a.run_dir
    b.start()
    p = tool("status")
    same(p.returncode, USAGE, "two of them")
    check("one, two" in p.stderr and "--instance" in p.stderr, p.stderr)
    same(instance("--instance", "two"), "two", "--instance")
    same(instance("--socket", a.socket), "one", "--socket")
    same(instance(FLUXKV_SOCKET=b.socket), "two", "FLUXKV_SOCKET")
    same(instance(cwd=b.mnt), "two", "from below its mount point")
    same(tool("ls", a.mnt).stdout, "ns/\n", "by the path")
    b.kill()
    same(instance(), "one", "one that died does not count")
    same(tool("--instance", "two", "status").returncode, UNREACHABLE, "the one that died")
    check("start it again" in tool("--instance", "two", "status").stderr, "what to do")
    same(tool("--instance", "three", "status").returncode, UNREACHABLE, "one that never was")
    b.end()
    a.stop()
    p = tool("status")
    same(p.returncode, UNREACHABLE, "none")


@test(fluxkv=True)
def the_socket(ctx):
    d = start(ctx)
    same(os.stat(d.socket).st_mode & 0o777, 0o600, "its mode")

    def talk(data, timeout=10):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(timeout * SLOW)
            s.connect(d.socket)
            s.sendall(data)
            got = b""
            try:
                while part := s.recv(65536):
                    got += part
            except socket.timeout:
                got += b"TIMEOUT"
            except ConnectionResetError:
                got += b"RESET"
            return got

    for bad in (b"nonsense\n", b"[]\n", b"{\n", b"\n", b"\xff\xfe\n", b'{"op": "status", "op": "ls"}\n', b"{} x\n", b"[" * 3000 + b"\n"):
        answers = talk(bad).splitlines()
        same(len(answers), 1, f"answers to {bad[:20]!r}")
        same(json.loads(answers[0])["ok"], False, f"answer to {bad[:20]!r}")
    check(b"too long" in talk(b" " * 70000), "a request that is too long")
    # Malformed requests of the right form: one error each, and the connection goes on.
    requests = [{}, {"op": 1}, {"op": "frobnicate"}, {"op": "stat"}, {"op": "stat", "path": 1}, {"op": "stat", "path": "%zz"},
                {"op": "stat", "path": "a/" * 3000}, {"op": "stat", "path": "x" * 300}, {"op": "evict", "path": "ns"},
                {"op": "evict", "path": "ns", "tier": "dram"}, {"op": "pin", "path": "ns"}, {"op": "ttl", "path": "ns"},
                {"op": "ttl", "path": "ns", "seconds": -1}, {"op": "rmdir", "path": ""}, {"op": "rm", "path": ""},
                {"op": "ns_create"}, {"op": "ns_create", "name": ""}, {"op": "ns_create", "name": "x" * 1024},
                {"op": "ns_create", "name": "x", "block_size": 5}, {"op": "ns_create", "name": "x", "ttl_seconds": "5"},
                {"op": "ns_create", "name": "x", "mode": 99999}]
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20 * SLOW)
        s.connect(d.socket)
        f = s.makefile("rwb")
        for r in requests:
            f.write(json.dumps(r).encode() + b"\n")
            f.flush()
            answer = json.loads(f.readline())
            same(answer["ok"], False, f"answer to {r}: {answer}")
            check(answer["error"] and "\n" not in answer["error"] and answer["errno"] > 0, f"answer to {r}: {answer}")
        f.write(b'{"op": "hello"}\n')
        f.flush()
        same(json.loads(f.readline())["instance"], d.instance, "after all of them")
    same(os.listdir(d.mnt), ["ns"], "nothing was made")
    # Connections that say nothing hold nobody up; more than may be are told so.
    idle = []
    for _ in range(40):
        s = socket.socket(socket.AF_UNIX)
        s.connect(d.socket)
        idle.append(s)
    p = d.cli("status", ok=False)
    same(p.returncode, UNREACHABLE, "one more than may be")
    check("as many" in p.stderr, p.stderr)
    for s in idle:
        s.close()
    wait_for(lambda: d.cli("status", ok=False).returncode == 0, "connections are free again", 5)
    # One that does not take its answers cannot hold the end up.
    s = socket.socket(socket.AF_UNIX)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(d.socket)
    s.setblocking(False)
    try:
        while True:
            s.send(b'{"op": "status"}\n' * 100)
    except BlockingIOError:
        pass
    started = time.monotonic()
    d.stop()
    check(time.monotonic() - started < 8 * SLOW, "a connection that does not read holds up the end")
    s.close()
    same(os.path.lexists(d.socket), False, "the socket is removed")


@test(fluxkv=True)
def who_may_do_what(ctx):
    d = ctx.daemon(dram="64MB", control_mode="0666", control_socket=f"{ctx.base}/sock").start()
    os.chmod(ctx.base, 0o755)
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", b"x")

    def as_nobody(*args):
        return subprocess.run([FLUXKV, "--socket", f"{ctx.base}/sock", *args], capture_output=True, text=True, timeout=30 * SLOW,
                              user=65534, group=65534, extra_groups=[], check=False)

    def looking_around(*args, env=None):
        return subprocess.run([FLUXKV, *args], capture_output=True, text=True, timeout=30 * SLOW, user=65534, group=65534,
                              extra_groups=[], check=False, env=env or {**os.environ, "FLUXKV_RUN_DIR": d.run_dir})

    if as_nobody("--version").returncode:
        subprocess.run(["true"], check=True)
        diag_text = as_nobody("--version").stderr
        check("denied" in diag_text or "Permission" in diag_text, diag_text)
    same(as_nobody("status").returncode, 0, "status as another user")
    same(as_nobody("ls", "ns").stdout, "f\n", "ls as another user")
    for args in (["rm", "ns/f"], ["evict", "--tier", "dram", "ns/f"], ["pin", "ns/f"], ["ns", "create", "x"], ["ttl", "ns/f", "1"]):
        p = as_nobody(*args)
        same(p.returncode, FAILED, f"{args} as another user")
        check("only root" in p.stderr, p.stderr)
    os.chmod(f"{ctx.base}/sock", 0o600)
    p = as_nobody("status")
    same(p.returncode, UNREACHABLE, "a socket of 0600")
    check("permission denied" in p.stderr.lower(), p.stderr)
    check(os.path.exists(f"{d.mnt}/ns/f"), "the file is still there")
    # With the socket where it is by default, whom its mode lets in finds it, and nothing else. In the background: a log.
    d.stop()
    d.options["control_socket"] = None
    subprocess.run(d.command(foreground=False), check=True, timeout=30 * SLOW)
    same(looking_around("status").returncode, 0, "status as another user, by the socket's default place")
    place = f"{d.run_dir}/{d.instance}"
    names = set(os.listdir(place))
    check({"control", "fluxkvd.log", "fluxkvd.pid", "segment"} <= names, names)
    for path in [place, *(f"{place}/{name}" for name in names - {"control"})]:
        p = subprocess.run(["sh", "-c", f"test -r '{path}' || test -w '{path}'"], user=65534, group=65534, extra_groups=[],
                           check=False)
        same(p.returncode, 1, f"another user may read or write {path}")
    os.kill(d.status()["pid"], signal.SIGTERM)
    d.options["control_mode"] = "0660"
    d.start()
    same(os.stat(place).st_mode & 0o777, 0o710, "the directory's mode for a group that may connect")
    # A daemon that cannot be seen is not one that is not there.
    for denied in (f"{d.run_dir}/{d.instance}", d.run_dir):
        os.chmod(denied, 0o700)
        p = looking_around("status")
        same(p.returncode, UNREACHABLE, f"{denied} of 0700")
        check(denied in p.stderr and "permission denied" in p.stderr, p.stderr)
    elsewhere = {**os.environ, "FLUXKV_RUN_DIR": f"{ctx.base}/none"}
    check(re.search("the daemon that serves .* is not found", looking_around("status", env=elsewhere).stderr),
          "a directory that is not there, and a mount that is")
    d.stop()
    if b" fuse.fluxkv " not in read_file("/proc/self/mounts"): # of somebody else
        check("no daemon runs" in looking_around("status", env=elsewhere).stderr, "a directory that is not there")


def on_terminal(args, keys=(), seconds=20):
    """Runs it on a terminal of its own; keys: (text that must have come, key to press). What it showed, and its status."""
    pid, fd = pty.fork()
    if not pid:
        os.execv(args[0], args)
    shown, end, keys = b"", time.monotonic() + seconds * SLOW, list(keys)
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                part = os.read(fd, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        if keys and keys[0][0] in shown:
            os.write(fd, keys.pop(0)[1])
    else:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    return shown, status


@test(fluxkv=True)
def top(ctx):
    d = start(ctx)
    write_file(f"{d.mnt}/ns/f", big_stamped("top", 1, MIB))
    out = d.cli("top", "-d", "0.1", "-n", "3").stdout
    same(out.count("instance"), 3, "three looks")
    check("\033" not in out, "no control sequences into a pipe")
    shown, status = on_terminal([FLUXKV, "--socket", d.socket, "top", "-d", "0.2"],
                                [(b"q leaves", b"x"), (b"NOW", b"q")])
    same(status, 0, "q leaves")
    check(b"\033[?1049h" in shown and shown.rstrip().endswith(b"\033[?1049l"), "the screen comes back")
    # The daemon goes away: the screen comes back, and the line stays.
    shown, status = None, None
    pid = os.fork()
    if not pid:
        time.sleep(1)
        os.kill(d.pid, signal.SIGTERM)
        os._exit(0)
    shown, status = on_terminal([FLUXKV, "--socket", d.socket, "top", "-d", "0.2"])
    os.waitpid(pid, 0)
    same(status, FAILED, "the daemon has gone")
    check(b"fluxkvd closed the connection" in shown or b"stopping" in shown, shown[-300:])
    same(d.wait(), 0, "the daemon's end")


@test(fluxkv=True)
def progress(ctx):
    d = start(ctx)
    local = ctx.temp("local")
    os.mkfifo(f"{local}/fifo")
    # A slow source: the bar shows itself.
    pid = os.fork()
    if not pid:
        with open(f"{local}/fifo", "wb") as f:
            for _ in range(12):
                f.write(bytes(MIB))
                f.flush()
                time.sleep(0.15)
        os._exit(0)
    shown, status = on_terminal([FLUXKV, "--socket", d.socket, "put", f"{local}/fifo", "ns/slow"])
    os.waitpid(pid, 0)
    same(status, 0, "put")
    check(b"MiB/s" in shown and shown.endswith(b"\r\x1b[K"), f"a bar that is wiped at the end: {shown[-100:]!r}")
    same(os.path.getsize(f"{d.mnt}/ns/slow"), 12 * MIB, "size")
    shown, status = on_terminal([FLUXKV, "--socket", d.socket, "get", "ns/slow", f"{local}/quick"])
    same((shown, status), (b"", 0), "no bar for what takes no time")
    d.stop()


@test(fluxkv=True)
def doctor(ctx):
    d = start(ctx)
    p = d.cli("doctor", ok=False)
    out = p.stdout
    # The machine may have faults that are none of ours.
    same(p.returncode, FAILED if "FAULT" in out else 0, "exit status")
    for words in ("kernel", "/dev/fuse", "open files", "is mounted", "answers", "SSD .* works"):
        check(re.search(f"^ok .*{words}", out, re.M), f"{words} is not in:\n{out}")
    check(f"ok    {d.mnt} is mounted" in out, f"the mount is not in:\n{out}")
    d.kill()
    p = d.cli("doctor", ok=False)
    check(p.returncode in (FAILED, UNREACHABLE), p.returncode)
    check(f"FAULT {d.mnt}: its fluxkvd died" in p.stdout, f"the dead mount is not in:\n{p.stdout}")
    d.end()
    # /proc/self/mounts has a mount point's blanks and backslashes escaped.
    odd = ctx.daemon(mnt=os.path.join(ctx.temp("m"), "with a blank\\040")).start()
    check(f"ok    {odd.mnt} is mounted" in odd.cli("doctor", ok=False).stdout, "the odd mount")
    odd.kill()
    out = odd.cli("doctor", ok=False).stdout
    check(f"FAULT {odd.mnt}: its fluxkvd died" in out, f"the dead odd mount is not in:\n{out}")
    odd.end()


@test(fluxkv=True)
def doctor_of_an_ordinary_user(ctx):
    """What is for root alone is no fault, and what this user cannot see is neither "ok" nor "not there"."""
    d = ctx.daemon(dram="64MB").start()
    for path in (ctx.base, d.dir, d.run_dir):
        os.chmod(path, 0o755)

    def asked(run_dir):
        return subprocess.run([FLUXKV, "--run-dir", run_dir, "doctor"], capture_output=True, text=True, timeout=30 * SLOW,
                              user=65534, group=65534, extra_groups=[], check=False)

    try:
        p = asked(d.run_dir)
    except PermissionError as e:
        raise Skip("another user cannot run what was built here") from e
    same(p.returncode, UNREACHABLE, p.stderr)
    check(f"note  {d.mnt} is mounted, and not for this user" in p.stdout, p.stdout)
    check(f"{d.run_dir}/{d.instance}: permission denied" in p.stderr, p.stderr)
    if stat.S_IMODE(os.stat("/dev/fuse").st_mode) & 0o006 != 0o006 and shutil.which("fusermount3"):
        check("FAULT /dev/fuse" not in p.stdout and "fusermount3 opens it" in p.stdout, p.stdout)
    p = asked(f"{d.dir}/none")
    check(re.search("the daemon that serves .* is not found", p.stderr), p.stderr)
    d.stop()


@test(fluxkv=True)
def a_daemon_that_hangs(ctx):
    """The tool does not wait for ever for what hangs, when it only looks for what there is."""
    d = ctx.daemon(dram="64MB").start()
    os.kill(d.pid, signal.SIGSTOP)
    try:
        for command, status in ((["status"], UNREACHABLE), (["doctor"], UNREACHABLE)):
            p = subprocess.run([FLUXKV, "--run-dir", f"{d.dir}/none", *command], capture_output=True, text=True,
                               timeout=30 * SLOW, check=False)
            same(p.returncode, status, p.stderr)
            check(re.search("the daemon that serves .* is not found", p.stderr), p.stderr)
        check(f"FAULT {d.mnt}: its fluxkvd has not answered for 5 s" in p.stdout, p.stdout)
    finally:
        os.kill(d.pid, signal.SIGCONT)
    d.stop()


@test(fluxkv=True)
def unmounted_and_still_there(ctx):
    """A mount namespace with a copy of the mount keeps the daemon: the status says so, and not that it is mounted."""
    d = ctx.daemon(dram="64MB").start()
    check(f"\nmounted on {d.mnt}\n" in d.cli("status").stdout, "mounted")
    copy = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo; exec sleep 100"], stdout=subprocess.PIPE)
    copy.stdout.readline()
    subprocess.run(["umount", d.mnt], check=True)
    same(d.status()["mounted"], False, "mounted, to a program")
    out = d.cli("status").stdout
    check(f"\nunmounted from {d.mnt}, and still in use" in out, out)
    copy.kill()
    copy.communicate()
    same(d.wait(), 0, "the daemon's end")


class FakeDaemon(threading.Thread):
    """Answers on a control socket whatever it is told to."""

    def __init__(self, path, **answers):
        super().__init__(daemon=True)
        self.answers = answers
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            with self.listener.accept()[0] as s, s.makefile("rwb") as f:
                for line in f:
                    f.write(json.dumps({"ok": True, **self.answers[json.loads(line)["op"]]}).encode() + b"\n")
                    f.flush()


@test(fluxkv=True)
def top_with_passthrough(ctx):
    """What the kernel reads by itself is not counted: that is said, or nothing would seem to be read."""
    d = start(ctx)
    answers = {}
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(d.socket)
        with s.makefile("rwb") as f:
            for op in ("hello", "status"):
                f.write(json.dumps({"op": op}).encode() + b"\n")
                f.flush()
                answers[op] = json.loads(f.readline())
    d.stop()
    for on in (True, False):
        answers["status"]["fs"]["passthrough"] = {"on": on, "why_not": None if on else "x", "held": 8 * MIB}
        path = f"{ctx.temp('fake')}/s"
        FakeDaemon(path, **answers)
        out = subprocess.run([FLUXKV, "--socket", path, "top", "-n", "1"], capture_output=True, text=True, check=True,
                             timeout=20 * SLOW).stdout
        check(re.search(r"^copied to readers ", out, re.M), out)
        same("(passthrough): 8 MiB open" in out, on, out)


@test(fluxkv=True, timeout=120)
def many_names(ctx):
    """A listing of many pages while names come and go: what stays is there exactly once."""
    d = start(ctx)
    os.mkdir(f"{d.mnt}/ns/many")
    for i in range(3000):
        write_file(f"{d.mnt}/ns/many/stays{i}", b"")
    p = subprocess.Popen(["sh", "-c", f"i=0; while [ $i -lt 2000 ]; do : > {d.mnt}/ns/many/comes$i; rm {d.mnt}/ns/many/comes$i; "
                          "i=$((i + 1)); done"])
    for _ in range(5):
        names = d.cli("ls", "ns/many").stdout.split()
        same(sorted(n for n in names if n.startswith("stays")), sorted(f"stays{i}" for i in range(3000)), "names that stay")
    same(p.wait(60 * SLOW), 0, "the other")
    d.stop()


run(globals())
