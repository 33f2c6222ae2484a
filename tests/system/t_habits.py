# SPDX-License-Identifier: Apache-2.0
"""What programs that keep KV caches in files do, as they do it."""
import ctypes
import ctypes.util
import mmap
import os
import random
import tempfile
import threading

from lib import (MIB, Skip, big_stamped, check, check_bytes, fails, read_file, run, same, stamped, test, wait_for,
                 write_file)
import errno

libc = ctypes.CDLL(None, use_errno=True)


def only_names(d, *names):
    same(sorted(os.listdir(d)), sorted(names), f"names in {d}")


@test()
def temp_file_and_replace(ctx):
    d = ctx.dir()
    for i, size in enumerate((0, 1, 4095, 4096, 4097, MIB - 128, MIB, 4 * MIB + 1, 16 * MIB)):
        data = big_stamped("replace", i, size)
        fd, temp = tempfile.mkstemp(dir=d, prefix=".tmp")
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        os.replace(temp, f"{d}/value")
        check_bytes(read_file(f"{d}/value"), data, f"value of {size} bytes after os.replace")
        same(os.stat(f"{d}/value").st_size, size, "st_size")
    only_names(d, "value")


@test()
def temp_file_fsync_and_replace_with_directory_fsync(ctx):
    d = ctx.dir()
    for i in range(20):
        data = big_stamped("fsync", i, 300000 + i)
        with open(f"{d}/t", "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(f"{d}/t", f"{d}/v")
        fd = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
        check_bytes(read_file(f"{d}/v"), data, "value")


@test()
def c_stdio_stream(ctx):
    """fopen "wb", fwrite in odd pieces, fclose; in place, without a temporary name."""
    libc.fopen.restype = ctypes.c_void_p
    libc.fwrite.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    d = ctx.dir()
    for version in range(3):
        data = big_stamped("stdio", version, 3 * MIB + 17 * version)
        f = libc.fopen(f"{d}/stream".encode(), b"wb")
        check(f, "fopen")
        at = 0
        while at < len(data):
            piece = data[at:at + 1 + (at * 7919 + version) % 70000]
            same(libc.fwrite(piece, 1, len(piece), f), len(piece), "fwrite")
            at += len(piece)
        same(libc.fclose(f), 0, "fclose")
        check_bytes(read_file(f"{d}/stream"), data, "the stream")


@test()
def o_direct_with_odd_lengths(ctx):
    """Any length and alignment: of the offset, of the length, of the memory."""
    d = ctx.dir()
    rng = random.Random(1)
    for version, size in enumerate((1, 511, 512, 513, 4095, 4097, 100001, MIB + 3)):
        data = big_stamped("direct", version, size)
        fd = os.open(f"{d}/v", os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_DIRECT, 0o644)
        at = 0
        while at < size:
            n = min(size - at, rng.choice((1, 100, 512, 4096, 4097, 65536 + 1, MIB)))
            same(os.pwrite(fd, memoryview(data)[at:at + n], at), n, f"pwrite of {n} at {at}")
            at += n
        check_bytes(os.pread(fd, size + 1, 0), data, "read back by the writer")
        os.close(fd)
        fd = os.open(f"{d}/v", os.O_RDONLY | os.O_DIRECT)
        for _ in range(50):
            off, n = rng.randrange(size + 1), rng.randrange(1, 70000)
            check_bytes(os.pread(fd, n, off), data[off:off + n], f"O_DIRECT pread({n}, {off}) of {size}")
        os.close(fd)


@test()
def o_direct_switched_on_and_off(ctx):
    import fcntl
    d = ctx.dir()
    data = big_stamped("setfl", 1, 200001)
    fd = os.open(f"{d}/v", os.O_CREAT | os.O_RDWR, 0o644)
    for i, at in enumerate(range(0, len(data), 33333)):
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if i % 2 else flags & ~os.O_DIRECT)
        os.pwrite(fd, data[at:at + 33333], at)
    check_bytes(os.pread(fd, len(data), 0), data, "by the writer")
    os.close(fd)
    check_bytes(read_file(f"{d}/v"), data, "after close")


