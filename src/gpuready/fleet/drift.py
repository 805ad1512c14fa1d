"""Find the facts in which nodes differ from the majority of their peers or from a reference.

Fingerprints show that nodes differ; one node of each group is then asked for the facts. The cost grows with
the number of groups, not of nodes. Two parts of similar size are a split, not half a fleet of broken nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpuready.fleet.areas import AREAS, UNKNOWN, hash_value
from gpuready.fleet.node_report import NodeReport
from gpuready.model.fleet import Drift, NodeGroup
from gpuready.model.node_names import fold_node_names

Details = Mapping[str, Mapping[str, Mapping[str, Any]]]
FactTable = Mapping[str, Any]
NodesByValue = dict[str, list[str]]  # fingerprint or value -> nodes


MAJORITY_SHARE = 0.6
"""Above this share the most common value is the expected one."""
SPLIT_SHARE, SPLIT_NODES = 0.25, 10
"""A second value on this share of the nodes, and on at least this many, is the other part of a split."""
EVERYWHERE_SHARE = 0.75
"""With more different values than this share of the nodes, the fact differs by nature and no node is at fault."""
MAX_GROUPS = 64
"""Groups of one area that are asked for details; more mean that the fact differs everywhere."""


class AreaDifference:
    """One area of one peer group with more than one fingerprint."""

    def __init__(self, area: str, peers: str, members: NodesByValue, want: str, reference: FactTable | None):
        self.area, self.peers, self.members = area, peers, members
        self.want, self.reference = want, reference
        self.node_count = sum(map(len, members.values()))

    def groups_to_ask(self) -> list[tuple[str, list[str]]]:
        """Return the groups to ask: the expected one first, then by size."""
        ordered = sorted(self.members.items(), key=lambda row: (row[0] != self.want, -len(row[1]), row[0]))
        return ordered[:MAX_GROUPS]


def find_area_differences(
    records: Mapping[str, NodeReport],
    peers_of: Mapping[str, str],
    reference: Mapping[str, FactTable] | None = None,
    reference_kind: str | None = None,
) -> list[AreaDifference]:
    """Compare every area of every peer group. A area that a node does not report is not compared."""
    tables: dict[tuple[str, str], NodesByValue] = {}
    nodes_by_prints: dict[tuple[str, str], list[str]] = {}
    kinds: dict[str, set[str]] = {}
    for name, record in records.items():
        peers = peers_of[name]
        kinds.setdefault(peers, set()).add(record.kind)
        nodes_by_prints.setdefault((peers, record.prints), []).append(name)
    for (peers, _), names in nodes_by_prints.items():
        for area in AREAS:  # nodes with equal fingerprints are handled once
            if mark := records[names[0]].fingerprint_of(area):
                tables.setdefault((peers, area), {}).setdefault(mark, []).extend(names)
    differences = []
    for (peers, area), members in sorted(tables.items(), key=lambda row: row[0][0]):
        applies = reference is not None and (reference_kind is None or reference_kind in kinds[peers])
        rows = reference.get(area) if reference is not None and applies else None
        want = hash_value(rows) if rows is not None else max(members, key=lambda m: (len(members[m]), m))
        if set(members) != {want}:
            differences.append(AreaDifference(area, peers, members, want, rows))
    return differences


def plan_detail_requests(
    differ: Iterable[AreaDifference], known_details: Details, avoid: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Choose which nodes to ask for which areas: one of each group, unless its details are known."""
    requests: dict[str, list[str]] = {}
    skipped = set(avoid)
    for difference in differ:
        for mark, nodes in difference.groups_to_ask():
            known = mark == difference.want and difference.reference is not None
            if known or any(difference.area in known_details.get(node, {}) for node in nodes):
                continue
            willing = [node for node in nodes if node not in skipped]
            chosen = next((node for node in willing if node in requests), willing[0] if willing else None)
            if chosen is not None:
                requests.setdefault(chosen, []).append(difference.area)
    return {node: tuple(areas) for node, areas in requests.items()}


def explain_differences(differ: Iterable[AreaDifference], details: Details) -> list[Drift]:
    """Return the differences of all groups key by key, the largest group first."""
    return [drift for difference in differ for drift in _explain_difference(difference, details)]


def _explain_difference(difference: AreaDifference, details: Details) -> list[Drift]:
    details_by_print = {
        mark: rows
        for mark, nodes in difference.members.items()
        if (rows := _group_details(difference, mark, nodes, details)) is not None
    }
    if difference.reference is not None:  # the reference counts even if no node matches it
        details_by_print[difference.want] = _flatten_table(difference.reference)
    if difference.want not in details_by_print or len(details_by_print) < 2:
        return [_drift_by_fingerprint(difference)]
    if (
        len(difference.members) > MAX_GROUPS
        and len(difference.members[difference.want]) <= MAJORITY_SHARE * difference.node_count
    ):
        return [_drift_everywhere(difference, details_by_print)]
    wanted_rows = details_by_print[difference.want]
    keys = dict.fromkeys(key for rows in details_by_print.values() for key in rows)
    drifts = [
        drift
        for key in keys
        for drift in _drift_of_key(difference, key, _lookup_dotted_key(wanted_rows, key), details_by_print)
    ]
    return [*drifts, *_drift_without_details(difference, details_by_print)]


def _group_details(difference: AreaDifference, mark: str, nodes: list[str], details: Details) -> FactTable | None:
    if mark == difference.want and difference.reference is not None:
        return _flatten_table(difference.reference)
    rows = next((details[node][difference.area] for node in nodes if difference.area in details.get(node, {})), None)
    return None if rows is None else _flatten_table(rows)


