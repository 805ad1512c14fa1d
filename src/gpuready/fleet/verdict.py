"""Judge a fleet: build the facts for the FLT rules and the FleetReport from the nodes' answers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.fleet.drift import AreaDifference
from gpuready.fleet.outliers import GROSS, SHARED_PREFIX, OutlierResult
from gpuready.model import Fact, Facts, Report, worst_verdict
from gpuready.model.fleet import ANSWER_KINDS, ANSWERED, NOT_LET_IN, SLOW, Drift, FleetReport, FleetSuspect, NodePair
from gpuready.model.node_names import expand_node_set, fold_node_names

FactRow = dict[str, Any]


WIDESPREAD_SHARE, WIDESPREAD_NODES, ALMOST_ALL = 0.2, 10, 0.95
"""A check that fails on this share of the nodes, and on at least this many, is doubted; on almost all it is
believed."""
MIN_OVERLAP = 0.8
"""Two sets of nodes with this overlap count as one: then a difference explains the failures."""
MIN_SIZE_SHARE = {"memory": 0.97, "/dev/shm": 0.9}
MAX_CLOCK_SKEW = 2.0
"""Seconds by which a clock may differ from the fleet's."""
RAY_NODE_LABEL = "ray.io/node-id"
RARE_SHARE = 0.25
MAX_EXCLUDED_SHARE = 0.5
"""An exclusion list with more than this share of the fleet is useless."""


class FleetEvidence:
    """Everything known about a fleet before it is judged."""

    def __init__(
        self,
        collector: AnswerCollector,
        peers_of: Mapping[str, str],
        differences: Sequence[AreaDifference] = (),
        drift: Sequence[Drift] = (),
        outlier_result: OutlierResult | None = None,
        suspects: Sequence[FleetSuspect] = (),
        pairs: Sequence[NodePair] = (),
    ):
        self.collector, self.peers_of, self.differences, self.drift = (collector, peers_of, differences, drift)
        self.outlier_result, self.suspects, self.pairs = outlier_result or OutlierResult(), suspects, pairs
        self.records = collector.records
        self.codes = self._nodes_by_code()
        self.widespread = self._find_widespread_codes()

    def _nodes_by_code(self) -> dict[str, list[str]]:
        nodes_by_code: dict[str, list[str]] = {}
        for name, record in self.records.items():
            for code in record.codes:
                nodes_by_code.setdefault(code, []).append(name)
        return nodes_by_code

    def _find_widespread_codes(self) -> dict[str, list[str]]:
        """Codes that fail too widely to be faults of single nodes and that no difference explains."""
        total = len(self.records)
        wide = {
            c: n
            for c, n in self.codes.items()
            if len(n) >= max(WIDESPREAD_NODES, WIDESPREAD_SHARE * total) and len(n) < ALMOST_ALL * total
        }
        return {code: names for code, names in wide.items() if not self._explained_by_difference(set(names))}

    def _explained_by_difference(self, failing: set[str]) -> bool:
        """Whether the failing nodes are those of one peer group or those with one value of an area."""
        groups = [set(nodes) for one in self.differences for nodes in one.members.values()]
        alike: dict[str, set[str]] = {}
        for name, peers in self.peers_of.items():
            alike.setdefault(peers, set()).add(name)
        return any(len(failing & one) >= MIN_OVERLAP * len(failing | one) for one in (*groups, *alike.values()))

    def nodes_by_verdict(self) -> dict[str, list[str]]:
        """Group the nodes by their own verdicts; undecided if only doubted checks failed."""
        flaps = self.collector.conflicting_verdicts()
        by_verdict: dict[str, list[str]] = {}
        for name, record in self.records.items():
            verdict = worst_verdict(flaps[name]) if name in flaps else record.verdict
            if verdict == "not-ready" and record.codes and self.widespread.keys() >= set(record.codes):
                verdict = "undecided"
            if verdict:
                by_verdict.setdefault(verdict, []).append(name)
        return by_verdict


# -- the facts of a fleet ------------------------------------------------------------------------------------


