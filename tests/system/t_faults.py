# SPDX-License-Identifier: Apache-2.0
"""Starts that must be refused: one clear line, the right exit status, nothing left behind."""
import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time

from lib import (FLUXKV, FLUXKVD, MIB, SLOW, Failed, Skip, check, check_bytes, left_behind, read_file, run, same,
                 sanitized, small_disk, test, wait_for, write_file)

CANNOT_SERVE, USAGE = 1, 2


def tree(path):
    return sorted(os.path.join(at, n) for at, dirs, names in os.walk(path) for n in dirs + names)


def refused(d, words, status=CANNOT_SERVE, command=None, wrap=(), keep=(), **kwargs):
    """The command must end soon with a failure and one line that contains the words, and leave nothing."""
    command = command or d.command(foreground=False)
    before = left_behind(d.ctx.base)
    p = subprocess.run([*wrap, *command], capture_output=True, text=True, timeout=30 * SLOW, check=False,
                       stdin=subprocess.DEVNULL, **kwargs)
    text = f"{' '.join(command[1:])}\n  stderr: {p.stderr!r}"
    if p.returncode == 0:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(read_file(f"{d.run_dir}/{d.instance}/fluxkvd.pid")), 15)
        raise Failed(f"not refused: {text}")
    same(p.returncode, status, f"exit status of {text}")
    same(len(p.stderr.splitlines()), 1, f"lines on stderr of {text}")
    same(p.stdout, "", "stdout")
    for w in [words] if isinstance(words, str) else words:
        check(re.search(w, p.stderr, re.I), f"no {w!r} in the message of {text}")
    faults = [f for f in left_behind(d.ctx.base) if f not in before]
    check(not faults, "; ".join(faults))
    for left in ("fluxkvd.pid", "control", "mount", "segment"):
        check(not os.path.exists(f"{d.run_dir}/{d.instance}/{left}") or left in keep, f"{left} is left behind by {text}")
    return p.stderr


def works(d):
    """The same daemon, without the fault, starts: the fault was what refused it."""
    d.start()
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", b"works")
    check_bytes(read_file(f"{d.mnt}/ns/f"), b"works", "a file after the fault was mended")
    d.stop()


@test(fluxkv=True)
def usage(ctx):
    d = ctx.daemon()
    for args, words in (([], "usage|mount"), (["standalone"], "mount ?point"), (["standalone", d.mnt, "more"], "more"),
                        (["--frobnicate", "standalone", d.mnt], "frobnicate"),
                        (["-o"], "-o|option"), (["-c"], "-c|option"),
                        (["nowhere", d.mnt], "nowhere"), (["", d.mnt], "standalone|source")):
        refused(d, words, USAGE, [FLUXKVD, *args])


@test(fluxkv=True)
def bad_options(ctx):
    for option, words in (("frobnicate=1", "frobnicate"), ("dram=lots", ["dram", "lots"]), ("dram=", "dram"),
                          ("dram=-1", "dram"), ("dram=1XB", ["dram", "1XB"]), ("dram", "dram"),
                          ("block_size=12345", "block_size"), ("ssd=/tmp", "ssd"), ("ssd=/tmp:100B", "512|ssd"),
                          ("instance=a/b", "instance"), ("instance=", "instance"), ("instance=..", "instance"),
                          ("log_level=loud", "loud"), ("auto_namespace=perhaps", "perhaps"),
                          ("dram=99999999999999999999GB", "dram"), ("dram=512MB,,frob", "frob")):
        d = ctx.daemon()
        command = d.command(foreground=False)
        command[command.index("-o") + 1] += f",{option}"
        refused(d, words, USAGE, command)
    refused(ctx.daemon(dram="900TB"), ["this machine has only .* where 900 TiB"])
    for option in ("", "noauto,_netdev,x-systemd.automount,defaults,rw"):
        d = ctx.daemon()
        d.options[option or "rw"] = True
        works(d)


def removed(group):
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError: # somebody is in it still
        return False
    return True


@contextlib.contextmanager
def memory_group(limit):
    """A control group with a limit on memory."""
    for base, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = f"{base}/fluxkv-test-{os.getpid()}-{time.time_ns()}" # pids are those of a namespace
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(f"{group}/{file}", "r+") as f:
                f.write(str(limit))
            yield group
            return
        except FileNotFoundError:
            continue
        finally:
            wait_for(lambda group=group: removed(group), "the group is empty")
    raise Skip("no control group with a limit on memory can be made")


