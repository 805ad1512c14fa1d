"""There is no CUDA toolkit for what is to be built.

## What it checks
Whether torch would find a toolkit: CUDA_HOME, then CUDA_PATH, then nvcc on the PATH, then /usr/local/cuda.
CUDA_HOME need not be set if nvcc is on the PATH. If the framework itself names the toolkit, BLD003 reports it
instead.

## Why it matters
torch's CUDA_HOME is None and the build stops at once. A torch wheel contains the CUDA libraries but no
compiler, and ``nvidia-smi`` shows the driver's CUDA even without a toolkit.

## How to fix
Install a toolkit of the CUDA that torch is built with (conda and the runfile installer need no root), or use
a prebuilt wheel.

## References
- torch/utils/cpp_extension.py, _find_cuda_home
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import compilation, contract_needs

CODE = "BLD006"
SEVERITY = "error"
READS = ("toolkit.path", "toolkit.home_missing", "toolkit.others", "torch.cuda", *compilation.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {"job.wants": ("build",), "toolkit.path": None, "toolkit.home_missing": None}
HEALTHY = BROKEN | {"toolkit.path": "/usr/local/cuda"}
CITE = "torch/utils/cpp_extension.py, _find_cuda_home"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.build_requested(facts, contract) or _contract_needs_toolkit(facts, contract):
        return None
    if facts.value("toolkit.path") is not None or facts.value("toolkit.home_missing"):
        return None  # BLD007 reports a home that does not exist
    return make_finding(
        "no CUDA toolkit for the requested build",
        found=(facts.fact("toolkit.path"), facts.fact("job.wants")),
        needs=(Requirement("toolkit.path", "*", cite=_cuda_home_citation(contract)),),
        so="torch finds no CUDA_HOME, and the build stops at once",
        fix=tuple(toolkit_home_steps(facts)),
    )


def _contract_needs_toolkit(facts: Facts, contract: Contract) -> bool:
    """Return whether the contract itself requires a toolkit: BLD003 then reports that it is missing."""
    own = [*contract.requirements_for("toolkit.version"), *contract.requirements_for("toolkit.nvcc")]
    return bool(contract_needs.needs_in_force(facts, [need for need in own if need.level == "required"]))


def _cuda_home_citation(contract: Contract) -> str:
    own = compilation.find_contract_variable(contract, "CUDA_HOME")
    return own.cite if own and own.cite else CITE


def toolkit_home_steps(facts: Facts) -> list[FixStep]:
    """Return a step that uses another installed toolkit, else steps to install one."""
    torch = facts.value_if_known("torch.cuda")
    here = compilation.find_other_toolkit(facts, str(torch or ""))
    if here:
        return [FixStep(f"set CUDA_HOME={here}")]
    which = " {}.{}".format(*versions.major_minor(torch)) if torch else ""
    return [
        FixStep(f"install the CUDA toolkit{which} and set CUDA_HOME to it"),
        FixStep("install prebuilt wheels of the extensions, which need no toolkit"),
    ]
