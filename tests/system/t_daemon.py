# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: its log, pid file and signals, what a start that fails leaves, how a dead mount is recovered."""
import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import time

from lib import (BUILD_DIR, FLUXKVD, MIB, SLOW, big_stamped, check, check_bytes, fails, left_behind, process_state, read_file,
                 run, same, test, wait_for, write_file)

CANNOT_SERVE, USAGE = 1, 2


def in_background(d, *more, status=0, **kwargs):
    command = d.command(foreground=False)
    p = subprocess.run([*command[:-2], *more, *command[-2:]], capture_output=True, text=True, timeout=30 * SLOW, check=False,
                       **kwargs)
    same(p.returncode, status, f"{command}: {p.stderr!r}")
    return p


def pid_of(d):
    return int(read_file(f"{d.run_dir}/{d.instance}/fluxkvd.pid"))


def log_of(d):
    return read_file(f"{d.run_dir}/{d.instance}/fluxkvd.log").decode()


def ends(pid):
    wait_for(lambda: process_state(pid) in "ZX", f"{pid} ends", 20)


def tree(path):
    return sorted(os.path.join(at, n) for at, dirs, names in os.walk(path) for n in dirs + names)


def mounts_on(path):
    with open("/proc/self/mounts") as f:
        return sum(line.split()[1] == path for line in f)


@test(fluxkv=True)
def the_log(ctx):
    d = ctx.daemon(dram="64MB", log_level="debug")
    in_background(d)
    log, pid = f"{d.run_dir}/{d.instance}/fluxkvd.log", pid_of(d)
    same(os.stat(log).st_mode & 0o777, 0o640, "its mode")
    check(re.search(r"^\d{4}-\d\d-\d\dT[\d:.]+ info: .*serving", log_of(d), re.M), log_of(d))
    # Rotated, many times: moved away, then SIGHUP.
    for i in range(40):
        os.rename(log, f"{log}.1")
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: os.path.exists(log) and "nothing changed" in log_of(d), f"the log is opened anew, {i}", 5)
        same(re.findall(r" warn: .*", log_of(d)), [], f"warnings after rotation {i}")
    os.kill(pid, signal.SIGTERM)
    ends(pid)
    check("stopping" in log_of(d), log_of(d))
    # The next start goes on in the same file.
    in_background(d)
    check("stopping" in log_of(d) and log_of(d).count("serving") == 1, log_of(d))
    os.kill(pid_of(d), signal.SIGTERM)
    wait_for(lambda: not left_behind(d.dir), "it ends", 20)
    same(sorted(os.listdir(f"{d.run_dir}/{d.instance}")), ["fluxkvd.log", "fluxkvd.log.1"], "what a clean end leaves")


@test(fluxkv=True)
def no_trace_of_a_daemon_in_the_foreground(ctx):
    d = ctx.daemon(dram="64MB", ssd="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", bytes(MIB))
    d.stop()
    same((tree(d.run_dir), os.listdir(d.mnt)), ([], []), "what is left in run_dir and on the mount point")
    same([n for n in tree(d.ssd_path) if os.path.isfile(n) and os.path.basename(n) != "lock"], [], "shard files")


@test(fluxkv=True)
def journal_lines(ctx):
    """Under systemd a line starts with its priority, and has no time of its own."""
    d = ctx.daemon(dram="64MB")
    with open(d.log, "wb") as log:
        st = os.fstat(log.fileno())
        d.process = subprocess.Popen(d.command(), stderr=log, env={**os.environ, "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"})
    wait_for(lambda: "serving" in d.log_text(), "it serves", 20)
    check(d.log_text().startswith("<6>fluxkvd "), d.log_text())
    d.stop()


