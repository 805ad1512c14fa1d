"""Nodes under torchrun agree on who failed first, and know which node is gone."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest

from gpuready.launcher import peer_nodes
from gpuready.launcher.hang_watch import HangWatch
from gpuready.launcher.peer_nodes import PeerNodes
from gpuready.model.run import EXIT_HUNG, LaunchJob
from tests.launcher.ledgers import LOST, beat, end, ledger, out, row
from tests.launcher.test_hang_watch import Supervised

JOB = LaunchJob("torchrun", "/v/bin/python", "script", ("t.py",), 1, nnodes=2, master="gpu-0", port=29500, run_id="r")


class Store:
    """torchrun's store, for every node of a test; None: it does not answer."""

    values: ClassVar[dict[str, bytes] | None] = None

    def __init__(self, *where: object):
        self._reach()

    def _reach(self) -> dict[str, bytes]:
        if Store.values is None:
            raise OSError("no answer")
        return Store.values

    def set_value(self, key: str, value: bytes) -> None:
        self._reach()[key] = value

    def get_value(self, key: str) -> bytes | None:
        return self._reach().get(key)

    def add_one(self, key: str) -> int:
        values = self._reach()
        values[key] = str(int(values.get(key, b"0")) + 1).encode()
        return int(values[key])

    def close(self) -> None: ...


@pytest.fixture
def nodes(monkeypatch):
    Store.values = {}
    monkeypatch.setattr(peer_nodes, "StoreClient", Store)
    both = [PeerNodes(JOB.replace(node_rank=node), 0) for node in (0, 1)]
    for node in both:
        assert not node.claim_place(f"gpu-{node.job.node_rank}", [node.job.node_rank])
    return both


def failed(rank: int, text: str):
    made = ledger(2)
    out(made, rank, text, 1.0)
    end(made, rank, 1.1, 1)
    return made


def test_both_name_the_one_that_did_not_only_lose_its_peer(nodes):
    victim, cause = failed(0, LOST), failed(1, "Traceback (most recent call last):\nValueError: bad\n")
    assert not nodes[0].is_settled(victim, 1.0) and nodes[1].is_settled(cause, 1.2)
    assert not nodes[0].is_settled(victim, 1.4) and nodes[0].is_settled(victim, 2.5), "the others read first"
    (first,) = nodes[0].find_first(victim)
    assert first.rank == 1 and "ValueError: bad" in first.last and not nodes[1].find_first(cause)


def test_a_node_hears_of_a_failure_that_its_own_ranks_do_not_notice(nodes):
    """They wait for the group to be made, and have no connection that could be lost."""
    well, cause = ledger(2), failed(1, "Traceback (most recent call last):\nImportError: libx.so\n")
    nodes[0].exchange_beats(5.0)
    nodes[1].is_settled(cause, 6.0)
    nodes[0].exchange_beats(10.0)
    beat(well, 20.0, r0=row(still=25.0), r1=row("R", still=0.0))
    assert not nodes[0].leave_waiting(well), "one of them still saves"
    beat(well, 50.0, r0=row(still=55.0), r1=row(still=25.0))
    assert nodes[0].leave_waiting(well) and not nodes[1].leave_waiting(well)
    Store.values = None  # with the node that had it
    nodes[0].is_settled(well, 11.0)
    (first,) = nodes[0].find_first(well)
    assert first.rank == 1 and "ImportError: libx.so" in first.last


def test_who_fails_when_the_store_is_gone_failed_after_what_it_counted(nodes):
    cause = failed(0, "Traceback (most recent call last):\nImportError: libx.so\n")
    nodes[0].is_settled(cause, 6.0)
    nodes[1].exchange_beats(8.0)
    Store.values = None
    late = failed(1, "Traceback (most recent call last):\nRuntimeError: no store\n")
    nodes[1].is_settled(late, 9.0)
    (first,) = nodes[1].find_first(late)
    assert first.rank == 0 and "ImportError: libx.so" in first.last


def test_a_node_that_says_nothing_is_gone_with_all_its_ranks(nodes):
    victim = failed(0, LOST)
    nodes[0].claim_place("gpu-0", [0])
    Store.values["gpuready/r/0/host/1"] = b'{"host": "gpu-1", "addresses": ["10.0.0.2"], "ranks": [1, 2]}'
    assert not nodes[0].is_settled(victim, 1.0) and nodes[0].is_settled(victim, 9.0)
    found = nodes[0].find_first(victim)
    assert [(end.rank, end.host, end.lost) for end in found] == [(1, "gpu-1", True), (2, "gpu-1", True)]


def test_of_two_nodes_that_have_not_reported_the_silent_one_or_the_one_that_errors_name_is_gone(monkeypatch):
    Store.values = {}
    monkeypatch.setattr(peer_nodes, "StoreClient", Store)
    three = [PeerNodes(JOB.replace(node_rank=node, nnodes=3), 0) for node in range(3)]
    for node in three:
        node.claim_place(f"gpu-{node.job.node_rank}", [node.job.node_rank])
    victim = failed(0, LOST)
    for at in (1.0, 6.5):
        three[1].exchange_beats(at)  # slow to report, and alive
        three[0].is_settled(victim, at)
    assert [end.host for end in three[0].find_first(victim)] == ["gpu-2"]
    # Nobody was heard of since: the address in the error tells them apart.
    blind = PeerNodes(JOB.replace(nnodes=3), 1)
    blind.places = {
        node: {"host": f"gpu-{node}", "addresses": [f"10.0.0.{node}"], "ranks": [node]} for node in range(3)
    }
    named = failed(0, "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [10.0.0.1]:4242\n")
    blind.is_settled(named, 1.0)
    assert [end.host for end in blind.find_first(named)] == ["gpu-1"]
    both = PeerNodes(JOB.replace(nnodes=3), 2)
    both.is_settled(victim, 1.0)
    assert not both.find_first(victim), "which of the two is not known"


