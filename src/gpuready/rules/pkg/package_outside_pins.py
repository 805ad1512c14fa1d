"""An installed package has a version that is incompatible with the framework.

## What it checks
Each installed version against the range in the framework's requirements, which comes from the framework's metadata, its
requirement files or checks in its code. A required package is an error; a recommended or optional one is a
warning. A local version part is ignored (``2.8.0+cu128`` is 2.8.0). Pre-releases count as such: ``2.9.0rc1``
satisfies ``>=2.8`` and not ``>=2.9``. If a framework version was requested by name, the installed one must
match.

## Why it matters
The framework refuses the package at import, or fails in untested ways.

## How to fix
Install the versions named in the fix. If several frameworks in one environment have conflicting ranges, give
each its own environment.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import contract_needs, fix_steps, job_request, visible_gpus

CODE = "PKG003"
SEVERITY = "error"
READS = fix_steps.READS
CONTRACT = {"needs": ({"key": "package.transformers", "want": "==4.51.3", "cite": "requirements.txt:19"},)}
BROKEN = {"package.transformers": "5.1.0", "python.path": "/venv/bin/python"}
HEALTHY = {"package.transformers": "4.51.3", "python.path": "/venv/bin/python"}
MAX_NAMES = 3
"""Where there are more, the headline only counts them; the evidence names them all."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    other_rules = {"package.accelerate"} if job_request.uses_device_map(facts) else set()
    pinned = [n for n in contract.requirements_for("package.*") if n.want != "*" and n.key not in other_rules]
    outside = contract_needs.unmet_needs(facts, [n for n in pinned if not _is_known_absent(facts, n.key)])
    if not outside:
        return None
    names = list(dict.fromkeys(need.key.removeprefix("package.") for need in outside))
    pins = {name: ",".join(n.want for n in outside if n.key == f"package.{name}") for name in names}
    is_error = contract_needs.worst_need_severity(outside) == "error"
    return make_finding(
        _describe_outside_pins(facts, contract, names, pins, is_error),
        found=tuple(facts.fact(f"package.{name}") for name in names),
        needs=tuple(outside),
        so=_pins_consequence(contract, names, is_error),
        fix=_fix_steps(facts, contract, pins),
        severity="error" if is_error else "warning",
    )


def _fix_steps(facts: Facts, contract: Contract, pins: dict[str, str]) -> tuple[FixStep, ...]:
    copies = fix_steps.find_path_copies(facts, pins)
    installed = {name: want for name, want in pins.items() if name not in copies}
    install = (fix_steps.install_packages_step(facts, contract, installed),) if installed else ()
    return (*fix_steps.leave_path_copies_step(copies), *install)


def _is_known_absent(facts: Facts, key: str) -> bool:
    """Return whether a package is known to be absent, which PKG002 reports."""
    fact = facts.fact(key)
    return not fact.gap and fact.value is None


def _describe_outside_pins(
    facts: Facts, contract: Contract, names: list[str], pins: dict[str, str], is_error: bool
) -> str:
    installed = [f"{name} {facts.value(f'package.{name}')}" for name in names]
    if names == [contract.distribution]:
        return f"{installed[0]} is installed, {pins[names[0]].removeprefix('==').removesuffix('.*')} was asked for"
    if len(installed) > MAX_NAMES:
        return f"{len(installed)} packages have versions that {contract.name} does not accept"
    verb = "is" if len(installed) == 1 else "are"
    relation = "incompatible with" if is_error else "outside what is recommended for"
    return f"{visible_gpus.join_names(installed)} {verb} {relation} {contract.name}"


def _pins_consequence(contract: Contract, names: list[str], is_error: bool) -> str:
    if names == [contract.distribution]:
        return "the installed version is not the one that was checked"
    if is_error:
        return f"{contract.framework} may refuse them at import or fail later; this combination is not tested"
    return f"features of {contract.framework} that use them fail; the rest runs"
