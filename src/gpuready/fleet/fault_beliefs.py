"""Estimate from the outcomes of node pairs which nodes, GPUs, links or switches are bad.

A node is good, or bad in one of three degrees (it makes 40, 70 or 99 % of its pairs fail). A pair fails when
either member or the link between them makes it fail, or, rarely, by chance. The probabilities come from
belief propagation over the pairs; their graph is sparse, almost a tree. A good node that met two bad ones is
explained by them and is not accused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuready.fleet.fault_degrees import (
    BAD_LINK_FAILURE,
    BAD_LINK_PRIOR,
    FAULT_RATES,
    RANDOM_FAILURE,
    DegreeProbabilities,
    divide_degrees,
    message_to_partner,
    multiply_degrees,
    normalize_degrees,
    outcome_likelihoods,
)
from gpuready.model.fleet import PASSED, FleetSuspect, NodePair

NodeNames = tuple[str, str]


DEGREE_PRIOR = (0.25, 0.35, 0.4)
"""Prior distribution of bad nodes over the three non-zero ``FAULT_RATES``."""
CERTAINLY_BAD = (0.0, 0.0, 0.0, 1.0)
SMALL_FLEET_BAD_LINKS, MIN_BAD_SHARE, PRIOR_WEIGHT = 0.1, 0.002, 100
"""Prior number of bad links in a small fleet, least share of bad nodes, and weight of that prior in nodes:
one bad node of eight says little about the other seven."""
NODE_CERTAIN, NODE_DOUBTFUL, LINK_CERTAIN = 0.99, 0.02, 0.95
"""A node is accused above the first and in doubt between the first two; a link is accused above the third."""
PROPAGATION_ROUNDS, PRIOR_UPDATES = 8, 2
MAX_LINK_TESTS, MIN_LINK_FAILURES, SMALL_FLEET = 4, 4, 8
"""Most tests of one pair, and failures needed to accuse its link; in a small fleet two failures are enough."""
MIN_FAILED_CROSSINGS, MIN_FAILED_SHARE = 3, 0.7
"""Failed pairs across two switches, and their share of all such pairs, needed to accuse the connection
between them."""


class FaultBeliefs:
    """Probabilities derived from the pairs of a search."""

    def __init__(self, pairs: Iterable[NodePair], switches: Mapping[str, str], nodes: int = 0):
        self.switches = switches
        self.edges: dict[NodeNames, list[int]] = {}  # pair -> failed, passed
        self.first_failure: dict[NodeNames, int] = {}  # pair -> round of its first failure
        self.failed_gpus: dict[NodeNames, list[frozenset[int]]] = {}  # pair -> GPUs of each failure; empty: all
        self.pass_rounds: dict[str, list[int]] = {}  # node -> rounds in which it passed
        for pair in pairs:
            two_names = (pair.first, pair.second) if pair.first < pair.second else (pair.second, pair.first)
            self.edges.setdefault(two_names, [0, 0])[pair.outcome == PASSED] += 1
            if pair.outcome != PASSED:
                self.failed_gpus.setdefault(two_names, []).append(frozenset(pair.gpus))
                self.first_failure[two_names] = min(pair.round, self.first_failure.get(two_names, pair.round))
                continue
            for name in two_names:
                self.pass_rounds.setdefault(name, []).append(pair.round)
        self.pairs_of_node: dict[str, list[NodeNames]] = {}
        for two_names in self.edges:
            for name in two_names:
                self.pairs_of_node.setdefault(name, []).append(two_names)
        self.nodes = max(nodes, len(self.pairs_of_node), 1)
        self.bad_switch_pairs = self._find_bad_switch_pairs()
        self.failed_pairs_of_node = self._find_failed_nodes()
        self.always_bad = self._find_always_bad()
        self.degrees = (
            self._estimate_degrees() if self.always_bad is None else dict.fromkeys(self.always_bad, CERTAINLY_BAD)
        )
        self.bad_probability = {name: 1.0 - row[0] for name, row in self.degrees.items()}
        self.degree_totals = [sum(column) for column in zip(*self.degrees.values(), strict=True)] or [0.0] * len(
            FAULT_RATES
        )
        self.certain_nodes = set(self.list_accused_nodes())

    # -- counting --------------------------------------------------------------------------------------------

    def count_failed_pairs(self, name: str) -> int:
        return sum(
            self.edges[names][0] for names in self.pairs_of_node.get(name, ()) if not self._crosses_bad_switches(names)
        )

    def count_passed_pairs(self, name: str, apart: NodeNames | None = None) -> int:
        return sum(self.edges[names][1] for names in self.pairs_of_node.get(name, ()) if names != apart)

    def _crossed_switches(self, names: NodeNames) -> NodeNames | None:
        """Return the two switches that a pair crosses, if any."""
        one, other = self.switches.get(names[0], ""), self.switches.get(names[1], "")
        return None if not one or not other or one == other else (min(one, other), max(one, other))

    def _crosses_bad_switches(self, names: NodeNames) -> bool:
        return bool(self.bad_switch_pairs) and self._crossed_switches(names) in self.bad_switch_pairs

    def _find_bad_switch_pairs(self) -> set[NodeNames]:
        """Return the pairs of switches between which most pairs fail though their nodes pass elsewhere."""
        self.bad_switch_pairs = set()
        return {leaves for leaves, pairs in self._group_by_switches().items() if self._switches_explain_failures(pairs)}

    def _group_by_switches(self) -> dict[NodeNames, list[NodeNames]]:
        if not self.switches:
            return {}
        failing = {self._crossed_switches(names) for names, (failed, _) in self.edges.items() if failed} - {None}
        groups: dict[NodeNames, list[NodeNames]] = {}
        for names in self.edges:
            leaves = self._crossed_switches(names)
            if leaves is not None and leaves in failing:
                groups.setdefault(leaves, []).append(names)
        return groups

    def _switches_explain_failures(self, pairs: list[NodeNames]) -> bool:
        broken = [names for names in pairs if self.edges[names][0]]
        tests = sum(sum(self.edges[names]) for names in pairs)
        failed = sum(self.edges[names][0] for names in pairs)
        if len(broken) < MIN_FAILED_CROSSINGS or failed < MIN_FAILED_SHARE * tests:
            return False
        inside = set(pairs)
        members = {name for names in broken for name in names}
        clean = [name for name in members if self._passes_elsewhere(name, inside)]
        return len(clean) >= 0.8 * len(members) and len(members) > len(broken)

    def _passes_elsewhere(self, name: str, inside: set[NodeNames]) -> bool:
        outside = [self.edges[names] for names in self.pairs_of_node[name] if names not in inside]
        return bool(outside) and not any(failed for failed, _ in outside)

    def _find_always_bad(self) -> set[str] | None:
        """Return the bad nodes if permanent faults alone explain every failure, else None.

        Then every node that passed once is good, and every failed pair has a member that never passed.
        """
        never = {name for name in self.failed_pairs_of_node if not self.count_passed_pairs(name)}
        for name, pairs in self.failed_pairs_of_node.items():
            if name not in never and any(self.edges[names][0] and not never.intersection(names) for names in pairs):
                return None
        sure = {
            name
            for name in never
            if any(self._failed_with_good_node(name, names, never) for names in self.pairs_of_node[name])
        }
        return sure if all(sure.intersection(names) for names in self._failed_pairs()) else None

    def _failed_with_good_node(self, name: str, names: NodeNames, never: set[str]) -> bool:
        """Whether the pair failed although its other member is good."""
        other = names[1] if names[0] == name else names[0]
        return bool(self.edges[names][0]) and other not in never and not self._crosses_bad_switches(names)

    def _failed_pairs(self) -> list[NodeNames]:
        return [names for pairs in self.failed_pairs_of_node.values() for names in pairs if self.edges[names][0]]

    # -- belief propagation ----------------------------------------------------------------------------------

    def _find_failed_nodes(self) -> dict[str, list[NodeNames]]:
        """Map each node that failed to its pairs with other nodes that failed."""
        failed = {
            name
            for names, (fails, _) in self.edges.items()
            if fails and not self._crosses_bad_switches(names)
            for name in names
        }
        return {
            name: [
                names
                for names in self.pairs_of_node[name]
                if failed.issuperset(names) and not self._crosses_bad_switches(names)
            ]
            for name in failed
        }

    def _estimate_degrees(self) -> dict[str, DegreeProbabilities]:
        """Return the degree probabilities of each node that failed, re-estimating the share of bad nodes."""
        share = 0.01
        degrees: dict[str, DegreeProbabilities] = {}
        for _ in range(PRIOR_UPDATES if self.failed_pairs_of_node else 0):
            degrees = self._propagate_beliefs(share)
            bad = sum(1.0 - row[0] for row in degrees.values())
            share = min(max(bad / self.nodes, MIN_BAD_SHARE), 0.3)
        return degrees

    def _propagate_beliefs(self, share: float) -> dict[str, DegreeProbabilities]:
        alone = {name: self._node_prior(name, share) for name in self.failed_pairs_of_node}
        messages: dict[tuple[NodeNames, str], DegreeProbabilities] = {}  # (pair, member) -> message to that member
        uniform = (1.0,) * len(FAULT_RATES)
        kinds = {tuple(row) for row in self.edges.values()}
        tables = {kind: outcome_likelihoods(*kind) for kind in kinds}
        likelihoods = {
            names: tables[tuple(self.edges[names])] for pairs in self.failed_pairs_of_node.values() for names in pairs
        }
        for _ in range(PROPAGATION_ROUNDS):
            fresh: dict[tuple[NodeNames, str], DegreeProbabilities] = {}
            for name, pairs in self.failed_pairs_of_node.items():
                whole = multiply_degrees([alone[name], *(messages.get((names, name), uniform) for names in pairs)])
                for names in pairs:
                    other = names[1] if names[0] == name else names[0]
                    rest = divide_degrees(whole, messages.get((names, name), uniform))
                    fresh[names, other] = message_to_partner(rest, likelihoods[names])
            messages = fresh
        return {
            name: multiply_degrees([alone[name], *(messages.get((names, name), uniform) for names in pairs)])
            for name, pairs in self.failed_pairs_of_node.items()
        }

    def _node_prior(self, name: str, share: float) -> DegreeProbabilities:
        """Combine the prior with the node's passes with nodes that never failed."""
        mine = set(self.failed_pairs_of_node[name])
        passes = sum(self.edges[names][1] for names in self.pairs_of_node[name] if names not in mine)
        prior = (1.0 - share, *(share * degree for degree in DEGREE_PRIOR))
        return normalize_degrees([p * (1.0 - rate) ** passes for p, rate in zip(prior, FAULT_RATES, strict=True)])

    # -- nodes, links and switches at fault ------------------------------------------------------------------

    def list_accused_nodes(self) -> list[str]:
        """Nodes that are almost certainly bad and failed with at least two partners."""
        return sorted(
            n for n, p in self.bad_probability.items() if p >= NODE_CERTAIN and self._count_failed_partners(n) > 1
        )

    def _count_failed_partners(self, name: str) -> int:
        return sum(
            1 for names in self.pairs_of_node[name] if self.edges[names][0] and not self._crosses_bad_switches(names)
        )

    def unexplained_pairs(self) -> Iterator[tuple[NodeNames, int, int]]:
        """Yield (pair, failed, passed) for failed pairs that no accused member explains."""
        for names, (failed, passed) in sorted(self.edges.items()):
            if failed and not self.certain_nodes.intersection(names) and not self._crosses_bad_switches(names):
                yield names, failed, passed

    def link_probability(self, names: NodeNames) -> float:
        """Return the probability that the link caused the failures, not a member."""
        failed, passed = self.edges[names]
        prior = max(BAD_LINK_PRIOR, SMALL_FLEET_BAD_LINKS / (self.nodes * (self.nodes - 1) / 2 or 1))
        link = prior * BAD_LINK_FAILURE**failed * (1.0 - BAD_LINK_FAILURE) ** passed
        members = sum(self._member_likelihood(name, names) for name in names)
        return link / (link + members + RANDOM_FAILURE**failed)

    def _member_likelihood(self, name: str, names: NodeNames) -> float:
        """Return the likelihood that this member is bad and caused the failures, judged by its other pairs."""
        failed, passed = self.edges[names]
        passed += self.count_passed_pairs(name, names)
        rows = zip(FAULT_RATES[1:], self._learned_degree_shares(names), strict=True)
        return sum(share * rate**failed * (1.0 - rate) ** passed for rate, share in rows)

    def _learned_degree_shares(self, names: NodeNames) -> list[float]:
        """Return the share of nodes that are bad in each degree, learned from all nodes but these two."""
        own = [self.degrees[name] for name in names if name in self.degrees]
        shares = []
        for degree_index, degree in enumerate(DEGREE_PRIOR, 1):
            others = self.degree_totals[degree_index] - sum(row[degree_index] for row in own)
            share = (others + MIN_BAD_SHARE * degree * PRIOR_WEIGHT) / (self.nodes + PRIOR_WEIGHT)
            shares.append(min(max(share, MIN_BAD_SHARE * degree), 0.3))
        return shares

    def pairs_to_retry(self, alone: int) -> list[NodeNames]:
        """Unexplained pairs whose members both passed with others since."""
        return [
            names
            for names, f, p in self.unexplained_pairs()
            if f + p < MAX_LINK_TESTS and f < self._min_link_failures() and self._both_pass_elsewhere(names, alone)
        ]

    def _min_link_failures(self) -> int:
        return MIN_LINK_FAILURES if self.nodes > SMALL_FLEET else 2

    def _both_pass_elsewhere(self, names: NodeNames, alone: int) -> bool:
        """Whether both members passed at least ``alone`` times since the pair failed and failed with no other
        good node.

        In a small fleet every node has met every other before a pair can be retried, so all passes count.
        """
        since = self.first_failure[names] if self.nodes > SMALL_FLEET else 0
        return all(
            sum(at > since for at in self.pass_rounds.get(name, ())) >= alone and not self._fails_elsewhere(name, names)
            for name in names
        )

    def _fails_elsewhere(self, name: str, apart: NodeNames) -> bool:
        """Whether the node also failed with another partner that is not accused itself."""
        others = (names for names in self.pairs_of_node[name] if names != apart and self.edges[names][0])
        return any(
            not self.certain_nodes.intersection(names) and not self._crosses_bad_switches(names) for names in others
        )

    def switches_to_test(self) -> list[NodeNames]:
        """Pairs of switches with an unexplained failed pair between them that need more tests."""
        switches: dict[NodeNames, None] = {}
        for names, _, _ in self.unexplained_pairs():
            leaves = self._crossed_switches(names)
            if leaves is not None and leaves not in self.bad_switch_pairs and self._both_pass_elsewhere(names, 1):
                switches[leaves] = None
        return list(switches)

    def needs_more_rounds(self) -> bool:
        """Whether another round could change the result."""
        if (
            any(NODE_DOUBTFUL < p < NODE_CERTAIN for p in self.bad_probability.values())
            or self.pairs_to_retry(1)
            or self.switches_to_test()
        ):
            return True
        now_and_then = [n for n, p in self.bad_probability.items() if p >= NODE_CERTAIN and self.count_passed_pairs(n)]
        return bool(now_and_then)

    # -- suspects --------------------------------------------------------------------------------------------

    def list_suspects(self) -> list[FleetSuspect]:
        accused = self.list_accused_nodes()
        whole_switches = self._find_accused_switches(accused)
        hidden = {name for names in whole_switches.values() for name in names}
        suspects = [self._switch_suspect((switch,), names) for switch, names in whole_switches.items()]
        suspects += [self._switch_pair_suspect(leaves) for leaves in sorted(self.bad_switch_pairs)]
        suspects += [one for name in accused if name not in hidden for one in self._node_suspects(name)]
        suspects += self._link_suspects(hidden)
        return sorted(suspects, key=lambda one: (not one.confirmed, one.kind, one.names))

    def _find_accused_switches(self, accused: list[str]) -> dict[str, list[str]]:
        """Return the switches with nearly all nodes accused: the switch is at fault, not the nodes."""
        members: dict[str, int] = {}
        for name in self.pairs_of_node:
            if name in self.switches:
                members[self.switches[name]] = members.get(self.switches[name], 0) + 1
        by: dict[str, list[str]] = {}
        for name in accused:
            if name in self.switches:
                by.setdefault(self.switches[name], []).append(name)
        return {s: n for s, n in by.items() if len(n) >= 3 and len(n) >= 0.8 * members[s] and len(members) > 1}

    def _switch_suspect(self, names: tuple[str, ...], nodes: list[str]) -> FleetSuspect:
        failed, passed = sum(map(self.count_failed_pairs, nodes)), sum(map(self.count_passed_pairs, nodes))
        evidence = f"{len(nodes)} of its nodes fail with nodes elsewhere: {failed} pairs failed, {passed} passed"
        return FleetSuspect("switch", names, failed, passed, True, (evidence,))

    def _switch_pair_suspect(self, leaves: NodeNames) -> FleetSuspect:
        rows = [self.edges[names] for names in self.edges if self._crossed_switches(names) == leaves]
        failed, passed = sum(row[0] for row in rows), sum(row[1] for row in rows)
        evidence = f"{failed} of {failed + passed} pairs across them failed; their nodes pass with others"
        return FleetSuspect("switch", leaves, failed, passed, True, (evidence,))

    def _node_suspects(self, name: str) -> Iterator[FleetSuspect]:
        """Yield the node, or only its failing GPUs if its other GPUs pass."""
        failed, passed = self.count_failed_pairs(name), self.count_passed_pairs(name)
        evidence = f"failed {failed} of {failed + passed} pairs, with {self._count_failed_partners(name)} partners"
        gpus = self._guilty_gpus(name)
        if not gpus:
            yield FleetSuspect("node", (name,), failed, passed, True, (evidence,))
        for gpu, count in sorted(gpus.items()):
            evidence = f"failed in {count} of {failed + passed} pairs of its node, with {self._count_failed_partners(name)} partners"
            yield FleetSuspect("gpu", (name,), count, failed + passed - count, True, (evidence, "the others pass"), gpu)

    def _guilty_gpus(self, name: str) -> dict[int, int]:
        """Return the GPUs that explain the node's failures with their failure counts; empty if the whole node
        fails.
        """
        broken = [
            names
            for names in self.pairs_of_node[name]
            if self.edges[names][0] and not self._crosses_bad_switches(names)
        ]
        alone = [names for names in broken if not any(other in self.certain_nodes for other in names if other != name)]
        parts = [part for names in alone or broken for part in self.failed_gpus.get(names, ())]
        if not parts or sum(1 for part in parts if not part) > 0.2 * len(parts):
            return {}
        counts: dict[int, int] = {}
        for gpu in (gpu for part in parts for gpu in part):
            counts[gpu] = counts.get(gpu, 0) + 1
        return {gpu: count for gpu, count in counts.items() if count > 1}

    def _link_suspects(self, hidden: set[str]) -> Iterator[FleetSuspect]:
        for names, failed, passed in self.unexplained_pairs():
            others = [self.count_passed_pairs(name, names) for name in names]
            if hidden.intersection(names):
                continue
            if failed >= self._min_link_failures() and all(others) and self.link_probability(names) >= LINK_CERTAIN:
                evidence = f"the pair failed {failed} of {failed + passed} times; each passes with others ({others[0]} and {others[1]} times)"
                evidence += self._common_gpus_note(names)
                yield FleetSuspect("link", names, failed, passed, True, (evidence,))
            elif passed == 0 and not self._explained_by_member(names):
                evidence = (
                    "the pair failed once and was not tried again"
                    if failed == 1
                    else "the pair fails; either node or the link"
                )
                yield FleetSuspect("link", names, failed, passed, False, (evidence,))

    def _common_gpus_note(self, names: NodeNames) -> str:
        """Name the GPUs that fail in every failure of the pair."""
        always = frozenset.intersection(*self.failed_gpus.get(names, [frozenset()]))
        return f"; only GPU {', '.join(map(str, sorted(always)))} of each" if always else ""

    def _explained_by_member(self, names: NodeNames) -> bool:
        """Whether a member is probably, though not certainly, bad and so may explain the failure."""
        return any(
            self.bad_probability.get(name, 0.0) > 0.5 and self._count_failed_partners(name) > 1 for name in names
        )
