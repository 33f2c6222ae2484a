# SPDX-License-Identifier: Apache-2.0
"""Several nodes and a master: what one stores the others read, whole and current; and what is left when parts of it die,
stop, or cannot be reached."""
import bisect
import contextlib
import errno
import hashlib
import os
import random
import signal
import socket
import subprocess
import time

from cluster import (Child, Cluster, by_cp, by_mmap, by_read, read_version, value, version_in, within)
from lib import (LONG, MIB, SLOW, Failed, Mapping, big_stamped, check, check_bytes, diag, fails, on_ssd_alone, run,
                 same, test, wait_for, write_file)
from master import free_port, write

NEVER = 20    # seconds after which a call has hung
DEAD = 10     # seconds after which a node that is not heard of has no copies any more
ASKED = 40    # seconds after which what is asked of a master that cannot be reached has failed
LEG = 2       # leg_deadline, where a test is about it
WAYS = (by_read, by_mmap, by_cp)
GONE = (errno.ENOENT, errno.EIO)
LOST = "input/output error" # what a log may say where bytes, or the way to them, are lost on purpose


def text(path):
    return by_read(path).decode()


def served(hits):
    """From where, without those that are 0."""
    return {k: v for k, v in hits.items() if v}


def grown(before, after):
    return served({k: after[k] - before[k] for k in after})


def namespaces(c):
    """One of large blocks and one of small ones."""
    os.mkdir(c.nodes[0].path("kv"))
    c.nodes[0].cli("ns", "create", "small", "--block-size", "64KiB")


def check_read(node, path, how, data, source):
    """The first read comes from source and no other place; the second from memory here."""
    before = node.hits()
    check_bytes(within(NEVER, how, path), data, f"{how.__name__} of {path}")
    first = node.hits()
    same(set(grown(before, first)) - {"memory_local"}, {source}, f"where {how.__name__} of {path} came from")
    check_bytes(within(NEVER, how, path), data, f"{how.__name__} of {path}, again")
    same(set(grown(first, node.hits())) - {"memory_local"}, set(), f"where {how.__name__} of {path} came from, again")
    same(os.stat(path).st_size, len(data), f"size of {path}")


# ---- reading elsewhere ----------------------------------------------------------------------------------------------


@test(fluxkv=True, timeout=180)
def seen_everywhere(ctx):
    """Each way to read, each size, each node as the writer: right bytes, from the writer's memory, and then from here."""
    c = Cluster(ctx, dram="512MB").start()
    namespaces(c)
    for k, (ns, size) in enumerate([*(("kv", n) for n in (1, 4095, 4096, MIB - 128, 16 * MIB + 1)), ("small", MIB + 5)]):
        for how in WAYS:
            name = f"{how.__name__}-{size}"
            data = big_stamped(name, 1, size)
            writer = c.nodes[k % 3]
            write_file(writer.path(ns, name), data)
            for reader in c.nodes:
                if reader is not writer:
                    check_read(reader, reader.path(ns, name), how, data, "memory_remote")
            check_bytes(how(writer.path(ns, name)), data, f"{name} where it was written")
    for node in c.nodes:
        names = sorted(os.listdir(node.path("kv")))
        same(len(names), 15, f"names on {node.instance}")
        same(node.hits()["unknown"], 0, "reads of unknown source")
    c.nodes[1].delete_all()
    for node in c.nodes:
        node.check_empty()


@test(fluxkv=True, timeout=120)
def read_in_parts(ctx):
    """Of a value of many blocks elsewhere: any part, in any order, also past the end."""
    c = Cluster(ctx, nodes=2).start()
    namespaces(c)
    a, b = c.nodes
    size = 3 * MIB + 77
    data = big_stamped("parts", 1, size)
    write_file(a.path("small", "parts"), data)
    rng = random.Random(7)
    fd = os.open(b.path("small", "parts"), os.O_RDONLY)
    try:
        for _ in range(200):
            off, n = rng.randrange(size + 1000), rng.choice((1, 100, 4096, 65536, 65537, 300000))
            check_bytes(os.pread(fd, n, off), data[off:off + n], f"{n} bytes at {off}")
    finally:
        os.close(fd)
    same(b.status()["checksum_errors"], 0, "checksum errors")


