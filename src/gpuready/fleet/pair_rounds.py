"""Run rounds of pairs: all pairs run an all-reduce at once, two ranks each, and check the numbers."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready.cluster.address import derive_job_port
from gpuready.fleet.transport import Transport
from gpuready.model.fleet import ANSWERED, FAILED, OUT_OF_REACH, PASSED, SLOW, FleetNode, NodeAnswer, NodePair

NodeNames = tuple[str, str]
PAIR_SECONDS = 30.0
"""Time limit of one pair, from the start of its Pythons to its last number."""
LIMIT_RESERVE = 5.0
"""A Python that ran until so many seconds before the limit waited for its peer in vain."""
MAX_GPUS = 64
"""GPUs of one node."""
MAX_TRIES = 3
"""How often a pair is tried if its port is taken, or if its Pythons start so slowly that they could not meet."""
MEETING_SECONDS = 10.0
"""How long both Pythons of a pair must have been there, and at least as long as the slower one took to start, before
their failure to meet says anything of nodes and links."""

NEVER_MET = "the port was taken, or the Pythons started too slowly to meet"


class PairRounds:
    """Runs rounds over one transport: call it with a round number and pairs to get their outcomes."""

    def __init__(
        self,
        transport: Transport,
        nodes: Sequence[FleetNode],
        token: str,
        *,
        backend: str = "gloo",
        seconds: float = PAIR_SECONDS,
        python: str | None = None,
        ranks: int = 1,
    ):
        self.ranks = ranks  # on each node, without GPUs
        self.transport, self.token, self.backend, self.seconds = transport, token, backend, seconds
        self.nodes = {node.name: node for node in nodes}
        self.python = python
        self.arrived: dict[str, float] = {}  # node -> when its last answer came
        self.on_answer: Callable[[], None] = lambda: None  # called for each node that has answered
        self.without_torch: dict[str, str] = {}  # node without torch -> why
        self.unreachable: dict[str, str] = {}  # node that could not be asked -> why: its pairs say nothing

    def __call__(self, number: int, pairs: Sequence[NodeNames]) -> list[NodePair]:
        left, pairs_done = list(pairs), list[NodePair]()
        for attempt in range(MAX_TRIES):
            limit = self.seconds * (1 + attempt)
            answers = self._ask_pairs(number, left, attempt, limit)
            self.unreachable |= {n: f"{a.kind}: {a.why}" for n, a in answers.items() if a.kind in OUT_OF_REACH}
            left = [names for names in left if not set(names) & set(self.unreachable)]
            results = [self._pair_outcome(names, number, answers, limit) for names in left]
            pairs_done += [one for one in results if one is not None]
            left = [names for names, one in zip(left, results, strict=True) if one is None]
            if not left:
                break
        return pairs_done + [NodePair(*names, number, SLOW, why=f"{MAX_TRIES} tries: {NEVER_MET}") for names in left]

    def _ask_pairs(self, number: int, pairs: Sequence[NodeNames], attempt: int, limit: float) -> dict[str, NodeAnswer]:
        """Ask all pairs. Both nodes of a pair stand next to each other, so that they start together."""
        request = {
            "schema": 1,
            "do": "pair",
            "token": self.token,
            "options": {"python": self.python} if self.python else {},
            "pairs": self.build_pair_requests(number, pairs, attempt, limit),
        }
        answers: dict[str, NodeAnswer] = {}
        names = [name for pair_names in pairs for name in pair_names]
        nodes = [self.nodes[name] for name in names]

        def store_answer(answer: NodeAnswer) -> None:
            answers[answer.node] = answer
            self.arrived[answer.node] = time.monotonic()
            self.on_answer()

        self.transport.ask_nodes(nodes, request, limit + 5.0, store_answer)
        return answers

    def build_pair_requests(
        self, number: int, pairs: Sequence[NodeNames], attempt: int = 0, limit: float = 0.0
    ) -> dict[str, dict[str, Any]]:
        """Build each node's part of the request: rank, peer and meeting point."""
        parts: dict[str, dict[str, Any]] = {}
        taken: set[tuple[str, int]] = set()
        for first, second in pairs:
            address = self.nodes[first].address or first
            port = derive_job_port(f"{self.token}/{number}/{attempt}/{first}/{second}")
            gpus = self._ranks_per_node(first, second)
            while not taken.isdisjoint((address, port + at) for at in range(gpus)):
                port += 1
            taken.update((address, port + at) for at in range(gpus))
            meeting: dict[str, Any] = {
                "address": address,
                "port": port,
                "backend": self.backend,
                "seconds": limit or self.seconds,
                "gpus": gpus,
            }
            parts[first] = {**meeting, "round": number, "rank": 0, "peer": second}
            parts[second] = {**meeting, "round": number, "rank": 1, "peer": first}
        return parts

    def _ranks_per_node(self, first: str, second: str) -> int:
        """Return the ranks on each node: one for each GPU that both have. Each pair of ranks has its own port."""
        if self.backend != "nccl":
            return max(self.ranks, 1)
        return max(min(self.nodes[name].gpus for name in (first, second)), 1)

    def _pair_outcome(
        self, names: NodeNames, number: int, answers: Mapping[str, NodeAnswer], limit: float
    ) -> NodePair | None:
        """Combine two answers; None if they only say that the port was taken, or that there was no time to meet within ``limit``."""
        results = [parse_pair_answer(answers.get(name)) for name in names]
        for name, one in zip(names, results, strict=True):
            if one["outcome"] == "absent":
                self.without_torch[name] = str(one["why"])
        if any(one["outcome"] == "unclear" for one in results):
            return None
        seconds = max(float(one.get("seconds", 0.0)) for one in results)
        bad = [(name, one) for name, one in zip(names, results, strict=True) if one["outcome"] != PASSED]
        if not bad:
            rate = min(float(one.get("rate", 0.0)) for one in results)
            rates = tuple(min(both) for both in zip(*(one["rates"] for one in results), strict=False))
            return NodePair(*names, number, PASSED, seconds, rate, rates=rates)
        if _lacked_time(results, [self.arrived.get(name, 0.0) for name in names], limit):
            return None
        outcome = SLOW if all(one["outcome"] == SLOW for _, one in bad) else FAILED
        why = "; ".join(f"{name}: {one['why']}" for name, one in bad)
        return NodePair(*names, number, outcome, seconds, why=why[:300], gpus=_failed_gpus([one for _, one in bad]))


