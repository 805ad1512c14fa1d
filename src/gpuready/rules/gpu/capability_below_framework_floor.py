"""A GPU is older than the framework takes.

Frameworks and their kernels are written for GPUs from a certain compute capability on: 7.0 is Volta, 7.5
Turing, 8.0 and 8.6 Ampere, 8.9 Ada, 9.0 Hopper, 10.x and 12.x Blackwell. Some floors hold for the framework
as a whole, others for something that the job asks for, such as flash attention. Where the contract requires
the floor, this is an error; where it only recommends it, a warning.

No software lifts a GPU over such a floor. What helps is another GPU, another version of the framework, or
to do without the feature that asks for it. On a machine with different GPUs, show only those that are new
enough. What the floors for bf16 and fp8 mean is told by CAP001 and CAP002.
"""

from __future__ import annotations

from gpuready.model import Finding, Step
from gpuready.rules import cards, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts, Need

CODE = "GPU005"
SEVERITY = "error"
READS = (*cards.READS, *needs.READS)
SIGNS = (
    {"says": "FlashAttention only supports Ampere GPUs or newer", "cause": "flash-attn-arch"},
    {"says": "FlashAttention only supports Turing GPUs or newer", "cause": "flash-attn-arch"},
    {"says": "FlashAttention only supports Hopper GPUs or newer", "cause": "flash-attn-arch"},
)
CONTRACT = {"needs": ({"key": "gpu.capability", "want": ">=7.0", "cite": "README.md:474"},)}
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla P100-PCIE-16GB",),
    "gpu.capability": ("6.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla V100-PCIE-16GB",), "gpu.capability": ("7.0",)}

TOLD_ELSEWHERE = {"bf16", "fp8"}
"""Features whose floors have more specific rules."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    asked = [n for n in contract.wants("gpu.capability") if not needs.words(n) & TOLD_ELSEWHERE]
    if not asked or not cards.shown(facts):
        return None
    failed = needs.unmet(facts, asked, lambda facts, need: tuple(cards.each(facts, need.key).values()))
    if not failed:
        return None
    capabilities = cards.each(facts, "gpu.capability")
    old = {i: c for i, c in capabilities.items() if not all(needs.holds(facts, n, c) for n in failed)}
    return Finding(
        CODE,
        needs.severity(failed),
        f"{_what(failed, contract)} {_means(failed)} {cards.called(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(failed),
        so=_so(failed, contract),
        fix=tuple(_ways_out(facts, failed, old, capabilities)),
    )


def _what(failed: list[Need], contract: Contract) -> str:
    return cards.listed(_features(failed)) if _features(failed) else contract.framework


def _features(failed: list[Need]) -> list[str]:
    return sorted({word for need in failed for word in needs.words(need)})


def _means(failed: list[Need]) -> str:
    return "is not made for" if needs.severity(failed) == "error" else "recommends newer GPUs than"


def _so(failed: list[Need], contract: Contract) -> str:
    if needs.severity(failed) == "error":
        return f"{_what(failed, contract)} refuses these GPUs or fails on them"
    return f"{_what(failed, contract)} runs slower or with less on these GPUs than it could"


def _ways_out(facts: Facts, failed: list[Need], old: dict[int, Any], every: dict[int, Any]) -> list[Step]:
    steps = []
    fit = [index for index in every if index not in old]
    if fit:
        steps.append(Step(f"show only the others: CUDA_VISIBLE_DEVICES={cards.only(facts, fit)}"))
    if _features(failed):
        steps.append(Step(f"do without {cards.listed(_features(failed))} on these GPUs"))
    wanted = " and ".join(dict.fromkeys(need.want for need in failed))
    return [*steps, Step(f"use GPUs of compute capability {wanted}")]
