# SPDX-License-Identifier: Apache-2.0
"""Ends of the daemon: killed under load, terminated, unmounted, stopped; and its next start."""
import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time

from lib import (LONG, MIB, SLOW, Failed, Skip, big_stamped, check, check_bytes, diag, fails, process_state,
                 read_file, run, same, test, wait_for, write_file)

LOAD = """
import errno, os, random, sys
d, me = sys.argv[1], int(sys.argv[2])
rng = random.Random(me)
gone = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT, errno.ENODEV, errno.EPERM, errno.EACCES,
        errno.ESHUTDOWN)
print("running", flush=True)
n = 0
while True:
    n += 1
    name = f"{d}/l{me}-{rng.randrange(20)}"
    try:
        with open(name + ".t", "wb") as f:
            f.write(bytes([me]) * rng.randrange(1, 3 << 20))
        os.replace(name + ".t", name)
        with open(f"{d}/l{rng.randrange(3)}-{rng.randrange(20)}", "rb") as f:
            data = f.read()
            if data and data.count(data[0]) != len(data):
                print("MIXTURE", flush=True)
        if n % 5 == 0:
            os.unlink(name)
    except OSError as e:
        if e.errno == errno.ENOENT:
            continue
        if e.errno in gone:
            print("over", n, flush=True)
            sys.exit(0)
        raise
"""


class Load:
    """Processes that write, read, rename and remove until the mount is gone."""

    def __init__(self, d, n=3):
        self.ps = [subprocess.Popen([sys.executable, "-c", LOAD, d, str(i)], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True) for i in range(n)]
        for p in self.ps:
            same(p.stdout.readline(), "running\n", "the load")

    def ends(self, text):
        """All of it must end by itself, soon: no call hangs."""
        for p in self.ps:
            try:
                out, err = p.communicate(timeout=15 * SLOW)
            except subprocess.TimeoutExpired:
                p.kill()
                raise Failed(f"{text}: a process still hangs in a call on the mount") from None
            check(p.returncode == 0 and "over" in out and "MIXTURE" not in out, f"{text}: {p.returncode} {out} {err}")

    def kill(self):
        for p in self.ps:
            p.kill()
            p.communicate()


def mounts(path):
    with open("/proc/self/mounts") as f:
        return [line for line in f if line.split()[1] == path]


