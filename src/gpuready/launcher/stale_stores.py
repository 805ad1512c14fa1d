"""Find file stores that an earlier run left behind, with their age.

A ``file://`` store is removed by the last process that leaves it cleanly; one that exists before a start is a
leftover, or belongs to a faster node of this start.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence

from gpuready.model.record import Record


class StaleStore(Record):
    """A file that contains a store."""

    path: str
    age_s: float
    size: int


def find_stale_stores(command: Sequence[str], environ: Mapping[str, str], script: str) -> list[StaleStore]:
    """Return existing stores that this run's command, variables or script name."""
    texts = (*command, *environ.values(), script)
    paths = [path for text in texts if "file://" in text for path in re.findall(r"file://(/[\w./+-]+)", text)]
    return [store for path in dict.fromkeys(paths) for store in [_read_store_file(path)] if store is not None]


def format_age(age_s: float) -> str:
    """Format an age in a fitting unit."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {name}"
    return f"{age_s:.0f} s"


def _read_store_file(path: str) -> StaleStore | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return StaleStore(path, max(0.0, time.time() - status.st_mtime), status.st_size) if status.st_size else None
