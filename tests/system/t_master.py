# SPDX-License-Identifier: Apache-2.0
"""fluxkv-master as a program: how it starts, serves nodes' messages, is refused, is killed and comes back."""
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess

from lib import SLOW, check, process_state, run, same, test, wait_for
from master import CLIENT, MASTER, Master, free_port, parse, write

CANNOT, USAGE = 1, 2


def says(status, words, *args, **kwargs):
    """The master must end with that status and one line of standard error that has the words."""
    p = subprocess.run([MASTER, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30 * SLOW,
                       check=False, **kwargs)
    text = f"fluxkv-master {' '.join(args)}: {p.returncode} {p.stderr!r}"
    same(p.returncode, status, text)
    same(p.stdout, "", f"standard output of {text}")
    same(len(p.stderr.splitlines()), 1, f"lines of {text}")
    check(p.stderr.startswith("fluxkv-master: "), f"no name in front of {text}")
    for w in [words] if isinstance(words, str) else words:
        check(re.search(w, p.stderr), f"no {w!r} in {text}")


def works(m, **kwargs):
    """A node can join, and leaves again."""
    got = m.ask("join=probe", "leave", **kwargs)
    same([status for status, _ in got], [0, 0], "join and leave")


def no_trace(m):
    check(not os.path.exists(m.run_dir) and not os.path.exists(m.state_dir), "a start that failed leaves directories behind")


@test(timeout=120)
def usage_and_configuration(ctx):
    m = Master(ctx)
    short, loose = write(f"{m.dir}/short", "x" * 31), write(f"{m.dir}/loose", "x" * 32, 0o640)
    for args, words in ((["-x"], "unknown option -x"), (["--frob"], "--frob"), (["--listen"], "--listen needs a value"),
                        (["-c"], "-c needs a value"), (["--catalog="], "--catalog needs a value"), (["a"], "a: no argument"),
                        (["--help=1"], "takes no value"), (["--listen", "7450"], ["--listen", "not an address"]),
                        (["--listen", "localhost:7450"], "not an address"), (["-c", "/none"], "/none: No such file"),
                        (["--listen", "0.0.0.0:0"], ["listen 0.0.0.0:0", "cluster_key_file"]),
                        (["--listen", "[::]:0"], "cluster_key_file")):
        says(USAGE, words, *args)
    for line, words in (("lisen: 127.0.0.1:0", [f"{m.config}:3: lisen: unknown key", 'did you mean "listen"']),
                        ("listen: 1.2.3.4.5:6", [f"{m.config}:3: listen", "not an address"]),
                        ("listen: 0.0.0.0:0", "cluster_key_file"), ("catalog: c.db", "not an absolute path"),
                        ("cluster_key_file: /none", "/none: No such file"), (f"cluster_key_file: {short}", "31 bytes"),
                        (f"cluster_key_file: {loose}", "chmod 600"), ("cluster_key_file: /", "not a file")):
        m.configure(f"{line}\n")
        says(USAGE, words, "-c", m.config)
    no_trace(m)
    for option, words in (("--help", "usage: fluxkv-master"), ("-V", "fluxkv-master [0-9]")):
        p = subprocess.run([MASTER, option], capture_output=True, text=True, check=True)
        check(re.match(words, p.stdout) and not p.stderr, f"{option}: {p.stdout!r} {p.stderr!r}")


@test(timeout=60)
def serves_a_node(ctx):
    with Master(ctx) as m:
        m.start()
        got = m.ask("lookup=kv", "join=n1", "mkdir=kv", "put=a:5000", "lookup=a", "lookup=b", "mkdir=kv", "leave", "lookup=a")
        same([status for status, _ in got], [-116, 0, 0, 0, 0, -2, 0, 0, -116], "what the steps say")
        same(got[4][1], got[3][1], "what is looked up is what was put")
        same(got[4][1]["size"], 5000, "its size")
        check(os.path.exists(f"{m.state_dir}/fluxkv-master/catalogue.db"), "the catalogue is below state_dir")
        check(not os.path.exists(m.run_dir), "in the foreground run_dir is not needed")
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")
        check(m.told(b"STOPPING=1"), "systemd is told of the end")
        check("fluxkv-master has stopped" in m.log_text(), "the log tells of the end")
        check(not os.path.exists(f"{m.state_dir}/fluxkv-master/catalogue.db-wal"), "the catalogue is closed in good order")
        m.start()
        same([status for status, _ in m.ask("join=n1", "lookup=kv")], [0, 0], "directories stay")
        same(m.kill(signal.SIGINT), 0, "exit status after SIGINT")


@test(timeout=60)
def killed_and_back(ctx):
    """The same client goes on: its node joins again, with nothing, the directory is there, ids only grow."""
    with Master(ctx) as m:
        m.start()
        flag = f"{m.dir}/flag"
        client = subprocess.Popen([CLIENT, m.at, "-", "join=n1", "mkdir=kv", "put=a:100", f"wait={flag}", "lookup=a", "join=n1",
                                   "lookup=a", "put=b:100", "lookup=b"], stdout=subprocess.PIPE, text=True)
        try:
            lines = [client.stdout.readline() for _ in range(3)]
            before = parse("".join(lines))
            same([status for status, _ in before], [0, 0, 0], "before")
            m.kill(signal.SIGKILL)
            m.start()
            write(flag, "")
            out, _ = client.communicate(timeout=30 * SLOW)
        finally:
            client.kill()
            client.wait()
        after = parse(out)[1:]
        same([status for status, _ in after[:2]], [-49, 0], "the node is waited for until it joins")
        check(after[1][1]["tag"] > before[0][1]["tag"], "it is another incarnation")
        check(after[2][0] in (0, -2), f"its directory is there: {after[2]}")
        same([status for status, _ in after[3:]], [0, 0], "a put after the restart, in the directory of before")
        check(after[3][1]["id"] > before[2][1]["id"], f"ids grow: {before[2]}, {after[3]}")
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")


@test(timeout=60)
def cluster_key(ctx):
    good, bad = f"{ctx.temp('k')}/key", f"{ctx.temp('k')}/key"
    write(good, "k" * 32)
    write(bad, "b" * 32)
    with Master(ctx, "0.0.0.0:0", f"cluster_key_file: {good}\n") as m:
        m.start()
        works(m, key=good)
        for key in (bad, "-"):
            (status, learnt), = m.ask("join=n1", key=key)
            same((status, learnt.get("error")), (-110, -13), f"a node with the key {key}")
        works(m, key=good)
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")
    with Master(ctx) as m:
        m.start()
        (status, learnt), = m.ask("join=n1", key=good)
        same((status, learnt.get("error")), (-110, -13), "a node with a key, to a master without")
        works(m)


@test(timeout=60)
def one_at_a_time(ctx):
    """What another has, port or catalogue, is refused in one line, and that other goes on."""
    with Master(ctx) as m, Master(ctx) as other:
        m.start()
        catalogue = f"{m.state_dir}/fluxkv-master/catalogue.db"
        for foreground in (["-f"], []):
            says(CANNOT, [f"listen {m.at}", "in use"], *foreground, "-c", other.config, "--listen", m.at, "--catalog",
                 f"{other.dir}/c.db")
            says(CANNOT, [catalogue, "in use by another process"], *foreground, "-c", other.config, "--listen", "127.0.0.1:0",
                 "--catalog", catalogue)
        no_trace(other)
        check(os.path.exists(catalogue), "the catalogue that another one uses is still there")
        says(CANNOT, "catalogue /proc/", "-f", "--listen", "127.0.0.1:0", "--catalog", "/proc/none")
        write(f"{other.dir}/text", "no database, but more than a page of text\n" * 100)
        says(CANNOT, "not a database", "-f", "--listen", "127.0.0.1:0", "--catalog", "text", cwd=other.dir)
        works(m)


@test(timeout=60)
def strangers(ctx):
    """Garbage on the port costs its connection, and nothing else."""
    with Master(ctx) as m:
        m.start()
        works(m)
        host, port = m.at.split(":")
        before = m.fds()
        for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 65536, b"FKVA", b"FKVA\x01" + os.urandom(65), b""):
            with socket.create_connection((host, int(port)), 10 * SLOW) as s:
                with contextlib.suppress(OSError):
                    s.sendall(sent)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        pass
        idle = [socket.create_connection((host, int(port)), 10 * SLOW) for _ in range(200)]
        try:
            works(m)
        finally:
            for s in idle:
                s.close()
        wait_for(lambda: m.fds() <= before, "the strangers' descriptors are closed")
        works(m)
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")


