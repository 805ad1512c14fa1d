"""The ptxas of Triton does not support the GPU.

## What it checks
Whether the ``ptxas`` (the assembler for GPU code) in the wheel of Triton targets each GPU, where the job asks for
torch.compile, flex attention or Liger kernels, or the framework compiles by itself (vLLM, SGLang, Unsloth). Log lines
in which ptxas refuses the architecture tell the same. If nvcc refuses it while an extension is built, the toolkit is
too old instead (BLD004).

## Why it matters
Triton is older than the card, or TRITON_PTXAS_PATH names an older ptxas. ``torch.compile``, vLLM and every Triton
kernel fail, while plain torch works.

## How to fix
Upgrade torch and Triton together, or set ``TRITON_PTXAS_PATH`` to the ptxas of a newer toolkit.

## References
- triton/backends/nvidia/compiler.py
"""

from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import packages
from gpuready.catalog import torch as torches
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import capability_floors, job_request, visible_gpus

CODE = "BLD018"
SEVERITY = "error"
OWN_PTXAS = ("env.TRITON_PTXAS_PATH", "env.TRITON_PTXAS_BLACKWELL_PATH")
READS = (*capability_floors.READS, *OWN_PTXAS, "package.triton", "torch.version")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("torch-compile",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GB10",),
    "gpu.capability": ("12.1",),
    "package.triton": "3.5.0",
    "torch.version": "2.9.0+cu130",
    "env.TRITON_PTXAS_PATH": None,
    "env.TRITON_PTXAS_BLACKWELL_PATH": None,
}
HEALTHY = BROKEN | {"package.triton": "3.7.0", "torch.version": "2.12.0+cu130"}
COMPILING_FRAMEWORKS = ("vllm", "sglang", "unsloth")
BLACKWELL = "10.0"
"""From this capability on Triton takes its second ptxas, where it has one."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not _compiles(facts, contract):
        return None
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    row = _triton_release(facts) if capabilities else {}
    if not row:
        return None
    old = {index: c for index, c in capabilities.items() if not _is_targeted(row, str(c))}
    if not old or any(facts.value_if_known(key) for key in OWN_PTXAS):
        return None
    return make_finding(
        f"the ptxas of Triton {row['version']} does not support {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("torch.version"), facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(Requirement("package.triton", f"one whose ptxas knows {min(old.values())}", cite=str(row["source"])),),
        so="torch.compile and every Triton kernel fail, while plain torch works",
        fix=(
            FixStep("upgrade torch and Triton together"),
            FixStep("set TRITON_PTXAS_PATH to the ptxas of a newer CUDA toolkit"),
        ),
    )


def _compiles(facts: Facts, contract: Contract) -> bool:
    requested = any(capability_floors.feature_requested(facts, name) for name in ("torch_compile", "liger"))
    return requested or contract.framework in COMPILING_FRAMEWORKS or job_request.job_asks_for(facts, "flex-attention")


def _triton_release(facts: Facts) -> dict[str, Any]:
    """Return the row of the installed Triton, else of the one that torch pins; empty if it is not known."""
    version = facts.value_if_known("package.triton")
    if version is None:
        torch = facts.value("torch.version")
        pin = (torches.find_torch_release(str(torch)) or {}).get("triton") if torch else None
        version = pin.lstrip("~=") if pin else None
    if version is None or not versions.is_version(version):
        return {}
    row = packages.find_package_release("triton", str(version).partition("+")[0]) or {}
    return row if "ptxas" in row else {}


def _is_targeted(row: dict[str, Any], capability: str) -> bool:
    second = row.get("ptxas_blackwell") if versions.compare_versions(capability, BLACKWELL) >= 0 else None
    targets = toolkits.list_nvcc_targets(str(second or row["ptxas"]))
    return targets is None or capability in targets
