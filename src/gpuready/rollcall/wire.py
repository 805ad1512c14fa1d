"""The protocol of the roll-call: a greeting each way, then one line of JSON each way with a seal.

The first line is plain text, so that a rank that reaches another service can show its reply. The seal is an
HMAC with the job's token over the server's nonce; the token itself is never sent.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

WORD = b"GPUREADY-ROLLCALL/1 "
LONGEST = 1 << 18
"""A longer line comes from no rank: a Hello has a few KiB."""


class Strange(Exception):
    """The other side does not speak this protocol; ``received`` is what it sent."""

    def __init__(self, why: str, heard: bytes = b"") -> None:
        super().__init__(why)
        self.why, self.heard = why, heard


def nonce() -> str:
    return os.urandom(12).hex()


def seal(token: str, salt: str, body: str) -> str:
    """Return the proof that the sender knows the token; empty if the job has none."""
    if not token:
        return ""
    import hashlib
    import hmac

    return hmac.new(
        token.encode(), f"{salt}\n{body}".encode("utf-8", "surrogatepass"), hashlib.sha256
    ).hexdigest()


def written(data: object) -> str:
    import json

    return json.dumps(data, separators=(",", ":"))


def sealed(body: str, token: str, salt: str) -> bytes:
    """One line: seal, space, JSON."""
    return f"{seal(token, salt, body)} {body}\n".encode()


def packed(data: object, token: str, salt: str) -> bytes:
    return sealed(written(data), token, salt)


def opened(line: bytes, token: str, salt: str) -> object:
    """Return the data of a line; PermissionError for another token's seal, ValueError for invalid data."""
    import json

    mark, _, body = line.decode("utf-8", "strict").rstrip("\n").partition(" ")
    if not _same(mark, seal(token, salt, body)):
        raise PermissionError("the token is another")
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _same(mark: str, wanted: str) -> bool:
    """Compare two seals in constant time."""
    if not wanted:
        return not mark
    import hmac

    return hmac.compare_digest(mark.encode(), wanted.encode())


def read_line(
    conn: socket.socket, until: float, already: bytes = b"", limit: int = LONGEST
) -> tuple[bytes, bytes]:
    """Return one line and what followed; ProtocolError at the deadline, at the end, or if it is too long."""
    heard = already
    while b"\n" not in heard:
        left = until - time.monotonic()
        if left <= 0:
            raise Strange("silent", heard)
        conn.settimeout(left)
        try:
            more = conn.recv(65536)
        except TimeoutError:
            raise Strange("silent", heard) from None
        except OSError:
            raise Strange("closed", heard) from None
        if not more:
            raise Strange("closed", heard)
        heard += more
        if len(heard) > limit:
            raise Strange("endless", heard[:200])
    line, _, rest = heard.partition(b"\n")
    return line, rest
