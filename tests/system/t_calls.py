# SPDX-License-Identifier: Apache-2.0
"""The calls on files: reading, mapping, copying, attributes, locks, xattrs. The contract, line by line."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time

from lib import (MIB, Skip, big_stamped, check, check_bytes, fails, raw_mmap, read_file, run, same, stamped,
                 syscall_result, test, wait_for, write_file)

libc = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534


def value(ctx, name="v", size=3 * MIB + 123):
    d = ctx.dir()
    data = big_stamped(name, 1, size)
    write_file(f"{d}/{name}", data)
    return f"{d}/{name}", data


@test()
def reads_are_never_short(ctx):
    path, data = value(ctx, size=20 * MIB + 7)
    fd = os.open(path, os.O_RDONLY)
    rng = random.Random(3)
    for _ in range(60):
        off, n = rng.randrange(len(data) + 100), rng.choice((1, 4096, 100000, MIB, 9 * MIB, 64 * MIB))
        check_bytes(os.pread(fd, n, off), data[off:off + n], f"pread({n}, {off})")
    check_bytes(os.read(fd, 64 * MIB), data, "one read of everything")
    same(os.read(fd, 100), b"", "read at the end")
    same(os.pread(fd, 100, len(data) + 10 * MIB), b"", "read beyond the end")
    same(os.pread(fd, 0, 5), b"", "read of nothing")
    buffers = [bytearray(n) for n in (1, 4096, 77, 3 * MIB, 5)]
    same(os.preadv(fd, buffers, 11), sum(map(len, buffers)), "preadv")
    check_bytes(b"".join(buffers), data[11:11 + sum(map(len, buffers))], "preadv")
    os.lseek(fd, -5, os.SEEK_END)
    check_bytes(os.read(fd, 100), data[-5:], "the last bytes")
    fails(errno.EBADF, "write to a read-only descriptor", os.write, fd, b"x")
    fails(errno.EINVAL, "ftruncate of one", os.ftruncate, fd, 0)
    os.close(fd)


@test()
def mappings(ctx):
    path, data = value(ctx)
    fd = os.open(path, os.O_RDONLY)
    kinds = {"shared": mmap.MAP_SHARED, "private": mmap.MAP_PRIVATE,
             "shared, populated": mmap.MAP_SHARED | mmap.MAP_POPULATE,
             "private, populated": mmap.MAP_PRIVATE | mmap.MAP_POPULATE}
    for text, kind in kinds.items():
        with mmap.mmap(fd, len(data), kind, mmap.PROT_READ) as m:
            check_bytes(m[:], data, f"{text} mapping")
            m.madvise(mmap.MADV_SEQUENTIAL)
            m.madvise(mmap.MADV_WILLNEED)
            m.madvise(mmap.MADV_DONTNEED)
            check_bytes(m[4090:5000], data[4090:5000], f"{text} mapping after madvise")
    with mmap.mmap(fd, 8192, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=MIB) as m:
        check_bytes(m[:], data[MIB:MIB + 8192], "mapping with an offset")
    with mmap.mmap(fd, len(data), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        m[:100] = bytes(100)
        check_bytes(m[100:200], data[100:200], "private writable mapping")
    check_bytes(os.pread(fd, 200, 0), data[:200], "a private mapping's stores are private")
    fails((errno.EACCES, errno.EPERM), "shared writable mapping of a read-only descriptor", mmap.mmap, fd, 4096,
          mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    m = mmap.mmap(fd, len(data), mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(fd)
    check_bytes(m[:], data, "a mapping whose descriptor is closed")
    os.unlink(path)
    write_file(path, bytes(1000))
    check_bytes(m[:], data, "a mapping whose file is unlinked and made again")
    m.close()


@test()
def a_mapping_cannot_be_made_writable(ctx):
    path, data = value(ctx, size=8192)
    fd = os.open(path, os.O_RDONLY)
    at = raw_mmap(fd, 8192, mmap.PROT_READ)
    os.close(fd)
    ret = libc.mprotect(ctypes.c_void_p(at), 8192, mmap.PROT_READ | mmap.PROT_WRITE)
    same((ret, ctypes.get_errno()), (-1, errno.EACCES), "mprotect of a shared mapping of a read-only descriptor")
    check_bytes(ctypes.string_at(at, 8192), data, "the mapping")
    libc.munmap(ctypes.c_void_p(at), 8192)


@test()
def the_tail_of_a_mapped_page_is_zero(ctx):
    path, data = value(ctx, size=5000)
    fd = os.open(path, os.O_RDONLY)
    at = raw_mmap(fd, 8192, mmap.PROT_READ)
    check_bytes(ctypes.string_at(at, 5000), data, "the bytes")
    check_bytes(ctypes.string_at(at + 5000, 3192), bytes(3192), "the rest of the page")
    libc.munmap(ctypes.c_void_p(at), 8192)
    os.close(fd)


@test()
def copies_in_the_kernel(ctx):
    path, data = value(ctx)
    d, outside = os.path.dirname(path), ctx.temp("out")
    source = os.open(path, os.O_RDONLY)

    def everything(call, target):
        at = 0
        while at < len(data):
            n = call(at, len(data) - at)
            check(n > 0, f"{n} bytes copied at {at}")
            at += n
        os.close(target)

    for text, where in (("within", f"{d}/cfr"), ("out of", f"{outside}/cfr")):
        t = os.open(where, os.O_CREAT | os.O_WRONLY)
        try:
            everything(lambda at, n, t=t: os.copy_file_range(source, t, n, at, at), t)
        except OSError as e:
            # Between two file systems the kernel may refuse; programs fall back.
            check(text == "out of" and e.errno == errno.EXDEV, f"copy_file_range {text} the mount: {e}")
            continue
        check_bytes(read_file(where), data, f"copy_file_range {text} the mount")
    for text, where in (("within", f"{d}/sf"), ("out of", f"{outside}/sf")):
        t = os.open(where, os.O_CREAT | os.O_WRONLY)
        everything(lambda at, n, t=t: os.sendfile(t, source, at, n), t)
        check_bytes(read_file(where), data, f"sendfile {text} the mount")
    out = os.open(f"{outside}/sf", os.O_RDONLY)
    t = os.open(f"{d}/in", os.O_CREAT | os.O_WRONLY)
    everything(lambda at, n: os.sendfile(t, out, at, n), t)
    check_bytes(read_file(f"{d}/in"), data, "sendfile into the mount")
    t = os.open(f"{d}/spliced", os.O_CREAT | os.O_WRONLY)
    r, w = os.pipe()

    def through_pipe(at, n):
        n = os.splice(source, w, min(n, 65536), offset_src=at)
        done = 0
        while done < n:
            done += os.splice(r, t, n - done, offset_dst=at + done)
        return n

    everything(through_pipe, t)
    check_bytes(read_file(f"{d}/spliced"), data, "splice through a pipe")
    a, b = socket.socketpair()
    got = []

    def receive():
        while part := b.recv(1 << 20):
            got.append(part)

    reader = threading.Thread(target=receive)
    reader.start()
    a.sendfile(open(path, "rb"))
    a.close()
    reader.join()
    check_bytes(b"".join(got), data, "sendfile to a socket")
    os.close(source)


@test(timeout=120)
def asynchronous_engines(ctx):
    """fio writes, reads back and verifies with every engine that programs use."""
    if not shutil.which("fio"):
        raise Skip("needs fio")
    d = ctx.dir()
    for engine, direct in (("psync", 0), ("psync", 1), ("pvsync2", 0), ("libaio", 1), ("io_uring", 0), ("io_uring", 1),
                           ("mmap", 0), ("splice", 0)):
        p = subprocess.run(
            ["fio", "--name=v", f"--directory={d}", f"--ioengine={engine}", f"--direct={direct}", "--rw=randrw",
             "--bsrange=4k-256k", "--size=8m", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--nrfiles=2",
             "--randseed=7", "--unlink=1", "--fallocate=none", "--minimal"],
            capture_output=True, text=True, timeout=100, check=False, cwd=ctx.temp("fio"))
        same((p.returncode, p.stderr), (0, ""), f"fio {engine} direct={direct}")


@test()
def append_by_many(ctx):
    d = ctx.dir()
    code = """
