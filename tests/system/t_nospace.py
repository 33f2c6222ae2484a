# SPDX-License-Identifier: Apache-2.0
"""A full store: ENOSPC at the write or fallocate, never at close, never a short write, and on it goes after."""
import contextlib
import errno
import mmap
import os
import re
import resource
import subprocess
import sys
import threading
import time

from lib import (MIB, SLOW, Failed, Skip, big_stamped, check, check_bytes, diag, fails, process_status, read_file, run,
                 same, sanitized, test, wait_for, write_file)


def store(ctx, **options):
    daemon = ctx.daemon(dram="64MB", **options).start()
    os.mkdir(f"{daemon.mnt}/ns")
    return daemon, f"{daemon.mnt}/ns"


def write_until_full(fd, name, limit, step=MIB):
    """How many bytes went in before ENOSPC; every write is whole or fails."""
    at = 0
    while at < limit:
        piece = big_stamped(name, 1, step, at)
        try:
            n = os.write(fd, piece)
        except OSError as e:
            same(e.errno, errno.ENOSPC, f"errno of the write at {at}")
            return at
        same(n, step, f"bytes that the write at {at} wrote")
        at += n
    raise Failed(f"{limit} bytes went into a store of 64 MiB")


def fill_with_pinned(d):
    """Pins values until one does not fit; how many fitted."""
    for i in range(100):
        try:
            write_file(f"{d}/pin{i}", big_stamped(f"pin{i}", 1, 4 * MIB))
        except OSError as e:
            same(e.errno, errno.ENOSPC, "errno of a put into a store full of pinned values")
            return i
        os.setxattr(f"{d}/pin{i}", "user.fluxkv.pin", b"1")
    raise Failed("100 pinned values of 4 MiB fit 64 MiB")


def blockers(daemon):
    """What the last line of the log about missing room says is in the way, by name, and not 0."""
    with open(daemon.log, encoding="utf-8") as f:
        lines = [line for line in f if "no room for" in line]
    check(lines, "the log says nothing about missing room")
    found = re.findall(r"([0-9.]+ \w+) (being written|open,|mapped,|deleted but|on its way|pinned|"
                       "refused|of deleted)", lines[-1])
    same(len(found), 8, f"kinds of blockers in: {lines[-1]}")
    return {what: size for size, what in found if size != "0 B"}


def until_no_space(fn, *args):
    """Calls what finds no room; how long that took is in the contract: not at once, and not for ever."""
    started = time.monotonic()
    fails(errno.ENOSPC, getattr(fn, "__name__", "call"), fn, *args)
    took = time.monotonic() - started
    check(4 <= took <= 12, f"ENOSPC came after {took:.1f} s")


@test(fluxkv=True, timeout=60)
def what_can_never_fit_costs_nobody_anything(ctx):
    """A size beyond all memory and SSD is refused at once, and nothing is evicted for it."""
    for options in ({}, {"ssd": "128MB"}):
        d = ctx.daemon(dram="64MB", **options).start()
        ns = f"{d.mnt}/ns"
        os.mkdir(ns)
        for i in range(5):
            write_file(f"{ns}/kept{i}", bytes([i]) * 100000)
        fd = os.open(f"{ns}/big", os.O_CREAT | os.O_RDWR)
        started = time.monotonic()
        fails(errno.ENOSPC, "ftruncate to 1 TiB", os.ftruncate, fd, 1 << 40)
        fails(errno.ENOSPC, "ftruncate to 300 MiB", os.ftruncate, fd, 300 * MIB)
        fails(errno.ENOSPC, "fallocate of 1 TiB", os.posix_fallocate, fd, 0, 1 << 40)
        fails(errno.ENOSPC, "a write at 1 TiB", os.pwrite, fd, b"x", 1 << 40)
        took = time.monotonic() - started
        same(d.number("puts", "no_space"), 4, "calls that got no room")
        os.close(fd)
        for i in range(5):
            check_bytes(read_file(f"{ns}/kept{i}"), bytes([i]) * 100000, f"value {i}")
        same(d.number("evictions", "dram"), 0, "evictions")
        check(took < 2 * SLOW, f"it took {took:.1f} s to say so")
        d.stop()