@test(fluxkv=True)
def more_than_the_control_group_has(ctx):
    """A container's limit: what it does not let us have is not contributed, and a part is for the daemon itself."""
    with memory_group(96 << 20) as group:
        inside = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group)
        refused(ctx.daemon(dram="128MB"), "control group .* only 96 MiB .* where 128 MiB .* about 34 MiB", wrap=inside)
        refused(ctx.daemon(dram="96MB"), "control group .* only 96 MiB .* where 96 MiB", wrap=inside)
        refused(ctx.daemon(dram="64MB"), "control group .* only 96 MiB .* where 64 MiB", wrap=inside)
        if sanitized():
            return # it needs more for itself
        d = ctx.daemon(dram="63MB")
        p = subprocess.run([*inside, *d.command(foreground=False)], capture_output=True, text=True, check=False,
                           timeout=30 * SLOW)
        same(p.returncode, 0, p.stderr)
        try:
            os.mkdir(f"{d.mnt}/ns")
            for i in range(80): # it is full, and lives
                write_file(f"{d.mnt}/ns/{i}", bytes([i]) * MIB)
            same(read_file(f"{d.mnt}/ns/79"), bytes([79]) * MIB, "the last one")
        finally:
            subprocess.run(["umount", d.mnt], check=True)
        wait_for(lambda: not os.path.exists(f"{d.run_dir}/{d.instance}/fluxkvd.pid"), "the daemon has ended")


@test(fluxkv=True)
def the_limit_of_another_control_group(ctx):
    """A directory of the hierarchy that is mounted elsewhere, and is not around us, says nothing about us."""
    where = ctx.temp("group")
    with memory_group(32 << 20) as group:
        subprocess.run(["mount", "--bind", group, where], check=True)
        try:
            ctx.daemon(dram="64MB").start().end()
            inside = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group)
            refused(ctx.daemon(dram="64MB"), "control group .* only 32 MiB", wrap=inside)
        finally:
            subprocess.run(["umount", where], check=True)


@test(fluxkv=True)
def bad_config_files(ctx):
    d = ctx.daemon()
    d.config = f"{d.dir}/fluxkv.yaml"
    refused(d, ["fluxkv.yaml", "no such file|not found|does not exist"], USAGE)
    for text, words in (
        ("frobnicate: 1\n", ["line 1|:1", "frobnicate"]),
        ("log_level: info\nblock_size: [1, 2]\n", ["line 2|:2", "block_size"]),
        ("contribute_to_cluster_pool_size:\n  dram: lots\n", ["line 2|:2", "dram"]),
        ("log_level: loud\n", ["line 1|:1", "loud|log_level"]),
        ("a: b: c\n", ["line 1|:1"]),
        ("\t- x\n", ["line 1|:1"]),
        ("[1, 2]\n", ["line 1|:1"]),
        ("log_level: info\nlog_level: debug\n", ["line 2|:2", "log_level"]),
        ("fluxonkv_spec:\n  large_file_paths: [/tmp/a, /tmp/b]\n  large_limit_size: [1GB]\n", ["1", "2"]),
        ("fluxonkv_spec:\n  large_file_paths: [/tmp/a]\n  large_limit_size: [100B]\n", ["512|100"]),
        ("x" * 2000000, ["fluxkv.yaml"]),
        ("log_level: \0info\n", ["fluxkv.yaml"]),
        ("&a [*a, *a]\n", ["fluxkv.yaml"]),
    ):
        write_file(d.config, text.encode())
        refused(d, ["fluxkv.yaml", *words], USAGE)
    os.unlink(d.config)
    os.mkdir(d.config)
    refused(d, "fluxkv.yaml", USAGE)
    os.rmdir(d.config)
    write_file(d.config, b"# nothing but a comment\n")
    works(d)


@test(fluxkv=True)
def mount_points(ctx):
    d = ctx.daemon()
    os.rmdir(d.mnt)
    refused(d, [d.mnt, "no such|does not exist"])
    write_file(d.mnt, b"a file")
    refused(d, [d.mnt, "not a directory"])
    os.unlink(d.mnt)
    os.mkdir(d.mnt)
    write_file(f"{d.mnt}/precious", b"data")
    refused(d, [d.mnt, "not empty"])
    check_bytes(read_file(f"{d.mnt}/precious"), b"data", "what was in the mount point")
    os.unlink(f"{d.mnt}/precious")
    subprocess.run(["mount", "-t", "tmpfs", "other", d.mnt], check=True)
    try:
        refused(d, [d.mnt, "mount"], keep=("other",))
    finally:
        subprocess.run(["umount", d.mnt], check=True)
    works(d)