class MemoryGroup:
    """A memory cgroup that the test is in: the shared memory of its daemons, dead ones too, is counted apart."""

    def __init__(self):
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split() for line in f]
        for m in mounts:
            kind, _, options = m[m.index("-") + 1:]
            if kind == "cgroup" and "memory" in options.split(","):
                self.path = f"{m[4]}/fluxkv-t-{os.getpid()}-{time.time_ns()}"
                break
            if kind == "cgroup2" and "memory" in read_file(f"{m[4]}/cgroup.controllers").decode().split():
                self.path = f"{m[4]}/fluxkv-t-{os.getpid()}-{time.time_ns()}"
                break
        else:
            raise Skip("needs a memory cgroup")

    def __enter__(self):
        os.mkdir(self.path)
        self.before = os.path.dirname(self.path)
        write_file(f"{self.path}/cgroup.procs", b"0")
        return self

    def __exit__(self, *_):
        for pid in read_file(f"{self.path}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                write_file(f"{self.before}/cgroup.procs", pid)
        with contextlib.suppress(OSError):
            os.rmdir(self.path)

    def shared(self):
        text = read_file(f"{self.path}/memory.stat").decode()
        return int(re.search(r"^shmem (\d+)", text, re.M).group(1))


def memory_group():
    try:
        return MemoryGroup()
    except Skip as e:
        diag(f"the memory of the dead is not measured: {e}")
        return None


def exercise(d):
    ns = f"{d.mnt}/ns"
    with contextlib.suppress(FileExistsError):
        os.mkdir(ns)
    write_file(f"{ns}/check", big_stamped("check", 1, 2 * MIB))
    check_bytes(read_file(f"{ns}/check"), big_stamped("check", 1, 2 * MIB), "a value after the start")


def version(path):
    return int(os.getxattr(path, "user.fluxkv.version").decode(), 0)


@test(fluxkv=True, timeout=240, long_timeout=900)
def killed_under_load_and_started_again(ctx):
    """kill -9 at any moment: the same command mounts again by itself, over the dead mount."""
    group = memory_group()
    with group or contextlib.nullcontext():
        kill_and_start(ctx.daemon(dram="128MB", ssd="256MB"), group)


def files_of(d):
    """Bytes of the daemon's files, which count as shared memory where they lie on a tmpfs: its catalogue grows."""
    return sum(os.lstat(f"{at}/{n}").st_blocks * 512
               for root in (d.state_dir, d.ssd_path) for at, _, names in os.walk(root) for n in names)


def kill_and_start(d, group):
    d.start()
    empty = group.shared() - files_of(d) if group else 0
    exercise(d)
    last, files = version(f"{d.mnt}/ns/check"), None
    for i in range(20 if LONG else 5):
        load = Load(f"{d.mnt}/ns")
        time.sleep(0.2 + 0.13 * i % 1)
        same(d.kill(signal.SIGKILL), -signal.SIGKILL, "the daemon's end")
        load.ends(f"kill {i}")
        fails(errno.ENOTCONN, "statvfs of the mount of a dead daemon", os.statvfs, d.mnt)
        d.start()
        same(len(mounts(d.mnt)), 1, f"mounts on {d.mnt} after start {i + 1}")
        same(len(mounts(d.segment())), 1, f"mounts on {d.segment()} after start {i + 1}")
        if group:
            wait_for(lambda: group.shared() - files_of(d) - empty < 16 * MIB, f"the memory is free after kill {i}", 20)
        exercise(d)
        v = version(f"{d.mnt}/ns/check")
        check(v > last, f"the version after start {i + 1} is {v}, before it was {last}")
        last = v
        for name in os.listdir(f"{d.mnt}/ns"): # what is listed can be read whole
            data = read_file(f"{d.mnt}/ns/{name}")
            check(name == "check" or not data or data.count(data[0]) == len(data), f"{name} is a mixture")
        now = d.fds(), sum(len(n) for _, _, n in os.walk(d.dir) if "/mnt" not in _)
        files = files or now
        check(now[0] <= files[0] + 3 and now[1] <= files[1] + 3, f"fds and files: {files} at first, {now} at start {i + 1}")
    d.check_empty()
    d.stop()


@test(fluxkv=True, timeout=60)
def memory_of_the_dead_is_free(ctx):
    with MemoryGroup() as group:
        d = ctx.daemon(dram="256MB").start()
        start = group.shared()
        for i in range(4):
            os.makedirs(f"{d.mnt}/ns", exist_ok=True)
            for k in range(12):
                write_file(f"{d.mnt}/ns/{k}", big_stamped("dead", k, 16 * MIB))
            used = group.shared() - start
            check(used >= 180 * MIB, f"192 MiB of values are {used / MIB:.0f} MiB of shared memory: this test is blind")
            d.kill()
            d.start()
            wait_for(lambda: group.shared() - start < 16 * MIB, f"the memory is free after kill {i}", 5)
            same(d.number("dram", "used"), 0, "dram used after the start")
        d.stop()


@test(fluxkv=True)
def readers_of_a_dead_daemon(ctx):
    """What was open answers with an error, at once; what was mapped and touched stays right."""
    import mmap
    d = ctx.daemon(dram="128MB").start()
    os.mkdir(f"{d.mnt}/ns")
    data = big_stamped("orphan", 1, 8 * MIB)
    write_file(f"{d.mnt}/ns/f", data)
    fd = os.open(f"{d.mnt}/ns/f", os.O_RDONLY)
    m = mmap.mmap(fd, len(data), mmap.MAP_SHARED, mmap.PROT_READ)
    check_bytes(m[:], data, "the mapping")
    d.kill()
    check_bytes(m[:], data, "the mapping, its daemon dead")
    fails((errno.ENOTCONN, errno.EIO, errno.ECONNABORTED), "open", os.open, f"{d.mnt}/ns/f", os.O_RDONLY)
    d.start()
    exercise(d)
    check_bytes(m[:], data, "the old mapping beside the new daemon")
    used = d.number("dram", "used")
    check(used <= 4 * MIB, f"used {used}")
    m.close()
    os.close(fd)
    d.stop()


@test(fluxkv=True, timeout=90)
def sigterm(ctx):
    """Idle, under load, with open handles: unmounted, exit status 0, nothing left."""
    for how in ("idle", "load", "writer", "reader"):
        d = ctx.daemon(dram="128MB", ssd="128MB").start()
        exercise(d)
        fds, load = [], None
        if how == "load":
            load = Load(f"{d.mnt}/ns")
            time.sleep(0.3)
        elif how == "writer":
            fds.append(os.open(f"{d.mnt}/ns/w", os.O_CREAT | os.O_WRONLY))
            os.write(fds[0], bytes(MIB))
        elif how == "reader":
            fds.append(os.open(f"{d.mnt}/ns/check", os.O_RDONLY))
        started = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        if fds: # it stays for who is still there, ten seconds at most
            time.sleep(0.5)
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        same(d.wait(), 0, f"{how}: exit status after SIGTERM")
        took = time.monotonic() - started
        check(took < 14 * SLOW, f"{how}: took {took:.1f} s")
        if load:
            load.ends("SIGTERM")
        same(mounts(d.mnt) + mounts(d.segment()), [], f"{how}: mounts")
        for name in ("fluxkvd.pid", "control", "mount"):
            check(not os.path.exists(f"{d.run_dir}/{d.instance}/{name}"), f"{how}: {name} is left")
        d.start()
        exercise(d)
        same(d.kill(signal.SIGINT), 0, "exit status after SIGINT")


@test(fluxkv=True, timeout=60)
def sigterm_with_a_handle_that_is_never_closed(ctx):
    d = ctx.daemon(dram="128MB").start()
    exercise(d)
    fd = os.open(f"{d.mnt}/ns/w", os.O_CREAT | os.O_WRONLY)
    os.write(fd, bytes(MIB))
    started = time.monotonic()
    same(d.kill(signal.SIGTERM, timeout=25), 0, "exit status")
    diag(f"took {time.monotonic() - started:.1f} s")
    with contextlib.suppress(OSError):
        os.write(fd, b"x")
        raise Failed("a write succeeds though the daemon has ended")
    with contextlib.suppress(OSError):
        os.close(fd)
    same(mounts(d.mnt) + mounts(d.segment()), [], "mounts")


@test(fluxkv=True)
def unmounted_from_outside(ctx):
    for command in (["umount"], ["fusermount3", "-u"], ["umount", "-l"]):
        d = ctx.daemon(dram="64MB").start()
        exercise(d)
        fd = os.open(f"{d.mnt}/ns/check", os.O_RDONLY)
        p = subprocess.run([*command, d.mnt], capture_output=True, text=True, check=False)
        if "-l" in command:
            same(p.returncode, 0, "umount -l of a busy mount")
            check_bytes(os.pread(fd, 3 * MIB, 0), big_stamped("check", 1, 2 * MIB), "a handle after umount -l")
            os.close(fd)
        else:
            check(p.returncode != 0 and "busy" in p.stderr, f"{command} of a busy mount: {p.returncode} {p.stderr}")
            exercise(d)
            os.close(fd)
            wait_for(lambda: subprocess.run([*command, d.mnt], capture_output=True, check=False).returncode == 0,
                     f"{command} once nobody is there", 5)
        same(d.wait(), 0, f"exit status after {command}")
        same(mounts(d.mnt) + mounts(d.segment()), [], "mounts")


@test(fluxkv=True)
def cut_off_from_outside(ctx):
    """Not an end in good order: it says so, fails, and leaves no mount that only answers errors."""
    for abort in (False, True):
        d = ctx.daemon(dram="64MB", log_allowed="cut the connection").start()
        exercise(d)
        fd = os.open(f"{d.mnt}/ns/check", os.O_RDONLY)
        if abort:
            write_file(f"/sys/fs/fuse/connections/{os.minor(os.stat(d.mnt).st_dev)}/abort", b"1")
        else:
            p = subprocess.run(["umount", "-f", d.mnt], capture_output=True, text=True, check=False)
            check(p.returncode != 0 and "busy" in p.stderr, f"umount -f of a busy mount: {p.returncode} {p.stderr}")
        same(d.wait(), 1, "exit status")
        same(mounts(d.mnt) + mounts(d.segment()), [], "mounts")
        check("cut the connection" in d.log_text(), f"the log: {d.last_lines()}")
        os.close(fd)
        d.start()
        exercise(d)
        d.stop()


@test(fluxkv=True)
def a_stopped_daemon_lets_killed_clients_go(ctx):
    """SIGSTOP: calls wait, but a fatal signal ends them at once; then it goes on as if nothing had been."""
    d = ctx.daemon(dram="64MB").start()
    exercise(d)
    d.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: process_state(d.pid) == "T", "the daemon stands still", 5)
    try:
        clients = [subprocess.Popen(["sh", "-c", f"exec {c}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for c in (f"cat {d.mnt}/ns/new", f"ls {d.mnt}/ns", f"dd if=/dev/zero of={d.mnt}/ns/x bs=1M count=4")]
        time.sleep(0.5)
        for p in clients:
            p.kill()
        for p in clients:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                raise Failed(f"a killed client hangs on: {p.args}") from None
    finally:
        d.process.send_signal(signal.SIGCONT)
    exercise(d)
    d.check_empty()
    d.stop()


@test(fluxkv=True)
def sighup_reloads(ctx):
    config = f"{ctx.temp('cfg')}/fluxkv.yaml"
    write_file(config, b"log_level: info\n")
    d = ctx.daemon(config=config, log_allowed=r"frobnicate|fluxkv\.yaml").start()
    exercise(d)
    check("log_level: info" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "config before")
    write_file(config, b"log_level: debug\n")
    d.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "log_level: debug" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "the new level is taken", 5)
    check("log_level" in d.log_text(), f"the log says what changed: {d.last_lines()}")
    write_file(config, b"frobnicate: 1\n")
    d.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "frobnicate" in d.log_text(), "a bad file is told in the log", 5)
    check("log_level: debug" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "a bad file changes nothing")
    write_file(config, b"log_level: info\nssd_shards: 7\n")
    d.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "ssd_shards" in d.log_text(), "what waits for a restart is told in the log", 5)
    exercise(d)
    d.stop()


