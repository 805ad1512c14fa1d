"""Rank 0's messages to a rank, validated: in an open roll-call anyone may have sent them."""

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
    """One line of rank 0: who it is, why the job does not start, that it does, or whom this rank is to call."""

    host: str = ""
    pid: int = 0
    refused: tuple[RollcallFault, ...] = ()
    go: StartPermit | None = None
    dial: tuple[tuple[int, str, int], ...] | None = None


def parse_server_message(data: object) -> ServerMessage:
    """Parse a line of rank 0; ValueError if it is invalid."""
    message = validation.parse_record(ServerMessage, data)
    if len(message.dial or ()) > MAX_CALLS or not all(-1 < port < 1 << 16 for _, _, port in message.dial or ()):
        raise ValueError("nobody asks a rank to call so")
    return message


def quote_server_faults(faults: tuple[RollcallFault, ...], server: str) -> list[RollcallFault]:
    """Return the faults of a rank 0 that proved no secret, as its words: its advice is no fix of ours."""
    fix = "look at the output of rank 0, and give all ranks one GPUREADY_TOKEN"
    return [
        RollcallFault(
            fault.code[:6] if fault.code.isalnum() else "",
            f"{server} refused the start and says {str(fault.replace(code=''))[:1500]!r}",
            fix,
            fault.ranks[:64],
        )
        for fault in faults
    ]
