"""The installed triton is not the version that torch needs.

## What it checks
The installed triton against the version that torch pins. It is an error if the job asks for torch.compile,
also if triton is missing; else a warning. Nightlies, own builds and triton under another name
(pytorch-triton) are not checked.

## Why it matters
torch.compile uses internals of triton that change between releases. With another version it fails with an
ImportError or during compilation, and so do kernels written for the pinned version.

## How to fix
Install the triton that torch pins.

## References
- Metadata of the torch wheels
"""

from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, Requirement, make_finding, versions
from gpuready.rules import contract_needs, fix_steps, job_request, torch_compatibility

CODE = "PKG018"
SEVERITY = "error"
READS = ("torch.build", *torch_compatibility.READS)
BROKEN = {
    "job.wants": ("torch-compile",),
    "torch.version": "2.8.0+cu128",
    "torch.build": "cuda",
    "package.triton": "3.1.0",
}
HEALTHY = BROKEN | {"package.triton": "3.4.0"}
TRITON_FORKS = ("pytorch-triton", "triton-windows", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-rocm")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or facts.value("torch.build") != "cuda":
        return None
    torch = torch_compatibility.installed_torch_release(facts)
    row = catalogue.find_torch_release(torch) if torch else None
    pin = str((row or {}).get("triton") or "")
    if row is None or not pin or any(contract_needs.peek_fact(facts, f"package.{name}") for name in TRITON_FORKS):
        return None
    wanted = pin if pin[0] in "~=<>" else f"=={pin}"
    compiles = job_request.job_asks_for(facts, "torch-compile", "compile", "flex-attention")
    present = facts.value("package.triton")
    if (present is None and not compiles) or (present and _is_triton_accepted(str(present), wanted)):
        return None
    requirement = f"triton{wanted}"
    return make_finding(
        f"triton {present} is installed, but torch {torch} needs {pin}"
        if present
        else f"triton is not installed, but torch.compile needs {pin}",
        found=(facts.fact("package.triton"), facts.fact("torch.version")),
        needs=(Requirement("package.triton", wanted, cite=str(row["source"])),),
        so="torch.compile fails at import or while compiling, and Triton kernels may fail",
        fix=(fix_steps.install_step(facts, f"install {requirement}", requirement),),
        severity=SEVERITY if compiles else "warning",
    )


def _is_triton_accepted(version: str, wanted: str) -> bool:
    return "+" in version or not versions.is_version(version) or versions.satisfies_specifier(version, wanted)
