"""Uploads: a log or a recording as the request body, kept in memory, limited in size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from starlette.requests import Request


MAX_LOG_BYTES, MAX_RECORDING_BYTES = 32 << 20, 16 << 20
BODY_TIMEOUT = 30.0
"""The seconds a body may take to arrive."""


class InvalidUpload(Exception):
    """A body that is too large, too late or empty, with an HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


async def read_request_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the whole body. InvalidUpload where it is too large, late, broken off or empty."""
    declared_length = request.headers.get("content-length", "")
    if declared_length.isdecimal() and int(declared_length) > max_bytes:
        raise _too_large_error(max_bytes)
    try:
        body = await asyncio.wait_for(_collect_body(request, max_bytes), seconds)
    except (TimeoutError, asyncio.TimeoutError):  # two names before Python 3.11
        raise InvalidUpload(408, f"it was not here within {seconds:.0f} s") from None
    except ClientDisconnect:
        raise InvalidUpload(400, "the connection ended before the whole was here") from None
    if not body:
        raise InvalidUpload(400, "there is nothing in it: send the file as the body")
    return body


async def _collect_body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large_error(max_bytes)
    return bytes(body)


def _too_large_error(max_bytes: int) -> InvalidUpload:
    return InvalidUpload(413, f"larger than {max_bytes >> 20} MiB: use the command line for it")
