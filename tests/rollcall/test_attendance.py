"""The roll-call of real processes on real ports: who comes, who is late, who is missing, who dies."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuready import rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall import beacon, client, endpoint
from gpuready.rollcall.hello import make_hello
from tests.deadlines import wait_until
from tests.ranks import free_port, world
from tests.rollcall.meeting import COME_S, EARLY_S, ended, meet, refused, start, together


def awaited_only(pid: int, ranks: list[int], seconds: float = EARLY_S) -> None:
    """Wait until the roll-call of this process awaits these ranks alone: all others have come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        conn = beacon.connect_beacon(
            next((n for n in beacon.list_beacons() if n.startswith(f"{beacon.BEACON_PREFIX}{pid}-")), "")
        )
        if conn is not None:
            with conn:
                if client.exchange_greeting(conn, EARLY_S)["missing"] == ranks:
                    return
        time.sleep(0.05)
    raise AssertionError(f"the roll-call of {pid} never awaited {ranks} alone")


# -- all is well --------------------------------------------------------------------------------------


@together
def test_all_come_and_all_go():
    answers = meet(*world(3))
    assert [a["go"] for a in answers] == [True] * 3
    assert answers[1]["nodes"][0][1:] == ["here", 3]


def test_the_port_stays_open_for_the_store():
    """Nobody can take the port between the roll-call and torch's store."""
    port = free_port()
    rendezvous = [Rendezvous(rank, 2, rank, 2, address="127.0.0.1", port=port) for rank in range(2)]
    found = {}
    other = threading.Thread(
        target=lambda: found.update(
            one=rollcall.attend_rollcall(rendezvous[1], make_hello(rendezvous[1], {}), window=120)
        )
    )
    other.start()
    host = rollcall.attend_rollcall(rendezvous[0], make_hello(rendezvous[0], {}), window=120)
    other.join()
    with host.listener as listener:
        assert listener.getsockname()[1] == port and found["one"].listener is None
        with pytest.raises(OSError, match="in use"):
            endpoint.listen_on_port(port)
        with socket.create_connection(("127.0.0.1", port), 1):
            pass


@pytest.mark.parametrize("address", ["::1", "localhost", "127.0.0.2"])
def test_a13_a14_other_ways_to_write_this_host(address):
    """Brackets and spaces: tests/faults/test_launch_faults.py."""
    if ":" in address and not socket.has_ipv6:
        pytest.skip("NO IPV6 on this host")
    assert all(a["go"] for a in meet(*[w | {"MASTER_ADDR": address} for w in world(2)]))


@together
def test_a20_a_late_rank_is_waited_for_and_named():
    ranks = world(2)
    first = start(ranks[0])
    assert "waiting for rank 1 of 2" in first.stderr.readline()  # which comes after some seconds alone
    assert all(a["go"] for a in ended([first, start(ranks[1])]))


@together
def test_the_first_to_come_wait_for_rank_0():
    ranks = world(3)
    early = [start(one) for one in ranks[1:]]
    time.sleep(1.0)
    assert all(a["go"] for a in ended([start(ranks[0]), *early]))


# -- who is there -------------------------------------------------------------------------------------


@together
def test_a18_a_missing_rank_is_named_on_every_rank():
    answers = meet(*world(3, WINDOW=COME_S)[:2])
    refused(
        answers,
        f"2 of 3 ranks came within {COME_S} s; missing: rank 2 (expected on node 0, local rank 2)",
        code="NET016",
    )
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a18_rank_0_is_missing():
    answers = meet(*world(3, WINDOW="2")[1:])
    refused(answers, "cannot reach rank 0 at 127.0.0.1", "refused", "start rank 0", code="NET016")
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a18_the_task_of_slurm_is_named():
    slurm = {
        "SLURM_JOB_ID": 1,
        "SLURM_STEP_ID": 0,
        "SLURM_NTASKS": 3,
        "SLURM_NNODES": 1,
        "SLURM_NODELIST": "here",
        "SLURM_TASKS_PER_NODE": 3,
    }
    ranks = [
        slurm
        | {
            "SLURM_PROCID": r,
            "SLURM_LOCALID": r,
            "SLURM_NODEID": 0,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": p,
            "WINDOW": COME_S,
        }
        for p in [free_port()]
        for r in range(2)
    ]
    refused(meet(*ranks), "missing: rank 2 (expected on here, local rank 2, srun task 2)")


@together
def test_a28_world_sizes_differ():
    ranks = world(2)
    ranks[1] |= {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}
    answers = meet(*ranks)
    refused(answers, "believes that there are 3 ranks", "rank 0 (here, pid", "same WORLD_SIZE", code="NET006")
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a30_two_processes_are_one_rank():
    ranks = world(3)
    answers = meet(ranks[0], ranks[1], ranks[1])
    said = refused(answers, "two processes claim to be rank 1", code="NET006")
    assert {f"here:{answers[1]['pid']}", f"here:{answers[2]['pid']}"} == set(re.findall(r"here:\d+", said))
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a31_two_processes_are_rank_0():
    ranks = world(3)
    answers = meet(ranks[0], ranks[0], ranks[1])
    said = refused(answers, "two processes claim to be rank 0", code="NET006")
    assert {f"here:{a['pid']}" for a in answers[:2]} == set(re.findall(r"here:\d+", said))


@together
def test_a30_a_twin_that_comes_when_the_job_has_begun_is_sent_away():
    with TemporaryDirectory() as folder:
        ranks = world(2, STAY=folder)
        running = [start(one) for one in ranks]
        assert wait_until(lambda: len(os.listdir(folder)) == 2), "the job has begun"
        late = meet(ranks[1])[0]
        Path(folder, "over").touch()
        begun = ended(running)
    assert not late["go"]
    assert all(a["go"] for a in begun)
    assert f"rank 1 of this job is pid {begun[1]['pid']}" in late["said"]


@together
def test_a_rank_that_dies_while_it_waits_is_named_at_once():
    ranks = world(3)
    running = [start(one) for one in ranks[:2]]
    awaited_only(running[0].pid, [2])
    running[1].kill()
    answers = ended(running)
    assert (
        "went away during the roll-call" in answers[0]["said"]
        and f"rank 1 (here, pid {answers[1]['pid']})" in answers[0]["said"]
    )
    assert answers[0]["s"] < EARLY_S


@together
def test_rank_0_that_dies_is_named_by_the_others():
    ranks = world(3)
    running = [start(one) for one in ranks[:2]]
    awaited_only(running[0].pid, [2])
    running[0].kill()
    answers = ended(running)
    assert f"rank 0 (here, pid {answers[0]['pid']}) went away" in answers[1]["said"] and answers[1]["s"] < EARLY_S


@together
def test_a_rank_in_trouble_stops_all_at_once():
    ranks = world(3)
    ranks[2] |= {
        "MORE": json.dumps(
            {"trouble": "local rank 2 needs device 2, and 1 is visible", "fix": "fewer", "trouble_code": "NET012"}
        )
    }
    answers = meet(*ranks)
    said = "local rank 2 needs device 2, and 1 is visible"
    refused(answers[:2], "rank 2 (here, pid", f"cannot start: it says '{said}', and advises 'fewer'", code="NET012")
    refused(answers[2:], f"cannot start: {said} [NET012]; fix: fewer")
    assert all(a["s"] < EARLY_S for a in answers)
