# SPDX-License-Identifier: Apache-2.0
"""The harness of the system tests.

A test program is a file t_*.py whose functions marked @test take one argument, the Context, and whose last line is
run(globals()). It prints TAP. Each program runs in mount and pid namespaces of its own, under a supervisor outside of
them: whatever happens to the program (a hang, a signal, a crash), its daemons, mounts and loop devices end with the
namespaces, and the supervisor removes the directory.

  python3 t_habits.py [NAME...]       run all tests, or those whose name contains a NAME
  FLUXKV_TEST_DIR=DIR                 run the file-system tests on a plain directory instead of a FluxKV mount;
                                      what only FluxKV does is skipped
  FLUXKV_TEST_LONG=1                  the full sizes
  FLUXKV_TEST_SLOW=N                  N times as long for everything: sanitizers, or a slow machine
  FLUXKV_TEST_KEEP=1                  leave the directory of the run behind
  top_builddir                        where fluxkvd, fluxkv and tests/system/exerciser were built
"""
import contextlib
import ctypes
import errno
import faulthandler
import functools
import hashlib
import json
import mmap
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

MIB = 1 << 20
GIB = 1 << 30
LONG = bool(os.environ.get("FLUXKV_TEST_LONG"))
PLAIN_DIR = os.environ.get("FLUXKV_TEST_DIR")
SYSTEM_DIR = os.path.dirname(os.path.abspath(__file__))
BUILD_DIR = os.environ.get("top_builddir") or os.path.dirname(os.path.dirname(SYSTEM_DIR))
FLUXKVD = os.path.join(BUILD_DIR, "fluxkvd")
FLUXKV = os.path.join(BUILD_DIR, "fluxkv")
EXERCISER = os.path.join(BUILD_DIR, "tests/system/exerciser")
# A sanitized daemon is several times slower.
SLOW = float(os.environ.get("FLUXKV_TEST_SLOW", "1"))

_libc = ctypes.CDLL(None, use_errno=True)
_tests = []


class Skip(Exception):
    """Raised by a test that cannot run here; the text says why."""


class Failed(AssertionError):
    """Raised by a test that found a fault."""


def check(condition, text):
    if not condition:
        raise Failed(text)


def same(got, want, text):
    if got != want:
        raise Failed(f"{text}: {got!r}, not {want!r}")


def fails(want, text, call, *args, **kwargs):
    """call() must fail with the errno want (a number or a tuple of them)."""
    wanted = want if isinstance(want, tuple) else (want,)
    names = "/".join(errno.errorcode[w] for w in wanted)
    try:
        result = call(*args, **kwargs)
    except OSError as e:
        if e.errno not in wanted:
            raise Failed(f"{text}: {errno.errorcode.get(e.errno, e.errno)}, not {names}") from e
        return
    if isinstance(result, int) and not isinstance(result, bool) and result > 2:
        with contextlib.suppress(OSError):
            os.close(result)
    raise Failed(f"{text}: succeeds, should be {names}")


def syscall_result(ret, *what):
    if ret < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e), *what)
    return ret


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def raw_mmap(fd, length, prot):
    """mmap(2) itself: Python's looks at the size of the file first, and keeps the descriptor."""
    at = _libc.mmap(None, length, prot, mmap.MAP_SHARED, fd, 0)
    if at == ctypes.c_void_p(-1).value:
        syscall_result(-1)
    return at


class Mapping:
    """A file mapped to be read, without a descriptor of it."""

    def __init__(self, fd, length):
        self.length = length
        self.at = raw_mmap(fd, length, mmap.PROT_READ)

    def bytes(self):
        return ctypes.string_at(self.at, self.length)

    def close(self):
        syscall_result(_libc.munmap(self.at, self.length))


def wait_for(condition, text, timeout=10.0, step=0.02):
    """Waits until condition() is true and returns what it returned."""
    end = time.monotonic() + timeout * SLOW
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise Failed(f"{text}: not within {timeout * SLOW:g} s")
        time.sleep(step)


