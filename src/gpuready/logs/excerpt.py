"""Reduce a log of any size to the lines that may matter, in one pass, in constant memory.

A small log is kept whole. Of a large one: its beginning, its end, and the lines around the literals found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.log_lines import MAX_LINE_BYTES, shorten_line
from gpuready.model.record import Record

WHOLE_LOG_BYTES = 1 << 20
"""A log up to this many bytes is kept whole; several logs share sixteen times as much."""

MAX_LINES = 10_000
"""Lines kept over all sources."""

SEARCH_BYTES = 256 << 10
"""Bytes searched at once: between two pieces the time is looked at."""

READING_SHARE = 0.4
"""Share of the time that is over when reading ends."""

Row = tuple[int, bytes]
"""Number of a line, and its bytes."""

MAX_KEPT_BYTES = 24 << 20
"""Bytes kept over all sources."""

BEFORE, AFTER, HEAD, TAIL, GIANT = 8, 30, 80, 300, 6
TAIL_BYTES = 256 << 10
"""Bytes in which the last lines are."""
LITERAL_QUOTA = 200
"""How many hits of one literal count: ten thousand repetitions add nothing after two hundred."""


class Excerpt(Record):
    """The kept lines of one source: numbers and bytes, in order."""

    rows: tuple[Row, ...] = ()
    lines: int = 0
    bytes: int = 0
    whole: bool = True


def extract_excerpt(
    chunks: Iterable[bytes],
    search: LiteralSearch,
    quotas: Mapping[int, int] | None = None,
    share: int = 1,
    is_spent: Callable[..., bool] = lambda *_: False,
) -> Excerpt:
    """The lines of one source that may matter, up to where the time is spent.

    ``quotas`` of literals that have another one; ``share`` sources share the limits.
    """
    room = max(min(WHOLE_LOG_BYTES, 16 * WHOLE_LOG_BYTES // share), 16 << 10)
    first, rest, ended = _read_first(chunks, room)
    if ended:
        rows = tuple((i, shorten_line(line)) for i, line in enumerate(first.split(b"\n"), 1))
        rows = rows[:-1] if rows and not rows[-1][1] else rows
        if len(rows) <= max(MAX_LINES // share, 400):
            return Excerpt(rows, len(rows), len(first))
    picker = _LinePicker(search, quotas or {}, max(MAX_LINES // share, 400))
    for block in _split_into_blocks(first, rest):
        if is_spent(READING_SHARE):
            break
        picker.take_block(block)
    return picker.finish_excerpt()


def _read_first(chunks: Iterable[bytes], room: int) -> tuple[bytes, Iterator[bytes], bool]:
    stream = iter(chunks)
    buffered: list[bytes] = []
    size = 0
    for chunk in stream:
        buffered.append(chunk)
        size += len(chunk)
        if size > room:
            return b"".join(buffered), stream, False
    return b"".join(buffered), stream, True


def _split_into_blocks(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks that end where a line ends; a line longer than what is searched at once is split."""
    carry = b""
    blocks = (
        block[at : at + SEARCH_BYTES] for block in chain((first,), rest) for at in range(0, len(block), SEARCH_BYTES)
    )
    for chunk in blocks:  # many hits in one piece take much memory
        cut = chunk.rfind(b"\n") + 1
        if cut or len(carry) + len(chunk) > SEARCH_BYTES:
            yield carry + (chunk[:cut] if cut else chunk)
            carry = chunk[cut:] if cut else b""
        else:
            carry += chunk
    if carry:
        yield carry


def _line_end_at(block: bytes, at: int) -> int:
    end = block.find(b"\n", at)
    return len(block) if end < 0 else end


