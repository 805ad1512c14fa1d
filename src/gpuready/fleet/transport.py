"""How nodes are reached: the protocol of all transports and their shared bookkeeping.

A transport asks nodes and delivers exactly one NodeAnswer for each as it arrives. It never raises for a
single node: a node's failure is that node's answer.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from gpuready.model.fleet import ANSWERED, DEAD, GARBLED, REFUSED, SLOW, FleetNode, NodeAnswer

Request = dict[str, Any]
OnAnswer = Callable[[NodeAnswer], None]


class Transport(Protocol):
    """One way of reaching nodes."""

    name: str

    def list_nodes(self) -> list[FleetNode]: ...

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None: ...


MAX_BODY_BYTES = 1 << 20
"""Longest accepted answer in bytes, for details. A healthy node needs at most 512."""

PARALLEL = 64
GRACE_SECONDS = 5.0
"""Seconds that the controller waits beyond a node's deadline, so that the node can report its own timeout."""

_KIND_OF_WORD = {"answer": ANSWERED, "refused": REFUSED, "slow": SLOW, "dead": DEAD}
_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%-"


class TransportUnavailable(ValueError):
    """The transport itself cannot be used, in one sentence."""


def validate_host_name(name: str, where: str) -> str:
    """Return the name if no program can take it for a flag and no shell for syntax."""
    if name.startswith("-"):
        raise ValueError(f"{where}: {name[:80]!r} begins with a dash, which a program would take for a flag")
    if not name or len(name) > 255 or any(char not in _SAFE for char in name):
        raise ValueError(f"{where}: {name[:80]!r} is not a host name")
    return name


class AnswerTracker:
    """Tracks which nodes have answered and delivers one NodeAnswer for each."""

    def __init__(self, names: Iterable[str], mark: str, on_answer: OnAnswer):
        self.unanswered = dict.fromkeys(names, False)  # whether the node has sent hello
        self.mark, self.on_answer, self.started = mark, on_answer, time.monotonic()
        self.needing_gpuready: list[str] = []

    def track_line(self, text: str, name: str = "") -> bool:
        """Handle one output line of ``node``, else of the one that the line names; True when it is done."""
        if not text.startswith(f"{self.mark} "):
            return False
        word, _, rest = text[len(self.mark) + 1 :].partition(" ")
        named_node, _, body = rest.partition(" ")
        node = name or named_node
        if node not in self.unanswered:
            return False
        if word == "hello":
            self.unanswered[node] = True
            return False
        if word == "need":
            self.needing_gpuready.append(node)
            return True
        if word in _KIND_OF_WORD:
            self._handle_word(node, _KIND_OF_WORD[word], body)
        return word in _KIND_OF_WORD

    def _handle_word(self, node: str, kind: str, body: str) -> None:
        if kind != ANSWERED:
            self.report_answer(node, kind, why=body[:300])
        elif len(body) > MAX_BODY_BYTES:
            self.report_answer(node, GARBLED, why=f"its answer is longer than {MAX_BODY_BYTES >> 10} KiB")
        else:
            self.report_answer(node, ANSWERED, body)

    def report_answer(self, node: str, kind: str, body: str = "", why: str = "", for_now: bool = False) -> None:
        """Deliver one node's answer, once."""
        if node in self.unanswered:
            del self.unanswered[node]
            self.on_answer(NodeAnswer(node, kind, body, why, round(time.monotonic() - self.started, 3), for_now))

    def report_left(self, why: str) -> None:
        """Deliver the answers of all nodes that have sent nothing."""
        for name in list(self.unanswered):
            self.report_answer(name, DEAD, why=why)

    def take_needing(self) -> list[str]:
        """Return the nodes that need gpuready, and forget them."""
        needing, self.needing_gpuready = self.needing_gpuready, []
        return needing

    def waits_for(self, node: str) -> bool:
        """Whether a node has neither answered nor begun."""
        return not self.unanswered.get(node, True)

    def has_begun(self, node: str) -> bool:
        return self.unanswered.get(node, False)


def last_output_line(text: str) -> str:
    """Return the last non-empty line, where programs put their error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