def diag(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


# ---- bytes that tell where they belong ------------------------------------------------------------------------------


def stamped(name, version, size, offset=0):
    """size bytes of the value (name, version) from offset on: every 32 bytes say whose they are and where."""
    first = offset // 32
    last = (offset + size + 31) // 32
    tag = f"{name[-12:]:>12}"
    text = "".join(f"{tag}{version:08x}{i:011x}\n" for i in range(first, last))
    return text.encode("latin-1")[offset - first * 32:][:size]


@functools.lru_cache(maxsize=64)
def _page_tail(name, version):
    return hashlib.shake_256(f"{name}:{version}".encode()).digest(4080)


def big_stamped(name, version, size, offset=0):
    """As stamped(), made faster: pages of bytes of (name, version), each with its number in front."""
    tail = _page_tail(name, version)
    first, last = offset // 4096, (offset + size + 4095) // 4096
    data = b"".join([i.to_bytes(16, "little") + tail for i in range(first, last)])
    start = offset - first * 4096
    return data if not start and len(data) == size else data[start:start + size]


def first_difference(a, b):
    if len(a) != len(b):
        return f"length {len(a)}, not {len(b)}"
    lo, hi = 0, len(a)
    if a == b:
        return "no difference"
    while hi - lo > 1:
        mid = (lo + hi) // 2
        if a[lo:mid] != b[lo:mid]:
            hi = mid
        else:
            lo = mid
    return f"differs at byte {lo}: {bytes(a[lo:lo + 16])!r}, not {bytes(b[lo:lo + 16])!r}"


def check_bytes(got, want, text):
    if got != want:
        raise Failed(f"{text}: {first_difference(got, want)}")


def read_file(path):
    with open(path, "rb", buffering=0) as f:
        parts = []
        while True:
            part = f.read(8 * MIB)
            if not part:
                return b"".join(parts)
            parts.append(part)


def write_file(path, data):
    with open(path, "wb") as f:
        f.write(data)


# ---- a test program -------------------------------------------------------------------------------------------------


def test(fluxkv=False, plain=True, timeout=60, long_timeout=None):
    """fluxkv: the test needs a FluxKV mount (skipped on a plain directory). plain: it can run on one."""

    def mark(function):
        limit = (long_timeout or timeout) if LONG else timeout
        _tests.append((function.__name__, function, fluxkv or not plain, limit * SLOW))
        return function

    return mark


class Context:
    """What a test works with. The shared daemon is started by the first test that asks for a directory."""

    def __init__(self, base, options, announce):
        self.base, self.options, self.announce = base, options, announce
        self.daemons = []
        self.shared = None
        self.count = 0
        self.plain = bool(PLAIN_DIR)
        self.test_name = ""

    def temp(self, name):
        self.count += 1
        path = os.path.join(self.base, f"{name}{self.count}")
        os.mkdir(path)
        return path

    def daemon(self, **options):
        need_fluxkv()
        d = Daemon(self, **options)
        self.daemons.append(d)
        return d

    @property
    def mount(self):
        """The shared daemon's."""
        if self.plain:
            return os.path.join(PLAIN_DIR, os.path.basename(self.base))
        if not self.shared:
            self.shared = self.daemon(**self.options).start()
        return self.shared.mnt

    def dir(self):
        """A fresh directory that files can be made in: on FluxKV, a namespace of its own."""
        self.count += 1
        path = os.path.join(self.mount, f"{self.test_name[:60]}-{self.count}")
        os.makedirs(path)
        return path

    @property
    def semantics(self):
        return "posix" if self.plain else "versions"

    def end_test(self):
        """Ends the daemons that the test made for itself and, failed or not, looks into the logs of all."""
        faults = []
        for d in [d for d in self.daemons if d is not self.shared]:
            faults += d.end()
            self.daemons.remove(d)
        if self.shared:
            faults += self.shared.log_faults()
            if self.shared.running() is False:
                faults.append(f"the daemon has died: {self.shared.last_lines()}")
                self.shared.end()
                self.daemons.remove(self.shared)
                self.shared = None
        return faults

    def end_all(self):
        faults = []
        if self.shared:
            with contextlib.suppress(OSError):
                self.shared.check_empty(faults)
        for d in self.daemons:
            faults += d.end()
        self.daemons.clear()
        if self.plain:
            shutil.rmtree(self.mount, ignore_errors=True)
        return faults + left_behind(self.base)


def left_behind(base, processes=True):
    """Mounts and (anywhere) daemons that only a fault can leave."""
    faults = []
    with open("/proc/self/mounts") as f:
        faults += [f"mount left behind: {line.strip()}" for line in f if line.split()[1].startswith(base + "/")]
    for pid in filter(str.isdigit, os.listdir("/proc") if processes else []):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm") as f, open(f"/proc/{pid}/cmdline") as c:
                name = f.read().strip()
                if name in ("fluxkvd", "fluxkv-master") and base + "/" in c.read() and process_state(pid) not in "ZX":
                    faults.append(f"{name} left behind: pid {pid}")
    return faults


def process_status(pid, word):
    """A line of /proc/PID/status; None: no such process. (/proc/PID/stat would wait for a process in execve.)"""
    try:
        with open(f"/proc/{pid}/status") as f:
            return re.search(rf"^{word}:\s*(.*)$", f.read(), re.M).group(1)
    except (OSError, AttributeError):
        return None


def process_state(pid):
    """R, S, D, T, Z, ...; X: no such process."""
    return (process_status(pid, "State") or "X")[0]


def need_fluxkv():
    if os.geteuid():
        raise Skip("needs root to mount")
    if not os.path.exists("/dev/fuse"):
        raise Skip("needs /dev/fuse")
    for program in (FLUXKVD, FLUXKV):
        if not os.access(program, os.X_OK):
            raise Skip(f"{program} is not built")


# ---- a daemon -------------------------------------------------------------------------------------------------------

# Words that must not stand in a daemon's log, unless a test expects them.
_bad_log = re.compile(r" error: |<[0-3]>|assert|\bBUG\b|Sanitizer|runtime error|leak|Segmentation|corrupt|fatal|panic")


class Daemon:
    """A fluxkvd with its own directories. Options are those of -o; ssd="256MB" makes a directory for it. source: its
    master, and wrap: what it is started by, unless start() says otherwise."""

    source, wrap = "standalone", ()

    def __init__(self, ctx, mnt=None, config=None, instance=None, log_allowed=None, **options):
        self.ctx = ctx
        self.dir = ctx.temp("d")
        self.instance = instance or f"t{os.path.basename(self.dir)}"
        self.mnt = mnt or os.path.join(self.dir, "mnt")
        self.run_dir = os.path.join(self.dir, "run")
        self.state_dir = os.path.join(self.dir, "state")
        for path in (self.mnt, self.run_dir, self.state_dir):
            os.makedirs(path, exist_ok=True)
        self.log = os.path.join(self.dir, "log")
        self.log_seen = 0
        self.log_allowed = re.compile(log_allowed) if log_allowed else None
        self.config = config
        self.process = None
        self.notify = None
        self.notices = b""
        self.options = {"dram": "512MB", **options}
        ssd = self.options.get("ssd")
        if ssd:
            # However slow the disk is, what a test stores gets its copy; those that want it otherwise say so.
            self.options.setdefault("persist_backlog", "4GB")
        if ssd and not isinstance(ssd, list) and "/" not in ssd:
            self.ssd_path = os.path.join(self.dir, "ssd")
            os.makedirs(self.ssd_path, exist_ok=True)
            self.options["ssd"] = f"{self.ssd_path}:{ssd}"

    # -- life

    def command(self, foreground=True):
        options = {**self.options, "instance": self.instance, "run_dir": self.run_dir, "state_dir": self.state_dir}
        pairs = [(k, v) for k, vs in options.items() for v in (vs if isinstance(vs, list) else [vs]) if v is not None]
        text = ",".join(k if v is True else f"{k}={v}" for k, v in pairs)
        return [FLUXKVD, *(["-f"] if foreground else []), *(["-c", self.config] if self.config else []),
                "-o", text, self.source, self.mnt]

    def start(self, timeout=20, wrap=()):
        """Starts it in the foreground, its log in self.log, and waits until it says that it is ready. What it says to
        the service manager goes on coming to self.notify; self.notices is what was read so far."""
        self.end_notify()
        self.notify = ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices = b""
        ready.settimeout(0.02)
        path = os.path.join(self.dir, "notify")
        ready.bind(path)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*(wrap or self.wrap), *self.command()], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log,
                                            env={**os.environ, "NOTIFY_SOCKET": path})

        def says_ready():
            if self.process.poll() is not None:
                raise Failed(f"fluxkvd ends with {self.process.returncode}: {self.last_lines()}")
            with contextlib.suppress(TimeoutError):
                self.notices += ready.recv(4096) + b"\n"
            return b"READY=1" in self.notices

        wait_for(says_ready, "fluxkvd is ready", timeout, 0)
        os.statvfs(self.mnt)
        self.ctx.announce(f"mount {os.minor(os.stat(self.mnt).st_dev)}")
        return self

    def end_notify(self):
        if self.notify:
            self.notify.close()
            self.notify = None
            os.unlink(os.path.join(self.dir, "notify"))

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def running(self):
        """True, False (it died), or None (it was never started)."""
        return self.process.poll() is None if self.process else None

    def kill(self, sig=signal.SIGKILL, timeout=20):
        self.process.send_signal(sig)
        return self.wait(timeout)

    def wait(self, timeout=20):
        try:
            return self.process.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            diag(stacks(self.pid))
            raise Failed(f"fluxkvd has not ended after {timeout * SLOW:g} s") from None

    def stop(self):
        """SIGTERM: it must unmount, leave nothing and end with 0."""
        same(self.kill(signal.SIGTERM), 0, "exit status of fluxkvd after SIGTERM")
        self.process = None
        faults = left_behind(self.dir, processes=False)
        check(not faults, "; ".join(faults))

    def end(self):
        """For cleaning up: never raises; returns the faults it saw."""
        faults = []
        if self.running():
            try:
                self.stop()
            except Failed as e:
                faults.append(str(e))
        if self.running():
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        elif self.process and self.process.returncode not in (0, -signal.SIGKILL):
            faults.append(f"fluxkvd has ended with {self.process.returncode}: {self.last_lines()}")
        self.process = None
        places = os.path.join(self.run_dir, self.instance)
        for path in (self.mnt, f"{places}/segment", *(f"{places}/old-{i}" for i in range(4))):
            while subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                pass
        return faults + self.log_faults()

    # -- what it says

    def log_text(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def last_lines(self, n=5):
        return " | ".join(self.log_text().splitlines()[-n:])

    def log_faults(self):
        text = self.log_text()
        new, self.log_seen = text[self.log_seen:], len(text)
        lines = [line for line in new.splitlines() if _bad_log.search(line.replace(self.ctx.base, "..."))]
        if self.log_allowed:
            lines = [line for line in lines if not self.log_allowed.search(line)]
        return [f"the daemon's log says: {line}" for line in lines[:5]]

    # -- its tools

    @property
    def socket(self):
        return os.path.join(self.run_dir, self.instance, "control")

    def cli(self, *args, ok=True, timeout=60, **kwargs):
        p = subprocess.run([FLUXKV, "--socket", self.socket, *args], capture_output=True, text=True,
                           timeout=timeout * SLOW, check=False, **kwargs)
        if ok and p.returncode:
            raise Failed(f"fluxkv {' '.join(args)} ends with {p.returncode}: {p.stderr.strip()}")
        return p

    def status(self):
        return json.loads(self.cli("status", "--json").stdout)

    def number(self, *path):
        """One number of the status, e.g. number("dram", "used")."""
        value = self.status()
        for key in path:
            value = value[key]
        return value

    def passthrough(self):
        return self.status()["fs"]["passthrough"]["on"]

    def cpu_seconds(self):
        """User and system time of all its threads."""
        with open(f"/proc/{self.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss(self):
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096

    def private_memory(self):
        """RssAnon: the memory that is not the segment's pages."""
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1)) * 1024

    def segment(self):
        return os.path.join(self.run_dir, self.instance, "segment")

    def segment_files(self):
        return [os.path.join(at, name) for at, _, names in os.walk(self.segment()) for name in names]

    def delete_all(self):
        def failed(call, path, e):
            if not isinstance(e[1], FileNotFoundError): # evicted from its last tier meanwhile
                raise e[1]
        for name in os.listdir(self.mnt):
            shutil.rmtree(os.path.join(self.mnt, name), onerror=failed)

    def ledgers(self):
        s = self.status()
        return {k: v for k, v in ledger_numbers(s).items()}

    def check_empty(self, faults=None, timeout=15):
        """Invariant 4: all is deleted and quiet, so every ledger is 0, the segment is empty, nothing is held."""
        self.delete_all()
        last = {}

        def empty():
            last.clear()
            last.update({k: v for k, v in self.ledgers().items() if v})
            files = self.segment_files()
            if files:
                last["segment files"] = len(files)
            return not last

        try:
            wait_for(empty, "", timeout, step=0.1)
        except Failed:
            text = f"after all was deleted, not 0: {last}"
            if faults is None:
                raise Failed(text) from None
            faults.append(text)


