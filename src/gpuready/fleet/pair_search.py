"""Search for a bad node, GPU or link: choose which pairs run an all-reduce together in each round.

Each round puts every node into one pair. A node whose pair failed meets nodes that proved good; the others get new
partners. A pair that failed is tried again once both its nodes pass with others. Up to eight nodes all meet each other.
"""

from collections.abc import Iterable
from random import Random

from gpuready.fleet.pair_counts import SMALL_FLEET, PairCounts, order_names
from gpuready.model.fleet import PASSED, SLOW, FleetSuspect, NodePair

NodeNames = tuple[str, str]

MAX_ROUNDS, SCREENING_ROUNDS = 8, 3
SLOW_WORDS = "pairs were slow or not done in time; a busy node is no bad one: gpuready fleet bench measures it"


class PairSearch:
    """One search. ``next_round`` returns the next pairs, or none at the end; ``add_outcome`` takes the results."""

    def __init__(self, names: Iterable[str], *, slow_share: float = 0.6, start: int = 0):
        self.names = list(dict.fromkeys(names))
        self.slow_share, self.round_number = slow_share, 0
        self.pairs: list[NodePair] = []
        self.unreachable: set[str] = set()
        self._met: set[NodeNames] = set()
        self._known: set[tuple[NodeNames, int]] = set()
        self._random: Random = Random(start)

    def add_outcome(self, pair: NodePair) -> None:
        """Add the outcome of one pair; duplicates count once. A round of a journal counts as run."""
        names = order_names(pair.first, pair.second)
        if (names, pair.round) not in self._known:
            self._known.add((names, pair.round))
            self._met.add(names)
            self.pairs.append(pair)
            self.round_number = max(self.round_number, pair.round)

    def drop_node(self, name: str) -> None:
        """Exclude an unreachable node from further rounds."""
        self.unreachable.add(name)

    def count_outcomes(self) -> PairCounts:
        return PairCounts(self.pairs, len(self.names))

    def mark_slow_pairs(self) -> list[NodePair]:
        return mark_slow_pairs(self.pairs, self.slow_share)

    def list_suspects(self) -> list[FleetSuspect]:
        """List the suspects so far, the confirmed ones first, then nodes that were slow with everybody."""
        return self.count_outcomes().list_suspects() + find_slow_nodes(self.mark_slow_pairs())

    # -- planning rounds -------------------------------------------------------------------------------------

    def next_round(self) -> list[NodeNames]:
        """Return the disjoint pairs of the next round; empty if all is decided or the rounds are used up."""
        reachable = [name for name in self.names if name not in self.unreachable]
        counts = self.count_outcomes()
        least = len(reachable) - 1 + len(reachable) % 2 if len(reachable) <= SMALL_FLEET else SCREENING_ROUNDS
        last = MAX_ROUNDS if self._needs_more(counts, least, reachable) else least
        if len(reachable) < 2 or self.round_number >= last:
            return []
        self.round_number += 1
        if self.round_number <= least and len(reachable) <= SMALL_FLEET:
            turn = _round_robin_turn(reachable, self.round_number - 1)
            return [pair for pair in turn if counts.bad.isdisjoint(pair)] or turn
        self._random.shuffle(reachable)
        return self._plan_round([name for name in reachable if name not in counts.bad] or reachable, counts)

    def _needs_more(self, counts: PairCounts, least: int, reachable: list[str]) -> bool:
        """Whether a pair is undecided or a node untested, or a node fails now and then: there may be others."""
        if not counts.good:
            return self.round_number <= least
        untested = set(reachable) - set(counts.pass_rounds) - set(counts.failed_with)
        return bool(counts.undecided or untested) or not counts.bad.isdisjoint(counts.pass_rounds)

    def _plan_round(self, free: list[str], counts: PairCounts) -> list[NodeNames]:
        """Choose retries first, then suspects with good nodes, then the rest with new partners."""
        chosen = _take_pairs(free, counts.pairs_to_retry())
        suspects = [name for names in counts.undecided for name in names if name not in counts.good]
        for name in dict.fromkeys(suspects):
            partner = next((other for other in free if other in counts.good and self._is_new(name, other)), name)
            chosen += _take_pairs(free, [(name, partner)])
        while len(free) > 1:
            one = free.pop()
            partner = next((other for other in reversed(free[-8:]) if self._is_new(one, other)), free[-1])
            free.remove(partner)
            chosen.append((one, partner))
        return chosen

    def _is_new(self, one: str, other: str) -> bool:
        return one != other and order_names(one, other) not in self._met


def _take_pairs(free: list[str], pairs: Iterable[NodeNames]) -> list[NodeNames]:
    """Return the pairs whose nodes are both free, and take those."""
    chosen: list[NodeNames] = []
    left = set(free)
    for one, other in pairs:
        if one != other and {one, other} <= left:
            chosen.append((one, other))
            left -= {one, other}
    free[:] = [name for name in free if name in left]
    return chosen


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


# -- slow pairs ----------------------------------------------------------------------------------------------


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
        _mark_slow(pair, usual, share) if pair.outcome == PASSED and 0 < pair.rate < share * usual else pair
        for pair in all_pairs
    ]


def _mark_slow(pair: NodePair, usual: float, share: float) -> NodePair:
    slow = tuple(at for at, rate in enumerate(pair.rates) if rate < share * usual)
    gpus = slow if len(slow) < len(pair.rates) else ()
    return pair.replace(outcome=SLOW, why=f"{pair.rate / usual:.0%} of the usual rate", gpus=gpus)


def find_slow_nodes(pairs: Iterable[NodePair]) -> list[FleetSuspect]:
    """List nodes whose pairs, two and more, were all slow or not done in time: shown, and never confirmed."""
    rows: dict[str, list[NodePair]] = {}
    for pair in pairs:
        if pair.outcome in (PASSED, SLOW):
            for name in (pair.first, pair.second):
                rows.setdefault(name, []).append(pair)
    slow = {name: row for name, row in rows.items() if len(row) > 1 and all(one.outcome == SLOW for one in row)}
    return [
        FleetSuspect(
            "node", (name,), 0, sum(one.rate > 0 for one in row), False, (f"{len(row)} of {len(row)} {SLOW_WORDS}",)
        )
        for name, row in sorted(slow.items())
    ]