@test(fluxkv=True)
def reload(ctx):
    d = ctx.daemon(dram="64MB", log_allowed="reload:")
    d.config = f"{d.dir}/fluxkv.yaml"
    write_file(d.config, b"log_level: info\nfuse_threads: 4\n")
    d.start()

    def hup(words):
        seen = len(d.log_text())
        d.process.send_signal(signal.SIGHUP)
        return wait_for(lambda: re.search(words, d.log_text()[seen:]), f"the log says {words}", 5)

    hup("nothing changed")
    write_file(d.config, b"log_level: debug\nfuse_threads: 8\n")
    hup(r"log_level changed(.|\n)*fuse_threads changed.*next start")
    check("debug" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "the new level is in .fluxkv/config")
    check("fuse_threads: 4" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "the old number of threads, too")
    write_file(d.config, b"log_level: loud\n")
    hup(r"fluxkv.yaml:1.*loud.*old configuration")
    os.unlink(d.config)
    hup("fluxkv.yaml.*old configuration")
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", b"it still serves")
    said = d.notices
    with contextlib.suppress(socket.timeout):
        d.notify.settimeout(0.5)
        while True:
            said += d.notify.recv(4096) + b"\n"
    same(said.count(b"RELOADING=1"), 4, f"notices of a reload in {said!r}")
    same(said.count(b"READY=1"), 5, "notices of being ready")
    check(b"STATUS=serving" in said and b"MONOTONIC_USEC=" in said, said)
    d.stop()


@test(fluxkv=True)
def a_failed_start_leaves_nothing(ctx):
    """Nor does it take away what was there before."""
    d = ctx.daemon(dram="64MB", ssd="/proc/no:1GB")
    for path in (d.run_dir, d.state_dir):
        os.rmdir(path)
    before = tree(d.dir)
    for foreground in (False, True):
        p = subprocess.run(d.command(foreground), capture_output=True, text=True, timeout=30 * SLOW, check=False)
        same((p.returncode, len(p.stderr.splitlines())), (CANNOT_SERVE, 1), f"a start that must fail: {p.stderr!r}")
        check(p.stderr.startswith("fluxkvd: ") and "/proc/no" in p.stderr, p.stderr)
        same(tree(d.dir), before, "files afterwards")
    # With directories, a log and a catalogue of its own from before.
    d.options["ssd"] = None
    in_background(d)
    os.mkdir(f"{d.mnt}/kept")
    os.kill(pid_of(d), signal.SIGTERM)
    wait_for(lambda: not left_behind(d.dir), "it ends", 20)
    before, log = tree(d.dir), log_of(d)
    d.options["ssd"] = "/proc/no:1GB"
    in_background(d, status=CANNOT_SERVE)
    same(tree(d.dir), before, "files afterwards")
    check(log_of(d).startswith(log), "the old log")
    d.options["ssd"] = None
    d.start()
    same(os.listdir(d.mnt), ["kept"], "the old catalogue")
    d.stop()


@test(fluxkv=True)
def a_dead_mount_is_recovered(ctx):
    """By the same command, by another instance, also when the kernel still answers for the root from its cache."""
    d = ctx.daemon(dram="64MB", ssd="64MB").start()
    for round_ in range(3):
        os.makedirs(f"{d.mnt}/ns", exist_ok=True)
        write_file(f"{d.mnt}/ns/f", big_stamped("dead", round_, MIB))
        os.stat(d.mnt)
        d.kill()
        os.stat(os.path.dirname(d.mnt))
        if round_ == 1:
            # Dead mounts on top of each other: what an older version, or a person, may have done.
            other = ctx.daemon(mnt=d.mnt, dram="64MB")
            other.start()
            other.kill()
        in_background(d)
        same(os.listdir(f"{d.mnt}/ns"), [], "objects that were only in the dead daemon")
        same(mounts_on(d.mnt), 1, "mounts on the mount point")
        os.kill(pid_of(d), signal.SIGTERM)
        wait_for(lambda: not left_behind(d.dir), "it ends", 20)
        check(round_ == 1 or "that died" in log_of(d), "the log says so")
        d.start()
    d.stop()


@test(fluxkv=True)
def clean(ctx):
    """fluxkvd --clean takes away a dead mount, and nothing else."""
    d = ctx.daemon(dram="64MB").start()

    def cleaned(path, status=0):
        p = subprocess.run([FLUXKVD, "--clean", path], capture_output=True, text=True, timeout=30 * SLOW, check=False)
        same(p.returncode, status, f"--clean {path}: {p.stderr!r}")
        return p.stderr

    cleaned(d.mnt)
    os.mkdir(f"{d.mnt}/ns") # it is still mounted
    d.kill()
    cleaned(d.mnt)
    same(mounts_on(d.mnt), 0, "mounts on the mount point")
    same(os.listdir(d.mnt), [], "the mount point")
    cleaned(d.mnt)
    cleaned("/proc")
    check(os.path.exists("/proc/self"), "/proc is gone")
    check("does not exist" in cleaned(f"{d.dir}/none", CANNOT_SERVE), "a path that is not there")
    d.end()


