# SPDX-License-Identifier: Apache-2.0
"""More data than memory: readers verify every byte while values are overwritten and deleted; the ledgers add up."""
import contextlib
import errno
import fcntl
import json
import mmap
import os
import random
import subprocess
import threading
import time

from lib import (LONG, MIB, SLOW, Failed, big_stamped, check, check_bytes, diag, on_ssd_alone, run, same, small_disk, test,
                 wait_for, write_file)

VALUE = 4 * MIB
SCALE = 8 if LONG else 1
DATASET = 320 * MIB * SCALE # 2.5 GiB on 1 GiB and 4 GiB; sampled: 320 MiB on 128 MiB and 512 MiB


def values():
    return DATASET // VALUE


class Dataset:
    """Values with a version each. deleted: those that were removed at some time, so that a reader may miss them."""

    def __init__(self, d):
        self.d = d
        self.version = [0] * values()
        self.deleted = set()

    def path(self, i):
        return f"{self.d}/{i % 16:x}/v{i}"

    def put(self, i):
        v = self.version[i] + 1
        write_file(self.path(i) + ".t", big_stamped(f"v{i}", v, VALUE))
        os.replace(self.path(i) + ".t", self.path(i))
        self.version[i] = v

    def fill(self):
        for i in range(16):
            os.makedirs(f"{self.d}/{i:x}", exist_ok=True)
        for i in range(values()):
            self.put(i)


