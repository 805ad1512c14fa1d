"""What a run survived, and whether it is proven to be well.

An exception after which its process goes on working ended nothing, whatever it says. How much work that takes depends on
who wrote it: a warning with its traceback needs one line of progress, an uncaught exception of the main module needs three.
A process with a rank is followed by it. Without ranks, several processes may write, and one that goes on proves nothing as
long as something bad is logged after it: then only the end of the log counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gpuready.logs.log_summary import LogSummary, PatternMatch, exception_chain, find_exception_lines
from gpuready.logs.logged_exception import LoggedException
from gpuready.logs.run_activity import (
    is_answer_line,
    is_complaint_line,
    is_nan_line,
    is_progress_line,
    is_shutdown_line,
    is_starting_line,
    is_success_line,
    says_handled,
)

Speaker = tuple[int, int | None]


MIN_WORK = 3
"""Lines of progress or success after a message without a level that show it harmless."""

MAX_AFTER_PROOF = 60
"""Lines without progress after which what was seen before is not the end of the log any more."""


class SurvivalAnalysis:
    """What in a LogSummary no process ended by."""

    def __init__(self, summary: LogSummary):
        self.summary = summary
        self.inside = find_exception_lines(summary.lines, summary.failures)
        bad = [s.index for s in summary.aftermath]
        places = {(line.source, line.number): i for i, line in enumerate(summary.lines) if line.place != "derived"}
        self._ends = [places.get((f.source, f.last), 0) for f in summary.failures]
        exits = [places.get((end.source, end.number), 0) for end in summary.exits]
        bad += [i for i, end in zip(exits, summary.exits, strict=True) if end.code]
        bad += [i for i, f in zip(self._ends, summary.failures, strict=True) if not f.caught]
        self._last_bad: dict[int, int] = {}
        for i in bad:
            source = summary.lines[i].source
            self._last_bad[source] = max(self._last_bad.get(source, -1), i)
        self._pattern_lines = {s.index for s in summary.matches}
        self._steps: dict[Speaker, list[int]] = {}
        self._successes: dict[Speaker, list[int]] = {}
        self._last_info: dict[Speaker, int] = {}
        self._find_working_lines(min([*bad, *self._pattern_lines], default=len(summary.lines)))
        self._several = {line.source for line in summary.lines if line.place == "launcher" or line.rank is not None}
        self._several |= {s.line.source for s in summary.aftermath} | {end.source for end in summary.exits}
        self.failures = self._survived_exceptions()
        self.exits = {
            n for n, end in enumerate(summary.exits) if self._goes_on(exits[n], end.rank, end.source, 2, False)
        }
        self.consequences = {n for n, match in enumerate(summary.aftermath) if self._survives_report(match)}

    def _survives_report(self, match: PatternMatch) -> bool:
        """Whether a process goes on after a report of a failure elsewhere."""
        beside = self.summary.lines[match.index : match.index + 2]
        is_handled = any(says_handled(line.text) for line in beside)
        return self._goes_on(match.index, match.line.rank, match.line.source, 2, is_handled)

    def _find_working_lines(self, first: int) -> None:
        """The lines from an index on in which each process is seen at work, or ends well."""
        for i in range(first, len(self.summary.lines)):
            line = self.summary.lines[i]
            if line.level == "I" and not line.place and not is_shutdown_line(line):
                self._last_info[line.source, line.rank] = i
            is_step, is_success = self._classify_line(i)
            if is_step:
                self._steps.setdefault((line.source, line.rank), []).append(i)
            if is_success:
                self._successes.setdefault((line.source, line.rank), []).append(i)

    def _classify_line(self, index: int) -> tuple[bool, bool]:
        """Whether a line shows progress, and success; what is part of an exception, or matches a pattern, shows neither."""
        line = self.summary.lines[index]
        if index in self.inside or index in self._pattern_lines or line.place == "derived":
            return False, False
        return is_progress_line(line) and not is_shutdown_line(line), is_success_line(line)

    def _survived_exceptions(self) -> set[int]:
        """Exceptions after which their process went on; the links of a chain share the fate of the last."""
        failures = self.summary.failures
        outer = {f.after: n for n, f in enumerate(failures) if f.after is not None}
        found = set()
        for n in reversed(range(len(failures))):
            one = failures[n]
            if n in outer:
                survived = outer[n] in found
            else:
                steps, success = _needed_work(one, failures[exception_chain(failures, n)[0]])
                survived = self._goes_on(self._ends[n], one.rank, one.source, steps, success)
            if survived or one.caught:
                found.add(n)
        return found

    def works_after(self, match: PatternMatch) -> bool:
        """Whether the process of a match, or any where none is named, is seen at work after it."""
        source, rank = match.line.source, match.line.rank
        is_labelled = any(where == source and who is not None for where, who in (*self._steps, *self._successes))
        return self._counts_after(match.index, rank if is_labelled else None, source) != (0, 0)

    def works_on_after(self, match: PatternMatch) -> bool:
        """Whether so much work follows that even what nobody called a warning ended nothing."""
        return sum(self._counts_after(match.index, match.line.rank, match.line.source)) >= MIN_WORK

    def writes_after(self, match: PatternMatch) -> bool:
        """Whether the process of a match logs anything calmly after it."""
        return self._last_info.get((match.line.source, match.line.rank), -1) > match.index

    def steps_after(self, at: int) -> int:
        """Lines of progress after an index, in the same log."""
        return self._counts_after(at, None, self.summary.lines[at].source)[0]

    def _counts_after(self, at: int, rank: int | None, source: int) -> tuple[int, int]:
        """Lines of progress and of success after an index: of one rank, or of all."""
        counts = []
        for table in (self._steps, self._successes):
            rows = [lines for (where, who), lines in table.items() if where == source and rank in (None, who)]
            counts.append(sum(len(lines) - bisect_right(lines, at) for lines in rows))
        return counts[0], counts[1]

    def _goes_on(self, at: int, rank: int | None, source: int, needed: int, success_counts: bool) -> bool:
        """Whether enough work is seen after an index."""
        if rank is None and source in self._several:
            at = max(at, self._last_bad.get(source, -1))
        steps, successes = self._counts_after(at, rank, source)
        return steps >= needed or (success_counts and successes > 0)

    # -- health ---------------------------------------------------------------------------------------------

    def proves_health(self) -> bool:
        """Whether every process that tells anything of its end shows progress or a good end there, and no complaint after it."""
        lines = [
            (i, line)
            for i, line in enumerate(self.summary.lines)
            if line.text.strip() and line.place != "derived" and i not in self.inside
        ]
        spoken: dict[Speaker, list[int]] = {(line.source, line.rank): [] for _, line in lines}
        for (source, rank), own in spoken.items():
            own += [i for i, line in lines if line.source == source and (rank is None or line.rank in (None, rank))]
        ends = [self._last_word(speaker, own) for speaker, own in spoken.items()]
        return "well" in ends and "ill" not in ends

    def _last_word(self, speaker: Speaker, lines: Sequence[int]) -> str:
        """``well``, ``ill``, or nothing: what the end of a log tells, read backwards. Without a rank, all processes count."""
        left, seen, is_closed = MAX_AFTER_PROOF, 0, False
        for i in reversed(lines):
            line, (is_step, is_success) = self.summary.lines[i], self._classify_line(i)
            is_closed |= "Finished server process [" in line.text
            if is_closed and line.text.startswith("^C"):  # who stopped a server complains of nothing
                continue
            is_step = is_step or is_answer_line(line)
            seen += is_step
            if is_success or seen > 1:
                return "well"
            if is_step:
                continue
            if is_nan_line(line):
                return "ill"
            if line.rank == speaker[1] and is_complaint_line(line):
                # a logged error weighs more than one line of progress
                return "well" if seen and not line.level else "ill"
            left -= 1
            if left < 0 or (is_starting_line(line) and not is_closed):
                break
        return "well" if seen else ""


def _needed_work(last: LoggedException, first: LoggedException) -> tuple[int, bool]:
    """Lines of progress that show an exception survived, and whether one line of success does too."""
    if last.frames and last.frames[0].function == "<module>" and not first.handled:
        return 3, False  # whatever was logged before it: nothing of the main module catches it
    if first.handled or first.level in ("W", "I", "D"):
        return 1, True
    return 2, bool(first.level)