@test(fluxkv=True)
def checking_a_configuration(ctx):
    d = ctx.daemon()
    config = f"{d.dir}/fluxkv.yaml"
    write_file(config, b"contribute_to_cluster_pool_size:\n  dram: 2GB\n")
    for args, status, words in ((["--check", "-c", config], 0, ""), (["--check"], 0, ""),
                                (["--check", "-o", "dram=lots"], USAGE, "lots"),
                                (["--check", "-c", config, "-o", "dram=1GB", "standalone", d.mnt], 0, ""),
                                (["--check", "nowhere", d.mnt], USAGE, "nowhere"),
                                (["master:70000", d.mnt], USAGE, "master:70000"),
                                (["nowhere", d.mnt], USAGE, "or HOST:PORT of a master"),
                                (["standlone", d.mnt], USAGE, "did you mean standalone?"),
                                ([d.mnt, "standalone"], USAGE, "the source comes first"),
                                (["", d.mnt], USAGE, "the source is empty"), (["standalone", ""], USAGE, "mount point is empty"),
                                (["-c", "", "--check"], USAGE, "-c needs the name of a file"),
                                (["--check=1"], USAGE, "--check=1: unknown, or takes no value"),
                                (["--check", "--clean", d.mnt], USAGE, "give one of them"),
                                (["a\nb\033c", d.mnt], USAGE, "a?b?c: the source is"),
                                (["standalone", f"{d.dir}/a\nb"], CANNOT_SERVE, "a?b does not exist"),
                                (["standalone", "/x" * 3000], CANNOT_SERVE, "the path is too long"),
                                (["-o", "dram=1GB"] * 70 + ["standalone", d.mnt], USAGE, "64"),
                                (["--help"], 0, ""), (["--version"], 0, "")):
        p = subprocess.run([FLUXKVD, *(args if isinstance(args[0], str) else sum(args, []))], capture_output=True, text=True,
                           timeout=20 * SLOW, check=False)
        same(p.returncode, status, f"fluxkvd {args[:6]}: {p.stderr!r}")
        check(words in p.stderr and (not words or len(p.stderr.splitlines()) == 1), f"fluxkvd {args[:6]}: {p.stderr!r}")
    check(not left_behind(d.dir), "something runs")


@test(fluxkv=True)
def checking_the_machine(ctx):
    """What a start would refuse, and could be told without it, is; with its exit status, and without a trace."""
    d = ctx.daemon(dram="64MB", ssd="8MB")
    write_file(f"{d.dir}/file", b"")
    os.mkdir(f"{d.dir}/full")
    write_file(f"{d.dir}/full/x", b"")
    fixed = ctx.temp("ro")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", fixed], check=True)
    before = tree(d.dir)
    good = d.command()[d.command().index("-o") + 1]

    def checked(status, words, more="", mountpoint=d.mnt):
        args = [FLUXKVD, "--check", "-o", f"{good},{more}", *(["standalone", mountpoint] if mountpoint else [])]
        p = subprocess.run(args, capture_output=True, text=True, timeout=20 * SLOW, check=False)
        same(p.returncode, status, f"{args}: {p.stderr!r}")
        check(words in p.stderr and len(p.stderr.splitlines()) == bool(words), f"{args}: {p.stderr!r}")
        same(tree(d.dir), before, f"what {args} leaves")

    checked(0, "")
    checked(0, "", mountpoint=None)
    checked(0, "", f"state_dir={d.dir}/not/yet,run_dir={d.dir}/neither")
    checked(CANNOT_SERVE, "does not exist", mountpoint=f"{d.dir}/none")
    checked(CANNOT_SERVE, "not a directory", mountpoint=f"{d.dir}/file")
    checked(CANNOT_SERVE, "not empty", mountpoint=f"{d.dir}/full")
    checked(CANNOT_SERVE, "is a mount point already", mountpoint="/proc")
    checked(CANNOT_SERVE, f"{d.dir}/none: cannot open the directory", f"ssd={d.dir}/none:8MB")
    checked(CANNOT_SERVE, f"{d.dir}/file: cannot open the directory", f"ssd={d.dir}/file:8MB", None)
    checked(CANNOT_SERVE, "the file system has", f"ssd={d.dir}/full:100PB")
    checked(CANNOT_SERVE, f"{d.dir}/file is not a directory", f"state_dir={d.dir}/file/x")
    for option in ("run_dir", "state_dir"):
        checked(CANNOT_SERVE, f"cannot make the directory {fixed}/x", f"{option}={fixed}/x", None)
    checked(CANNOT_SERVE, f"cannot make files in {fixed}: Read-only", f"ssd={fixed}:1MB", None)
    checked(CANNOT_SERVE, f"{d.dir}/full is a directory", f"catalog={d.dir}/full")
    checked(CANNOT_SERVE, f"{d.dir}/none/socket", f"control_socket={d.dir}/none/socket")
    checked(CANNOT_SERVE, "this machine has only", "dram=100TB")
    checked(USAGE, "-o dram", "dram=0")
    # One that runs, and the mount of one that died, are no faults: the next start is what is asked about.
    d.start()
    before = tree(d.dir)
    checked(0, "")
    d.kill()
    before = tree(d.state_dir) # the dead mount cannot be walked
    p = subprocess.run([FLUXKVD, "--check", "-o", good, "standalone", d.mnt], capture_output=True, text=True, check=False)
    same((p.returncode, p.stderr), (0, ""), "beside the mount of a dead daemon")
    subprocess.run([FLUXKVD, "--clean", d.mnt], check=True)
    subprocess.run(["umount", fixed], check=True)


