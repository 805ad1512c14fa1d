"""What came first, as far as it can be known: within one stream by position, between streams by the launcher's report."""

from __future__ import annotations

from gpuready.diagnose.survival import Survival
from gpuready.logs.exits import blamed_in, named_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.diagnose import Suspect
    from gpuready.logs.exits import Exit
    from gpuready.logs.lines import Line
    from gpuready.logs.story import Sighting, Story
    from gpuready.logs.tracebacks import Failure

OWN = ("Error", "Exception", "Interrupt", "Exit")
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")
_ENVIRONMENT = ("ModuleNotFoundError", "ImportError", "OSError", "PermissionError", "ConnectionError", "OutOfMemoryError", "DistBackendError",
                "DistNetworkError", "DistStoreError", "ConnectionRefusedError", "TimeoutError", "AcceleratorError", "RayActorError")  # fmt: skip
"""Exceptions that are not necessarily the program's own fault."""


_DEVICE = ("cuda error", "cudnn error", "nccl error", "cublas error", "cuda runtime error", "hip error")


def _of_device(failure: Failure) -> bool:
    """Whether the GPU or its libraries raised it: then it is not assumed to be a bug of the program."""
    return failure.message[:200].lower().startswith(_DEVICE) or "CUDA error" in failure.message[:400]


