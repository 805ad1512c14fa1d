"""How nodes are reached: the protocol of all transports and their shared bookkeeping.

A transport asks nodes and delivers exactly one NodeAnswer for each as it arrives. It never raises for a
single node: a node's failure is that node's answer.
"""

from __future__ import annotations

from gpuready.fleeted import ANSWERED, DEAD, GARBLED, REFUSED, SLOW, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Protocol

    from gpuready.fleeted import Node

    class Transport(Protocol):
        """One way of reaching nodes."""

        name: str

        def nodes(self) -> list[Node]: ...

        def ask(
            self,
            nodes: Sequence[Node],
            request: dict[str, Any],
            deadline: float,
            heard: Callable[[Answer], None],
        ) -> None: ...


CAP = 1 << 20
"""Longest accepted answer in bytes, for details. A healthy node needs at most 512."""

PARALLEL = 64
LATE = 5.0
"""Seconds that the controller waits beyond a node's deadline, so that the node can report its own timeout."""

_WORDS = {"answer": ANSWERED, "refused": REFUSED, "slow": SLOW, "dead": DEAD}
_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%-"


class Unreached(ValueError):
    """The transport itself cannot be used, in one sentence."""


def checked(name: str, where: str) -> str:
    """Return the name if no program can take it for a flag and no shell for syntax."""
    if name.startswith("-"):
        raise ValueError(f"{where}: {name[:80]!r} begins with a dash, which a program would take for a flag")
    if not name or len(name) > 255 or any(char not in _SAFE for char in name):
        raise ValueError(f"{where}: {name[:80]!r} is no name of a host")
    return name


class Hearing:
    """Tracks which nodes have answered and delivers one NodeAnswer for each."""

    def __init__(self, names: Iterable[str], mark: str, heard: Callable[[Answer], None], now: float):
        self.left = dict.fromkeys(names, False)  # whether the node has sent hello
        self.mark, self.heard, self.begun = mark, heard, now
        self.needy: list[str] = []

    def line(self, text: str, now: float, name: str = "") -> bool:
        """Handle one output line of the given node, else of the one that the line names; True when it is done."""
        if not text.startswith(f"{self.mark} "):
            return False
        word, _, rest = text[len(self.mark) + 1 :].partition(" ")
        told, _, body = rest.partition(" ")
        node = name or told
        if node not in self.left:
            return False
        if word == "hello":
            self.left[node] = True
            return False
        if word == "need":
            self.needy.append(node)
            return True
        if word in _WORDS:
            self._word(node, _WORDS[word], body, now)
        return word in _WORDS

    def _word(self, node: str, kind: str, body: str, now: float) -> None:
        if kind != ANSWERED:
            self.tell(node, kind, why=body[:300], now=now)
        elif len(body) > CAP:
            self.tell(node, GARBLED, why=f"its answer is longer than {CAP >> 10} KiB", now=now)
        else:
            self.tell(node, ANSWERED, body, now=now)

    def tell(self, node: str, kind: str, body: str = "", why: str = "", now: float = 0.0) -> None:
        """Deliver one node's answer, once."""
        if node in self.left:
            del self.left[node]
            self.heard(Answer(node, kind, body, why, round(max(now - self.begun, 0.0), 3)))

    def began(self, node: str) -> bool:
        return self.left.get(node, False)


def last_line(text: str) -> str:
    """Return the last non-empty line, where programs put their error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