def fleet_facts(evidence: FleetEvidence) -> Facts:
    """Build the facts that the FLT rules read. Lists of nodes are folded."""
    collector, total = evidence.collector, len(evidence.records)
    flaps = _group_by(collector.conflicting_verdicts().items(), lambda row: " and ".join(row[1]))
    values: dict[str, Any] = {
        "fleet.nodes": len(collector.nodes),
        "fleet.unreachable": _unreachable_rows(collector),
        "fleet.drift": tuple(drift.to_json() for drift in evidence.drift),
        "fleet.gpus": _missing_gpu_rows(evidence),
        "fleet.memory": _smaller_memory_rows(evidence),
        "fleet.clocks": _clock_skew_rows(collector),
        "fleet.outliers": tuple(one.to_json() for one in evidence.outlier_result.outliers),
        "fleet.conflicts": tuple(
            {"what": what, "nodes": fold_node_names(nodes)} for what, nodes in collector.find_collisions()
        ),
        "fleet.codes": _code_rows(evidence.codes, total),
        "fleet.widespread": _code_rows(evidence.widespread, total),
        "fleet.flaps": tuple(
            {"said": verdicts, "nodes": fold_node_names(n for n, _ in rows), "count": len(rows)}
            for verdicts, rows in flaps.items()
        ),
        "fleet.suspects": tuple(one.to_json() for one in evidence.suspects),
    }
    source = f"the answers of {total:,} nodes"
    return Facts([Fact(key, value, source, "run") for key, value in values.items()], "fleet")


