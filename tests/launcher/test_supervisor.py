"""What the engine itself says: shown while ranks live, and not where it only reports its own end."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gpuready.launcher.supervisor import Supervisor
from tests.launcher.ledgers import end, ledger


@pytest.mark.parametrize(
    ("engine", "codes", "shown"),
    [("torchrun", (), True), ("torchrun", (0, 1), True), ("torchrun", (0, 0), False), ("slurm", (0, 0), True)],
)
def test_torchrun_that_ends_after_its_ranks_ended_well_is_not_shown(engine, codes, shown):
    """Another node has closed the store: torchrun's exit barrier fails, with a traceback."""
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
