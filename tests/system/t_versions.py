# SPDX-License-Identifier: Apache-2.0
"""Versions: a published version never changes, a handle holds the one it opened, a name moves at once."""
import errno
import mmap
import os
import random
import threading
import time

from lib import (MIB, big_stamped, check, check_bytes, fails, read_file, run, same, stamped, test, wait_for,
                 write_file)


def drop_cache(path):
    """The kernel's page cache of the file goes: the next read asks the daemon."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def version(path):
    """0: the name stands for a private version, which has no number."""
    try:
        return int(os.getxattr(path, "user.fluxkv.version").decode(), 0)
    except OSError as e:
        same(e.errno, errno.ENODATA, "errno of getxattr user.fluxkv.version")
        return 0


class Held:
    """A version held in every way a reader can: by descriptor, by O_DIRECT descriptor, by mapping."""

    def __init__(self, path, data, touched=True):
        self.data = data
        self.fds = [os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)]
        self.maps = []
        if data:
            fd = os.open(path, os.O_RDONLY)
            self.maps = [mmap.mmap(fd, len(data), kind, mmap.PROT_READ) for kind in (mmap.MAP_SHARED, mmap.MAP_PRIVATE)]
            os.close(fd)
        if touched:
            self.check("when it was opened")

    def check(self, text):
        for i, fd in enumerate(self.fds):
            same(os.fstat(fd).st_size, len(self.data), f"size by descriptor {i} {text}")
            check_bytes(os.pread(fd, len(self.data) + 10, 0), self.data, f"descriptor {i} {text}")
        for i, m in enumerate(self.maps):
            check_bytes(m[:], self.data, f"mapping {i} {text}")

    def close(self):
        for fd in self.fds:
            os.close(fd)
        for m in self.maps:
            m.close()


@test(fluxkv=True)
def handles_hold_their_version(ctx):
    """Against every way to change a name, before and after its bytes were first read."""
    d = ctx.dir()
    size = 2 * MIB + 77

    def overwrite(path):
        write_file(path, big_stamped("held", 2, size + 5))

    def patch(path):
        with open(path, "r+b") as f:
            f.seek(1000)
            f.write(b"patched")

    def patch_mapped(path):
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, size, mmap.MAP_SHARED) as m:
            m[5:12] = b"patched"
        os.close(fd)

    def replace(path):
        write_file(path + ".t", big_stamped("held", 3, 100))
        os.replace(path + ".t", path)

    def append(path):
        with open(path, "ab") as f:
            f.write(b"more")

    def cut(path):
        os.truncate(path, 10)

    def cut_by_handle(path):
        with open(path, "r+b") as f:
            f.truncate(10)

    def empty(path):
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))

    def grow(path):
        with open(path, "r+b") as f:
            f.truncate(size * 2)

    def remove(path):
        os.unlink(path)

    def remove_and_make(path):
        os.unlink(path)
        write_file(path, b"another")

    def rename(path):
        os.rename(path, path + ".renamed")

    def unpublished(path):
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b"not yet published")
        ctx.open_fd = fd

    for change in (overwrite, patch, patch_mapped, replace, append, cut, cut_by_handle, empty, grow, remove,
                   remove_and_make, rename, unpublished):
        for touched in (True, False):
            path = f"{d}/{change.__name__}{touched:d}"
            data = big_stamped("held", 1, size)
            write_file(path, data)
            held = Held(path, data, touched)
            change(path)
            held.check(f"after {change.__name__}{'' if touched else ', first read after it'}")
            if change is unpublished:
                os.close(ctx.open_fd)
                held.check("after the publish")
                check_bytes(read_file(path), b"not yet published", "the new version")
            held.close()


@test(fluxkv=True)
def nothing_is_kept_of_writers_that_are_gone(ctx):
    """Files that are written and never looked at again leave no private version and no inode behind."""
    daemon = ctx.daemon(dram="128MB").start()
    os.mkdir(f"{daemon.mnt}/ns")
    for i in range(1000):
        write_file(f"{daemon.mnt}/ns/{i}", b"x")
        if i % 2:
            os.rename(f"{daemon.mnt}/ns/{i}", f"{daemon.mnt}/ns/renamed{i}")
    wait_for(lambda: daemon.number("now", "private_versions") == 0, "no private version is left", 5)
    # Those of the published versions that rename looked at may stay.
    check(daemon.number("fs", "inodes") < 510, f"{daemon.number('fs', 'inodes')} inodes are left")


@test(fluxkv=True)
def many_versions_at_once(ctx):
    d = ctx.dir()
    held = []
    for v in range(40):
        data = big_stamped("many", v, 100000 + 1000 * v)
        write_file(f"{d}/f", data)
        held.append(Held(f"{d}/f", data))
    for i, h in enumerate(held):
        h.check(f"version {i} of 40, all held")
    inodes = {os.fstat(h.fds[0]).st_ino for h in held}
    same(len(inodes), 40, "inode numbers of 40 versions")
    for h in held[::2]:
        h.close()
    for i, h in enumerate(held[1::2]):
        h.check(f"version {2 * i + 1}, half of the others let go")
        h.close()


@test(fluxkv=True)
def joined_readers_follow_the_writer(ctx):
    """A reader that opened an unpublished version sees what its writers write to it."""
    d = ctx.dir()
    w = os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY)
    r = os.open(f"{d}/f", os.O_RDONLY)
    for i in range(50):
        os.write(w, stamped("join", i, 3000))
        check_bytes(os.pread(r, 4000, 3000 * i), stamped("join", i, 3000), f"piece {i}")
    os.close(w)
    whole = b"".join(stamped("join", i, 3000) for i in range(50))
    check_bytes(os.pread(r, len(whole) + 1, 0), whole, "after the publish")
    time.sleep(0.3) # RELEASE has come
    write_file(f"{d}/f", b"a new version by somebody else")
    check_bytes(os.pread(r, len(whole) + 1, 0), whole, "after the next version: this one is held")
    os.close(r)


@test(fluxkv=True)
def version_numbers_grow(ctx):
    d = ctx.dir()
    seen = []
    for i in range(30):
        write_file(f"{d}/{i % 3}", stamped("grow", i, 100))
        seen.append(version(f"{d}/{i % 3}"))
        if i % 5 == 0:
            os.unlink(f"{d}/{i % 3}")
    same(seen, sorted(set(seen)), "versions, in the order of their closes")
    st = os.stat(f"{d}/2").st_ino
    before = version(f"{d}/2")
    fd = os.open(f"{d}/2", os.O_RDWR)
    os.close(fd)
    wait_for(lambda: version(f"{d}/2") == before and os.stat(f"{d}/2").st_ino == st,
             "an open for writing without a write leaves version and st_ino", 3)
    with open(f"{d}/2", "r+b") as f:
        f.write(b"x")
    check(version(f"{d}/2") > before and os.stat(f"{d}/2").st_ino != st, "a write makes a new version and st_ino")


@test(fluxkv=True)
def fsync_publishes(ctx):
    d = ctx.dir()
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"first")
    os.fsync(fd)
    v1 = version(f"{d}/f")
    check(v1 > 0, "a version after fsync")
    os.pwrite(fd, b"FIRST and second", 0)
    os.fdatasync(fd)
    v2 = version(f"{d}/f")
    check(v2 > v1, f"fdatasync publishes the next version: {v1}, {v2}")
    os.fsync(fd)
    same(version(f"{d}/f"), v2, "fsync with nothing written since publishes nothing")
    os.close(fd)
    same(version(f"{d}/f"), v2, "neither does close")
    check_bytes(read_file(f"{d}/f"), b"FIRST and second", "the file")


@test(fluxkv=True)
def a_new_version_starts_as_a_copy(ctx):
    d = ctx.dir()
    data = bytearray(big_stamped("copy", 1, 3 * MIB + 3))
    write_file(f"{d}/f", data)
    os.setxattr(f"{d}/f", "user.kept", b"yes")
    os.chmod(f"{d}/f", 0o640)
    rng = random.Random(5)
    for i in range(20):
        off = rng.randrange(len(data) - 100)
        with open(f"{d}/f", "r+b") as f:
            f.seek(off)
            f.write(stamped("cp", i, 99))
        data[off:off + 99] = stamped("cp", i, 99)
        check_bytes(read_file(f"{d}/f"), bytes(data), f"version {i}")
    same(os.getxattr(f"{d}/f", "user.kept"), b"yes", "xattr")
    same(os.stat(f"{d}/f").st_mode & 0o777, 0o640, "mode")


@test(fluxkv=True)
def attributes_changed_between_two_publishes(ctx):
    """Set on the published version's inode, while its writer is open or just closed: the next version has them."""
    d = ctx.dir()
    fd = os.open(f"{d}/open", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"a")
    os.fsync(fd)
    os.setxattr(f"{d}/open", "user.a", b"1")
    os.chmod(f"{d}/open", 0o601)
    os.write(fd, b"b")
    os.close(fd)
    same((os.getxattr(f"{d}/open", "user.a"), os.stat(f"{d}/open").st_mode & 0o777), (b"1", 0o601), "writer open")
    for i in range(300):
        write_file(f"{d}/{i}", b"first")
        os.setxattr(f"{d}/{i}", "user.a", b"%d" % i)
        os.chmod(f"{d}/{i}", 0o602)
        with open(f"{d}/{i}", "r+b") as f:
            f.write(b"second")
        same((os.getxattr(f"{d}/{i}", "user.a"), os.stat(f"{d}/{i}").st_mode & 0o777), (b"%d" % i, 0o602), f"file {i}")


