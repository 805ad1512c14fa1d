"""Rank 0's messages to a rank, validated: without a token anyone may have sent them."""

from __future__ import annotations

from gpuready.model import validation
from gpuready.model.record import Record
from gpuready.rollcall.rank_register import RollcallFault

MAX_CALLS = 4
"""Most trial connections that a rank makes on request: to its two neighbours in the ring, with a margin."""


class StartPermit(Record):
    """The job may start: its machines with names and ranks, and notes."""

    nodes: tuple[tuple[str, str, int], ...] = ()
    notes: tuple[str, ...] = ()


class ServerMessage(Record):
    """One line of rank 0: why the job does not start, that it does, or whom this rank is to call."""

    refused: tuple[RollcallFault, ...] = ()
    go: StartPermit | None = None
    dial: tuple[tuple[int, str, int], ...] | None = None


def parse_server_message(data: object) -> ServerMessage:
    """Parse a line of rank 0; ValueError if it is invalid."""
    message = validation.parse_record(ServerMessage, data)
    if len(message.dial or ()) > MAX_CALLS or not all(-1 < port < 1 << 16 for _, _, port in message.dial or ()):
        raise ValueError("nobody asks a rank to call so")
    return message
