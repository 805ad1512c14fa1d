"""An installed package is of a version that the framework does not take.

The contract states for each package which versions it was made for: from the framework's metadata, its
requirement files, or the checks in its code. What is required and outside is an error. What is recommended,
or optional and still installed, is a warning: the framework starts, and what uses that package fails.

A local part does not count (``2.8.0+cu128`` is 2.8.0). Pre-releases count as the versions that they are:
``2.9.0rc1`` is inside ``>=2.8`` and outside ``>=2.9``. A version of the framework that was asked for by name and
is not the installed one counts as well. Several frameworks in one environment often cannot all be satisfied;
then each needs an environment of its own.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import contract_needs, fix_steps, job_request, visible_gpus

CODE = "PKG003"
SEVERITY = "error"
READS = fix_steps.READS
CONTRACT = {"needs": ({"key": "package.transformers", "want": "==4.51.3", "cite": "requirements.txt:19"},)}
BROKEN = {"package.transformers": "5.1.0", "python.path": "/venv/bin/python"}
HEALTHY = {"package.transformers": "4.51.3", "python.path": "/venv/bin/python"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    other_rules = {"package.accelerate"} if job_request.uses_device_map(facts) else set()
    pinned = [n for n in contract.requirements_for("package.*") if n.want != "*" and n.key not in other_rules]
    outside = contract_needs.unmet_needs(facts, [n for n in pinned if not _is_known_absent(facts, n.key)])
    if not outside:
        return None
    names = list(dict.fromkeys(need.key.removeprefix("package.") for need in outside))
    pins = {name: ",".join(n.want for n in outside if n.key == f"package.{name}") for name in names}
    is_error = contract_needs.worst_need_severity(outside) == "error"
    return Finding(
        CODE,
        "error" if is_error else "warning",
        _describe_outside_pins(facts, contract, names, pins),
        found=tuple(facts.fact(f"package.{name}") for name in names),
        needs=tuple(outside),
        so=_pins_consequence(contract, names, is_error),
        fix=(fix_steps.install_packages_step(facts, contract, pins),),
    )


def _is_known_absent(facts: Facts, key: str) -> bool:
    """Return whether a package is known to be absent, which PKG002 reports."""
    fact = facts.fact(key)
    return not fact.gap and fact.value is None


def _describe_outside_pins(facts: Facts, contract: Contract, names: list[str], pins: dict[str, str]) -> str:
    installed = _names_with_versions(facts, names)
    if names == [contract.distribution]:
        return f"{installed[0]} is installed, {pins[names[0]].removeprefix('==').removesuffix('.*')} was asked for"
    return f"outside what {contract.framework} takes: {visible_gpus.join_names(installed)}"


def _pins_consequence(contract: Contract, names: list[str], is_error: bool) -> str:
    if names == [contract.distribution]:
        return "another version runs here than the one that is judged"
    if is_error:
        return f"{contract.framework} refuses them at import or fails in ways that nobody has tested"
    return f"what {contract.framework} does with them is refused or fails; the rest runs"


def _names_with_versions(facts: Facts, names: list[str]) -> list[str]:
    return [f"{name} {facts.value(f'package.{name}')}" for name in names]