@test(fluxkv=True)
def readers_race_with_writers_in_place(ctx):
    """In-place overwrites (fopen "wb") on one node: whoever opens a published version reads it whole."""
    d = ctx.dir()
    size, versions, faults, whole = 300000, {}, [], []
    stop = threading.Event()

    def reader():
        while not stop.is_set():
            fd = os.open(f"{d}/f", os.O_RDONLY)
            a = os.pread(fd, size + 10, 0)
            b = os.pread(fd, size + 10, 0)
            os.close(fd)
            if a == b and len(a) == size: # published, or joined between two writes
                v = int(a[12:20], 16)
                if a != versions.get(v) and a[:32] == stamped("race", v, 32):
                    pieces = {int(a[i + 12:i + 20], 16) for i in range(0, size - 32, 32)}
                    if pieces != {v}:
                        faults.append(f"a mixture of versions {sorted(pieces)}")
                whole.append(v)

    for v in range(4):
        versions[v] = stamped("race", v, size)
    write_file(f"{d}/f", versions[0])
    threads = [threading.Thread(target=reader) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(200):
        write_file(f"{d}/t", versions[i % 4]) if i % 2 else write_file(f"{d}/f", versions[i % 4])
        if i % 2:
            os.replace(f"{d}/t", f"{d}/f")
    stop.set()
    for t in threads:
        t.join()
    check(not faults, faults[:2])
    check(len(set(whole)) > 1, "the readers saw one version: the test did not race")


@test(fluxkv=True)
def evicted_under_an_open_handle(ctx):
    """Handles hold their version whatever eviction does: by force, from either tier, from both."""
    daemon = ctx.daemon(dram="128MB", ssd="512MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    for tiers in (("dram",), ("ssd",), ("dram", "ssd"), ("ssd", "dram")):
        path = f"{d}/{'-'.join(tiers)}"
        data = big_stamped("evict", len(path), 5 * MIB + 1)
        write_file(path, data)
        wait_for(lambda p=path: "ssd" in os.getxattr(p, "user.fluxkv.tier").decode(), "the value is on the SSD", 10)
        held = Held(path, data)
        for tier in tiers:
            daemon.cli("evict", "--tier", tier, "--force", path, ok=False) # may be refused: the handle holds it
            held.check(f"after evict --force --tier {tier}")
        try:
            check_bytes(read_file(path), data, "by name")
        except FileNotFoundError:
            pass
        os.unlink(path) if os.path.exists(path) else None
        held.check("after unlink")
        held.close()
    daemon.check_empty()


@test(fluxkv=True)
def evicted_by_force_is_a_miss(ctx):
    daemon = ctx.daemon(dram="128MB", ssd="256MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    data = big_stamped("miss", 1, 3 * MIB)
    write_file(f"{d}/f", data)
    tier = lambda: os.getxattr(f"{d}/f", "user.fluxkv.tier").decode()
    wait_for(lambda: "dram" in tier() and "ssd" in tier(), "both tiers have it", 10)
    daemon.cli("evict", "--tier", "dram", f"{d}/f")
    same(tier(), "ssd", "tier after evict --tier dram")
    drop_cache(f"{d}/f")
    check_bytes(read_file(f"{d}/f"), data, "refilled from the SSD")
    wait_for(lambda: "dram" in tier(), "a read brings it to memory", 5)
    wait_for(lambda: daemon.cli("evict", "--tier", "dram", f"{d}/f", ok=False).returncode == 0, "evict from memory", 5)
    daemon.cli("prefetch", f"{d}/f")
    check("dram" in tier(), f"tier after prefetch: {tier()}")
    daemon.cli("evict", "--tier", "dram", f"{d}/f")
    p = daemon.cli("evict", "--tier", "ssd", f"{d}/f", ok=False)
    check(p.returncode != 0 and len(p.stderr.strip().splitlines()) == 1, f"evict of the last copy: {p.stderr!r}")
    drop_cache(f"{d}/f")
    check_bytes(read_file(f"{d}/f"), data, "after the refusal")
    wait_for(lambda: daemon.cli("evict", "--tier", "dram", f"{d}/f", ok=False).returncode == 0, "evict from memory", 5)
    daemon.cli("evict", "--tier", "ssd", "--force", f"{d}/f")
    fails(errno.ENOENT, "open of what was evicted from every tier", os.open, f"{d}/f", os.O_RDONLY)
    fails(errno.ENOENT, "stat of it", os.stat, f"{d}/f")
    same(os.listdir(d), [], "names")
    write_file(f"{d}/f", b"again")
    check_bytes(read_file(f"{d}/f"), b"again", "put again")
    daemon.check_empty()


@test(fluxkv=True)
def an_object_of_many_blocks(ctx):
    daemon = ctx.daemon(dram="128MB", ssd="512MB").start()
    daemon.cli("ns", "create", "--block-size", "1MiB", "small")
    d = f"{daemon.mnt}/small"
    data = bytearray(big_stamped("blocks", 1, 20 * MIB + 12345))
    write_file(f"{d}/f", data)
    same(os.getxattr(f"{d}/f", "user.fluxkv.blocks"), b"21", "blocks")
    check_bytes(read_file(f"{d}/f"), bytes(data), "the object")
    held = Held(f"{d}/f", bytes(data))
    rng = random.Random(6)
    with open(f"{d}/f", "r+b", buffering=0) as f:
        for i in range(60):
            off, n = rng.randrange(len(data)), rng.randrange(1, 3 * MIB)
            piece = stamped("bl", i, min(n, len(data) - off))
            same(os.pwrite(f.fileno(), piece, off), len(piece), "pwrite across blocks")
            data[off:off + len(piece)] = piece
        f.truncate(9 * MIB + 1)
        del data[9 * MIB + 1:]
        f.truncate(12 * MIB)
        data += bytes(12 * MIB - len(data))
    check_bytes(read_file(f"{d}/f"), bytes(data), "after writes across blocks")
    held.check("held, of many blocks")
    held.close()
    for i in range(12): # push it out to the SSD
        write_file(f"{d}/fill{i}", big_stamped("fill", i, 16 * MIB))
    check_bytes(read_file(f"{d}/f"), bytes(data), "through the SSD")
    daemon.check_empty()


@test(fluxkv=True, timeout=120)
def an_object_larger_than_memory(ctx):
    """Its blocks go to the SSD while later ones are written, and come back one by one."""
    daemon = ctx.daemon(dram="64MB", ssd="1GB", block_size="4MB").start()
    d = f"{daemon.mnt}/ns"
    os.mkdir(d)
    size = 200 * MIB + 4097
    fd = os.open(f"{d}/model", os.O_CREAT | os.O_WRONLY)
    for off in range(0, size, MIB):
        piece = big_stamped("large", 1, min(MIB, size - off), off)
        same(os.write(fd, piece), len(piece), f"write at {off}")
    os.close(fd)
    same(os.stat(f"{d}/model").st_size, size, "st_size")
    for read in range(2):
        fd = os.open(f"{d}/model", os.O_RDONLY)
        for off in range(0, size, 5 * MIB):
            n = min(5 * MIB, size - off)
            check_bytes(os.pread(fd, n, off), big_stamped("large", 1, n, off), f"read {read} at {off}")
        os.close(fd)
    os.unlink(f"{d}/model")
    daemon.check_empty()


@test(fluxkv=True)
def the_cli_and_the_mount_see_the_same(ctx):
    import subprocess
    from lib import FLUXKV
    d = ctx.dir()
    ns = os.path.basename(d)
    daemon = ctx.shared
    data = big_stamped("cli", 1, 2 * MIB + 5)
    source, target = f"{ctx.temp('cli')}/in", f"{ctx.temp('cli')}/out"
    write_file(source, data)
    os.makedirs(f"{d}/deep/er")
    daemon.cli("put", source, f"{ns}/deep/er/value")
    check_bytes(read_file(f"{d}/deep/er/value"), data, "put by the tool, read through the mount")
    write_file(f"{d}/deep/other", data[::-1])
    daemon.cli("get", f"{ns}/deep/other", target)
    check_bytes(read_file(target), data[::-1], "written through the mount, got by the tool")
    p = subprocess.run([FLUXKV, "--socket", daemon.socket, "ls", f"{ns}/deep"], capture_output=True, text=True, check=True)
    same(sorted(p.stdout.split()), ["er/", "other"], "ls")
    out = daemon.cli("stat", f"{ns}/deep/other").stdout
    check(str(len(data)) in out, f"stat: {out}")
    daemon.cli("pin", f"{ns}/deep/other")
    same(os.getxattr(f"{d}/deep/other", "user.fluxkv.pin"), b"1", "pin by the tool")
    daemon.cli("unpin", f"{ns}/deep/other")
    same(os.getxattr(f"{d}/deep/other", "user.fluxkv.pin"), b"0", "unpin by the tool")
    daemon.cli("rm", f"{ns}/deep/other")
    check(not os.path.exists(f"{d}/deep/other"), "rm by the tool, seen at once")
    same(daemon.cli("rm", f"{ns}/deep/other", ok=False).returncode, 1, "exit status of rm of nothing")
    same(daemon.cli("frobnicate", ok=False).returncode, 2, "exit status of an unknown command")
    daemon.cli("ttl", f"{ns}/deep/er/value", "1")
    wait_for(lambda: not os.path.exists(f"{d}/deep/er/value"), "expired by the tool's ttl", 5)


run(globals(), dram="512MB")