def ledger_numbers(status):
    """The numbers of a status that must be 0 when everything is deleted and quiet."""
    wanted = re.compile(r"(used|reserved|zombie|objects|private_versions|open_versions|blocks|parked|backlog)(_bytes)?$")
    found = {}

    def walk(prefix, value):
        if isinstance(value, dict):
            for k, v in value.items():
                walk(f"{prefix}.{k}" if prefix else k, v)
        elif isinstance(value, (int, float)) and wanted.search(prefix):
            found[prefix] = value

    walk("", status)
    if not found:
        raise Failed("fluxkv status --json names no ledger")
    return found


def on_ssd_alone(daemon, path):
    """Waits until the SSD has the value, evicts it from memory, and from the kernel's cache."""
    tier = lambda: os.getxattr(path, "user.fluxkv.tier").decode()
    wait_for(lambda: "ssd" in tier(), f"{path} is persisted", 10)
    fd = os.open(path, os.O_RDONLY) # first, as an open may bring it into memory
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    daemon.cli("evict", "--tier", "dram", path)
    same(tier(), "ssd", f"tier of {path}")


def small_disk(ctx, mib):
    """A directory on an ext4 of its own; gone with the mount namespace at the latest."""
    image, where = f"{ctx.temp('img')}/image", ctx.temp("disk")
    with open(image, "wb") as f:
        f.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    p = subprocess.run(["mount", "-o", "loop", image, where], capture_output=True, text=True, check=False)
    if p.returncode:
        raise Skip(f"needs loop devices: {p.stderr.strip()}")
    return where