def _flatten_table(rows: FactTable, prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in rows.items():
        if isinstance(value, dict) and value:
            flat |= _flatten_table(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _lookup_dotted_key(rows: FactTable, key: str) -> Any:
    """Return the value of a dotted key; UNKNOWN if an enclosing table is unknown."""
    if key in rows:
        return rows[key]
    parts = key.split(".")
    tables = (".".join(parts[:at]) for at in range(1, len(parts)))
    return UNKNOWN if any(rows.get(table) == UNKNOWN for table in tables) else None


def _drift_of_key(
    difference: AreaDifference, key: str, wanted_value: Any, details_by_print: Mapping[str, FactTable]
) -> list[Drift]:
    """Return the groups with another value of one fact. An unknown value is not a difference."""
    values: NodesByValue = {}
    found = {mark: _lookup_dotted_key(rows, key) for mark, rows in details_by_print.items()}
    raw = {format_value(value): value for value in (*found.values(), wanted_value)}
    for mark, nodes in difference.members.items():
        if mark in found:
            values.setdefault(format_value(found[mark]), []).extend(nodes)
    values.pop(UNKNOWN, None)
    want = format_value(wanted_value)
    if want == UNKNOWN or not set(values) - {want}:
        return []
    if difference.reference is None:
        want = max(values, key=lambda value: (len(values[value]), value == want, value))
    others = {v: n for v, n in values.items() if v != want and not _lacks_gpus_alone(key, raw[want], raw[v])}
    return _split_from_rest(difference, key, want, values, others)


def _lacks_gpus_alone(key: str, first: Any, second: Any) -> bool:
    """Whether two lists with a value for each GPU differ by GPUs that one of them lacks: gpu.count tells it."""
    if not (key.startswith("gpu.") and first and second and {type(first), type(second)} <= {list, tuple}):
        return False
    fewer, more = sorted((first, second), key=len)
    return len(fewer) < len(more) and not Counter(map(format_value, fewer)) - Counter(map(format_value, more))


def _split_from_rest(
    difference: AreaDifference, key: str, want: str, values: NodesByValue, others: NodesByValue
) -> list[Drift]:
    node_count = sum(map(len, values.values()))
    if difference.reference is None and len(values) > max(2, EVERYWHERE_SHARE * node_count):
        return [_make_everywhere_drift(difference, key, len(values), [n for nodes in values.values() for n in nodes])]
    against = "majority" if difference.reference is None else "reference"
    parts = (
        {}
        if difference.reference is not None
        else {v: n for v, n in others.items() if _is_split(len(n), len(values[want]), node_count)}
    )
    rest = {value: nodes for value, nodes in others.items() if value not in parts}
    rows = [(parts, True), (rest, False)]
    return [
        Drift(difference.area, key, want, _node_groups(members), node_count, difference.peers, against, split)
        for members, split in rows
        if members
    ]


def _is_split(count: int, largest: int, node_count: int) -> bool:
    """Whether this many nodes form the other part of a split rather than single deviating nodes."""
    return (largest <= MAJORITY_SHARE * node_count and count >= SPLIT_SHARE * node_count) or (
        count >= SPLIT_SHARE * node_count and count >= SPLIT_NODES
    )


def _node_groups(values: NodesByValue) -> tuple[NodeGroup, ...]:
    ordered = sorted(values.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple(NodeGroup(value, fold_node_names(sorted(nodes)), len(nodes)) for value, nodes in ordered)


def _drift_by_fingerprint(difference: AreaDifference) -> Drift:
    """Report only fingerprints: no node reported details."""
    others = {f"fingerprint {mark}": nodes for mark, nodes in difference.members.items() if mark != difference.want}
    largest = len(difference.members.get(difference.want, ()))
    split = difference.reference is None and any(
        _is_split(len(nodes), largest, difference.node_count) for nodes in others.values()
    )
    against = "majority" if difference.reference is None else "reference"
    return _make_fingerprint_drift(difference, others).replace(against=against, split=split)


def _make_fingerprint_drift(difference: AreaDifference, others: NodesByValue) -> Drift:
    area, want = difference.area, f"fingerprint {difference.want}"
    return Drift(area, area, want, _node_groups(others), difference.node_count, difference.peers)


def _drift_without_details(difference: AreaDifference, details_by_print: Mapping[str, FactTable]) -> list[Drift]:
    """Report the groups that were asked for details and did not reply."""
    others = {
        f"fingerprint {mark}": nodes for mark, nodes in difference.members.items() if mark not in details_by_print
    }
    return [_make_fingerprint_drift(difference, others)] if others else []


def _drift_everywhere(difference: AreaDifference, details_by_print: Mapping[str, FactTable]) -> Drift:
    """Report an area in which nearly every node has its own value: no node is at fault."""
    rows = list(details_by_print.values())
    keys = [key for key in rows[0] if len({format_value(row.get(key)) for row in rows}) > len(rows) // 2]
    everyone = [node for nodes in difference.members.values() for node in nodes]
    return _make_everywhere_drift(difference, ", ".join(keys[:3]) or difference.area, len(difference.members), everyone)


def _make_everywhere_drift(difference: AreaDifference, key: str, count: int, nodes: list[str]) -> Drift:
    group = NodeGroup(f"{count} different values", fold_node_names(sorted(nodes)), len(nodes))
    return Drift(difference.area, key, "one value", (group,), len(nodes), difference.peers, split=True)


def format_value(value: Any) -> str:
    """Format a value for a reader: plain text, lists of equal items as ``8 x value``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        items = [format_value(item) for item in value]
        if len(items) > 1 and len(set(items)) == 1:
            return f"{len(items)} x {items[0]}"
        return ", ".join(items) or "none"
    return str(value) if value != {} else "none"
