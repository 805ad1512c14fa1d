"""What rank 0 says to a rank, held to its shape: where the job has no token, anybody may have said it."""

from __future__ import annotations

from gpuready import held
from gpuready.noun import Noun
from gpuready.rollcall.register import Fault

CALLS = 4
"""Trial connections that a rank makes when it is asked to: the next of the ring, and the one before."""


class Go(Noun):
    """The job may start: its machines with their names and ranks, and what is worth a note."""

    nodes: tuple[tuple[str, str, int], ...] = ()
    notes: tuple[str, ...] = ()


class Said(Noun):
    """One line of rank 0: why the job does not start, that it does, or whom this rank is to call."""

    refused: tuple[Fault, ...] = ()
    go: Go | None = None
    dial: tuple[tuple[int, str, int], ...] | None = None

    _nested = {"refused": Fault, "go": Go}


def read(data: object) -> Said:
    """A line from its JSON; ValueError where it is none of rank 0."""
    found = held.of(Said, data)
    if len(found.dial or ()) > CALLS or not all(-1 < port < 1 << 16 for _, _, port in found.dial or ()):
        raise ValueError("nobody asks a rank to call so")
    return found