@test()
def exclusive_temp_one_write_and_rename(ctx):
    d = ctx.dir()
    for i in range(12):
        data = big_stamped("excl", i, 8 * MIB)
        fd = os.open(f"{d}/v.tmp", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        same(os.write(fd, data), len(data), "one write of 8 MiB")
        os.close(fd)
        os.rename(f"{d}/v.tmp", f"{d}/v{i % 3}")
        check_bytes(read_file(f"{d}/v{i % 3}"), data, f"v{i % 3}")
    only_names(d, "v0", "v1", "v2")


@test()
def exclusive_create_has_one_winner(ctx):
    d = ctx.dir()
    wins = []

    def racer(me):
        for i in range(100):
            try:
                fd = os.open(f"{d}/{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                continue
            os.write(fd, stamped("excl", me, 64))
            os.close(fd)
            wins.append((i, me))

    threads = [threading.Thread(target=racer, args=(me,)) for me in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(sorted(i for i, _ in wins), list(range(100)), "names won")
    for i, me in wins:
        check_bytes(read_file(f"{d}/{i}"), stamped("excl", me, 64), f"{i} is its winner's")


@test()
def ftruncate_shared_mapping_and_rename(ctx):
    d = ctx.dir()
    for i, size in enumerate((1, 4096, 5000, MIB - 128, 5 * MIB)):
        data = big_stamped("mapped", i, size)
        fd = os.open(f"{d}/t", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        os.ftruncate(fd, size)
        with mmap.mmap(fd, size, mmap.MAP_SHARED) as m:
            m[:] = data
            if i % 2:
                m.flush()
        os.close(fd)
        os.rename(f"{d}/t", f"{d}/v")
        check_bytes(read_file(f"{d}/v"), data, f"{size} bytes stored through a mapping")


@test()
def shared_mapping_that_outlives_its_descriptor(ctx):
    d = ctx.dir()
    size = 300000
    fd = os.open(f"{d}/v", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, size)
    m = mmap.mmap(fd, size, mmap.MAP_SHARED)
    os.close(fd)
    data = big_stamped("outlives", 1, size)
    m[:] = data
    m.close()
    # What came through the mapping after the close is published when the last of the file is let go.
    check_bytes(read_file(f"{d}/v"), data, "after munmap")


@test()
def closed_and_opened_again_before_the_rename(ctx):
    """Header first, then reopened r+ to append and to patch the header, then renamed."""
    d = ctx.dir()
    body = big_stamped("reopen", 1, 700000)
    write_file(f"{d}/t", b"HEADER--" + bytes(24))
    with open(f"{d}/t", "r+b") as f:
        f.seek(0, os.SEEK_END)
        same(f.tell(), 32, "end of the first part")
        f.write(body)
    with open(f"{d}/t", "r+b") as f:
        f.write(b"READY!--")
    with open(f"{d}/t", "r+b") as f:
        f.truncate(32 + 600000)
    os.rename(f"{d}/t", f"{d}/v")
    check_bytes(read_file(f"{d}/v"), b"READY!--" + bytes(24) + body[:600000], "value")


@test()
def numpy_memmap_in_all_modes(ctx):
    try:
        import numpy as np
    except ImportError:
        raise Skip("needs numpy") from None
    d = ctx.dir()
    want = np.arange(1 << 18, dtype=np.uint64).reshape(512, 512)
    a = np.memmap(f"{d}/m", dtype=np.uint64, mode="w+", shape=want.shape)
    a[:] = want
    a.flush()
    check((np.memmap(f"{d}/m", dtype=np.uint64, mode="r", shape=want.shape) == want).all(), "read while mapped w+")
    del a
    r = np.memmap(f"{d}/m", dtype=np.uint64, mode="r", shape=want.shape)
    check((r == want).all(), "mode r")
    c = np.memmap(f"{d}/m", dtype=np.uint64, mode="c", shape=want.shape)
    c[0, :] = 7
    check((c[0] == 7).all() and (c[1:] == want[1:]).all(), "mode c")
    check((r == want).all(), "mode c is copy on write")
    del c, r
    e = np.memmap(f"{d}/m", dtype=np.uint64, mode="r+", shape=want.shape)
    check((e == want).all(), "mode r+ starts with the old bytes")
    e[3, 5] = 12345
    e.flush()
    del e
    want[3, 5] = 12345
    check((np.memmap(f"{d}/m", dtype=np.uint64, mode="r", shape=want.shape) == want).all(), "after r+")
    np.save(f"{d}/a.npy", want)
    check((np.load(f"{d}/a.npy", mmap_mode="r") == want).all(), "np.load mmap_mode r")
    np.load(f"{d}/a.npy", mmap_mode="r+")[0, 0] = 99
    same(int(np.load(f"{d}/a.npy")[0, 0]), 99, "after np.load mmap_mode r+")
    want.tofile(f"{d}/raw")
    check((np.fromfile(f"{d}/raw", dtype=np.uint64).reshape(want.shape) == want).all(), "tofile and fromfile")


@test()
def unlinked_while_open(ctx):
    """Random I/O on a file without a name, by reader and writer handles."""
    d = ctx.dir()
    rng = random.Random(2)
    size = 2 * MIB
    data = bytearray(big_stamped("unlinked", 1, size))
    write_file(f"{d}/v", data)
    reader = os.open(f"{d}/v", os.O_RDONLY)
    mapped = mmap.mmap(reader, size, mmap.MAP_SHARED, mmap.PROT_READ)
    frozen = bytes(data)
    writer = os.open(f"{d}/v", os.O_RDWR)
    os.unlink(f"{d}/v")
    fails(errno.ENOENT, "open after unlink", os.open, f"{d}/v", os.O_RDONLY)
    same(os.listdir(d), [], "names")
    write_file(f"{d}/v", b"somebody else")
    for i in range(400):
        off, n = rng.randrange(size), rng.randrange(1, 50000)
        check_bytes(os.pread(writer, n, off), bytes(data[off:off + n]), f"writer's pread {i}")
        if ctx.semantics == "versions":
            check_bytes(os.pread(reader, n, off), frozen[off:off + n], f"reader's pread {i}")
            check_bytes(mapped[off:off + n], frozen[off:off + n], f"reader's mapping {i}")
        piece = stamped("unl", i, min(n, size - off))
        same(os.pwrite(writer, piece, off), len(piece), "pwrite")
        data[off:off + len(piece)] = piece
    os.ftruncate(writer, size // 3)
    same(os.fstat(writer).st_size, size // 3, "size after ftruncate")
    same(os.fstat(writer).st_nlink, 0, "st_nlink of an unlinked file")
    os.close(writer)
    mapped.close()
    os.close(reader)
    check_bytes(read_file(f"{d}/v"), b"somebody else", "the new file of that name")


@test()
def access_in_batches(ctx):
    d = ctx.dir()
    names = [f"{d}/{i:05d}" for i in range(500)]
    there = [n for i, n in enumerate(names) if i % 3 == 0]
    for n in there:
        write_file(n, b"x")
    same([n for n in names if os.access(n, os.R_OK)], there, "access(R_OK)")
    for n in there[::2]:
        os.unlink(n)
    write_file(names[1], b"y")
    left = sorted(set(there) - set(there[::2]) | {names[1]})
    same([n for n in names if os.path.exists(n)], left, "after changes, at once")
    check(os.access(names[1], os.W_OK), "access(W_OK)")
    same(sorted(e.path for e in os.scandir(d)), left, "scandir")


@test()
def evictor_that_watches_statvfs(ctx):
    """f_bavail falls by what is stored, grows by what is deleted. Others may use a plain directory at the same time."""
    d = ctx.dir()
    v = os.statvfs(d)
    if not ctx.plain:
        same((v.f_bsize, v.f_frsize), (4096, 4096), "f_bsize, f_frsize")
        check(0 < v.f_bavail <= v.f_bfree <= v.f_blocks, f"{v}")
    before = v.f_bavail
    for i in range(16):
        write_file(f"{d}/{i}", big_stamped("statvfs", i, 4 * MIB))
    used = (before - os.statvfs(d).f_bavail) * 4096
    slack = 16 * MIB if ctx.plain else 4 * MIB
    check(abs(used - 64 * MIB) <= slack, f"64 MiB stored, f_bavail fell by {used / MIB:.1f} MiB")
    write_file(f"{d}/0", big_stamped("statvfs", 99, 4 * MIB))
    os.rename(f"{d}/0", f"{d}/1")
    for i in range(2, 9):
        os.unlink(f"{d}/{i}")

    def settled():
        now = (before - os.statvfs(d).f_bavail) * 4096
        return abs(now - 32 * MIB) <= slack

    wait_for(settled, "f_bavail has grown by the 32 MiB that were removed", 5)


@test()
def xattrs_set_before_the_rename(ctx):
    d = ctx.dir()
    for i in range(3):
        with open(f"{d}/t", "wb") as f:
            f.write(stamped("xattr", i, 5000))
            os.setxattr(f.fileno(), "user.model", f"llama {i}".encode())
        os.setxattr(f"{d}/t", "user.tokens", b"\0\1\2" * i)
        os.replace(f"{d}/t", f"{d}/v")
        same(os.getxattr(f"{d}/v", "user.model"), f"llama {i}".encode(), "set on the open file")
        same(os.getxattr(f"{d}/v", "user.tokens"), b"\0\1\2" * i, "set on the closed file")
        visible = [n for n in os.listxattr(f"{d}/v") if not n.startswith("user.fluxkv.")]
        same(sorted(visible), ["user.model", "user.tokens"], "listxattr")
        fails(errno.ENOENT, "getxattr of the old name", os.getxattr, f"{d}/t", "user.model")
    # Bytes are overwritten in place: the attributes belong to the file.
    with open(f"{d}/v", "r+b") as f:
        f.write(b"new")
    same(os.getxattr(f"{d}/v", "user.model"), b"llama 2", "after r+")
    write_file(f"{d}/other", b"x")
    os.replace(f"{d}/other", f"{d}/v")
    fails(errno.ENODATA, "attribute of the replaced file", os.getxattr, f"{d}/v", "user.model")


@test()
def readers_never_see_a_half_written_value(ctx):
    """One thread replaces a value by rename, others open and read it: each gets one version whole."""
    d = ctx.dir()
    size, stop, faults, seen = 400000, threading.Event(), [], set()
    versions = [big_stamped("whole", v, size + 1000 * v) for v in range(8)]
    write_file(f"{d}/v", versions[0])

    def reader():
        while not stop.is_set():
            data = read_file(f"{d}/v")
            if data not in versions:
                faults.append(f"{len(data)} bytes of no version")
                return
            seen.add(len(data))

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(300):
        write_file(f"{d}/t", versions[i % 8])
        os.replace(f"{d}/t", f"{d}/v")
    stop.set()
    for t in threads:
        t.join()
    check(not faults, faults[:1])
    check(len(seen) > 1, "the readers saw one version only: the test did not race")


@test()
def many_small_values(ctx):
    d = ctx.dir()
    for i in range(2000):
        os.makedirs(f"{d}/{i % 16:x}", exist_ok=True)
        write_file(f"{d}/{i % 16:x}/{i}", stamped(f"small{i}", i, 128 + i))
    for i in range(2000):
        check_bytes(read_file(f"{d}/{i % 16:x}/{i}"), stamped(f"small{i}", i, 128 + i), f"value {i}")
    same(sum(len(names) for _, _, names in os.walk(d)), 2000, "files found by walk")


@test()
def copies_by_the_usual_tools(ctx):
    import filecmp
    import shutil
    import subprocess
    d, source = ctx.dir(), f"{ctx.temp('src')}/file"
    write_file(source, big_stamped("tools", 1, 5 * MIB + 12345))
    for command in (f"cp {source} {d}/cp", f"dd if={source} of={d}/dd bs=1M status=none",
                    f"dd if={source} of={d}/odd bs=7777 status=none", f"cat {source} > {d}/cat",
                    f"dd if={source} of={d}/direct bs=1M oflag=direct status=none",
                    f"install -m 640 {source} {d}/install", f"tar -C {os.path.dirname(source)} -cf - file | tar -C {d} -xf -",
                    f"cp --sparse=always {source} {d}/sparse", f"mv $(cp {source} {d}/m0; echo {d}/m0) {d}/mv",
                    f"rsync -q {source} {d}/rsync" if shutil.which("rsync") else f"cp -a {source} {d}/rsync"):
        p = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=False)
        same((p.returncode, p.stderr), (0, ""), command)
    for name in os.listdir(d):
        check(filecmp.cmp(source, f"{d}/{name}", shallow=False), f"{name} differs from the source")
    same(len(os.listdir(d)), 10, "copies")


run(globals())
