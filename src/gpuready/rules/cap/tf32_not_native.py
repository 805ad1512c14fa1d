"""A GPU has no TF32, and the job asks for it.

## What it checks
Whether the job asks for tf32 on a GPU below compute capability 8.0 (Ampere), for frameworks that offer it. If
the framework states the requirement itself, GPU005 reports it.

## Why it matters
The Trainer of transformers refuses: ``--tf32 requires Ampere or a newer GPU arch``. torch's own switch has no
effect on such a GPU.

## How to fix
Remove ``tf32: true`` from the configuration, or set it to ``auto`` if the framework supports that. Older GPUs
then compute in full fp32.

## References
- transformers/training_args.py
- torch/cuda/__init__.py, is_tf32_supported
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP004"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
CONTRACT = {"capabilities": ({"name": "tf32", "gate": "tf32"},)}
BROKEN = {
    "job.wants": ("tf32",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla T4",),
    "gpu.capability": ("7.5",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA A100-SXM4-80GB",), "gpu.capability": ("8.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not capability_floors.feature_offered(contract, "tf32"):
        return None
    old = capability_floors.gpus_without_feature(facts, contract, "tf32")
    if not old:
        return None
    return make_finding(
        f"no TF32 on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(capability_floors.feature_need("tf32"),),
        so=f"{contract.framework} refuses the job when it parses its arguments",
        fix=(
            FixStep("remove tf32 from the configuration"),
            FixStep("use GPUs of compute capability 8.0 or newer", safety="elsewhere"),
        ),
    )
