"""Rounds of pairs for real: every pair reduces at the same time, two ranks each, and the numbers are looked at."""

from __future__ import annotations

import json

from tarmac.cluster.address import derived_port
from tarmac.fleeted import ANSWERED, DEAD, FAILED, PASSED, REFUSED, SLOW, Pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tarmac.fleet.transport import Transport
    from tarmac.fleeted import Answer, Node

    Two = tuple[str, str]

SECONDS = 30.0
"""How long one pair may take, from the start of its Pythons to its last number."""
OUT_OF_REACH = (DEAD, REFUSED)
AGAIN = 3
"""How often a pair is tried at another port where the first was taken."""


class Rounds:
    """Plays rounds over one transport. Calling it with a round's number and pairs gives what came of each."""

    def __init__(
        self,
        transport: Transport,
        nodes: Sequence[Node],
        token: str,
        *,
        backend: str = "gloo",
        seconds: float = SECONDS,
        python: str | None = None,
    ):
        self.transport, self.token, self.backend, self.seconds = transport, token, backend, seconds
        self.nodes = {node.name: node for node in nodes}
        self.python = python
        self.absent: dict[str, str] = {}  # nodes without torch, and why
        self.lost: dict[
            str, str
        ] = {}  # nodes that could not be asked, and why: a pair with one of them says nothing

    def __call__(self, number: int, pairs: Sequence[Two]) -> list[Pair]:
        left, found = list(pairs), list[Pair]()
        for attempt in range(AGAIN):
            answers = self._ask(number, left, attempt)
            self.lost |= {n: f"{a.kind}: {a.why}" for n, a in answers.items() if a.kind in OUT_OF_REACH}
            left = [two for two in left if not set(two) & set(self.lost)]
            told = [self._pair(two, number, answers) for two in left]
            found += [one for one in told if one is not None]
            left = [two for two, one in zip(left, told, strict=True) if one is None]
            if not left:
                break
        found += [Pair(*two, number, FAILED, why="no free port was found") for two in left]
        return found

    def _ask(self, number: int, pairs: Sequence[Two], attempt: int) -> dict[str, Answer]:
        """Both of a pair stand beside each other, so that they start together where not all can at once."""
        request = {
            "schema": 1,
            "do": "pair",
            "token": self.token,
            "options": {"python": self.python} if self.python else {},
            "pairs": self.parts(number, pairs, attempt),
        }
        answers: dict[str, Answer] = {}
        names = [name for two in pairs for name in two]
        asked = [self.nodes[name] for name in names]

        def heard(answer: Answer) -> None:
            answers[answer.node] = answer

        self.transport.ask(asked, request, self.seconds + 5.0, heard)
        return answers

    def parts(self, number: int, pairs: Sequence[Two], attempt: int = 0) -> dict[str, dict[str, Any]]:
        """What each node has to know: its rank, its peer, where they meet."""
        found: dict[str, dict[str, Any]] = {}
        taken: set[tuple[str, int]] = set()
        for first, second in pairs:
            address = self.nodes[first].address or first
            port = derived_port(f"{self.token}/{number}/{attempt}/{first}/{second}")
            while (address, port) in taken:
                port += 1
            taken.add((address, port))
            meet: dict[str, Any] = {
                "address": address,
                "port": port,
                "backend": self.backend,
                "seconds": self.seconds,
            }
            if self.backend == "nccl":
                meet["gpus"] = max(min(self.nodes[name].gpus for name in (first, second)), 1)
            found[first] = {**meet, "round": number, "rank": 0, "peer": second}
            found[second] = {**meet, "round": number, "rank": 1, "peer": first}
        return found

    def _pair(self, two: Two, number: int, answers: Mapping[str, Answer]) -> Pair | None:
        """What two answers say of a pair; None where they only say that the port was taken."""
        told = [read(answers.get(name)) for name in two]
        for name, one in zip(two, told, strict=True):
            if one["outcome"] == "absent":
                self.absent[name] = str(one["why"])
        if any(one["outcome"] == "unclear" for one in told):
            return None
        seconds = max(float(one.get("seconds", 0.0)) for one in told)
        bad = [(name, one) for name, one in zip(two, told, strict=True) if one["outcome"] != PASSED]
        if not bad:
            rate = min(float(one.get("rate", 0.0)) for one in told)
            return Pair(*two, number, PASSED, seconds, rate)
        outcome = SLOW if all(one["outcome"] == SLOW for _, one in bad) else FAILED
        why = "; ".join(f"{name}: {one['why']}" for name, one in bad)
        return Pair(*two, number, outcome, seconds, why=why[:300])


def read(answer: Answer | None) -> dict[str, Any]:
    """The part of a node in a pair; whatever it is not able to say is a failure with a reason."""
    if answer is None:
        return {"outcome": FAILED, "why": "no answer"}
    if answer.kind != ANSWERED:
        return {"outcome": SLOW if answer.kind == SLOW else FAILED, "why": f"{answer.kind}: {answer.why}"}
    try:
        told = json.loads(answer.body)
        pair = told["pair"]
        outcome, why = str(pair["outcome"]), str(pair.get("why", ""))[:200]
        figures = {key: float(pair.get(key) or 0.0) for key in ("seconds", "rate")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"outcome": FAILED, "why": "garbled"}
    known = outcome in (PASSED, FAILED, SLOW, "absent", "unclear") and told.get("node") == answer.node
    return {"outcome": outcome if known else FAILED, "why": why or outcome, **figures}
