"""What was received from each rank, in order of receipt: the nodes' clocks may differ."""

import json
import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from gpuready.launcher import rank_votes
from gpuready.model.last_error import last_error_line
from gpuready.model.run import RankEnd
from gpuready.system.redaction.lines import LineRedactor

TAIL_LINES, MAX_LINE, LONGEST_LINE = 120, 4096, 32 << 20
"""Lines kept of each rank, and how much of each; and the longest that is kept whole until its end comes."""
TIE_SECONDS = 0.02
"""Ends received within this many seconds are tied."""
CRASH_SIGNALS = (4, 6, 7, 8, 11)
"""Signals by which a process ends itself; its peers may notice before the kernel has removed it."""
_JOINED = re.compile(r"\b(\d+)/(\d+) clients joined")
STAND_BEATS, BEATS_KEPT = 3, 40
"""Beats from which on a state is told, and beats kept, one a second."""

NOTICE_SECONDS = 0.5
"""A rank that left may be seen to end so much later than its peers fail: they notice when the kernel closes its connections."""
LEAST_WAIT = 2.0
"""A rank that stood in a collective for so many seconds waited for another one."""
LEAST_PAUSE = 5.0
"""A rank that stood still for so many seconds and went on has paused: for a checkpoint, an evaluation, a compilation."""

_OWN_CONNECTION = (
    "ConnectionResetError",
    "BrokenPipeError",
    "ConnectionAbortedError",
    "requests.",
    "urllib3.",
    "http.client.",
)
"""Errors of connections that are the program's own: torch raises others for those between ranks."""
_MEETS = "/torch/distributed/rendezvous.py"
_OWN_PATH = "/gpuready/launcher/"
_TRACEBACK_STARTS = ("Traceback (most recent call last)", "Fatal Python error", "terminate called after throwing")


class Beat:
    """What an agent saw of a rank in one second; ages are in seconds."""

    __slots__ = ("at", "born", "failed", "in_collective", "late", "polls", "ran", "roamed", "seconds", "state", "still")

    def __init__(self, at: float, row: list[Any]):
        self.at, self.state, self.seconds, self.late = at, str(row[0]), float(row[1]), row[2]
        numbers: list[float] = [*row[3:10], *[0.0] * 7]
        self.still, self.ran, self.roamed, self.in_collective, self.born, self.failed, self.polls = numbers[:7]

    @property
    def stuck(self) -> float:
        """For how long it has stood still, or has spun without running any Python."""
        return max(self.still, self.ran)

    @property
    def idle(self) -> float:
        """For how long it has stood still, or has stayed in the same functions."""
        return max(self.still, self.roamed)


class RankState:
    """One rank as seen by the supervisor."""

    def __init__(self, rank: int):
        self.rank, self.host, self.pid = rank, "", 0
        self.started: float | None = None
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.partial, self.line_filter = "", LineRedactor()
        self.last_output: float = 0.0
        self.beats: deque[Beat] = deque(maxlen=BEATS_KEPT + 1)
        self.stack: list[str] = []
        self.children: list[dict[str, Any]] = []
        self.kernel_waits: list[str] = []
        self.stood = ""  # in state D or T when it was asked to stop
        self.call = ""  # its collective, with the shapes of its tensors
        self.waits = self.tracer = ""  # standard input, or who holds a file lock; and the debugger that stops it
        self.polled = ""  # the file at which it looks again and again
        self.prefix = ""  # what a logger writes before each line of a traceback
        self.traceback_began: tuple[int, float] | None = None  # when its last traceback began
        self.script_failed: tuple[int, float] | None = None  # when its script failed: Python may need seconds to exit
        self.script_ended: float | None = None  # when its script ended, well or not
        self.paths: list[list[str]] = [
            [],
            [],
            [],
        ]  # its sys.path when its script failed, and at the start; and its folder
        self.end: RankEnd | None = None

    @property
    def is_alive(self) -> bool:
        return self.started is not None and self.end is None

    def strip_prefix(self, line: str) -> str:
        """Leave out what a logger writes before each line of a traceback; its digits may differ from line to line."""
        found = _LOGGED.match(line) if _TRACEBACK_STARTS[0] in line else None
        self.prefix = re.sub(r"\d", "0", found[1]) if found else self.prefix
        size = len(self.prefix)
        return line[size:] if size and re.sub(r"\d", "0", line[:size]) == self.prefix else line

    def describe_stand(self) -> str:
        """Say that it is stopped or in uninterruptible sleep; empty where it was not for the last beats."""
        states = {beat.state for beat in list(self.beats)[-STAND_BEATS:]}
        words = {"D": "in uninterruptible sleep", "T": "stopped"}.get("".join(states), "")
        waits = next((f", in {name}" for name in self.kernel_waits if name), "")
        return f"{words} (state {states.pop()}{waits})" if words and len(self.beats) >= STAND_BEATS else ""


