"""What came first, as far as it can be known: within one stream by position, between streams by the launcher's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuready.diagnose.survival import SurvivalAnalysis
from gpuready.logs.log_lines import LogLine
from gpuready.logs.log_summary import LogSummary, PatternMatch, exception_chain
from gpuready.logs.logged_exception import LoggedException
from gpuready.logs.process_exits import ProcessExit, rank_blamed_in, rank_named_in, says_waited
from gpuready.logs.run_activity import is_complaint_line, says_replaced, says_skipped, states_error
from gpuready.model.record import Record, field


class CauseSuspect(Record):
    """One possible cause, with its matches in the order of their weight."""

    cause: str
    code: str
    strength: str  # root, symptom, unknown, clue, report
    seen: tuple[PatternMatch, ...] = ()
    failure: int | None = None  # an unrecognised exception
    captures: dict[str, str] = field(default_factory=dict)  # of an unrecognised exception


EXCEPTION_SUFFIXES = ("error", "exception", "interrupt", "exit")
_LAUNCHER_EXCEPTIONS = (
    "childfailederror", "calledprocesserror", "processraisedexception", "processexitedexception", "remotetraceback", "_remotetraceback",
    "exceptiongroup", "baseexceptiongroup",
)  # fmt: skip
_BUILDERS, _STOPPED_BUILDS = ("compiler::", "linker::", "cmake::"), ("ninja::stopped", "make::error")
_ENVIRONMENT_EXCEPTIONS = ("modulenotfounderror", "importerror", "oserror", "permissionerror", "connectionerror", "outofmemoryerror", "distbackenderror",
                "distnetworkerror", "diststoreerror", "connectionrefusederror", "timeouterror", "acceleratorerror", "rayactorerror")  # fmt: skip
"""Exceptions that are not necessarily the program's own fault."""


MAX_GAP, NEAR_END = 3, 12
"""Lines between a logged reason and the exception with which a program gives up, and those that may tell why it did."""
_DEVICE_ERRORS = ("cuda error", "cudnn error", "nccl error", "cublas error", "cuda runtime error", "hip error")


def _is_device_error(failure: LoggedException) -> bool:
    """Whether the GPU or its libraries raised it: then it is not assumed to be a bug of the program."""
    words = failure.message[:400].lower().replace("cuda errors", "")
    return words.startswith(_DEVICE_ERRORS) or "cuda error" in words


OWN_SIGNALS, ABORTED = (-11, 139, -7, 135, -9, 137, -4, 132), (-6, 134)
"""Signals by which a process ends before others wait for it, and SIGABRT, by which a watchdog ends its own."""


def _is_mild(line: LogLine) -> bool:
    """Whether a line is a warning or information."""
    return (line.level in ("W", "I", "D") or "Warning: " in line.text[:400]) and not line.place


def _is_of_gpu(line: LogLine) -> bool:
    return "CUDA initialization: " in line.text[:600]


