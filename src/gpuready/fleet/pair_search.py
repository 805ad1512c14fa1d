"""Search for a bad node, GPU or link: choose which pairs run an all-reduce together in each round.

Each round puts every node into one pair. A node whose pair failed is paired next with nodes that never
failed; the others get new partners. Two rounds find every permanent fault if at least half of the nodes were
in pairs that passed; every further round adds evidence on intermittent faults. A pair that fails while both
members pass with others is retried; its link is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from gpuready.fleet.fault_beliefs import FaultBeliefs
from gpuready.model.fleet import FAILED, PASSED, SLOW, FleetSuspect, NodePair

NodeNames = tuple[str, str]


MAX_ROUNDS, SCREENING_ROUNDS = 8, 3
ROUND_ROBIN_NODES = 8
"""Up to this many nodes all meet each other: seven rounds of four pairs cover all twenty-eight."""
FAILED_PARTNERS = 3
"""A node that failed with so many, each of which passed with others, is not paired again: its pairs take their whole time limit."""
PASSES_BEFORE_RETRY = 2
"""Passes with others after which a failed node is not suspected alone and its pair is retried."""


class PairSearch:
    """One search. ``next_round`` returns the next pairs, or none at the end; ``add_outcome`` takes the results."""

    def __init__(
        self,
        names: Iterable[str],
        switches: Mapping[str, str] | None = None,
        *,
        rounds: int = MAX_ROUNDS,
        screening: int = SCREENING_ROUNDS,
        start: int = 0,
    ):
        self.names = list(dict.fromkeys(names))
        self.switches = {name: switch for name, switch in (switches or {}).items() if switch}
        self.rounds, self.screening, self.round_number = rounds, screening, 0
        self.pairs: list[NodePair] = []
        self._known: set[tuple[str, str, int]] = set()
        self._belief: tuple[int, FaultBeliefs] | None = None
        self.unreachable: set[str] = set()
        self._random: Random = Random(start)

    # -- outcomes --------------------------------------------------------------------------------------------

    def add_outcome(self, pair: NodePair) -> None:
        """Add the outcome of one pair; duplicates count once."""
        key = (*_ordered_pair(pair.first, pair.second), pair.round)
        if pair.outcome in (PASSED, FAILED, SLOW) and key not in self._known:
            self._known.add(key)
            self.pairs.append(pair)

    def set_outcomes(self, pairs: Iterable[NodePair]) -> None:
        """Replace all outcomes: what is slow is known better with every round."""
        self.pairs, self._known, self._belief = [], set(), None
        for pair in pairs:
            self.add_outcome(pair)

    def drop_node(self, name: str) -> None:
        """Exclude an unreachable node from further rounds."""
        self.unreachable.add(name)

    # -- planning rounds -------------------------------------------------------------------------------------

    def next_round(self) -> list[NodeNames]:
        """Return the disjoint pairs of the next round; empty if all is decided or the rounds are used up."""
        if self.round_number >= self.rounds or self._is_settled():
            return []
        self.round_number += 1
        reachable = [name for name in self.names if name not in self.unreachable]
        if len(reachable) <= ROUND_ROBIN_NODES:
            return self._round_robin_pairs(reachable)
        return self._plan_round(reachable)

    def _is_settled(self) -> bool:
        reachable = len(self.names) - len(self.unreachable)
        if reachable < 2:
            return True
        least = reachable - 1 + reachable % 2 if reachable <= ROUND_ROBIN_NODES else self.screening
        if self.round_number < min(least, self.rounds):
            return False
        return not self.current_beliefs().needs_more_rounds()

    def _round_robin_pairs(self, reachable: list[str]) -> list[NodeNames]:
        """Pair everyone with everyone in turn, then retry the failed pairs."""
        least = len(reachable) - 1 + len(reachable) % 2
        if self.round_number > least:
            return self._pair_remaining(self._pairs_to_retry(reachable), reachable, self._pairs_so_far())
        bad = {name for name in reachable if self._fails_with_good_partners(name)}
        turn = _round_robin_turn(reachable, self.round_number - 1)
        pairs = [pair for pair in turn if bad.isdisjoint(pair)]
        return pairs or turn

    def _fails_with_good_partners(self, name: str) -> bool:
        passed = {one for pair in self.pairs if pair.outcome == PASSED for one in (pair.first, pair.second)}
        partners = {
            one for pair in self.pairs for one in (pair.first, pair.second) if name in (pair.first, pair.second)
        }
        return name not in passed and len(partners & passed) >= FAILED_PARTNERS

    def _plan_round(self, reachable: list[str]) -> list[NodeNames]:
        """Retry pairs first, then pair suspected with trusted nodes, then the rest with new partners."""
        self._random.shuffle(reachable)
        chosen = self._pairs_across_switches(reachable) if self.round_number == 1 else self._pairs_to_retry(reachable)
        chosen += self._pairs_between_suspect_switches(reachable, chosen)
        taken = {name for pair in chosen for name in pair}
        failed = {name for pair in self.pairs if pair.outcome != PASSED for name in (pair.first, pair.second)}
        suspected = [name for name in reachable if name in failed and name not in taken]
        trusted = [name for name in reachable if name not in failed and name not in taken]
        chosen += zip(suspected, trusted, strict=False)
        return self._pair_remaining(chosen, reachable, self._pairs_so_far())

    def _pairs_to_retry(self, reachable: list[str]) -> list[NodeNames]:
        """Failed pairs whose members passed with others since: the link may be at fault."""
        present: set[str] = set(reachable)
        taken: set[str] = set()
        pairs: list[NodeNames] = []
        for a, b in self.current_beliefs().pairs_to_retry(PASSES_BEFORE_RETRY):
            if {a, b} <= present and not {a, b} & taken:
                pairs.append((a, b))
                taken |= {a, b}
        return pairs

    def _pairs_across_switches(self, reachable: list[str]) -> list[NodeNames]:
        """Pair nodes across switches, each switch with as many others as it has nodes, to show a cut-off one
        at once.
        """
        leaves: dict[str, list[str]] = {}
        for name in reachable:
            if name in self.switches:
                leaves.setdefault(self.switches[name], []).append(name)
        pairs: list[NodeNames] = []
        for turn in range(max(map(len, leaves.values()), default=0)):
            for one, other in _round_robin_turn(list(leaves), turn):
                if turn < min(len(leaves[one]), len(leaves[other])):
                    pairs.append((leaves[one][turn], leaves[other][turn]))
        return pairs

    def _pairs_between_suspect_switches(self, reachable: list[str], chosen: list[NodeNames]) -> list[NodeNames]:
        """Pair other nodes of the two switches between which a pair failed."""
        taken = {name for pair in chosen for name in pair}
        failed = {name for pair in self.pairs if pair.outcome != PASSED for name in (pair.first, pair.second)}
        free: dict[str, list[str]] = {}
        for name in reachable:
            if name not in taken and name not in failed and name in self.switches:
                free.setdefault(self.switches[name], []).append(name)
        pairs = []
        for one, other in self.current_beliefs().switches_to_test():
            for _ in range(2):
                if one != other and free.get(one) and free.get(other):
                    pairs.append((free[one].pop(), free[other].pop()))
        return pairs

    def _pair_remaining(
        self, chosen: list[NodeNames], reachable: list[str], pairs_met: set[NodeNames]
    ) -> list[NodeNames]:
        """Pair the remaining nodes, with new partners if the next few allow it."""
        taken = {name for pair in chosen for name in pair}
        left = [name for name in reachable if name not in taken]
        while len(left) > 1:
            one = left.pop()
            at = next(
                (
                    i
                    for i in range(len(left) - 1, max(len(left) - 9, -1), -1)
                    if _ordered_pair(one, left[i]) not in pairs_met
                ),
                -1,
            )
            chosen.append((one, left.pop(at)))
        return chosen

    def _pairs_so_far(self) -> set[NodeNames]:
        return {_ordered_pair(pair.first, pair.second) for pair in self.pairs}

    # -- results ---------------------------------------------------------------------------------------------

    def list_suspects(self) -> list[FleetSuspect]:
        """List the suspects so far, the certain ones first."""
        return self.current_beliefs().list_suspects()

    def current_beliefs(self) -> FaultBeliefs:
        """Return the beliefs from all pairs so far; cached by their number."""
        if self._belief is None or self._belief[0] != len(self.pairs):
            self._belief = len(self.pairs), FaultBeliefs(self.pairs, self.switches, len(self.names))
        return self._belief[1]


def _round_robin_turn(names: list[str], turn: int) -> list[NodeNames]:
    """One turn of a round robin; after n - 1 turns everyone has met everyone."""
    ring = [*names, ""] if len(names) % 2 else list(names)
    if len(ring) < 2:
        return []
    turn %= len(ring) - 1
    rotated = [ring[0], *ring[1:][turn:], *ring[1:][:turn]]
    half = len(rotated) // 2
    pairs = zip(rotated[:half], reversed(rotated[half:]), strict=True)
    return [(a, b) for a, b in pairs if a and b]


def _unless_all_gpus(gpus: Iterable[int], all_rates: Iterable[float]) -> tuple[int, ...]:
    """Return the GPUs, or an empty tuple if they are all of them."""
    some_gpus = tuple(gpus)
    return some_gpus if len(some_gpus) < len(tuple(all_rates)) else ()


def _ordered_pair(a: str, b: str) -> NodeNames:
    return (a, b) if a < b else (b, a)


def mark_slow_pairs(pairs: Iterable[NodePair], share: float = 0.6) -> list[NodePair]:
    """Mark pairs as slow that passed below this share of the usual rate.

    The usual rate is that of the upper quartile: in a small fleet half of all pairs and more have the slow node.
    """
    all_pairs = list(pairs)
    rates = sorted(pair.rate for pair in all_pairs if pair.outcome == PASSED and pair.rate > 0)
    if len(rates) < 3:
        return all_pairs
    usual = rates[3 * len(rates) // 4]
    return [
        pair.replace(
            outcome=SLOW,
            why=f"{pair.rate / usual:.0%} of the usual rate",
            gpus=_unless_all_gpus([at for at, rate in enumerate(pair.rates) if rate < share * usual], pair.rates),
        )
        if pair.outcome == PASSED and 0 < pair.rate < share * usual
        else pair
        for pair in all_pairs
    ]