@test(fluxkv=True, timeout=180)
def from_another_nodes_ssd(ctx):
    """Evicted from memory at its owner, and on its SSD: it is read there and sent, and then it is here."""
    c = Cluster(ctx, nodes=[{"ssd": "512MB"}, {"ssd": "256MB"}, {}], dram="128MB").start()
    namespaces(c)
    a = c.nodes[0]
    for ns, size in (("kv", 1), ("kv", 4096), ("kv", MIB - 128), ("kv", 16 * MIB + 1), ("small", MIB + 5)):
        for how in WAYS:
            name = f"{how.__name__}-{size}"
            data = big_stamped(name, 1, size)
            for reader in c.nodes[1:]:
                write_file(a.path(ns, name), data)
                on_ssd_alone(a, a.path(ns, name))
                check_read(reader, reader.path(ns, name), how, data, "ssd_remote")
    check_bytes(by_read(a.path("kv", "by_cp-1")), big_stamped("by_cp-1", 1, 1), "at its owner")
    for node in c.nodes:
        same(node.status()["checksum_errors"], 0, f"checksum errors of {node.instance}")


@test(fluxkv=True, timeout=120)
def more_than_one_nodes_memory(ctx):
    """Twice what one node's memory holds, stored through one and read on another, all of it."""
    c = Cluster(ctx, nodes=[{"ssd": "512MB"}, {"ssd": "512MB"}], dram="64MB").start()
    namespaces(c)
    a, b = c.nodes
    for i in range(32):
        a.put("kv", f"v{i}", 1, 4 * MIB)
    for i in range(32):
        same(b.get("kv", f"v{i}"), 1, f"value {i} on the other node")
    for i in range(32):
        same(a.get("kv", f"v{i}"), 1, f"value {i} where it was stored")


@test(fluxkv=True, timeout=120)
def two_readers_one_transfer(ctx):
    """Readers of one missing block on one node share its way here."""
    c = Cluster(ctx, nodes=2, net=True).start()
    namespaces(c)
    a, b = c.nodes
    size = 16 * MIB
    data = a.put("kv", "v", 1, size)
    os.stat(b.path("kv", "v"))
    a.pause()
    before = b.machine.received()
    readers = [Child(read_version, b.path("kv", "v"), "v") for _ in range(4)]
    time.sleep(1)
    a.resume()
    for r in readers:
        same(r.result(NEVER), 1, "what a reader sees")
    came = b.machine.received() - before
    check(size <= came < size * 1.5, f"{came} bytes came for {len(data)}")


# ---- names ----------------------------------------------------------------------------------------------------------


@test(fluxkv=True, timeout=120)
def the_next_open_sees_it(ctx):
    """Overwritten, renamed, removed on one node: the first open on the others that begins behind that knows."""
    c = Cluster(ctx).start()
    namespaces(c)
    for i in range(40):
        a, b, d = (c.nodes[(i + k) % 3] for k in range(3))
        name, size = f"n{i}", 200 + i * 1000
        a.put("kv", name, 1, size)
        for node in c.nodes:
            same(node.get("kv", name), 1, f"{name} on {node.instance}")
        b.put("kv", name, 2, size + 1)
        for node in c.nodes:
            same(node.get("kv", name), 2, f"{name}, overwritten on another node, on {node.instance}")
        write_file(d.path("kv", f"{name}.t"), value(name, 3, size))
        os.rename(d.path("kv", f"{name}.t"), d.path("kv", name))
        for node in c.nodes:
            same(node.get("kv", name), 3, f"{name}, renamed over on another node, on {node.instance}")
        os.unlink(a.path("kv", name))
        for node in c.nodes:
            same(node.get("kv", name), None, f"{name}, removed on another node, on {node.instance}")
            check(not os.path.exists(node.path("kv", f"{name}.t")), "the name of before")