import os, sys
for i in range(int(sys.argv[3])):
    fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for j in range(20):
        os.write(fd, f"{sys.argv[2]}:{i:04}:{j:04}:{'x' * 100}\\n".encode())
    os.close(fd)
"""
    ps = [subprocess.Popen([sys.executable, "-c", code, f"{d}/log", str(me), "20"]) for me in range(4)]
    same([p.wait() for p in ps], [0] * 4, "the writers")
    lines = read_file(f"{d}/log").decode().splitlines()
    want = {f"{me}:{i:04}:{j:04}:{'x' * 100}" for me in range(4) for i in range(20) for j in range(20)}
    same((len(lines), set(lines) - want, want - set(lines)), (len(want), set(), set()), "lines, foreign, lost")


@test()
def seeking(ctx):
    path, data = value(ctx, size=100000)
    fd = os.open(path, os.O_RDONLY)
    same(os.lseek(fd, 0, os.SEEK_END), len(data), "SEEK_END")
    same(os.lseek(fd, 10, os.SEEK_DATA), 10, "SEEK_DATA in data")
    same(os.lseek(fd, 10, os.SEEK_HOLE), len(data), "SEEK_HOLE without holes")
    fails(errno.ENXIO, "SEEK_DATA at the end", os.lseek, fd, len(data), os.SEEK_DATA)
    fails(errno.EINVAL, "negative SEEK_SET", os.lseek, fd, -1, os.SEEK_SET)
    os.close(fd)


@test()
def sparse_files(ctx):
    d = ctx.dir()
    for size, at in ((30 * MIB, 29 * MIB + 5), (5 * MIB, 4096), (MIB, MIB - 1)):
        fd = os.open(f"{d}/s", os.O_CREAT | os.O_TRUNC | os.O_RDWR)
        os.ftruncate(fd, size)
        same(os.pwrite(fd, b"end", at), 3, "pwrite")
        want = bytearray(max(size, at + 3))
        want[at:at + 3] = b"end"
        check_bytes(os.pread(fd, len(want) + 1, 0), bytes(want), "read by the writer")
        os.close(fd)
        check_bytes(read_file(f"{d}/s"), bytes(want), "holes read as zero")
        fd = os.open(f"{d}/s", os.O_RDONLY)
        with mmap.mmap(fd, len(want), mmap.MAP_SHARED, mmap.PROT_READ) as m:
            check_bytes(m[:], bytes(want), "holes mapped")
        at_data = os.lseek(fd, at, os.SEEK_DATA)
        same(at_data, at, "SEEK_DATA at the data")
        os.close(fd)


@test()
def cut_and_grown_files_show_no_old_bytes(ctx):
    """What was cut off must not come back when the file grows again."""
    d = ctx.dir()
    old = b"secret" * 100000
    for cut in (0, 1, 4095, 4096, 10001):
        for how in ("ftruncate", "write", "fallocate", "truncate"):
            fd = os.open(f"{d}/f", os.O_CREAT | os.O_TRUNC | os.O_RDWR)
            os.write(fd, old)
            os.ftruncate(fd, cut)
            want = old[:cut] + bytes(len(old) - cut)
            if how == "ftruncate":
                os.ftruncate(fd, len(old))
            elif how == "fallocate":
                os.posix_fallocate(fd, 0, len(old))
            elif how == "truncate":
                os.truncate(f"{d}/f", len(old))
            else:
                os.pwrite(fd, b"\0", len(old) - 1)
            check_bytes(os.pread(fd, len(old), 0), want, f"cut at {cut}, grown by {how}, by the writer")
            os.close(fd)
            check_bytes(read_file(f"{d}/f"), want, f"cut at {cut}, grown by {how}")


@test()
def truncate_by_path(ctx):
    path, data = value(ctx, size=50000)
    reader = os.open(path, os.O_RDONLY)
    for n in (20000, 0, 30000):
        os.truncate(path, n)
        same(os.stat(path).st_size, n, "st_size")
        same(len(read_file(path)), n, "bytes")
    check_bytes(read_file(path), bytes(30000), "grown from nothing")
    if ctx.semantics == "versions":
        check_bytes(os.pread(reader, 60000, 0), data, "a reader that was there before")
    os.close(reader)
    fails(errno.ENOENT, "truncate of nothing", os.truncate, path + "x", 0)


@test()
def fallocate(ctx):
    d = ctx.dir()
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(fd, 0, 300000)
    same(os.fstat(fd).st_size, 300000, "size after fallocate")
    os.pwrite(fd, b"abc", 1000)
    os.posix_fallocate(fd, 100000, 1000)
    same(os.fstat(fd).st_size, 300000, "size after fallocate inside")
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    want = 300000
    for mode, text in ((1, "KEEP_SIZE"), (3, "PUNCH_HOLE"), (0x10, "ZERO_RANGE"), (8, "COLLAPSE_RANGE")):
        if libc.fallocate(fd, mode, 500000 if mode == 1 else 200000, 8192 if mode == 8 else 5000):
            check(ctypes.get_errno() in (errno.EOPNOTSUPP, errno.EINVAL), f"{text}: errno {ctypes.get_errno()}")
        elif mode == 8:
            want -= 8192
    same(os.fstat(fd).st_size, want, "size after the other modes")
    os.close(fd)
    got = read_file(f"{d}/f")
    check_bytes(got, bytes(1000) + b"abc" + bytes(want - 1003), "content")


@test()
def attributes(ctx):
    path, data = value(ctx)
    st = os.stat(path)
    same((st.st_size, st.st_nlink, stat.S_IFMT(st.st_mode)), (len(data), 1, stat.S_IFREG), "size, links, type")
    check(st.st_blocks * 512 >= len(data), f"st_blocks {st.st_blocks} is less than the bytes")
    check(st.st_blocks * 512 <= len(data) + 2 * MIB, f"st_blocks {st.st_blocks} is more than any page makes it")
    if not ctx.plain:
        same(st.st_blksize, MIB, "st_blksize")
    check(abs(st.st_mtime - time.time()) < 30, f"mtime {st.st_mtime} at {time.time()}")
    same([os.stat(path).st_ino for _ in range(3)], [st.st_ino] * 3, "st_ino is stable")
    fd = os.open(path, os.O_RDONLY)
    same(os.fstat(fd).st_ino, st.st_ino, "st_ino of the open file")
    os.close(fd)
    inodes = {e.name: e.inode() for e in os.scandir(os.path.dirname(path))}
    same(inodes, {os.path.basename(path): st.st_ino}, "d_ino")


@test()
def modes_and_umask(ctx):
    d = ctx.dir()
    for umask, mode in ((0o022, 0o666), (0o077, 0o777), (0, 0o640), (0o027, 0o4755)):
        old = os.umask(umask)
        try:
            os.close(os.open(f"{d}/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
            os.mkdir(f"{d}/d", mode & 0o777)
        finally:
            os.umask(old)
        same(stat.S_IMODE(os.stat(f"{d}/f").st_mode), mode & ~umask, "mode of a new file")
        same(stat.S_IMODE(os.stat(f"{d}/d").st_mode), mode & 0o777 & ~umask, "mode of a new directory")
        os.unlink(f"{d}/f")
        os.rmdir(f"{d}/d")
    write_file(f"{d}/f", b"x")
    for mode in (0o600, 0o444, 0o755, 0o000):
        os.chmod(f"{d}/f", mode)
        same(stat.S_IMODE(os.stat(f"{d}/f").st_mode), mode, "after chmod")
    os.chmod(f"{d}/f", 0o640)
    os.chown(f"{d}/f", 1000, 1001)
    st = os.stat(f"{d}/f")
    same((st.st_uid, st.st_gid), (1000, 1001), "after chown")
    os.chown(f"{d}/f", -1, 7)
    with open(f"{d}/f", "r+b") as f:
        f.write(b"y")
        os.fchmod(f.fileno(), 0o604)
        same(stat.S_IMODE(os.fstat(f.fileno()).st_mode), 0o604, "fchmod of a writer")
    os.rename(f"{d}/f", f"{d}/g")
    st = os.stat(f"{d}/g")
    same((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (1000, 7, 0o604), "after r+ and a rename")
    os.chmod(d, 0o711)
    same(stat.S_IMODE(os.stat(d).st_mode), 0o711, "chmod of a directory")


def as_nobody(function):
    """Runs function in a child as nobody; its OSError's errno, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            function()
            code = 0
        except OSError as e:
            code = e.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@test()
