# SPDX-License-Identifier: Apache-2.0
"""A cluster for tests: a key, a master and nodes on this machine, parts of which can be killed, stopped and cut off.

The machines are either addresses of the loopback (127.0.0.x), or network namespaces with a switch between them, which
can be cut. Both end with the processes that keep them, whatever happens to the test.

What tests store here says what it is: value() has its name, version and checksum in front, and the rest follows from
these, so that version_in() sees a wrong byte, a mixture, or another's value in whatever was read.
"""
import hashlib
import mmap
import os
import pickle
import re
import select
import signal
import subprocess
import tempfile
import time
import traceback

from lib import SLOW, Daemon, Failed, Skip, big_stamped, check_bytes, process_state, wait_for
from master import Master, write

HEAD = 128 # bytes of a value that say which it is


def value(name, version, size):
    """size >= HEAD bytes that tell their name, version, size and checksum."""
    body = big_stamped(name, version, size - HEAD)
    text = f"{name[-24:]:>24} {version:016x} {size:016x} {hashlib.blake2b(body, digest_size=16).hexdigest()} "
    return f"{text:.<{HEAD - 1}}\n".encode() + body


def version_in(data, name, text="a value"):
    """The version of the value, every byte of which is right; a fault otherwise."""
    head = re.fullmatch(rb" *(\S+) ([0-9a-f]{16}) ([0-9a-f]{16}) [0-9a-f]{32} \.*\n", data[:HEAD])
    if not head or head[1].decode() != name[-24:]:
        raise Failed(f"{text}: {len(data)} bytes that are no value of {name}: {data[:HEAD]!r}")
    version = int(head[2], 16)
    check_bytes(data, value(name, version, int(head[3], 16)), f"{text}, which says to be version {version} of {name}")
    return version


# ---- three ways to read, each with one open -------------------------------------------------------------------------


