"""Estimate from the outcomes of node pairs which nodes, GPUs, links or switches are bad.

A node is good, or bad in one of three degrees (it makes 40, 70 or 99 % of its pairs fail). A pair fails when
either member or the link between them makes it fail, or, rarely, by chance. The probabilities come from
belief propagation over the pairs; their graph is sparse, almost a tree. A good node that met two bad ones is
explained by them and is not accused.
"""

from __future__ import annotations

from gpuready.fleeted import PASSED, Suspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuready.fleeted import Pair

    Two = tuple[str, str]
    Degrees = tuple[float, ...]

RATES = (0.0, 0.4, 0.7, 0.99)
DEGREES = (0.25, 0.35, 0.4)
"""Prior distribution of bad nodes over the three non-zero ``FAULT_RATES``."""
HARD = (0.0, 0.0, 0.0, 1.0)
CHANCE, LINK, SPOILS = 1e-4, 3e-4, 0.9
"""Probability that a pair fails by chance, that a link is bad, and that a bad link makes a pair fail."""
SOME, LEAST, BEFORE = 0.1, 0.002, 100
"""Prior number of bad links in a small fleet, least share of bad nodes, and weight of that prior in nodes:
one bad node of eight says little about the other seven."""
SURE, DOUBT, LIKELY = 0.99, 0.02, 0.95
"""A node is accused above the first and in doubt between the first two; a link is accused above the third."""
TURNS, LEARNS = 8, 2
TESTS, FAILS, FEW = 4, 4, 8
"""Most tests of one pair, and failures needed to accuse its link; in a small fleet two failures are enough."""
CROSSINGS, MOSTLY = 3, 0.7
"""Failed pairs across two switches, and their share of all such pairs, needed to accuse the connection
between them."""