# ---- running --------------------------------------------------------------------------------------------------------


def stacks(pid):
    lines = []
    for tid in sorted(os.listdir(f"/proc/{pid}/task")) if os.path.isdir(f"/proc/{pid}/task") else []:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/wchan") as w:
            task = f"{pid}/task/{tid}"
            lines.append(f"  {tid} {process_status(task, 'Name')} {process_state(task)} {w.read().strip()}")
    return "\n".join(lines)


def reproduce(name):
    env = " ".join(f"{k}={os.environ[k]}" for k in sorted(os.environ)
                   if k.startswith("FLUXKV_TEST_") and k != "FLUXKV_TEST_INNER")
    return f"reproduce: {env}{' ' if env else ''}top_builddir={BUILD_DIR} {sys.executable} {sys.argv[0]} {name}"


def chosen():
    words = sys.argv[1:]
    return [t for t in _tests if not words or any(w in t[0] for w in words)]


def run(_globals, **options):
    """The last line of a test program. options: those of the shared daemon."""
    unknown = [w for w in sys.argv[1:] if not any(w in t[0] for t in _tests)]
    if unknown:
        sys.exit(f"no test here is named like {unknown[0]!r}: {', '.join(t[0] for t in _tests)}")
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(inner(options) if "FLUXKV_TEST_INNER" in os.environ else supervise())