@test(fluxkv=True)
def umount_ends_it(ctx):
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    subprocess.run(["umount", d.mnt], check=True)
    same(d.wait(), 0, "exit status")
    check(not left_behind(d.dir), left_behind(d.dir))


@test(fluxkv=True, timeout=90)
def umount_and_start_again(ctx):
    """umount returns before the daemon has ended: the next start waits for that, and only for that."""
    d = ctx.daemon(dram="64MB", ssd="64MB")
    in_background(d)
    for i in range(10):
        os.makedirs(f"{d.mnt}/ns", exist_ok=True)
        write_file(f"{d.mnt}/ns/f", big_stamped("again", i, MIB))
        subprocess.run(["umount", d.mnt], check=True)
        in_background(d)
    for how in ("umount", "SIGTERM"):
        pid = pid_of(d)
        if how == "umount": # a copy of the mount, elsewhere, keeps the daemon
            other = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo; read end"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
            other.stdout.readline()
            subprocess.run(["umount", d.mnt], check=True)
        else: # with a writer, which is waited for
            fd = os.open(f"{d.mnt}/ns/w", os.O_WRONLY | os.O_CREAT)
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: "signal 15" in log_of(d), "it is stopping")
        p = subprocess.Popen(d.command(foreground=False), stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        same(p.poll(), None, f"a start while the last daemon still ends, after {how}")
        if how == "umount":
            other.communicate()
        else:
            os.close(fd)
        same((p.communicate(timeout=30 * SLOW)[1], p.returncode), ("", 0), f"the start after {how}")
        check(pid_of(d) != pid, "the same daemon")
        os.makedirs(f"{d.mnt}/ns", exist_ok=True)
    started = time.monotonic()
    check("running already, as pid" in in_background(d, status=CANNOT_SERVE).stderr, "the mount serves")
    check(time.monotonic() - started < 5 * SLOW, "one that serves is not waited for")
    same(mounts_on(d.mnt), 1, "mounts on the mount point")
    os.kill(pid_of(d), signal.SIGTERM)
    wait_for(lambda: not left_behind(d.dir), "it ends", 20)
    same(os.listdir(f"{d.run_dir}/{d.instance}"), ["fluxkvd.log"], "what is left")


@test(fluxkv=True, timeout=90)
def what_runs_may_finish(ctx):
    """SIGTERM: a writer that goes on gets its ten seconds; then the daemon ends, whatever is open."""
    d = ctx.daemon(dram="64MB").start()
    os.mkdir(f"{d.mnt}/ns")
    write_file(f"{d.mnt}/ns/f", big_stamped("f", 1, MIB))
    fd = os.open(f"{d.mnt}/ns/w", os.O_WRONLY | os.O_CREAT)
    reader = os.open(f"{d.mnt}/ns/f", os.O_RDONLY)
    os.write(fd, bytes(MIB))
    through = d.passthrough()
    started = time.monotonic()
    d.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    for text, call in (("open for writing", lambda: os.open(f"{d.mnt}/ns/f", os.O_WRONLY)),
                       ("create", lambda: os.open(f"{d.mnt}/ns/new", os.O_WRONLY | os.O_CREAT)),
                       ("mkdir", lambda: os.mkdir(f"{d.mnt}/ns/new")), ("mknod", lambda: os.mknod(f"{d.mnt}/ns/new")),
                       ("truncate", lambda: os.truncate(f"{d.mnt}/ns/f", 0)),
                       ("O_TMPFILE", lambda: os.open(f"{d.mnt}/ns", os.O_TMPFILE | os.O_RDWR))):
        fails((errno.ESHUTDOWN, errno.EOPNOTSUPP) if "TMP" in text else errno.ESHUTDOWN, f"{text} while it ends", call)
    os.rename(f"{d.mnt}/ns/w", f"{d.mnt}/ns/w2")
    os.write(fd, bytes(MIB))
    check_bytes(os.read(reader, 100), big_stamped("f", 1, 100), "a read while it ends")
    os.close(fd)
    same(d.wait(), 0, "exit status")
    check(time.monotonic() - started < 5 * SLOW, "nobody writes any more: it ends at once")
    os.close(reader)
    # What a reader held beyond the end is counted by the next start, which takes that mount away.
    left = [fault for fault in left_behind(d.dir) if not (through and "/old-0 tmpfs " in fault)]
    check(not left, left)
    # One that never finishes.
    d.process = None
    d.start()
    fd = os.open(f"{d.mnt}/ns/w", os.O_WRONLY | os.O_CREAT)
    os.write(fd, bytes(MIB))
    started = time.monotonic()
    d.process.send_signal(signal.SIGTERM)
    same(d.wait(25), 0, "exit status with a file open for writing")
    took = time.monotonic() - started
    check(9 < took < 14 * SLOW, f"it took {took:.1f} s")
    with contextlib.suppress(OSError):
        os.close(fd)
    d.process = None


@test(fluxkv=True)
def as_many_threads_as_asked_for(ctx):
    d = ctx.daemon(dram="64MB", fuse_threads="256").start()
    names = [read_file(f"/proc/{d.pid}/task/{tid}/comm").decode().strip() for tid in os.listdir(f"/proc/{d.pid}/task")]
    same(sum(bool(re.fullmatch(r"fuse-\d+", n)) for n in names), 256, "threads that take requests")
    d.stop()


@test(fluxkv=True)
def few_descriptors(ctx):
    """The message has the numbers; the soft limit alone is raised."""
    d = ctx.daemon(dram="64MB")
    p = in_background(d, status=CANNOT_SERVE, preexec_fn=lambda: limit(200, 200))
    check("200 files" in p.stderr and re.search(r"needs \d+", p.stderr), p.stderr)
    need = int(re.search(r"needs (\d+)", p.stderr).group(1))
    in_background(d, status=CANNOT_SERVE, preexec_fn=lambda: limit(need - 1, need - 1))
    in_background(d, preexec_fn=lambda: limit(100, need))
    pid = pid_of(d)
    with open(f"/proc/{pid}/limits") as f:
        check(re.search(rf"Max open files\s+{need}\s+{need}", f.read()), "the soft limit is raised to the hard one")
    # And what was asked for is enough for many files being written at once.
    os.mkdir(f"{d.mnt}/ns")
    fds = [os.open(f"{d.mnt}/ns/{i}", os.O_RDWR | os.O_CREAT) for i in range(200)]
    for i, fd in enumerate(fds):
        os.write(fd, b"%d" % i)
    for fd in fds:
        os.close(fd)
    for i in range(200):
        check_bytes(read_file(f"{d.mnt}/ns/{i}"), b"%d" % i, "one of many files")
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not left_behind(d.dir), "it ends", 20)