@test(fluxkv=True, timeout=120)
def directories_and_names(ctx):
    c = Cluster(ctx).start()
    a, b, d = c.nodes
    os.mkdir(a.path("kv"))
    same([os.listdir(n.mnt) for n in c.nodes], [["kv"]] * 3, "the root, everywhere")
    os.mkdir(b.path("kv", "dir"))
    fails(errno.EEXIST, "the same directory on another node", os.mkdir, a.path("kv", "dir"))
    a.put("kv/dir", "x", 1, 1000)
    b.put("kv/dir", "y", 1, 2000)
    for n in c.nodes:
        same(sorted(os.listdir(n.path("kv", "dir"))), ["x", "y"], f"names on {n.instance}")
    fails(errno.ENOTEMPTY, "rmdir where another node has files", os.rmdir, d.path("kv", "dir"))
    # Over a name, with what was under the other; then across directories.
    os.mkdir(d.path("kv", "to"))
    write_file(a.path("kv", "dir", "x"), value("x", 2, 3000))
    os.rename(b.path("kv", "dir", "x"), b.path("kv", "dir", "y"))
    for n in c.nodes:
        same(version_in(by_read(n.path("kv", "dir", "y")), "x"), 2, f"what was renamed over, on {n.instance}")
        fails(errno.ENOENT, f"the name of before on {n.instance}", os.stat, n.path("kv", "dir", "x"))
    os.rename(d.path("kv", "dir", "y"), d.path("kv", "to", "z"))
    for n in c.nodes:
        same(version_in(by_read(n.path("kv", "to", "z")), "x"), 2, f"what was moved, on {n.instance}")
        same((os.listdir(n.path("kv", "dir")), os.listdir(n.path("kv", "to"))), ([], ["z"]), f"both on {n.instance}")
    os.rmdir(a.path("kv", "dir"))
    for n in (b, d):
        fails(errno.ENOENT, f"a file in the removed directory, on {n.instance}", write_file, n.path("kv", "dir", "f"), b"x")
        # The kernel is told of it a moment later.
        wait_for(lambda n=n: not os.path.exists(n.path("kv", "dir")), f"the removed directory is gone on {n.instance}", 5)
    os.rename(a.path("kv", "to"), a.path("kv", "moved"))
    same(version_in(by_read(d.path("kv", "moved", "z")), "x"), 2, "in a directory that was renamed elsewhere")
    # A namespace that one makes, the others have, with its attributes.
    b.cli("ns", "create", "models/v1", "--block-size", "64KiB")
    write_file(d.path("models", "v1", "m"), bytes(MIB))
    same(os.getxattr(a.path("models", "v1", "m"), "user.fluxkv.blocks"), b"16", "its blocks")
    os.unlink(a.path("models", "v1", "m"))
    d.cli("ns", "rm", "models/v1")
    check("models" not in a.cli("ns", "list").stdout, "it is gone everywhere")


@test(fluxkv=True, timeout=60)
def one_of_them_makes_it(ctx):
    """O_EXCL and mkdir: of three nodes at once exactly one succeeds."""
    c = Cluster(ctx).start()
    namespaces(c)

    def make(path, begin):
        time.sleep(max(0, begin - time.monotonic()))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def make_dir(path, begin):
        time.sleep(max(0, begin - time.monotonic()))
        os.mkdir(path)

    for what in (make, make_dir):
        for i in range(15):
            begin = time.monotonic() + 0.1
            tries = [Child(what, n.path("kv", f"{what.__name__}{i}"), begin) for n in c.nodes]
            got = [t.outcome(NEVER) for t in tries]
            same(sorted(got, key=str), [("failed", errno.EEXIST)] * 2 + [("returned", None)], f"{what.__name__} {i}")


# ---- one name, many nodes -------------------------------------------------------------------------------------------


class Write:
    """A close, rename or unlink: version None is an unlink. Times are of the clock that all processes share."""

    def __init__(self, version, begin, end):
        self.version, self.begin, self.end = version, begin, end


def size_of(version):
    return 200 + int.from_bytes(hashlib.blake2b(version.to_bytes(8, "big"), digest_size=4).digest(), "big") % 200000


def write_until(directory, me, end, removes, in_place):
    """Writes its versions of the name; returns what it did. in_place: not only beside it, to be renamed."""
    path, rng, did, n = f"{directory}/name", random.Random(me), [], 0
    while time.monotonic() < end:
        n += 1
        version = me << 32 | n
        act = rng.randrange(4)
        at = path if in_place and act else f"{directory}/.t{me}"
        if act == 3 and removes:
            begin = time.monotonic()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                did.append(Write(None, begin, time.monotonic()))
            continue
        f = open(at, "wb", buffering=0)
        data = memoryview(value("name", version, size_of(version)))
        while data:
            data = data[f.write(data):]
        begin = time.monotonic()
        f.close()
        if at != path:
            os.rename(at, path)
        did.append(Write(version, begin, time.monotonic()))
        time.sleep(rng.random() * 0.02)
    return did


def read_until(directory, node, end):
    """Opens the name again and again; returns when each open began, the version (None: not there), and the node."""
    seen = []
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            data = by_read(f"{directory}/name")
        except FileNotFoundError:
            seen.append((begin, None, node))
            time.sleep(0.002)
            continue
        seen.append((begin, version_in(data, "name"), node))
    return seen