def permissions_are_enforced(ctx):
    if os.geteuid():
        raise Skip("needs root to become another user")
    if ctx.plain:
        d = ctx.dir()
    else:
        daemon = ctx.daemon(allow_other=True).start()
        os.chmod(daemon.dir, 0o755)
        os.chmod(ctx.base, 0o755)
        d = f"{daemon.mnt}/ns"
        os.mkdir(d)
    os.chmod(d, 0o755)
    for name, mode in (("public", 0o644), ("secret", 0o600), ("shared", 0o666)):
        write_file(f"{d}/{name}", b"x")
        os.chmod(f"{d}/{name}", mode)
    os.mkdir(f"{d}/open", 0o777)
    os.chmod(f"{d}/open", 0o777)
    os.mkdir(f"{d}/closed", 0o700)
    write_file(f"{d}/closed/f", b"x")
    os.mkdir(f"{d}/sticky")
    os.chmod(f"{d}/sticky", 0o1777)
    write_file(f"{d}/sticky/mine", b"x")
    for want, text, call in (
        (0, "read of a public file", lambda: read_file(f"{d}/public")),
        (errno.EACCES, "write to a public file", lambda: os.open(f"{d}/public", os.O_WRONLY)),
        (errno.EACCES, "read of a secret file", lambda: read_file(f"{d}/secret")),
        (0, "write to a shared file", lambda: write_file(f"{d}/shared", b"by nobody")),
        (errno.EACCES, "create in a directory of root", lambda: write_file(f"{d}/new", b"x")),
        (errno.EACCES, "unlink in a directory of root", lambda: os.unlink(f"{d}/public")),
        (errno.EACCES, "rename in a directory of root", lambda: os.rename(f"{d}/public", f"{d}/x")),
        (errno.EPERM, "chmod of another's file", lambda: os.chmod(f"{d}/public", 0o777)),
        (errno.EPERM, "chown of another's file", lambda: os.chown(f"{d}/public", NOBODY, NOBODY)),
        (errno.EPERM, "utimes of another's file", lambda: os.utime(f"{d}/public", (1, 1))),
        (errno.EACCES, "truncate of another's file", lambda: os.truncate(f"{d}/public", 0)),
        (errno.EACCES, "look into a closed directory", lambda: os.stat(f"{d}/closed/f")),
        (errno.EACCES, "list a closed directory", lambda: os.listdir(f"{d}/closed")),
        (0, "create in an open directory", lambda: write_file(f"{d}/open/n", b"mine")),
        (0, "chmod of one's own", lambda: os.chmod(f"{d}/open/n", 0o600)),
        (errno.EPERM, "giving away one's own", lambda: os.chown(f"{d}/open/n", 0, 0)),
        (errno.EPERM, "unlink in a sticky directory", lambda: os.unlink(f"{d}/sticky/mine")),
        (errno.EACCES, "xattr of another's file", lambda: os.setxattr(f"{d}/public", "user.a", b"b")),
    ):
        got = as_nobody(call)
        same(errno.errorcode.get(got, got), errno.errorcode.get(want, want), text)
    st = os.stat(f"{d}/open/n")
    same((st.st_uid, st.st_gid), (NOBODY, NOBODY), "owner of what nobody made")
    check_bytes(read_file(f"{d}/shared"), b"by nobody", "what nobody wrote")


