"""The variable CUDA_HOME names a folder without a compiler.

## What it checks
Whether CUDA_HOME or CUDA_PATH names a folder with ``bin/nvcc``, and whether /usr/local/cuda is a dead link.
It is an error if something is to be built, a warning if the framework requires a toolkit, else information. A
dead link is harmless if a variable or the PATH leads to a toolkit, and so is CUDA_HOME if PYTORCH_NVCC names
the compiler.

## Why it matters
torch uses CUDA_HOME without checking it, and does not look for nvcc elsewhere. A stale variable, or a runtime
image (without ``devel`` in its name), hides a toolkit that would work.

## How to fix
Set the variable to a toolkit with ``bin/nvcc``, or unset it.

## References
- torch/utils/cpp_extension.py, _find_cuda_home
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, contract_needs
from gpuready.rules.bld.cuda_home_missing import toolkit_home_steps

CODE = "BLD007"
SEVERITY = "error"
HOME_FACTS = ("toolkit.home_missing", "toolkit.path", "toolkit.chosen_by", "toolkit.nvcc")
READS = (*HOME_FACTS, "toolkit.others", "torch.cuda", *compilation.READS)
BROKEN = {
    "job.wants": ("build",),
    "toolkit.home_missing": "/opt/cuda-11",
    "toolkit.path": "/opt/cuda-11",
    "toolkit.chosen_by": "CUDA_HOME",
    "toolkit.nvcc": None,
}
HEALTHY = {
    "job.wants": ("build",),
    "toolkit.home_missing": None,
    "toolkit.path": "/opt/cuda-12",
    "toolkit.chosen_by": "CUDA_HOME",
    "toolkit.nvcc": "/opt/cuda-12/bin/nvcc",
}
CITE = "torch/utils/cpp_extension.py, _find_cuda_home"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    due = compilation.build_needed(facts, contract)
    if "cuda" not in contract.platforms or (not due and any(facts.fact(key).gap for key in HOME_FACTS)):
        return None
    wrong = _describe_wrong_home(facts)
    if wrong is None or facts.value_if_known("env.PYTORCH_NVCC"):
        return None
    return make_finding(
        wrong,
        found=tuple(facts.fact(key) for key in HOME_FACTS),
        needs=(Requirement("toolkit.nvcc", "*", cite=CITE),),
        so="every build fails when it calls nvcc, even if a toolkit is installed elsewhere",
        fix=(*toolkit_home_steps(facts)[:1], *_unset_home_steps(facts)),
        severity=compilation.build_severity(facts, contract) if due else "info",
    )


def _describe_wrong_home(facts: Facts) -> str | None:
    path = facts.value("toolkit.path")
    missing = facts.value("toolkit.home_missing")
    if missing is not None and (path is None or str(path).rstrip("/") == str(missing).rstrip("/")):
        what = "the link" if path is None else f"the variable {facts.value('toolkit.chosen_by')}"
        return f"{what} points to {missing}, which does not exist"
    if path is None or facts.value("toolkit.chosen_by") not in ("CUDA_HOME", "CUDA_PATH"):
        return None
    if facts.value("toolkit.nvcc") is not None:
        return None
    return f"the variable {facts.value('toolkit.chosen_by')} points to {path}, which has no bin/nvcc"


def _unset_home_steps(facts: Facts) -> list[FixStep]:
    by = contract_needs.peek_fact(facts, "toolkit.chosen_by")
    named = by in ("CUDA_HOME", "CUDA_PATH")
    return [FixStep(f"unset {by}: torch then uses nvcc from the PATH, or /usr/local/cuda")] if named else []
