"""Find the facts in which nodes differ from the majority of their stratum or from a reference.

Fingerprints show that nodes differ; one node of each group is then asked for the facts. The cost grows with
the number of groups, not of nodes. Two parts of similar size are a split, not half a fleet of broken nodes.
"""

from __future__ import annotations

from gpuready.fleet.facets import FACETS, UNKNOWN
from gpuready.fleet.nodeset import fold
from gpuready.fleeted import Drift, Group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuready.fleet.record import Record

    Details = Mapping[str, Mapping[str, Mapping[str, Any]]]
    Rows = Mapping[str, Any]
    Members = dict[str, list[str]]  # fingerprint or value -> nodes

CLEAR = 0.6
"""Above this share the most common value is the expected one."""
PART, PARTS = 0.25, 10
"""A second value on this share of the nodes, and on at least this many, is the other part of a split."""
MOST = 64
"""Groups of one facet that are asked for details; more mean that the fact differs everywhere."""


class Differing:
    """One facet of one stratum with more than one fingerprint."""

    def __init__(self, facet: str, stratum: str, members: Members, want: str, reference: Rows | None):
        self.facet, self.stratum, self.members = facet, stratum, members
        self.want, self.reference = want, reference
        self.of = sum(map(len, members.values()))

    def groups(self) -> list[tuple[str, list[str]]]:
        """Return the groups to ask: the expected one first, then by size."""
        ordered = sorted(self.members.items(), key=lambda row: (row[0] != self.want, -len(row[1]), row[0]))
        return ordered[:MOST]


def differing(
    records: Mapping[str, Record],
    stratum_of: Mapping[str, str],
    reference: Mapping[str, Rows] | None = None,
    reference_kind: str | None = None,
) -> list[Differing]:
    """Compare every facet of every stratum. A facet that a node does not report is not compared."""
    from gpuready.fleet.facets import fingerprint

    tables: dict[tuple[str, str], Members] = {}
    whole: dict[tuple[str, str], list[str]] = {}
    kinds: dict[str, set[str]] = {}
    for name, record in records.items():
        stratum = stratum_of[name]
        kinds.setdefault(stratum, set()).add(record.kind)
        whole.setdefault((stratum, record.prints), []).append(name)
    for (stratum, _), names in whole.items():
        for facet in FACETS:  # nodes with equal fingerprints are handled once
            if mark := records[names[0]].print(facet):
                tables.setdefault((stratum, facet), {}).setdefault(mark, []).extend(names)
    found = []
    for (stratum, facet), members in sorted(tables.items(), key=lambda row: row[0][0]):
        same = reference is not None and (reference_kind is None or reference_kind in kinds[stratum])
        rows = reference.get(facet) if reference is not None and same else None
        want = fingerprint(rows) if rows is not None else max(members, key=lambda m: (len(members[m]), m))
        if set(members) != {want}:
            found.append(Differing(facet, stratum, members, want, rows))
    return found