class Latest:
    """Of the writes whose `by` is below some time, the one whose `what` is the largest."""

    def __init__(self, writes, by, what):
        self.times, self.best = [], []
        for w in sorted(writes, key=by):
            self.times.append(by(w))
            self.best.append(w if not self.best or what(w) > what(self.best[-1]) else self.best[-1])

    def below(self, time_):
        n = bisect.bisect_left(self.times, time_)
        return self.best[n - 1] if n else None


def check_order(writes, seen, negative):
    """What close-to-open promises. negative: how long a name that is made anew may not be seen."""
    by_version = {w.version: w for w in writes if w.version is not None}
    begin_of, end_of = (lambda w: w.begin), (lambda w: w.end)
    # Of the writes that have returned, the one that began last: no later open sees what was over before that.
    over, made = Latest(writes, end_of, begin_of), Latest(by_version.values(), end_of, begin_of)
    removed = Latest([w for w in writes if w.version is None], begin_of, end_of)
    for begin, version, node in seen:
        if version is not None:
            w, last = by_version.get(version), over.below(begin)
            check(w, f"an open on node {node} sees version {version:x}, which nobody wrote")
            if last and w.end < last.begin:
                raise Failed(f"an open at {begin:.6f} on node {node} sees version {version:x}, whose close returned at "
                             f"{w.end:.6f}; before that open {last.version or 0:x} was written from {last.begin:.6f} to "
                             f"{last.end:.6f}")
            continue
        last, gone = made.below(begin - negative), removed.below(begin + 1)
        if last and not (gone and gone.end >= last.begin):
            raise Failed(f"an open at {begin:.6f} on node {node} does not find what was written from {last.begin:.6f} to "
                         f"{last.end:.6f}")


def hammer(ctx, removes):
    c = Cluster(ctx, **{"negative_timeout": "100ms"}).start()
    namespaces(c)
    c.nodes[0].put("kv", "name", 1, 5000)
    writes = [Write(1, 0, 0)]
    end = time.monotonic() + (60 if LONG else 6)
    limit = (end - time.monotonic()) / SLOW + NEVER
    # On the node of who writes in place others see what is not closed yet, as on any file system: nobody reads there.
    writers = [Child(write_until, n.path("kv"), i + 1, end, removes, i == 0) for i, n in enumerate(c.nodes)]
    readers = [Child(read_until, n.path("kv"), i, end) for i, n in enumerate(c.nodes[1:], 2) for _ in range(2)]
    for w in writers:
        writes += w.result(limit)
    seen = [s for r in readers for s in r.result(limit)]
    check(len(writes) > 50 and len(seen) > 100, f"{len(writes)} writes and {len(seen)} reads")
    found = sum(version is not None for _, version, _ in seen)
    check(found > len(seen) / 20, f"{found} of {len(seen)} reads found something")
    diag(f"{len(writes)} writes, {len(seen)} reads, {len({v for _, v, _ in seen})} versions seen")
    check_order(writes, seen, 0.1 + 0.05 * SLOW)
    versions = {n.get("kv", "name") for n in c.nodes}
    same(len(versions), 1, f"one version at the end, of {versions}")


@test(fluxkv=True, timeout=90, long_timeout=180)
def close_to_open(ctx):
    """Three nodes write one name and read it: no open sees what was replaced before it, nor a mixture."""
    hammer(ctx, removes=False)


@test(fluxkv=True, timeout=90, long_timeout=180)
def close_to_open_with_removes(ctx):
    hammer(ctx, removes=True)


# ---- handles --------------------------------------------------------------------------------------------------------


@test(fluxkv=True, timeout=120)
def an_open_handle_keeps_its_version(ctx):
    """On another node than the one that overwrites and deletes; also the blocks that it has not read yet."""
    c = Cluster(ctx, nodes=2).start()
    namespaces(c)
    a, b = c.nodes
    for ns, size in (("kv", 2 * MIB + 5), ("small", 2 * MIB + 5)):
        for delete in (False, True):
            old = a.put(ns, "v", 1, size)
            fd = os.open(b.path(ns, "v"), os.O_RDONLY)
            mapping = Mapping(fd, size)
            late = os.open(b.path(ns, "v"), os.O_RDONLY)
            try:
                check_bytes(os.pread(fd, 1000, 0), old[:1000], "its begin")
                if delete:
                    os.unlink(a.path(ns, "v"))
                    same(b.get(ns, "v"), None, "a new open, deleted elsewhere")
                else:
                    a.put(ns, "v", 2, size - 1000)
                    same(b.get(ns, "v"), 2, "a new open, overwritten elsewhere")
                check_bytes(within(NEVER, os.pread, fd, size + 1, 0), old, f"{ns}: by an open handle")
                check_bytes(within(NEVER, mapping.bytes), old, f"{ns}: by a mapping")
                check_bytes(within(NEVER, os.pread, late, size + 1, 0), old, f"{ns}: by a handle that had read nothing")
                same(os.fstat(fd).st_size, size, "its size")
            finally:
                mapping.close()
                os.close(fd)
                os.close(late)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(a.path(ns, "v"))
    for n in c.nodes:
        n.check_empty()


