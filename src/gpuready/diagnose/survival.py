"""What a run survived: an exception after which its process goes on working ended nothing, whatever it says.

A process with a rank is followed by it. Without ranks, several processes may write, and one that goes on proves nothing as
long as something bad is logged after it: then only the end of the log counts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.logs.log_lines import LogLine
    from gpuready.logs.log_summary import LogSummary, PatternMatch

_PROGRESS_WORDS = (
    "step",
    "epoch",
    "iter",
    "loss",
    "batch",
    "train",
    "samples",
    "token",
    "shard",
    "finished",
    "done",
    "completed",
    "saved",
    "resumed",
)

_SHUTDOWN_WORDS = (
    "shut",
    "exit",
    "stop",
    "terminat",
    "kill",
    "clean",
    "abort",
    "clos",
    "finished server",
    "destroy",
    "cancel",
    "teardown",
    "wandb",
    "dead",
    "died",
    "signal",
)


class SurvivalAnalysis:
    """What in a LogSummary no process ended by."""

    def __init__(self, summary: LogSummary):
        self._inside = _exception_line_indexes(summary)
        bad = [s.index for s in summary.aftermath]
        places = {(line.source, line.number): i for i, line in enumerate(summary.lines) if line.place != "derived"}
        self._ends = [places.get((f.source, f.last), 0) for f in summary.failures]
        exits = [places.get((end.source, end.number), 0) for end in summary.exits]
        bad += [i for i, end in zip(exits, summary.exits, strict=True) if end.code]
        bad += [i for i, f in zip(self._ends, summary.failures, strict=True) if not f.caught]
        self._last_bad = {
            source: max((i for i in bad if summary.lines[i].source == source), default=-1)
            for source in {line.source for line in summary.lines}
        }
        self._pattern_lines = {s.index for s in summary.matches}
        self._steps: dict[int, int] = {}  # last line of progress in each source
        self._works = self._last_working_lines(summary.lines)
        self._several = {line.source for line in summary.lines if line.place == "launcher" or line.rank is not None}
        self._several |= {s.line.source for s in summary.aftermath} | {end.source for end in summary.exits}
        self.failures = {
            n
            for n, f in enumerate(summary.failures)
            if f.caught or self._is_alive_after(self._ends[n], f.rank, f.source)
        }
        self.exits = {n for n, end in enumerate(summary.exits) if self._is_alive_after(exits[n], end.rank, end.source)}
        self.consequences = {
            n for n, s in enumerate(summary.aftermath) if self._is_alive_after(s.index, s.line.rank, s.line.source)
        }

    def _last_working_lines(self, lines: Sequence[LogLine]) -> dict[tuple[int, int | None], int]:
        """The last line in which each process is seen at work."""
        found: dict[tuple[int, int | None], int] = {}
        for i, line in enumerate(lines):
            if (
                i in self._inside
                or i in self._pattern_lines
                or line.place
                or line.level in ("E", "W", "C", "F")
                or not line.text.strip()
            ):
                continue
            steps = _is_progress_line(line)
            if (line.level == "I" or steps) and not _is_shutdown_line(line):
                found[line.source, line.rank] = i
            if steps:
                self._steps[line.source] = i
        return found

    def works_after(self, match: PatternMatch) -> bool:
        """Whether the process of a match, or any where none is named, is seen at work after it."""
        line = match.line
        if line.rank is not None:
            return self._works.get((line.source, line.rank), -1) > match.index
        return any(i > match.index for (where, _), i in self._works.items() if where == line.source)

    def progresses_after(self, match: PatternMatch) -> bool:
        """Whether progress is logged after a match: more than any output."""
        return self._steps.get(match.line.source, -1) > match.index

    def _is_alive_after(self, at: int, rank: int | None, source: int) -> bool:
        if rank is not None:
            return self._works.get((source, rank), -1) > at
        if source not in self._several:
            return self._works.get((source, None), -1) > at
        last = max((i for (where, _), i in self._works.items() if where == source), default=-1)
        return last > at and last > self._last_bad.get(source, -1)


def _is_progress_line(line: LogLine) -> bool:
    """A line of progress: a training word and a number, and no complaint."""
    low = line.text[:200].lower()
    return (
        any(word in low for word in _PROGRESS_WORDS)
        and any(c.isdigit() for c in low)
        and "error" not in low
        and "fail" not in low
    )


def _is_shutdown_line(line: LogLine) -> bool:
    """A line of a process that exits: servers and launchers log this calmly, after what ended them."""
    low = line.text[:300].lower()
    return any(word in low for word in _SHUTDOWN_WORDS)


def _exception_line_indexes(summary: LogSummary) -> set[int]:
    spans: dict[object, list[tuple[int, int]]] = {}
    for failure in summary.failures:
        spans.setdefault((failure.source, failure.rank, failure.pid, failure.role), []).append(
            (failure.number, failure.last)
        )
    found = set()
    for i, line in enumerate(summary.lines):
        for low, high in spans.get((line.source, line.rank, line.pid, line.role), ()):
            if low <= line.number <= high:
                found.add(i)
                break
    return found
