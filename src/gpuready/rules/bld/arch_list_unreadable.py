"""The list TORCH_CUDA_ARCH_LIST has entries that DeepSpeed cannot read.

## What it checks
Whether an entry of TORCH_CUDA_ARCH_LIST has a letter, such as ``9.0a`` or ``10.0f``, where DeepSpeed 0.19 or newer is installed.
Its builder of kernels sorts the entries as numbers since 0.19.0.

## Why it matters
torch and nvcc take such entries, and images for Hopper and Blackwell set them. DeepSpeed raises
``ValueError: invalid literal for int() with base 10: '0a'`` when it compiles its first kernel, such as FusedAdam
or CPUAdam, which may be at the first step.

## How to fix
Leave out the letter, or unset the variable: DeepSpeed then asks the GPU.

## References
- DeepSpeed 0.19.8, op_builder/builder.py, compute_capability_args
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.versions import is_satisfied
from gpuready.rules import compilation

CODE = "BLD022"
SEVERITY = "warning"
READS = ("env.TORCH_CUDA_ARCH_LIST", "package.deepspeed")
REQUIRED_FACTS = ("env.TORCH_CUDA_ARCH_LIST", "package.deepspeed")
BROKEN = {"env.TORCH_CUDA_ARCH_LIST": "9.0a", "package.deepspeed": "0.19.8"}
HEALTHY = BROKEN | {"env.TORCH_CUDA_ARCH_LIST": "9.0"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    version = facts.value("package.deepspeed")
    text = compilation.effective_arch_list(facts) if version is not None and is_satisfied(version, ">=0.19.0") else None
    entries = (text or "").replace(" ", ";").split(";")
    unreadable = [entry for entry in entries if _has_letter(entry)]
    if not unreadable:
        return None
    return make_finding(
        f"the list TORCH_CUDA_ARCH_LIST has {', '.join(unreadable)}, which DeepSpeed cannot read",
        found=tuple(facts.fact(key) for key in READS),
        needs=(Requirement("env.TORCH_CUDA_ARCH_LIST", "numbers", cite="deepspeed 0.19.8 op_builder/builder.py:710"),),
        so="compiling its first kernel stops with a ValueError",
        fix=(FixStep(f"set TORCH_CUDA_ARCH_LIST={';'.join(_drop_letter(entry) for entry in entries)}, or unset it"),),
    )


def _has_letter(entry: str) -> bool:
    return entry.partition("+")[0][-1:] in ("a", "f") and entry[:1].isdigit()


def _drop_letter(entry: str) -> str:
    number, plus, suffix = entry.partition("+")
    return (number[:-1] if _has_letter(entry) else number) + plus + suffix
