"""Find file stores that an earlier run left behind, with their age and the rendezvous closed in them.

A ``file://`` store is removed by the last process that leaves it cleanly; one that exists before a start is a
leftover, or belongs to a faster node of this start. torchrun can keep its rendezvous in such a file too
(``--rdzv-conf store_type=file``) and refuses a run whose name was closed there.
"""

from __future__ import annotations

import os
import time

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEY = b"torch.rendezvous."
CLOSED = b"\x8c\x06closed\x94\x88"
"""A field ``closed`` with the value true in pickle's encoding. Nothing is unpickled here."""
LARGEST = 1 << 24


class Left(Noun):
    """A file that contains a store."""

    path: str
    age_s: float
    size: int
    closed: tuple[str, ...] = ()  # the rendezvous in it that cannot be joined any more


def found(words: Sequence[str], environ: Mapping[str, str], script: str) -> list[Left]:
    """Return existing stores that this run's command, variables or script name."""
    named = dict.fromkeys([*_urls(words), *_urls(environ.values()), *_urls([script]), *_endpoint(words)])
    return [left for path in named for left in [_read(path)] if left is not None]


def run_id(words: Sequence[str]) -> str:
    return _option(words, "rdzv-id")


def told(age_s: float) -> str:
    """Format an age in a fitting unit."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {name}"
    return f"{age_s:.0f} s"


def _urls(texts: Iterable[str]) -> list[str]:
    import re

    return [path for text in texts if "file://" in text for path in re.findall(r"file://(/[\w./+-]+)", text)]


def _endpoint(words: Sequence[str]) -> list[str]:
    path = _option(words, "rdzv-endpoint")
    in_file = "store_type=file" in _option(words, "rdzv-conf").replace(" ", "")
    return [path] if in_file and path.startswith("/") else []


def _option(words: Sequence[str], name: str) -> str:
    """Return the value of a torchrun option, written with hyphens or underscores."""
    flags = (f"--{name}", f"--{name.replace('-', '_')}")
    for at, word in enumerate(words):
        flag, sign, value = word.partition("=")
        if flag in flags:
            return value if sign else next(iter(words[at + 1 : at + 2]), "")
    return ""


def _read(path: str) -> Left | None:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST)
        age = max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return None
    return Left(path, age, len(data), tuple(_closed(data))) if data else None


def _closed(data: bytes) -> list[str]:
    """Return the runs whose last record in a store is closed. A record is length, key, length, value."""
    import base64
    import binascii

    last: dict[str, bytes] = {}
    at = data.find(KEY)
    while at >= 0:
        # The key has a prefix byte, which is part of its length.
        size = int.from_bytes(data[at - 5 : at - 1], "little") if at >= 5 else 0
        end = at - 1 + size if 0 < size < 4096 else -1
        if end > at:
            length = int.from_bytes(data[end : end + 4], "little")
            last[data[at + len(KEY) : end].decode("utf-8", "replace")] = data[end + 4 : end + 4 + length]
        at = data.find(KEY, at + 1)
    found: list[str] = []
    for name, value in last.items():
        try:
            state = base64.b64decode(value)
        except binascii.Error:
            continue
        found += [name] if CLOSED in state else []
    return found