@test(fluxkv=True)
def without_allow_other_files_are_ours_alone(ctx):
    daemon = ctx.daemon().start()
    os.chmod(daemon.dir, 0o755)
    os.chmod(ctx.base, 0o755)
    os.mkdir(f"{daemon.mnt}/ns")
    os.chmod(f"{daemon.mnt}/ns", 0o777)
    write_file(f"{daemon.mnt}/ns/f", b"x")
    os.chmod(f"{daemon.mnt}/ns/f", 0o666)
    same(as_nobody(lambda: read_file(f"{daemon.mnt}/ns/f")), errno.EACCES, "another user's read")


@test()
def times(ctx):
    path, _ = value(ctx, size=1000)
    os.utime(path, ns=(1_000_000_001_000_000_002, 1_200_000_000_123_456_789))
    st = os.stat(path)
    same(st.st_mtime_ns, 1_200_000_000_123_456_789, "mtime, to the nanosecond")
    read_file(path)
    same(os.stat(path).st_mtime_ns, 1_200_000_000_123_456_789, "mtime after a read")
    os.rename(path, path + "2")
    path += "2"
    same(os.stat(path).st_mtime_ns, 1_200_000_000_123_456_789, "mtime after a rename")
    before = time.time()
    with open(path, "r+b") as f:
        f.write(b"x")
    check(before - 2 < os.stat(path).st_mtime < time.time() + 2, "mtime after a write")
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"y")
    os.utime(fd, ns=(5, 1_300_000_000_000_000_001))
    os.close(fd)
    same(os.stat(path).st_mtime_ns, 1_300_000_000_000_000_001, "mtime set on an open writer, after its close")
    os.utime(path)
    check(abs(os.stat(path).st_mtime - time.time()) < 2, "utimensat with no times is now")
    old = os.stat(path).st_atime
    ahead = time.time() + 5000
    os.utime(path, (ahead, 1_000_000_000))
    check(abs(os.stat(path).st_atime - ahead) < 2 and ahead > old, "atime is moved forward by utimensat")
    same(os.stat(path).st_mtime, 1_000_000_000, "mtime in seconds")
    os.utime(path, ns=(1_100_000_000_000_000_007, 1_000_000_000_000_000_000))
    same(os.stat(path).st_atime_ns, 1_100_000_000_000_000_007, "atime is moved back by utimensat")
    os.chmod(path, 0o640)
    same(os.stat(path).st_atime_ns, 1_100_000_000_000_000_007, "atime, moved back, after chmod")
    read_file(path)
    check(os.stat(path).st_atime < ahead - 1000, "atime is not what it was before it was moved back")
    subprocess.run(["touch", "-d", "2001-02-03 04:05:06 UTC", path], check=True)
    same(os.stat(path).st_mtime, 981173106, "mtime by touch -d")
    d = os.path.dirname(path)
    os.utime(d, (1, 1_100_000_000))
    same(os.stat(d).st_mtime, 1_100_000_000, "mtime of a directory")


