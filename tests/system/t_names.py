# SPDX-License-Identifier: Apache-2.0
"""Names, directories, rename, links, and the virtual files: the contract, line by line."""
import contextlib
import ctypes
import errno
import os
import re
import stat
import subprocess
import threading

from lib import (SYSTEM_DIR, big_stamped, check, check_bytes, fails, read_file, run, same, stamped,
                 syscall_result, test, wait_for, write_file)

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOREPLACE, EXCHANGE = 1, 2


def renameat2(a, b, flags):
    return syscall_result(libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), flags), a, b)


@test()
def length_of_names(ctx):
    d = ctx.dir()
    longest, beyond = "x" * 255, "y" * 256
    write_file(f"{d}/{longest}", b"255")
    check_bytes(read_file(f"{d}/{longest}"), b"255", "a name of 255 bytes")
    same(os.listdir(d), [longest], "names")
    os.mkdir(f"{d}/{'z' * 255}")
    for text, call in {
        "create": lambda: os.open(f"{d}/{beyond}", os.O_CREAT | os.O_WRONLY),
        "open": lambda: os.open(f"{d}/{beyond}", os.O_RDONLY),
        "stat": lambda: os.stat(f"{d}/{beyond}"),
        "mkdir": lambda: os.mkdir(f"{d}/{beyond}"),
        "unlink": lambda: os.unlink(f"{d}/{beyond}"),
        "rmdir": lambda: os.rmdir(f"{d}/{beyond}"),
        "rename to": lambda: os.rename(f"{d}/{longest}", f"{d}/{beyond}"),
        "rename from": lambda: os.rename(f"{d}/{beyond}", f"{d}/a"),
    }.items():
        fails(errno.ENAMETOOLONG, f"{text} of a name of 256 bytes", call)
    os.rename(f"{d}/{longest}", f"{d}/{'w' * 255}")
    check_bytes(read_file(f"{d}/{'w' * 255}"), b"255", "after a rename")


@test()
def length_of_paths(ctx):
    d = ctx.dir()
    path, part = d, "p" * 200
    while len(path) + 201 + 50 < 4095:
        path = f"{path}/{part}"
        os.mkdir(path)
    leaf = path + "/" + "f" * (4095 - len(path) - 1)
    write_file(leaf, b"deep")
    check_bytes(read_file(leaf), b"deep", "a path of 4095 bytes")
    fails(errno.ENAMETOOLONG, "a path of 4096 bytes and the NUL", os.open, leaf + "f", os.O_CREAT | os.O_WRONLY)
    os.unlink(leaf)


@test()
def depth_beyond_the_longest_path(ctx):
    """By relative names a tree can grow deeper than a path may be long. Refused or not: what is there works."""
    d = ctx.dir()
    fds, part = [os.open(d, os.O_RDONLY)], "q" * 250
    try:
        while len(fds) < 40:
            os.mkdir(part, dir_fd=fds[-1])
            fds.append(os.open(part, os.O_RDONLY, dir_fd=fds[-1]))
    except OSError as e:
        same(e.errno, errno.ENAMETOOLONG, f"errno at depth {len(fds)}")
    check(len(fds) > 12, f"refused at depth {len(fds)}")
    fd = os.open("f", os.O_CREAT | os.O_RDWR, dir_fd=fds[-2])
    os.write(fd, b"deep")
    os.close(fd)
    fd = os.open("f", os.O_RDONLY, dir_fd=fds[-2])
    check_bytes(os.read(fd, 10), b"deep", "a file down there")
    for fd in (fd, *fds):
        os.close(fd)
    subprocess.run(["rm", "-r", d], check=True)


