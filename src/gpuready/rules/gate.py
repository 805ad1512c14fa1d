"""A kind of arithmetic that only some GPUs have: whether the job asks for it, and which GPUs lack it.

The floor is the catalogue's, or the contract's where that is higher. Not asked for, it is at most a line of
information, and only where the contract offers it.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import features
from gpuready.model import Need
from gpuready.rules import cards, job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

READS = (*cards.READS, *needs.READS)


def asked(facts: Facts, feature: str) -> bool:
    """Whether the job asks for a feature, by its name or another name of it."""
    row = features.feature(feature) or {}
    names = (feature, str(row.get("id", "")), *row.get("aliases", ()))
    return job.asks(facts, *(name.lower().replace("_", "-") for name in names))


def offered(contract: Contract, feature: str) -> bool:
    """Whether the contract lists a capability of this name."""
    return any(feature in (capability.name, capability.gate) for capability in contract.capabilities)


def floors(contract: Contract, feature: str) -> list[Need]:
    """What the feature asks of a GPU: by the catalogue, and by the contract where it says so itself."""
    row = features.feature(feature) or {}
    own = Need("gpu.capability", f">={row['min_cc']}", cite=str(row["source"]))
    stated = [need for need in contract.wants("gpu.capability") if feature in needs.words(need)]
    return [own, *stated]


def lacking(facts: Facts, wanted: list[Need]) -> dict[int, Any]:
    """The GPUs below a floor, with their capability."""
    capabilities = cards.each(facts, "gpu.capability")
    return {i: c for i, c in capabilities.items() if not all(needs.holds(facts, need, c) for need in wanted)}


def highest(wanted: list[Need]) -> str:
    """The highest floor, for a sentence: ``8.9``."""
    found = [versions.first(need.want) or "0" for need in wanted]
    return max(found, key=versions.minor)


def out_of_sight(facts: Facts) -> bool:
    """Whether the GPUs cannot be judged: information is then left out, and nothing is undecided for it."""
    keys = ("gpu.count", "gpu.visible", "gpu.capability")
    return any(needs.glimpse(facts, key) is None for key in keys)


def short_of(
    facts: Facts, contract: Contract, feature: str
) -> tuple[bool, list[Need], dict[int, Any]] | None:
    """Whether the job asks for a feature, its floors, and the GPUs below them; None where none is, or nobody cares."""
    wanted = asked(facts, feature)
    if "cuda" not in contract.platforms or not (wanted or offered(contract, feature)):
        return None
    if not wanted and out_of_sight(facts):
        return None
    lowest = floors(contract, feature)
    old = lacking(facts, lowest)
    return (wanted, lowest, old) if old else None