def test_a_store_that_is_gone_is_node_0(nodes):
    Store.values = None
    victim = failed(1, LOST)
    assert nodes[1].is_settled(victim, 1.0)
    (first,) = nodes[1].find_first(victim)
    assert first.lost and first.rank == 0 and first.host == "gpu-0"


def test_a_refusal_of_one_node_reaches_the_others(nodes):
    assert nodes[0].read_refusal() == ""
    PeerNodes(JOB.replace(node_rank=1), 0).tell_refusal("200 open files are allowed")
    assert nodes[0].read_refusal().endswith("refused: 200 open files are allowed")
    Store.values = None
    began = time.monotonic()
    PeerNodes(JOB.replace(node_rank=1), 0).tell_refusal("nobody is there", 0.3)
    assert time.monotonic() - began < 2


def test_the_node_that_was_told_another_number_of_nodes_is_named_on_all(nodes, monkeypatch):
    monkeypatch.setattr(peer_nodes, "READ_SECONDS", 0.0)
    assert [node.find_other_nnodes() for node in nodes] == ["", ""]
    other = PeerNodes(JOB.replace(node_rank=1, nnodes=3), 0)
    said = {node.find_other_nnodes() for node in (other, nodes[0])}
    assert said == {
        "the nodes were told different numbers of nodes: node 1 with --nnodes 3, the others with --nnodes 2"
    }
    Store.values = None
    assert nodes[0].find_other_nnodes() == ""


def test_a_node_that_comes_twice_is_told_who_has_its_place(nodes):
    late = PeerNodes(JOB.replace(node_rank=1), 0)
    assert late.claim_place("gpu-9", [1]) == "gpu-1" and nodes[0]._find_place(1)["host"] == "gpu-1", (
        "the first keeps it"
    )
    assert not PeerNodes(JOB.replace(node_rank=1), 1).claim_place("gpu-1", [1]), "a restart is another attempt"


def test_a_cable_that_is_pulled_is_named_on_both_sides(nodes):
    for at in (10.0, 15.0, 20.0):
        for node in nodes:
            node.exchange_beats(at)
    for at in (25.0, 30.0, 35.0, 40.0, 45.0):
        nodes[0].exchange_beats(at)
    assert nodes[0].describe_other_nodes(45.0) == "node 1 (gpu-1, rank 1) has not been heard of for 20 s"
    Store.values = None
    for at in (50.0, 55.0, 60.0):
        nodes[1].exchange_beats(at)
    assert nodes[1].describe_other_nodes(60.0).startswith("node 0 (gpu-0, rank")


def test_a_host_whose_agent_is_silent_is_named():
    from gpuready.launcher import hang_watch

    made = ledger(2)
    made.ranks[1].host = "gpu-2"
    for second in range(5):
        beat(made, 1.0 + second, r0=row(), r1=row())
    for second in range(5, 20):
        beat(made, 1.0 + second, r0=row(still=1.0))
    (note,) = hang_watch.find_liveness_notes(made, 20.0)
    assert note.kind == "silent" and note.rank == 1 and "gpu-2 (rank 1) for 15 s" in note.says and note.code == "NET014"
    assert not hang_watch.find_liveness_notes(made, 60.0), "nobody is heard of: it is us"


def test_who_keeps_all_waiting_on_another_node_is_heard(nodes):
    watches = []
    for node, stand in zip(nodes, ("site-packages/torch/distributed/c10d.py", "train.py"), strict=True):
        made = Supervised("report", 0.0)
        made.peers = node
        frame = f'  File "/v/{stand}", line 9 in all_reduce'
        for rank in (0, 1):
            place = frame if rank == 0 else '  File "/v/site-packages/torch/distributed/c10d.py", line 9 in all_reduce'
            made.ledger.record_message(
                {"t": "stack", "r": rank, "d": ["Thread 0x1 (most recent call first):", place]}, 1.0
            )
        watches.append((made, HangWatch(made)))
    for second in range(20, 45):
        for node, (made, watch) in zip(nodes, watches, strict=True):
            beat(made.ledger, second, r0=row(still=second, waits=1), r1=row(still=second, waits=1))
            node.exchange_beats(float(second))
            watch.check(float(second))
    (waits,), (keeps,) = (made.notes for made, _ in watches)
    assert keeps.rank == 0 and "train.py:9" in keeps.says and "node 0 says" not in keeps.says
    assert waits.rank is None and "node 1 says that nothing has moved" in waits.says and waits.fix == "look there first"


@pytest.mark.parametrize(("rank", "named"), [(0, [0]), (None, [])])
def test_a_node_that_ends_a_standstill_is_not_lost(nodes, rank, named):
    stands = ledger(1)
    stands.record_message({"t": "stack", "r": 0, "d": ["Thread 0x1:", '  File "/j/train.py", line 9 in wait']}, 1.0)
    nodes[0].tell_hung(stands, rank)
    made = failed(1, LOST)
    nodes[1].exchange_beats(2.0)
    assert nodes[1].is_settled(made, 2.1)
    first = nodes[1].find_first(made)
    assert [end.rank for end in first] == named and not any(end.lost for end in first)
    assert [(end.code, end.stood) for end in first] == [(EXIT_HUNG, "in train.py:9 (wait)")] * len(named)