def lock_child(path, call, pipe):
    fd = os.open(path, os.O_RDWR)
    try:
        call(fd)
        os.write(pipe, b"y")
    except OSError as e:
        os.write(pipe, b"n" if e.errno in (errno.EAGAIN, errno.EACCES) else b"?")
    os._exit(0)


def other_gets(path, call):
    """Whether another process gets the lock: b"y" or b"n"."""
    r, w = os.pipe()
    if os.fork() == 0:
        lock_child(path, call, w)
    os.close(w)
    answer = os.read(r, 1)
    os.close(r)
    os.wait()
    return answer


@test()
def locks(ctx):
    path, _ = value(ctx, size=1000)
    fd = os.open(path, os.O_RDWR)
    exclusive = lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shared = lambda f: fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_EX)
    same((other_gets(path, exclusive), other_gets(path, shared)), (b"n", b"n"), "flock under LOCK_EX")
    fcntl.flock(fd, fcntl.LOCK_SH)
    same((other_gets(path, exclusive), other_gets(path, shared)), (b"n", b"y"), "flock under LOCK_SH")
    fcntl.flock(fd, fcntl.LOCK_UN)
    same(other_gets(path, exclusive), b"y", "flock when free")
    record = lambda start: lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, start)
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 200)
    same((other_gets(path, record(250)), other_gets(path, record(0)), other_gets(path, record(300))),
         (b"n", b"y", b"y"), "fcntl locks on ranges")
    os.close(fd)
    same(other_gets(path, record(250)), b"y", "a close frees the lock")
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    started, r, w = time.monotonic(), *os.pipe()
    if os.fork() == 0:
        lock_child(path, lambda f: fcntl.flock(f, fcntl.LOCK_EX), w)
    time.sleep(0.3)
    fcntl.flock(fd, fcntl.LOCK_UN)
    same(os.read(r, 1), b"y", "a lock that had to wait")
    os.wait()
    check(time.monotonic() - started >= 0.3, "the lock did not wait")
    for f in (fd, r, w):
        os.close(f)


