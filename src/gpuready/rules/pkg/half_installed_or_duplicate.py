"""A package is partly installed, or installed twice.

## What it checks
Whether the packages that the framework requires have complete files and metadata, and only one dist-info folder. A partly
installed package is an error; a duplicate is a warning. A folder ``~orch``, which pip leaves, is no module and harms nothing.

## Why it matters
Imports fail or mix two versions. Installers trust the metadata and may report the environment as satisfied.
It happens when an install is killed, an upgrade does not finish, or two installers work in one environment.

## How to fix
Reinstall the package with force. If several are affected, a new environment is faster and safer.

## References
- PyPA specification, recording installed projects
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fix_steps, visible_gpus

CODE = "PKG006"
SEVERITY = "error"
READS = ("python.half_installed", "python.duplicates", "torch.broken", "python.path", "package.*")
BROKEN = {
    "python.half_installed": ("torch-2.8.0.dist-info",),
    "python.duplicates": (),
    "torch.broken": None,
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"python.half_installed": ("left_pad-1.0.dist-info",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    packages = _contract_packages(contract)
    entries = [str(entry) for entry in facts.value("python.half_installed") or ()]
    half = sorted({entry.partition("-")[0].lower().replace("_", "-").replace(".", "-") for entry in entries} & packages)
    duplicates = sorted({str(row["name"]) for row in facts.value("python.duplicates") or ()} & packages)
    if facts.value("torch.broken"):
        half = sorted({*half, "torch"})
    if not (half or duplicates):
        return None
    names = list(dict.fromkeys([*half, *duplicates]))
    return make_finding(
        _describe_damage(half, duplicates),
        found=tuple(facts.fact(key) for key in ("python.half_installed", "python.duplicates", "torch.broken")),
        needs=tuple(
            Requirement(f"package.{name}", "*", cite="one complete copy: its files and its metadata") for name in names
        ),
        so="imports fail or mix two versions, and installers do not notice",
        fix=(_reinstall_step(facts, names), FixStep("if several are affected, create a new environment")),
        severity=SEVERITY if half else "warning",
    )


def _contract_packages(contract: Contract) -> set[str]:
    names = {need.key.removeprefix("package.") for need in contract.requirements_for("package.*")}
    return names | {"torch", contract.distribution} - {""}


def _describe_damage(half: list[str], duplicates: list[str]) -> str:
    parts = [("partly installed", half), ("installed twice", duplicates)]
    return "; ".join(f"{what}: {visible_gpus.join_names(names)}" for what, names in parts if names)


def _reinstall_step(facts: Facts, names: list[str]) -> FixStep:
    return fix_steps.reinstall_step(facts, f"reinstall {visible_gpus.join_names(names)}", *names)
