"""There is no C++ compiler, or no ninja, for what is to be compiled.

## What it checks
Whether a C or C++ compiler and ninja are on the PATH. A missing compiler is an error if the job asks for a
build, torch.compile or Triton kernels; missing ninja is a warning. What the framework itself requires is
BLD003. clang counts if CC or CXX names it.

## Why it matters
A build from source needs a host compiler, and so does nvcc. Triton needs a C compiler at run time:
torch.compile, FlexAttention and Liger's kernels compile a small C launcher, which fails in slim containers.
Without ninja, builds compile one file at a time, and extensions compiled on first use refuse to start.

## How to fix
Install gcc and g++ (``build-essential``) or a compiler from conda, and the Python package ninja.

## References
- triton/runtime/build.py
- CUDA installation guide
- torch/utils/cpp_extension.py, is_ninja_available
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, contract_needs, fix_steps, visible_gpus

CODE = "BLD011"
SEVERITY = "error"
READS = ("compiler.gcc", "compiler.gxx", "compiler.ninja", "python.path", *compilation.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {"job.wants": ("torch-compile",), "compiler.gcc": None}
HEALTHY = {"job.wants": ("torch-compile",), "compiler.gcc": "12.2.0"}
TOOL_NAMES = {"compiler.gcc": "a C compiler", "compiler.gxx": "a C++ compiler", "compiler.ninja": "ninja"}
CITES = {
    "compiler.gcc": "triton/runtime/build.py: it compiles its launcher with CC, gcc or clang",
    "compiler.gxx": "CUDA installation guide: nvcc needs a host compiler",
    "compiler.ninja": "torch/utils/cpp_extension.py, is_ninja_available",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    keys = _needed_tools(facts, contract)
    missing = [key for key in keys if facts.value(key) is None]
    if compilation.uses_clang(facts):
        missing = [key for key in missing if key == "compiler.ninja"]
    if not missing:
        return None
    is_error = missing != ["compiler.ninja"]
    return make_finding(
        f"not on the PATH: {visible_gpus.join_names([TOOL_NAMES[key] for key in missing])}",
        found=tuple(facts.fact(key) for key in missing),
        needs=tuple(Requirement(key, "*", cite=CITES[key]) for key in missing),
        so="compilation fails, at install or while the job runs"
        if is_error
        else "builds compile one file at a time, and extensions compiled on first use fail",
        fix=tuple(_compiler_steps(facts, missing)),
        severity=SEVERITY if is_error else "warning",
    )


def _needed_tools(facts: Facts, contract: Contract) -> list[str]:
    """Return the needed tools that the contract itself does not ask for."""
    keys = ["compiler.gxx", "compiler.ninja"] if compilation.build_requested(facts, contract) else []
    if compilation.compiles_at_runtime(facts):
        keys.append("compiler.gcc")
    return [key for key in keys if not contract_needs.needs_in_force(facts, contract.requirements_for(key))]


def _compiler_steps(facts: Facts, missing: list[str]) -> list[FixStep]:
    steps = []
    if missing != ["compiler.ninja"]:
        steps.append(FixStep("install gcc and g++ (build-essential), or a compiler from conda", note="needs root"))
    if "compiler.ninja" in missing:
        steps.append(fix_steps.install_step(facts, "install ninja", "ninja"))
    return steps
