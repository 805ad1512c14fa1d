"""Run rounds of pairs: all pairs run an all-reduce at once, two ranks each, and check the numbers."""

from __future__ import annotations

import json

from gpuready.cluster.address import derived_port
from gpuready.fleeted import ANSWERED, DEAD, FAILED, PASSED, REFUSED, SLOW, Pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.fleet.transport import Transport
    from gpuready.fleeted import Answer, Node

    Two = tuple[str, str]

SECONDS = 30.0
"""Time limit of one pair, from the start of its Pythons to its last number."""
OUT_OF_REACH = (DEAD, REFUSED)
MOST = 64
"""GPUs of one node."""
AGAIN = 3
"""How often a pair is retried at another port if the first is taken."""


class Rounds:
    """Runs rounds over one transport: call it with a round number and pairs to get their outcomes."""

    def __init__(
        self,
        transport: Transport,
        nodes: Sequence[Node],
        token: str,
        *,
        backend: str = "gloo",
        seconds: float = SECONDS,
        python: str | None = None,
        ranks: int = 1,
    ):
        self.ranks = ranks  # on each node, without GPUs
        self.transport, self.token, self.backend, self.seconds = transport, token, backend, seconds
        self.nodes = {node.name: node for node in nodes}
        self.python = python
        self.absent: dict[str, str] = {}  # node without torch -> why
        self.lost: dict[
            str, str
        ] = {}  # node that could not be asked -> why: its pairs say nothing

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
        """Ask all pairs. Both nodes of a pair stand next to each other, so that they start together."""
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
        """Build each node's part of the request: rank, peer and meeting point."""
        found: dict[str, dict[str, Any]] = {}
        taken: set[tuple[str, int]] = set()
        for first, second in pairs:
            address = self.nodes[first].address or first
            port = derived_port(f"{self.token}/{number}/{attempt}/{first}/{second}")
            gpus = self._gpus(first, second)
            while not taken.isdisjoint((address, port + at) for at in range(gpus)):
                port += 1
            taken.update((address, port + at) for at in range(gpus))
            meet: dict[str, Any] = {
                "address": address,
                "port": port,
                "backend": self.backend,
                "seconds": self.seconds,
                "gpus": gpus,
            }
            found[first] = {**meet, "round": number, "rank": 0, "peer": second}
            found[second] = {**meet, "round": number, "rank": 1, "peer": first}
        return found

    def _gpus(self, first: str, second: str) -> int:
        """Return the ranks on each node: one for each GPU that both have. Each pair of ranks has its own port."""
        if self.backend != "nccl":
            return max(self.ranks, 1)
        return max(min(self.nodes[name].gpus for name in (first, second)), 1)

    def _pair(self, two: Two, number: int, answers: Mapping[str, Answer]) -> Pair | None:
        """Combine two answers; None if they only say that the port was taken."""
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
            rates = tuple(min(both) for both in zip(*(one["rates"] for one in told), strict=False))
            return Pair(*two, number, PASSED, seconds, rate, rates=rates)
        outcome = SLOW if all(one["outcome"] == SLOW for _, one in bad) else FAILED
        why = "; ".join(f"{name}: {one['why']}" for name, one in bad)
        return Pair(*two, number, outcome, seconds, why=why[:300], gpus=_failed([one for _, one in bad]))


def _failed(told: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the GPUs that failed on either side; empty if all did or a side does not tell them apart."""
    if any(not one["gpus"] for one in told):
        return ()
    found = {at for one in told for at, outcome in enumerate(one["gpus"]) if outcome != PASSED}
    return tuple(sorted(found)) if len(found) < max(len(one["gpus"]) for one in told) else ()


def _figure(value: Any) -> float:
    number = float(value or 0.0)
    if not abs(number) < 1e18:
        raise ValueError("no seconds and no rate")
    return number


def read(answer: Answer | None) -> dict[str, Any]:
    """Return a node's part in a pair; anything it cannot report is a failure with a reason."""
    if answer is None:
        return {"outcome": FAILED, "why": "no answer", "gpus": [], "rates": []}
    if answer.kind != ANSWERED:
        kind = SLOW if answer.kind == SLOW else FAILED
        return {"outcome": kind, "why": f"{answer.kind}: {answer.why}", "gpus": [], "rates": []}
    try:
        told = json.loads(answer.body)
        pair = told["pair"]
        outcome, why = str(pair["outcome"]), str(pair.get("why", ""))[:200]
        figures: dict[str, Any] = {key: _figure(pair.get(key)) for key in ("seconds", "rate")}
        figures["gpus"] = [str(one) for one in list(pair.get("gpus") or ())[:MOST]]
        figures["rates"] = [_figure(one) for one in list(pair.get("rates") or ())[:MOST]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"outcome": FAILED, "why": "garbled", "gpus": [], "rates": []}
    known = outcome in (PASSED, FAILED, SLOW, "absent", "unclear") and told.get("node") == answer.node
    return {"outcome": outcome if known else FAILED, "why": why or outcome, **figures}
