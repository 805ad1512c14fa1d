"""The search for the bad node, GPU or link: which pairs reduce together in each round, and what follows from it.

Each round puts every node into one pair. Whoever was in a pair that failed is paired next with nodes that never
failed; the others go on with new partners. So two rounds are exact for faults that always show, as long as at least
half of the nodes were in pairs that passed, and faults that show now and then gather witnesses in every round. A
pair that fails while both of its members pass with others is tried again itself, and is a link.
"""

from __future__ import annotations

from gpuready.fleet.belief import Belief
from gpuready.fleeted import FAILED, PASSED, SLOW, Pair, Suspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    Two = tuple[str, str]

ROUNDS, SCREENING = 8, 3
ROBIN = 8
"""So many nodes, or fewer, meet everybody: seven rounds of four pairs have all twenty-eight."""
ALONE = 2
"""Passes with others after which a node that failed is not suspected alone, and its pair is tried again."""


class Search:
    """One search. ``round`` gives the pairs of the next round and nothing when it is over; ``heard`` takes what came."""

    def __init__(
        self,
        names: Iterable[str],
        switches: Mapping[str, str] | None = None,
        *,
        rounds: int = ROUNDS,
        screening: int = SCREENING,
        start: int = 0,
    ):
        from random import Random

        self.names = list(dict.fromkeys(names))
        self.switches = {name: switch for name, switch in (switches or {}).items() if switch}
        self.rounds, self.screening, self.number = rounds, screening, 0
        self.pairs: list[Pair] = []
        self._known: set[tuple[str, str, int]] = set()
        self._belief: tuple[int, Belief] | None = None
        self.gone: set[str] = set()
        self._random: Random = Random(start)

    # -- what came -------------------------------------------------------------------------------------------

    def heard(self, pair: Pair) -> None:
        """Take in the outcome of one pair; twice the same counts once."""
        key = (*_two(pair.first, pair.second), pair.round)
        if pair.outcome in (PASSED, FAILED, SLOW) and key not in self._known:
            self._known.add(key)
            self.pairs.append(pair)

    def lost(self, name: str) -> None:
        """A node that is out of reach takes part no longer."""
        self.gone.add(name)

    # -- what next -------------------------------------------------------------------------------------------

    def round(self) -> list[Two]:
        """The disjoint pairs of the next round; none where everything is decided or the rounds are spent."""
        if self.number >= self.rounds or self._settled():
            return []
        self.number += 1
        here = [name for name in self.names if name not in self.gone]
        if len(here) <= ROBIN:
            return self._all_meet(here)
        return self._planned(here)

    def _settled(self) -> bool:
        here = len(self.names) - len(self.gone)
        if here < 2:
            return True
        least = here - 1 + here % 2 if here <= ROBIN else self.screening
        if self.number < min(least, self.rounds):
            return False
        return not self.belief().open()

    def _all_meet(self, here: list[str]) -> list[Two]:
        """Everybody with everybody, in turn; afterwards the pairs that failed, again."""
        least = len(here) - 1 + len(here) % 2
        if self.number > least:
            return self._rest(self._again(here), here, self._met())
        return _turned(here, self.number - 1)

    def _planned(self, here: list[str]) -> list[Two]:
        """Pairs to try again first, then the suspected with the trusted, then the others with new partners."""
        self._random.shuffle(here)
        chosen = self._leaf_to_leaf(here) if self.number == 1 else self._again(here)
        chosen += self._across(here, chosen)
        taken = {name for pair in chosen for name in pair}
        failed = {name for pair in self.pairs if pair.outcome != PASSED for name in (pair.first, pair.second)}
        suspected = [name for name in here if name in failed and name not in taken]
        trusted = [name for name in here if name not in failed and name not in taken]
        chosen += zip(suspected, trusted, strict=False)
        return self._rest(chosen, here, self._met())

    def _again(self, here: list[str]) -> list[Two]:
        """Pairs that failed and whose members have passed with others since: is it the link between them?"""
        present: set[str] = set(here)
        taken: set[str] = set()
        found: list[Two] = []
        for a, b in self.belief().again(ALONE):
            if {a, b} <= present and not {a, b} & taken:
                found.append((a, b))
                taken |= {a, b}
        return found

    def _leaf_to_leaf(self, here: list[str]) -> list[Two]:
        """Where switches are known, each meets as many others as it has nodes: what is cut off shows at once."""
        leaves: dict[str, list[str]] = {}
        for name in here:
            if name in self.switches:
                leaves.setdefault(self.switches[name], []).append(name)
        found: list[Two] = []
        for turn in range(max(map(len, leaves.values()), default=0)):
            for one, other in _turned(list(leaves), turn):
                if turn < min(len(leaves[one]), len(leaves[other])):
                    found.append((leaves[one][turn], leaves[other][turn]))
        return found

    def _across(self, here: list[str], chosen: list[Two]) -> list[Two]:
        """Other nodes of the two switches between which a pair failed."""
        taken = {name for pair in chosen for name in pair}
        failed = {name for pair in self.pairs if pair.outcome != PASSED for name in (pair.first, pair.second)}
        free: dict[str, list[str]] = {}
        for name in here:
            if name not in taken and name not in failed and name in self.switches:
                free.setdefault(self.switches[name], []).append(name)
        found = []
        for one, other in self.belief().asked_across():
            for _ in range(2):
                if one != other and free.get(one) and free.get(other):
                    found.append((free[one].pop(), free[other].pop()))
        return found

    def _rest(self, chosen: list[Two], here: list[str], met: set[Two]) -> list[Two]:
        """Everybody who is left, with somebody new where the next few allow it."""
        taken = {name for pair in chosen for name in pair}
        left = [name for name in here if name not in taken]
        while len(left) > 1:
            one = left.pop()
            at = next(
                (
                    i
                    for i in range(len(left) - 1, max(len(left) - 9, -1), -1)
                    if _two(one, left[i]) not in met
                ),
                -1,
            )
            chosen.append((one, left.pop(at)))
        return chosen

    def _met(self) -> set[Two]:
        return {_two(pair.first, pair.second) for pair in self.pairs}

    # -- what follows ----------------------------------------------------------------------------------------

    def suspects(self) -> list[Suspect]:
        """Who is accused so far, and by what; the certain ones first."""
        return self.belief().suspects()

    def belief(self) -> Belief:
        """What the pairs so far show, computed once for each number of them."""
        if self._belief is None or self._belief[0] != len(self.pairs):
            self._belief = len(self.pairs), Belief(self.pairs, self.switches, len(self.names))
        return self._belief[1]


