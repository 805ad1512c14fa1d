"""One process that has imported the command, and forks for every run of it: a start costs a third of one from nothing.

The fork has the variables, the folder and the streams of the run. What it leaves behind becomes a child of the server, which says so.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
QUIET = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "GPUREADY_HOSTNAME": "here",
    "UV_OFFLINE": "1",
}
LATE_S = 10.0
"""How long what a command started may outlive it before it counts as left behind; a machine at work is slow."""
MOST_S = 120.0
"""How long a command may take; one that hangs is killed, and its exit code says so."""
OF_A_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "COVERAGE")
"""Variables that Python, its libraries or the loader read only when a process starts."""

SERVER = r"""
import contextlib, ctypes, difflib, gc, importlib, io, json, os, pkgutil, pwd, select, signal, socket, subprocess, sys, time, xml.etree.ElementTree

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]

OURS = {"gpuready", "jinja2", "markupsafe", "packaging", "yaml", *sys.stdlib_module_names}

def tell_imports(imported, known, end=os._exit):  # before os._exit, by which the command ends, and its own children too
    def leave(code):
        if os.getpid() == me:
            found = [name for name in sys.modules if name.partition(".")[0] in OURS and name not in known]
            os.write(imported, "\n".join(found).encode())
        end(code)
    me, os._exit = os.getpid(), leave

def run(job, out, err, imported):
    tell_imports(imported, set(sys.modules))
    os.environ.clear(); os.environ.update(job["env"])
    os.chdir(job["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(out, 1); os.dup2(err, 2)
    link.close(); os.close(out); os.close(err)
    sys.argv = job["argv"]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(code)

def wait(pid, late, most):
    status, until = None, None
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, most)
    while status is None or children():
        try:
            ended, how = os.waitpid(-1, 0 if status is None else os.WNOHANG)
        except ChildProcessError:
            break
        if ended == pid:
            status, until = os.waitstatus_to_exitcode(how), time.monotonic() + late
        elif not ended and time.monotonic() > until:
            break
        elif not ended:
            time.sleep(0.01)
    signal.alarm(0)
    left = children()
    for stray in left:  # it would count in the next run as well
        os.kill(stray, signal.SIGKILL)
        os.waitpid(stray, 0)
    return {"code": status, "left": left}

link = socket.socket(fileno=int(sys.argv[1]))
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
exec(sys.argv[2])
from gpuready import probe, rules
from gpuready.system import process
from gpuready.cli import main, run_command_line
list(rules.load_all_rules())
for folder in (probe, process):
    for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + "."):
        __import__(module.name)
sys.stdout, real = io.StringIO(), sys.stdout
run_command_line(["check", "transformers", "--on", "h100", "--json"])
sys.stdout = real
link.sendall(b"ready\n")
while True:
    said, fds, _, _ = socket.recv_fds(link, 1, 3)
    if not said:
        break
    with open(fds[0], "rb") as file:
        file.seek(0)
        job = json.load(file)
    told, imported = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        run(job, *fds[1:], imported)
    for fd in (*fds[1:], imported):
        os.close(fd)
    link.sendall(json.dumps(wait(pid, job["late"], job["most"])).encode() + b"\n")
    with contextlib.suppress(BlockingIOError):  # what this run imported is there for the next
        for name in os.read(told, 1 << 16).decode().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    os.close(told)
    gc.freeze()
"""


class CommandServer:
    """The process that forks; see ``run``."""

    def __init__(self, prologue: str) -> None:
        self.link, theirs = socket.socketpair()
        env = QUIET | {"PYTHONPATH": str(SRC), "BENCH_ROOT": "/nonexistent"}
        words = [sys.executable, "-c", SERVER, str(theirs.fileno()), prologue]
        self.process = subprocess.Popen(words, env=env, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
        theirs.close()
        self.answers = self.link.makefile("rb")
        assert self.answers.readline() == b"ready\n"

    def run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, most_s: float = MOST_S
    ) -> tuple[int, bytes, bytes, list[int]]:
        """Run the command; its exit code, what it printed, and the processes that it left."""
        job = {"argv": list(argv), "env": dict(env), "cwd": str(cwd), "late": LATE_S, "most": most_s}
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            asked.write(json.dumps(job).encode())
            asked.flush()
            socket.send_fds(self.link, [b"!"], [file.fileno() for file in (asked, out, err)])
            ended = json.loads(self.answers.readline())
            out.seek(0)
            err.seek(0)
            return ended["code"], out.read(), err.read(), ended["left"]

    def close(self) -> None:
        self.link.close()
        self.answers.close()
        self.process.wait(10)


@cache
def start_server(prologue: str, pid: int) -> CommandServer:
    """The server of this process; a fork of a test has none."""
    server = CommandServer(prologue)
    atexit.register(lambda: server.close() if os.getpid() == pid else None)
    return server


def is_of_a_start(variables: Mapping[str, object]) -> bool:
    """Whether some of these variables work only on a process that starts from nothing."""
    return any(name.startswith(OF_A_START) for name in variables)
