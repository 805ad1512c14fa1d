"""Decide which nodes are compared: those of one partition with the same kind of GPU.

A node that lost its GPUs must stay with its kind, or the loss would go unnoticed; a head node without GPUs
must not count as broken. The scheduler's GPU count decides; without it, how rare the kind is.
"""

from collections.abc import Mapping

from gpuready.fleet.node_report import NodeReport
from gpuready.model.fleet import FleetNode

KINDS_WITHOUT_GPU = ("", "no GPU")
BROKEN_SHARE = 0.05
"""Up to this share of a partition, nodes without a GPU or of another kind count as broken."""
MIN_PARTITION = 20
"""Smaller partitions are not judged so."""


def assign_peers(nodes: Mapping[str, FleetNode], records: Mapping[str, NodeReport]) -> dict[str, str]:
    """Return the peer group of each node that answered: partition and kind, if there are several."""
    partitions: dict[str, list[str]] = {}
    for name in records:
        partitions.setdefault(nodes[name].labels.get("partition", ""), []).append(name)
    found: dict[str, str] = {}
    for partition, names in partitions.items():
        for name, kind in _resolve_kinds(names, nodes, records).items():
            found[name] = " ".join(part for part in (partition, kind) if part) or "all"
    return found


def _resolve_kinds(
    names: list[str], nodes: Mapping[str, FleetNode], records: Mapping[str, NodeReport]
) -> dict[str, str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[records[name].kind] = counts.get(records[name].kind, 0) + 1
    main_kind = max(counts, key=lambda kind: (kind not in KINDS_WITHOUT_GPU, counts[kind], kind))
    scheduler_counts_gpus = any(nodes[name].gpus for name in names)
    rare = {
        kind
        for kind in counts
        if len(names) >= MIN_PARTITION and counts[kind] <= max(1, BROKEN_SHARE * len(names) / 10)
    }

    def resolve_kind(name: str) -> str:
        own_kind = records[name].kind
        if own_kind == "" or own_kind == main_kind:
            return main_kind
        if own_kind in KINDS_WITHOUT_GPU:
            is_rare = len(names) >= MIN_PARTITION and counts[own_kind] <= BROKEN_SHARE * len(names)
            missing = nodes[name].gpus > 0 if scheduler_counts_gpus else is_rare
            return main_kind if missing else own_kind
        return main_kind if own_kind in rare else own_kind

    return {name: resolve_kind(name) for name in names}
