"""Real ranks for tests: one process imports torch once, and every rank is a fork of it with its own variables."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
from functools import cache
from typing import NamedTuple

import pytest

from tests import target_environment
from tests.running import SRC

SERVER = r"""
import json, os, signal, sys, tempfile, time, traceback
import gc, numpy.random, torch, torch.distributed
import gpuready.runtime.launch, gpuready.rollcall

gc.collect(); gc.freeze()  # so that a rank copies fewer pages

def child(spec, out, err):
    os.dup2(out.fileno(), 1); os.dup2(err.fileno(), 2)
    os.environ.clear(); os.environ.update(spec["env"])
    sys.argv = [spec.get("script", "")]
    for name, value in spec.get("limits", {}).items():
        import resource
        resource.setrlimit(getattr(resource, name), (value, value))
    try:
        exec(compile(spec["code"], "rank.py", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        traceback.print_exc()
        sys.last_value = error
        code = 1
    if spec.get("whole"):
        sys.stdout.flush(); sys.stderr.flush()
        raise SystemExit(code)
    # As Python ends, but for the taking apart of all of torch's objects, which takes a second in a fork.
    import atexit, threading
    threading._shutdown(); atexit._run_exitfuncs()
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)

def run(job):
    running, results = {}, [None] * len(job["ranks"])
    for number, spec in enumerate(job["ranks"]):
        time.sleep(spec.get("delay", 0))
        latest = time.monotonic() + 60
        while not all(map(os.path.exists, spec.get("after", ()))) and time.monotonic() < latest:
            time.sleep(0.02)
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            child(spec, out, err)
        running[pid] = (number, begun, out, err)
    end = time.monotonic() + job["timeout"]
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            if time.monotonic() > end:
                for one in running: os.kill(one, signal.SIGKILL)
                end += 1e9
            time.sleep(0.005)
            continue
        number, begun, out, err = running.pop(pid)
        out.seek(0); err.seek(0)
        results[number] = [os.waitstatus_to_exitcode(status), out.read().decode("utf-8", "replace"),
                           err.read().decode("utf-8", "replace"), time.monotonic() - begun, pid]
    return results

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    found = __import__(job["import"]).__name__ if "import" in job else run(job)
    print(json.dumps(found), flush=True)
"""

WINDOW_S = 60
"""How long ranks wait for each other: no rank of a good start comes too late on a slow machine. A test of the window has its own."""

LAUNCH = """
import sys, gpuready
try:
    world = gpuready.launch({arguments})
except RuntimeError as error:
    print(type(error).__name__ + ": " + str(error), file=sys.stderr)
    sys.exit(1)
print("GO", world.rank, world.world_size)
"""


class Rank(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float
    pid: int


class Ranks:
    """The process that forks ranks; see ``run``."""

    def __init__(self) -> None:
        env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC), "HOME": "/nonexistent"}
        self.server = subprocess.Popen([target_environment.python(), "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)  # fmt: skip
        assert self.server.stdout.readline() == "ready\n"

    def preload(self, module: str) -> None:
        """Import something once here which every rank would import, and take seconds for."""
        self.server.stdin.write(json.dumps({"import": module}) + "\n")
        self.server.stdin.flush()
        assert json.loads(self.server.stdout.readline())

    def run(
        self, *each: dict, code: str = LAUNCH.format(arguments=""), timeout: float = 300, **everyone: str
    ) -> list[Rank]:
        """Start a rank for each set of variables; ``_code``, ``_after`` (files), ``_delay``, ``_limits``, ``_script`` and ``_whole`` are none."""
        shared = {
            "OMP_NUM_THREADS": "1",
            "GPUREADY_HOSTNAME": "here",
            "GPUREADY_START_WINDOW": str(WINDOW_S),
            "PATH": "/usr/bin:/bin",
        }
        ranks = []
        for own in each:
            settings = {"code": own.get("_code", code)} | {
                k[1:]: v for k, v in own.items() if k in ("_after", "_delay", "_limits", "_script", "_whole")
            }
            variables = {
                k: str(v) for k, v in (shared | everyone | own).items() if not k.startswith("_") and v is not None
            }
            ranks.append(settings | {"env": variables})
        self.server.stdin.write(json.dumps({"ranks": ranks, "timeout": timeout}) + "\n")
        self.server.stdin.flush()
        return [Rank(*row) for row in json.loads(self.server.stdout.readline())]

    def close(self) -> None:
        self.server.stdin.close()
        self.server.wait(10)


def close() -> None:
    """End the process that forks, if there is one; the next test would start another."""
    if _ranks.cache_info().currsize:
        _ranks().close()
        _ranks.cache_clear()


@cache
def _ranks() -> Ranks:
    atexit.register(close)
    return Ranks()


@pytest.fixture(scope="session")
def ranks() -> Ranks:
    """The same process for all files of tests."""
    return _ranks()


@pytest.fixture(scope="session")
def deterministic_ranks(ranks: Ranks) -> Ranks:
    """Ranks for ``deterministic=True``, for which torch imports its compiler."""
    ranks.preload("torch._inductor.config")
    return ranks


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def world(size: int, port: int | None = None, **more: str) -> list[dict]:
    """The variables of each rank of a job on this host, as torchrun would set them."""
    port = port or free_port()
    shared = {
        "JOB": port,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return [shared | {"RANK": rank, "LOCAL_RANK": rank} | more for rank in range(size)]