class Belief:
    """Probabilities derived from the pairs of a search."""

    def __init__(self, pairs: Iterable[Pair], switches: Mapping[str, str], nodes: int = 0):
        self.switches = switches
        self.edges: dict[Two, list[int]] = {}  # pair -> failed, passed
        self.first: dict[Two, int] = {}  # pair -> round of its first failure
        self.parts: dict[Two, list[frozenset[int]]] = {}  # pair -> GPUs of each failure; empty: all
        self.passes: dict[str, list[int]] = {}  # node -> rounds in which it passed
        for pair in pairs:
            two = (pair.first, pair.second) if pair.first < pair.second else (pair.second, pair.first)
            self.edges.setdefault(two, [0, 0])[pair.outcome == PASSED] += 1
            if pair.outcome != PASSED:
                self.parts.setdefault(two, []).append(frozenset(pair.gpus))
                self.first[two] = min(pair.round, self.first.get(two, pair.round))
                continue
            for name in two:
                self.passes.setdefault(name, []).append(pair.round)
        self.near: dict[str, list[Two]] = {}
        for two in self.edges:
            for name in two:
                self.near.setdefault(name, []).append(two)
        self.nodes = max(nodes, len(self.near), 1)
        self.between = self._between()
        self.active = self._active()
        self.always = self._always()
        self.degrees = self._beliefs() if self.always is None else dict.fromkeys(self.always, HARD)
        self.bad = {name: 1.0 - row[0] for name, row in self.degrees.items()}
        self.bent = [sum(column) for column in zip(*self.degrees.values(), strict=True)] or [0.0] * len(RATES)
        self.sure = set(self.accused())

    # -- counting --------------------------------------------------------------------------------------------

    def failed(self, name: str) -> int:
        return sum(self.edges[two][0] for two in self.near.get(name, ()) if not self._crossing(two))

    def passed(self, name: str, apart: Two | None = None) -> int:
        return sum(self.edges[two][1] for two in self.near.get(name, ()) if two != apart)

    def _leaves(self, two: Two) -> Two | None:
        """Return the two switches that a pair crosses, if any."""
        one, other = self.switches.get(two[0], ""), self.switches.get(two[1], "")
        return None if not one or not other or one == other else (min(one, other), max(one, other))

    def _crossing(self, two: Two) -> bool:
        return bool(self.between) and self._leaves(two) in self.between

    def _between(self) -> set[Two]:
        """Return the pairs of switches between which most pairs fail though their nodes pass elsewhere."""
        self.between = set()
        return {leaves for leaves, twos in self._crossings().items() if self._accusable(twos)}

    def _crossings(self) -> dict[Two, list[Two]]:
        if not self.switches:
            return {}
        failing = {self._leaves(two) for two, (failed, _) in self.edges.items() if failed} - {None}
        found: dict[Two, list[Two]] = {}
        for two in self.edges:
            leaves = self._leaves(two)
            if leaves is not None and leaves in failing:
                found.setdefault(leaves, []).append(two)
        return found

    def _accusable(self, twos: list[Two]) -> bool:
        broken = [two for two in twos if self.edges[two][0]]
        tests = sum(sum(self.edges[two]) for two in twos)
        failed = sum(self.edges[two][0] for two in twos)
        if len(broken) < CROSSINGS or failed < MOSTLY * tests:
            return False
        inside = set(twos)
        members = {name for two in broken for name in two}
        clean = [name for name in members if self._clean_outside(name, inside)]
        return len(clean) >= 0.8 * len(members) and len(members) > len(broken)

    def _clean_outside(self, name: str, inside: set[Two]) -> bool:
        outside = [self.edges[two] for two in self.near[name] if two not in inside]
        return bool(outside) and not any(failed for failed, _ in outside)

    def _always(self) -> set[str] | None:
        """Return the bad nodes if permanent faults alone explain every failure, else None.

        Then every node that passed once is good, and every failed pair has a member that never passed.
        """
        never = {name for name in self.active if not self.passed(name)}
        for name, twos in self.active.items():
            if name not in never and any(self.edges[two][0] and not never.intersection(two) for two in twos):
                return None
        sure = {name for name in never if any(self._proves(name, two, never) for two in self.near[name])}
        return sure if all(sure.intersection(two) for two in self._broken()) else None

    def _proves(self, name: str, two: Two, never: set[str]) -> bool:
        """Whether the pair failed although its other member is good."""
        other = two[1] if two[0] == name else two[0]
        return bool(self.edges[two][0]) and other not in never and not self._crossing(two)

    def _broken(self) -> list[Two]:
        return [two for twos in self.active.values() for two in twos if self.edges[two][0]]

    # -- belief propagation ----------------------------------------------------------------------------------

    def _active(self) -> dict[str, list[Two]]:
        """Map each node that failed to its pairs with other nodes that failed."""
        failed = {
            name
            for two, (fails, _) in self.edges.items()
            if fails and not self._crossing(two)
            for name in two
        }
        return {
            name: [two for two in self.near[name] if failed.issuperset(two) and not self._crossing(two)]
            for name in failed
        }

    def _beliefs(self) -> dict[str, Degrees]:
        """Return the degree probabilities of each node that failed, re-estimating the share of bad nodes."""
        share = 0.01
        found: dict[str, Degrees] = {}
        for _ in range(LEARNS if self.active else 0):
            found = self._propagated(share)
            bad = sum(1.0 - row[0] for row in found.values())
            share = min(max(bad / self.nodes, LEAST), 0.3)
        return found

    def _propagated(self, share: float) -> dict[str, Degrees]:
        alone = {name: self._alone(name, share) for name in self.active}
        told: dict[tuple[Two, str], Degrees] = {}  # (pair, member) -> message to that member
        even = (1.0,) * len(RATES)
        kinds = {tuple(row) for row in self.edges.values()}
        tables = {kind: _likely(*kind) for kind in kinds}
        joint = {two: tables[tuple(self.edges[two])] for twos in self.active.values() for two in twos}
        for _ in range(TURNS):
            fresh: dict[tuple[Two, str], Degrees] = {}
            for name, twos in self.active.items():
                whole = _product([alone[name], *(told.get((two, name), even) for two in twos)])
                for two in twos:
                    other = two[1] if two[0] == name else two[0]
                    rest = _without(whole, told.get((two, name), even))
                    fresh[two, other] = _passed_on(rest, joint[two])
            told = fresh
        return {
            name: _product([alone[name], *(told.get((two, name), even) for two in twos)])
            for name, twos in self.active.items()
        }

    def _alone(self, name: str, share: float) -> Degrees:
        """Combine the prior with the node's passes with nodes that never failed."""
        mine = set(self.active[name])
        passes = sum(self.edges[two][1] for two in self.near[name] if two not in mine)
        prior = (1.0 - share, *(share * degree for degree in DEGREES))
        return _scaled([p * (1.0 - rate) ** passes for p, rate in zip(prior, RATES, strict=True)])

    # -- nodes, links and switches at fault ------------------------------------------------------------------

    def accused(self) -> list[str]:
        """Nodes that are almost certainly bad and failed with at least two partners."""
        return sorted(n for n, p in self.bad.items() if p >= SURE and self._partners(n) > 1)

    def _partners(self, name: str) -> int:
        return sum(1 for two in self.near[name] if self.edges[two][0] and not self._crossing(two))

    def links(self) -> Iterator[tuple[Two, int, int]]:
        """Yield (pair, failed, passed) for failed pairs that no accused member explains."""
        for two, (failed, passed) in sorted(self.edges.items()):
            if failed and not self.sure.intersection(two) and not self._crossing(two):
                yield two, failed, passed

    def link(self, two: Two) -> float:
        """Return the probability that the link caused the failures, not a member."""
        failed, passed = self.edges[two]
        prior = max(LINK, SOME / (self.nodes * (self.nodes - 1) / 2 or 1))
        link = prior * SPOILS**failed * (1.0 - SPOILS) ** passed
        members = sum(self._apart(name, two) for name in two)
        return link / (link + members + CHANCE**failed)

    def _apart(self, name: str, two: Two) -> float:
        """Return the likelihood that this member is bad and caused the failures, judged by its other pairs."""
        failed, passed = self.edges[two]
        passed += self.passed(name, two)
        rows = zip(RATES[1:], self._shares(two), strict=True)
        return sum(share * rate**failed * (1.0 - rate) ** passed for rate, share in rows)

    def _shares(self, two: Two) -> list[float]:
        """Return the share of nodes that are bad in each degree, learned from all nodes but these two."""
        own = [self.degrees[name] for name in two if name in self.degrees]
        found = []
        for at, degree in enumerate(DEGREES, 1):
            others = self.bent[at] - sum(row[at] for row in own)
            share = (others + LEAST * degree * BEFORE) / (self.nodes + BEFORE)
            found.append(min(max(share, LEAST * degree), 0.3))
        return found

    def again(self, alone: int) -> list[Two]:
        """Unexplained pairs whose members both passed with others since."""
        return [
            two
            for two, f, p in self.links()
            if f + p < TESTS and f < self._enough() and self._fine_apart(two, alone)
        ]

    def _enough(self) -> int:
        return FAILS if self.nodes > FEW else 2

    def _fine_apart(self, two: Two, alone: int) -> bool:
        """Whether both members passed at least ``alone`` times since the pair failed and failed with no other
        good node.

        In a small fleet every node has met every other before a pair can be retried, so all passes count.
        """
        since = self.first[two] if self.nodes > FEW else 0
        return all(
            sum(at > since for at in self.passes.get(name, ())) >= alone and not self._unexplained(name, two)
            for name in two
        )

    def _unexplained(self, name: str, apart: Two) -> bool:
        """Whether the node also failed with another partner that is not accused itself."""
        others = (two for two in self.near[name] if two != apart and self.edges[two][0])
        return any(not self.sure.intersection(two) and not self._crossing(two) for two in others)

    def asked_across(self) -> list[Two]:
        """Pairs of switches with an unexplained failed pair between them that need more tests."""
        found: dict[Two, None] = {}
        for two, _, _ in self.links():
            leaves = self._leaves(two)
            if leaves is not None and leaves not in self.between and self._fine_apart(two, 1):
                found[leaves] = None
        return list(found)

    def open(self) -> bool:
        """Whether another round could change the result."""
        if any(DOUBT < p < SURE for p in self.bad.values()) or self.again(1) or self.asked_across():
            return True
        now_and_then = [n for n, p in self.bad.items() if p >= SURE and self.passed(n)]
        return bool(now_and_then)

    # -- suspects --------------------------------------------------------------------------------------------

    def suspects(self) -> list[Suspect]:
        accused = self.accused()
        whole = self._whole_switches(accused)
        hidden = {name for names in whole.values() for name in names}
        found = [self._switch((switch,), names) for switch, names in whole.items()]
        found += [self._pair_of_switches(leaves) for leaves in sorted(self.between)]
        found += [one for name in accused if name not in hidden for one in self._node(name)]
        found += self._links(hidden)
        return sorted(found, key=lambda one: (not one.confirmed, one.kind, one.names))

    def _whole_switches(self, accused: list[str]) -> dict[str, list[str]]:
        """Return the switches with nearly all nodes accused: the switch is at fault, not the nodes."""
        members: dict[str, int] = {}
        for name in self.near:
            if name in self.switches:
                members[self.switches[name]] = members.get(self.switches[name], 0) + 1
        by: dict[str, list[str]] = {}
        for name in accused:
            if name in self.switches:
                by.setdefault(self.switches[name], []).append(name)
        return {
            s: n for s, n in by.items() if len(n) >= 3 and len(n) >= 0.8 * members[s] and len(members) > 1
        }

    def _switch(self, names: tuple[str, ...], nodes: list[str]) -> Suspect:
        failed, passed = sum(map(self.failed, nodes)), sum(map(self.passed, nodes))
        says = f"{len(nodes)} of its nodes fail with nodes elsewhere: {failed} pairs failed, {passed} passed"
        return Suspect("switch", names, failed, passed, True, (says,))

    def _pair_of_switches(self, leaves: Two) -> Suspect:
        rows = [self.edges[two] for two in self.edges if self._leaves(two) == leaves]
        failed, passed = sum(row[0] for row in rows), sum(row[1] for row in rows)
        says = f"{failed} of {failed + passed} pairs across them failed; their nodes pass with others"
        return Suspect("switch", leaves, failed, passed, True, (says,))

    def _node(self, name: str) -> Iterator[Suspect]:
        """Yield the node, or only its failing GPUs if its other GPUs pass."""
        failed, passed = self.failed(name), self.passed(name)
        says = f"failed {failed} of {failed + passed} pairs, with {self._partners(name)} partners"
        gpus = self._gpus(name)
        if not gpus:
            yield Suspect("node", (name,), failed, passed, True, (says,))
        for gpu, count in sorted(gpus.items()):
            says = f"failed in {count} of {failed + passed} pairs of its node, with {self._partners(name)} partners"
            yield Suspect(
                "gpu", (name,), count, failed + passed - count, True, (says, "the others pass"), gpu
            )

    def _gpus(self, name: str) -> dict[int, int]:
        """Return the GPUs that explain the node's failures with their failure counts; empty if the whole node
        fails.
        """
        broken = [two for two in self.near[name] if self.edges[two][0] and not self._crossing(two)]
        alone = [two for two in broken if not any(other in self.sure for other in two if other != name)]
        parts = [part for two in alone or broken for part in self.parts.get(two, ())]
        if not parts or sum(1 for part in parts if not part) > 0.2 * len(parts):
            return {}
        counts: dict[int, int] = {}
        for gpu in (gpu for part in parts for gpu in part):
            counts[gpu] = counts.get(gpu, 0) + 1
        return {gpu: count for gpu, count in counts.items() if count > 1}

    def _links(self, hidden: set[str]) -> Iterator[Suspect]:
        for two, failed, passed in self.links():
            others = [self.passed(name, two) for name in two]
            if hidden.intersection(two):
                continue
            if failed >= self._enough() and all(others) and self.link(two) >= LIKELY:
                says = f"the pair failed {failed} of {failed + passed} times; each passes with others ({others[0]} and {others[1]} times)"
                says += self._rail(two)
                yield Suspect("link", two, failed, passed, True, (says,))
            elif passed == 0 and not self._explained(two):
                says = (
                    "the pair failed once and was not tried again"
                    if failed == 1
                    else "the pair fails; either node or the link"
                )
                yield Suspect("link", two, failed, passed, False, (says,))

    def _rail(self, two: Two) -> str:
        """Name the GPUs that fail in every failure of the pair."""
        always = frozenset.intersection(*self.parts.get(two, [frozenset()]))
        return f"; only GPU {', '.join(map(str, sorted(always)))} of each" if always else ""

    def _explained(self, two: Two) -> bool:
        """Whether a member is probably, though not certainly, bad and so may explain the failure."""
        return any(self.bad.get(name, 0.0) > 0.5 and self._partners(name) > 1 for name in two)