@test()
def xattrs(ctx):
    path, data = value(ctx, size=1000)
    ours = lambda: sorted(n for n in os.listxattr(path) if not n.startswith("user.fluxkv."))
    os.setxattr(path, "user.a", b"1")
    os.setxattr(path, "user.empty", b"")
    os.setxattr(path, "user.bytes", bytes(range(256)))
    same(ours(), ["user.a", "user.bytes", "user.empty"], "listxattr")
    same([os.getxattr(path, f"user.{n}") for n in ("a", "empty", "bytes")], [b"1", b"", bytes(range(256))], "getxattr")
    fails(errno.EEXIST, "XATTR_CREATE of one that is there", os.setxattr, path, "user.a", b"2", os.XATTR_CREATE)
    fails(errno.ENODATA, "XATTR_REPLACE of one that is not", os.setxattr, path, "user.b", b"2", os.XATTR_REPLACE)
    os.setxattr(path, "user.a", b"22", os.XATTR_REPLACE)
    os.setxattr(path, "user.b", b"3", os.XATTR_CREATE)
    same(os.getxattr(path, "user.a"), b"22", "replaced")
    os.removexattr(path, "user.b")
    fails(errno.ENODATA, "getxattr of a removed one", os.getxattr, path, "user.b")
    fails(errno.ENODATA, "removexattr of a removed one", os.removexattr, path, "user.b")
    os.setxattr(path, "user." + "n" * 250, b"longest name")
    same(os.getxattr(path, "user." + "n" * 250), b"longest name", "a name of 255 bytes")
    fails((errno.ERANGE,), "a name of 256 bytes", os.setxattr, path, "user." + "n" * 251, b"")
    check_bytes(read_file(path), data, "the bytes")
    fd = os.open(path, os.O_RDWR)
    os.setxattr(fd, "user.on-writer", b"w")
    same(os.getxattr(fd, "user.on-writer"), b"w", "on an open writer")
    os.write(fd, b"x")
    os.close(fd)
    same(os.getxattr(path, "user.on-writer"), b"w", "after its close")
    same(os.getxattr(path, "user.a"), b"22", "of the version before")


@test(fluxkv=True)
def xattr_limits(ctx):
    path, _ = value(ctx, size=1000)
    os.setxattr(path, "user.big", bytes(60000))
    same(len(os.getxattr(path, "user.big")), 60000, "60,000 bytes")
    fails((errno.ENOSPC, errno.E2BIG), "beyond 64 KiB a file", os.setxattr, path, "user.more", bytes(6000))
    same(len(os.getxattr(path, "user.big")), 60000, "after the refusal")
    os.setxattr(path, "user.big", b"small")
    os.setxattr(path, "user.more", bytes(6000))
    for name in ("trusted.a", "security.fluxkv"):
        fails((errno.EOPNOTSUPP, errno.EPERM), name, os.setxattr, path, name, b"x")


