# SPDX-License-Identifier: Apache-2.0
"""Mounting: when the command returns, what it leaves, what the kernel is told."""
import errno
import os
import re
import signal
import socket
import subprocess
import time

from lib import (BUILD_DIR, MIB, SLOW, Skip, big_stamped, check, check_bytes, fails, left_behind, process_state,
                 read_file, run, same, test, wait_for, write_file)


def mount_line(path):
    with open("/proc/self/mounts") as f:
        return [line.split() for line in f if line.split()[1] == path]


@test(fluxkv=True)
def returns_when_the_mount_serves(ctx):
    for _ in range(5):
        d = ctx.daemon()
        # communicate() returns when the last holder of the pipes has closed them: a daemon must not keep them.
        p = subprocess.run(d.command(foreground=False), capture_output=True, text=True, timeout=30 * SLOW, check=False)
        same((p.returncode, p.stderr, p.stdout), (0, "", ""), "fluxkvd in the background")
        os.mkdir(f"{d.mnt}/ns")
        write_file(f"{d.mnt}/ns/f", b"at once")
        check_bytes(read_file(f"{d.mnt}/ns/f"), b"at once", "a file, as soon as the command has returned")
        pid = int(read_file(f"{d.run_dir}/{d.instance}/fluxkvd.pid"))
        same(d.status()["pid"], pid, "the pid of the pid file")
        for fd in ("0", "1", "2"):
            check(os.path.exists(f"/proc/{pid}/fd/{fd}"), f"descriptor {fd} of the daemon is closed")
        same(os.readlink(f"/proc/{pid}/cwd"), "/", "its working directory")
        same(os.getsid(pid) != os.getsid(0), True, "a session of its own")
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: process_state(pid) in "ZX", "it ends", 15)
        check(not left_behind(d.dir), left_behind(d.dir))


@test(fluxkv=True)
def a_relative_mount_point(ctx):
    d = ctx.daemon()
    command = d.command(foreground=False)
    command[-1] = "mnt"
    subprocess.run(command, cwd=d.dir, check=True, timeout=30 * SLOW)
    os.mkdir(f"{d.mnt}/ns")
    os.kill(d.status()["pid"], signal.SIGTERM)
    wait_for(lambda: not left_behind(d.dir), "it ends", 15)


@test(fluxkv=True)
def tells_systemd_when_it_is_ready(ctx):
    d = ctx.daemon()
    path = f"{d.dir}/notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)
    s.settimeout(20 * SLOW)
    d.process = subprocess.Popen(d.command(), env={**os.environ, "NOTIFY_SOCKET": path}, stderr=open(d.log, "wb"))
    said = ""
    while "READY=1" not in said:
        said += s.recv(4096).decode() + "\n"
    os.mkdir(f"{d.mnt}/ns") # READY: it serves
    d.process.send_signal(signal.SIGTERM)
    while "STOPPING=1" not in said:
        said += s.recv(4096).decode() + "\n"
    same(d.wait(), 0, "exit status")
    s.close()


@test(fluxkv=True)
def what_the_kernel_knows(ctx):
    d = ctx.daemon().start()
    lines = mount_line(d.mnt)
    same(len(lines), 1, "mounts")
    source, _, kind, options, *_ = lines[0]
    same((source, kind), ("standalone", "fuse.fluxkv"), "source and type")
    check("default_permissions" in options.split(","), f"options {options}")
    check("nosuid" in options.split(",") and "nodev" in options.split(","), f"options {options}")
    bdi = f"/sys/class/bdi/0:{os.minor(os.stat(d.mnt).st_dev)}/read_ahead_kb"
    same(read_file(bdi), b"1024\n", "read_ahead_kb")
    same(os.stat(d.run_dir + "/" + d.instance).st_mode & 0o077, 0, "permissions of the run directory for others")
    segment = mount_line(d.segment())
    same((len(segment), segment[0][2]), (1, "tmpfs"), "the segment")
    check("size=" in segment[0][3] and "mode=700" in segment[0][3], f"options of the segment: {segment[0][3]}")
    out = subprocess.run(["df", "-T", d.mnt], capture_output=True, text=True, check=True).stdout
    check("fuse.fluxkv" in out, out)
    v = os.statvfs(d.mnt)
    check(0.9 * 512 * MIB <= v.f_blocks * v.f_frsize <= 512 * MIB, f"capacity {v.f_blocks * v.f_frsize / MIB:.0f} MiB")
    same(v.f_namemax, 255, "f_namemax")
    d.stop()


