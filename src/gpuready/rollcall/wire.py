"""The wire of the roll-call: a greeting each way, then one line of JSON each way, each with its seal.

A first line that is plain text lets a rank that met something else show what that something answered. The seal
is an HMAC of the job's token over a number that the host drew, so that the token itself is never sent.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

WORD = b"GPUREADY-ROLLCALL/1 "
LONGEST = 1 << 18
"""A line that is longer comes from no rank of ours: a Hello has a few KiB."""


class Strange(Exception):
    """The other side does not speak the language of the roll-call; ``heard`` is what it said."""

    def __init__(self, why: str, heard: bytes = b"") -> None:
        super().__init__(why)
        self.why, self.heard = why, heard


def nonce() -> str:
    return os.urandom(12).hex()


def seal(token: str, salt: str, body: str) -> str:
    """The proof that the sender knows the token; empty where the job has none."""
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
    """One line: the seal, a space, the JSON."""
    return f"{seal(token, salt, body)} {body}\n".encode()


def packed(data: object, token: str, salt: str) -> bytes:
    return sealed(written(data), token, salt)


def opened(line: bytes, token: str, salt: str) -> object:
    """The data of a line; PermissionError where the seal is not of this token, ValueError for what is none."""
    import json

    mark, _, body = line.decode("utf-8", "strict").rstrip("\n").partition(" ")
    if not _same(mark, seal(token, salt, body)):
        raise PermissionError("the token is another")
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _same(mark: str, wanted: str) -> bool:
    """Whether two seals are one, without telling by the time taken how far they agree."""
    if not wanted:
        return not mark
    import hmac

    return hmac.compare_digest(mark.encode(), wanted.encode())


def read_line(
    conn: socket.socket, until: float, already: bytes = b"", limit: int = LONGEST
) -> tuple[bytes, bytes]:
    """One line and what followed it; Strange at the deadline, at the end, or where it is too long."""
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