@test(fluxkv=True)
def virtual_xattrs(ctx):
    daemon = ctx.daemon(ssd="64MB").start()
    d, data = f"{daemon.mnt}/ns", big_stamped("virtual", 1, 100000)
    path = f"{d}/v"
    os.mkdir(d)
    write_file(path, data)
    get = lambda name, p=path: os.getxattr(p, f"user.fluxkv.{name}").decode()
    check("dram" in get("tier"), f"tier of a new value: {get('tier')}")

    def persisted(p):
        """The checksum is taken when a value is persisted."""
        wait_for(lambda: "ssd" in get("tier", p), f"{p} is persisted", 10)
        return get("checksum", p)

    check(get("owners"), "owners")
    same(get("blocks"), "1", "blocks")
    version, checksum = get("version"), persisted(path)
    check(int(version, 0) > 0, f"version {version!r}")
    check(len(checksum) >= 16, f"checksum {checksum!r}")
    write_file(f"{d}/same", data)
    write_file(f"{d}/other", data[:-1] + b"!")
    same(persisted(f"{d}/same"), checksum, "checksum of the same bytes")
    check(persisted(f"{d}/other") != checksum, "other bytes have the same checksum")
    check(int(get("version", f"{d}/other"), 0) > int(get("version", f"{d}/same"), 0) > int(version, 0), "versions grow")
    os.rename(path, f"{d}/moved")
    os.rename(f"{d}/moved", path)
    same(get("checksum"), checksum, "checksum after renames")
    for name in ("tier", "owners", "version", "blocks", "checksum"):
        fails((errno.EPERM, errno.EACCES, errno.EOPNOTSUPP), f"set {name}", os.setxattr, path, f"user.fluxkv.{name}", b"1")
        fails((errno.EPERM, errno.EACCES, errno.EOPNOTSUPP), f"remove {name}", os.removexattr, path,
              f"user.fluxkv.{name}")
    same(get("pin"), "0", "pin of a new value")
    os.setxattr(path, "user.fluxkv.pin", b"1")
    same(get("pin"), "1", "pin")
    os.rename(path, f"{d}/pinned")
    same(get("pin", f"{d}/pinned"), "1", "pin after a rename")
    os.setxattr(f"{d}/pinned", "user.fluxkv.pin", b"0")
    for name, bad in (("pin", b"2"), ("pin", b"yes"), ("pin", b""), ("ttl", b"-1"), ("ttl", b"soon"), ("none", b"1"),
                      ("ttl", b"99999999999999999999999")):
        fails((errno.EINVAL, errno.ERANGE, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENODATA),
              f"{name} = {bad!r}", os.setxattr, f"{d}/pinned", f"user.fluxkv.{name}", bad)
    fails(errno.ENODATA, "get of none", os.getxattr, f"{d}/pinned", "user.fluxkv.none")


@test(fluxkv=True)
def ttl_is_a_delete(ctx):
    path, data = value(ctx, size=100000)
    os.setxattr(path, "user.fluxkv.ttl", b"1000")
    check(990 <= int(os.getxattr(path, "user.fluxkv.ttl")) <= 1000, "ttl says what is left")
    reader = os.open(path, os.O_RDONLY)
    os.setxattr(path, "user.fluxkv.ttl", b"1")
    check_bytes(read_file(path), data, "before it expires")
    wait_for(lambda: not os.path.exists(path), "the name is gone after its ttl", 5)
    check_bytes(os.pread(reader, 200000, 0), data, "a handle that was open")
    os.close(reader)
    same(os.listdir(os.path.dirname(path)), [], "names")
    write_file(path, b"a new one")
    time.sleep(1.5)
    check_bytes(read_file(path), b"a new one", "the ttl went with the old one")


@test()
def open_flags(ctx):
    path, data = value(ctx, size=5000)
    d = os.path.dirname(path)
    fails(errno.EEXIST, "O_EXCL on a name", os.open, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    fails(errno.ENOENT, "open of nothing", os.open, f"{d}/none", os.O_RDWR)
    for flags in (os.O_RDONLY | os.O_NOATIME, os.O_RDONLY | os.O_CLOEXEC, os.O_RDONLY | os.O_NOFOLLOW,
                  os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_SYNC, os.O_RDONLY | os.O_DIRECT):
        fd = os.open(path, flags)
        check_bytes(os.read(fd, 6000), data, f"open with 0{flags:o}")
        os.close(fd)
    fd = os.open(path, os.O_PATH)
    same(os.fstat(fd).st_size, 5000, "fstat of O_PATH")
    os.close(fd)
    for flags in (os.O_SYNC, os.O_DSYNC):
        fd = os.open(f"{d}/sync", os.O_CREAT | os.O_WRONLY | flags)
        os.write(fd, b"synced")
        os.close(fd)
        check_bytes(read_file(f"{d}/sync"), b"synced", "written with O_SYNC")
    fd = os.open(path, os.O_WRONLY)
    fails(errno.EBADF, "read of a write-only descriptor", os.read, fd, 1)
    os.close(fd)
    check_bytes(read_file(path), data, "after opens that wrote nothing")
    fd = os.open(path, os.O_RDWR | os.O_TRUNC)
    same(os.fstat(fd).st_size, 0, "size after O_TRUNC")
    os.write(fd, b"short")
    os.close(fd)
    check_bytes(read_file(path), b"short", "after O_TRUNC")


@test()
def programs_run_from_it(ctx):
    d = ctx.dir()
    shutil.copy("/bin/true", f"{d}/true")
    os.chmod(f"{d}/true", 0o755)
    same(subprocess.run([f"{d}/true"], check=False).returncode, 0, "a program that was copied there")
    write_file(f"{d}/script", b"#!/bin/sh\necho from the script\n")
    os.chmod(f"{d}/script", 0o755)
    same(subprocess.run([f"{d}/script"], capture_output=True, check=False).stdout, b"from the script\n", "a script")


@test()
def syncs(ctx):
    d = ctx.dir()
    fd = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.fdatasync(fd)
    same(libc.syncfs(fd), 0, "syncfs")
    os.close(fd)
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"abc")
    os.fsync(fd)
    os.fdatasync(fd)
    os.write(fd, b"def")
    check_bytes(read_file(f"{d}/f"), b"abcdef", "after more bytes")
    os.fsync(fd)
    os.close(fd)
    check_bytes(read_file(f"{d}/f"), b"abcdef", "after close")