# ---- nodes that die, stop, are cut off ------------------------------------------------------------------------------


def is_gone(node, where, name, seconds):
    """Within so many seconds it is ENOENT; until then EIO or ENOENT, each in time, and never bytes."""
    end = time.monotonic() + seconds * SLOW
    while True:
        kind, what = Child(read_version, node.path(where, name), name).outcome(NEVER)
        check(kind == "failed" and what in GONE, f"what only the dead node had: {kind} {what}")
        if what == errno.ENOENT:
            return
        check(time.monotonic() < end, f"{name} on {node.instance} is still EIO after {seconds * SLOW:g} s")
        time.sleep(0.2)


@test(fluxkv=True, timeout=150)
def an_owner_is_killed(ctx):
    """What only it had is a miss, what others hold is still read, and the same command brings it back."""
    c = Cluster(ctx, log_allowed=LOST).start()
    namespaces(c)
    a, b, d = c.nodes
    for i in range(4):
        a.put("kv", f"alone{i}", 1, MIB + i)
        a.put("kv", f"shared{i}", 1, MIB + i)
        same(b.get("kv", f"shared{i}"), 1, "read elsewhere, so there are two")
    # Of this one the third has one block of many.
    many = a.put("small", "many", 1, MIB)
    held = os.open(d.path("small", "many"), os.O_RDONLY)
    check_bytes(os.pread(held, 4096, 0), many[:4096], "its begin")
    a.kill()
    for i in range(4):
        same(d.get("kv", f"shared{i}"), 1, "what two had, on the third")
        same(b.get("kv", f"shared{i}"), 1, "what two had, on the second")
    began = time.monotonic()
    for i in range(4):
        is_gone((b, d)[i % 2], "kv", f"alone{i}", max(0, began + DEAD * SLOW - time.monotonic()) / SLOW)
    kind, what = Child(os.pread, held, 4096, MIB - 4096).outcome(NEVER)
    check((kind, what) in (("failed", errno.EIO), ("returned", many[-4096:])), f"an open handle: {kind} {what!r:.60}")
    os.close(held)
    d.put("kv", "alone0", 2, 5000)
    time.sleep(0.2 * SLOW) # as long as the others may believe that it is not there
    same(b.get("kv", "alone0"), 2, "stored anew")
    a.start(timeout=40)
    same(a.get("kv", "alone0"), 2, "what was stored meanwhile, on the node that is back")
    same(a.get("kv", "shared1"), 1, "what others kept, on the node that is back")
    same(a.get("kv", "alone3"), None, "what it had before")
    a.put("kv", "again", 1, MIB)
    for n in (b, d):
        same(n.get("kv", "again"), 1, "what the node stores that is back")


@test(fluxkv=True, timeout=90)
def a_reader_is_killed(ctx):
    """In the middle of reading; the owner gives back what was on its way, and serves the others."""
    c = Cluster(ctx).start()
    namespaces(c)
    a, b, d = c.nodes
    for i in range(6):
        a.put("kv", f"v{i}", 1, 16 * MIB)
    readers = [Child(read_version, b.path("kv", f"v{i}"), f"v{i}") for i in range(6)]
    time.sleep(0.05)
    b.kill()
    for r in readers:
        r.outcome(NEVER)
    for i in range(6):
        same(d.get("kv", f"v{i}"), 1, f"value {i} on a third")
    b.start(timeout=40)
    same(b.get("kv", "v0"), 1, "on the reader's node, started again")
    d.delete_all()
    for n in c.nodes:
        n.check_empty()


def ends_in_time(children, text):
    """Each returns the version, or fails with an error that says so, within the deadlines of its parts."""
    for child in children:
        kind, what = child.outcome(NEVER)
        check((kind, what) == ("returned", 1) or (kind == "failed" and what in GONE), f"{text}: {kind} {what}")


