"""The job asks for Triton kernels, which these GPUs do not support.

## What it checks
Whether each GPU has compute capability 7.0 (Volta) or newer, if the job asks for torch.compile, flex
attention or Liger kernels, which use Triton.

## Why it matters
Triton refuses older GPUs: ``which is too old to be supported by the triton GPU compiler``. With errors
suppressed, torch runs without compilation and nothing is gained.

## How to fix
Turn compilation off (``torch_compile: false``, TORCHDYNAMO_DISABLE=1) and use ``sdpa`` instead of flex
attention. The rest runs if torch has code for the GPU (GPU004).

## References
- torch/_dynamo/device_interface.py, CudaInterface.is_triton_capable
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding, versions
from gpuready.rules import capability_floors, job_request, visible_gpus

CODE = "CAP007"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("torch-compile",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla P100-PCIE-16GB",),
    "gpu.capability": ("6.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla V100-PCIE-16GB",), "gpu.capability": ("7.0",)}
FLOOR = "7.0"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    requested = [name for name in ("torch_compile", "liger") if capability_floors.feature_requested(facts, name)]
    words = [name.replace("_", "-") for name in requested]
    words += ["flex-attention"] if job_request.job_asks_for(facts, "flex-attention") else []
    old = _gpus_too_old_for_triton(facts) if words else {}
    if not old:
        return None
    return make_finding(
        f"{visible_gpus.join_names(words)} needs Triton, which does not support {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(capability_floors.feature_need("torch_compile"),),
        so="the job stops when the first kernel is compiled",
        fix=(
            FixStep(f"turn off {visible_gpus.join_names(words)}"),
            FixStep("use GPUs of compute capability 7.0 or newer", safety="elsewhere"),
        ),
    )


def _gpus_too_old_for_triton(facts: Facts) -> dict[int, Any]:
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    return {index: c for index, c in capabilities.items() if versions.compare_versions(str(c), FLOOR) < 0}
