"""The wheels of xformers have no code for these GPUs.

## What it checks
Whether the installed xformers supports each GPU, if the job asks for it. Wheels from 0.0.31 on support
compute capability 7.5 (Turing) and newer; up to 0.0.30 also Volta and Pascal. Own builds (with a local version)
are not checked.

## Why it matters
Only torch's operator is left, for fp16 and fp32 and some shapes. Others fail with ``No operator found for
memory_efficient_attention_forward``.

## How to fix
Use ``sdpa``, which has the same kernels, or xformers 0.0.30 with the torch that it pins.

## References
- xformers wheels, cpp_lib.json and ops/fmha
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding, versions
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP008"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
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
    old = capability_floors.gpus_without_feature(facts, contract, "xformers_attention")
    if not old:
        return None
    version = facts.value("package.xformers")
    if version is None or "+" in str(version) or versions.compare_versions(str(version), SINCE) < 0:
        return None
    return make_finding(
        f"xformers {version} has no code for {visible_gpus.describe_gpus(facts, old, old)}",
        found=tuple(facts.fact(key) for key in ("gpu.capability", "gpu.name", "package.xformers")),
        needs=(capability_floors.feature_need("xformers_attention"),),
        so="attention works only where torch's operator does, and fails for other types and shapes",
        fix=(
            FixStep(
                "use torch's own attention: sdpa; or xformers 0.0.30 with torch 2.7.0, which still has code for it"
            ),
            FixStep("use GPUs of compute capability 7.5 or newer", safety="elsewhere"),
        ),
    )