def _code_rows(names: Mapping[str, list[str]], total: int) -> tuple[FactRow, ...]:
    ordered = sorted(names.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple(
        {"code": code, "nodes": fold_node_names(some), "count": len(some), "of": total} for code, some in ordered
    )


def _group_by(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _unanswered_by_reason(collector: AnswerCollector) -> dict[tuple[str, str], list[str]]:
    """Group nodes by how and why they did not answer; where several share a reason, it is without their names."""
    by_reason: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name in collector.nodes:
        kind, why = collector.node_state(name)
        if kind != ANSWERED:
            # As a word: a node may be called a, and its reason "its name leads to no address".
            general = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", "it", why)
            by_reason.setdefault((kind, general), []).append((name, why))
    groups: dict[tuple[str, str], list[str]] = {}
    for (kind, general), rows in by_reason.items():
        groups.setdefault((kind, general if len(rows) > 1 else rows[0][1]), []).extend(name for name, _ in rows)
    return groups


def _unreachable_rows(collector: AnswerCollector) -> tuple[FactRow, ...]:
    rows = [
        (kind, why, names) for (kind, why), names in _unanswered_by_reason(collector).items() if kind in ANSWER_KINDS
    ]
    rows.sort(key=lambda row: (ANSWER_KINDS.index(row[0]), -len(row[2]), row[1]))
    return tuple(
        {"kind": k, "why": why, "nodes": fold_node_names(n), "count": len(n), "known": k not in NOT_LET_IN}
        for k, why, n in rows
    )


def _missing_gpu_rows(evidence: FleetEvidence) -> tuple[FactRow, ...]:
    """Nodes with fewer GPUs than most of their peers, or than the scheduler expects."""
    rows: list[FactRow] = []
    for peers, names in _group_by(evidence.peers_of, evidence.peers_of.__getitem__).items():
        counts = _group_by(names, lambda name: evidence.records[name].gpus)
        usual = max(counts, key=lambda count: (count > 0, len(counts[count]), count))
        for count, some in sorted(counts.items()):
            few = [
                n
                for n in some
                if count
                < max(evidence.collector.nodes[n].gpus, usual if len(some) < max(RARE_SHARE * len(names), 2) else 0)
            ]
            if few:
                want = max(usual, *(evidence.collector.nodes[n].gpus for n in few))
                row = {"nodes": fold_node_names(few), "count": len(few), "gpus": count, "usual": want, "peers": peers}
                rows.append(row)
    return tuple(rows)


def _smaller_memory_rows(evidence: FleetEvidence) -> tuple[FactRow, ...]:
    rows: list[FactRow] = []
    for peers, names in _group_by(evidence.peers_of, evidence.peers_of.__getitem__).items():
        records = evidence.records
        rows += _rows_below_usual("memory", {n: records[n].mem for n in names if records[n].mem > 0}, peers)
        rows += _rows_below_usual("/dev/shm", {n: records[n].shm for n in names if records[n].shm >= 0}, peers)
    return tuple(rows)


def _rows_below_usual(what: str, sizes: dict[str, int], peers: str) -> list[FactRow]:
    if len(sizes) < 2:
        return []
    ordered = sorted(sizes.values())
    usual = ordered[len(ordered) // 2]
    small = _group_by(
        (n for n, size in sizes.items() if size < MIN_SIZE_SHARE[what] * usual), lambda n: f"{sizes[n] / 1024:.1f}"
    )
    return [
        {"what": what, "nodes": fold_node_names(some), "count": len(some), "size": max(sizes[n] for n in some) << 20,
         "usual": usual << 20, "peers": peers}
        for _, some in sorted(small.items(), key=lambda row: -len(row[1]))
    ]  # fmt: skip


def _clock_skew_rows(collector: AnswerCollector) -> tuple[FactRow, ...]:
    """Nodes whose clock differs from the fleet's median; the controller's own clock may be the wrong one."""
    if not collector.skews:
        return ()
    middle = median(collector.skews.values())
    off = {name: skew - middle for name, skew in collector.skews.items() if abs(skew - middle) > MAX_CLOCK_SKEW}
    groups = _group_by(off, lambda name: round(off[name]))
    rows = sorted(groups.items(), key=lambda row: -abs(row[0]))
    return tuple({"nodes": fold_node_names(names), "count": len(names), "seconds": seconds} for seconds, names in rows)


# -- the report ----------------------------------------------------------------------------------------------


def build_fleet_report(
    evidence: FleetEvidence,
    judge: Callable[[Facts], Report],
    *,
    did: str,
    transport: str,
    seconds: float = 0.0,
    rounds: int = 0,
    notes: Sequence[str] = (),
) -> FleetReport:
    """Build the report. ``judge`` applies the FLT rules to the facts."""
    facts = fleet_facts(evidence)
    judged = judge(facts)
    blames = _nodes_to_exclude(
        evidence, facts, {finding.code for finding in judged.findings if finding.severity == "error"}
    )
    collector = evidence.collector
    return FleetReport(
        did=did,
        transport=transport,
        nodes=len(collector.nodes),
        gpus=sum(record.gpus for record in evidence.records.values()),
        judged=tuple(sorted({record.judged for record in evidence.records.values() if record.judged})),
        findings=judged.findings,
        undecided=judged.undecided,
        verdicts=_fold_verdicts(evidence),
        states={
            kind: fold_node_names(names)
            for kind, names in _group_by(collector.nodes, lambda n: collector.node_state(n)[0]).items()
        },
        reasons={
            f"{kind}: {why}": fold_node_names(names)
            for (kind, why), names in _unanswered_by_reason(collector).items()
            if why
        },
        codes={code: fold_node_names(names) for code, names in sorted(evidence.codes.items())},
        peers={s: fold_node_names(n) for s, n in _group_by(evidence.peers_of, evidence.peers_of.__getitem__).items()},
        drift=tuple(evidence.drift),
        outliers=(*evidence.outlier_result.outliers, *evidence.outlier_result.unclear),
        suspects=tuple(evidence.suspects),
        exclude=fold_node_names(sorted({name for names in blames.values() for name in names})),
        selector=_ray_label_selector(collector, {name for names in blames.values() for name in names}),
        blames={code: fold_node_names(sorted(names)) for code, names in blames.items()},
        figures=_median_figures(collector),
        pairs=tuple(evidence.pairs),
        rounds=rounds,
        seconds=round(seconds, 3),
        run=collector.run,
        strict=judged.strict,
        notes=(*notes, *_fleet_notes(evidence)),
    )


def _fold_verdicts(evidence: FleetEvidence) -> dict[str, str]:
    """Fold the nodes' verdicts; without any verdict an answer counts as clear."""
    believed = {verdict: fold_node_names(names) for verdict, names in evidence.nodes_by_verdict().items()}
    return believed or ({"clear": fold_node_names(evidence.records)} if evidence.records else {})


def _median_figures(collector: AnswerCollector) -> dict[str, dict[str, tuple[float, ...]]]:
    """Median of the figures of each node or GPU."""
    figures: dict[str, dict[str, tuple[float, ...]]] = {}
    for figure, table in collector.measured_tries.items():
        rows = figures.setdefault(figure, {})
        for (node, _), values in sorted(table.items(), key=lambda row: (row[0][0], row[0][1] or 0)):
            rows[node] = (*rows.get(node, ()), round(median(values.values()), 6))
    return figures


def _fleet_notes(evidence: FleetEvidence) -> list[str]:
    collector, notes = evidence.collector, []
    for figure, slow in evidence.outlier_result.shared.items():
        notes.append(
            f"{figure} is slow on {len(slow):,} nodes at once: a disk that they share, not {len(slow):,} slow nodes: {fold_node_names(slow)[:120]}"
        )
    shared = [figure for figure in collector.measured_tries if figure.startswith(SHARED_PREFIX)]
    if shared:
        notes.append(
            f"{' and '.join(shared)}: a network file system, measured by all at once: only {GROSS} times slower counts"
        )
    if collector.newer_nodes:
        notes.append(
            f"{len(collector.newer_nodes):,} nodes have a newer gpuready than this one; what it knows of them was read"
        )
    print_lengths = {name: len(record.prints) for name, record in evidence.records.items()}
    if len(set(print_lengths.values())) > 1:
        older = [name for name, size in print_lengths.items() if size < max(print_lengths.values())]
        notes.append(
            f"{len(older):,} nodes have an older gpuready and tell less of themselves: {fold_node_names(older)[:120]}"
        )
    if collector.skews and abs(middle := median(collector.skews.values())) > MAX_CLOCK_SKEW:
        notes.append(f"the clock of this machine is off from that of the fleet by {abs(middle):.0f} seconds")
    return notes


def _nodes_to_exclude(evidence: FleetEvidence, facts: Facts, errors: set[str]) -> dict[str, set[str]]:
    """Return the nodes to exclude for each finding of severity error."""
    faults = {"driver", "torch", "cuda", "kernels", "gpus"}
    most = max(MAX_EXCLUDED_SHARE * len(evidence.collector.nodes), 1)
    of_all = {
        code
        for code, names in evidence.codes.items()
        if len(names) > max(MAX_EXCLUDED_SHARE * len(evidence.records), 1)
    }
    silent = [row for row in facts.value("fleet.unreachable") if row["known"]]
    if (
        sum(row["count"] for row in silent) > most
    ):  # a busy fleet or controller makes nodes slow; the others cannot take a job
        silent = [row for row in silent if row["kind"] != SLOW]
    not_ready = evidence.nodes_by_verdict().get("not-ready", ())
    deviating = [row for row in facts.value("fleet.drift") if not row["split"] and row["area"] in faults]
    suspects = [
        name for one in evidence.suspects if one.confirmed and one.kind in ("node", "gpu") for name in one.names
    ]
    candidates: dict[str, Iterable[str]] = {
        "FLT001": _nodes_of_rows(silent),
        "FLT002": _nodes_of_rows(group for row in deviating if row["area"] == "driver" for group in row["groups"]),
        "FLT003": _nodes_of_rows(
            group for row in deviating if row["area"] in ("torch", "cuda", "kernels") for group in row["groups"]
        ),
        "FLT007": _nodes_of_rows(facts.value("fleet.gpus")),
        "FLT008": _nodes_of_rows(group for row in deviating if row["area"] == "gpus" for group in row["groups"]),
        "FLT010": _nodes_of_rows(facts.value("fleet.memory")),
        "FLT011": [one.node for one in evidence.outlier_result.outliers],
        "FLT012": _nodes_of_rows(facts.value("fleet.conflicts")),
        "FLT015": [name for name in not_ready if not of_all.issuperset(evidence.records[name].codes or "?")],
        "FLT016": suspects,
    }
    excluded = {code: set(names) for code, names in candidates.items() if code in errors}
    return {code: names for code, names in excluded.items() if 0 < len(names) <= most}


def _ray_label_selector(collector: AnswerCollector, excluded: set[str]) -> dict[str, str]:
    """Return the excluded nodes as a Ray label selector."""
    ids = sorted(collector.nodes[name].labels.get(RAY_NODE_LABEL, "") for name in excluded if name in collector.nodes)
    return {RAY_NODE_LABEL: f"!in({','.join(ids)})"} if ids and all(ids) else {}


def _nodes_of_rows(rows: Iterable[FactRow]) -> list[str]:
    return [name for row in rows for name in expand_node_set(row["nodes"])]