def works_again(c, text):
    """Each node's new values are read on each other."""
    for k, writer in enumerate(c.nodes):
        name = f"again-{text[:10].replace(' ', '-')}-{k}"

        def stored(writer=writer, name=name):
            kind, _ = Child(writer.put, "kv", name, 1, 100000).outcome(NEVER)
            return kind == "returned"

        wait_for(stored, f"{writer.instance} stores again after {text}", 30, 0.2)
        for reader in c.nodes:
            wait_for(lambda r=reader, n=name: read_or_none(r, n) == 1, f"{reader.instance} reads again after {text}", 30, 0.2)


def read_or_none(node, name):
    kind, what = Child(read_version, node.path("kv", name), name).outcome(NEVER)
    return what if kind == "returned" else None


def disturbed(ctx, begin, end, seconds, text):
    """Reads from a node that begin(cluster, node) disturbs for some seconds: each ends, and the others go on."""
    c = Cluster(ctx, net=True, leg_deadline=f"{LEG}s", log_allowed=LOST).start()
    namespaces(c)
    a, b, d = c.nodes
    for i in range(8):
        a.put("kv", f"v{i}", 1, 8 * MIB)
        os.stat(b.path("kv", f"v{i}"))
    readers = [Child(read_version, n.path("kv", f"v{i}"), f"v{i}") for n in (b, d) for i in range(4)]
    time.sleep(0.02)
    begin(c, a)
    began = time.monotonic()
    readers += [Child(read_version, n.path("kv", f"v{i}"), f"v{i}") for n in (b, d) for i in range(4, 8)]
    within(NEVER, b.put, "kv", "meanwhile", 1, MIB)
    same(d.get("kv", "meanwhile"), 1, f"between the others, {text}")
    ends_in_time(readers, f"a read from a node, {text}")
    time.sleep(max(0, seconds - (time.monotonic() - began)))
    end(c, a)
    for i in range(8):
        for n in (b, d):
            got = read_or_none(n, f"v{i}")
            check(got in (1, None), f"{got} of v{i}")
    works_again(c, text)


@test(fluxkv=True, timeout=120)
def an_owner_is_stopped_for_a_moment(ctx):
    disturbed(ctx, lambda c, a: a.pause(), lambda c, a: a.resume(), 2, "stopped for a moment")


@test(fluxkv=True, timeout=150)
def an_owner_is_stopped_for_long(ctx):
    """Long enough to be taken for dead: it joins again by itself."""
    disturbed(ctx, lambda c, a: a.pause(), lambda c, a: a.resume(), 12, "stopped for long")


def use_until(directory, end):
    """Looks names up and makes files as fast as it can, whatever becomes of it."""
    n = 0
    while time.monotonic() < end:
        n += 1
        with contextlib.suppress(OSError):
            os.stat(f"{directory}/none{n}")
            write_file(f"{directory}/u{n % 50}", b"used")


@test(fluxkv=True, timeout=120)
def given_up_while_they_are_used(ctx):
    """A master that stood still gives all up. Each joins anew once, though its programs ask for something all the time."""
    c = Cluster(ctx, nodes=2, log_allowed=LOST).start()
    namespaces(c)
    a, b = c.nodes
    users = [Child(use_until, n.path("kv"), time.monotonic() + 26 * SLOW) for n in c.nodes for _ in range(6)]
    time.sleep(1)
    os.kill(c.master.process.pid, signal.SIGSTOP)
    time.sleep(8 * SLOW)
    os.kill(c.master.process.pid, signal.SIGCONT)
    for u in users:
        u.result(26 + NEVER)
    for n in c.nodes:
        check(n.log_text().count("it joins anew") < 2, f"{n.instance} has joined anew {n.log_text().count('it joins anew')} times")
    a.put("kv", "after", 1, 5000)
    same(b.get("kv", "after"), 1, "behind that")


@test(fluxkv=True, timeout=150)
def an_owner_is_cut_off(ctx):
    disturbed(ctx, lambda c, a: c.cut(a), lambda c, a: c.heal(a), 12, "cut off")


@test(fluxkv=True, timeout=150)
def an_owners_cable_is_pulled(ctx):
    disturbed(ctx, lambda c, a: c.cut(a, cable=True), lambda c, a: c.heal(a), 12, "with its cable pulled")


