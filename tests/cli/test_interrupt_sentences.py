"""What Ctrl-C says in prove and fleet: what was done, what was stopped, and how to go on."""

from __future__ import annotations

import pytest

from gpuready.model import Facts
from gpuready.prove.session import ProofSession
from gpuready.workflow import fleet


def test_prove_says_how_far_it_was_and_that_nothing_was_written(monkeypatch):
    closed = []

    class Running:
        def close(self):
            closed.append(True)

    session = ProofSession(Facts(()), "python3", {})

    def run_turn():
        session.count, session.done = 9, [None, None]
        session.running = [(None, Running())]
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuready.prove.placement.place_proof", lambda row, facts, cpus: [])
    monkeypatch.setattr(session, "_run_turn", run_turn)
    monkeypatch.setattr(session, "waiting", [])
    with pytest.raises(KeyboardInterrupt) as error:
        session.running = [(None, Running())]
        session.run([])
    assert str(error.value) == "2 of 9 proofs had ended, the running ones were stopped, and no evidence was written"
    assert closed == [True]


def test_fleet_says_where_the_answers_are_and_how_to_resume(monkeypatch):
    closed, told = [], []

    class Run:
        folder, notes = "/home/me/fleet-1", []

        def __init__(self, *args):
            pass

        def list_nodes(self):
            pass

        def query_nodes(self):
            raise KeyboardInterrupt

        def close(self):
            closed.append(True)

    class Task:
        reference, runs, do = "", "", "check"

    monkeypatch.setattr(fleet, "FleetRun", Run)
    with pytest.raises(KeyboardInterrupt) as error:
        fleet.run_fleet(Task(), None, tell=told.append)
    sentence = "the answers so far are kept in /home/me/fleet-1; --resume /home/me/fleet-1 asks the other nodes"
    assert str(error.value) == sentence and closed == [True] and "--resume /home/me/fleet-1" in told[0]
