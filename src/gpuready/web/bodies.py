"""Uploads: a log or a recording as the request body, kept in memory, limited in size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request

LOG, RECORDING = 32 << 20, 16 << 20
SECONDS = 30.0
"""The seconds a body may take to arrive."""


class Unfit(Exception):
    """A body that is too large, too late or empty, with an HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


async def taken(request: Request, most: int, seconds: float) -> bytes:
    """Return the whole body. InvalidUpload where it is too large, late, broken off or empty."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise _too_large(most)
    try:
        body = await asyncio.wait_for(_collected(request, most), seconds)
    except (TimeoutError, asyncio.TimeoutError):  # two names before Python 3.11
        raise Unfit(408, f"it was not here within {seconds:.0f} s") from None
    except ClientDisconnect:
        raise Unfit(400, "the connection ended before the whole was here") from None
    if not body:
        raise Unfit(400, "there is nothing in it: send the file as the body")
    return body


async def _collected(request: Request, most: int) -> bytes:
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) > most:
            raise _too_large(most)
    return bytes(held)


def _too_large(most: int) -> Unfit:
    return Unfit(413, f"larger than {most >> 20} MiB: use the command line for it")