@test(fluxkv=True, timeout=120)
def one_file_larger_than_the_store(ctx):
    daemon, d = store(ctx)
    fd = os.open(f"{d}/large", os.O_CREAT | os.O_RDWR)
    at = write_until_full(fd, "large", 200 * MIB)
    check(at >= 56 * MIB, f"only {at / MIB:.0f} of 64 MiB could be used")
    same(os.fstat(fd).st_size, at, "size after the failed write")
    check_bytes(os.pread(fd, 300 * MIB, 0), big_stamped("large", 1, at), "what was written")
    fails(errno.ENOSPC, "another write", os.pwrite, fd, bytes(MIB), at)
    same(os.pwrite(fd, b"in place", 5), 8, "a write that needs no memory")
    os.ftruncate(fd, at - 8 * MIB)
    same(os.pwrite(fd, bytes(MIB), at - 8 * MIB), MIB, "a write after some was cut off")
    os.close(fd) # never ENOSPC here
    got = read_file(f"{d}/large")
    same(len(got), at - 7 * MIB, "size after close")
    check_bytes(got[5:13], b"in place", "the bytes in place")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def all_pinned(ctx):
    daemon, d = store(ctx)
    fd = os.open(f"{d}/more", os.O_CREAT | os.O_RDWR) # later not even the page that a new file begins with is free
    n = fill_with_pinned(d)
    check(n >= 13, f"only {n} values of 4 MiB fit 64 MiB")
    in_log = blockers(daemon)
    check("pinned" in in_log and "open," not in in_log, f"blockers in the log: {in_log}")
    for i in range(n):
        check_bytes(read_file(f"{d}/pin{i}"), big_stamped(f"pin{i}", 1, 4 * MIB), f"pinned value {i}")
    fails(errno.ENOSPC, "fallocate", os.posix_fallocate, fd, 0, 16 * MIB)
    fails(errno.ENOSPC, "ftruncate up", os.ftruncate, fd, 16 * MIB)
    same(os.fstat(fd).st_size, 0, "size after both")
    os.unlink(f"{d}/pin0")
    os.unlink(f"{d}/pin1")
    os.posix_fallocate(fd, 0, 4 * MIB)
    with mmap.mmap(fd, 4 * MIB, mmap.MAP_SHARED) as m: # what fallocate returned for can be stored to
        m[:] = big_stamped("more", 1, 4 * MIB)
    os.close(fd)
    check_bytes(read_file(f"{d}/more"), big_stamped("more", 1, 4 * MIB), "after two were deleted")
    os.setxattr(f"{d}/pin2", "user.fluxkv.pin", b"0")
    for i in range(10):
        write_file(f"{d}/more{i}", big_stamped("unpinned", i, 4 * MIB))
    check_bytes(read_file(f"{d}/more9"), big_stamped("unpinned", 9, 4 * MIB), "after one was unpinned")
    for i in range(3, n):
        check_bytes(read_file(f"{d}/pin{i}"), big_stamped(f"pin{i}", 1, 4 * MIB), f"pinned value {i}, later")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def all_held_by_readers(ctx):
    daemon, d = store(ctx)
    held = []
    for i in range(100):
        try:
            write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, 4 * MIB))
        except OSError as e:
            same(e.errno, errno.ENOSPC, "errno when all is held")
            break
        held.append(os.open(f"{d}/v{i}", os.O_RDONLY))
    check(12 <= len(held) <= 16, f"{len(held)} values of 4 MiB held in 64 MiB")
    in_log = blockers(daemon)
    check("open," in in_log and "pinned" not in in_log, f"blockers in the log: {in_log}")
    for i, fd in enumerate(held):
        check_bytes(os.pread(fd, 5 * MIB, 0), big_stamped(f"v{i}", 1, 4 * MIB), f"held value {i}")
    os.close(held.pop())
    os.close(held.pop())
    write_file(f"{d}/next", big_stamped("next", 1, 4 * MIB))
    check_bytes(read_file(f"{d}/next"), big_stamped("next", 1, 4 * MIB), "after two were let go")
    for fd in held:
        os.close(fd)
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def all_mapped_by_readers_of_deleted_values(ctx):
    """Pages that deleted values still occupy count: nothing is granted that is not there."""
    daemon, d = store(ctx)
    maps, full = [], False
    for i in range(100):
        try:
            write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, 4 * MIB))
        except OSError as e:
            same(e.errno, errno.ENOSPC, "errno when all is mapped")
            full = True
            break
        fd = os.open(f"{d}/v{i}", os.O_RDONLY)
        maps.append(mmap.mmap(fd, 4 * MIB, mmap.MAP_SHARED, mmap.PROT_READ))
        os.close(fd)
        maps[-1][::4096] # touched
        os.unlink(f"{d}/v{i}")
    check(full and 10 <= len(maps) <= 16, f"{len(maps)} deleted values of 4 MiB mapped in 64 MiB, full: {full}")
    in_log = blockers(daemon)
    check({"deleted but", "of deleted"} & in_log.keys(), f"blockers in the log: {in_log}")
    # The kernel tells of a close only when the last mapping is gone, unless it maps our files directly.
    dram = daemon.status()["dram"]
    check(dram["used"] + dram["zombie"] >= len(maps) * 4 * MIB, f"{len(maps)} mapped values of 4 MiB count as {dram}")
    for i, m in enumerate(maps):
        check_bytes(m[:], big_stamped(f"v{i}", 1, 4 * MIB), f"mapping of deleted value {i}")
    for m in maps:
        m.close()

    def fits():
        try:
            write_file(f"{d}/next", big_stamped("next", 1, 32 * MIB))
            return True
        except OSError:
            return False

    wait_for(fits, "32 MiB fit after the mappings are gone", 10)
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def pages_that_nobody_answers_for(ctx):
    """What outlives its value in a mapping of the file itself is zombie bytes."""
    daemon, d = store(ctx)
    write_file(f"{d}/v", big_stamped("v", 1, 32 * MIB))
    file, = daemon.segment_files()
    with open(file, "rb") as f, mmap.mmap(f.fileno(), 32 * MIB, mmap.MAP_SHARED, mmap.PROT_READ) as m:
        os.unlink(f"{d}/v")
        wait_for(lambda: daemon.number("dram", "zombie") >= 32 * MIB, "32 MiB are zombie bytes", 10)
        for i in range(16):
            write_file(f"{d}/w{i}", big_stamped(f"w{i}", 1, 4 * MIB))
        check_bytes(read_file(f"{d}/w15"), big_stamped("w15", 1, 4 * MIB), "a value put beside them")
        check_bytes(m[:], big_stamped("v", 1, 32 * MIB), "the deleted value's pages")
    wait_for(lambda: daemon.number("dram", "zombie") == 0, "no zombie bytes when it is unmapped", 10)
    write_file(f"{d}/next", big_stamped("next", 1, 48 * MIB))
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def all_private(ctx):
    """Many writers with unpublished bytes: ENOSPC for one, the others' closes succeed."""
    daemon, d = store(ctx)
    fds, full = [], False
    while not full:
        check(len(fds) < 100, "100 unpublished files of 1 MiB fit a store of 64 MiB")
        fd = -1
        try:
            fd = os.open(f"{d}/p{len(fds)}", os.O_CREAT | os.O_WRONLY) # not even its first page may be free
            same(os.write(fd, big_stamped(f"p{len(fds)}", 1, MIB)), MIB, "write")
            fds.append(fd)
        except OSError as e:
            same(e.errno, errno.ENOSPC, "errno")
            if fd >= 0:
                os.close(fd)
            full = True
    # What is granted ahead of the bytes is not taken back from others: at worst as much again.
    check(len(fds) >= 28, f"{len(fds)} unpublished files of 1 MiB fit 64 MiB")
    for fd in fds:
        os.close(fd)
    there = [i for i in range(len(fds)) if os.path.exists(f"{d}/p{i}")] # some may be evicted, now that they can be
    for i in there:
        check_bytes(read_file(f"{d}/p{i}"), big_stamped(f"p{i}", 1, MIB), f"file {i}")
    check(len(there) > len(fds) / 2, f"{len(there)} of {len(fds)} files are left after the closes")
    write_file(f"{d}/next", big_stamped("next", 1, 8 * MIB))
    check_bytes(read_file(f"{d}/next"), big_stamped("next", 1, 8 * MIB), "after the closes: those can be evicted")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def a_write_that_waits_for_space_gets_it(ctx):
    """Space that comes free within the wait is used: the writer is not told ENOSPC."""
    daemon, d = store(ctx)
    fd = os.open(f"{d}/impatient", os.O_CREAT | os.O_WRONLY)
    n = fill_with_pinned(d)
    until_no_space(os.posix_fallocate, fd, 0, 16 * MIB)
    os.close(fd)
    timer = threading.Timer(1, lambda: [os.unlink(f"{d}/pin{i}") for i in range(3)])
    timer.start()
    started = time.monotonic()
    write_file(f"{d}/patient", big_stamped("patient", 1, 8 * MIB))
    took = time.monotonic() - started
    timer.join()
    check(took >= 0.5, f"8 MiB found room after {took:.2f} s, before any was made")
    diag(f"written after {took:.2f} s, {n} values pinned")
    check_bytes(read_file(f"{d}/patient"), big_stamped("patient", 1, 8 * MIB), "the patient one")
    write_file(f"{d}/later", big_stamped("later", 1, 4 * MIB))
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def reads_go_on_in_a_full_store(ctx):
    daemon, d = store(ctx, ssd="512MB", block_size="4MB")
    for i in range(40):
        write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, 4 * MIB))
    time.sleep(0.5)
    n = 0
    fd = os.open(f"{d}/private", os.O_CREAT | os.O_WRONLY)
    try:
        while n < 200:
            same(os.write(fd, big_stamped("private", 1, MIB, n * MIB)), MIB, "write")
            n += 1
    except OSError as e:
        same(e.errno, errno.ENOSPC, "errno")
    diag(f"{n} MiB of one unpublished file in 64 MiB and an SSD tier")
    os.close(fd)
    for i in range(40):
        check_bytes(read_file(f"{d}/v{i}"), big_stamped(f"v{i}", 1, 4 * MIB), f"value {i} beside it")
    check_bytes(read_file(f"{d}/private"), big_stamped("private", 1, n * MIB), "the large one")
    daemon.check_empty()


