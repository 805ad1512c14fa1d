"""Features the job asks for by name that some GPUs lack according to the catalog.

If the contract itself states a floor for the feature, GPU005 judges it; nothing is reported twice.
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
    """Return the GPUs without a feature the job asks for, with their capability; empty if it does not ask."""
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
    """Return whether the contract requires its own floor for the feature, and these GPUs miss it."""
    row = features.feature(feature) or {}
    names = {n.replace("_", "-") for n in (feature, str(row.get("id", "")), *row.get("aliases", ()))}
    stated = (need for need in contract.wants("gpu.capability") if needs.words(need) & names)
    own = [need for need in stated if need.level == "required"]
    return bool(needs.unmet(facts, own, lambda facts, need: tuple(cards.each(facts, need.key).values())))


def need(feature: str) -> Need:
    """Return the capability that the catalog requires for a feature, with its source."""
    row = features.feature(feature) or {}
    low, high = row["min_cc"], row.get("max_cc")
    want = f"=={low}" if low == high else f">={low}" + (f",<={high}" if high else "")
    source = row["source"]
    return Need("gpu.capability", want, cite=str(source[0] if isinstance(source, (list, tuple)) else source))


def quietly(contract: Contract, feature: str) -> bool:
    """Return whether, by its contract, the framework skips an unsupported feature instead of failing."""
    return any(feature in (c.name, c.gate) and "falls-back" in c.traits for c in contract.capabilities)