def by_read(path, chunk=1 << 20):
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(fd, chunk):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def by_mmap(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        return m[:]


def by_cp(path):
    with tempfile.TemporaryDirectory() as to:
        p = subprocess.run(["cp", path, f"{to}/copy"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if p.returncode:
            raise Failed(f"cp {path}: {p.stderr.decode().strip()}")
        return by_read(f"{to}/copy")


# ---- calls that may hang --------------------------------------------------------------------------------------------


class Child:
    """function(*args) in a process of its own, which is killed when it does not end in time."""

    def __init__(self, function, *args):
        self.what = f"{getattr(function, '__name__', 'a call')}{args!r:.100}"
        self.began = time.monotonic()
        self.fd, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            self.call(out, function, args)
        os.close(out)

    @staticmethod
    def call(out, function, args):
        try:
            said = "returned", function(*args)
        except OSError as e:
            said = "failed", e.errno
        except Failed as e:
            said = "fault", str(e)
        except BaseException:
            said = "fault", traceback.format_exc()
        try:
            with os.fdopen(out, "wb") as f:
                pickle.dump((*said, time.monotonic()), f)
        finally:
            os._exit(0)

    def outcome(self, timeout):
        """("returned", what) or ("failed", errno), at most so many seconds after the start; self.took says how many."""
        end = self.began + timeout * SLOW
        data = b""
        try:
            while True:
                ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
                if not ready:
                    raise Failed(f"{self.what} has not ended after {timeout * SLOW:g} s (state {process_state(self.pid)})")
                part = os.read(self.fd, 1 << 20)
                if not part:
                    break
                data += part
        finally:
            self.end()
        if not data:
            raise Failed(f"{self.what} has died")
        kind, what, over = pickle.loads(data)
        self.took = over - self.began
        if kind == "fault":
            raise Failed(f"{self.what}: {what}")
        return kind, what

    def result(self, timeout):
        kind, what = self.outcome(timeout)
        if kind == "failed":
            raise OSError(what, f"{self.what}: {os.strerror(what)}")
        return what

    def end(self):
        """Does not wait for one that cannot be killed: the supervisor aborts the mount that it hangs on."""
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        end = time.monotonic() + 2
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            time.sleep(0.005)


def within(timeout, function, *args):
    return Child(function, *args).result(timeout)


# ---- machines -------------------------------------------------------------------------------------------------------


def told(command, text):
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode:
        raise Skip(f"{text}: {' '.join(command)}: {p.stderr.strip()}")


class Machine:
    """A network namespace, kept by a process that sleeps in it."""

    def __init__(self):
        try:
            self.keeper = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo in; exec sleep infinity"],
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Skip("needs unshare") from None
        if self.keeper.stdout.readline() != b"in\n":
            self.end()
            raise Skip("needs network namespaces")
        self.wrap = ["nsenter", f"--net=/proc/{self.keeper.pid}/ns/net"]

    def ip(self, *words, program="ip"):
        told([*self.wrap, program, *words], "needs ip, and devices that it can make")

    def received(self):
        """Bytes that came in by its port."""
        with open(f"/proc/{self.keeper.pid}/net/dev") as f:
            return int(re.search(r"^\s*eth0:\s*(\d+)", f.read(), re.M).group(1))

    def end(self):
        self.keeper.kill()
        self.keeper.wait()
        self.keeper.stdout.close()


class Network:
    """Machines on one switch."""

    NET = "10.77.0"

    def __init__(self):
        self.switch, self.machines = Machine(), []
        self.switch.ip("link", "add", "br0", "type", "bridge")
        self.switch.ip("link", "set", "br0", "up")

    def machine(self):
        m = Machine()
        self.machines.append(m)
        n = len(self.machines)
        m.address, m.port = f"{self.NET}.{n}", f"port{n}"
        self.switch.ip("link", "add", m.port, "type", "veth", "peer", "name", "eth0", "netns", str(m.keeper.pid))
        self.switch.ip("link", "set", m.port, "master", "br0", "up")
        m.ip("addr", "add", f"{m.address}/24", "dev", "eth0")
        m.ip("link", "set", "eth0", "up")
        m.ip("link", "set", "lo", "up")
        wait_for(lambda: self.forwards(m), f"{m.address} is on the switch", 5)
        return m

    def forwards(self, m):
        p = subprocess.run([*self.switch.wrap, "bridge", "link", "show", "dev", m.port], capture_output=True, text=True,
                           check=False)
        return "state forwarding" in p.stdout

    def cut(self, m, cable):
        """cable: its end goes down, too; else it is not told, and all that is sent is lost."""
        if cable:
            self.switch.ip("link", "set", m.port, "down")
        else:
            self.switch.ip("link", "set", "dev", m.port, "state", "0", program="bridge")

    def heal(self, m):
        self.switch.ip("link", "set", m.port, "up")
        self.switch.ip("link", "set", "dev", m.port, "state", "3", program="bridge")
        wait_for(lambda: self.forwards(m), f"{m.address} is on the switch again", 5)

    def end(self):
        for m in [*self.machines, self.switch]:
            m.end()


# ---- the cluster ----------------------------------------------------------------------------------------------------


class Node(Daemon):
    """A fluxkvd of a cluster."""

    def __init__(self, cluster, machine, address, **options):
        key = {"cluster_key_file": cluster.key} if cluster.key else {}
        super().__init__(cluster.ctx, **{"dram": "256MB", "data_listen": f"{address}:0", **key, **options})
        self.cluster, self.machine, self.address = cluster, machine, address
        if machine:
            self.wrap = tuple(machine.wrap)

    @property
    def source(self):
        return self.cluster.master.at

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def put(self, where, name, version, size):
        """Writes a value under its name; returns its bytes."""
        data = value(name, version, size)
        with open(self.path(where, name), "wb") as f:
            f.write(data)
        return data

    def get(self, where, name, timeout=20):
        """Reads it in a process of its own; returns the version, or None when it is not there."""
        try:
            return within(timeout, read_version, self.path(where, name), name)
        except FileNotFoundError:
            return None

    def hits(self):
        return self.status()["hits"]

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: process_state(self.pid) == "T", "it has stopped", 5)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self):
        """After a kill."""
        return self.start(timeout=40)


def read_version(path, name):
    return version_in(by_read(path), name, path)


class Cluster:
    """A master, and nodes that are started with it or by the test. Ends with the test, nodes first."""

    def __init__(self, ctx, nodes=3, net=False, key=True, master="", **options):
        """nodes: how many, or a list of their options; options: those of each."""
        self.ctx, self.nodes, self.options, self.net, self.master = ctx, [], options, None, None
        ctx.daemons.append(self)
        self.net = Network() if net else None
        self.key = write(f"{ctx.temp('key')}/key", os.urandom(48).hex()) if key else None
        machine = self.net.machine() if net else None
        self.master = Master(ctx, f"{machine.address if net else '127.0.0.1'}:0",
                             (f"cluster_key_file: {self.key}\n" if key else "") + master)
        self.master.wrap = tuple(machine.wrap) if net else ()
        self.master.machine = machine
        for each in [{}] * nodes if isinstance(nodes, int) else nodes:
            self.node(**each)

    def node(self, **options):
        """One more, not started."""
        machine = self.net.machine() if self.net else None
        address = machine.address if machine else f"127.0.0.{11 + len(self.nodes)}"
        node = Node(self, machine, address, **{**self.options, **options})
        self.nodes.append(node)
        return node

    def start(self):
        self.master.start()
        for node in self.nodes:
            node.start(timeout=40)
        return self

    def cut(self, part, cable=False):
        """part: a node, or the master."""
        if not self.net:
            raise Skip("only between network namespaces")
        self.net.cut(part.machine, cable)

    def heal(self, part):
        self.net.heal(part.machine)

    def end_now(self):
        """Before the test ends, where it makes another."""
        self.ctx.daemons.remove(self)
        faults = self.end()
        if faults:
            raise Failed("; ".join(faults))

    def end(self):
        """For cleaning up: never raises; returns the faults it saw."""
        faults = []
        for node in self.nodes:
            if node.running():
                node.resume()
        for node in self.nodes:
            faults += [f"{node.instance}: {fault}" for fault in node.end()]
        faults += self.end_master() if self.master else []
        if self.net:
            self.net.end()
        return faults

    def end_master(self):
        faults = []
        m = self.master
        try:
            if m.process and m.process.poll() is None and m.kill(signal.SIGTERM):
                faults.append(f"fluxkv-master ends with {m.process.returncode}")
        except subprocess.TimeoutExpired:
            faults.append("fluxkv-master does not end")
        try:
            m.__exit__(None)
        except Failed as e:
            faults.append(f"fluxkv-master: {e}")
        return faults
