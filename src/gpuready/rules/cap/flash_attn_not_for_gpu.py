"""The job asks for flash attention that these GPUs cannot run.

The flash-attn package, version 2, begins with Ampere (compute capability 8.0). FlashAttention-3 is written
for Hopper (9.0); it can be built for Ampere, without its gains, and not for Blackwell. FlashAttention-4 is
for Hopper and the Blackwell of data centres (9 and 10), not for RTX 50 and RTX PRO (12). Below or beside
that the kernels stop: ``FlashAttention only supports Ampere GPUs or newer``, or there is no kernel image.

It is an error when the job asks for it; a warning for FlashAttention-3 on Ampere and Ada, and where the
framework quietly takes another. Use ``sdpa``, which torch brings and which runs on all of them, with flash
kernels of its own from Ampere on. A floor that the contract states itself is told by GPU005.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, versions
from gpuready.rules import requested_features, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "CAP005"
SEVERITY = "error"
READS = requested_features.READS
BROKEN = {
    "job.wants": ("flash-attn",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla T4",),
    "gpu.capability": ("7.5",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA A100-SXM4-80GB",), "gpu.capability": ("8.0",)}
ATTENTION_WANTS = {
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "flash_attention_4": "flash-attn-4",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    unfit_by_feature = {
        feature: requested_features.gpus_without_feature(facts, contract, feature) for feature in ATTENTION_WANTS
    }
    lacking = {feature: unfit for feature, unfit in unfit_by_feature.items() if unfit}
    if not lacking:
        return None
    unfit = {index: c for gpus in lacking.values() for index, c in gpus.items()}
    names = [ATTENTION_WANTS[feature] for feature in lacking]
    is_error = any(_attention_fails(contract, feature, gpus) for feature, gpus in lacking.items())
    return Finding(
        CODE,
        SEVERITY if is_error else "warning",
        f"{visible_gpus.join_names(names)} is not made for {visible_gpus.describe_gpus(facts, unfit, unfit)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(requested_features.feature_need(feature) for feature in lacking),
        so="the job stops at the first attention layer"
        if is_error
        else "another attention is taken in its place, or this one without its gains",
        fix=(
            FixStep("use the attention of torch: sdpa"),
            FixStep(
                f"use GPUs of compute capability {' and '.join(requested_features.feature_need(f).want for f in lacking)}"
            ),
        ),
    )


def _attention_fails(contract: Contract, feature: str, unfit: dict[int, Any]) -> bool:
    """Return whether this attention certainly fails on these GPUs, instead of running another way."""
    if requested_features.falls_back_quietly(contract, ATTENTION_WANTS[feature]):
        return False
    majors = {versions.major_version(str(capability)) for capability in unfit.values()}
    # FlashAttention 3 can be built for Ampere, and whether 4 supports Thor (11) is not documented.
    return bool(majors - {"flash_attention_3": {8}, "flash_attention_4": {11}}.get(feature, set()))
