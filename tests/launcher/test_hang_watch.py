"""When a run that stands still is ended: what --on-hang and --hang-timeout ask for, and never sooner."""

from __future__ import annotations

import pytest

from gpuready.launcher.hang_watch import STOP_SECONDS, HangWatch
from gpuready.model.run import EXIT_HUNG, LaunchJob
from tests.launcher.ledgers import beat, ledger, row


class Supervised:
    """A supervisor that only notes what it is asked for."""

    def __init__(self, on_hang: str, hang: float):
        self.job = LaunchJob("local", "/v/bin/python", "script", ("t.py",), 2, on_hang=on_hang, hang=hang)
        self.ledger, self.peers, self.hub, self.notes = ledger(2), None, self, []
        self.orders: list[str] = []
        self.ended: list[tuple[str, int]] = []

    def broadcast_order(self, t: str) -> None:
        self.orders.append(t)

    def add_note(self, note: object) -> None:
        self.notes.append(note)

    def stop_with_reason(self, why: str, message: str, code: int, rank: int | None) -> None:
        self.ended.append((why, code))


def stand_still(on_hang: str, hang: float, seconds: float, goes_on: tuple[float, ...] = (0.0, 1.0)) -> Supervised:
    """Both ranks have stood still for so long, and are looked at again and again."""
    made = Supervised(on_hang, hang)
    watch = HangWatch(made)  # type: ignore[arg-type]
    for more in goes_on:
        beat(made.ledger, seconds + more, r0=row(still=seconds + more), r1=row(still=seconds + more))
        watch.check(seconds + more)
    return made


@pytest.mark.parametrize(
    ("on_hang", "hang", "lasts"), [("kill", 0.0, 300.0), ("restart", 0.0, 300.0), ("kill", 40.0, 40.0)]
)
def test_a_run_is_ended_after_its_time_and_not_before(on_hang, hang, lasts):
    assert not stand_still(on_hang, hang, lasts - 3).ended
    made = stand_still(on_hang, hang, lasts + 3)
    assert made.ended == [("hung", EXIT_HUNG)] and "stacks" in made.orders, "where each rank stood is asked for first"


def test_a_report_ends_nothing_and_off_says_nothing():
    made = stand_still("report", 0.0, 900.0)
    assert made.notes and not made.ended
    made = stand_still("off", 0.0, 900.0)
    assert not made.notes and not made.ended


def test_stop_ends_a_run_whose_standstill_was_named_and_goes_on():
    assert not stand_still("stop", 0.0, 15.0).ended
    made = stand_still("stop", 0.0, 25.0, (0.0, 1.0, STOP_SECONDS - 1))
    assert made.notes and not made.ended, "a pause that ends soon costs no run"
    made = stand_still("stop", 0.0, 25.0, (0.0, 1.0, STOP_SECONDS + 2))
    assert made.ended == [("hung", EXIT_HUNG)]


@pytest.mark.parametrize(("waits", "ends"), [(0, False), (1, True)])
def test_who_computes_and_keeps_nobody_waiting_does_not_hang(waits, ends):
    made = Supervised("kill", 40.0)
    watch = HangWatch(made)  # type: ignore[arg-type]
    for second in range(60):
        beat(made.ledger, second, r0=row("R", second, roamed=second), r1=row("S", 0, roamed=second, waits=waits))
        watch.check(second)
    assert bool(made.ended) == ends


@pytest.mark.parametrize(("roamed", "ends"), [(0.0, False), (100.0, True)])
def test_a_silent_rank_that_imports_does_not_hang_and_one_that_polls_does(roamed, ends):
    made = Supervised("kill", 40.0)
    watch = HangWatch(made)  # type: ignore[arg-type]
    for at in (100.0, 101.0):
        beat(made.ledger, at, r0=row("R", at, roamed=roamed), r1=row("R", at, roamed=100.0))
        watch.check(at)
    assert bool(made.ended) == ends
