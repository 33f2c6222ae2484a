# SPDX-License-Identifier: Apache-2.0
"""When a close publishes, and when it does not: shells, exits, signals, other pid namespaces."""
import errno
import os
import signal
import subprocess
import sys
import time

from lib import (MIB, big_stamped, check, check_bytes, read_file, run, same, stamped, test, wait_for, write_file)


def sh(script, *args, cwd=None):
    p = subprocess.run(["sh", "-c", script, "sh", *args], capture_output=True, text=True, cwd=cwd, check=False)
    same((p.returncode, p.stderr), (0, ""), script)
    return p.stdout


def python(code, *args, **kwargs):
    return subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, **kwargs)


@test()
def shell_redirections(ctx):
    d = ctx.dir()
    write_file(f"{ctx.temp('src')}/s", big_stamped("dd", 1, 3 * MIB + 5))
    source = next(os.path.join(at, "s") for at, _, names in os.walk(ctx.base) if "s" in names)
    want = {
        "dd": (f"dd if={source} bs=64k status=none > dd", read_file(source)),
        "subshell": ("(echo a; echo b) > subshell", b"a\nb\n"),
        "group": ("{ /bin/echo a; /bin/echo b; } > group", b"a\nb\n"),
        "many": ("for i in 1 2 3 4 5; do /bin/echo $i; done > many", b"1\n2\n3\n4\n5\n"),
        "append": ("echo a > append; /bin/echo b >> append; echo c >> append", b"a\nb\nc\n"),
        "empty": (": > empty", b""),
        "touched": ("touch touched", b""),
        "background": ("(sleep 0.2; echo late) > background & wait", b"late\n"),
        "held": ("exec 5> held; /bin/echo a >&5; cat held > copy; /bin/echo b >&5; exec 5>&-", b"a\nb\n"),
        "copy": (":", b"a\n"),
        "readwrite": ("exec 5<> readwrite; echo abc >&5; exec 5>&-; exec 5<> readwrite; printf X >&5; exec 5>&-",
                      b"Xbc\n"),
        "pipe": ("cat $1 | tee pipe > /dev/null", read_file(source)),
    }
    for again in (False, True):
        for name, (script, content) in want.items():
            sh(script, source, cwd=d)
            check_bytes(read_file(f"{d}/{name}"), content, script + (" (over the old file)" if again else ""))
    same(sorted(os.listdir(d)), sorted(want), "names")


@test(fluxkv=True)
def a_flush_before_the_first_write_publishes_nothing(ctx):
    """Shells dup and close: the FLUSH of that must not publish an empty file over the old value."""
    d = ctx.dir()
    count = lambda: ctx.shared.number("puts", "done") if "puts" in ctx.shared.status() else None
    write_file(f"{d}/f", b"old")

    def version():
        """None: a private version is still there."""
        try:
            return os.getxattr(f"{d}/f", "user.fluxkv.version")
        except OSError as e:
            same(e.errno, errno.ENODATA, "errno of getxattr user.fluxkv.version")
            return None

    before = version()
    fd = os.open(f"{d}/f", os.O_WRONLY)
    os.close(os.dup(fd))
    os.close(fd)
    wait_for(lambda: version() == before,
             "the version is the old one after an open and close without a write", 3)
    started = count()
    sh("(echo a; echo b) > f", cwd=d)
    check_bytes(read_file(f"{d}/f"), b"a\nb\n", "f")
    check(version() != before, "the version has not changed by a write")
    if started is not None:
        wait_for(lambda: count() == started + 1, "one publish for one redirection", 3)


@test()
def an_empty_file_is_published(ctx):
    d = ctx.dir()
    os.close(os.open(f"{d}/e", os.O_CREAT | os.O_WRONLY))
    same(os.stat(f"{d}/e").st_size, 0, "size, at once")
    write_file(f"{d}/t", b"full")
    os.close(os.open(f"{d}/t", os.O_TRUNC | os.O_WRONLY))
    same(os.stat(f"{d}/t").st_size, 0, "size after O_TRUNC, at once")
    time.sleep(0.3)
    same(sorted(os.listdir(d)), ["e", "t"], "names")
    check_bytes(read_file(f"{d}/e") + read_file(f"{d}/t"), b"", "both, later")


@test()
def an_emptied_file_stays_empty(ctx):
    """Also for who looks while its publish is on its way, and after it."""
    d = ctx.dir()
    for i in range(200):
        write_file(f"{d}/f", stamped("emptied", i, 5000))
        os.close(os.open(f"{d}/f", os.O_WRONLY | os.O_TRUNC))
        for look in range(10):
            same((os.stat(f"{d}/f").st_size, read_file(f"{d}/f")), (0, b""), f"size and bytes, round {i}, look {look}")


