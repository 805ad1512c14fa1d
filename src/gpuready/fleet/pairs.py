"""Search for a bad node, GPU or link: choose which pairs run an all-reduce together in each round.

Each round puts every node into one pair. A node whose pair failed is paired next with nodes that never
failed; the others get new partners. Two rounds find every permanent fault if at least half of the nodes were
in pairs that passed; every further round adds evidence on intermittent faults. A pair that fails while both
members pass with others is retried; its link is at fault.
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
"""Up to this many nodes all meet each other: seven rounds of four pairs cover all twenty-eight."""
ALONE = 2
"""Passes with others after which a failed node is not suspected alone and its pair is retried."""


class Search:
    """One search. ``next_round`` returns the next pairs, or none at the end; ``add_outcome`` takes the results."""

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

    # -- outcomes --------------------------------------------------------------------------------------------

    def heard(self, pair: Pair) -> None:
        """Add the outcome of one pair; duplicates count once."""
        key = (*_two(pair.first, pair.second), pair.round)
        if pair.outcome in (PASSED, FAILED, SLOW) and key not in self._known:
            self._known.add(key)
            self.pairs.append(pair)

    def lost(self, name: str) -> None:
        """Exclude an unreachable node from further rounds."""
        self.gone.add(name)

    # -- planning rounds -------------------------------------------------------------------------------------

    def round(self) -> list[Two]:
        """Return the disjoint pairs of the next round; empty if all is decided or the rounds are used up."""
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
        """Pair everyone with everyone in turn, then retry the failed pairs."""
        least = len(here) - 1 + len(here) % 2
        if self.number > least:
            return self._rest(self._again(here), here, self._met())
        return _turned(here, self.number - 1)

    def _planned(self, here: list[str]) -> list[Two]:
        """Retry pairs first, then pair suspected with trusted nodes, then the rest with new partners."""
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
        """Failed pairs whose members passed with others since: the link may be at fault."""
        present: set[str] = set(here)
        taken: set[str] = set()
        found: list[Two] = []
        for a, b in self.belief().again(ALONE):
            if {a, b} <= present and not {a, b} & taken:
                found.append((a, b))
                taken |= {a, b}
        return found

    def _leaf_to_leaf(self, here: list[str]) -> list[Two]:
        """Pair nodes across switches, each switch with as many others as it has nodes, to show a cut-off one
        at once.
        """
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
        """Pair other nodes of the two switches between which a pair failed."""
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
        """Pair the remaining nodes, with new partners if the next few allow it."""
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

    # -- results ---------------------------------------------------------------------------------------------

    def suspects(self) -> list[Suspect]:
        """List the suspects so far, the certain ones first."""
        return self.belief().suspects()

    def belief(self) -> Belief:
        """Return the beliefs from all pairs so far; cached by their number."""
        if self._belief is None or self._belief[0] != len(self.pairs):
            self._belief = len(self.pairs), Belief(self.pairs, self.switches, len(self.names))
        return self._belief[1]


def _turned(names: list[str], turn: int) -> list[Two]:
    """One turn of a round robin; after n - 1 turns everyone has met everyone."""
    ring = [*names, ""] if len(names) % 2 else list(names)
    if len(ring) < 2:
        return []
    turn %= len(ring) - 1
    turned = [ring[0], *ring[1:][turn:], *ring[1:][:turn]]
    half = len(turned) // 2
    pairs = zip(turned[:half], reversed(turned[half:]), strict=True)
    return [(a, b) for a, b in pairs if a and b]


def _some(gpus: Iterable[int], every: Iterable[float]) -> tuple[int, ...]:
    """Return the GPUs, or an empty tuple if they are all of them."""
    found = tuple(gpus)
    return found if len(found) < len(tuple(every)) else ()


def _two(a: str, b: str) -> Two:
    return (a, b) if a < b else (b, a)


def graded(pairs: Iterable[Pair], share: float = 0.6) -> list[Pair]:
    """Mark pairs as slow that passed below this share of the usual rate."""
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
