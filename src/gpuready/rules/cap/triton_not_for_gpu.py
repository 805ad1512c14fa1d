"""The job asks for kernels that Triton cannot make for these GPUs.

torch.compile, flex attention and the Liger kernels are written in Triton, a compiler for GPUs from Volta
(compute capability 7.0) on. On Pascal and older it refuses: ``which is too old to be supported by the
triton GPU compiler``. With errors suppressed, torch falls back to running without compilation, and nothing
is gained.

It is an error when the job asks for one of them. Leave compilation out (``torch_compile: false``,
TORCHDYNAMO_DISABLE=1), and take ``sdpa`` for flex attention. Everything else runs on such a GPU as far as
torch still has code for it, which GPU004 tells.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, versions
from gpuready.rules import capability_floors, job_request, requested_features, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "CAP007"
SEVERITY = "error"
READS = requested_features.READS
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
    return Finding(
        CODE,
        SEVERITY,
        f"{visible_gpus.join_names(words)} needs Triton, which does not support {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(requested_features.feature_need("torch_compile"),),
        so="the job stops when the first kernel is compiled",
        fix=(
            FixStep(f"leave out {visible_gpus.join_names(words)}"),
            FixStep("use GPUs of compute capability 7.0 or newer"),
        ),
    )


def _gpus_too_old_for_triton(facts: Facts) -> dict[int, Any]:
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    return {index: c for index, c in capabilities.items() if versions.compare_versions(str(c), FLOOR) < 0}
