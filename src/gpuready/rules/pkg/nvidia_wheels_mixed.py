"""The environment has CUDA libraries of two major releases.

## What it checks
Whether packages such as ``nvidia-nccl-cu12`` and ``nvidia-cudnn-cu13`` of different CUDA major releases are
installed. It is information, and a warning if NCCL, cuDNN, cuSPARSELt or NVSHMEM is installed for both.

## Why it matters
Most only use disk space. Those four write the same file in both releases, and torch loads the one that was
installed last. It happens when torch moves to another CUDA.

## How to fix
Remove the packages of the other release unless something needs them, and reinstall torch's own.

## References
- Metadata of the torch wheels
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import fix_steps, visible_gpus

CODE = "PKG022"
SEVERITY = "info"
READS = ("torch.cuda", "python.packages", "python.path", "package.*")
BROKEN = {"torch.cuda": "13.0", "package.nvidia-cublas-cu12": "12.8.4.1", "python.packages": 90}
HEALTHY = {"torch.cuda": "12.8", "package.nvidia-cublas-cu12": "12.8.4.1", "python.packages": 90}
ONE_FILE = ("nccl", "cudnn", "cusparselt", "nvshmem")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    cuda = facts.value("torch.cuda") if "cuda" in contract.platforms else None
    if cuda is None or not facts.value("python.packages"):
        return None
    torch_major = versions.major_version(cuda)
    names = [f.key.removeprefix("package.") for f in facts if f.key.startswith("package.nvidia-")]
    installed = [name for name in names if facts.value(f"package.{name}") is not None]
    foreign = [name for name in installed if (major := _wheel_cuda_major(name)) and major != torch_major]
    if not foreign:
        return None
    duplicated = [
        own for name in foreign if (own := _wheel_for_major(name, torch_major)) in installed and _shares_one_file(name)
    ]
    return make_finding(
        f"packages of another CUDA than torch's {cuda}: {visible_gpus.join_names(foreign, 4)}",
        found=(facts.fact("torch.cuda"), *(facts.fact(f"package.{name}") for name in (*foreign, *duplicated))),
        needs=(
            Requirement(
                "torch.cuda", f"nvidia packages for CUDA {torch_major}", level="recommended", cite="torch's metadata"
            ),
        ),
        so="both releases write the same file, and torch loads the one installed last"
        if duplicated
        else "they use disk space, and are harmless unless something loads them",
        fix=tuple(_mixed_wheels_steps(facts, foreign, duplicated)),
        severity="warning" if duplicated else SEVERITY,
    )


def _wheel_cuda_major(name: str) -> int | None:
    digits = name.rpartition("-cu")[2]
    return int(digits) if digits.isdecimal() and len(digits) == 2 else None


def _wheel_for_major(name: str, major: int) -> str:
    return f"{name.rpartition('-cu')[0]}-cu{major}"


def _shares_one_file(name: str) -> bool:
    return name.removeprefix("nvidia-").partition("-")[0] in ONE_FILE


def _mixed_wheels_steps(facts: Facts, foreign: list[str], duplicated: list[str]) -> list[FixStep]:
    removed = fix_steps.uninstall_step(facts, "remove them, unless something needs them", *foreign)
    again = [fix_steps.reinstall_step(facts, f"reinstall {visible_gpus.join_names(duplicated)}", *duplicated)]
    return [removed, *(again if duplicated else [])]
