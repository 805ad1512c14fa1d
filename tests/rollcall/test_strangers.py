"""Rubbish, crowds and limits: what a roll-call stands."""

from __future__ import annotations

import random
import re
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest

from gpuready import rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall import wire
from gpuready.rollcall.hello import Hello, make_hello, parse_hello
from tests.deadlines import wait_until
from tests.ranks import free_port, world
from tests.rollcall.meeting import ended, start, together, wait_for_listener
from tests.running import SRC
from tests.simulated_ranks import SimulatedRanks

# -- strangers ----------------------------------------------------------------------------------------


def pester(port: int, until: threading.Event, sent: list[int]) -> None:
    """Connections that send rubbish, too much, nothing, or letter by letter."""
    draw, kept = random.Random(5), []
    while not until.wait(0.003):
        try:
            conn = socket.create_connection(("127.0.0.1", port), 0.5)
            kept.append(conn)
            conn.settimeout(0.5)
            kind = draw.randrange(5)
            if kind == 0:
                conn.sendall(draw.randbytes(3000) + b"\n")
            elif kind == 1:
                conn.sendall(wire.GREETING + b"x\n" + b"y" * (1 << 20))
            elif kind == 2:
                conn.sendall(wire.GREETING + b"x\n" + b' {"rank": "zero"}\n')
            elif kind == 3:
                conn.sendall(wire.GREETING[:5])
            sent.append(kind)
        except OSError:
            time.sleep(0.01)
        if len(kept) > 100:
            kept.pop(0).close()
    for conn in kept:
        conn.close()


def test_a52_rubbish_disturbs_nobody():
    ranks = world(3)
    first, stop = start(ranks[0]), threading.Event()
    wait_for_listener(ranks[0]["MASTER_PORT"])
    sent: list[int] = []
    pestering = threading.Thread(target=pester, args=(ranks[0]["MASTER_PORT"], stop, sent))
    pestering.start()
    assert wait_until(lambda: len(sent) >= 200)
    with open(f"/proc/{first.pid}/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    answers = ended([first, *[start(one) for one in ranks[1:]]])
    stop.set()
    pestering.join()
    assert all(a["go"] for a in answers), answers
    assert all(re.search(r"\d+ connections that were no rank's", " ".join(a["notes"])) for a in answers)
    assert resident < 100 << 20


@together
def test_a52_a_line_without_end_is_cut_off():
    rendezvous = Rendezvous(0, 2, 0, 2, address="127.0.0.1", port=free_port())
    done = {}

    def hold():
        try:
            rollcall.attend_rollcall(rendezvous, make_hello(rendezvous, {}), window=4)
        except rollcall.RollcallRefused as no:
            done["said"] = str(no)

    holding = threading.Thread(target=hold)
    holding.start()
    wait_for_listener(rendezvous.port)
    with (
        socket.create_connection(("127.0.0.1", rendezvous.port), 1) as conn,
        pytest.raises(OSError, match=r"reset|Broken"),
    ):
        for _ in range(200):
            conn.sendall(b"z" * (1 << 16))
    holding.join()
    assert "missing: rank 1" in done["said"]
    assert "turned away: 1 connection that was no rank's" in done["said"]


@pytest.mark.parametrize("count", [256, 1000])
def test_a51_many_ranks_at_once(count):
    rendezvous = Rendezvous(0, count, 0, 8, address="127.0.0.1", port=free_port())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count + 300:
        pytest.skip(f"TOO FEW FILES: {hard} may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = SimulatedRanks(rendezvous.port, range(1, count), count, "a token")
    running = threading.Thread(target=lambda: wait_for_listener(rendezvous.port) or crowd.run(120))
    running.start()
    try:
        mine = Hello(
            0, count, 0, "node-0", 1000, "machine-0", clock=time.time(), versions={"torch": "2.13.0", "python": "3.11"}
        )
        found = rollcall.attend_rollcall(rendezvous, mine, window=120, token="a token")
        running.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found.listener.close()
    assert len(found.host_names) == -(-count // 8) and len(crowd.answers) == count - 1
    assert all("go" in said for said in crowd.answers.values())


def test_a47_too_few_files_for_the_world():
    from gpuready.rollcall.server import ensure_file_limit

    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); from gpuready.rollcall.server import ensure_file_limit; print(ensure_file_limit(1000))"
    ran = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    assert (
        "may open 64 files (at most 64), and 1000 ranks need 1128 [SYS006]" in ran.stdout
        and "ulimit -n 1128" in ran.stdout
    )
    assert ensure_file_limit(2) is None


@pytest.mark.parametrize(
    "data",
    [
        [], {}, {"rank": 0}, {"rank": "0", "world_size": 2}, {"rank": True, "world_size": 2}, {"rank": 1, "world_size": 2, "versions": [1]},
        {"rank": 1, "world_size": 2, "host": 7}, {"rank": 1, "world_size": 2, "data": ["x"]}, {"rank": 1, "world_size": 2, "clock": "now"},
        {"rank": 10**12, "world_size": 2}, {"rank": 1, "world_size": 2, "variables": {"a": {}}},
    ],
)  # fmt: skip
def test_a_hello_that_is_none(data):
    with pytest.raises((ValueError, TypeError)):
        parse_hello(data)
