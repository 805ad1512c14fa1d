"""The protocol of the roll-call: a greeting each way, then one line of JSON each way with a seal.

The first line is plain text, so that a rank that reaches another service can show its reply. The seal is an
HMAC with the job's token over the server's nonce; the token itself is never sent. Replies are sealed over the rank's hello
as well, so that nobody can send it its own words, or the replies to an earlier rank.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time

from gpuready.model import validation
from gpuready.model.record import Record
from gpuready.rollcall.rank_register import RollcallFault

GREETING = b"GPUREADY-ROLLCALL/1 "
MAX_LINE = 1 << 18
"""A longer line comes from no rank: a Hello has a few KiB."""


class ProtocolError(Exception):
    """The other side does not speak this protocol; ``received`` is what it sent."""

    def __init__(self, why: str, received: bytes = b"") -> None:
        super().__init__(why)
        self.why, self.received = why, received


def make_nonce() -> str:
    return os.urandom(12).hex()


def compute_seal(token: str, salt: str, body: str) -> str:
    """Return the proof that the sender knows the token; empty if the job has none."""
    if not token:
        return ""
    return hmac.new(token.encode(), f"{salt}\n{body}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def make_reply_salt(salt: str, hello: bytes) -> str:
    """Return the salt of the replies to this hello."""
    line = hello.rstrip(b"\n")
    return f"{salt} {hashlib.sha256(line).hexdigest()}"


def dump_compact_json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def seal_line(body: str, token: str, salt: str) -> bytes:
    """One line: seal, space, JSON."""
    return f"{compute_seal(token, salt, body)} {body}\n".encode()


def encode_message(data: object, token: str, salt: str) -> bytes:
    return seal_line(dump_compact_json(data), token, salt)


def decode_message(line: bytes, token: str, salt: str) -> object:
    """Return the data of a line; PermissionError for another token's seal, ValueError for invalid data."""
    seal_received, _, body = line.decode("utf-8", "strict").rstrip("\n").partition(" ")
    if not _seals_match(seal_received, compute_seal(token, salt, body)):
        raise PermissionError("the token is another")
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _seals_match(seal_received: str, wanted: str) -> bool:
    """Compare two seals in constant time."""
    if not wanted:
        return not seal_received
    return hmac.compare_digest(seal_received.encode(), wanted.encode())


def read_line(conn: socket.socket, until: float, already: bytes = b"", limit: int = MAX_LINE) -> tuple[bytes, bytes]:
    """Return one line and what followed; ProtocolError at the deadline, at the end, or if it is too long."""
    received = already
    while b"\n" not in received:
        left = until - time.monotonic()
        if left <= 0:
            raise ProtocolError("silent", received)
        conn.settimeout(left)
        try:
            more = conn.recv(65536)
        except TimeoutError:
            raise ProtocolError("silent", received) from None
        except OSError:
            raise ProtocolError("closed", received) from None
        if not more:
            raise ProtocolError("closed", received)
        received += more
        if len(received) > limit:
            raise ProtocolError("endless", received[:200])
    line, _, rest = received.partition(b"\n")
    return line, rest


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
