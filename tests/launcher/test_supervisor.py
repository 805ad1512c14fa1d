"""What the engine itself says: shown while ranks live, and not where it only reports its own end."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gpuready.launcher import supervisor
from gpuready.launcher.supervisor import Supervisor
from gpuready.model.run import LaunchJob, RankEnd, RunNote
from tests.launcher.ledgers import LOST, end, ledger, out


@pytest.mark.parametrize(
    ("engine", "codes", "shown"),
    [("torchrun", (), True), ("torchrun", (0, 1), False), ("torchrun", (0, 0), False), ("slurm", (0, 0), True)],
)
def test_torchrun_that_ends_after_its_ranks_is_not_shown(engine, codes, shown):
    """Another node has closed the store, or a rank has failed: torchrun ends with a traceback of its own."""
    made, said = ledger(2), []
    for rank, code in enumerate(codes):
        end(made, rank, 1.0, code)
    reads, writes = os.pipe()
    os.write(writes, b"Traceback (most recent call last):\n")
    with open(reads, "rb") as stream:
        run = SimpleNamespace(
            process=SimpleNamespace(stdout=stream), partial_line=b"", engine_lines=[], ledger=made, why="",
            stopped_at=None, job=SimpleNamespace(engine=engine), reporter=SimpleNamespace(write_engine_line=said.append),
        )  # fmt: skip
        Supervisor._read_engine_output(run)  # type: ignore[arg-type]
    os.close(writes)
    assert bool(said) == shown


def test_our_own_lines_are_notes_and_no_log_of_the_job():
    """As a log they would be searched for causes: "cannot reach" became a proxy."""
    said, notes = [], []
    reads, writes = os.pipe()
    os.write(writes, b"(run_rank_agent pid=7) gpuready: n1 cannot reach gpuready run on ['n0']\nsrun: error\n")
    os.close(writes)
    with open(reads, "rb") as stream:
        run = SimpleNamespace(
            process=SimpleNamespace(stdout=stream), partial_line=b"", engine_lines=[], ledger=ledger(2), why="",
            stopped_at=None, job=SimpleNamespace(engine="ray"), add_note=notes.append,
            reporter=SimpleNamespace(write_engine_line=said.append),
        )  # fmt: skip
        Supervisor._read_engine_output(run)  # type: ignore[arg-type]
    assert said == ["srun: error"] and notes[0].says.startswith("n1 cannot reach gpuready run")


def test_ranks_are_numbered_as_torchrun_does_where_nodes_have_different_numbers_of_them():
    job = LaunchJob("torchrun", "/v/python", "script", ("t.py",), 1, nnodes=2, node_rank=1, master="n0", port=1)
    made = Supervisor(job, {}, SimpleNamespace())  # type: ignore[arg-type]
    assert list(made.ledger.ranks) == [1]
    made._number_ranks([{"RANK": "2", "LOCAL_RANK": "0"}])  # node 0 has two
    assert list(made.ledger.ranks) == [2]


def test_the_signal_by_which_a_rank_was_stopped_is_no_exit_code_of_the_job():
    made = [RankEnd(0, code=143, signal=15, stopped=True), RankEnd(1, code=7), RankEnd(2, code=3)]
    assert supervisor._own_code(made) == 7
    assert supervisor._own_code(made[:1]) == 1
    assert supervisor._own_code([RankEnd(0, code=137, signal=9)]) == 137, "somebody else killed it"


def test_where_a_rank_stood_that_did_not_come_is_in_the_verdict_too():
    run = Supervisor(LaunchJob("local", "/v/python", "script", ("t.py",), 2), {}, SimpleNamespace())  # type: ignore[arg-type]
    run.ledger = made = ledger(2)
    stack = ["Current thread 0x1 (most recent call first):", '  File "/j/train.py", line 6 in load']
    made.record_message({"t": "stack", "r": 1, "d": stack, "waits": "a file lock that pid 8 holds"}, 2.0)
    out(made, 0, "RuntimeError: Timed out waiting 15000ms for recv operation to complete\n", 2.5)
    end(made, 0, 3.0)
    made.stopping, made.suspects = True, [1]
    end(made, 1, 4.0, 143, 15)
    (first,) = run._build_attempt().first_ends
    assert first.rank == 1 and first.stood == "in train.py:6 (load), waiting for a file lock that pid 8 holds"


@pytest.mark.parametrize(
    ("moved", "grace", "kinds", "ends"),
    [
        (1.0, 0.0, ["still"], True),
        (6.5, 0.0, ["still"], True),
        (8.0, 0.0, ["still"], False),
        (1.0, 9.0, ["still"], False),
        (1.0, 0.0, [], False),
    ],
)
def test_after_ctrl_c_a_run_that_stood_still_is_not_waited_for(moved, grace, kinds, ends):
    run = Supervisor(LaunchJob("local", "/v/python", "script", ("t.py",), 2, grace=grace), {}, SimpleNamespace())  # type: ignore[arg-type]
    run.ledger, run.why, run.notes = ledger(2), "interrupted", [RunNote(kind, "") for kind in kinds]
    for at in (15.0, 16.0):
        run.ledger.record_message({"t": "beat", "d": [[r, "S", 0.0, 0.0, at - moved, at - moved] for r in (0, 1)]}, at)
    assert not run._stands_still_after(None, 11.0)
    assert not run._stands_still_after(13.0, 16.0)
    assert run._stands_still_after(5.0, 16.0) == ends


def test_the_first_line_waits_for_the_exit_code_and_for_who_closed_the_connection():
    job = LaunchJob("local", "/v/python", "script", ("t.py",), 2)
    run = Supervisor(job, {}, SimpleNamespace())  # type: ignore[arg-type]
    run.ledger, run.failed_at = ledger(2), 1.0
    run.ledger.record_message({"t": "leaving", "r": 1}, 1.0)
    assert run._describe_first(5.0) == "", "its exit code is not known yet"
    end(run.ledger, 1, 1.2, 7)
    assert run._describe_first(2.1) == ""
    assert run._describe_first(2.8) == "rank 1 on gpu-1 failed first: exit 7"
    run.ledger = ledger(2)
    for rank in (0, 1):
        out(run.ledger, rank, LOST, 1.0 + rank)
        end(run.ledger, rank, 1.1 + rank)
    assert run._describe_first(2.1) == ""
