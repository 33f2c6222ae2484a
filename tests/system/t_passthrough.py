# SPDX-License-Identifier: Apache-2.0
"""Values that the kernel reads from memory by itself: nothing of it shows, but in speed and in who is asked."""
import contextlib
import errno
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time

from lib import (MIB, LONG, SLOW, Failed, Mapping, Skip, big_stamped, check, check_bytes, diag, read_file, run, same, test,
                 wait_for, write_file)

VALUE = 4 * MIB - 128


def with_passthrough(ctx, **options):
    daemon = ctx.daemon(**options).start()
    if not daemon.passthrough():
        reason = daemon.status()["fs"]["passthrough"]["why_not"]
        daemon.stop()
        raise Skip(f"no passthrough: {reason}")
    os.mkdir(f"{daemon.mnt}/ns")
    return daemon, f"{daemon.mnt}/ns"


def put(d, name, version=1, size=VALUE):
    """By a rename over what is there."""
    write_file(f"{d}/.{name}.tmp", big_stamped(name, version, size))
    os.rename(f"{d}/.{name}.tmp", f"{d}/{name}")


def pin_down(path):
    """A mapping of the whole file whose descriptor is closed."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return Mapping(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def evict(daemon, path, *more):
    """As soon as it is not on its way to the SSD any more."""
    wait_for(lambda: daemon.cli("evict", "--tier", "dram", *more, path, ok=False).returncode == 0,
             f"{path} is evicted", 20)


def zombies_end(daemon):
    wait_for(lambda: daemon.number("dram", "zombie") == 0, "no page is held any more", 10)


@test(fluxkv=True)
def says_whether_it_is_on(ctx):
    """passthrough=off is off, and =on is on or no mount; the status and the doctor say why."""
    d = ctx.daemon(dram="64MB", passthrough="off").start()
    same(d.status()["fs"]["passthrough"], {"on": False, "why_not": "switched off (passthrough: off)", "held": 0}, "off")
    check("note  reads are copied" in d.cli("doctor", ok=False).stdout, "the doctor notes it")
    os.mkdir(f"{d.mnt}/ns")
    put(f"{d.mnt}/ns", "v")
    check_bytes(read_file(f"{d.mnt}/ns/v"), big_stamped("v", 1, VALUE), "a value that is copied")
    d.stop()
    auto = ctx.daemon(dram="64MB").start()
    on = auto.passthrough()
    check(on or auto.status()["fs"]["passthrough"]["why_not"], "a reason is given")
    auto.stop()
    insisting = ctx.daemon(dram="64MB", passthrough="on")
    if on:
        insisting.start()
        check("ok    the kernel reads values" in insisting.cli("doctor", ok=False).stdout, "the doctor says so")
        insisting.stop()
    else:
        p = subprocess.run(insisting.command(), capture_output=True, text=True, timeout=20 * SLOW, check=False)
        check(p.returncode == 1 and "no passthrough, which the configuration insists on" in p.stderr,
              f"passthrough=on where it is not to be had: {p.returncode} {p.stderr}")


@test(fluxkv=True)
def nobody_is_asked(ctx):
    """No request for any read, of any size, at any place; and hardly any time of the daemon's."""
    daemon, d = with_passthrough(ctx, dram="512MB")
    sizes = (1, 100, 4095, 4096, 4097, MIB, 3 * MIB + 1, 16 * MIB)
    for size in sizes:
        put(d, f"v{size}", size=size)
    fds = {size: os.open(f"{d}/v{size}", os.O_RDONLY) for size in sizes}
    before, cpu = daemon.number("fs", "requests"), daemon.cpu_seconds()
    rng = random.Random(1)
    for size, fd in fds.items():
        data = big_stamped(f"v{size}", 1, size)
        check_bytes(os.read(fd, size + 5), data, f"all of {size} bytes")
        same(os.read(fd, 5), b"", "at the end")
        same(os.pread(fd, 5, size + 10 * MIB), b"", "beyond the end")
        for _ in range(30):
            off, n = rng.randrange(size + 10), rng.choice((1, 4096, 70000, 5 * MIB))
            check_bytes(os.pread(fd, n, off), data[off:off + n], f"pread({n}, {off})")
        with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as m:
            check_bytes(m[:], data, f"mapping of {size} bytes")
            same(m.size(), size, "size")
    started = time.monotonic()
    while time.monotonic() - started < 1:
        os.pread(fds[16 * MIB], 16 * MIB, 0)
    took = daemon.number("fs", "requests") - before # Python's mmap looks at the size twice, and reads change atime
    check(took <= 2 * len(sizes), f"{took} requests")
    spent = daemon.cpu_seconds() - cpu
    check(spent < 0.2 * SLOW, f"the daemon spent {spent:.2f} s while others read")
    check(daemon.number("fs", "passthrough", "held") == sum(sizes), "what is open is counted")
    for fd in fds.values():
        os.close(fd)
    wait_for(lambda: daemon.number("fs", "passthrough", "held") == 0, "closed is counted, too", 5)
    daemon.check_empty()