_LOGGED = re.compile(r"(.*[\])}:|>-]\s*)Traceback")
"""``[2026-11-19 10:00:00][worker][ERROR] Traceback (most recent call last):``"""


def _read_paths(text: str) -> list[list[str]]:
    """Three lists of folders; none where the script has written into our pipe."""
    try:
        found = [[str(path) for path in paths] for paths in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []
    return found if len(found) == 3 else []


def _unfold_json(line: str) -> list[str]:
    """The traceback in a logger's line of JSON, line by line; any other line as it is."""
    if not (line.startswith("{") and _TRACEBACK_STARTS[0] in line):
        return [line]
    try:
        values = [value for value in json.loads(line).values() if isinstance(value, str)]
    except (ValueError, RecursionError):
        return [line]
    return next((value.splitlines() for value in values if _TRACEBACK_STARTS[0] in value), [line])


class RankLedger:
    """All ranks, and the count of received messages."""

    def __init__(self, ranks: Iterable[int], started: float, world: int = 0, store: tuple[str, int] = ("", 0)):
        self.ranks = {rank: RankState(rank) for rank in ranks}
        self.world, self.store = world, store  # how many ranks, and where rank 0 is to listen; 0: not known here
        self._unreached: tuple[int, set[tuple[str, int]]] = (-1, set())  # as of the count of messages
        self.started, self.order = started, 0
        self.ended_at: dict[int, float] = {}
        self.stopping = False
        self.suspects: list[int] = []  # still there when all others had lost a peer
        self.pauses: list[float] = []  # how long ranks stood still before they went on

    def record_message(self, message: dict[str, Any], now: float) -> tuple[int, list[str]]:
        """Record one message; return its rank and the lines that it completes."""
        self.order += 1
        kind = message["t"]
        if kind == "beat":
            for rank, *row in message["d"]:
                if rank in self.ranks:
                    beat, beats = Beat(now, row), self.ranks[rank].beats
                    if beats and beats[-1].stuck >= LEAST_PAUSE and beat.stuck < beats[-1].stuck:
                        self.pauses = [*self.pauses[-63:], beats[-1].stuck]
                    beats.append(beat)
            return -1, []
        state = self.ranks.get(message.get("r", -1))
        if state is None:
            return -1, []
        if kind == "born":
            state.started, state.pid, state.host, state.last_output = (now, message["pid"], message["host"], now)
        elif kind == "out":
            return state.rank, self._record_output(state, message["d"], now)
        elif kind == "stack":
            state.stack = [line for line in message["d"] if _OWN_PATH not in line] or state.stack
            state.children, state.kernel_waits = message.get("children") or [], message.get("kernel") or []
            state.waits, state.tracer = str(message.get("waits") or ""), str(message.get("tracer") or "")
            state.polled = ""
        elif kind == "file":
            state.polled = str(message["d"])
        elif kind == "call":
            state.call = str(message["d"]) or state.call
        elif kind == "paths":
            state.paths = _read_paths(message["d"]) or state.paths
        elif kind == "leaving":
            state.script_failed = None if message.get("done") else (self.order, now)
            state.script_ended = now
        elif kind == "end":
            return state.rank, self._record_end(state, message, now)
        return state.rank, []

    def _record_output(self, state: RankState, text: str, now: float) -> list[str]:
        state.last_output = now
        *lines, state.partial = (state.partial + text).split("\n")
        if len(state.partial) > LONGEST_LINE:
            lines.append(state.partial)
            state.partial = ""
        lines = [line for line in lines if not (line.startswith("  File ") and _OWN_PATH in line)]
        lines = state.line_filter.redact_block(lines)
        self._record_lines(state, lines, now)
        return lines

    def _record_lines(self, state: RankState, lines: list[str], now: float) -> None:
        lines = [state.strip_prefix(plain) for line in lines[-TAIL_LINES:] for plain in _unfold_json(line)]
        state.tail.extend(line[:MAX_LINE] for line in lines)
        block = "\n".join(lines)
        if any(words in block for words in _TRACEBACK_STARTS) and any(
            words in line[:120] for line in lines for words in _TRACEBACK_STARTS
        ):
            state.traceback_began = (self.order, now)

    def _record_end(self, state: RankState, message: dict[str, Any], now: float) -> list[str]:
        rest = [state.line_filter(state.partial)] if state.partial else []
        error = str(message.get("error") or "").splitlines()
        if error and not any(error[-1] in line for line in (*state.tail, *rest)):
            rest += state.line_filter.redact_block(error)
        self._record_lines(state, rest, now)
        state.partial = ""
        failed = any(other.end is not None and other.end.failed for other in self.ranks.values())
        self.ended_at[state.rank] = now
        state.end = RankEnd(
            rank=state.rank,
            host=state.host,
            pid=state.pid,
            code=message["code"],
            signal=message["signal"],
            order=self.order,
            seconds=round(now - self.started, 3),
            oom=message.get("oom"),
            memory_kills=message.get("memory_kills"),
            shm_free=message.get("shm_free"),
            limits=message.get("limits") or {},
            full=tuple(message.get("full") or ()),
            folder=str(message.get("folder") or ""),
            errors=str(message.get("errors") or ""),
            done=bool(message.get("done")),
            lost=bool(message.get("lost")),
            stood=(state.stood or state.describe_stand()) if self.stopping else "",
            stopped=self.stopping or (failed and message["signal"] in (15, 9, 2)),  # or by the engine
            last=tuple(state.tail),
            call=state.call,
        )
        return rest

    # -- results ----------------------------------------------------------------------------------------

    def list_ends(self) -> tuple[RankEnd, ...]:
        ends = [state.end.replace(stack=tuple(state.stack[-40:])) for state in self.ranks.values() if state.end]
        return tuple(sorted(ends, key=lambda end: end.order))

    def list_failed_ends(self) -> list[RankEnd]:
        return [end for end in self.list_ends() if end.failed]

    def list_failures(self) -> list[RankEnd]:
        """The ranks that have failed, and those whose script has: Python may need seconds to exit. A traceback alone may be survived."""
        programs = [
            s for s in self.living_ranks() if not s.beats or s.beats[-1].late is None
        ]  # that tell no end by a beat
        leaving = [s for s in self.living_ranks() if s.script_failed or (s.traceback_began and s in programs)]
        ends = [RankEnd(s.rank, s.host, s.pid, 1, last=tuple(s.tail)) for s in leaving]
        since = [round(self._first_failure_sign(end)[1] - self.started, 3) for end in ends]
        return [*self.list_failed_ends(), *(end.replace(seconds=at) for end, at in zip(ends, since, strict=True))]

    def first_failed_ranks(self, failures: list[RankEnd] | None = None) -> tuple[int, ...]:
        """Return the ranks that failed first, several if they are tied.

        A failure counts from the end of the script, else the last traceback, else the end of the process: a
        rank may need seconds to exit from what ends the others at once. If all that failed only lost a peer, the peer is
        one that left before them, or one that was still there; if each gave up waiting for the others, it is none.
        """
        failed = self.list_failed_ends() if failures is None else failures
        own = [end for end in failed if not end.stopped or self.ranks[end.rank].script_failed] or failed
        causes = [end for end in own if not self.lost_its_peer(end)]
        if own and not causes:
            alike = all(self.gave_up_waiting([end]) for end in own) or (
                len(own) == len(self.ranks) and self.gave_up_waiting(own)
            )  # who gave up first is chance
            return (
                ((0,) if self._find_unreached() else ())
                or self._find_absent(own)
                or self._find_lost_peer(own)
                or self._find_different()
                or (tuple(self.ranks) if alike else self._first_of(own))
            )
        if rank_votes.find_size_mismatch(causes):
            if different := self._find_different():
                return different
            return tuple(sorted(self.ranks, key=lambda rank: rank not in {end.rank for end in causes}))
        signs = {end.rank: self._first_failure_sign(end)[1] for end in causes}
        victims = [s.rank for s in self.ranks.values() if rank_votes.is_victim(s.tail, s.stack)]
        odd = rank_votes.find_odd_ranks(causes, signs, len(self.ranks), victims)
        return odd if odd and set(odd) <= set(self.ranks) else self._first_of(causes)

    def _find_different(self) -> tuple[int, ...]:
        """Return the one rank whose collective or output is another than that of all others, stopped ones included."""
        ends = [RankEnd(state.rank, last=tuple(state.tail), call=state.call) for state in self.ranks.values()]
        difference = rank_votes.find_difference(ends, len(self.ranks))
        return (difference[0],) if difference else ()

    def _find_unreached(self) -> set[tuple[str, int]]:
        """The addresses at which ranks found nobody: the one that all were given, and one that several of them took."""
        if self.store[1] and self._unreached[0] != self.order:
            states = [state for state in self.ranks.values() if state.rank]
            # Who stands elsewhere has come through, unless it has failed.
            calls = [s for s in states if not s.stack or _MEETS in "".join(s.stack) or last_error_line(s.tail)]
            others = [RankEnd(state.rank, last=tuple(state.tail)) for state in calls]
            called = Counter(at for end in others if (at := rank_votes.find_unreached_store(end)))
            self._unreached = self.order, {at for at, ranks in called.items() if at == self.store or ranks > 1}
        return self._unreached[1]

    def _find_absent(self, gave_up: list[RankEnd]) -> tuple[int, ...]:
        """Return the ranks that did not join, where the store has counted those that did: ``2/3 clients joined``."""
        counts = {m.groups() for end in gave_up for line in end.last[-20:] if (m := _JOINED.search(line))}
        absent = tuple(sorted(set(self.ranks) - {end.rank for end in gave_up}))
        return absent if absent and counts == {(str(len(gave_up)), str(len(self.ranks)))} else ()

    def _find_lost_peer(self, victims: list[RankEnd]) -> tuple[int, ...]:
        """Return the rank that left with 0 before the others failed, else the one that was still there."""
        failed_at = min(self._first_failure_sign(end)[1] for end in victims)
        early = [end.rank for end in self.list_ends() if end.left_early]
        # Python may need seconds to exit after its script, in which its connections close.
        left = {rank: self.ranks[rank].script_ended or self.ended_at[rank] for rank in early}
        before = [rank for rank, at in left.items() if at <= failed_at + NOTICE_SECONDS]
        if 2 * len(before) > len(self.ranks):
            return tuple(end.rank for end in victims)  # most had done their work: these go on, and differ
        return (max(before, key=lambda rank: left[rank]),) if before else tuple(self.suspects[:1])

    def _first_of(self, ends: list[RankEnd]) -> tuple[int, ...]:
        if not ends:
            return ()
        signs = {end.rank: self._first_failure_sign(end) for end in ends}
        at = min(signs.values())[1]
        tied = [rank for rank, (_, when) in signs.items() if when - at <= TIE_SECONDS]
        clear = min(signs, key=lambda rank: signs[rank][0])
        return tuple(sorted(tied)) if self._are_tied(tied) else (clear,)

    def only_victims_failed(self) -> bool:
        """Whether all failures so far are of ranks that lost a peer, and none that ended explains it."""
        ends, failed = self.list_ends(), self.list_failures()
        left = any(state.script_ended is not None and state.script_failed is None for state in self.ranks.values())
        return bool(failed) and all(e.failed for e in ends) and not left and all(map(self.lost_its_peer, failed))

    def waits_for_one_that_left(self) -> bool:
        """Whether all failures are of ranks that lost a peer, and one whose script has ended well has not exited yet."""
        exits = [s for s in self.living_ranks() if s.script_ended is not None and s.script_failed is None]
        return bool(exits) and all(map(self.lost_its_peer, self.list_failures()))

    def lost_its_peer(self, end: RankEnd | RankState) -> bool:
        """Whether the rank's last lines say that it lost a peer, and not that it took another number or address than it was given."""
        lines = end.last if isinstance(end, RankEnd) else tuple(end.tail)
        own = RankEnd(end.rank, last=lines)
        if rank_votes.find_unreached_store(own) in self._find_unreached():
            return True
        if rank_votes.find_other_numbers(own, self.world) or rank_votes.find_other_address(own, *self.store):
            return False
        if last_error_line(lines).startswith(_OWN_CONNECTION):
            return False
        return any(
            words in line
            for line in lines[-20:]
            for words in (*rank_votes.LOST_PEER_PHRASES, *rank_votes.GAVE_UP_PHRASES)
        ) or self._waited_for_one(own)

    def _waited_for_one(self, end: RankEnd) -> bool:
        """Whether its own watchdog gave up while of those that are well one alone is elsewhere: where it stood, or as several do."""
        state, late = self.ranks[end.rank], rank_votes.speaks_of_waiting(end.last)
        # The last beat may be of a process that is ending, and shows nothing.
        stood = any(beat.in_collective and beat.stuck >= LEAST_WAIT for beat in list(state.beats)[-2:])
        if not (stood and (late or not last_error_line(end.last))):
            alike = [s for s in self.ranks.values() if s.script_failed and rank_votes.speaks_of_waiting(s.tail)]
            if not late or len(alike) < 2 or not rank_votes.raised_by_itself(end.last):
                return False
        well = [
            s for s in self.ranks.values() if s is not state and not s.script_failed and (not s.end or s.end.stopped)
        ]
        return sum(bool(s.stack) and not rank_votes.is_victim(s.tail, s.stack) for s in well) == 1

    def gave_up_waiting(self, failures: list[RankEnd] | None = None) -> bool:
        """Whether a rank failed because a peer did not come in time."""
        ends = self.list_failed_ends() if failures is None else failures
        unreached = any(rank_votes.find_unreached_store(end) or self._waited_for_one(end) for end in ends)
        return unreached or any(
            words in line for end in ends for line in end.last[-20:] for words in rank_votes.GAVE_UP_PHRASES
        )

    def _are_tied(self, tied: list[int]) -> bool:
        """Whether ranks failed together and alike: a death by signal precedes its effects on others."""
        signals = [r for r in tied if (end := self.ranks[r].end) is not None and end.signal]
        return len(tied) > 1 and len(signals) in (0, len(tied))

    def _first_failure_sign(self, end: RankEnd) -> tuple[int, float]:
        state = self.ranks[end.rank]
        announced = state.script_failed or state.traceback_began
        spoke = not end.signal or end.signal in CRASH_SIGNALS  # a crash is announced before the process is gone
        return announced if announced is not None and spoke else (end.order, self.ended_at[end.rank])

    def count_node_ranks(self, now: float) -> list[tuple[str, int, int, int, float]]:
        """For each node: its name, its ranks, those that live and those on a processor, and for how long none has written."""
        nodes: dict[str, list[RankState]] = {}
        for state in self.ranks.values():
            nodes.setdefault(state.host or "starting", []).append(state)
        rows = []
        for host, states in nodes.items():
            alive = [state for state in states if state.is_alive]
            busy = [state for state in alive if state.beats and state.beats[-1].state == "R"]
            quiet = now - max(state.last_output for state in states) if alive else 0.0
            rows.append((host, len(states), len(alive), len(busy), quiet))
        return rows

    def missing_ranks(self) -> list[int]:
        return [rank for rank, state in self.ranks.items() if state.started is None]

    def living_ranks(self) -> list[RankState]:
        return [state for state in self.ranks.values() if state.is_alive]

    def list_leaving_ranks(self) -> list[RankState]:
        """The ranks whose script has failed, and that Python has not ended yet."""
        return [state for state in self.living_ranks() if state.script_failed is not None]

    def all_ended(self) -> bool:
        return all(state.end is not None for state in self.ranks.values())
