"""Find file stores that an earlier run left behind, with their age and the rendezvous closed in them.

A ``file://`` store is removed by the last process that leaves it cleanly; one that exists before a start is a
leftover, or belongs to a faster node of this start. torchrun can keep its rendezvous in such a file too
(``--rdzv-conf store_type=file``) and refuses a run whose name was closed there.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from gpuready.model.record import Record

RENDEZVOUS_KEY = b"torch.rendezvous."
CLOSED_MARK = b"\x8c\x06closed\x94\x88"
"""A field ``closed`` with the value true in pickle's encoding. Nothing is unpickled here."""
MAX_STORE_BYTES = 1 << 24


class StaleStore(Record):
    """A file that contains a store."""

    path: str
    age_s: float
    size: int
    closed: tuple[str, ...] = ()  # the rendezvous in it that cannot be joined any more


def find_stale_stores(command: Sequence[str], environ: Mapping[str, str], script: str) -> list[StaleStore]:
    """Return existing stores that this run's command, variables or script name."""
    paths = dict.fromkeys(
        [
            *_file_store_paths(command),
            *_file_store_paths(environ.values()),
            *_file_store_paths([script]),
            *_endpoint_file(command),
        ]
    )
    return [store for path in paths for store in [_read_store_file(path)] if store is not None]


def rendezvous_name(command: Sequence[str]) -> str:
    return _torchrun_option(command, "rdzv-id")


def format_age(age_s: float) -> str:
    """Format an age in a fitting unit."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {name}"
    return f"{age_s:.0f} s"


def _file_store_paths(texts: Iterable[str]) -> list[str]:
    return [path for text in texts if "file://" in text for path in re.findall(r"file://(/[\w./+-]+)", text)]


def _endpoint_file(command: Sequence[str]) -> list[str]:
    path = _torchrun_option(command, "rdzv-endpoint")
    in_file = "store_type=file" in _torchrun_option(command, "rdzv-conf").replace(" ", "")
    return [path] if in_file and path.startswith("/") else []


def _torchrun_option(command: Sequence[str], name: str) -> str:
    """Return the value of a torchrun option, written with hyphens or underscores."""
    flags = (f"--{name}", f"--{name.replace('-', '_')}")
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else next(iter(command[at + 1 : at + 2]), "")
    return ""


def _read_store_file(path: str) -> StaleStore | None:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_STORE_BYTES)
        age = max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return None
    return StaleStore(path, age, len(data), tuple(_closed_rendezvous(data))) if data else None


def _closed_rendezvous(data: bytes) -> list[str]:
    """Return the runs whose last record in a store is closed. A record is length, key, length, value."""
    last: dict[str, bytes] = {}
    at = data.find(RENDEZVOUS_KEY)
    while at >= 0:
        # The key has a prefix byte, which is part of its length.
        size = int.from_bytes(data[at - 5 : at - 1], "little") if at >= 5 else 0
        end = at - 1 + size if 0 < size < 4096 else -1
        if end > at:
            length = int.from_bytes(data[end : end + 4], "little")
            last[data[at + len(RENDEZVOUS_KEY) : end].decode("utf-8", "replace")] = data[end + 4 : end + 4 + length]
        at = data.find(RENDEZVOUS_KEY, at + 1)
    closed: list[str] = []
    for name, value in last.items():
        try:
            state = base64.b64decode(value)
        except binascii.Error:
            continue
        closed += [name] if CLOSED_MARK in state else []
    return closed