def inner(options):
    """In the namespaces. As pid 1 it is init: the tests run in a child, and it waits for whoever lost its parent."""
    if os.getpid() == 1:
        child = os.fork()
        if child:
            while True:
                pid, status = os.wait()
                if pid == child:
                    return os.waitstatus_to_exitcode(status) & 0xff
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)) # tests kill writers with SIGSEGV
    base, control = os.environ.pop("FLUXKV_TEST_INNER").rsplit(":", 1)
    control = int(control)

    def announce(line):
        os.write(control, f"{line}\n".encode())

    ctx = Context(base, options, announce)
    bad = 0
    for i, (name, function, only_fluxkv, limit) in enumerate(chosen(), 1):
        announce(f"start {i} {limit} {name}")
        bad += one_test(ctx, i, name, function, only_fluxkv)
    announce(f"start {len(chosen()) + 1} {(900 if LONG else 60) * SLOW} nothing_left_behind")
    faults = ctx.end_all()
    for fault in faults:
        diag(fault)
    print(f"{'not ok' if faults else 'ok'} {len(chosen()) + 1} - nothing_left_behind", flush=True)
    return 1 if bad or faults else 0


def one_test(ctx, i, name, function, only_fluxkv):
    started = time.monotonic()
    ctx.test_name = name
    text, skip = None, None
    try:
        if ctx.plain and only_fluxkv:
            raise Skip("only on a FluxKV mount")
        function(ctx)
    except Skip as e:
        skip = str(e)
    except Failed as e:
        text = f"{e}\n{traceback.extract_tb(e.__traceback__)[-2 if len(traceback.extract_tb(e.__traceback__)) > 1 else -1]}"
    except BaseException:
        text = traceback.format_exc()
    faults = ctx.end_test()
    if text or faults:
        for line in [text, *faults, reproduce(name)]:
            diag(line or "")
        print(f"not ok {i} - {name}", flush=True)
        return 1
    took = time.monotonic() - started
    print(f"ok {i} - {name}{f' # SKIP {skip}' if skip else ''}", flush=True)
    if took > 5:
        diag(f"{name} took {took:.1f} s")
    return 0


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    os.setsid()


