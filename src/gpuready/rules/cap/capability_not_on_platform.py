"""The job asks for a feature that this kind of accelerator does not have.

## What it checks
Whether the requested features exist on the machine's platform (Apple's MPS, Ascend NPU, Gaudi HPU, Intel XPU,
AMD ROCm), if the framework supports that platform. NVFP4, DeepGEMM, SonicMoE, EETQ and FlashAttention-4 exist
only for NVIDIA. Macs have no Triton, Liger, SageAttention, xformers or flash-attn. An unsupported platform is
GPU001.

## Why it matters
The framework refuses, or silently uses something else.

## How to fix
Use what the platform has: sdpa for attention, bf16 or fp16 for precision.

## References
- The documentation of each feature, supported hardware
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request, visible_gpus

CODE = "CAP012"
SEVERITY = "error"
READS = ("platform.name", "job.wants")
REQUIRED_FACTS = ("job.wants",)
CONTRACT = {"platforms": ("cuda", "mps")}
BROKEN = {"job.wants": ("flash-attn",), "platform.name": "mps"}
HEALTHY = BROKEN | {"platform.name": "cuda"}

NVIDIA_ONLY = ("nvfp4", "deepgemm", "sonicmoe", "eetq", "flash-attn-4")
NOT_ON_A_MAC = ("flash-attn", "flash-attn-3", "xformers", "liger", "sage-attention")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    wants = job_request.list_job_wants(facts)
    foreign = [word for word in (*NVIDIA_ONLY, *NOT_ON_A_MAC) if word in wants]
    if "cuda" not in contract.platforms or not foreign or not visible_gpus.has_other_accelerator(facts, contract):
        return None
    platform = facts.value("platform.name")
    missing = [word for word in foreign if word in NVIDIA_ONLY or platform == "mps"]
    if not missing:
        return None
    return make_finding(
        f"{visible_gpus.join_names(missing)}: not available on {platform}",
        found=(facts.fact("platform.name"), facts.fact("job.wants")),
        needs=tuple(
            Requirement("platform.name", "cuda", when=f"wants={word}", cite=f"{word}: its kernels are for CUDA")
            for word in missing
        ),
        so=f"{contract.framework} refuses the job, or silently uses something else",
        fix=(
            FixStep(f"turn off {visible_gpus.join_names(missing)}; every platform has sdpa attention"),
            FixStep("use a machine with NVIDIA GPUs", safety="elsewhere"),
        ),
    )