class EventOrder:
    """The order of events in one LogSummary."""

    def __init__(self, summary: LogSummary):
        self.summary = summary
        self._index = {(line.source, line.number): i for i, line in reversed(list(enumerate(summary.lines)))}
        self._known = {s.failure for s in summary.matches if s.failure is not None}
        self._reports = {match.index for match in summary.aftermath}
        self._after = self._consequence_exceptions()
        self.survived = SurvivalAnalysis(summary)
        self.first_exits = [end for end in summary.exits if end.first and not end.ended_by_launcher]
        self.has_failed = self._run_failed()

    def _run_failed(self) -> bool:
        """Whether a process failed: an uncaught exception, a bad exit, or a consequence of one."""
        survived = self.survived
        died = [f for n, f in enumerate(self.summary.failures) if n not in survived.failures and (f.type or f.frames)]
        ends = [end for n, end in enumerate(self.summary.exits) if end.code and n not in survived.exits]
        return bool(died or ends or len(survived.consequences) < len(self.summary.aftermath))

    def was_survived(self, match: PatternMatch) -> bool:
        """Whether a pattern matched only in what no process ended by, while the run went on."""
        if match.failure is not None:
            return match.failure in self.survived.failures
        is_retried = "retrying" in match.line.text and self.is_alive_after(match)
        return is_retried or (not self.has_failed and self._is_survived_warning(match))

    def is_overcome(self, clue: PatternMatch) -> bool:
        """Whether the run went on after a clue, or the line says what is used in its place."""
        if not self.has_failed:
            return self.is_alive_after(clue)
        return clue.failure is None and says_replaced(clue.line.text)

    def is_note(self, match: PatternMatch) -> bool:
        """Whether a match is in what a logger calls information: never a cause; what NCCL says so may be, where no work follows."""
        if match.failure is not None or match.line.level not in ("I", "D") or match.sign.says.startswith("stated:"):
            return False
        return match.line.place != "nccl" or self.is_alive_after(match)

    def is_alive_after(self, match: PatternMatch) -> bool:
        """Whether the log shows the run at work after a match: then a clue does not count."""
        return match.line.place != "derived" and self.survived.works_after(match)

    def is_echo(self, suspect: CauseSuspect, others: Sequence[CauseSuspect]) -> bool:
        """Whether only watchdogs and launchers tell of it, and only after a process ended by itself, or after another suspect."""
        if not suspect.seen or any(self.line_index(m.line) not in self._reports for m in suspect.seen):
            return False
        at, source = min((self.line_index(m.line), m.line.source) for m in suspect.seen)
        before = {
            (self.line_index(m.line), m.line.source) for other in others for m in other.seen if other is not suspect
        }
        before = {place for place in before if place[0] not in self._reports}
        is_wait = all(says_waited(match.line.folded_text) for match in suspect.seen)
        if is_wait and self._failed_by_itself({match.line.rank for match in suspect.seen}):
            return True
        return any(end < at and where == source for end, where in (*self._own_ends(is_wait), *before))

    def _failed_by_itself(self, waited: set[int | None]) -> bool:
        """Whether the first to fail was another rank than those that waited, and no watchdog aborted it."""
        ends = (end for end in self.first_exits if end.rank is not None and end.code not in (None, 0, *ABORTED))
        return any(end.rank not in waited for end in ends)

    def tells_end(self, suspect: CauseSuspect, by_itself: bool = False) -> bool:
        """Whether a suspect is of an exception that ended a process, or (not ``by_itself``) of what was written before it; true where there is none."""
        failures = self.summary.failures
        ends = [n for n in range(len(failures)) if self._ended_process(n)]
        chains = {link for n in ends for link in exception_chain(failures, n)}
        if not ends or suspect.failure in chains:
            return True
        mere = ("",) if suspect.strength != "clue" else ("", "launcher")
        by_itself = by_itself and any(failures[n].frames for n in ends)  # else the end is a bare line, of who gives up
        return any(
            m.failure in chains or m.line.place not in mere or (not by_itself and self._is_before_end(m, ends))
            for m in suspect.seen
        )

    def ends_otherwise(self, seen: Sequence[PatternMatch]) -> bool:
        """Whether a process ended by an exception with its stack that a program did not raise because of what it logged."""
        ends = (n for n, failure in enumerate(self.summary.failures) if failure.frames and self._ended_process(n))
        return any(not self.is_raised_after(n, seen) for n in ends)

    def is_beside_end(self, suspect: CauseSuspect) -> bool:
        """Whether a suspect is told by lines of a program alone, and by no exception, NCCL, kernel or launcher."""
        is_of_program = (m.failure is None and not m.line.place and not _is_of_gpu(m.line) for m in suspect.seen)
        return bool(suspect.seen) and all(is_of_program)

    def _is_before_end(self, match: PatternMatch, ends: Sequence[int]) -> bool:
        """Whether a match is of a compiler, or in one of the last lines before an exception of the same process."""
        line, failures = match.line, self.summary.failures
        if match.failure is not None:
            return "::" in failures[match.failure].type
        gaps = (failures[n].number - line.number for n in ends if failures[n].source == line.source)
        return not _is_mild(line) and any(0 < gap <= NEAR_END for gap in gaps)

    def _ended_process(self, number: int) -> bool:
        """Whether an exception ended a process, and follows from no other."""
        survived = number in self.survived.failures
        return bool(self.summary.failures[number].type) and number not in self._after and not survived

    def _own_ends(self, is_any: bool) -> Iterator[tuple[int, int]]:
        """Index and source of each exception and signal that ended a process and follows from no other; ``is_any``: of all that complains."""
        for number, failure in enumerate(self.summary.failures):
            if self._ended_process(number) or (is_any and number not in self.survived.failures):
                yield self.exception_index(failure) or failure.last, failure.source
        for at, line in enumerate(self.summary.lines):
            is_complaint = is_any and is_complaint_line(line) and not self.survived.steps_after(at)
            is_error = is_complaint or line.level in ("E", "C", "F")
            if is_error and not line.place and "ProcessGroup" not in line.raw and (is_any or at not in self._reports):
                yield at, line.source
        for number, end in enumerate(self.summary.exits):
            if end.code in OWN_SIGNALS and number not in self.survived.exits:
                yield self._index.get((end.source, end.number), 0), end.source

    def _is_calm(self, match: PatternMatch) -> bool:
        """Whether a match tells less than an error: a warning after which its process wrote on, or a clue in words that complain of nothing."""
        line = match.line
        if _is_mild(line) and (self.survived.works_after(match) or self.survived.writes_after(match)):
            return True
        is_note = match.sign.strength == "clue" and not line.place and not states_error(line)
        return is_note and not is_complaint_line(line)

    def is_mere_report(self, match: PatternMatch, first: int, last: int) -> bool:
        """Whether it is a warning before the last of the fatal exceptions, or a launcher's line after the first: it ended what was left.

        A warning about the GPU itself is none.
        """
        line = match.line
        is_launcher = line.place == "launcher" and "CANCELLED AT" in line.text and "TIME LIMIT" not in line.text
        mild = _is_mild(line) or (says_skipped(line.text) and not line.place)
        is_warning = mild and match.failure is None and not _is_of_gpu(line) and match.index < last
        return is_warning or (is_launcher and match.index > first)

    def fatal_index(self, suspect: CauseSuspect) -> int:
        """Index of the exception that a suspect is of and that a process ended by; -1 where there is none. A clue counts in a message of Python."""
        failures = self.summary.failures
        numbers = {suspect.failure, *(match.failure for match in suspect.seen if self._tells_end(match))}
        ends = [failures[n] for n in numbers if n is not None and n not in self.survived.failures]
        return max((self.exception_index(failure) or -1 for failure in ends), default=-1)

    def _tells_end(self, match: PatternMatch) -> bool:
        """Whether a match in an exception says what it ended by; a clue does so in the message of a Python exception."""
        failure = self.summary.failures[match.failure] if match.failure is not None else None
        is_message = failure is not None and 0 <= match.line.number - failure.at <= 1
        is_finished = failure is not None and bool(failure.type) and "::" not in failure.type
        return failure is not None and (match.sign.strength != "clue" or (is_message and is_finished))

    def _is_survived_warning(self, match: PatternMatch) -> bool:
        """Whether it was only a warning, and its process went on; without a GPU it may, so then only progress counts."""
        line = match.line
        if _is_of_gpu(line):
            return _is_mild(line) and self.survived.steps_after(match.index) > 1
        if not line.level and line.place in ("", "launcher"):
            return self.survived.works_on_after(match)
        return _is_mild(line) and self.survived.works_after(match)

    def _consequence_exceptions(self) -> set[int]:
        """Exceptions whose own message is a consequence."""
        found = set()
        for match in self.summary.aftermath:
            if match.failure is not None and match.line.number >= self.summary.failures[match.failure].at:
                found.add(match.failure)
        retold = {(match.line.source, match.line.number - 1) for match in self.summary.aftermath}
        for number, failure in enumerate(self.summary.failures):
            is_aborted = (
                failure.type.startswith("c10::") and (failure.source, failure.last) in retold
            )  # its ``what():``
            told = any(match.index < (self.exception_index(failure) or 0) for match in self.summary.aftermath)
            is_aborted |= told and failure.type == "python::fatal" and failure.message.startswith("Aborted")
            later = self.summary.failures[number + 1 : number + 2]
            is_copy = failure.message.startswith("Caught ") and any(f.short_type == failure.short_type for f in later)
            is_of_ray = failure.type.partition("(")[0].lower().endswith("raytaskerror")
            is_stopped = failure.type in _STOPPED_BUILDS or failure.message.startswith("Error compiling objects for")
            is_stopped &= any(f.type.startswith(_BUILDERS) for f in self.summary.failures[:number])
            if failure.short_type.lower() in _LAUNCHER_EXCEPTIONS or is_of_ray or is_copy or is_aborted or is_stopped:
                found.add(number)
        return found

    def is_consequence(self, number: int) -> bool:
        """Whether an exception only reports what another process or exception did."""
        return number in self._after

    def is_own_complaint(self, at: int) -> bool:
        """Whether a line complains by itself: it is of no exception, and no watchdog, launcher or NCCL reports in it."""
        line = self.summary.lines[at]
        is_report = line.place or at in self._reports or at in self.survived.inside or "ProcessGroup" in line.raw
        return is_complaint_line(line) and not is_report

    def last_own_complaint(self) -> int | None:
        """The last line before the first watchdog or launcher's report that complains by itself."""
        survived, reports = self.survived.consequences, enumerate(self.summary.aftermath)
        first = min((match.index for n, match in reports if n not in survived), default=0)
        return next((i for i in reversed(range(first)) if self.is_own_complaint(i)), None)

    def line_index(self, line: LogLine) -> int:
        """Index of a line, or of the line a derived one was concluded from."""
        return self._index.get((line.source, line.number), -10)

    def exception_index(self, failure: LoggedException) -> int | None:
        return self._index.get((failure.source, failure.at), self._index.get((failure.source, failure.number)))

    def match_position(self, match: PatternMatch) -> tuple[int, int]:
        """Where something was logged: exceptions that no process ended by come last."""
        failure = self.summary.failures[match.failure] if match.failure is not None else None
        caught = match.failure in self.survived.failures if failure is not None else self._is_calm(match)
        superseded = failure is not None and failure.superseded
        return int(caught or superseded), self._message_index(match, failure)

    def _message_index(self, match: PatternMatch, failure: LoggedException | None) -> int:
        """Index of the exception's message, for text that already matched in the code of its traceback."""
        if failure is not None and match.line.number < failure.at and failure.type:
            return self.exception_index(failure) or match.index
        at = self.line_index(match.line) if match.line.place == "derived" else match.index
        return at if at >= 0 else match.index

    def suspect_weight(self, suspect: CauseSuspect) -> tuple[int, int, int, int, int]:
        """Sort key: root, symptom, unknown, clue, report; within one kind the first in the log, or the more specific."""
        grade = ("root", "symptom", "unknown", "clue", "report").index(suspect.strength)
        if suspect.failure is not None:
            at = self.exception_index(self.summary.failures[suspect.failure])
            return grade, 0, self._rank_penalty(suspect), at if at is not None else 0, 0
        caught, at = self.match_position(suspect.seen[0])
        return grade, caught, self._rank_penalty(suspect), at, -suspect.seen[0].sign.specificity

    def _rank_penalty(self, suspect: CauseSuspect) -> int:
        """Between streams: what the rank named by the launcher logged comes before what others logged."""
        if len(self.summary.names) < 2 or not self.first_exits:
            return 0
        ranks = {s.line.rank for s in suspect.seen}
        return 0 if any(end.rank in ranks for end in self.first_exits) else 1

    def unexplained_exceptions(self) -> Iterator[int]:
        """The exceptions that no pattern matches and that are no consequence, in the order of the log."""
        for number, failure in sorted(enumerate(self.summary.failures), key=lambda one: one[1].superseded):
            skipped = number in self._known or number in self._after or number in self.survived.failures
            if failure.type and not skipped:
                yield number

    def is_raised_after(self, number: int, seen: Sequence[PatternMatch]) -> bool:
        """Whether a program gives up by a ``raise`` of its own, or by an ``assert`` without words, right after what it logged: that is the reason."""
        failure = self.summary.failures[number]
        frame = failure.frames[-1] if failure.frames else None
        is_raised = frame is not None and frame.code.startswith("raise ") and not frame.is_library
        is_raised |= frame is not None and frame.code.startswith("assert ") and not failure.message
        gaps = (failure.number - m.line.number for m in seen if m.failure is None and m.line.source == failure.source)
        return is_raised and any(0 < gap <= MAX_GAP for gap in gaps)

    def may_be_environment(self, number: int) -> bool:
        """Whether an exception's type or message says that it may not be the program's own fault."""
        failure = self.summary.failures[number]
        name = failure.short_type.lower()
        is_error = name.endswith(EXCEPTION_SUFFIXES)
        return name in _ENVIRONMENT_EXCEPTIONS or not is_error or _is_device_error(failure)

    # -- rank and host ----------------------------------------------------------------------------------------------

    def locate_suspect(self, suspect: CauseSuspect) -> tuple[int | None, str]:
        """The rank and host on which it happened first."""
        best = [s for s in suspect.seen if s.sign.strength == suspect.strength]
        matches = best if any(s.line.rank is not None for s in best) else list(suspect.seen)
        ranks = [s.line.rank for s in matches if s.line.rank is not None]
        if suspect.failure is not None:
            failure = self.summary.failures[suspect.failure]
            ranks, hosts = [failure.rank] if failure.rank is not None else [], [failure.host]
        else:
            hosts = [s.line.host for s in matches if s.line.host]
        if (
            blamed := next((r for s in matches if (r := rank_blamed_in(s.line.folded_text)) is not None), None)
        ) is not None:
            return blamed, ""
        if (awaited := self._rank_waited_for(matches)) is not None:
            return awaited, ""
        named_exit = self._launcher_named_exit(set(ranks))
        if named_exit is not None:
            return named_exit.rank, named_exit.host if named_exit.host != "localhost" else ""
        if ranks:
            return ranks[0], hosts[0] if hosts else ""
        lone = self._rank_in_message(matches) if matches else None
        return self._only_failed_rank() if lone is None else lone, hosts[0] if hosts else ""

    def _rank_waited_for(self, matches: list[PatternMatch]) -> int | None:
        """The only rank that did not give up waiting, and wrote on while all the others did."""
        waited = {m.line.rank for m in matches if m.line.rank is not None and says_waited(m.line.folded_text)}
        others = {line.rank for line in self.summary.lines if line.rank is not None} - waited
        if not waited or len(others) != 1:
            return None
        rank, first = others.pop(), min(m.index for m in matches if m.line.rank in waited)
        failed = any(f.rank == rank and f.type for f in self.summary.failures)
        writes = any(line.rank == rank and line.text.strip() for line in self.summary.lines[first:])
        return rank if writes and not failed else None

    def _rank_in_message(self, matches: list[PatternMatch]) -> int | None:
        """The rank a message names itself, or the command line above a dump of threads."""
        for match in matches:
            own = [self.summary.failures[match.failure]] if match.failure is not None else []
            codes = [frame.code for failure in own for frame in failure.frames if "init_process_group(" in frame.code]
            for words in (match.line.folded_text, *(f"{failure.type}: {failure.message}" for failure in own), *codes):
                if (rank := rank_named_in(words)) is not None:
                    return rank
            if (rank := self._rank_of_unfinished(match)) is not None:
                return rank
            for line in reversed(self.summary.lines[max(match.index - 40, 0) : match.index]):
                if line.text.startswith("Process ") and (rank := rank_named_in(line.folded_text)) is not None:
                    return rank
        return None

    def _rank_of_unfinished(self, match: PatternMatch) -> int | None:
        """The rank whose traceback ends without a message right before a line without a rank."""
        line = match.line
        for failure in self.summary.failures:
            near = 0 < line.number - failure.last <= 2 and failure.source == line.source
            if near and failure.rank is not None and failure.frames and not failure.type:
                return failure.rank
        return None

    def _launcher_named_exit(self, ranks: set[int]) -> ProcessExit | None:
        """The launcher's first failure, if it is one of these ranks or they are unknown."""
        for end in self.first_exits:
            if end.rank is not None and (not ranks or end.rank in ranks):
                return end
        return None

    def _only_failed_rank(self) -> int | None:
        """The only rank that failed by itself."""
        ranks = {end.rank for end in self.summary.exits if end.code and not end.ended_by_launcher}
        return ranks.pop() if len(ranks) == 1 else None
