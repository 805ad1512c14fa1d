"""A package that the framework requires is not installed.

## What it checks
Whether the framework, torch and every package that the framework requires are installed in the examined
environment. Packages that are only recommended are listed as information.

## Why it matters
The framework does not start, or fails at import. The wrong environment is the usual reason: a virtual
environment that is not activated. A virtual environment whose Python was replaced by another minor version
sees none of its packages.

## How to fix
Check first that it is the right environment: ``gpuready check --python PATH`` examines another. Installing
the framework brings most packages. Some frameworks leave torch to you; its build must match the driver and
the GPUs, and the fix names one that does.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.facts import NO_METADATA
from gpuready.rules import contract_needs, fix_steps, job_request, visible_gpus
from gpuready.rules.pkg.triton_differs_from_torch import TRITON_FORKS

CODE = "PKG002"
SEVERITY = "error"
READS = (*fix_steps.READS, "python.duplicates", "python.made_with", "python.version", "import.damage", "import.result")
CONTRACT = {"distribution": "demo", "needs": ({"key": "package.torch", "want": ">=2.2", "cite": "setup.py:9"},)}
BROKEN = {"package.demo": None, "package.torch": None, "python.path": "/venv/bin/python"}
HEALTHY = {"package.demo": "1.0", "package.torch": "2.8.0+cu128", "python.path": "/venv/bin/python"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    own, required = _implied_needs(contract), _package_needs(facts, contract, "required")
    absent = [n for n in [*own, *contract_needs.needs_in_force(facts, required)] if _is_package_absent(facts, n.key)]
    absent = [need for need in absent if not _is_only_metadata_gone(facts, contract, need.key)]
    if not absent:
        return _recommended_finding(facts, contract)
    to_show = _needs_to_show(contract, absent)
    names = list(dict.fromkeys(_package_name(need) for need in to_show))
    rest = len({need.key for need in absent}) - len(names)
    return make_finding(
        _describe_missing(names, rest) + _describe_other_python(facts),
        found=tuple(facts.fact(f"package.{name}") for name in names),
        needs=tuple(to_show),
        so=f"{contract.framework} does not start, or fails at import",
        fix=_install_missing_steps(facts, contract, absent),
    )


def _describe_missing(names: list[str], rest: int) -> str:
    text = f"{visible_gpus.join_names(names)} {'is' if len(names) == 1 else 'are'} not installed"
    more = f"nor {'is 1 package' if rest == 1 else f'are {rest} packages'} that it needs"
    return f"{text}, {more}" if rest else text


def _describe_other_python(facts: Facts) -> str:
    made_with = facts.value_if_known("python.made_with")
    now = facts.value_if_known("python.version")
    return f": the environment was made with Python {made_with}, and Python {now} starts in it now" if made_with else ""


def _is_package_absent(facts: Facts, key: str) -> bool:
    """Return whether a package is absent, also under the name it has on another platform."""
    duplicates = facts.value_if_known("python.duplicates") or ()
    if any(row["name"] == key[8:] for row in duplicates) or facts.value(key) is not None:
        return False
    if key != "package.triton":
        return True
    return not any(facts.value_if_known(f"package.{name}") for name in TRITON_FORKS)


def _is_only_metadata_gone(facts: Facts, contract: Contract, key: str) -> bool:
    """Return whether a package has its modules, and the framework imports without the metadata of it; PKG044 warns of it."""
    known = (facts.value_if_known("import.result") or {}).get(contract.distribution) or {}
    if known.get("error", "none"):
        return False
    rows = facts.value_if_known("import.damage") or ()
    return any(row["distribution"] == key[8:] and row["kind"] == NO_METADATA for row in rows)


def _implied_needs(contract: Contract) -> list[Requirement]:
    """Return the framework's distribution, and torch, which every GPU contract needs even if it does not say so."""
    torch = "torch" if visible_gpus.accelerator_platforms(contract) else ""
    names = [name for name in (contract.distribution, torch) if name]
    stated = {need.key for need in contract.needs if need.level == "required" and not need.when}
    return [Requirement(f"package.{n}", "*", cite=contract.name) for n in names if f"package.{n}" not in stated]


def _package_needs(facts: Facts, contract: Contract, level: str) -> list[Requirement]:
    # PKG005 reports what a device map needs.
    other_rules = {"package.accelerate"} if job_request.uses_device_map(facts) else set()
    return [n for n in contract.requirements_for("package.*") if n.level == level and n.key not in other_rules]


def _needs_to_show(contract: Contract, absent: list[Requirement]) -> list[Requirement]:
    """Omit dependencies if the framework itself is missing; keep torch, which comes in many builds."""
    headline = [n for n in absent if n.key in (f"package.{contract.distribution}", "package.torch")]
    return headline if any(n.key != "package.torch" for n in headline) else absent


def _package_name(need: Requirement) -> str:
    return need.key.removeprefix("package.")


def _install_missing_steps(facts: Facts, contract: Contract, absent: list[Requirement]) -> tuple[FixStep, ...]:
    """Install the framework by version, which brings the rest; follow the contract if no index has it."""
    wants: dict[str, str] = {}
    for need in absent:
        name = _package_name(need)
        wants[name] = ",".join(w for w in (wants.get(name, "*"), need.want) if w != "*") or "*"
    if contract.distribution not in wants:
        return (fix_steps.install_packages_step(facts, contract, wants),)
    own = [step for step in contract.steps if "install" in step.run]
    if own and not any(_installs_distribution(step, contract.distribution) for step in own):
        return tuple(own)
    pin = f"=={contract.version}.*" if contract.version.count(".") < 2 else f"=={contract.version}"
    torch = {"torch": wants["torch"]} if "torch" in wants else {}
    return (fix_steps.install_packages_step(facts, contract, torch | {contract.distribution: pin}),)


def _installs_distribution(step: FixStep, distribution: str) -> bool:
    for word in step.run:
        name = word
        for mark in "[=<>~! ":
            name = name.partition(mark)[0]
        if name == distribution:
            return True
    return False


def _recommended_finding(facts: Facts, contract: Contract) -> Finding | None:
    recommended = _package_needs(facts, contract, "recommended")
    absent = [
        n for n in contract_needs.needs_in_force(facts, recommended) if contract_needs.peek_fact(facts, n.key) is None
    ]
    if not absent:
        return None
    names = list(dict.fromkeys(_package_name(need) for need in absent))
    return make_finding(
        f"recommended by {contract.framework} and not installed: {visible_gpus.join_names(names)}",
        found=tuple(facts.fact(need.key) for need in absent),
        needs=tuple(absent),
        so="features that use them are slower or missing",
        fix=(fix_steps.install_packages_step(facts, contract, {_package_name(need): need.want for need in absent}),),
        severity="info",
    )