@test(fluxkv=True)
def read_only(ctx):
    d = ctx.daemon(ro=True).start()
    fails(errno.EROFS, "mkdir", os.mkdir, f"{d.mnt}/ns")
    check("ro" in mount_line(d.mnt)[0][3].split(","), "the option ro")
    os.listdir(d.mnt)
    d.stop()


@test(fluxkv=True)
def two_daemons_side_by_side(ctx):
    a, b = ctx.daemon(ssd="64MB").start(), ctx.daemon(ssd="64MB").start()
    for d in (a, b):
        os.mkdir(f"{d.mnt}/ns")
    write_file(f"{a.mnt}/ns/f", b"of a")
    check(not os.path.exists(f"{b.mnt}/ns/f"), "b shows a's file")
    write_file(f"{b.mnt}/ns/f", b"of b")
    check_bytes(read_file(f"{a.mnt}/ns/f"), b"of a", "a's file")
    a.stop()
    check_bytes(read_file(f"{b.mnt}/ns/f"), b"of b", "b's file, a stopped")
    b.stop()


@test(fluxkv=True)
def the_mount_helper(ctx):
    """mount.fluxkv, as mount(8) calls it: SOURCE MOUNTPOINT -o OPTIONS."""
    helper = os.path.join(BUILD_DIR, "mount.fluxkv")
    if not os.access(helper, os.X_OK):
        raise Skip(f"{helper} is not built")
    env = {**os.environ, "PATH": f"{BUILD_DIR}:{os.environ['PATH']}"}
    d = ctx.daemon()
    options = d.command()[d.command().index("-o") + 1]
    p = subprocess.run([helper, "standalone", d.mnt, "-o", f"rw,noauto,_netdev,{options}"], env=env,
                       capture_output=True, text=True, timeout=30 * SLOW, check=False)
    same((p.returncode, p.stderr), (0, ""), "mount.fluxkv")
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", b"x")
    subprocess.run(["umount", d.mnt], check=True)
    wait_for(lambda: not left_behind(d.dir), "umount ends the daemon", 15)
    p = subprocess.run([helper, "standalone", f"{d.dir}/none", "-o", options], env=env, capture_output=True, text=True,
                       timeout=30 * SLOW, check=False)
    check(p.returncode not in (0, 127) and len(p.stderr.splitlines()) == 1 and "none" in p.stderr,
          f"a mount point that is not there: {p.returncode} {p.stderr!r}")


@test(fluxkv=True, timeout=90)
def mounted_and_unmounted_many_times(ctx):
    d = ctx.daemon(dram="64MB", ssd="64MB")
    fds, started = len(os.listdir("/proc/self/fd")), time.monotonic()
    for i in range(15):
        d.start()
        os.makedirs(f"{d.mnt}/ns", exist_ok=True)
        write_file(f"{d.mnt}/ns/f", big_stamped("again", i, MIB))
        check_bytes(read_file(f"{d.mnt}/ns/f"), big_stamped("again", i, MIB), f"start {i}")
        d.stop()
    check((time.monotonic() - started) / 15 < 4 * SLOW, "a start and a stop take more than 4 s")
    check(len(os.listdir("/proc/self/fd")) <= fds + 2, "descriptors of this test")


@test(fluxkv=True)
def namespaces_outlive_a_restart(ctx):
    d = ctx.daemon(dram="64MB").start()
    d.cli("ns", "create", "--block-size", "1MiB", "models/v1")
    os.makedirs(f"{d.mnt}/auto/a/b/c")
    write_file(f"{d.mnt}/auto/a/f", b"gone with the memory")
    d.stop()
    d.start()
    names = d.cli("ns", "list").stdout
    check("models/v1" in names and "auto" in names, names)
    check(re.search(r"1 MiB.*models/v1", names), f"its block size: {names}")
    fails(errno.ENOENT, "a value that only memory had", os.open, f"{d.mnt}/auto/a/f", os.O_RDONLY)
    for name in os.listdir(f"{d.mnt}/auto"):
        check(os.path.isdir(f"{d.mnt}/auto/{name}"), f"{name} is listed and cannot be read")
    write_file(f"{d.mnt}/models/v1/f", big_stamped("ns", 1, 3 * MIB))
    same(os.getxattr(f"{d.mnt}/models/v1/f", "user.fluxkv.blocks"), b"3", "blocks of 1 MiB")
    d.stop()


run(globals())
