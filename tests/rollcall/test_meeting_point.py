"""Where the ranks of a roll-call look for each other, and who else may be there."""

from __future__ import annotations

import os
import re
import threading
import time
from types import SimpleNamespace

import pytest

from gpuready.cluster import Rendezvous
from gpuready.rollcall import _check_master_address, endpoint
from gpuready.rollcall.client import PATIENCE_SECONDS, RollcallClient
from gpuready.rollcall.hello import Hello
from tests.ranks import free_port, world
from tests.rollcall.meeting import COME_S, EARLY_S, ended, meet, refused, start, together

# -- where they look ----------------------------------------------------------------------------------


@together
def test_a02_a_name_that_does_not_resolve():
    answers = meet(*[w | {"MASTER_ADDR": "no-such-host.invalid"} for w in world(2)])
    refused(answers, "no-such-host.invalid", code="NET016")
    assert "/etc/hosts" in answers[1]["said"] and all(a["s"] < EARLY_S for a in answers)


def test_in_kubernetes_a_name_may_appear_late():
    """The name of a pod is known when it is ready: rank 0 listens meanwhile, and the others try for the whole window."""
    unknown, own = OSError("Name or service not known"), Hello(0, 2, 0, "pod-0", 1, "m")
    pods, hosts = (
        Rendezvous(0, 2, address="sft-0.sft", port=1, nodes=2, launcher=name) for name in ("kubernetes", "slurm")
    )
    assert not _check_master_address(pods, own, unknown)[0].trouble
    assert "does not resolve" in _check_master_address(hosts, own, unknown)[0].trouble
    for rendezvous, seconds in ((pods, 60.0), (hosts, PATIENCE_SECONDS)):
        caller = SimpleNamespace(
            until=60.0, started=0.0, reached=endpoint.ReachResult(why="name"), rendezvous=rendezvous
        )
        assert RollcallClient._seconds_to_try(caller) == seconds


@together
def test_a05_another_port_than_rank_0():
    ranks = world(2)
    wrong = free_port()
    ranks[1] |= {"MASTER_PORT": wrong}
    answers = meet(*ranks)
    refused(
        answers,
        f"looks for rank 0 at 127.0.0.1:{wrong} (refused)",
        f"listens on port {ranks[0]['MASTER_PORT']}",
        code="NET016",
    )
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a05_jobs_that_start_side_by_side_leave_each_other_alone():
    """A rank that waits for its own late rank 0 must not take that of another job for it."""
    one, other = world(2, GPUREADY_RUN_ID="one"), world(2, GPUREADY_RUN_ID="other")
    running = [start(one[0]), start(other[1])]
    time.sleep(3)
    answers = ended([*running, start(one[1]), start(other[0])])
    assert all(a["go"] for a in answers), answers


class Service:
    """Something else on a port: it takes connections and answers with ``words``, if any."""

    def __init__(self, words: bytes | None) -> None:
        self.listener = endpoint.listen_on_port(0)
        self.port = self.listener.getsockname()[1]
        self.words, self.kept = words, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.kept.append(conn)
            if self.words is not None:
                conn.sendall(self.words)
                conn.close()


@together
def test_a06_the_port_is_taken():
    service = Service(None)
    answer = meet(world(2, service.port)[0])[0]
    said = refused(
        [answer], f"cannot listen on port {service.port}", f"pid {os.getpid()} of", "listening", code="NET018"
    )
    assert int(re.search(r"MASTER_PORT=(\d+)", said)[1]) != service.port and answer["s"] < EARLY_S


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (None, "takes the connection and says nothing"),
        (b"HTTP/1.0 400 Bad request\r\nServer: x\r\n", "it says HTTP/1.0 400 Bad request\\x0d;"),
        (b"\x1b[2J\x00\xff garbage without an end", "it says \\x1b[2J\\x00ÿ garbage"),
        (b"", "it closes the connection"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "SSH-2.0-OpenSSH"),
    ],
    ids=["a07-silent", "a08-http", "garbage", "closes", "ssh"],
)
def test_a07_a08_something_else_answers(words, said):
    service = Service(words)
    answer = meet(world(2, service.port)[1])[0]
    assert not answer["go"] and "something else than rank 0 answers" in answer["said"] and answer["s"] < EARLY_S
    assert said in answer["said"] and f"pid {os.getpid()}" in answer["said"]


@together
def test_a09_the_roll_call_of_another_job():
    port = free_port()
    ours, theirs = (
        world(2, port, GPUREADY_RUN_ID="ours", WINDOW=COME_S),
        world(2, port, GPUREADY_RUN_ID="theirs", WINDOW=COME_S),
    )
    answers = meet(ours[0], theirs[1])
    assert "belongs to run ours of 2 ranks" in answers[1]["said"] and "is of run theirs" in answers[1]["said"]
    assert "missing: rank 1" in answers[0]["said"] and "turned away: rank 1 (here" in answers[0]["said"]


@together
def test_a53_a_wrong_token():
    ranks = world(2, GPUREADY_TOKEN="right", WINDOW=COME_S)
    assert all(a["go"] for a in meet(*ranks))
    answers = meet(ranks[0], ranks[1] | {"GPUREADY_TOKEN": "wrong"})
    assert "does not take the token" in answers[1]["said"] and answers[0]["said"].count("has another token") == 1
    assert "right" not in "".join(a["said"] for a in answers) and "wrong" not in answers[0]["said"]


@together
def test_a04_a_loopback_address_for_several_nodes():
    shared = {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    first = meet(shared | {"RANK": 0})[0]
    said = refused([first], "rank 0 (here, pid", "advertises a loopback address to 2 nodes", code="NET008")
    assert "MASTER_ADDR" in said and first["s"] < EARLY_S
    other = meet(shared | {"RANK": 1})[0]
    refused([other], "looks for rank 0 on its own host", code="NET008")
    assert other["s"] < EARLY_S


@together
def test_a04_several_nodes_on_one_host_are_fine():
    shared = {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    assert all(a["go"] for a in meet(*[shared | {"RANK": rank} for rank in range(2)]))
