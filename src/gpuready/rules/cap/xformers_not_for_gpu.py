"""The wheels of xformers have no code for these GPUs.

The wheels of xformers on PyPI carry code from Turing (compute capability 7.5) on since 0.0.31; up to 0.0.30
they also had Volta and Pascal. On an older GPU what is left is the operator that torch lends it, for fp16
and fp32 and some shapes; for the others ``No operator found for memory_efficient_attention_forward`` is the
answer, with the reason for each operator below it.

It is a warning when the job asks for xformers, since the lent operator may do. Nothing is said of a build
of your own (a version with a local part). Take ``sdpa``, which has the same kernels in torch, or xformers
0.0.30 with the torch that it pins.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, versions
from gpuready.rules import requested_features, visible_gpus

CODE = "CAP008"
SEVERITY = "warning"
READS = requested_features.READS
BROKEN = {
    "job.wants": ("xformers",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla V100-SXM2-16GB",),
    "gpu.capability": ("7.0",),
    "package.xformers": "0.0.33.post2",
}
HEALTHY = BROKEN | {"package.xformers": "0.0.30"}
SINCE = "0.0.31"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    old = requested_features.gpus_without_feature(facts, contract, "xformers_attention")
    if not old:
        return None
    version = facts.value("package.xformers")
    if version is None or "+" in str(version) or versions.compare_versions(str(version), SINCE) < 0:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"xformers {version} has no code of its own for {visible_gpus.describe_gpus(facts, old, old)}",
        found=tuple(facts.fact(key) for key in ("gpu.capability", "gpu.name", "package.xformers")),
        needs=(requested_features.feature_need("xformers_attention").replace(level="recommended"),),
        so="attention runs only where the operator of torch fits, and fails for other types and shapes",
        fix=(FixStep("use the attention of torch: sdpa"), FixStep("use GPUs of compute capability 7.5 or newer")),
    )
