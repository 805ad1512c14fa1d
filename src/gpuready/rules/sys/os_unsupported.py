"""The framework does not run on this operating system.

## What it checks
The operating system against the framework's requirements. WSL 2 counts as Linux.

## Why it matters
Most training frameworks support only Linux: NCCL exists only there, and kernels are built and tested there.
macOS has no CUDA.

## How to fix
On Windows use WSL 2, which uses the GPUs through the Windows driver; install no driver inside it. Otherwise
use a Linux machine or container.

## References
- The framework's requirements, with their citations in the finding
- NVIDIA, CUDA on WSL User Guide
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs

CODE = "SYS003"
SEVERITY = "error"
READS = ("os.system", "os.pretty", *contract_needs.READS)
CONTRACT = {"needs": ({"key": "os.system", "want": "linux", "cite": "setup.py:19"},)}
BROKEN = {"os.system": "windows", "os.pretty": "Windows 11"}
HEALTHY = {"os.system": "linux", "os.pretty": "Ubuntu 22.04.4 LTS"}


CUDA_SYSTEM_NEED = Requirement(
    "os.system", "linux|windows", cite="PyTorch's wheels with CUDA are for Linux and Windows; macOS has none"
)
"""Applies to every contract if the GPUs are NVIDIA's."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    stated = (*contract.requirements_for("os.system"), *((CUDA_SYSTEM_NEED,) if _has_cuda_gpu(facts, contract) else ()))
    if not stated:
        return None
    failed = contract_needs.unmet_needs(facts, stated)
    if not failed:
        return None
    system = facts.value("os.system")
    return make_finding(
        f"{contract.framework} does not run on {system or 'this system'}",
        found=(facts.fact("os.system"), facts.fact("os.pretty")),
        needs=tuple(failed),
        so=f"{contract.framework} cannot be installed, or its GPU features are missing",
        fix=(_supported_os_step(system),),
        severity=contract_needs.worst_need_severity(failed),
    )


def _has_cuda_gpu(facts: Facts, contract: Contract) -> bool:
    return "cuda" in contract.platforms and bool(contract_needs.peek_fact(facts, "gpu.count"))


def _supported_os_step(system: object) -> FixStep:
    if system == "windows":
        return FixStep(
            "use WSL 2 with a Linux distribution",
            ("wsl", "--install"),
            note="needs administrator rights",
            safety="elsewhere",
        )
    return FixStep("use a machine or a container with Linux", safety="elsewhere")