def read_value(path):
    """One open and the whole value: None when the name is not there."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        parts = []
        while part := os.read(fd, MIB):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


class Reader(threading.Thread):
    """Reads each value once, in an order of its own, among others that are asked for again and again."""

    def __init__(self, data, seed, stop, may_miss):
        super().__init__()
        self.data, self.rng, self.stopped, self.may_miss = data, random.Random(seed), stop, may_miss
        self.reads = self.misses = 0
        self.fault = None
        self.todo = list(range(values()))
        self.rng.shuffle(self.todo)

    def once(self):
        if self.todo and self.rng.random() < 0.5:
            i = self.todo.pop()
        else:
            i = min(int(self.rng.paretovariate(0.7)) - 1, 10**6) % values()
        before = self.data.version[i]
        got = read_value(self.data.path(i))
        after = self.data.version[i]
        if got is None:
            self.misses += 1
            if not self.may_miss and i not in self.data.deleted:
                raise Failed(f"value {i} is missing, and nobody deleted it")
            return
        self.reads += 1
        # A writer may have published the next version before it says so.
        for v in range(before, after + 2):
            if got == big_stamped(f"v{i}", v, VALUE):
                return
        check_bytes(got, big_stamped(f"v{i}", before, VALUE), f"value {i}, none of its versions {before}..{after + 1}")

    def run(self):
        try:
            while not self.stopped.is_set() or self.todo:
                self.once()
        except (Failed, OSError) as e:
            self.fault = str(e)
            self.todo = []
            self.stopped.set()


def read_while_changed(data, seconds, may_miss, most_changes=1 << 30):
    """Four readers, and a fifth that overwrites and deletes; the numbers of reads and of misses."""
    stop = threading.Event()
    readers = [Reader(data, seed, stop, may_miss) for seed in range(4)]
    for r in readers:
        r.start()
    rng, changes, end = random.Random(99), 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end and not stop.is_set():
            if changes == most_changes:
                time.sleep(0.05)
                continue
            i = rng.randrange(values())
            if rng.random() < 0.15:
                known = i in data.deleted
                data.deleted.add(i)
                try:
                    os.unlink(data.path(i))
                except FileNotFoundError:
                    check(may_miss or known, f"value {i} is missing, and nobody deleted it")
            else:
                data.put(i)
            changes += 1
    finally:
        stop.set()
        for r in readers:
            r.join()
    faults = [r.fault for r in readers if r.fault]
    check(not faults, "; ".join(faults[:2]))
    reads, misses = sum(r.reads for r in readers), sum(r.misses for r in readers)
    check(reads > 0 and (changes > 0 or not most_changes), f"{reads} reads, {changes} changes")
    return reads, misses


def hits(daemon):
    return {k: v for k, v in daemon.status()["hits"].items()}


def check_hits(before, after, reads):
    by = {k: after[k] - before.get(k, 0) for k in after}
    same(by.get("unknown", 0), 0, "hits of unknown source")
    same(sum(by.values()), reads, f"hits by source {by}, against reads")
    return by


@test(fluxkv=True, timeout=180, long_timeout=1800)
def nothing_is_lost_or_mixed_up_with_ssd(ctx):
    daemon = ctx.daemon(dram=f"{128 * SCALE}MB", ssd=f"{512 * SCALE}MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    data = Dataset(d)
    data.fill()
    before = hits(daemon)
    reads, _ = read_while_changed(data, 60 if LONG else 6, False, 0)
    by = check_hits(before, hits(daemon), reads)
    diag(f"quiet: {reads} reads, {by}")
    ssd = sum(v for k, v in by.items() if "ssd" in k)
    check(ssd > 0 and ssd < reads, f"both tiers must have answered: {by}")
    # The ring has room for the data set and for so many new versions before it comes round to the oldest.
    before = hits(daemon)
    reads, misses = read_while_changed(data, 60 if LONG else 8, False, 25 * SCALE)
    by = check_hits(before, hits(daemon), reads)
    diag(f"with changes: {reads} reads, {misses} misses of deleted values, {by}")
    check_numbers(daemon)
    for i in range(values()): # everything that was not deleted is there, from whichever tier
        got = read_value(data.path(i))
        check(got is not None or i in data.deleted, f"value {i} is lost")
        if got is not None:
            check_bytes(got, big_stamped(f"v{i}", data.version[i], VALUE), f"value {i} at the end")
    # On and on: what the ring overwrites and memory has not is a miss, and nothing else is.
    before = hits(daemon)
    reads, misses = read_while_changed(data, 60 if LONG else 8, True)
    by = check_hits(before, hits(daemon), reads)
    diag(f"round the ring: {reads} reads, {misses} misses, {by}")
    check_numbers(daemon)
    daemon.check_empty()


def check_numbers(daemon):
    s = daemon.status()
    for tier in ("dram", "ssd"):
        check(s[tier]["used"] + s[tier].get("reserved", 0) <= s[tier]["capacity"], f"{tier}: {s[tier]}")
    same((s["checksum_errors"], s["puts"]["no_space"], s["misses"]["owner_lost"]), (0, 0, 0),
         "checksum errors, puts without space, lost owners")


@test(fluxkv=True, timeout=180, long_timeout=1800)
def what_is_there_is_right_without_ssd(ctx):
    daemon = ctx.daemon(dram=f"{128 * SCALE}MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    data = Dataset(d)
    data.fill()
    before = hits(daemon)
    reads, misses = read_while_changed(data, 60 if LONG else 8, True)
    by = check_hits(before, hits(daemon), reads)
    diag(f"{reads} reads, {misses} misses, {by}")
    check(misses > 0, "nothing was evicted: the test does not fill the memory")
    check(daemon.status()["evictions"].get("dram", 0) > 0, "evictions are not counted")
    listed = sum(len(names) for _, _, names in os.walk(d))
    there = sum(read_value(data.path(i)) is not None for i in range(values()))
    check(abs(listed - there) <= 2, f"{listed} names listed, {there} can be read")
    check(there * VALUE > 0.75 * 128 * SCALE * MIB, f"{there} values of 4 MiB are left in {128 * SCALE} MiB")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def pinned_values_stay(ctx):
    daemon = ctx.daemon(dram="64MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    for i in range(5):
        write_file(f"{d}/pin{i}", big_stamped(f"pin{i}", 1, VALUE))
        os.setxattr(f"{d}/pin{i}", "user.fluxkv.pin", b"1")
    for i in range(60):
        write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, VALUE))
    for i in range(5):
        check_bytes(read_value(f"{d}/pin{i}") or b"", big_stamped(f"pin{i}", 1, VALUE), f"pinned value {i}")
    os.setxattr(f"{d}/pin0", "user.fluxkv.pin", b"0")
    for i in range(600): # in its turn: once others are read as often as it was
        if not os.path.exists(f"{d}/pin0"):
            break
        write_file(f"{d}/w{i % 60}", big_stamped(f"w{i}", 1, VALUE))
        for _ in range(3):
            read_value(f"{d}/w{i % 60}")
    diag(f"gone after {i} other values")
    check(read_value(f"{d}/pin0") is None, "a value whose pin was taken away is evicted like others")
    check_bytes(read_value(f"{d}/pin1") or b"", big_stamped("pin1", 1, VALUE), "a value that is still pinned")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def hot_values_stay_in_memory(ctx):
    """A scan of cold values once must not push out what is read all the time."""
    daemon = ctx.daemon(dram="128MB", ssd="1GB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    for i in range(100):
        write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, VALUE))
    for _ in range(6):
        for i in range(8):
            read_value(f"{d}/v{i}")
    for i in range(20, 100):
        read_value(f"{d}/v{i}")
        if i % 5 == 0:
            for k in range(8):
                read_value(f"{d}/v{k}")
    before = hits(daemon)
    for i in range(8):
        check_bytes(read_value(f"{d}/v{i}"), big_stamped(f"v{i}", 1, VALUE), f"hot value {i}")
    by = {k: v - before[k] for k, v in hits(daemon).items()}
    check(sum(v for k, v in by.items() if "mem" in k) >= 7, f"8 hot values were read from: {by}")


@test(fluxkv=True)
def statvfs_counts_both_tiers(ctx):
    """Blocks are DRAM and SSD; a value that both have is counted once."""
    daemon = ctx.daemon(dram="64MB", ssd="128MB").start()
    os.mkdir(f"{daemon.mnt}/ns")
    before = os.statvfs(daemon.mnt)
    same(before.f_blocks * 4096, 192 * MIB, "f_blocks in bytes")
    for i in range(24):
        write_file(f"{daemon.mnt}/ns/{i}", big_stamped(f"{i}", 1, VALUE))
    wait_for(lambda: not daemon.number("persists", "backlog_bytes"), "everything is on the SSD")
    after = os.statvfs(daemon.mnt)
    same((before.f_bavail - after.f_bavail) * 4096, 24 * VALUE, "f_bavail fell by")
    same(after.f_blocks, before.f_blocks, "f_blocks")


@test(fluxkv=True, timeout=120)
def values_of_all_sizes_through_both_tiers(ctx):
    daemon = ctx.daemon(dram="64MB", ssd="512MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    rng, sizes = random.Random(8), {}
    for i in range(300):
        size = rng.choice((0, 1, 100, 511, 512, 513, 4095, 4096, 4097, 65536, MIB - 128, MIB, 2 * MIB + 1))
        sizes[i] = size
        write_file(f"{d}/{i}", big_stamped(f"{i}", 1, size))
    order = list(sizes)
    for _ in range(2):
        rng.shuffle(order)
        for i in order:
            check_bytes(read_value(f"{d}/{i}"), big_stamped(f"{i}", 1, sizes[i]), f"value {i} of {sizes[i]} bytes")
    daemon.check_empty()


def together(n, act):
    """Runs act(i) in n threads that begin at the same time, and returns what went wrong."""
    faults, start = [], threading.Barrier(n)

    def one(i):
        start.wait()
        try:
            act(i)
        except (OSError, Failed) as e:
            faults.append(f"{i}: {e}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return faults


@test(fluxkv=True, timeout=120)
def readers_of_many_blocks_need_nobody(ctx):
    """Each wants several blocks that the SSD alone has, all together more than the memory: none waits for another."""
    for block, size, n, off, length, direct in (("4MiB", 8 * MIB, 6, 4 * MIB - 512 * 1024, MIB, os.O_DIRECT),
                                                ("64KiB", MIB, 40, 0, MIB, os.O_DIRECT),
                                                ("64KiB", 2 * MIB, 24, 0, 2 * MIB, 0)):
        daemon = ctx.daemon(dram="16MB", ssd="256MB").start()
        daemon.cli("ns", "create", "ns", "--block-size", block)
        paths = [f"{daemon.mnt}/ns/v{i}" for i in range(n)]
        for path in paths:
            write_file(path, big_stamped(os.path.basename(path), 1, size))
        for path in paths: # what is written last needs none of the first, which are evicted by themselves
            wait_for(lambda path=path: b"ssd" in os.getxattr(path, "user.fluxkv.tier"), f"{path} is persisted")
        daemon.cli("evict", "-r", "--tier", "dram", "ns")

        def read(i, paths=paths, off=off, length=length, direct=direct):
            fd = os.open(paths[i], os.O_RDONLY | direct)
            try:
                with mmap.mmap(-1, length) as m:
                    same(os.preadv(fd, [m], off), length, "bytes of one read")
                    check_bytes(m[:], big_stamped(f"v{i}", 1, length, off), f"value {i}")
            finally:
                os.close(fd)

        same(together(n, read), [], f"blocks of {block}, {n} readers of {length}: faults")
        for path in paths:
            os.unlink(path)
        daemon.check_empty()
        daemon.stop()


@test(fluxkv=True, timeout=120)
def editors_need_no_second_room(ctx):
    """Who changes a value in place needs room for its copy, and not for what it copies besides."""
    daemon = ctx.daemon(dram="16MB", ssd="256MB").start()
    os.mkdir(f"{daemon.mnt}/ns")
    size, n = 5 * MIB, 6

    def put(name, size):
        path = f"{daemon.mnt}/ns/{name}"
        write_file(path, big_stamped(name, 1, size))
        wait_for(lambda: b"ssd" in os.getxattr(path, "user.fluxkv.tier"), f"{path} is persisted")

    def change(name, size, keep=None):
        path = f"{daemon.mnt}/ns/{name}"
        fd = os.open(path, os.O_RDWR)
        try:
            if keep:
                os.ftruncate(fd, keep)
            same(os.pwrite(fd, b"z" * 4096, 8192), 4096, "written")
            if keep: # what was cut off is not to be seen again
                os.ftruncate(fd, size)
        finally:
            os.close(fd)
        data = bytearray(big_stamped(name, 1, size))
        if keep:
            data[keep:] = bytes(size - keep)
        data[8192:8192 + 4096] = b"z" * 4096
        with open(path, "rb") as f:
            check_bytes(f.read(), bytes(data), f"{name}, changed")

    # Blocks of another size by then; a part of the value is all that stays.
    for block, keep in ((None, None), ("64KiB", None), (None, 3 * MIB + 100), ("1MiB", 100000), (None, 8192)):
        for i in range(n):
            put(f"v{i}", size)
        daemon.cli("evict", "-r", "--tier", "dram", "ns")
        if block:
            daemon.cli("ns", "set", "ns", "--block-size", block)
        same(together(n, lambda i, keep=keep: change(f"v{i}", size, keep)), [], f"faults of many at once, {block}, {keep}")
    daemon.cli("ns", "set", "ns", "--block-size", "64MiB")
    # More than half of the memory, and in it: its own copy takes the place of what it is made from.
    put("large", 9 * MIB)
    change("large", 9 * MIB)
    put("larger", 15 * MIB + 100)
    change("larger", 15 * MIB + 100)
    for name in os.listdir(f"{daemon.mnt}/ns"):
        os.unlink(f"{daemon.mnt}/ns/{name}")
    daemon.check_empty()
    daemon.stop()


def blocks_on_ssd(daemon, key):
    said = json.loads(daemon.cli("stat", "--json", key).stdout)
    said = said[0] if isinstance(said, list) else said
    return said["in_ssd"], said["blocks"]


@test(fluxkv=True)
def dropped_from_the_backlog_and_persisted_later(ctx):
    """What a burst leaves in memory alone goes to the SSD when the device has caught up, and is not lost then."""
    daemon = ctx.daemon(dram="64MB", ssd="512MB", persist_backlog="4MB").start()
    daemon.cli("ns", "create", "ns", "--block-size", "1MiB")
    path = f"{daemon.mnt}/ns/big"
    write_file(path, big_stamped("big", 1, 22 * MIB))
    wait_for(lambda: blocks_on_ssd(daemon, "ns/big") == (22, 22), "all blocks are on the SSD", 30)
    check(daemon.number("persists", "dropped") > 0, "some were dropped before")
    same(daemon.number("persists", "backlog_bytes"), 0, "what waits in the end")
    for i in range(32):
        write_file(f"{daemon.mnt}/ns/other", big_stamped("other", i, 4 * MIB))
        os.rename(f"{daemon.mnt}/ns/other", f"{daemon.mnt}/ns/o{i}")
    check_bytes(read_value(path), big_stamped("big", 1, 22 * MIB), "the value, after twice the memory of others")
    # Deleted before its turn comes, it is nothing to persist.
    write_file(path, big_stamped("big", 2, 22 * MIB))
    for name in os.listdir(f"{daemon.mnt}/ns"):
        os.unlink(f"{daemon.mnt}/ns/{name}")
    daemon.check_empty()
    daemon.stop()


@test(fluxkv=True)
def a_device_that_comes_back_is_filled_again(ctx):
    """What memory has of namespaces that go to the SSD is copied there; nothing else is."""
    daemon = ctx.daemon(dram="64MB", ssd="128MB", ssd_retry="1s", log_allowed="ssd|SSD|read of inode").start()
    daemon.cli("ns", "create", "ns", "--block-size", "1MiB")
    daemon.cli("ns", "create", "memory", "--persist", "no")
    paths = [f"{daemon.mnt}/ns/v{i}" for i in range(6)]
    for path in paths:
        write_file(path, big_stamped(os.path.basename(path), 1, 3 * MIB))
    write_file(f"{daemon.mnt}/memory/m", big_stamped("m", 1, 3 * MIB))
    on_ssd_alone(daemon, paths[0])
    for at, _, names in os.walk(daemon.ssd_path):
        for name in names:
            if name.startswith("shard"):
                os.truncate(f"{at}/{name}", 0)
    try:
        check(read_value(paths[0]) is None, "what was on the lost device alone is read")
    except OSError as e:
        same(e.errno, errno.EIO, "errno of what was on the lost device alone")
    wait_for(lambda: os.getxattr(paths[5], "user.fluxkv.tier") == b"dram", "the device is taken out")
    wait_for(lambda: all(os.getxattr(path, "user.fluxkv.tier") == b"dram,ssd" for path in paths[1:]),
             "the others are on the SSD again", 30)
    same(os.getxattr(f"{daemon.mnt}/memory/m", "user.fluxkv.tier"), b"dram", "tier of what is for memory alone")
    for path in paths[1:]:
        on_ssd_alone(daemon, path)
        check_bytes(read_value(path), big_stamped(os.path.basename(path), 1, 3 * MIB), path)
    daemon.stop()


@test(fluxkv=True, timeout=120)
def larger_than_the_ring_and_whole(ctx):
    """What memory has of a value that the ring cannot hold stays there: on its way it would overwrite the rest."""
    daemon = ctx.daemon(dram="64MB", ssd="64MB").start()
    daemon.cli("ns", "create", "ns", "--block-size", "4MiB")
    path = f"{daemon.mnt}/ns/big"
    for k, size in enumerate((72, 64, 80, 60)):
        write_file(path, big_stamped("big", k, size * MIB))
        time.sleep(0.5) # for what it would persist now
        if k == 2:
            daemon.cli("pin", "ns/big")
            time.sleep(0.5)
        check_bytes(read_value(path), big_stamped("big", k, size * MIB), f"a value of {size} MiB")
        os.unlink(path)
    daemon.check_empty()
    daemon.stop()


@test(fluxkv=True, timeout=120)
def deleted_while_it_is_read(ctx):
    """Its blocks come from the SSD as long as it is open, all of them together more than the memory."""
    daemon = ctx.daemon(dram="16MB", ssd="256MB").start()
    daemon.cli("ns", "create", "ns", "--block-size", "1MiB")
    size, n = 24 * MIB, 3
    paths = [f"{daemon.mnt}/ns/v{i}" for i in range(n)]

    def read(i, fd):
        for off in range(0, size, MIB):
            check_bytes(os.pread(fd, MIB, off), big_stamped(f"v{i}", 1, MIB, off), f"value {i} at {off}")

    for path in paths:
        write_file(path, big_stamped(os.path.basename(path), 1, size))
        wait_for(lambda path=path: b"ssd" in os.getxattr(path, "user.fluxkv.tier"), f"{path} is persisted")
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        os.unlink(paths[0])
        write_file(paths[1], b"new")
        read(2, fds[2])
        os.unlink(paths[2]) # parts of it are in memory
        for _ in range(2):
            same(together(n, lambda i: read(i, fds[i])), [], "faults of readers")
        # Others get the room, too.
        write_file(f"{daemon.mnt}/ns/other", big_stamped("other", 1, 12 * MIB))
        read(0, fds[0])
    finally:
        for fd in fds:
            os.close(fd)
    for name in os.listdir(f"{daemon.mnt}/ns"):
        os.unlink(f"{daemon.mnt}/ns/{name}")
    daemon.check_empty()
    daemon.stop()


def flip_in_shards(root, needle):
    """Changes a byte behind each place where the shard files have the needle; how many."""
    flipped = 0
    for at, _, names in os.walk(root):
        for name in names:
            with open(f"{at}/{name}", "r+b") as f, mmap.mmap(f.fileno(), 0) if os.path.getsize(f"{at}/{name}") else \
                 contextlib.nullcontext(b"") as m:
                os.fsync(f.fileno())
                i = m.find(needle)
                while i >= 0:
                    m[i + len(needle)] ^= 0x10
                    flipped += 1
                    i = m.find(needle, i + 1)
                if flipped:
                    m.flush()
    return flipped


def is_miss(path):
    try:
        return read_value(path) is None
    except OSError as e:
        same(e.errno, errno.EIO, f"errno of a read of {path}")
        return False


@test(fluxkv=True)
def bytes_flipped_on_the_medium(ctx):
    """The checksum finds them: a miss or an error, never other bytes; the value can be put again."""
    daemon = ctx.daemon(dram="64MB", ssd="128MB", log_allowed="checksum|read of inode|write of inode").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    data = {n: big_stamped(n, 1, 2 * MIB + 100) for n in ("broken", "whole", "edited")}
    for n, content in data.items():
        write_file(f"{d}/{n}", content)
        on_ssd_alone(daemon, f"{d}/{n}")
    for n in ("broken", "edited"):
        same(flip_in_shards(daemon.ssd_path, data[n][4096 * 100:4096 * 101]), 1, f"places flipped in {n}")
    try:
        got = read_value(f"{d}/broken")
        check(got is None, f"a read of flipped bytes succeeds: {'the old bytes' if got == data['broken'] else 'others'}")
    except OSError as e:
        check(e.errno == errno.EIO, f"errno of a read of flipped bytes: {e}")
    check(daemon.number("checksum_errors") >= 1, "checksum errors are counted")
    check(read_value(f"{d}/broken") is None, "after the error it is a miss")
    fd = os.open(f"{d}/edited", os.O_RDWR)
    try:
        os.pwrite(fd, b"x", 0)
        raise Failed("flipped bytes are taken over into a changed value")
    except OSError as e:
        check(e.errno == errno.EIO, f"errno of a change of flipped bytes: {e}")
    finally:
        os.close(fd)
    wait_for(lambda: is_miss(f"{d}/edited"), "it is a miss, too, when the kernel has told of the close")
    check_bytes(read_value(f"{d}/whole"), data["whole"], "the value beside it")
    write_file(f"{d}/broken", data["broken"])
    check_bytes(read_value(f"{d}/broken"), data["broken"], "put again")
    daemon.check_empty()


def shut_down(path):
    """The file system at path fails every access from now on, as a dying device does."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x8004587D, (2).to_bytes(4, "little")) # EXT4_IOC_SHUTDOWN, without a flush
    finally:
        os.close(fd)