@test(fluxkv=True)
def a_mount_point_that_serves_already(ctx):
    first = ctx.daemon().start()
    second = ctx.daemon(mnt=first.mnt)
    refused(second, [first.mnt, "already|in use"], keep=("first",))
    os.mkdir(f"{first.mnt}/ns")
    write_file(f"{first.mnt}/ns/f", b"x")
    check_bytes(read_file(f"{first.mnt}/ns/f"), b"x", "the first daemon, after the second was refused")
    first.stop()


@test(fluxkv=True)
def the_same_instance_twice(ctx):
    first = ctx.daemon().start()
    second = ctx.daemon(instance=first.instance)
    second.run_dir = first.run_dir
    refused(second, [first.instance, str(first.pid)], keep=("fluxkvd.pid", "control", "mount", "segment"))
    same(first.status()["pid"], first.pid, "the first daemon's answer")
    check(os.path.ismount(first.segment()), "the first daemon's segment")
    first.stop()
    second.start()
    second.stop()


@test(fluxkv=True)
def two_daemons_on_one_ssd_root(ctx):
    path = ctx.temp("ssd")
    first = ctx.daemon(ssd=f"{path}:64MB").start()
    second = ctx.daemon(ssd=f"{path}:64MB", instance=first.instance)
    refused(second, [path, str(first.pid)], keep=("first",))
    first.stop()
    works(second)


@test(fluxkv=True)
def ssd_paths(ctx):
    base = ctx.temp("ssd")
    d = ctx.daemon(ssd=f"{base}/none:64MB")
    refused(d, [f"{base}/none", "no such|does not exist"])
    write_file(f"{base}/file", b"x")
    d.options["ssd"] = f"{base}/file:64MB"
    refused(d, [f"{base}/file", "not a directory"])
    os.mkdir(f"{base}/dir")
    write_file(f"{base}/dir/foreign", b"left alone")
    d.options["ssd"] = f"{base}/dir:64MB"
    works(d)
    check_bytes(read_file(f"{base}/dir/foreign"), b"left alone", "a file that is none of ours")


@test(fluxkv=True)
def a_disk_without_room(ctx):
    disk = small_disk(ctx, 64)
    try:
        os.mkdir(f"{disk}/ssd")
        write_file(f"{disk}/other", bytes(20 << 20))
        before = os.statvfs(disk).f_bavail
        d = ctx.daemon(ssd=f"{disk}/ssd:256MB")
        refused(d, [f"{disk}/ssd", "space|room"], keep=("disk",))
        check(os.statvfs(disk).f_bavail >= before - 64, "the refused start left what it had allocated")
        d.options["ssd"] = f"{disk}/ssd:16MB"
        d.start()
        os.mkdir(f"{d.mnt}/ns")
        write_file(f"{d.mnt}/ns/f", b"x")
        same(d.kill(15), 0, "exit status")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


@test(fluxkv=True)
def a_catalogue_that_is_no_database(ctx):
    for content in (b"this is not a database\n" * 100, b"SQLite format 3\0" + bytes(range(256)) * 40, bytes(5000)):
        d = ctx.daemon()
        path = f"{d.state_dir}/{d.instance}"
        os.makedirs(path, exist_ok=True)
        d.start()
        d.stop()
        databases = [n for n in os.listdir(path) if n.endswith(".db")]
        same(len(databases), 1, f"databases in {os.listdir(path)}")
        for n in os.listdir(path):
            os.unlink(f"{path}/{n}")
        write_file(f"{path}/{databases[0]}", content)
        refused(d, [databases[0], "database|catalogue"])
        check_bytes(read_file(f"{path}/{databases[0]}"), content, "the file, for a person to look at")
        os.unlink(f"{path}/{databases[0]}")
        works(d)


@test(fluxkv=True)
def too_few_open_files(ctx):
    d = ctx.daemon()
    refused(d, ["open files|ulimit|nofile|descriptor"], wrap=["prlimit", "--nofile=16:16"])
    works(d)