@test(fluxkv=True, timeout=90)
def half_written_files_of_a_dead_daemon_are_not_there(ctx):
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    fd = os.open(f"{d.mnt}/ns/half", os.O_CREAT | os.O_WRONLY)
    os.write(fd, bytes(MIB))
    write_file(f"{d.mnt}/ns/whole", bytes(1000))
    d.kill()
    with contextlib.suppress(OSError):
        os.close(fd)
    d.start()
    check("half" not in os.listdir(f"{d.mnt}/ns"), "a half-written file is there after a restart")
    write_file(f"{d.mnt}/ns/half", b"the name is free")
    check_bytes(read_file(f"{d.mnt}/ns/half"), b"the name is free", "the name")
    d.stop()


CUT_OFF = """
import os, sys
print("opening", flush=True)
os.open(sys.argv[1], int(sys.argv[2]))
print("opened", flush=True)
"""


# Until nothing more fits, to the last page; a process of its own, as each child of this one would flush the file.
FILL = """
import os, sys
fd, at = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), 0
for step in (1 << 20, 4096):
    try:
        while True:
            at += os.pwrite(fd, bytes(step), at)
    except OSError:
        pass
print("full", flush=True)
sys.stdin.readline()
os.ftruncate(fd, 0)
"""


@test(fluxkv=True, timeout=120)
def killed_while_it_opens(ctx):
    """A task whose open waits for memory is gone as soon as it is killed, and its open leaves nothing behind."""
    d = ctx.daemon(dram="64MB", log_allowed="no room for").start()
    kinds = {"new": os.O_CREAT, "truncated": os.O_CREAT | os.O_TRUNC, "exclusive": os.O_CREAT | os.O_EXCL}
    for how in kinds:
        os.makedirs(f"{d.mnt}/ns/{how}") # one each: the kernel lets one task at a time make a name
    filler = subprocess.Popen([sys.executable, "-c", FILL, f"{d.mnt}/ns/full"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    same(filler.stdout.readline(), b"full\n", "the one who fills it")
    same(d.number("dram", "used"), 0, "published bytes")
    ps = [subprocess.Popen([sys.executable, "-c", CUT_OFF, f"{d.mnt}/ns/{how}/f", str(flags | os.O_WRONLY)],
                           stdout=subprocess.PIPE) for how, flags in kinds.items()]
    for p in ps:
        same(p.stdout.readline(), b"opening\n", "a task that opens")
    wait_for(lambda: d.number("fs", "in_flight") == 3, "three opens wait", 3, 0.005)
    time.sleep(0.1)
    same(d.number("fs", "in_flight"), 3, "opens that still wait")
    interrupted, started = d.number("fs", "interrupted"), time.monotonic()
    for p in ps:
        p.kill()
    for p in ps:
        p.wait(3 * SLOW)
    took = time.monotonic() - started
    check(took < 0.5 * SLOW, f"killed tasks have hung for {took:.2f} s")
    same(b"".join(p.stdout.read() for p in ps), b"", "what they said when they were open")
    same(d.number("fs", "interrupted") - interrupted, 3, "interrupted requests")
    # Room comes, so what they began goes on to its end.
    same(d.number("fs", "in_flight"), 3, "opens that the node still works at")
    filler.communicate(b"\n")
    same(filler.returncode, 0, "the one who filled it")
    wait_for(lambda: not d.number("fs", "in_flight") and not d.number("now", "private_versions"), "they are over", 5)
    same([os.listdir(f"{d.mnt}/ns/{how}") for how in kinds], [[], [], []], "names")
    same(d.number("puts", "no_space"), 2, "calls that got no room, both of the one who filled it")
    d.check_empty()
    d.stop()


run(globals())
