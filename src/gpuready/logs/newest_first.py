"""Logs that a page shows with the newest line first, as log explorers do: they are read from their end.

ERROR 2025-04-05T00:01:19.509514570Z ./entrypoint.sh: line 48: 28 Killed python3
ERROR 2025-04-05T00:01:19.209104776Z torch.distributed.DistBackendError: NCCL error
ERROR 2025-04-05T00:01:19.209014177Z Traceback (most recent call last):
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gpuready.logs.lazy_regex import LazyRegex

MAX_PREFIX, SAMPLE_LINES = 80, 400
"""Characters of a line in which its time is, and lines that are looked at."""

MIN_TIMES, MIN_FALLS, MIN_SHARE, MIN_FALLING = 6, 3, 0.9, 0.25
"""Lines with a time, steps back in time, the share of the lines that has a time and of the steps that do not go forward, and of those that go back."""

_TIME = LazyRegex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")


def order_by_time(rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The numbered lines in the order of their times; of a log that was turned round the numbers are negative, so that they still rise."""
    return [(-number, line) for number, line in reversed(rows)] if _is_newest_first(rows) else list(rows)


def _is_newest_first(rows: Sequence[tuple[int, bytes]]) -> bool:
    lines = [line[:MAX_PREFIX].decode("utf-8", "replace") for _, line in rows[:SAMPLE_LINES] if line.strip()]
    if not lines or _TIME.search(lines[0]) is None:
        return False
    times = [found[0].replace(",", ".") for line in lines if (found := _TIME.search(line))]
    if len(times) < max(MIN_TIMES, MIN_SHARE * len(lines)):
        return False
    falls = sum(before > after for before, after in pairwise(times))
    rises = sum(before < after for before, after in pairwise(times))
    fall_enough = falls >= max(MIN_FALLS, MIN_FALLING * len(times)) and rises <= (1 - MIN_SHARE) * len(times)
    return fall_enough and not _reads_downwards([line for _, line in rows[:SAMPLE_LINES]])


def _reads_downwards(lines: Sequence[bytes]) -> bool:
    """Whether the first traceback stands in reading order: its head before its frames."""
    head = next((i for i, line in enumerate(lines) if b"Traceback (most recent call last)" in line), len(lines))
    frame = next((i for i, line in enumerate(lines) if b'File "' in line), len(lines))
    return head < frame < len(lines)
