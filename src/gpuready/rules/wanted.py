"""A feature that the job asks for by name, and GPUs that do not have it by the catalogue.

Where the contract itself states a floor for that feature, GPU005 judges it; nothing is told twice.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import features
from gpuready.model import Need
from gpuready.rules import cards, gate, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

READS = gate.READS


def lacking(facts: Facts, contract: Contract, feature: str) -> dict[int, Any]:
    """The GPUs without a feature that the job asks for, with their capability; none where it does not ask."""
    if "cuda" not in contract.platforms or not gate.asked(facts, feature):
        return {}
    row = features.feature(feature) or {}
    capabilities = cards.each(facts, "gpu.capability")
    old = {index: c for index, c in capabilities.items() if not _inside(str(c), row)}
    return {} if old and _told(facts, contract, feature) else old


def _inside(capability: str, row: dict[str, Any]) -> bool:
    low, high = row.get("min_cc"), row.get("max_cc")
    if low is not None and versions.compare(capability, low) < 0:
        return False
    return high is None or versions.compare(capability, high) <= 0


def _told(facts: Facts, contract: Contract, feature: str) -> bool:
    """Whether the contract requires a floor of its own for the feature, which these GPUs miss."""
    row = features.feature(feature) or {}
    names = {n.replace("_", "-") for n in (feature, str(row.get("id", "")), *row.get("aliases", ()))}
    stated = (need for need in contract.wants("gpu.capability") if needs.words(need) & names)
    own = [need for need in stated if need.level == "required"]
    return bool(needs.unmet(facts, own, lambda facts, need: tuple(cards.each(facts, need.key).values())))


def need(feature: str) -> Need:
    """What the catalogue asks of a GPU for a feature, with who says so."""
    row = features.feature(feature) or {}
    low, high = row["min_cc"], row.get("max_cc")
    want = f"=={low}" if low == high else f">={low}" + (f",<={high}" if high else "")
    source = row["source"]
    return Need("gpu.capability", want, cite=str(source[0] if isinstance(source, (list, tuple)) else source))


def quietly(contract: Contract, feature: str) -> bool:
    """Whether a framework passes over a feature that the GPU lacks instead of failing, by its contract."""
    return any(feature in (c.name, c.gate) and "falls-back" in c.traits for c in contract.capabilities)