@test(fluxkv=True, timeout=60)
def no_memory_for_requests(ctx):
    """Who asks meanwhile may be refused or wait; the daemon serves on, and keeps what it has."""
    if sanitized():
        raise Skip("a sanitizer's allocator ends the process")
    daemon = ctx.daemon(dram="256MB", log_allowed="memory|allocate|could not publish|given up")
    daemon.start(wrap=("env", "MALLOC_ARENA_MAX=1")) # other arenas have address space of their own left
    os.mkdir(f"{daemon.mnt}/ns")
    write_file(f"{daemon.mnt}/ns/before", b"b" * MIB)
    size = int(process_status(daemon.pid, "VmSize").split()[0]) << 10
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

    def write(i):
        for k in range(20):
            with contextlib.suppress(OSError):
                write_file(f"{daemon.mnt}/ns/{i}.{k}", bytes([k]) * (4 * MIB))
                os.unlink(f"{daemon.mnt}/ns/{i}.{k}")

    threads = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(6)]
    for t in threads:
        t.start()
    time.sleep(2)
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for t in threads:
        t.join()
    check(daemon.running(), "the daemon lives")
    check_bytes(read_file(f"{daemon.mnt}/ns/before"), b"b" * MIB, "what was there before")
    daemon.check_empty()
    daemon.stop()