# -- arithmetic ------------------------------------------------------------------------------------------------


def _likely(failed: int, passed: int) -> tuple[Degrees, ...]:
    """Likelihood of a pair's outcomes for each degree of one member and of the other."""
    link = LINK * SPOILS**failed * (1.0 - SPOILS) ** passed
    rows = []
    for one in RATES:
        spoilt = [1.0 - (1.0 - one) * (1.0 - other) * (1.0 - CHANCE) for other in RATES]
        rows.append(tuple(link + (1.0 - LINK) * p**failed * (1.0 - p) ** passed for p in spoilt))
    return tuple(rows)


def _passed_on(mine: Degrees, joint: tuple[Degrees, ...]) -> Degrees:
    """Return the message of one member to the other. The table is symmetric."""
    a, b, c, d = mine
    return _scaled([a * row[0] + b * row[1] + c * row[2] + d * row[3] for row in joint])


def _product(rows: Iterable[Degrees]) -> Degrees:
    a = b = c = d = 1.0
    for row in rows:
        a, b, c, d = a * row[0], b * row[1], c * row[2], d * row[3]
        if (whole := a + b + c + d) < 1e-60:
            a, b, c, d = a / whole, b / whole, c / whole, d / whole
    return _scaled((a, b, c, d))


def _without(whole: Degrees, part: Degrees) -> Degrees:
    return _scaled([whole[0] / part[0], whole[1] / part[1], whole[2] / part[2], whole[3] / part[3]])


def _scaled(row: Iterable[float]) -> Degrees:
    values = [max(value, 1e-30) for value in row]
    whole = sum(values)
    return tuple(max(value / whole, 1e-30) for value in values)