@test()
def any_byte_but_slash_and_nul(ctx):
    d = os.fsencode(ctx.dir())
    names = [bytes([b]) for b in range(1, 256) if b not in b"/."]
    names += [b"a" + bytes([b]) + b"z" for b in range(1, 256) if b != ord("/")]
    names += [b"...", b".hidden", b"-", b"--help", b" ", b"a b", b"\xff\xfe\x80", "日本/語".replace("/", "").encode(),
              b"%41", b"%00", b"\\n", b"*", b"con", b"trailing. ", b"\n\n", b"..a", b"#", b"a:b@c=d,e"]
    names = sorted(set(names))
    for n in names:
        fd = os.open(d + b"/" + n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(fd, n)
        os.close(fd)
    same(sorted(os.listdir(d)), names, "names listed")
    for n in names:
        check_bytes(read_file(d + b"/" + n), n, f"file named {n!r}")
    for n in names:
        os.rename(d + b"/" + n, d + b"/" + n + b"'")
        check_bytes(read_file(d + b"/" + n + b"'"), n, f"renamed file {n!r}")
    os.mkdir(d + b"/d")
    for n in names:
        os.unlink(d + b"/" + n + b"'")
        os.mkdir(d + b"/d/" + n)
        write_file(d + b"/d/" + n + b"/" + n, n)
    same(sorted(os.listdir(d + b"/d")), names, "directories listed")


@test(fluxkv=True)
def the_root_holds_namespaces_only(ctx):
    root = ctx.mount
    for text, call in {
        "create": lambda: os.open(f"{root}/file", os.O_CREAT | os.O_WRONLY),
        "mknod": lambda: os.mknod(f"{root}/file", stat.S_IFREG | 0o644),
    }.items():
        fails((errno.EPERM, errno.EACCES), f"{text} of a file in the root", call)
    check(not os.path.exists(f"{root}/file"), "a file is in the root")
    d = ctx.dir()
    write_file(f"{d}/f", b"x")
    fails((errno.EPERM, errno.EACCES, errno.EXDEV), "rename of a file into the root", os.rename, f"{d}/f", f"{root}/f")
    check(os.path.basename(d) in os.listdir(root), "a namespace is listed")
    check(os.path.basename(d) in ctx.shared.cli("ns", "list").stdout, "a namespace is in `fluxkv ns list`")
    fails(errno.ENOTEMPTY, "rmdir of a namespace with files", os.rmdir, d)
    os.unlink(f"{d}/f")
    os.rmdir(d)
    check(os.path.basename(d) not in os.listdir(root), "a removed namespace is not listed")
    os.mkdir(d)
    write_file(f"{d}/f", b"again")
    check_bytes(read_file(f"{d}/f"), b"again", "in a namespace that was made again")


@test(fluxkv=True)
def without_auto_namespace(ctx):
    d = ctx.daemon(auto_namespace="false").start()
    fails((errno.EPERM, errno.EACCES), "mkdir under the root", os.mkdir, f"{d.mnt}/ns")
    d.cli("ns", "create", "ns")
    d.cli("ns", "create", "deep/er")
    # The kernel may believe for 0.1 s what it was told before: no such name.
    wait_for(lambda: os.path.isdir(f"{d.mnt}/ns"), "a namespace that the tool made is there", 1)
    write_file(f"{d.mnt}/ns/f", b"x")
    os.mkdir(f"{d.mnt}/deep/er/part")
    write_file(f"{d.mnt}/deep/er/part/f", b"y")
    check_bytes(read_file(f"{d.mnt}/ns/f") + read_file(f"{d.mnt}/deep/er/part/f"), b"xy", "files")
    d.cli("ns", "rm", "ns", ok=False)
    check(os.path.exists(f"{d.mnt}/ns/f"), "ns rm of a namespace with files removed it without being told to")


@test()
def directories(ctx):
    d = ctx.dir()
    os.makedirs(f"{d}/a/b/c")
    write_file(f"{d}/a/b/f", b"x")
    check(stat.S_ISDIR(os.stat(f"{d}/a/b").st_mode), "mode of a directory")
    fails(errno.EEXIST, "mkdir of a directory", os.mkdir, f"{d}/a")
    fails(errno.EEXIST, "mkdir over a file", os.mkdir, f"{d}/a/b/f")
    fails(errno.ENOTEMPTY, "rmdir of a directory with names", os.rmdir, f"{d}/a/b")
    fails(errno.ENOTDIR, "rmdir of a file", os.rmdir, f"{d}/a/b/f")
    fails((errno.EISDIR, errno.EPERM), "unlink of a directory", os.unlink, f"{d}/a/b/c")
    fails(errno.EISDIR, "writable open of a directory", os.open, f"{d}/a", os.O_WRONLY)
    fails(errno.ENOTDIR, "O_DIRECTORY on a file", os.open, f"{d}/a/b/f", os.O_RDONLY | os.O_DIRECTORY)
    fails(errno.ENOTDIR, "a path through a file", os.stat, f"{d}/a/b/f/x")
    fails(errno.ENOTDIR, "create below a file", os.open, f"{d}/a/b/f/x", os.O_CREAT | os.O_WRONLY)
    fails(errno.ENOENT, "create below nothing", os.open, f"{d}/none/x", os.O_CREAT | os.O_WRONLY)
    fails(errno.ENOENT, "rmdir of nothing", os.rmdir, f"{d}/none")
    fails(errno.ENOENT, "unlink of nothing", os.unlink, f"{d}/none")
    os.rmdir(f"{d}/a/b/c")
    os.unlink(f"{d}/a/b/f")
    os.rmdir(f"{d}/a/b")
    fails(errno.ENOENT, "create in a removed directory", os.open, f"{d}/a/b/x", os.O_CREAT | os.O_WRONLY)
    same(os.listdir(f"{d}/a"), [], "names")


@test()
def a_removed_directory_that_is_still_open(ctx):
    d = ctx.dir()
    os.mkdir(f"{d}/gone")
    fd = os.open(f"{d}/gone", os.O_RDONLY)
    os.rmdir(f"{d}/gone")
    fails(errno.ENOENT, "create in it", os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    os.mkdir(f"{d}/gone")
    same(os.listdir(f"{d}/gone"), [], "names in its successor")
    fails(errno.ENOENT, "create in it, with a successor", os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    os.close(fd)


@test()
def mkdir_p_races(ctx):
    d = ctx.dir()
    faults = []

    def racer(me):
        try:
            for i in range(60):
                os.makedirs(f"{d}/{i}/a/b/c", exist_ok=True)
                write_file(f"{d}/{i}/a/b/c/{me}", stamped("race", me, 100))
        except OSError as e:
            faults.append(f"racer {me}: {e}")

    threads = [threading.Thread(target=racer, args=(me,)) for me in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not faults, faults)
    for i in range(60):
        same(sorted(os.listdir(f"{d}/{i}/a/b/c")), list("0123"), "files of the racers")
    wins = []
    barrier = threading.Barrier(4)

    def once(i):
        barrier.wait()
        try:
            os.mkdir(f"{d}/once{i}")
            wins.append(i)
        except FileExistsError:
            pass

    for i in range(30):
        threads = [threading.Thread(target=once, args=(i,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    same(wins, list(range(30)), "each mkdir has one winner")


@test()
def rename(ctx):
    d = ctx.dir()
    os.makedirs(f"{d}/a/b")
    for i, (f, t) in enumerate((("x", "y"), ("y", "a/x"), ("a/x", "a/b/z"), ("a/b/z", "x"))):
        data = big_stamped("rename", i, 50000)
        write_file(f"{d}/{f}", data)
        ino = os.stat(f"{d}/{f}").st_ino
        os.rename(f"{d}/{f}", f"{d}/{t}")
        check_bytes(read_file(f"{d}/{t}"), data, f"{f} as {t}")
        fails(errno.ENOENT, f"stat of {f} after its rename", os.stat, f"{d}/{f}")
        same(os.stat(f"{d}/{t}").st_ino, ino, "st_ino after a rename")
    for i in range(300): # both names are right at once
        write_file(f"{d}/t", stamped("over", i, 4000))
        os.rename(f"{d}/t", f"{d}/x")
        check(not os.path.exists(f"{d}/t"), f"the old name after rename {i}")
        same(os.stat(f"{d}/x").st_size, 4000, "size")
        check_bytes(read_file(f"{d}/x"), stamped("over", i, 4000), f"the new name after rename {i}")
    os.rename(f"{d}/x", f"{d}/x")
    check_bytes(read_file(f"{d}/x"), stamped("over", 299, 4000), "renamed to itself")
    fails(errno.ENOENT, "rename of nothing", os.rename, f"{d}/none", f"{d}/x")
    fails(errno.ENOENT, "rename into nothing", os.rename, f"{d}/x", f"{d}/none/x")
    fails(errno.EISDIR, "rename of a file over a directory", os.rename, f"{d}/x", f"{d}/a")
    fails(errno.ENOTDIR, "rename of a directory over a file", os.rename, f"{d}/a/b", f"{d}/x")
    check_bytes(read_file(f"{d}/x"), stamped("over", 299, 4000), "after renames that failed")


@test()
def rename_with_flags(ctx):
    d = ctx.dir()
    write_file(f"{d}/a", b"a")
    write_file(f"{d}/b", b"b")
    fails(errno.EEXIST, "NOREPLACE over a name", renameat2, f"{d}/a", f"{d}/b", NOREPLACE)
    check_bytes(read_file(f"{d}/a") + read_file(f"{d}/b"), b"ab", "both files")
    renameat2(f"{d}/a", f"{d}/c", NOREPLACE)
    same(sorted(os.listdir(d)), ["b", "c"], "names")
    os.unlink(f"{d}/b")
    renameat2(f"{d}/c", f"{d}/b", NOREPLACE)
    fd = os.open(f"{d}/private", os.O_CREAT | os.O_WRONLY)
    fails(errno.EEXIST, "NOREPLACE over an unpublished name", renameat2, f"{d}/b", f"{d}/private", NOREPLACE)
    os.close(fd)
    write_file(f"{d}/c", b"c")
    with contextlib.suppress(OSError):
        renameat2(f"{d}/b", f"{d}/c", EXCHANGE)
        check_bytes(read_file(f"{d}/b") + read_file(f"{d}/c"), b"ca", "after RENAME_EXCHANGE")
        return
    fails(errno.EINVAL, "RENAME_EXCHANGE", renameat2, f"{d}/b", f"{d}/c", EXCHANGE)
    check_bytes(read_file(f"{d}/b") + read_file(f"{d}/c"), b"ac", "after RENAME_EXCHANGE was refused")


@test()
def rename_races_have_no_gap(ctx):
    """A name that is replaced all the time is there all the time."""
    d = ctx.dir()
    write_file(f"{d}/v", b"0" * 1000)
    stop, faults = threading.Event(), []

    def looker():
        while not stop.is_set():
            try:
                if os.stat(f"{d}/v").st_size != 1000 or len(read_file(f"{d}/v")) != 1000:
                    faults.append("another size")
            except OSError as e:
                faults.append(str(e))

    threads = [threading.Thread(target=looker) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(1000):
        write_file(f"{d}/t{i % 2}", b"%d" % (i % 10) * 1000)
        os.replace(f"{d}/t{i % 2}", f"{d}/v")
    stop.set()
    for t in threads:
        t.join()
    check(not faults, faults[:3])


@test()
def rename_of_a_directory(ctx):
    """Works as a whole, or is refused cleanly (mv then copies)."""
    d = ctx.dir()
    os.makedirs(f"{d}/old/sub")
    write_file(f"{d}/old/sub/f", b"inside")
    try:
        os.rename(f"{d}/old", f"{d}/new")
    except OSError as e:
        check(e.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM), f"rename of a directory: {e}")
        check_bytes(read_file(f"{d}/old/sub/f"), b"inside", "after the refusal")
        return
    check_bytes(read_file(f"{d}/new/sub/f"), b"inside", "below the new name")
    fails(errno.ENOENT, "the old name", os.stat, f"{d}/old/sub/f")
    os.makedirs(f"{d}/full")
    write_file(f"{d}/full/x", b"x")
    fails((errno.ENOTEMPTY, errno.EEXIST), "over a directory with names", os.rename, f"{d}/new", f"{d}/full")
    fails(errno.EINVAL, "into itself", os.rename, f"{d}/new", f"{d}/new/sub/new")


@test(fluxkv=True)
def across_namespaces(ctx):
    a, b = ctx.dir(), ctx.dir()
    write_file(f"{a}/f", big_stamped("exdev", 1, 100000))
    fails(errno.EXDEV, "rename across namespaces", os.rename, f"{a}/f", f"{b}/f")
    check_bytes(read_file(f"{a}/f"), big_stamped("exdev", 1, 100000), "the source")
    same(os.listdir(b), [], "names in the target")
    fails(errno.EXDEV, "NOREPLACE across namespaces", renameat2, f"{a}/f", f"{b}/f", NOREPLACE)
    subprocess.run(["mv", f"{a}/f", f"{b}/g"], check=True)
    check_bytes(read_file(f"{b}/g"), big_stamped("exdev", 1, 100000), "moved by mv")
    same(os.listdir(a), [], "names in the source")


@test(fluxkv=True)
def links_and_nodes_are_refused(ctx):
    d = ctx.dir()
    write_file(f"{d}/f", b"x")
    for text, call in {
        "symlink": lambda: os.symlink("f", f"{d}/s"),
        "link": lambda: os.link(f"{d}/f", f"{d}/l"),
        "mkfifo": lambda: os.mkfifo(f"{d}/p"),
        "character device": lambda: os.mknod(f"{d}/c", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        "block device": lambda: os.mknod(f"{d}/b", stat.S_IFBLK | 0o600, os.makedev(7, 0)),
    }.items():
        fails(errno.EPERM, text, call)
    import socket
    s = socket.socket(socket.AF_UNIX)
    try:
        fails(errno.EPERM, "socket", s.bind, f"{d}/x")
    finally:
        s.close()
    same(os.listdir(d), ["f"], "names")
    os.mknod(f"{d}/regular", stat.S_IFREG | 0o640)
    same(os.stat(f"{d}/regular").st_size, 0, "a regular file by mknod")


@test()
def o_tmpfile(ctx):
    """Works with linkat, or is a clean EOPNOTSUPP."""
    d = ctx.dir()
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as e:
        same(e.errno, errno.EOPNOTSUPP, "errno of O_TMPFILE")
        same(os.listdir(d), [], "names")
        return
    data = big_stamped("tmpfile", 1, 300001)
    same(os.write(fd, data), len(data), "write")
    same(os.listdir(d), [], "names before linkat")
    follow = 0x400 # AT_SYMLINK_FOLLOW
    syscall_result(libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, f"{d}/v".encode(), follow))
    os.close(fd)
    check_bytes(read_file(f"{d}/v"), data, "after linkat")
    fd = os.open(d, os.O_TMPFILE | os.O_WRONLY | os.O_EXCL, 0o600)
    os.write(fd, data)
    os.close(fd)
    same(os.listdir(d), ["v"], "names after a nameless file was closed")


@test(fluxkv=True)
def virtual_files(ctx):
    root = ctx.mount
    d = ctx.dir()
    write_file(f"{d}/f", bytes(100000))
    read_file(f"{d}/f")
    check(".fluxkv" not in os.listdir(root), ".fluxkv is hidden from readdir")
    same(sorted(os.listdir(f"{root}/.fluxkv")), ["config", "metrics", "status", "version"], "names in .fluxkv")
    texts = {n: read_file(f"{root}/.fluxkv/{n}").decode() for n in ("status", "metrics", "config", "version")}
    with open(f"{os.path.dirname(os.path.dirname(SYSTEM_DIR))}/VERSION") as f:
        check(f.read().strip() in texts["version"], f"version: {texts['version']!r}")
    check("dram" in texts["status"] and root in texts["status"], f"status: {texts['status'][:200]!r}")
    check("dram" in texts["config"], f"config: {texts['config'][:200]!r}")
    for line in texts["metrics"].splitlines():
        check(re.fullmatch(r"#( HELP| TYPE)? .*|[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^}]*\})? [-+0-9.eEinfNa]+( \d+)?|", line),
              f"metrics has the line {line!r}")
    check(re.search(r"^fluxkv_\w+(\{[^}]*\})? [1-9]", texts["metrics"], re.M), "no metric of ours is above 0")
    same(subprocess.run(["cat", f"{root}/.fluxkv/version"], capture_output=True, text=True, check=True).stdout,
         texts["version"], "cat version")
    refused = (errno.EACCES, errno.EPERM, errno.EROFS)
    for text, call in {
        "write": lambda: os.open(f"{root}/.fluxkv/status", os.O_WRONLY),
        "truncate": lambda: os.truncate(f"{root}/.fluxkv/status", 0),
        "unlink": lambda: os.unlink(f"{root}/.fluxkv/status"),
        "create": lambda: os.open(f"{root}/.fluxkv/new", os.O_CREAT | os.O_WRONLY),
        "mkdir": lambda: os.mkdir(f"{root}/.fluxkv/new"),
        "rename": lambda: os.rename(f"{root}/.fluxkv/status", f"{root}/.fluxkv/new"),
        "chmod": lambda: os.chmod(f"{root}/.fluxkv/status", 0o777),
        "rmdir": lambda: os.rmdir(f"{root}/.fluxkv"),
        "rename into": lambda: os.rename(f"{d}/f", f"{root}/.fluxkv/f"),
    }.items():
        fails((*refused, errno.EXDEV, errno.ENOTEMPTY), f"{text} in .fluxkv", call)
    fails(errno.EEXIST, "mkdir .fluxkv", os.mkdir, f"{root}/.fluxkv")
    fails(errno.ENOENT, "open of nothing in .fluxkv", os.open, f"{root}/.fluxkv/none", os.O_RDONLY)


@test()
def a_missing_name_appears_at_once(ctx):
    d = ctx.dir()
    for i in range(300):
        path = f"{d}/{i}"
        check(not os.path.exists(path), f"{path} before it was made")
        if i % 3 == 0:
            write_file(path, b"x")
        elif i % 3 == 1:
            write_file(f"{d}/t", b"x")
            os.rename(f"{d}/t", path)
        else:
            os.mkdir(path)
        check(os.path.exists(path), f"{path} after it was made")
        (os.rmdir if i % 3 == 2 else os.unlink)(path)
        check(not os.path.exists(path), f"{path} after it was removed")


@test()
def the_usual_tools(ctx):
    d = ctx.dir()
    script = """
set -e
mkdir -p p/q/r && touch p/a p/q/b 'p/q/with space' && echo data > p/q/r/c
test "$(find . -type f | wc -l)" = 4
test "$(ls -laR . | grep -c '^-')" = 4
du -s . > /dev/null
cp -a p copy && diff -r p copy
mv copy/a copy/z && test -e copy/z
ls copy/q | sort > /dev/null
tar cf - p | tar tf - > /dev/null
rm -rf copy
test "$(ls)" = p
df . > /dev/null
sync -f p/a
rm -r p
test -z "$(ls -A)"
"""
    p = subprocess.run(["sh", "-c", script], cwd=d, capture_output=True, text=True, check=False)
    same((p.returncode, p.stderr), (0, ""), "the script")


run(globals())
