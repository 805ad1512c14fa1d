"""The installed or wanted flash-attn does not match this torch.

## What it checks
The torch release, CUDA major release and C++ ABI in the version of flash-attn
(``2.8.3+cu12torch2.8cxx11abiTRUE``) against the installed torch. A version without that part is not checked.
If flash-attn is required, not installed, and known to have no wheel for this torch, it is a warning. CAP005
covers which GPUs it supports.

## Why it matters
A mismatched flash-attn fails at import with an undefined symbol. Without a matching wheel, its install
compiles for up to hours.

## How to fix
Install the wheel for this torch, build it with ``--no-build-isolation``, or use torch's own attention (SDPA).

## References
- flash-attn setup.py
- flash-attention releases
"""

import re

from gpuready.catalog import packages as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, torch_compatibility, visible_gpus

CODE = "PKG012"
SEVERITY = "error"
READS = ("torch.cuda", "torch.abi", *torch_compatibility.READS)
REQUIRED_FACTS = ("package.flash-attn", "job.wants")
BROKEN = {
    "job.wants": ("flash-attn",),
    "package.flash-attn": "2.8.3+cu12torch2.8cxx11abitrue",
    "torch.version": "2.9.1+cu128",
    "torch.cuda": "12.8",
}
HEALTHY = BROKEN | {"torch.version": "2.8.0+cu128", "torch.abi": True}
KEY = "package.flash-attn"
SDPA = FixStep("do not use flash-attn: torch's own attention (SDPA) supports the same models")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    installed = facts.value(KEY)
    if installed is None:
        return _must_compile_finding(facts, contract)
    made = re.search(r"cu(1\d)\d*torch(\d+\.\d+)(?:\.\d+)?(?:cxx11abi(true|false))?", str(installed).lower())
    torch = torch_compatibility.installed_torch_release(facts) if made else None
    wrong = _wheel_differences(facts, made, torch) if made and torch else []
    if not wrong:
        return None
    return make_finding(
        f"flash-attn {installed} is made for another {visible_gpus.join_names(wrong)}",
        found=tuple(facts.fact(key) for key in (KEY, "torch.version", "torch.cuda")),
        needs=(
            Requirement(KEY, f"for torch {torch}", cite=str((catalogue.find_package("flash-attn") or {})["source"])),
        ),
        so="its import fails with an undefined symbol or a missing library",
        fix=(FixStep(f"install the flash-attn wheel for torch {torch}, or build it with --no-build-isolation"), SDPA),
        severity=torch_compatibility.package_severity(facts, contract, "flash-attn"),
    )


def _wheel_differences(facts: Facts, made: re.Match[str], torch: str) -> list[str]:
    """Return what a prebuilt wheel was made for that differs from this torch."""
    wrong = ["torch"] if versions.major_minor(torch) != versions.major_minor(made[2]) else []
    cuda = facts.value("torch.cuda")
    if cuda is not None and versions.major_version(cuda) != int(made[1]):
        wrong.append("CUDA")
    if made[3] and not wrong:  # with another torch the ABI does not matter
        abi = facts.value("torch.abi")
        wrong += ["C++ ABI"] if abi is not None and abi is not (made[3] == "true") else []
    return wrong


def _must_compile_finding(facts: Facts, contract: Contract) -> Finding | None:
    """Return a warning if it is required, absent, and no accepted version has a wheel for this torch."""
    required = [need for need in contract.requirements_for(KEY) if need.level == "required"]
    in_force = contract_needs.needs_in_force(facts, required)
    torch = torch_compatibility.installed_torch_release(facts) if in_force else None
    rows = (catalogue.find_package("flash-attn") or {}).get("version", ())
    taken = [
        r for r in rows if all(n.want == "*" or versions.satisfies_specifier(r["version"], n.want) for n in in_force)
    ]
    if not torch or not taken or any("wheels" not in r for r in taken):
        return None
    if any(versions.major_minor(one) == versions.major_minor(torch) for r in taken for one in r["wheels"]):
        return None
    return make_finding(
        f"no prebuilt flash-attn {taken[-1]['version']} exists for torch {torch}: it must be compiled",
        found=(facts.fact(KEY), facts.fact("torch.version")),
        needs=tuple(in_force),
        so="its install compiles for a long time and needs a CUDA toolkit of torch's major release",
        fix=(FixStep(f"use a torch that it has wheels for: {visible_gpus.join_names(taken[-1]['wheels'])}"), SDPA),
        severity="warning",
    )
