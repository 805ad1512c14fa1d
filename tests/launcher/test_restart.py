"""Whether another attempt can help: what failures have in common."""

from __future__ import annotations

from gpuready.launcher import restart
from gpuready.model.run import LaunchAttempt, RankEnd


def failed(*last: str, code: int = 1, seconds: float = 5.0) -> LaunchAttempt:
    return LaunchAttempt((RankEnd(0, "h", 1, code, 0, 1, last=last),), (0,), code=code, seconds=seconds)


def test_three_of_a_kind_are_enough():
    same = [failed("ValueError: bad 17"), failed("ValueError: bad 18"), failed("ValueError: bad 19")]
    assert not restart.why_restart_is_useless(same[:2]) and "3 times" in restart.why_restart_is_useless(same)


def test_progress_gives_another_chance():
    assert not restart.why_restart_is_useless([failed(f"step {n} loss 2", "ValueError: bad") for n in (10, 20, 30)])
    assert restart.why_restart_is_useless([failed("step 10/100", "ValueError: bad") for _ in range(3)])
    assert not restart.why_restart_is_useless([failed("ValueError", seconds=s) for s in (4.0, 4000.0, 9000.0)])


def test_another_failure_is_another_count():
    assert not restart.why_restart_is_useless([failed("ValueError: a"), failed("KeyError: b"), failed("ValueError: a")])


def test_what_stays_until_somebody_changes_it():
    assert "PKG001" in restart.why_restart_is_useless([failed("x")], "PKG001", "torch has no CUDA")
    assert not restart.why_restart_is_useless([failed("x")], "NET007", "a peer went away")
    assert restart.why_restart_is_useless([LaunchAttempt(why="missing", code=1)])