def can_unshare():
    p = subprocess.run(["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "true"], capture_output=True,
                       check=False)
    return p.returncode == 0


def takes_direct(path):
    """Whether files there can be opened O_DIRECT, as a tmpfs can since Linux 6.6."""
    try:
        with tempfile.NamedTemporaryFile(dir=path) as f:
            os.close(os.open(f.name, os.O_RDWR | os.O_DIRECT))
        return True
    except OSError:
        return False


def scratch():
    """TMPDIR, or memory where there is much: what is tested is seldom the disk, which all wait for."""
    if "TMPDIR" in os.environ:
        return os.environ["TMPDIR"]
    try:
        st = os.statvfs("/dev/shm")
        if st.f_bavail * st.f_frsize >= 10 << 30 and takes_direct("/dev/shm"):
            return "/dev/shm"
    except OSError:
        pass
    return "/tmp"


def supervise():
    tests = chosen()
    if not PLAIN_DIR:
        try:
            need_fluxkv()
            if not can_unshare():
                raise Skip("needs the right to make mount and pid namespaces")
        except Skip as e:
            print(f"1..0 # SKIP {e}")
            print(f"{os.path.basename(sys.argv[0])}: skipped, {e}", file=sys.stderr)
            return 0
    print(f"1..{len(tests) + 1}", flush=True)
    base = tempfile.mkdtemp(prefix="fluxkv-t.", dir=scratch())
    sup = Supervisor(base)
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, sup.on_signal)
    try:
        return sup.run()
    finally:
        sup.end()