def limit_files(n):
    """For preexec_fn: the hard limit as well, which nobody raises again."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))


@test(timeout=60)
def few_descriptors(ctx):
    """It takes as many connections as it may have descriptors for, or says that there are too few."""
    says(CANNOT, ["at most 287 files", "LimitNOFILE"], "-f", "--listen", "127.0.0.1:0", "--catalog",
         f"{ctx.temp('c')}/c.db", preexec_fn=limit_files(287))
    with Master(ctx) as m:
        m.start(preexec_fn=limit_files(288))
        host, port = m.at.split(":")
        idle = [socket.create_connection((host, int(port)), 10 * SLOW) for _ in range(400)]
        try:
            works(m)
        finally:
            for s in idle:
                s.close()
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")


def pid_in(path):
    with open(path) as f:
        return int(f.read())


@test(timeout=60)
def background(ctx):
    """It returns when it serves; a second one is told of the first; one that was killed is in nobody's way."""
    with Master(ctx) as m:
        pid_file, log = f"{m.run_dir}/fluxkv-master.pid", f"{m.run_dir}/fluxkv-master.log"
        m.at = f"127.0.0.1:{free_port()}"
        args = ["-c", m.config, "--listen", m.at, "--catalog", "state/c.db"]
        for sig in (signal.SIGKILL, signal.SIGTERM):
            p = subprocess.run([MASTER, *args], cwd=m.dir, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=30 * SLOW, check=False)
            same((p.returncode, p.stdout, p.stderr), (0, "", ""), "a start in the background")
            pid = pid_in(pid_file)
            try:
                works(m)
                check(os.path.exists(f"{m.dir}/state/c.db"), "a relative name is meant where the command ran")
                same(os.readlink(f"/proc/{pid}/cwd"), "/", "its directory")
                says(CANNOT, [f"running already, as pid {pid} ", pid_file], "-c", m.config, "--listen", "127.0.0.1:0",
                     "--catalog", f"{m.dir}/other.db")
                os.rename(log, f"{log}.1")
                os.kill(pid, signal.SIGHUP)
                wait_for(lambda: os.path.exists(log), "the log is opened anew")
            finally:
                os.kill(pid, sig)
            wait_for(lambda p=pid: process_state(p) in "ZX", "it ends", 20)
            same(os.path.exists(pid_file), sig == signal.SIGKILL, "the pid file is left behind")
        with open(log) as f:
            check("fluxkv-master has stopped" in f.read(), "the log tells of the end")


@test(timeout=60)
def reload(ctx):
    with Master(ctx) as m:
        m.start()
        for text, words in (("log_level: no\n", "going on with the old configuration"), ("log_level: debug\n", "is taken over")):
            m.configure(text)
            m.process.send_signal(signal.SIGHUP)
            wait_for(lambda w=words: w in m.log_text(), words)
        works(m)
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")


@test(fluxkv=True, timeout=60)
def beside_a_standalone_node(ctx):
    """Both read one file, and each has places of its own; a node's catalogue is not a master's."""
    with Master(ctx, config="listen: 127.0.0.1:0\n") as m:
        d = ctx.daemon(config=m.config, dram="64MB").start()
        m.start()
        works(m)
        os.mkdir(f"{d.mnt}/kv")
        catalogue = f"{d.state_dir}/{d.instance}/catalogue.db"
        says(CANNOT, "in use by another process", "-f", "--listen", "127.0.0.1:0", "--catalog", catalogue)
        d.stop()
        same(m.kill(signal.SIGTERM), 0, "exit status after SIGTERM")


run(globals())