WRITER = """
import os, sys, threading, time, signal
path, size, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open(path, os.O_CREAT | os.O_WRONLY | (os.O_TRUNC if "trunc" in how else 0))
data = (path[-8:].rjust(8, "_") * (size // 8 + 1)).encode()[:size]
at = 0
while at < size:
    at += os.write(fd, data[at:at + 65536])
if "threads" in how:
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("written", flush=True)
if "exit" in how:
    os._exit(3)
if "return" in how:
    sys.exit(0)
if "abort" in how:
    os.abort()
if "execve" in how:
    os.set_inheritable(fd, False)
    os.execv("/bin/sleep", ["sleep", "0.1"])
if "writing" in how:
    while True:
        os.pwrite(fd, data, 0)
time.sleep(1000)
"""


def content(path, size):
    return (path[-8:].rjust(8, "_") * (size // 8 + 1)).encode()[:size]


@test()
def writers_that_end_without_close(ctx):
    """exit, _exit of a process with threads, execve: the kernel closes, which is a close."""
    d = ctx.dir()
    for how in ("exit", "threads exit", "return", "threads return", "execve"):
        for size in (1, 300000):
            path = f"{d}/{how.replace(' ', '-')}{size}"
            p = python(WRITER, path, str(size), how)
            p.communicate()
            same(p.returncode, 3 if how.endswith("exit") else 0, "exit status of the writer")
            check_bytes(read_file(path), content(path, size), f"{how}, {size} bytes")


@test(fluxkv=True, timeout=120)
def killed_writers_publish_nothing(ctx):
    d = ctx.dir()
    for how in ("plain", "threads", "writing", "threads writing"):
        for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            for old in (False, True):
                path = f"{d}/{how.replace(' ', '-')}{sig.value}{old:d}"
                if old:
                    write_file(path, b"the old value")
                p = python(WRITER, path, str(3 * MIB), how)
                same(p.stdout.readline(), "written\n", "the writer")
                p.send_signal(sig)
                p.wait()
                same(p.returncode, -sig, "the writer's end")
                text = f"{how} writer killed by {sig.name}, {'old value' if old else 'new name'}"
                if old:
                    wait_for(lambda: read_file(path) == b"the old value", f"{text}: the old value is back", 5)
                else:
                    wait_for(lambda: not os.path.lexists(path), f"{text}: no object is left", 5)
    p = python(WRITER, f"{d}/aborted", "5000", "abort")
    p.communicate()
    same(p.returncode, -signal.SIGABRT, "the writer's end")
    wait_for(lambda: not os.path.lexists(f"{d}/aborted"), "abort(): no object is left", 5)
    same(sorted(os.listdir(d)), sorted(n for n in os.listdir(d) if n.endswith("1")), "names left")


@test(fluxkv=True)
def a_killed_writers_space_is_free_at_once(ctx):
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    for i in range(6):
        p = python(WRITER, f"{d.mnt}/ns/{i}", str(40 * MIB), "plain")
        same(p.stdout.readline(), "written\n", f"writer {i} of 40 MiB in 64 MiB")
        p.kill()
        p.wait()
        wait_for(lambda: d.number("dram", "used") + d.number("dram", "reserved") == 0,
                 f"after writer {i} was killed, its memory is free", 2)
    wait_for(lambda: not any(d.ledgers().values()), "all ledgers are 0", 5)
    same(d.segment_files(), [], "files in the segment")


@test(fluxkv=True)
def a_killed_parent_and_a_child_that_closes(ctx):
    """The killed one publishes nothing; who inherited the descriptor and closes it does."""
    d = ctx.dir()
    code = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"from the parent ")
if os.fork() == 0:
    time.sleep(0.7)
    os.write(fd, b"and the child")
    os.close(fd)
    os._exit(0)
print("forked", flush=True)
time.sleep(1000)
"""
    p = python(code, f"{d}/f")
    p.stdout.readline()
    p.kill()
    p.wait()
    wait_for(lambda: os.path.exists(f"{d}/f") and read_file(f"{d}/f") == b"from the parent and the child",
             "the child's close publishes all", 5)


@test(fluxkv=True)
def killed_after_fsync_keeps_what_was_synced(ctx):
    d = ctx.dir()
    code = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"synced")
os.fsync(fd)
os.write(fd, b" and not")
print("x", flush=True)
time.sleep(1000)
"""
    p = python(code, f"{d}/f")
    p.stdout.readline()
    p.kill()
    p.wait()
    wait_for(lambda: read_file(f"{d}/f") == b"synced", "what fsync returned for stays, the rest is given up", 5)
    time.sleep(0.3)
    check_bytes(read_file(f"{d}/f"), b"synced", "later")


@test(fluxkv=True)
def writers_in_a_pid_namespace_below(ctx):
    """The daemon can see them: the same rules."""
    d = ctx.dir()
    inside = ["unshare", "-p", "-f", "--kill-child", sys.executable, "-c", WRITER]
    subprocess.run([*inside, f"{d}/exits", "200000", "threads return"], stdout=subprocess.DEVNULL, check=True)
    check_bytes(read_file(f"{d}/exits"), content(f"{d}/exits", 200000), "a writer that exits")
    p = subprocess.Popen([*inside, f"{d}/killed", "200000", "plain"], stdout=subprocess.PIPE, text=True)
    same(p.stdout.readline(), "written\n", "the writer")
    p.kill()
    p.wait()
    wait_for(lambda: not os.path.lexists(f"{d}/killed"), "a killed writer leaves no object", 5)


@test(fluxkv=True)
def writers_that_the_daemon_cannot_see(ctx):
    """The daemon in a pid namespace below: their closes publish, whatever ends them."""
    d = ctx.daemon().start(wrap=["unshare", "-p", "-f", "--kill-child"])
    os.mkdir(f"{d.mnt}/ns")
    subprocess.run([sys.executable, "-c", WRITER, f"{d.mnt}/ns/exits", "200000", "threads exit"],
                   stdout=subprocess.DEVNULL, check=False)
    check_bytes(read_file(f"{d.mnt}/ns/exits"), content(f"{d.mnt}/ns/exits", 200000), "a writer that exits")
    p = python(WRITER, f"{d.mnt}/ns/killed", "200000", "plain")
    p.stdout.readline()
    p.kill()
    p.wait()
    wait_for(lambda: os.path.exists(f"{d.mnt}/ns/killed"), "the close of a task that nobody can see publishes", 5)
    check_bytes(read_file(f"{d.mnt}/ns/killed"), content(f"{d.mnt}/ns/killed", 200000), "what it had written")
    with open(f"/proc/{d.pid}/task/{d.pid}/children") as f:
        child = int(f.read().split()[0])
    os.kill(child, signal.SIGTERM)
    same(d.wait(), 0, "exit status after SIGTERM")


@test()
def two_writers_of_one_name_are_one_file(ctx):
    """On one node: one private version, each sees the other's bytes, the last close publishes all."""
    d = ctx.dir()
    a = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.write(a, b"from a..........")
    b = os.open(f"{d}/f", os.O_RDWR)
    check_bytes(os.pread(b, 100, 0), b"from a..........", "b sees a's unpublished bytes")
    os.pwrite(b, b"from b", 8)
    check_bytes(os.pread(a, 100, 0), b"from a..from b..", "a sees b's")
    os.close(a)
    check_bytes(read_file(f"{d}/f"), b"from a..from b..", "after the first close")
    os.pwrite(b, b"B", 0)
    os.close(b)
    check_bytes(read_file(f"{d}/f"), b"Brom a..from b..", "after the second")


@test()
def read_your_writes_before_the_first_close(ctx):
    d = ctx.dir()
    fd = os.open(f"{d}/new", os.O_CREAT | os.O_WRONLY)
    for i in range(1, 200):
        os.write(fd, stamped("ryw", i, 1000))
        same(os.stat(f"{d}/new").st_size, 1000 * i, "stat by name")
        if i % 20 == 0:
            check_bytes(read_file(f"{d}/new")[-1000:], stamped("ryw", i, 1000), "read by name")
    os.rename(f"{d}/new", f"{d}/renamed")
    os.write(fd, b"after the rename")
    same(os.stat(f"{d}/renamed").st_size, 199016, "stat after the rename")
    same(os.listdir(d), ["renamed"], "names")
    os.close(fd)
    check_bytes(read_file(f"{d}/renamed")[-16:], b"after the rename", "the end of the renamed file")


@test()
def what_follows_a_close_at_once_holds(ctx):
    """RELEASE comes after close has returned: an unlink or a rename in between must not be undone by it."""
    d = ctx.dir()
    for size in (0, 1, 70000):
        for i in range(1000):
            for name in ("gone", f"temp{i}"):
                fd = os.open(f"{d}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                if size:
                    os.write(fd, bytes(size))
                os.close(fd)
                if name == "gone":
                    os.unlink(f"{d}/gone")
                else:
                    os.rename(f"{d}/{name}", f"{d}/final{i}")
        same(sorted(os.listdir(d)), sorted(f"final{i}" for i in range(1000)), f"names, files of {size} bytes")
        for i in range(1000):
            os.unlink(f"{d}/final{i}")
        same(os.listdir(d), [], f"names after all were removed, files of {size} bytes")


run(globals())
