"""A tool that a build needs is missing or too old.

## What it checks
The build tools that the framework names (nvcc, a C++ compiler, ninja, cmake), under their conditions:
only for builds (``--wants build``), for a feature, or always. A required tool is an error, a recommended one
a warning. The toolkit is the one that CUDA_HOME names, else nvcc on the PATH.

## Why it matters
Extensions with CUDA code are compiled on this machine if there is no wheel for them. Without the tools, the
install or the first use fails. Some frameworks look for nvcc even if nothing is compiled.

## How to fix
Install the tools named in the finding. A toolkit needs no root: NVIDIA's conda packages and the runfile
installer can use a folder of your own. ninja and cmake are also Python packages.

## References
- The framework's requirements, with their citations in the finding
- CUDA installation guide for Linux
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs, fix_steps, visible_gpus

CODE = "BLD003"
SEVERITY = "error"
KEYS = ("toolkit.version", "toolkit.nvcc", "compiler.gcc", "compiler.gxx", "compiler.ninja", "compiler.cmake")
READS = (*KEYS, "python.path", *contract_needs.READS)
CONTRACT = {
    "needs": (
        {"key": "toolkit.version", "want": ">=11.0", "when": "build", "cite": "README.md:473"},
        {"key": "compiler.ninja", "want": "*", "when": "build", "cite": "requirements.txt:10"},
    )
}
BROKEN = {"job.wants": ("build",), "toolkit.version": None, "compiler.ninja": "1.11"}
HEALTHY = {"job.wants": ("build",), "toolkit.version": "12.4", "compiler.ninja": "1.11"}
TOOL_NAMES = {"toolkit.version": "the CUDA toolkit", "toolkit.nvcc": "nvcc", "compiler.gxx": "g++"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = contract_needs.unmet_needs(facts, [need for key in KEYS for need in contract.requirements_for(key)])
    if not failed:
        return None
    names = list(dict.fromkeys(TOOL_NAMES.get(need.key, need.key.partition(".")[2]) for need in failed))
    return make_finding(
        f"missing or too old for a build: {visible_gpus.join_names(names)}",
        found=tuple(facts.fact(key) for key in dict.fromkeys(need.key for need in failed)),
        needs=tuple(failed),
        so=f"{contract.framework} cannot compile its extensions, at install or at first use",
        fix=(_build_tools_step(facts, failed),),
        severity=contract_needs.worst_need_severity(failed),
    )


def _build_tools_step(facts: Facts, failed: list[Requirement]) -> FixStep:
    """Return one step for everything missing; only Python packages can be installed by a command."""
    keys = list(dict.fromkeys(need.key for need in failed))
    tools = [key.partition(".")[2] for key in keys]
    if all(tool in ("ninja", "cmake") for tool in tools):
        return fix_steps.install_step(facts, f"install {visible_gpus.join_names(tools)}", *tools)
    wants = {key: " and ".join(dict.fromkeys(n.want for n in failed if n.key == key and n.want != "*")) for key in keys}
    named = [f"{TOOL_NAMES.get(key, tool)} {wants[key]}".strip() for key, tool in zip(keys, tools, strict=True)]
    home = "; set CUDA_HOME to the toolkit" if any(key.startswith("toolkit.") for key in keys) else ""
    return FixStep(f"install {visible_gpus.join_names(named)}{home}")
