"""Rank 0's messages to a rank, validated: without a token anyone may have sent them."""

from __future__ import annotations

from gpuready import held
from gpuready.noun import Noun
from gpuready.rollcall.register import Fault

CALLS = 4
"""Most trial connections that a rank makes on request: to its two neighbours in the ring, with a margin."""


class Go(Noun):
    """The job may start: its machines with names and ranks, and notes."""

    nodes: tuple[tuple[str, str, int], ...] = ()
    notes: tuple[str, ...] = ()


class Said(Noun):
    """One line of rank 0: why the job does not start, that it does, or whom this rank is to call."""

    refused: tuple[Fault, ...] = ()
    go: Go | None = None
    dial: tuple[tuple[int, str, int], ...] | None = None

    _nested = {"refused": Fault, "go": Go}


def read(data: object) -> Said:
    """Parse a line of rank 0; ValueError if it is invalid."""
    found = held.of(Said, data)
    if len(found.dial or ()) > CALLS or not all(-1 < port < 1 << 16 for _, _, port in found.dial or ()):
        raise ValueError("nobody asks a rank to call so")
    return found