def _lacked_time(results: Sequence[Mapping[str, Any]], arrived: Sequence[float], limit: float) -> bool:
    """Whether a pair ran into its time limit before both its Pythons had been there long enough to meet: a busy node is no bad one.

    Each answer says how long its Python ran and when it was ready; it came here when that Python had ended.
    """
    if not any(one.get("ended", 0.0) > limit - LIMIT_RESERVE for one in results):
        return False
    ready = [came - one.get("ended", 0.0) + one.get("ready", 0.0) for one, came in zip(results, arrived, strict=True)]
    needed = max(MEETING_SECONDS, *(one.get("ready", 0.0) for one in results))
    return bool(min(arrived) - max(ready) < min(needed, limit / 2))


def _failed_gpus(results: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the GPUs that failed on either side; empty if all did or a side does not tell them apart."""
    if any(not one["gpus"] for one in results):
        return ()
    failed = {at for one in results for at, outcome in enumerate(one["gpus"]) if outcome != PASSED}
    return tuple(sorted(failed)) if len(failed) < max(len(one["gpus"]) for one in results) else ()


def _finite_figure(value: Any) -> float:
    number = float(value or 0.0)
    if not abs(number) < 1e18:
        raise ValueError("no seconds and no rate")
    return number


def parse_pair_answer(answer: NodeAnswer | None) -> dict[str, Any]:
    """Return a node's part in a pair; anything it cannot report is a failure with a reason."""
    if answer is None:
        return {"outcome": FAILED, "why": "no answer", "gpus": [], "rates": []}
    if answer.kind != ANSWERED:
        kind = SLOW if answer.kind == SLOW else FAILED
        return {"outcome": kind, "why": f"{answer.kind}: {answer.why}", "gpus": [], "rates": []}
    try:
        body = json.loads(answer.body)
        pair = body["pair"]
        outcome, why = str(pair["outcome"]), str(pair.get("why", ""))[:200]
        figures: dict[str, Any] = {key: _finite_figure(pair.get(key)) for key in ("seconds", "rate", "ready", "ended")}
        figures["gpus"] = [str(one) for one in list(pair.get("gpus") or ())[:MAX_GPUS]]
        figures["rates"] = [_finite_figure(one) for one in list(pair.get("rates") or ())[:MAX_GPUS]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"outcome": FAILED, "why": "garbled", "gpus": [], "rates": []}
    known = outcome in (PASSED, FAILED, SLOW, "absent", "unclear") and body.get("node") == answer.node
    return {"outcome": outcome if known else FAILED, "why": why or outcome, **figures}
