"""A cause that only the end of a process suggests is not told where the machine, or gpuready itself, refutes it."""

from __future__ import annotations

import pytest

from gpuready.model.run import LaunchAttempt, RankEnd
from gpuready.workflow.run import _is_refuted


def ended(**more: object) -> LaunchAttempt:
    return LaunchAttempt(ends=(RankEnd(0, "here", 7, 137, **more),), first=(0,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "attempt", "refuted"),
    [
        ("RUN029", LaunchAttempt(why="claimed"), True),
        ("RUN029", LaunchAttempt(why="hung"), True),
        ("RUN029", LaunchAttempt(why="engine"), False),
        ("RUN029", ended(), False),
        ("MEM003", ended(memory_kills=False), True),
        ("MEM003", ended(memory_kills=True), False),
        ("MEM003", ended(), False),
        ("SYS001", ended(shm_free=0.6), True),
        ("SYS001", ended(shm_free=0.01), False),
        ("NET001", LaunchAttempt(why="missing"), False),
    ],
)
def test_what_was_seen_refutes_a_cause(code, attempt, refuted):
    assert _is_refuted(code, attempt) is refuted