def questions(
    differ: Iterable[Differing], have: Details, avoid: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Choose which nodes to ask for which facets: one of each group, unless its details are known."""
    asked: dict[str, list[str]] = {}
    passed_over = set(avoid)
    for one in differ:
        for mark, nodes in one.groups():
            known = mark == one.want and one.reference is not None
            if known or any(one.facet in have.get(node, {}) for node in nodes):
                continue
            willing = [node for node in nodes if node not in passed_over]
            chosen = next((node for node in willing if node in asked), willing[0] if willing else None)
            if chosen is not None:
                asked.setdefault(chosen, []).append(one.facet)
    return {node: tuple(facets) for node, facets in asked.items()}


def explain(differ: Iterable[Differing], details: Details) -> list[Drift]:
    """Return the differences of all groups key by key, the largest group first."""
    return [drift for one in differ for drift in _explained(one, details)]


def _explained(one: Differing, details: Details) -> list[Drift]:
    told = {
        mark: rows
        for mark, nodes in one.members.items()
        if (rows := _rows(one, mark, nodes, details)) is not None
    }
    if one.reference is not None:  # the reference counts even if no node matches it
        told[one.want] = _flat(one.reference)
    if one.want not in told or len(told) < 2:
        return [_bare(one)]
    if len(one.members) > MOST and len(one.members[one.want]) <= CLEAR * one.of:
        return [_everywhere(one, told)]
    wanted = told[one.want]
    keys = dict.fromkeys(key for rows in told.values() for key in rows)
    found = [drift for key in keys for drift in _key(one, key, _under(wanted, key), told)]
    return [*found, *_untold(one, told)]


def _rows(one: Differing, mark: str, nodes: list[str], details: Details) -> Rows | None:
    if mark == one.want and one.reference is not None:
        return _flat(one.reference)
    rows = next((details[node][one.facet] for node in nodes if one.facet in details.get(node, {})), None)
    return None if rows is None else _flat(rows)


def _flat(rows: Rows, before: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys."""
    found: dict[str, Any] = {}
    for key, value in rows.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _under(rows: Rows, key: str) -> Any:
    """Return the value of a dotted key; UNKNOWN if an enclosing table is unknown."""
    if key in rows:
        return rows[key]
    parts = key.split(".")
    tables = (".".join(parts[:at]) for at in range(1, len(parts)))
    return UNKNOWN if any(rows.get(table) == UNKNOWN for table in tables) else None


def _key(one: Differing, key: str, wanted: Any, told: Mapping[str, Rows]) -> list[Drift]:
    """Return the groups with another value of one fact. An unknown value is not a difference."""
    values: Members = {}
    for mark, nodes in one.members.items():
        if mark in told:
            values.setdefault(written(_under(told[mark], key)), []).extend(nodes)
    values.pop(UNKNOWN, None)
    want = written(wanted)
    if want == UNKNOWN or not set(values) - {want}:
        return []
    if one.reference is None:
        want = max(values, key=lambda value: (len(values[value]), value == want, value))
    others = {value: nodes for value, nodes in values.items() if value != want}
    return _parted(one, key, want, values, others)


def _parted(one: Differing, key: str, want: str, values: Members, others: Members) -> list[Drift]:
    of = sum(map(len, values.values()))
    against = "majority" if one.reference is None else "reference"
    parts = (
        {}
        if one.reference is not None
        else {v: n for v, n in others.items() if _part(len(n), len(values[want]), of)}
    )
    rest = {value: nodes for value, nodes in others.items() if value not in parts}
    rows = [(parts, True), (rest, False)]
    return [
        Drift(one.facet, key, want, _groups(some), of, one.stratum, against, split)
        for some, split in rows
        if some
    ]


def _part(count: int, largest: int, of: int) -> bool:
    """Whether this many nodes form the other part of a split rather than single deviating nodes."""
    return (largest <= CLEAR * of and count >= PART * of) or (count >= PART * of and count >= PARTS)


def _groups(values: Members) -> tuple[Group, ...]:
    ordered = sorted(values.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple(Group(value, fold(sorted(nodes)), len(nodes)) for value, nodes in ordered)


def _bare(one: Differing) -> Drift:
    """Report only fingerprints: no node reported details."""
    others = {f"fingerprint {mark}": nodes for mark, nodes in one.members.items() if mark != one.want}
    largest = len(one.members.get(one.want, ()))
    split = one.reference is None and any(_part(len(nodes), largest, one.of) for nodes in others.values())
    against = "majority" if one.reference is None else "reference"
    return Drift(
        one.facet, one.facet, f"fingerprint {one.want}", _groups(others), one.of, one.stratum, against, split
    )


def _untold(one: Differing, told: Mapping[str, Rows]) -> list[Drift]:
    """Report the groups that were asked for details and did not reply."""
    others = {f"fingerprint {mark}": nodes for mark, nodes in one.members.items() if mark not in told}
    if not others:
        return []
    return [Drift(one.facet, one.facet, f"fingerprint {one.want}", _groups(others), one.of, one.stratum)]


def _everywhere(one: Differing, told: Mapping[str, Rows]) -> Drift:
    """Report a facet in which nearly every node has its own value: the fact is odd, not the nodes."""
    rows = list(told.values())
    keys = [key for key in rows[0] if len({written(row.get(key)) for row in rows}) > len(rows) // 2]
    everyone = [node for nodes in one.members.values() for node in nodes]
    value = f"{len(one.members)} different values"
    key = ", ".join(keys[:3]) or one.facet
    return Drift(
        one.facet, key, "one value", (Group(value, fold(everyone), one.of),), one.of, one.stratum, split=True
    )


def written(value: Any) -> str:
    """Format a value for a reader: plain text, lists of equal items as ``8 x value``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        items = [written(item) for item in value]
        if len(items) > 1 and len(set(items)) == 1:
            return f"{len(items)} x {items[0]}"
        return ", ".join(items) or "none"
    return str(value) if value != {} else "none"