@test(fluxkv=True, timeout=120)
def killed_editors_leave_their_room(ctx):
    """What is held between two steps of an open, for a thread that is no more, is free before others give up."""
    daemon = ctx.daemon(dram="32MB").start()
    os.mkdir(f"{daemon.mnt}/ns")
    paths = [f"{daemon.mnt}/ns/v{i}" for i in range(28)]
    for path in paths:
        write_file(path, b"v" * MIB)
    code = ("import os, random, sys\nwhile True:\n"
            "  os.close(os.open(sys.argv[1] + '/v%d' % random.randrange(28), os.O_RDWR))\n")
    editors, end = [], time.monotonic() + 6
    try:
        while time.monotonic() < end: # that somebody is killed at that moment is chance
            while len(editors) < 8:
                editors.append(subprocess.Popen([sys.executable, "-S", "-c", code, f"{daemon.mnt}/ns"]))
            time.sleep(0.03)
            p = editors.pop(0)
            p.kill()
            p.wait()
    finally:
        for p in editors:
            p.kill()
            p.wait()
    for path in paths:
        os.unlink(path)
    diag(f"{daemon.number('now', 'private_versions')} are held for the dead")
    wait_for(lambda: daemon.number("dram", "used") == 0 and daemon.number("now", "private_versions") == 0,
             "their room is free", 4)
    daemon.check_empty()


run(globals())
