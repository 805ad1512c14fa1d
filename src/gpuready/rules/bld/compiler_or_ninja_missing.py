"""There is no C++ compiler, or no ninja, for what is to be compiled.

A wheel brings compiled code; a build from source needs the machine's own compiler, and nvcc needs it as
well: it compiles no host code itself. Less known is that Triton needs a C compiler when a job runs.
torch.compile, FlexAttention and Liger's kernels all end in a small piece of C that is compiled on the spot,
in the container that was made slim without it.

A missing compiler is an error where the job asks for a build or for one of those. ninja is a warning:
builds go on without it, one file after the other, and only extensions that are compiled on first use
insist. What the contract itself asks for is told by the rule on build tools. clang serves where CC or CXX
names it; one that lies on the path under its own name alone is not looked for, and serves Triton.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import compilation, contract_needs, fix_steps, visible_gpus

CODE = "BLD011"
SEVERITY = "error"
READS = ("compiler.gcc", "compiler.gxx", "compiler.ninja", "python.path", *compilation.READS)
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
    return Finding(
        CODE,
        SEVERITY if is_error else "warning",
        f"not on the path: {visible_gpus.join_names([TOOL_NAMES[key] for key in missing])}",
        found=tuple(facts.fact(key) for key in missing),
        needs=tuple(Requirement(key, "*", cite=CITES[key]) for key in missing),
        so="what is compiled here, at install or while the job runs, fails at once"
        if is_error
        else "builds take one file after the other, and those on first use refuse to begin",
        fix=tuple(_compiler_steps(facts, missing)),
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
