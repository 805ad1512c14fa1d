"""The C library is older than torch needs.

## What it checks
The version of glibc against the wheels of torch. From 2.7 on they need glibc 2.28 (``manylinux_2_28``; of 2.6
those for CUDA 12.6 and aarch64). musl systems such as Alpine have no torch wheels. Nothing is reported if the
framework also allows a torch for the old library, or for conda packages.

## Why it matters
The installer finds no matching distribution, or silently installs an old release. An environment copied from
a newer machine fails with ``version `GLIBC_2.28' not found``. CentOS 7, Ubuntu 18.04 and Debian 9 are
affected.

## How to fix
Use a newer distribution or a container with one; the host's driver can stay. glibc cannot be upgraded on its
own.

## References
- torch 2.7.0 wheels
- PEP 600, manylinux
"""

from gpuready.catalog import torch as catalogue
from gpuready.model import NOT_STATED, Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, fix_steps

CODE = "SYS005"
SEVERITY = "error"
READS = ("os.glibc", "python.kind", *contract_needs.READS)
CONTRACT = {"needs": ({"key": "package.torch", "want": ">=2.13.0", "cite": "METADATA:11"},)}
BROKEN = {"os.system": "linux", "os.arch": "x86_64", "os.glibc": "2.27", "package.torch": None, "python.kind": "venv"}
HEALTHY = BROKEN | {"os.glibc": "2.35"}
FLOOR, SINCE = "2.28", "2.7"
CITE = "torch 2.7.0 on PyPI: wheels for manylinux_2_28, none for musl"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "os.glibc" not in facts or facts.value("os.system") != "linux":
        return None
    glibc = facts.value("os.glibc")
    if glibc is not None and versions.compare_versions(str(glibc), FLOOR) >= 0:
        return None
    if facts.value("os.arch") not in ("x86_64", "aarch64") or _has_compatible_torch(facts, contract, glibc):
        return None
    old = f"the C library of this system (glibc {glibc}) is too old for torch"
    return make_finding(
        old if glibc else "this system has no glibc, and torch has no wheels for other C libraries",
        found=(facts.fact("os.glibc"), facts.fact("package.torch")),
        needs=(Requirement("os.glibc", f">={FLOOR}", cite=CITE),),
        so="the installer finds no compatible torch, or torch fails to load",
        fix=(
            FixStep(
                "use a container or a distribution with a newer C library, such as Ubuntu 22.04", safety="elsewhere"
            ),
            FixStep("install torch from conda-forge, which supports older ones"),
        ),
    )


def _has_compatible_torch(facts: Facts, contract: Contract, glibc: object) -> bool:
    """Return whether the installed torch, or one the contract accepts, runs with an older glibc."""
    installed = facts.value("package.torch")
    if installed is None:
        pins = fix_steps.required_pins(facts, contract, "package.torch")
        older = [r for r in catalogue.list_torch_releases() if versions.compare_versions(r, SINCE) < 0]
        return glibc is not None and any(all(versions.satisfies_specifier(r, p) for p in pins) for r in older)
    # A torch on musl was built for musl, and conda builds for older libraries.
    if glibc is None or (facts.fact("python.kind").gap != NOT_STATED and facts.value("python.kind") == "conda"):
        return True
    return versions.compare_versions(str(installed), SINCE) < 0
