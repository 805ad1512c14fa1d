"""Decide which nodes are compared: those of one partition with the same kind of GPU.

A node that lost its GPUs must stay with its kind, or the loss would go unnoticed; a head node without GPUs
must not count as broken. The scheduler's GPU count decides; without it, how rare the kind is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.fleet.record import Record
    from gpuready.fleeted import Node

BARE = ("", "no GPU")
FEW = 0.05
"""Up to this share of a partition, nodes without a GPU or of another kind count as broken."""
LEAST = 20
"""Smaller partitions are not judged so."""


def strata(nodes: Mapping[str, Node], records: Mapping[str, Record]) -> dict[str, str]:
    """Return the stratum of each node that answered: partition and kind, if there are several."""
    partitions: dict[str, list[str]] = {}
    for name in records:
        partitions.setdefault(nodes[name].labels.get("partition", ""), []).append(name)
    found: dict[str, str] = {}
    for partition, names in partitions.items():
        for name, kind in _kinds(names, nodes, records).items():
            found[name] = " ".join(part for part in (partition, kind) if part) or "all"
    return found


def _kinds(names: list[str], nodes: Mapping[str, Node], records: Mapping[str, Record]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[records[name].kind] = counts.get(records[name].kind, 0) + 1
    main = max(counts, key=lambda kind: (kind not in BARE, counts[kind], kind))
    told = any(nodes[name].gpus for name in names)
    rare = {kind for kind in counts if len(names) >= LEAST and counts[kind] <= max(1, FEW * len(names) / 10)}

    def kind(name: str) -> str:
        mine = records[name].kind
        if mine == "" or mine == main:
            return main
        if mine in BARE:
            missing = nodes[name].gpus > 0 if told else _few(counts[mine], len(names))
            return main if missing else mine
        return main if mine in rare else mine

    return {name: kind(name) for name in names}


def _few(count: int, of: int) -> bool:
    return of >= LEAST and count <= FEW * of