@test(fluxkv=True)
def advice_and_copies(ctx):
    """Read-ahead, sendfile, splice and copy_file_range on a file that the kernel reads by itself."""
    _, d = with_passthrough(ctx, dram="256MB")
    put(d, "v")
    data = big_stamped("v", 1, VALUE)
    fd = os.open(f"{d}/v", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    check_bytes(os.pread(fd, VALUE, 0), data, "after advice")
    out = os.open(f"{d}/sent", os.O_CREAT | os.O_RDWR)
    at = 0
    while at < VALUE:
        at += os.sendfile(out, fd, at, VALUE)
    os.close(out)
    check_bytes(read_file(f"{d}/sent"), data, "sendfile")
    out, at = os.open(f"{d}/copied", os.O_CREAT | os.O_RDWR), 0
    while at < VALUE:
        at += os.copy_file_range(fd, out, VALUE, at, at)
    os.close(out)
    check_bytes(read_file(f"{d}/copied"), data, "copy_file_range")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    direct = os.open(f"{d}/v", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4 * MIB)
    same(os.preadv(direct, [buffer], 0), VALUE, "O_DIRECT")
    check_bytes(buffer[:VALUE], data, "O_DIRECT")
    os.close(direct)
    os.close(fd)


@test(fluxkv=True, timeout=120, long_timeout=400)
def mappings_outlive_their_versions(ctx):
    """Each of 500 mapped versions keeps its bytes, overwritten, evicted, deleted, and killed; then all is free."""
    n = 500 if LONG else 120
    size = 256 * 1024 - 100
    daemon, d = with_passthrough(ctx, dram="512MB", ssd="256MB")
    maps = []
    for i in range(n):
        put(d, f"v{i % 7}", i, size)
        maps.append((pin_down(f"{d}/v{i % 7}"), big_stamped(f"v{i % 7}", i, size)))
        if i % 5 == 0:
            evict(daemon, f"{d}/v{i % 7}", "--force")
        if i % 11 == 0 and os.path.exists(f"{d}/v{i % 7}"):
            os.unlink(f"{d}/v{i % 7}")
    wait_for(lambda: daemon.number("dram", "zombie") > (n - 8) * (size - 4096), "what is gone and mapped is counted", 10)
    for m, data in maps:
        check_bytes(m.bytes(), data, "a mapping of a version that is gone")
    for m, _ in maps[:n // 2]:
        m.close()
    wait_for(lambda: daemon.number("dram", "zombie") < (n // 2 + 8) * (size + 4096), "unmapped is free", 10)
    whole = daemon.number("dram", "capacity")
    daemon.kill(signal.SIGKILL)
    for m, data in maps[n // 2:]:
        check_bytes(m.bytes(), data, "a mapping whose daemon was killed")
    daemon.start()
    capacity = daemon.number("dram", "capacity")
    check(capacity <= 512 * MIB - (n // 2 - 1) * (size - 4096),
          f"the next start offers {capacity}, beside what is mapped still")
    put(f"{daemon.mnt}/ns", "new")
    for m, data in maps[n // 2:]:
        check_bytes(m.bytes(), data, "a mapping beside the next daemon")
        m.close()
    wait_for(lambda: daemon.number("dram", "capacity") == whole, "the node has all its memory again")
    subprocess.run(["sync", "-f", daemon.mnt], check=True)
    subprocess.run(["umount", daemon.mnt], check=True)
    daemon.process.wait(20 * SLOW)


@test(fluxkv=True, timeout=120)
def what_is_mapped_is_no_victim(ctx):
    """Evicting it would free nothing: others go, its next reader finds it in memory, and there is never too much."""
    daemon, d = with_passthrough(ctx, dram="64MB", ssd="512MB")
    maps = []
    for i in range(6):
        put(d, f"m{i}")
        maps.append(pin_down(f"{d}/m{i}"))
    for i in range(40):
        put(d, f"v{i}")
        for _ in range(3): # more wanted than what is mapped
            read_file(f"{d}/v{i}")
    for i, m in enumerate(maps):
        same(os.getxattr(f"{d}/m{i}", "user.fluxkv.tier"), b"dram,ssd", f"tiers of mapped value {i}")
        check_bytes(m.bytes(), big_stamped(f"m{i}", 1, VALUE), f"mapped value {i}")
    same(daemon.number("dram", "zombie"), 0, "zombie bytes")
    for m in maps:
        m.close()
    put(d, "large", size=48 * MIB)
    check(any(os.getxattr(f"{d}/m{i}", "user.fluxkv.tier") == b"ssd" for i in range(6)), "unmapped, they are evicted")
    for i in range(40):
        check_bytes(read_file(f"{d}/v{i}"), big_stamped(f"v{i}", 1, VALUE), f"value {i}")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def all_mapped(ctx):
    """Memory that programs map whole is full: ENOSPC says what is in the way, and goes with the mappings."""
    daemon, d = with_passthrough(ctx, dram="64MB", ssd="512MB")
    maps = []
    with contextlib.suppress(OSError):
        while len(maps) < 40:
            put(d, f"v{len(maps)}")
            maps.append(pin_down(f"{d}/v{len(maps)}"))
    check(12 <= len(maps) <= 16, f"{len(maps)} values of 4 MiB are mapped in 64 MiB")
    lines = [line for line in daemon.log_text().splitlines() if "no room for" in line]
    check(lines and ", 0 B mapped," not in lines[-1], f"the log says what is in the way: {lines}")
    for i, m in enumerate(maps):
        check_bytes(m.bytes(), big_stamped(f"v{i}", 1, VALUE), f"mapped value {i}")
        m.close()
    time.sleep(1.1) # as long as is not asked again whether a value is mapped
    put(d, "next")
    check_bytes(read_file(f"{d}/next"), big_stamped("next", 1, VALUE), "a value put when they had gone")
    daemon.check_empty()


@test(fluxkv=True, timeout=60)
def openers_are_killed(ctx):
    """While the SSD brings in what they open: nobody hangs, nothing stays open, and the daemon ends."""
    daemon, d = with_passthrough(ctx, dram="48MB", ssd="256MB")
    n, rng = 20, random.Random(5)
    for i in range(n):
        put(d, f"v{i}")
    opens = ("import os, random, sys\nwhile True:\n  fd = os.open(sys.argv[1] + f'/v{random.randrange(20)}', os.O_RDONLY)\n"
             "  os.pread(fd, 4096, random.randrange(4 << 20))\n  os.close(fd)\n")
    readers, begun = [], time.monotonic()

    def enough():
        spent = time.monotonic() - begun
        return spent > 30 * SLOW or spent > 5 and daemon.number("fs", "interrupted")

    try:
        while not enough():
            while len(readers) < 8:
                readers.append(subprocess.Popen([sys.executable, "-S", "-c", opens, d]))
            time.sleep(rng.random() / 10)
            r = readers.pop(rng.randrange(len(readers)))
            same(r.poll(), None, "a reader has ended")
            r.kill()
            r.wait(10 * SLOW)
            daemon.cli("evict", "--tier", "dram", f"{d}/v{rng.randrange(n)}", ok=False)
    finally:
        for r in readers:
            r.kill()
            r.wait()
    check(daemon.number("fs", "interrupted"), "somebody was killed while it waited")
    same(daemon.number("fs", "errors_io"), 0, "EIO answers")
    wait_for(lambda: daemon.number("fs", "passthrough", "held") == 0, "no file is held any more")
    daemon.stop() # at once, before other requests' locks put all in order for ThreadSanitizer


@test(fluxkv=True, timeout=120)
def ends_while_opens_wait(ctx):
    """For room that mapped values have: a killed opener goes at once, the others get an error when the daemon ends."""
    daemon, d = with_passthrough(ctx, dram="64MB", ssd="512MB")
    for i in range(3):
        put(d, f"v{i}")
        evict(daemon, f"{d}/v{i}")
    maps = []
    with contextlib.suppress(OSError):
        while len(maps) < 40:
            put(d, f"m{len(maps)}")
            maps.append(pin_down(f"{d}/m{len(maps)}"))
    again = "for n in 1 2 3 4 5; do cat $1 >/dev/null; done" # each waits for some seconds
    readers = [subprocess.Popen(["cat", f"{d}/v0"], stdout=subprocess.DEVNULL),
               *(subprocess.Popen(["sh", "-c", again, "sh", f"{d}/v{i}"], stderr=subprocess.PIPE, text=True)
                 for i in (1, 2))]
    wait_for(lambda: daemon.number("fs", "in_flight") >= 3, "the opens wait")
    readers[0].kill()
    readers[0].wait(2 * SLOW)
    same(daemon.kill(signal.SIGTERM, 30), 0, "exit status")
    for r in readers[1:]:
        _, said = r.communicate(timeout=20 * SLOW)
        check("endpoint is not connected" in said, f"a reader says: {said}")
    log = daemon.log_text()
    check("requests still wait" in log and "for writing" not in log, f"the log says what was given up: {log}")
    for i, m in enumerate(maps):
        check_bytes(m.bytes(), big_stamped(f"m{i}", 1, VALUE), f"mapped value {i}")
        m.close()


@test(fluxkv=True, timeout=60)
def deleted_and_mapped_is_not_granted_again(ctx):
    """Not even in the moment behind the delete: a writer waits for those pages, and gets them."""
    daemon, d = with_passthrough(ctx, dram="64MB")
    for turn in range(1 + 2 * LONG):
        for i in range(10):
            put(d, f"v{i}", turn)
        maps = [pin_down(f"{d}/v{i}") for i in range(10)]
        unmap = threading.Timer(1, lambda maps=maps: [m.close() for m in maps])
        data = big_stamped("large", turn, 48 * MIB)
        for i in range(10):
            os.unlink(f"{d}/v{i}")
        started = time.monotonic()
        unmap.start()
        write_file(f"{d}/large", data) # raises ENOSPC where more was granted than is there
        waited = time.monotonic() - started
        check(waited > 0.9, "it did not wait")
        check(waited < 4 * SLOW, f"it waited for {waited:.1f} s for what there was after one")
        unmap.join()
        check_bytes(read_file(f"{d}/large"), data, "the value that waited")
        os.unlink(f"{d}/large")
    daemon.check_empty()


@test(fluxkv=True, timeout=60)
def more_open_than_half_of_the_memory(ctx):
    """Beyond that reads are copied, so that an open file is still evicted; either way each inode has one way."""
    daemon, d = with_passthrough(ctx, dram="64MB", ssd="512MB")
    fds = []
    for i in range(30):
        put(d, f"v{i}")
        fds.append(os.open(f"{d}/v{i}", os.O_RDONLY))
    check(0 < daemon.number("fs", "passthrough", "held") <= 32 * MIB, "held")
    for i in reversed(range(30)):
        again = os.open(f"{d}/v{i}", os.O_RDONLY) # the way of the first, whatever there is room for by now
        check_bytes(os.pread(again, VALUE, 0), big_stamped(f"v{i}", 1, VALUE), f"value {i}, opened again")
        check_bytes(os.pread(fds[i], VALUE, 0), big_stamped(f"v{i}", 1, VALUE), f"value {i}")
        os.close(fds[i])
        fds[i] = again
    for fd in fds:
        os.close(fd)
    same(daemon.number("fs", "errors_io"), 0, "EIO answers")
    daemon.check_empty()


@test(fluxkv=True, timeout=60)
def opened_at_the_same_time(ctx):
    """Nor is more held by opens that come all at once."""
    daemon, d = with_passthrough(ctx, dram="64MB", fuse_threads=32)
    names = [f"v{i}" for i in range(15)]
    for name in names:
        put(d, name)
    for _ in range(40):
        fds, go = [], threading.Barrier(len(names))

        def opens(name, fds=fds, go=go):
            go.wait()
            fds.append(os.open(f"{d}/{name}", os.O_RDONLY))
        openers = [threading.Thread(target=opens, args=(name,)) for name in names]
        for o in openers:
            o.start()
        for o in openers:
            o.join()
        held = daemon.number("fs", "passthrough", "held")
        for fd in fds:
            os.close(fd)
        check(len(fds) == len(names) and 0 < held <= 32 * MIB, f"{held} bytes are held by {len(fds)} opens")
    daemon.check_empty()


@test(fluxkv=True, timeout=60)
def what_is_on_ssd_alone_comes_by_the_open(ctx):
    """Up to passthrough_max; beyond it, by the reads."""
    daemon, d = with_passthrough(ctx, dram="256MB", ssd="256MB", passthrough_max="2MB")
    for name, size, requests in (("small", MIB, 0), ("large", 8 * MIB, 8)):
        put(d, name, size=size)
        wait_for(lambda n=name: b"ssd" in os.getxattr(f"{d}/{n}", "user.fluxkv.tier"), f"{name} is persisted", 20)
        evict(daemon, f"{d}/{name}")
        fd = os.open(f"{d}/{name}", os.O_RDONLY)
        same(os.getxattr(f"{d}/{name}", "user.fluxkv.tier"), b"ssd" if requests else b"dram,ssd", f"{name}, opened")
        before = daemon.number("fs", "requests")
        check_bytes(os.pread(fd, size, 0), big_stamped(name, 1, size), name)
        took = daemon.number("fs", "requests") - before
        check(took == 0 if not requests else took >= requests, f"{took} requests read {name}")
        os.close(fd)
    same(daemon.status()["hits"]["ssd_local"], 2, "opens that found it on the SSD alone")
    daemon.check_empty()


class Opener(threading.Thread):
    """Opens, reads, maps and closes what the others overwrite, evict and delete."""

    def __init__(self, d, names, seed, until):
        super().__init__()
        self.d, self.names, self.rng, self.until = d, names, random.Random(seed), until
        self.fault, self.reads, self.held = None, 0, []

    def once(self):
        name = self.rng.choice(self.names)
        try:
            fd = os.open(f"{self.d}/{name}", os.O_RDONLY)
        except FileNotFoundError:
            return
        got = os.pread(fd, VALUE + 1, 0)
        version = int.from_bytes(got[:8], "little") if got else 0
        # A version names itself in its first bytes; the rest must be its own.
        check_bytes(got, body(name, version), f"version {version} of {name}")
        self.reads += 1
        if self.rng.random() < 0.3:
            self.held.append((Mapping(fd, len(got)), got))
        os.close(fd)
        if len(self.held) > 4:
            m, data = self.held.pop(0)
            check_bytes(m.bytes(), data, f"a mapping of {name}, later")
            m.close()

    def run(self):
        try:
            while time.monotonic() < self.until:
                self.once()
        except Exception as e: # whatever it is, it must not end the thread unseen
            self.fault = f"{type(e).__name__}: {e}"
        for m, _ in self.held:
            m.close()


def body(name, version):
    size = 100 * 1024 + version * 7919 % 900000
    return version.to_bytes(8, "little") + big_stamped(name, version, size)


@test(fluxkv=True, timeout=120, long_timeout=600)
def readers_race_with_everything(ctx):
    """Opens both ways, in turn and at once, with eviction, overwrites and deletes: never EIO, never other bytes."""
    daemon, d = with_passthrough(ctx, dram="24MB", ssd="128MB", passthrough_max="512KB")
    names = [f"v{i}" for i in range(24)]
    for name in names:
        write_file(f"{d}/{name}", body(name, 1))
    until = time.monotonic() + (120 if LONG else 12)
    openers = [Opener(d, names, seed, until) for seed in range(6)]
    for o in openers:
        o.start()
    rng, version = random.Random(77), 1
    while time.monotonic() < until and not any(o.fault for o in openers):
        name = rng.choice(names)
        what = rng.random()
        if what < 0.5:
            version += 1
            write_file(f"{d}/.tmp", body(name, version))
            os.rename(f"{d}/.tmp", f"{d}/{name}")
        elif what < 0.6:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{d}/{name}")
        else:
            daemon.cli("evict", "--tier", "dram", f"{d}/{name}", ok=False)
    for o in openers:
        o.join()
        check(not o.fault, o.fault)
    reads = sum(o.reads for o in openers)
    diag(f"{reads} reads, {version} versions")
    check(reads > 100 and version > 10, "hardly anything has raced")
    same(daemon.number("fs", "errors_io"), 0, "EIO answers")
    zombies_end(daemon)
    daemon.check_empty()


run(globals())