@test(fluxkv=True, timeout=120)
def no_old_version_under_a_lost_lease(ctx):
    """A node that knew a name and is cut off, or stopped, while it is overwritten: behind that close it never gives out
    the old version, but waits, or fails with EIO; and the close waits no longer than the lease."""
    for how in ("cut", "pause"):
        c = Cluster(ctx, nodes=2, net=True, leg_deadline=f"{LEG}s", log_allowed=LOST).start()
        namespaces(c)
        a, b = c.nodes
        a.put("kv", "name", 1, 50000)
        same(a.get("kv", "name"), 1, "before")
        same(b.get("kv", "name"), 1, "before, on the other")
        c.cut(a) if how == "cut" else a.pause()
        writer = Child(b.put, "kv", "name", 2, 50000)
        writer.result(NEVER)
        check(writer.took < 9 * SLOW, f"the close took {writer.took:.1f} s")
        late = [Child(read_version, a.path("kv", "name"), "name") for _ in range(3)]
        if how == "pause":
            a.resume()
        for r in late:
            kind, what = r.outcome(ASKED)
            check((kind, what) in (("failed", errno.EIO), ("returned", 2)), f"{how}: {kind} {what} after the close")
        if how == "cut":
            c.heal(a)
        wait_for(lambda n=a: read_or_none(n, "name") == 2, f"{how}: the new version is seen again", 30, 0.2)
        c.end_now()


# ---- the master -----------------------------------------------------------------------------------------------------


@test(fluxkv=True, timeout=150)
def the_master_is_killed(ctx):
    """While nodes are at work: no wrong bytes and no hang; it is started again, and they go on by themselves."""
    c = Cluster(ctx, nodes=2, log_allowed=LOST).start()
    namespaces(c)
    a, b = c.nodes
    for i in range(4):
        a.put("kv", f"v{i}", 1, MIB)
    same(b.get("kv", "v0"), 1, "before")
    held = os.open(b.path("kv", "v0"), os.O_RDONLY)
    c.master.kill(signal.SIGKILL)
    calls = [Child(read_version, n.path("kv", f"v{i}"), f"v{i}") for n in (a, b) for i in range(4)]
    check_bytes(within(NEVER, os.pread, held, MIB, 0), value("v0", 1, MIB), "an open handle, without a master")
    time.sleep(1)
    c.master.start()
    ends_in_time(calls, "a read without a master")
    works_again(c, "a restart of the master")
    check_bytes(within(NEVER, os.pread, held, MIB, 0), value("v0", 1, MIB), "an open handle, with another master")
    os.close(held)
    for n in (a, b):
        for i in range(4):
            check(read_or_none(n, f"v{i}") in (1, None), f"v{i} after the restart")


@test(fluxkv=True, timeout=150)
def the_masters_objects_survive_it(ctx):
    """What was stored before it was killed is read after it, on every node, from memory and from SSD."""
    c = Cluster(ctx, nodes=[{"ssd": "256MB"}, {"ssd": "256MB"}]).start()
    namespaces(c)
    a, b = c.nodes
    for i in range(8):
        (a, b)[i % 2].put("kv", f"v{i}", 1, MIB)
    on_ssd_alone(a, a.path("kv", "v0"))
    (a, b)[0].put("kv", "v2", 2, MIB)
    os.unlink(b.path("kv", "v3"))
    versions = {i: os.getxattr(a.path("kv", f"v{i}"), "user.fluxkv.version") for i in (0, 1, 2)}
    writer = Child(a.put, "kv", "late", 1, MIB)
    writer.result(NEVER)
    for round_ in range(2):
        c.master.kill(signal.SIGKILL)
        c.master.start()
        for n in (a, b):
            for i in range(8):
                want = {2: 2, 3: None}.get(i, 1)
                wait_for(lambda n=n, i=i, w=want: read_or_none(n, f"v{i}") == w, f"v{i} on {n.instance}, round {round_}", 15)
            same(n.get("kv", "late"), 1, "what was stored last")
        for i, version in versions.items():
            same(os.getxattr(b.path("kv", f"v{i}"), "user.fluxkv.version"), version, f"version of v{i}")
    b.put("kv", "v1", 2, MIB)
    with open(a.path("kv", "v1"), "rb") as f:
        check(int(os.getxattr(f.fileno(), "user.fluxkv.version"), 0) > int(versions[2], 0), "versions only grow")
    works_again(c, "a restart of the master")


def disturb_values(directories, seed, end):
    """Stores, renames over, removes and reads a few names through all nodes; every value is right or it is a miss."""
    rng, done = random.Random(seed), 0
    while time.monotonic() < end:
        directory, name, act = rng.choice(directories), f"k{rng.randrange(12)}", rng.random()
        with contextlib.suppress(FileNotFoundError):
            if act < 0.3:
                data = value(name, seed << 32 | done, rng.choice((5000, 300000, 2000000, 7000000)))
                write_file(f"{directory}/.t{seed}", data)
                os.rename(f"{directory}/.t{seed}", f"{directory}/{name}")
            elif act < 0.36:
                os.unlink(f"{directory}/{name}")
            else:
                version_in(by_read(f"{directory}/{name}"), name)
            done += 1
    return done


