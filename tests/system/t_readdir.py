# SPDX-License-Identifier: Apache-2.0
"""Large directories: every stable name exactly once, its type with it, memory bounded, while names come and go."""
import ctypes
import os
import subprocess
import sys
import threading
import time

from lib import LONG, MIB, Skip, check, diag, fails, run, same, sanitized, test, write_file
import errno

STABLE = 1000000 if LONG else 30000
DIRS = STABLE // 20


def fill(d, first, last, kind="file"):
    fd = os.open(d, os.O_RDONLY)
    for i in range(first, last):
        if kind == "dir":
            os.mkdir(f"dir-{i:08}", dir_fd=fd)
        else:
            os.close(os.open(f"stable-{i:08}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


class Churn:
    """Creates, renames and removes names in d until stopped."""

    def __init__(self, d, me):
        self.d, self.me, self.done, self.error = d, me, 0, None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.stop.is_set():
                n = self.done % 500
                a, b = f"{self.d}/churn-{self.me}-{n}", f"{self.d}/moved-{self.me}-{n}"
                os.close(os.open(a, os.O_CREAT | os.O_WRONLY))
                if n % 3 == 0:
                    os.rename(a, b)
                    os.unlink(b)
                elif n % 3 == 1:
                    os.unlink(a)
                elif self.done >= 500 and n % 3 == 2:
                    os.unlink(a)
                self.done += 1
        except OSError as e:
            self.error = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def scan(d):
    """(names of files, names of directories, other names), each counted."""
    seen = {}
    for e in os.scandir(d):
        kind = "d" if e.is_dir(follow_symlinks=False) else "f" if e.is_file(follow_symlinks=False) else "?"
        key = kind, e.name
        seen[key] = seen.get(key, 0) + 1
    return seen


def check_scan(seen, text):
    twice = [k for k, n in seen.items() if n > 1 and not k[1].startswith(("churn", "moved"))]
    check(not twice, f"{text}: given more than once: {len(twice)}, e.g. {twice[:3]}")
    for kind, prefix, want in (("f", "stable-", STABLE), ("d", "dir-", DIRS)):
        got = sum(1 for k, name in seen if k == kind and name.startswith(prefix))
        same(got, want, f"{text}: names {prefix}*")
    foreign = [k for k in seen if not k[1].startswith(("stable-", "dir-", "churn-", "moved-"))]
    check(not foreign, f"{text}: names that nobody made: {foreign[:3]}")


@test(timeout=180, long_timeout=3600)
def every_stable_name_once_while_others_change(ctx):
    d = ctx.dir()
    started = time.monotonic()
    fill(d, 0, STABLE)
    fill(d, 0, DIRS, "dir")
    made = time.monotonic()
    check_scan(scan(d), "a quiet scan")
    scanned = time.monotonic()
    diag(f"{(STABLE + DIRS) / (made - started):.0f} creates/s, {(STABLE + DIRS) / (scanned - made):.0f} names/s")
    with Churn(d, 0) as a, Churn(d, 1) as b:
        for i in range(3):
            check_scan(scan(d), f"scan {i} while names come and go")
    check(not a.error and not b.error, f"{a.error} {b.error}")
    check(a.done > 20 and b.done > 20, "nothing changed during the scans")
    # Lookups do not get slower by the number of names around.
    started = time.monotonic()
    for i in range(2000):
        os.stat(f"{d}/stable-{i * (STABLE // 2000):08}")
    diag(f"{2000 / (time.monotonic() - started):.0f} stats/s")
    fails(errno.ENOTEMPTY, "rmdir", os.rmdir, d)


@test(fluxkv=True, timeout=180, long_timeout=3600)
def memory_of_a_scan_is_bounded(ctx):
    """A hundred scans that stop in the middle, all open, cost the daemon no copy of the directory each."""
    if sanitized():
        raise Skip("the daemon is sanitized")
    daemon = ctx.daemon(dram="256MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    fill(d, 0, STABLE)
    scan(d)
    before = daemon.private_memory()
    scans = []
    for _ in range(100):
        s = os.scandir(d)
        for _ in range(10):
            next(s)
        scans.append(s)
    grown = daemon.private_memory() - before
    for s in scans:
        s.close()
    check(grown < 64 * MIB, f"100 open scans of {STABLE} names took {grown / MIB:.0f} MiB")
    before, most = daemon.private_memory(), 0
    with Churn(d, 0) as churn:
        for _ in range(5):
            names = sum(n.startswith("stable-") for n in os.listdir(d))
            most = max(most, daemon.private_memory() - before)
            same(names, STABLE, "names that stay, in a scan while others come and go")
    check(not churn.error and churn.done > 20, f"{churn.done} changes, {churn.error}")
    check(most < 32 * MIB, f"5 scans of {STABLE} names, while others came and went, took {most / MIB:.0f} MiB")
    subprocess.run(["rm", "-rf", d], check=True)


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_ulong), ("off", ctypes.c_long), ("reclen", ctypes.c_ushort), ("type", ctypes.c_ubyte),
                ("name", ctypes.c_char * 256)]


LISTER = """
import os, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for e in os.scandir(sys.argv[1]):
        os.stat(e.path)
"""


@test(timeout=60)
def a_listing_makes_nobody_see_what_was(ctx):
    """What a listing told the kernel of a name is not shown to who has changed it meanwhile."""
    d, seconds, changes = ctx.dir(), 20 if LONG else 4, 0
    for i in range(100):
        write_file(f"{d}/f{i}", bytes(1000))
    lister = subprocess.Popen([sys.executable, "-c", LISTER, d, str(seconds + 1)])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        path, size = f"{d}/f{changes % 100}", 1 + changes * 37 % 5000
        os.truncate(path, size)
        same(os.stat(path).st_size, size, f"the size after truncate, change {changes}")
        write_file(path, bytes(size + 1))
        same(os.stat(path).st_size, size + 1, f"the size after a write, change {changes}")
        changes += 1
    same(lister.wait(), 0, "the end of who lists")
    check(changes > 20, f"only {changes} changes")


@test()
def seekdir_and_rewinddir(ctx):
    """Cookies stay valid: a scan that goes back to where it was finds the same names again."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(Dirent)
    for f in (libc.readdir, libc.telldir, libc.rewinddir, libc.closedir):
        f.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    libc.telldir.restype = ctypes.c_long
    d = ctx.dir()
    for i in range(3000):
        write_file(f"{d}/name-{i:05}", b"")
    stream = libc.opendir(d.encode())

    def names(limit=1 << 30):
        got = []
        while len(got) < limit:
            e = libc.readdir(stream)
            if not e:
                break
            same(e.contents.type, 4 if e.contents.name in (b".", b"..") else 8, f"d_type of {e.contents.name}")
            got.append(e.contents.name)
        return got

    first = names(1234)
    here = libc.telldir(stream)
    rest = names()
    same(len(set(first + rest)), 3002, "names, with . and ..")
    same(len(first + rest), 3002, "names once each")
    libc.seekdir(stream, here)
    same(names(), rest, "the names after seekdir")
    for i in range(0, 3000, 7):
        os.unlink(f"{d}/name-{i:05}")
    libc.seekdir(stream, here)
    left = [n for n in rest if n in (b".", b"..") or int(n[5:]) % 7]
    got = names()
    same(sorted(set(got) & set(left)), sorted(left), "the names after seekdir, some removed")
    libc.rewinddir(stream)
    same(len(set(names())), 3002 - len(range(0, 3000, 7)), "the names after rewinddir")
    libc.closedir(stream)


@test()
def removal_during_a_scan(ctx):
    """rm -r as it is done: unlink what each readdir gives."""
    d = ctx.dir()
    for i in range(2500):
        write_file(f"{d}/name-{i:05}", b"")
    seen = []
    for e in os.scandir(d):
        os.unlink(e.path)
        seen.append(e.name)
    same(len(set(seen)), 2500, "names that the scan gave")
    same(os.listdir(d), [], "names left")
    os.rmdir(d)


@test()
def unpublished_names_are_listed(ctx):
    d = ctx.dir()
    write_file(f"{d}/published", b"x")
    fd = os.open(f"{d}/private", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"y")
    kinds = {e.name: e.is_file(follow_symlinks=False) for e in os.scandir(d)}
    same(kinds, {"published": True, "private": True}, "names before the close")
    os.close(fd)
    same(sorted(os.listdir(d)), ["private", "published"], "names after the close")
    sizes = {e.name: e.stat().st_size for e in os.scandir(d)}
    same(sizes, {"published": 1, "private": 1}, "sizes")


run(globals(), dram="512MB")
