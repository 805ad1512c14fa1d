"""The variable FORCE_CUDA has a value meant as no, which counts as yes.

## What it checks
Whether FORCE_CUDA is ``0``, ``false``, ``no`` or similar, for frameworks that name the variable.
ColossalAI only checks whether the variable has any text.

## Why it matters
CUDA extensions are built and loaded even if torch sees no GPU. If a GPU is visible, the variable changes
nothing.

## How to fix
Unset it; only an empty value means no. FORCE_CUDA=1 is right for building on a machine without a GPU, and
TORCH_CUDA_ARCH_LIST must then name the target GPUs.

## References
- ColossalAI, extensions/cuda_extension.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation

CODE = "BLD016"
SEVERITY = "warning"
READS = ("env.FORCE_CUDA",)
REQUIRED_FACTS = ("env.FORCE_CUDA",)
CONTRACT = {
    "framework": "colossalai",
    "variables": ({"name": "FORCE_CUDA", "access": "read", "cite": "extensions/cuda_extension.py:33"},),
}
BROKEN = {"env.FORCE_CUDA": "0"}
HEALTHY = {"env.FORCE_CUDA": "1"}
FALSE_WORDS = ("0", "false", "no", "off", "none")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    read = compilation.find_contract_variable(contract, "FORCE_CUDA")
    if read is None or contract.framework != "colossalai":
        return None  # torchvision and others read 0 as false
    value = compilation.read_build_variable(facts, "FORCE_CUDA")
    if (value or "").strip().casefold() not in FALSE_WORDS:
        return None
    return make_finding(
        f"the variable FORCE_CUDA={value} counts as true",
        found=(facts.fact("env.FORCE_CUDA"),),
        needs=(Requirement("env.FORCE_CUDA", "1", level="optional", cite=read.cite or "os.environ.get('FORCE_CUDA')"),),
        so="CUDA extensions are built and loaded even if torch sees no GPU",
        fix=(FixStep("unset FORCE_CUDA"),),
    )