@test()
def a_writers_own_view(ctx):
    """One descriptor: pread, mmap, fstat and ftruncate see what pwrite and stores did, in any order."""
    d = ctx.dir()
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    other = os.open(f"{d}/f", os.O_WRONLY)
    os.ftruncate(fd, 2 * MIB)
    want = bytearray(2 * MIB)
    rng = random.Random(4)
    with mmap.mmap(fd, 2 * MIB, mmap.MAP_SHARED) as m:
        for i in range(300):
            off, n = rng.randrange(2 * MIB - 70000), rng.randrange(1, 70000)
            piece = stamped("view", i, n)
            if i % 3 == 0:
                m[off:off + n] = piece
            else:
                same(os.pwrite(other if i % 3 == 1 else fd, piece, off), n, "pwrite")
            want[off:off + n] = piece
            off, n = max(0, off - 5000), n + 10000
            check_bytes(m[off:off + n], bytes(want[off:off + n]), f"mapping after step {i}")
            check_bytes(os.pread(fd, n, off), bytes(want[off:off + n]), f"pread after step {i}")
    os.close(other)
    os.close(fd)
    check_bytes(read_file(f"{d}/f"), bytes(want), "published")


@test()
def a_cached_reader_beside_a_direct_writer(ctx):
    """What a write returned for is seen through the page cache, also while others pull the old pages back into it."""
    d = ctx.dir()
    cached, direct = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR), os.open(f"{d}/f", os.O_WRONLY)
    os.ftruncate(cached, 64 * 1024)
    stop = threading.Event()

    def puller():
        fd = os.open(f"{d}/f", os.O_RDWR)
        while not stop.is_set():
            os.pread(fd, 64 * 1024, 0)
        os.close(fd)

    pullers = [threading.Thread(target=puller) for _ in range(2)]
    for t in pullers:
        t.start()
    try:
        for i in range(1500):
            piece = stamped("direct", i, 8192 + i % 3)
            same(os.pwrite(direct, piece, 4096), len(piece), "pwrite")
            check_bytes(os.pread(cached, len(piece), 4096), piece, f"read {i} after the write")
    finally:
        stop.set()
        for t in pullers:
            t.join()
    os.close(direct)
    os.close(cached)


@test(fluxkv=True)
def requests_are_as_large_as_can_be(ctx):
    """64 MiB in pieces of 1 MiB: a request for each, and few more."""
    d = ctx.daemon(dram="512MB").start()
    os.mkdir(f"{d.mnt}/ns")
    piece = mmap.mmap(-1, MIB) # on a page's boundary: else each write takes one page more than a request holds
    piece[:] = big_stamped("piece", 1, MIB)
    fd = os.open(f"{d.mnt}/ns/f", os.O_CREAT | os.O_WRONLY)
    before = d.number("fs", "requests")
    for _ in range(64):
        same(os.write(fd, piece), MIB, "write")
    wrote = d.number("fs", "requests") - before
    os.close(fd)
    check(64 <= wrote <= 64 + 4, f"{wrote} requests wrote 64 MiB")
    fd = os.open(f"{d.mnt}/ns/f", os.O_RDONLY) # a published version: the writer's pages are not its own
    before = d.number("fs", "requests")
    for _ in range(64):
        same(os.readv(fd, [piece]), MIB, "read")
    took = d.number("fs", "requests") - before
    os.close(fd)
    if d.passthrough():
        same(took, 0, "requests for 64 MiB that the kernel reads by itself")
    else:
        check(64 <= took <= 64 + 12, f"{took} requests read 64 MiB")
    d.stop()


@test(fluxkv=True)
def opens_of_a_cached_name_ask_nobody(ctx):
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", bytes(MIB))
    read_file(f"{d.mnt}/ns/f")

    def messages(call):
        before = d.number("master", "messages")
        call()
        return d.number("master", "messages") - before

    def opens():
        for _ in range(1000):
            os.close(os.open(f"{d.mnt}/ns/f", os.O_RDONLY))

    wait_for(lambda: messages(lambda: time.sleep(0.3)) <= 2, "the node is quiet", 10)
    started = time.monotonic()
    busy = messages(opens)
    took = time.monotonic() - started
    idle = messages(lambda: time.sleep(took))
    check(busy <= idle + 2, f"1,000 opens in {took:.2f} s: {busy} messages; {idle} when idle as long")
    d.stop()


run(globals())
