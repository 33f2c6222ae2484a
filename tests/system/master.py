# SPDX-License-Identifier: Apache-2.0
"""A fluxkv-master for tests: in the foreground, with a directory of its own, and asked by tests/system/master_client."""
import contextlib
import os
import re
import socket
import subprocess

from lib import BUILD_DIR, SLOW, Failed, check, same, wait_for

MASTER = os.path.join(BUILD_DIR, "fluxkv-master")
CLIENT = os.path.join(BUILD_DIR, "tests/system/master_client")


def write(path, text, mode=0o600):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def free_port():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse(text):
    found = []
    for line in text.splitlines():
        _, status, *words = line.split()
        found.append((int(status), {k: int(v) for k, v in (w.split("=") for w in words)}))
    return found


class Master:
    """One in the foreground, with a directory of its own. As a context manager: ended at the latest behind it."""

    def __init__(self, ctx, listen="127.0.0.1:0", config=""):
        self.dir = ctx.temp("m")
        self.log = os.path.join(self.dir, "log")
        self.run_dir, self.state_dir = os.path.join(self.dir, "run"), os.path.join(self.dir, "state")
        self.config = os.path.join(self.dir, "fluxkv.yaml")
        self.configure(config)
        self.listen, self.process, self.at, self.notify = listen, None, None, None
        self.wrap = ()

    def configure(self, text):
        write(self.config, f"run_dir: {self.run_dir}\nstate_dir: {self.state_dir}\n{text}")

    def start(self, *args, **kwargs):
        self.end_notify()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.settimeout(0.02)
        self.notify.bind(os.path.join(self.dir, "notify"))
        self.notices = b""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.wrap, MASTER, "-f", "-c", self.config, "--listen", self.listen, *args],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, "NOTIFY_SOCKET": os.path.join(self.dir, "notify")}, **kwargs)
        wait_for(lambda: self.told(b"READY=1"), "fluxkv-master is ready", 20, 0)
        port = re.search(rb"STATUS=listening on \S+:(\d+)", self.notices).group(1).decode()
        host = self.listen.rsplit(":", 1)[0]
        self.at = f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        self.listen = f"{host}:{port}"
        return self

    def told(self, word):
        ended = self.process.poll() is not None
        with contextlib.suppress(TimeoutError):
            while word not in self.notices:
                self.notices += self.notify.recv(4096) + b"\n"
        if ended and word not in self.notices:
            raise Failed(f"fluxkv-master ends with {self.process.returncode}: {self.log_text()[-500:]}")
        return word in self.notices

    def end_notify(self):
        if self.notify:
            self.notify.close()
            os.unlink(os.path.join(self.dir, "notify"))
            self.notify = None

    def kill(self, sig):
        self.process.send_signal(sig)
        return self.process.wait(20 * SLOW)

    def log_text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(self, *steps, key="-"):
        """Each step's (status, what it learnt)."""
        p = subprocess.run([CLIENT, self.at, key, *steps], capture_output=True, text=True, timeout=60 * SLOW, check=False)
        same(p.returncode, 0, f"master_client: {p.stderr}")
        return parse(p.stdout)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.end_notify()
        if not kind and os.path.exists(self.log):
            bad = [line for line in self.log_text().splitlines() if re.search(r" error: |Sanitizer|runtime error", line)]
            check(not bad, f"the log says: {bad[:3]}")