class Order:
    """The order of events in one LogSummary."""

    def __init__(self, story: Story):
        self.story = story
        self._index = {(line.source, line.number): i for i, line in reversed(list(enumerate(story.lines)))}
        self._known = {s.failure for s in story.sightings if s.failure is not None}
        self._after = self._only_after()
        self.survived = Survival(story)
        self.firsts = [end for end in story.exits if end.first and not end.by_launcher]
        self.failed = self._failed()

    def _failed(self) -> bool:
        """Whether a process failed: an uncaught exception, a bad exit, or a consequence of one."""
        survived = self.survived
        died = [
            f
            for n, f in enumerate(self.story.failures)
            if n not in survived.failures and (f.type or len(f.frames) > 1)
        ]
        ends = [end for n, end in enumerate(self.story.exits) if end.code and n not in survived.exits]
        return bool(died or ends or len(survived.aftermath) < len(self.story.aftermath))

    def overcome(self, sighting: Sighting) -> bool:
        """Whether a pattern matched only in what no process ended by, while the run went on."""
        if sighting.failure is not None:
            return sighting.failure in self.survived.failures
        return not self.failed and self._warned(sighting)

    def lives_after(self, sighting: Sighting) -> bool:
        """Whether the log shows the run at work after a match: then a clue does not count."""
        return sighting.line.place != "derived" and self.survived.works_after(sighting)

    def _warned(self, sighting: Sighting) -> bool:
        """Whether it was only a warning, and its process went on."""
        line = sighting.line
        mild = (line.level in ("W", "I", "D") or "Warning: " in line.text[:400]) and not line.place
        if (
            "CUDA initialization: " in line.text[:600]
        ):  # the process may go on without a GPU: only progress counts
            return mild and self.survived.steps_after(sighting)
        return mild and self.survived.works_after(sighting)

    def _only_after(self) -> set[int]:
        """Exceptions whose own message is a consequence."""
        found = set()
        for sighting in self.story.aftermath:
            if (
                sighting.failure is not None
                and sighting.line.number >= self.story.failures[sighting.failure].at
            ):
                found.add(sighting.failure)
        for number, failure in enumerate(self.story.failures):
            if failure.short in _LAUNCHERS:
                found.add(number)
        return found

    def index(self, line: Line) -> int:
        """Index of a line, or of the line a derived one was concluded from."""
        return self._index.get((line.source, line.number), -10)

    def index_of(self, failure: Failure) -> int | None:
        return self._index.get(
            (failure.source, failure.at), self._index.get((failure.source, failure.number))
        )

    def place(self, sighting: Sighting) -> tuple[int, int]:
        """Where something was logged: exceptions that no process ended by come last."""
        failure = self.story.failures[sighting.failure] if sighting.failure is not None else None
        caught = sighting.failure in self.survived.failures if failure is not None else self._warned(sighting)
        return int(caught), self._told(sighting, failure)

    def _told(self, sighting: Sighting, failure: Failure | None) -> int:
        """Index of the exception's message, for text that already matched in the code of its traceback."""
        if failure is not None and sighting.line.number < failure.at and failure.type:
            return self.index_of(failure) or sighting.index
        at = self.index(sighting.line) if sighting.line.place == "derived" else sighting.index
        return at if at >= 0 else sighting.index

    def weight(self, suspect: Suspect) -> tuple[int, int, int, int, int]:
        """Sort key: root, symptom, unknown, clue; within one kind the first in the log, or the more specific."""
        grade = ("root", "symptom", "unknown", "clue").index(suspect.strength)
        if suspect.last is not None:
            return grade, 0, 0, suspect.last, 0
        if suspect.failure is not None:
            at = self.index_of(self.story.failures[suspect.failure])
            return grade, 0, self._apart(suspect), at if at is not None else 0, 0
        caught, at = self.place(suspect.seen[0])
        return grade, caught, self._apart(suspect), at, -suspect.seen[0].sign.conditions

    def _apart(self, suspect: Suspect) -> int:
        """Between streams: what the rank named by the launcher logged comes before what others logged."""
        if len(self.story.names) < 2 or not self.firsts:
            return 0
        ranks = {s.line.rank for s in suspect.seen}
        return 0 if any(end.rank in ranks for end in self.firsts) else 1

    def unexplained(self) -> int | None:
        """The first exception that no pattern matches and that is not a consequence."""
        for number, failure in enumerate(self.story.failures):
            if (
                number in self._known
                or number in self._after
                or number in self.survived.failures
                or not failure.type
            ):
                continue
            if failure.short in _ENVIRONMENT or not failure.short.endswith(OWN) or _of_device(failure):
                continue
            return number
        return None

    def last_words(self) -> int | None:
        """The error with which the first rank to fail, or the whole log, ends: logged without a traceback."""
        ranks = {end.rank for end in self.firsts} or {
            end.rank for end in self.story.exits if end.code and not end.by_launcher
        }
        told = [i for i, line in enumerate(self.story.lines) if line.text.strip() and line.place != "derived"]
        if ranks and ranks != {None}:
            told = [i for i in told if self.story.lines[i].rank in ranks]
        last = told[-1] if told else None
        return (
            last
            if last is not None
            and self.story.lines[last].level in ("E", "C")
            and not self.story.lines[last].place
            else None
        )

    # -- rank and host ----------------------------------------------------------------------------------------------

    def who(self, suspect: Suspect) -> tuple[int | None, str]:
        """The rank and host on which it happened first."""
        best = [s for s in suspect.seen if s.sign.strength == suspect.strength]
        seen = best if any(s.line.rank is not None for s in best) else list(suspect.seen)
        ranks = [s.line.rank for s in seen if s.line.rank is not None]
        if suspect.last is not None:
            line = self.story.lines[suspect.last]
            ranks, hosts = [line.rank] if line.rank is not None else [], [line.host]
        elif suspect.failure is not None:
            failure = self.story.failures[suspect.failure]
            ranks, hosts = [failure.rank] if failure.rank is not None else [], [failure.host]
        else:
            hosts = [s.line.host for s in seen if s.line.host]
        if (
            missed := next((r for s in seen if (r := blamed_in(s.line.words)) is not None), None)
        ) is not None:
            return missed, ""
        named = self._named(set(ranks))
        if named is not None:
            return named.rank, self._host(named)
        if ranks:
            return ranks[0], hosts[0] if hosts else ""
        lone = self._in_words(seen) if seen else None
        return self._lone() if lone is None else lone, hosts[0] if hosts else ""

    def _in_words(self, seen: list[Sighting]) -> int | None:
        """The rank a message names itself, or the command line above a dump of threads."""
        for sighting in seen:
            for words in (sighting.line.words, *self._message(sighting)):
                if (rank := named_in(words)) is not None:
                    return rank
            if (rank := self._unfinished(sighting)) is not None:
                return rank
            for line in reversed(self.story.lines[max(sighting.index - 40, 0) : sighting.index]):
                if line.text.startswith("Process ") and (rank := named_in(line.words)) is not None:
                    return rank
        return None

    def _message(self, sighting: Sighting) -> tuple[str, ...]:
        """The exception's final message, where a pattern matches in its frames."""
        failure = self.story.failures[sighting.failure] if sighting.failure is not None else None
        return (f"{failure.type}: {failure.message}",) if failure is not None else ()

    def _unfinished(self, sighting: Sighting) -> int | None:
        """The rank whose traceback ends without a message right before a line without a rank."""
        line = sighting.line
        for failure in self.story.failures:
            near = 0 < line.number - failure.last <= 2 and failure.source == line.source
            if near and failure.rank is not None and failure.frames and not failure.type:
                return failure.rank
        return None

    def _named(self, ranks: set[int]) -> Exit | None:
        """The launcher's first failure, if it is one of these ranks or they are unknown."""
        for end in self.firsts:
            if end.rank is not None and (not ranks or end.rank in ranks):
                return end
        return None

    def _host(self, end: Exit) -> str:
        return end.host if end.host != "localhost" else ""

    def _lone(self) -> int | None:
        """The only rank that failed by itself."""
        ranks = {end.rank for end in self.story.exits if end.code and not end.by_launcher}
        return ranks.pop() if len(ranks) == 1 else None
