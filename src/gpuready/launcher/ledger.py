"""What was received from each rank, in order of receipt: the nodes' clocks may differ."""

from __future__ import annotations

from collections import deque

from gpuready.launcher.job import End
from gpuready.system.flow import Flow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

TAIL, LONGEST = 60, 4096
TIE = 0.02
"""Ends received within this many seconds are tied."""
CRASHES = (4, 6, 7, 8, 11)
"""Signals by which a process ends itself; its peers may notice before the kernel has removed it."""
LOST = (
    "closed by peer",
    "reset by peer",
    "closed by remote peer",
    "Broken pipe",
    "recvValue failed",
    "Socket closed",
)
"""How a rank reports that a peer is gone: it did not fail first, however early it says so."""
WINDOW = 10
"""Beats kept, one a second."""

_HERE = "/gpuready/launcher/"
_BEGINS = ("Traceback (most recent call last)", "Fatal Python error", "terminate called after throwing")


class Life:
    """One rank as seen by the supervisor."""

    def __init__(self, rank: int):
        self.rank, self.host, self.pid, self.local = rank, "", 0, rank
        self.born: float | None = None
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.partial, self.flow = "", Flow()
        self.heard: float = 0.0
        self.beats: deque[tuple[float, str, float, float | None]] = deque(maxlen=WINDOW + 1)
        self.stack: list[str] = []
        self.trace: tuple[int, float] | None = None  # when its last traceback began
        self.left: tuple[int, float] | None = (
            None  # when its script failed: Python may need seconds to exit
        )
        self.end: End | None = None

    @property
    def alive(self) -> bool:
        return self.born is not None and self.end is None


class Ledger:
    """All ranks, and the count of received messages."""

    def __init__(self, ranks: Iterable[int], started: float):
        self.lives = {rank: Life(rank) for rank in ranks}
        self.started, self.order = started, 0
        self.ended_at: dict[int, float] = {}
        self.stopping = False

    def take(self, message: dict[str, Any], now: float) -> list[tuple[int, str]]:
        """Record one message; return the lines that it completes, each with its rank."""
        self.order += 1
        kind = message["t"]
        if kind == "beat":
            for rank, state, cpu, late in message["d"]:
                if rank in self.lives:
                    self.lives[rank].beats.append((now, state, cpu, late))
            return []
        life = self.lives.get(message.get("r", -1))
        if life is None:
            return []
        if kind == "born":
            life.born, life.pid, life.host, life.heard = now, message["pid"], message["host"], now
        elif kind == "out":
            return [(life.rank, line) for line in self._heard(life, message["d"], now)]
        elif kind == "stack":
            life.stack += [line for line in message["d"].splitlines() if _HERE not in line]
            del life.stack[:-400]
        elif kind == "leaving":
            life.left = (self.order, now)
        elif kind == "end":
            return self._ended(life, message, now)
        return []

    def _heard(self, life: Life, text: str, now: float) -> list[str]:
        life.heard = now
        *lines, life.partial = (life.partial + text).split("\n")
        if len(life.partial) > LONGEST * 16:
            lines.append(life.partial)
            life.partial = ""
        lines = [life.flow(line) for line in lines if not (_HERE in line and line.startswith("  File "))]
        for line in lines:
            self._line(life, line, now)
        return lines

    def _line(self, life: Life, line: str, now: float) -> None:
        life.tail.append(line[:LONGEST])
        if any(words in line[:120] for words in _BEGINS):
            life.trace = (self.order, now)

    def _ended(self, life: Life, message: dict[str, Any], now: float) -> list[tuple[int, str]]:
        rest = [life.flow(life.partial)] if life.partial else []
        for line in rest:
            self._line(life, line, now)
        life.partial = ""
        self.ended_at[life.rank] = now
        life.end = End(
            rank=life.rank,
            host=life.host,
            pid=life.pid,
            code=message["code"],
            signal=message["signal"],
            order=self.order,
            seconds=round(now - self.started, 3),
            oom=message.get("oom"),
            done=bool(message.get("done")),
            stopped=self.stopping or self._asked_to_go(life, message),
            last=tuple(life.tail),
        )
        return [(life.rank, line) for line in rest]

    def _asked_to_go(self, life: Life, message: dict[str, Any]) -> bool:
        """Whether it ended by SIGINT, SIGTERM or SIGKILL after another rank failed: stopped by the engine."""
        failed = any(other.end is not None and other.end.failed for other in self.lives.values())
        return failed and message["signal"] in (15, 9, 2)

    # -- results ----------------------------------------------------------------------------------------

    def ends(self) -> tuple[End, ...]:
        found = [life.end.but(stack=tuple(life.stack[-40:])) for life in self.lives.values() if life.end]
        return tuple(sorted(found, key=lambda end: end.order))

    def failed(self) -> list[End]:
        return [end for end in self.ends() if end.failed]

    def first(self) -> tuple[int, ...]:
        """Return the ranks that failed first, several if they are tied.

        A failure counts from the end of the script, else the last traceback, else the end of the process: a
        rank may need seconds to exit from what ends the others at once.
        """
        own = [e for e in self.failed() if not e.stopped] or self.failed()
        own = [e for e in own if not self._bereft(e)] or own
        if not own:
            return ()
        signs = {end.rank: self._sign(end) for end in own}
        at = min(signs.values())[1]
        tied = [rank for rank, (_, when) in signs.items() if when - at <= TIE]
        clear = min(signs, key=lambda rank: signs[rank][0])
        return tuple(sorted(tied)) if self._apart(tied) else (clear,)

    @staticmethod
    def _bereft(end: End) -> bool:
        """Whether the rank's last lines say that it lost a peer."""
        return any(words in line for line in end.last[-20:] for words in LOST)

    def _apart(self, tied: list[int]) -> bool:
        """Whether ranks failed together and alike: a death by signal precedes its effects on others."""
        signals = [r for r in tied if (end := self.lives[r].end) is not None and end.signal]
        return len(tied) > 1 and len(signals) in (0, len(tied))

    def _sign(self, end: End) -> tuple[int, float]:
        life = self.lives[end.rank]
        told = life.left or life.trace
        spoke = not end.signal or end.signal in CRASHES  # a crash is announced before the process is gone
        return told if told is not None and spoke else (end.order, self.ended_at[end.rank])

    def missing(self) -> list[int]:
        return [rank for rank, life in self.lives.items() if life.born is None]

    def alive(self) -> list[Life]:
        return [life for life in self.lives.values() if life.alive]

    def over(self) -> bool:
        return all(life.end is not None for life in self.lives.values())

    def silent_since(self) -> float:
        """When a rank last wrote something or started."""
        return max((life.heard for life in self.lives.values()), default=self.started)
