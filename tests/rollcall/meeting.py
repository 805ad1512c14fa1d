"""Real processes that meet at a roll-call."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from pathlib import Path

from tests.deadlines import wait_until
from tests.running import SRC

ATTEND = """
import json, os, sys, time
from gpuready import cluster, rollcall
from gpuready.rollcall import hello
begun = time.monotonic()
r = cluster.discover_rendezvous(os.environ)
more = json.loads(os.environ.get("MORE", "{}"))
say = lambda said: print(said, file=sys.stderr)
try:
    a = rollcall.attend_rollcall(r, hello.make_hello(r, os.environ, **more), window=float(os.environ.get("WINDOW", "120")), token=os.environ.get("GPUREADY_TOKEN", ""),
                        allow_skew="SKEW" in os.environ, on_progress=say)
    print(json.dumps({"go": True, "nodes": a.nodes, "notes": a.notes, "s": time.monotonic() - begun}), flush=True)
    stay = os.environ.get("STAY", "")
    if stay:
        open(os.path.join(stay, str(os.getpid())), "w").close()
    while stay and not os.path.exists(os.path.join(stay, "over")) and time.monotonic() < begun + 240:
        time.sleep(0.02)
except rollcall.RollcallRefused as no:
    print(json.dumps({"go": False, "said": str(no), "codes": [f.code for f in no.faults], "ranks": [f.ranks for f in no.faults], "s": time.monotonic() - begun}))
"""

EARLY_S = 60.0
"""What does not wait for the window of 120 s ends before this on the slowest machine; the seconds themselves are held by ``make faults``."""

COME_S = "8"
"""A window that a test waits for, in which all who come do come on a slow machine."""

WAITING: dict[str, list] = {}


def together(test):
    """Most of these tests wait for clocks: those of a file all wait at the same time, and pytest asks for each in turn."""
    WAITING.setdefault(test.__module__, []).append(test)

    @wraps(test)
    def awaited():
        return _begun(test.__module__)[test].result()

    return awaited


@cache
def _begun(file: str) -> dict:
    pool = ThreadPoolExecutor(6)
    return {test: pool.submit(test) for test in WAITING[file]}


def start(environ: dict) -> subprocess.Popen:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SRC), "GPUREADY_HOSTNAME": "here"}
    env |= {k: str(v) for k, v in environ.items() if v is not None}
    return subprocess.Popen(
        [sys.executable, "-c", ATTEND], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(running: list[subprocess.Popen]) -> list[dict]:
    answers = []
    for one in running:
        out, err = one.communicate(timeout=4 * EARLY_S)
        assert "Traceback" not in err, err
        answers.append((json.loads(out) if out else {"go": None}) | {"err": err, "pid": one.pid})
    return answers


def wait_for_listener(port: int) -> None:
    """Wait until somebody listens on a port, without a connection to it."""

    def listens() -> bool:
        rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
        return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)

    assert wait_until(listens), f"nobody listens on {port}"


def meet(*ranks: dict) -> list[dict]:
    return ended([start(environ) for environ in ranks])


def refused(answers: list[dict], *words: str, code: str = "") -> str:
    """All were refused, with these words, and with the same answer."""
    assert [a["go"] for a in answers] == [False] * len(answers), answers
    for one in answers:
        for word in words:
            assert word in one["said"], one["said"]
        assert not code or code in one["codes"]
    return answers[0]["said"]