def _turned(names: list[str], turn: int) -> list[Two]:
    """One turn of a round robin: in as many turns as there are others, everybody meets everybody."""
    ring = [*names, ""] if len(names) % 2 else list(names)
    if len(ring) < 2:
        return []
    turn %= len(ring) - 1
    turned = [ring[0], *ring[1:][turn:], *ring[1:][:turn]]
    half = len(turned) // 2
    pairs = zip(turned[:half], reversed(turned[half:]), strict=True)
    return [(a, b) for a, b in pairs if a and b]


def _some(gpus: Iterable[int], every: Iterable[float]) -> tuple[int, ...]:
    """GPUs, where they are not all of them."""
    found = tuple(gpus)
    return found if len(found) < len(tuple(every)) else ()


def _two(a: str, b: str) -> Two:
    return (a, b) if a < b else (b, a)


def graded(pairs: Iterable[Pair], share: float = 0.6) -> list[Pair]:
    """The pairs of a round, those that passed with less than this share of the usual rate called slow."""
    every = list(pairs)
    rates = sorted(pair.rate for pair in every if pair.outcome == PASSED and pair.rate > 0)
    if len(rates) < 4:
        return every
    usual = rates[len(rates) // 2]
    return [
        pair.but(
            outcome=SLOW,
            why=f"{pair.rate / usual:.0%} of the usual rate",
            gpus=_some([at for at, rate in enumerate(pair.rates) if rate < share * usual], pair.rates),
        )
        if pair.outcome == PASSED and 0 < pair.rate < share * usual
        else pair
        for pair in every
    ]