def limit(soft, hard):
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@test(fluxkv=True)
def killed_while_it_starts(ctx):
    """Whenever the daemon is killed, the next start works, and the command that waits for it says what happened."""
    d = ctx.daemon(dram="64MB", ssd="64MB")
    told = 0
    # A sanitized command looks for leaks at its end, stopped by a child of its own, which is not to be killed.
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    for i in range(12):
        p = subprocess.Popen(d.command(foreground=False), stderr=subprocess.PIPE, text=True, env=env)
        time.sleep(0.004 * i)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(p.pid)], capture_output=True, text=True, check=False)
        for pid in children.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        err = p.communicate(timeout=30 * SLOW)[1]
        if p.returncode:
            told += 1
            same(err.splitlines(), ["fluxkvd: it was killed by signal 9 while it started"], "what the command says")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(pid_of(d), signal.SIGKILL)
            ends(pid_of(d))
    check(told, "no start was caught")
    d.start()
    os.mkdir(f"{d.mnt}/ns")
    d.stop()


@test(fluxkv=True)
def mount_command(ctx):
    """mount.fluxkv's own options; mount(8) finds it where the system has it in /sbin."""
    helper = os.path.join(BUILD_DIR, "mount.fluxkv")
    d = ctx.daemon(dram="64MB")
    options = d.command()[d.command().index("-o") + 1]

    def helped(*args, status=0):
        p = subprocess.run([helper, *args], capture_output=True, text=True, timeout=30 * SLOW, check=False)
        same(p.returncode, status, f"mount.fluxkv {args}: {p.stderr!r}")
        return p

    helped("standalone", d.mnt, "-f", "-o", options)
    check(not left_behind(d.dir), "a fake mount has mounted")
    helped("standalone", d.mnt, "-f", "-o", "dram=lots", status=USAGE)
    remount = helped("standalone", d.mnt, "-o", f"rw,user_id=0,remount,{options}", status=1).stderr
    check("cannot be changed by a remount" in remount and remount.count("\n") == 1, remount)
    check(not left_behind(d.dir), "a remount has mounted")
    check("MOUNTPOINT" in helped("standalone", status=1).stderr, "a missing mount point")
    config = f"{d.dir}/with,comma.yaml"
    write_file(config, b"log_level: debug\n")
    escaped = config.replace(",", "\\,")
    p = helped("standalone", d.mnt, "-n", "-s", "-v", "-o", f"{options},config={escaped}")
    check(config in p.stdout, f"-v shows the command: {p.stdout!r}")
    check("log_level: debug" in read_file(f"{d.mnt}/.fluxkv/config").decode(), "the file was read")
    subprocess.run(["umount", d.mnt], check=True)
    wait_for(lambda: not left_behind(d.dir), "umount ends it", 20)
    # As the system calls it, from a /sbin that has it.
    sbin = ctx.temp("sbin")
    for program in ("mount.fluxkv", "fluxkvd"):
        os.link(os.path.join(BUILD_DIR, program), f"{sbin}/{program}") if os.stat(sbin).st_dev == os.stat(BUILD_DIR).st_dev \
            else subprocess.run(["cp", os.path.join(BUILD_DIR, program), sbin], check=True)
    script = 'for f in /sbin/umount /sbin/mount*; do [ -e "$f" ] && ln -sf "$f" "$1/" 2> /dev/null; done; ' \
             'mount --bind "$1" /sbin && shift && exec "$@"'
    os.symlink("mount.fluxkv", f"{sbin}/mount.fuse.fluxkv")
    commands = 'mount -t fluxkv standalone "$0" -o "$1" || exit 9; ' \
               'mount -o remount "$0"; [ $? = 1 ] || exit 8; mount -o remount,ro "$0"; [ $? = 1 ] || exit 7; mkdir "$0/ns"'
    p = subprocess.run(["unshare", "-m", "--propagation", "unchanged", "sh", "-c", script, "sh", sbin,
                        "sh", "-c", commands, d.mnt, options], capture_output=True, text=True, timeout=30 * SLOW, check=False)
    same(p.returncode, 0, f"mount -t fluxkv, and remounts: {p.stderr!r}")
    lines = p.stderr.splitlines()
    check(len(lines) == 2 and all("cannot be changed by a remount" in x for x in lines), p.stderr)
    pid = pid_of(d)
    os.kill(pid, signal.SIGTERM)
    ends(pid)
    subprocess.run(["umount", "-l", "/sbin"], stderr=subprocess.DEVNULL, check=False)


run(globals())