@test(fluxkv=True, timeout=120)
def the_other_device_takes_what_one_has_lost(ctx):
    """While a device is out, what it had of values that are in memory goes to the one that works."""
    disks = [small_disk(ctx, 160), small_disk(ctx, 160)]
    for disk in disks:
        os.mkdir(f"{disk}/ssd")
    daemon = ctx.daemon(dram="64MB", ssd=[f"{disk}/ssd:96MB" for disk in disks], ssd_retry="1h", block_size="4MiB",
                        log_allowed="ssd|SSD|/disk|read of inode").start()
    try:
        os.mkdir(f"{daemon.mnt}/ns")
        paths = [f"{daemon.mnt}/ns/v{i}" for i in range(10)]
        for path in paths:
            write_file(path, big_stamped(os.path.basename(path), 1, 2 * MIB))
            wait_for(lambda path=path: b"ssd" in os.getxattr(path, "user.fluxkv.tier"), f"{path} is persisted", 20)
        devices = lambda: daemon.status()["ssd"]["devices"]
        check(all(d["objects"] > 1 for d in devices()), f"both devices have some: {devices()}")
        shut_down(disks[0])
        on_ssd_alone(daemon, paths[0])
        on_ssd_alone(daemon, paths[1]) # one of two is on the first
        for path in paths[:2]:
            with contextlib.suppress(OSError):
                read_value(path)
        wait_for(lambda: devices()[0]["failed"], "the first device is out", 30)
        for path in paths[2:]: # each can leave memory, so it is on the other one
            wait_for(lambda path=path: daemon.cli("evict", "--tier", "dram", path, ok=False).returncode == 0,
                     f"{path} is on the other device", 20)
            check_bytes(read_value(path), big_stamped(os.path.basename(path), 1, 2 * MIB), path)
    finally:
        daemon.end()
        for disk in disks:
            subprocess.run(["umount", "-l", disk], check=False)