class Supervisor:
    """Outside of the namespaces: forwards the output, holds the deadlines, cleans up."""

    def __init__(self, base):
        self.base = base
        self.child = None
        self.mounts = set()
        self.current = None
        self.deadline = time.monotonic() + 60 * SLOW

    def on_signal(self, sig, _frame):
        raise KeyboardInterrupt(f"signal {sig}")

    def run(self):
        control, control_in = os.pipe()
        env = {**os.environ, "FLUXKV_TEST_INNER": f"{self.base}:{control_in}"}
        wrap = ["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc"] if can_unshare() else []
        self.child = subprocess.Popen([*wrap, sys.executable, *sys.argv], stdout=subprocess.PIPE, env=env,
                                      pass_fds=[control_in], preexec_fn=_die_with_parent)
        os.close(control_in)
        try:
            timed_out = self.forward(control)
        except KeyboardInterrupt as e:
            print(f"Bail out! {e}", flush=True)
            return 1
        if not timed_out:
            return self.child.wait(30)
        number, name = self.current or (1, "start")
        self.explain_in_child()
        diag(reproduce(name))
        print(f"not ok {number} - {name} # timed out", flush=True)
        print(f"Bail out! {name} timed out", flush=True)
        return 1

    def forward(self, control):
        """Until the child's output ends: False; or until a deadline passed: True."""
        out = self.child.stdout.fileno()
        open_fds = {out, control}
        while out in open_fds:
            ready, _, _ = select.select(list(open_fds), [], [], max(0, self.deadline - time.monotonic()))
            if not ready:
                return True
            if control in ready:
                data = os.read(control, 4096)
                if not data:
                    open_fds.discard(control)
                for line in data.decode().splitlines():
                    self.told(line)
            if out in ready:
                data = os.read(out, 65536)
                if not data:
                    open_fds.discard(out)
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        return False

    def told(self, line):
        word, *rest = line.split()
        if word == "mount":
            self.mounts.add(int(rest[0]))
        elif word == "start":
            self.current = int(rest[0]), rest[2]
            self.deadline = time.monotonic() + float(rest[1])

    def family(self):
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            parents[int(pid)] = int(process_status(pid, "PPid") or 0)
        found, grown = {self.child.pid}, True
        while grown:
            more = {p for p, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return sorted(found)

    def explain_in_child(self):
        """What hangs may also hang who looks at it (/proc/PID/cmdline): it looks for five seconds."""
        looker = os.fork()
        if looker == 0:
            self.explain_hang()
            os._exit(0)
        end = time.monotonic() + 5
        while os.waitpid(looker, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(looker, signal.SIGKILL)
                break
            time.sleep(0.05)

    def explain_hang(self):
        for pid in self.family():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    diag(f"process {pid}: {f.read().replace(bytes(1), b' ').decode(errors='replace')[:200]}")
            diag(stacks(pid))
        for at, _, names in os.walk(self.base):
            if "log" in names and "/mnt" not in at:
                with contextlib.suppress(OSError), open(os.path.join(at, "log"), errors="replace") as f:
                    diag("log: " + "\n".join(f.read().splitlines()[-20:]))
            if at.count("/") > self.base.count("/"):
                break

    def end(self):
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        if self.child and self.child.poll() is None:
            for minor in self.mounts: # a request that nobody answers would keep its process from dying
                with contextlib.suppress(OSError), open(f"/sys/fs/fuse/connections/{minor}/abort", "w") as f:
                    f.write("1")
            self.child.kill()
        if self.child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(20)
        if PLAIN_DIR:
            shutil.rmtree(os.path.join(PLAIN_DIR, os.path.basename(self.base)), ignore_errors=True)
        if not os.environ.get("FLUXKV_TEST_KEEP"):
            shutil.rmtree(self.base, ignore_errors=True)


@functools.lru_cache(maxsize=1)
def sanitized():
    """A sanitized daemon keeps freed memory back: what it holds says nothing."""
    with open(FLUXKVD, "rb") as f:
        return b"__asan_init" in f.read()
