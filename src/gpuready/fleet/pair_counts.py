"""Tell by counting the outcomes of node pairs which nodes, GPUs or links are bad.

A node that passed, and failed with nobody but bad nodes, is good. A node that failed, and then failed again with two
good nodes, is bad; if it also passed, it failed with three. A pair that fails again and again while both pass with
others is a link. A pair that ended by its time limit says nothing, and one that was slow has passed.
"""

from collections.abc import Iterable, Iterator

from gpuready.model.fleet import FAILED, PASSED, FleetSuspect, NodePair

NodeNames = tuple[str, str]

SMALL_FLEET = 8
"""Up to this many nodes all meet each other."""
BAD_NODE_FAILURES, GOOD_PARTNERS, GOOD_PARTNERS_SOMETIMES = 3, 2, 3
"""Failures of a bad node, and good nodes that it failed with: if it never passed, and if it did."""
LINK_FAILURES, PASSES_BEFORE_RETRY = 3, 2
"""Failures of a bad link, and how often both nodes pass with others before each; two and one in a small fleet."""


class PairCounts:
    """What the pairs so far say of nodes and links."""

    def __init__(self, pairs: Iterable[NodePair], nodes: int):
        small = nodes <= SMALL_FLEET
        self.node_failures = min(BAD_NODE_FAILURES, nodes - 1)
        self.link_failures = LINK_FAILURES - small
        self.passes_before_retry = PASSES_BEFORE_RETRY - small
        self.failed: dict[NodeNames, list[NodePair]] = {}
        self.passed: dict[NodeNames, list[NodePair]] = {}
        self.pass_rounds: dict[str, list[int]] = {}
        for pair in pairs:
            self._add_pair(pair)
        self.failed_with = self._count_partners(self.failed)
        self.never_passed = set(self.failed_with) - set(self.pass_rounds)
        self.bad = self._find_bad_nodes()
        self.good = {name for name in self.pass_rounds if self._is_good(name, self.bad | self.never_passed)}
        failed = [names for names in sorted(self.failed) if names not in self.passed]  # and no node of them is bad:
        unexplained = [names for names in failed if self.bad.isdisjoint(names)]
        self.links = [names for names in unexplained if self._is_bad_link(names)]
        self.undecided = [names for names in unexplained if names not in self.links]

    def _add_pair(self, pair: NodePair) -> None:
        names = order_names(pair.first, pair.second)
        if pair.outcome == FAILED:
            self.failed.setdefault(names, []).append(pair)
        elif pair.outcome == PASSED or pair.rate > 0:  # it was slow, and its numbers are right
            self.passed.setdefault(names, []).append(pair)
            for name in names:
                self.pass_rounds.setdefault(name, []).append(pair.round)

    def _count_partners(self, pairs: Iterable[NodeNames]) -> dict[str, set[str]]:
        partners: dict[str, set[str]] = {}
        for one, other in pairs:
            partners.setdefault(one, set()).add(other)
            partners.setdefault(other, set()).add(one)
        return partners

    # -- nodes -------------------------------------------------------------------------------------------------

    def _find_bad_nodes(self) -> set[str]:
        bad: set[str] = set()
        while found := {name for name in self.failed_with if name not in bad and self._is_bad(name, bad)}:
            bad |= found
        return bad

    def _is_bad(self, name: str, bad: set[str]) -> bool:
        blamed = bad | self.never_passed | {name}
        good = [other for other in self.failed_with[name] if self._is_good(other, blamed)]
        least = GOOD_PARTNERS_SOMETIMES if name in self.pass_rounds else GOOD_PARTNERS
        return len(good) >= least and self._failed_count(name) >= self.node_failures

    def _is_good(self, name: str, blamed: set[str]) -> bool:
        return name in self.pass_rounds and self.failed_with.get(name, set()) <= blamed

    # -- links ------------------------------------------------------------------------------------

    def _is_bad_link(self, names: NodeNames) -> bool:
        """Whether it failed often enough; where a node fails now and then, a link cannot be told from such a node."""
        if not self.bad.isdisjoint(self.pass_rounds):
            return False
        blamed = self.bad | self.never_passed | set(names)
        return len(self.failed[names]) >= self.link_failures and all(self._is_good(name, blamed) for name in names)

    def pairs_to_retry(self) -> list[NodeNames]:
        """Undecided pairs whose nodes have both passed with others since."""
        return [names for names in self.undecided if all(self._passed_since(name, names) for name in names)]

    def _passed_since(self, name: str, names: NodeNames) -> bool:
        since = self.failed[names][-1].round if self.link_failures == LINK_FAILURES else 0
        return sum(at > since for at in self.pass_rounds.get(name, ())) >= self.passes_before_retry

    # -- suspects ----------------------------------------------------------------------------------------------

    def list_suspects(self) -> list[FleetSuspect]:
        """List the suspects, the confirmed ones first."""
        suspects = [one for name in self.bad for one in self._node_suspects(name)]
        suspects += [self._link_suspect(names) for names in self.links]
        suspects += self._unconfirmed_suspects()
        return sorted(suspects, key=lambda one: (not one.confirmed, one.kind, one.names, one.gpu or 0))

    def _node_suspects(self, name: str) -> Iterator[FleetSuspect]:
        """Yield the node, or only its GPUs that failed each time."""
        failed, passed = self._failed_count(name), self._passed_count(name)
        good = self.failed_with[name] - self.bad
        pairs = [pair for other in good for pair in self.failed[order_names(name, other)]]
        evidence = f"failed {len(pairs)} of {len(pairs) + passed} pairs with good nodes"
        gpus = common_gpus(pairs)
        if not gpus:
            yield FleetSuspect("node", (name,), failed, passed, True, (evidence,))
        for gpu in gpus:
            yield FleetSuspect("gpu", (name,), failed, passed, True, (evidence, "the other GPUs pass"), gpu)

    def _link_suspect(self, names: NodeNames) -> FleetSuspect:
        failed, others = len(self.failed[names]), [self._passed_count(name) for name in names]
        evidence = (
            f"the pair failed {failed} of {failed} times; each passes with others ({others[0]} and {others[1]} times)"
        )
        if gpus := common_gpus(self.failed[names]):
            evidence += f"; only GPU {', '.join(map(str, gpus))} of each"
        return FleetSuspect("link", names, failed, 0, True, (evidence,))

    def _unconfirmed_suspects(self) -> Iterator[FleetSuspect]:
        """Yield nodes that failed with several, then pairs that failed; nobody can tell which of them is bad."""
        why = "either node or the link" if self.good else "no pair passed, so it may be a fault of all nodes"
        partners = self._count_partners(self.undecided)
        several = sorted(name for name, others in partners.items() if len(others) > 1)
        for name in several:
            evidence = (
                f"failed with {len(partners[name])} nodes that are not known to be good: can't tell whose fault it is"
            )
            yield FleetSuspect("node", (name,), self._failed_count(name), self._passed_count(name), False, (evidence,))
        for names in self.undecided:
            if not set(several).intersection(names):
                failed = len(self.failed[names])
                yield FleetSuspect(
                    "link", names, failed, 0, False, (f"the pair failed {failed} of {failed} times: {why}",)
                )

    def _failed_count(self, name: str) -> int:
        return sum(len(self.failed[order_names(name, other)]) for other in self.failed_with.get(name, ()))

    def _passed_count(self, name: str) -> int:
        return len(self.pass_rounds.get(name, ()))


def order_names(one: str, other: str) -> NodeNames:
    return (one, other) if one < other else (other, one)


def common_gpus(pairs: Iterable[NodePair]) -> list[int]:
    """Return the GPUs that failed in each of these pairs; none if all GPUs of a pair did."""
    return sorted(frozenset.intersection(*(frozenset(pair.gpus) for pair in pairs)))