@test(fluxkv=True)
def directories_that_cannot_be_written(ctx):
    for which in ("run_dir", "state_dir"):
        d = ctx.daemon()
        path = getattr(d, which)
        os.rmdir(path)
        write_file(path, b"a file")
        refused(d, [path])
        os.unlink(path)
        works(d)
    d = ctx.daemon()
    d.run_dir = f"{d.dir}/{'r' * 120}"
    os.mkdir(d.run_dir)
    refused(d, ["long|108|107"], USAGE)


def private_dev(ctx, fuse):
    """A /dev of its own: without fuse, or with one that everybody may open."""
    dev = ctx.temp("dev")
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(1, minor))
        os.chmod(f"{dev}/{name}", 0o666)
    if fuse:
        os.mknod(f"{dev}/fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
        os.chmod(f"{dev}/fuse", 0o666)
    for d in ("shm", "pts"):
        os.mkdir(f"{dev}/{d}")
    os.chmod(dev, 0o755)
    return dev


def in_dev(dev):
    base = os.path.dirname(dev)
    script = """
mount -t tmpfs -o mode=1777 shm "$1/shm"
case $2 in /dev/shm/*) # where this test has its files must stay there
    mkdir -m 755 "$1/shm/${2##*/}"
    mount --rbind "$2" "$1/shm/${2##*/}";;
esac
mount --rbind "$1" /dev
shift 2
exec "$@"
"""
    return ["unshare", "-m", "sh", "-ec", script, "sh", dev, base]


@test(fluxkv=True)
def no_dev_fuse(ctx):
    d = ctx.daemon()
    refused(d, ["/dev/fuse", "modprobe|kernel|no such|does not exist|module"], wrap=in_dev(private_dev(ctx, False)))
    works(d)


@test(fluxkv=True)
def no_right_to_mount(ctx):
    """Root without CAP_SYS_ADMIN can neither mount the tmpfs nor the file system."""
    if not shutil.which("setpriv"):
        raise Skip("needs setpriv")
    d = ctx.daemon()
    refused(d, ["mount"], wrap=["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all"])
    works(d)


@test(fluxkv=True)
def an_ordinary_user(ctx):
    """With fusermount3 and a /dev/fuse that may be opened: it works, its memory in /dev/shm."""
    helper = shutil.which("fusermount3")
    if not helper or not os.stat(helper).st_mode & stat.S_ISUID or not shutil.which("setpriv"):
        raise Skip("needs a setuid fusermount3 and setpriv")
    d = ctx.daemon(dram="64MB")
    os.chmod(ctx.base, 0o755)
    for path in (d.dir, d.mnt, d.run_dir, d.state_dir):
        os.chown(path, 65534, 65534)
    dev = private_dev(ctx, True)
    script = """
import os, subprocess, sys, time, signal
mnt, command = sys.argv[1], sys.argv[2:]
ours = set(os.listdir("/dev/shm"))
p = subprocess.run(command, capture_output=True, text=True)
if p.returncode:
    sys.exit(f"fluxkvd ends with {p.returncode}: {p.stderr}")
os.mkdir(mnt + "/ns")
data = os.urandom(3000000)
open(mnt + "/ns/f", "wb").write(data)
assert open(mnt + "/ns/f", "rb").read() == data, "other bytes"
assert set(os.listdir("/dev/shm")) - ours, "nothing of it is in /dev/shm"
subprocess.run(["fusermount3", "-u", mnt], check=True)
for _ in range(500):
    left = set(os.listdir("/dev/shm")) - ours
    if not left:
        break
    time.sleep(0.02)
assert not left, f"left in /dev/shm: {left}"
"""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set", "+all"]
    p = subprocess.run([*in_dev(dev), *user, sys.executable, "-c", script, d.mnt, *d.command(foreground=False)],
                       capture_output=True, text=True, timeout=50 * SLOW, check=False)
    same((p.returncode, p.stderr), (0, ""), "as an ordinary user")
    wait_for(lambda: not left_behind(ctx.base), "nothing is left behind", 10)


@test(fluxkv=True)
def the_tool_without_a_daemon(ctx):
    d = ctx.daemon()
    for args in (["status"], ["ls"], ["stat", "ns/f"], ["ns", "list"]):
        p = subprocess.run([FLUXKV, "--socket", d.socket, *args], capture_output=True, text=True, timeout=20, check=False)
        check(p.returncode != 0 and len(p.stderr.splitlines()) == 1 and d.socket in p.stderr,
              f"fluxkv {args}: {p.returncode} {p.stderr!r}")


run(globals())