@test(fluxkv=True, timeout=120, long_timeout=600)
def all_at_once(ctx):
    """More than memory holds, through three nodes, while the master is killed and comes back; nothing is left at the end."""
    c = Cluster(ctx, nodes=[{"ssd": "256MB"}, {}, {}], dram="64MB", log_allowed=LOST).start()
    namespaces(c)
    end = time.monotonic() + (300 if LONG else 15)
    directories = [n.path("kv") for n in c.nodes]
    workers = [Child(disturb_values, directories, seed, end) for seed in range(1, 7)]
    while time.monotonic() < end - 5:
        time.sleep(3)
        c.master.kill(signal.SIGKILL)
        c.master.start()
    done = [w.result(end - w.began + NEVER) for w in workers]
    check(min(done) > 10, f"what each has done: {done}")
    diag(f"{sum(done)} values and removals")
    same(sum(n.hits()["unknown"] for n in c.nodes), 0, "reads of unknown source")
    c.nodes[1].delete_all()
    for node in c.nodes:
        node.check_empty()


# ---- who may join ---------------------------------------------------------------------------------------------------


def refused(node, *words):
    """It ends by itself, with one line that has the words, and leaves nothing mounted."""
    command = [*node.wrap, *node.command(foreground=False)]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW, check=False)
    line = p.stderr.strip()
    check(p.returncode in (1, 2), f"it is not refused: {p.returncode} {line!r}")
    same(len(line.splitlines()), 1, f"lines of {line!r}")
    for w in words:
        check(w in line, f"no {w!r} in {line!r}")
    check(not os.path.ismount(node.mnt), "it has left a mount")


@test(fluxkv=True, timeout=120)
def who_is_not_let_in(ctx):
    c = Cluster(ctx, nodes=[{"instance": "one"}]).start()
    namespaces(c)
    a = c.nodes[0]
    a.put("kv", "v", 1, 5000)
    refused(c.node(instance="one"), "one")
    wrong = write(f"{ctx.temp('key')}/key", "x" * 48)
    refused(c.node(cluster_key_file=wrong), "key")
    keyless = c.node(cluster_key_file=None)
    refused(keyless, "key")
    same(a.get("kv", "v"), 1, "the first goes on")
    a.put("kv", "w", 1, 5000)
    good = c.node().start(timeout=40)
    same(good.get("kv", "w"), 1, "who has the key, and a name of its own")


@test(fluxkv=True, timeout=120)
def a_node_without_a_master(ctx):
    """Started first, it waits for its master, or says in one line that there is none."""
    c = Cluster(ctx, nodes=1)
    node = c.nodes[0]
    c.master.at = c.master.listen = f"127.0.0.1:{free_port()}"
    command = [*node.wrap, *node.command(foreground=False)]
    waits = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, said = waits.communicate(timeout=15 * SLOW)
        check(waits.returncode == 1 and c.master.at in said and len(said.splitlines()) == 1,
              f"without a master it ends with {waits.returncode}: {said!r}")
        c.master.start()
        node.start(timeout=40)
    except subprocess.TimeoutExpired:
        c.master.start()
        _, said = waits.communicate(timeout=40 * SLOW)
        same((waits.returncode, said), (0, ""), "its start, once there is a master")
    finally:
        waits.kill()
        waits.wait()
        waits.stderr.close()
    namespaces(c)
    node.put("kv", "v", 1, 5000)
    same(node.get("kv", "v"), 1, "a value")
    if not node.process:
        same(subprocess.run(["umount", node.mnt], check=False).returncode, 0, "umount")


@test(fluxkv=True, timeout=90)
def nodes_come_and_go(ctx):
    """One that leaves takes its copies along, and nobody waits for it; one that comes sees all there is."""
    c = Cluster(ctx, nodes=2).start()
    namespaces(c)
    a, b = c.nodes
    a.put("kv", "alone", 1, MIB)
    a.put("kv", "shared", 1, MIB)
    same(b.get("kv", "shared"), 1, "read elsewhere")
    a.stop()
    same(b.get("kv", "shared", 5), 1, "what both had")
    is_gone(b, "kv", "alone", 2)
    third = c.node().start(timeout=40)
    same(third.get("kv", "shared"), 1, "on one that came later")
    a.start(timeout=40)
    same(a.get("kv", "shared"), 1, "on the first, started again")


run(globals())