class _LinePicker:
    """Keeps the lines around hits, with their numbers, across blocks."""

    def __init__(self, search: LiteralSearch, quotas: Mapping[int, int], rows: int):
        self.search, self.quotas, self.max_lines = search, quotas, rows
        self.bytes_left = MAX_KEPT_BYTES * rows // MAX_LINES
        self.kept: dict[int, bytes] = {}
        self.hit_counts: dict[int, int] = {}
        self.exhausted: set[int] = set()  # literals whose quota is used up
        self.giants: dict[int, set[int]] = {}
        self.number, self.size = 1, 0  # of the first line of the next block
        self.wanted = HEAD  # number of lines to keep unconditionally from here
        self.before: list[bytes] = []  # the last lines of the previous block
        self.end = b""  # of the log

    def take_block(self, block: bytes) -> None:
        done = 0
        if self.wanted:
            done = self._keep_lines(block, 0, self.number, self.wanted)
            self.wanted = max(self.wanted - block.count(b"\n", 0, done), 0) if done >= len(block) else 0
        start = stop = 0  # of the line with the last hit
        number = self.number
        for end, which in () if self._is_full() else self.search.find_literals(block, self.exhausted):
            if end > stop:
                fresh = block.rfind(b"\n", stop, end) + 1 or start
                number += block.count(b"\n", start, fresh)
                start, stop = fresh, _line_end_at(block, end)
                if stop - start <= MAX_LINE_BYTES and stop > done and self._may_keep(which):
                    done = self._keep_around(block, start, number)
            if stop - start > MAX_LINE_BYTES:
                self._keep_giant_line(block, end, which, number)
        self._remember_tail(block)
        self.number += block.count(b"\n")
        self.size += len(block)

    def _keep_giant_line(self, block: bytes, end: int, which: int, number: int) -> None:
        """Of an overlong line: the text around the first hits of a few literals."""
        seen = self.giants.setdefault(number, set())
        if which not in seen and len(seen) < GIANT and self._may_keep(which):
            seen.add(which)
            self.kept[number] = (
                self.kept.get(number, b"")[-MAX_LINE_BYTES // 2 :] + b" ... " + block[max(end - 512, 0) : end + 1024]
            )

    def _may_keep(self, which: int) -> bool:
        count = self.hit_counts[which] = self.hit_counts.get(which, 0) + 1
        if count > self.quotas.get(which, LITERAL_QUOTA):
            self.exhausted.add(which)
        return which not in self.exhausted and not self._is_full()

    def _is_full(self) -> bool:
        return len(self.kept) >= self.max_lines or self.bytes_left <= 0

    def _keep_around(self, block: bytes, start: int, number: int) -> int:
        """Keep the line at ``start`` with its neighbours; return where the kept part ends."""
        begin, first = start, number
        while first > number - BEFORE and begin > 0 and first - 1 not in self.kept:
            begin, first = block.rfind(b"\n", 0, begin - 1) + 1, first - 1
        missing = BEFORE - (number - first)
        if begin == 0 and missing > 0:  # they are at the end of the previous block
            for i, line in enumerate(reversed(self.before[-missing:])):
                self.kept.setdefault(first - 1 - i, line)
        stop = self._keep_lines(block, begin, first, number - first + 1 + AFTER)
        if stop >= len(block):
            self.wanted = max(self.wanted, AFTER - block.count(b"\n", start, stop))
        return stop

    def _keep_lines(self, block: bytes, at: int, number: int, lines: int) -> int:
        for _ in range(lines):
            if at >= len(block):
                return len(block)
            end = _line_end_at(block, at)
            if number not in self.kept:
                self.kept[number] = shorten_line(block[at:end])
                self.bytes_left -= len(self.kept[number])
            at, number = end + 1, number + 1
        return at

    def _remember_tail(self, block: bytes) -> None:
        """Keep the end of what was read, and the last lines of the block as context for the next one."""
        lines = [shorten_line(line) for line in block.removesuffix(b"\n").rsplit(b"\n", BEFORE)]
        self.before = lines[-BEFORE:]
        self.end = (self.end + block)[-TAIL_BYTES:] if len(block) < TAIL_BYTES else block[-TAIL_BYTES:]

    def finish_excerpt(self) -> Excerpt:
        total = self.number - 1
        last = self.end.removesuffix(b"\n").split(b"\n")[-min(TAIL, self.max_lines // 2) :]
        for i, line in enumerate(reversed(last)):
            self.kept.setdefault(total - i, shorten_line(line))
        return Excerpt(tuple(sorted(self.kept.items())), total, self.size, whole=False)