@test(fluxkv=True, timeout=120)
def a_device_that_fails(ctx):
    """Puts go on, memory answers, the other device goes on; what only the dead one had is a miss, soon."""
    disks = [small_disk(ctx, 160), small_disk(ctx, 160)]
    for disk in disks:
        os.mkdir(f"{disk}/ssd")
    daemon = ctx.daemon(dram="128MB", ssd=[f"{disk}/ssd:96MB" for disk in disks],
                        log_allowed="ssd|SSD|/disk|read of inode").start()
    try:
        d = f"{daemon.mnt}/ns"
        os.mkdir(d)
        for i in range(12):
            write_file(f"{d}/v{i}", big_stamped(f"v{i}", 1, VALUE))
        for i in range(8):
            on_ssd_alone(daemon, f"{d}/v{i}")
        shut_down(disks[0])
        started, gone = time.monotonic(), 0
        for i in range(12):
            try:
                got = read_value(f"{d}/v{i}")
            except OSError as e:
                check(e.errno == errno.EIO, f"errno of a read from a failing device: {e}")
                got = None
            if got is None:
                gone += 1
                check(i < 8, f"value {i} is lost, and memory had it")
            else:
                check_bytes(got, big_stamped(f"v{i}", 1, VALUE), f"value {i}")
        check(time.monotonic() - started < 20 * SLOW, f"12 reads took {time.monotonic() - started:.0f} s")
        check(0 < gone < 8, f"{gone} of 8 values that lay on two devices are gone")
        for i in range(40):
            write_file(f"{d}/n{i}", big_stamped(f"n{i}", 1, VALUE))
        check_bytes(read_value(f"{d}/n39"), big_stamped("n39", 1, VALUE), "a value put after the failure")
        wait_for(lambda: [x["failed"] for x in daemon.status()["ssd"]["devices"]].count(True) == 1,
                 f"the status names the failed device: {daemon.status()['ssd']}", 10)
        check(disks[0] in daemon.log_text(), f"the log names it: {daemon.last_lines()}")
        same(daemon.status()["hits"]["unknown"], 0, "hits of unknown source")
        daemon.check_empty()
        same(daemon.kill(15), 0, "exit status")
    finally:
        for disk in disks:
            subprocess.run(["umount", "-l", disk], check=False)


run(globals())
