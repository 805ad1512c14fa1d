"""Choose the contract that a framework is judged by."""

from __future__ import annotations

from gpuready import contracts
from gpuready.catalog.packages import canonical, split
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.model import Contract, Facts

DEFAULT_FRAMEWORK = "transformers"


def asked(spec: str, sees_packages: bool = False) -> tuple[str, str | None, str | None]:
    """Parse a spec. Where packages are visible, it may name an installed package without a contract."""
    framework, version, variant = refusing(contracts.parse, spec)
    if variant or not sees_packages or contracts.contracted(framework):
        refusing(contracts.known, framework, version, variant)
    return framework, version, variant


def installed_here(facts: Facts) -> list[tuple[str, str | None, str | None]]:
    """Return the installed frameworks with a contract, without those that another one requires; else the default."""
    names = {contracts.distribution(name): name for name in contracts.frameworks()}
    found = [name for name in names if facts.known(f"package.{name}")]
    requires = facts.known("python.requires") or {}
    lines = [line for own in found for line in requires.get(own, {}).get("requires_dist", ())]
    brought = {canonical(split(line)[0]) for line in lines if "extra ==" not in line}
    own = [names[name] for name in found if name not in brought] or [names[name] for name in found]
    return [(name, None, None) for name in own or [DEFAULT_FRAMEWORK]]


def contract_of(facts: Facts, framework: str, version: str | None, variant: str | None) -> Contract:
    """Return the contract of a framework's version, with pins from its metadata where the version has no contract."""
    name = contracts.distribution(framework)
    installed = facts.known(f"package.{name}")
    requires = (facts.known("python.requires") or {}).get(name)
    if not contracts.contracted(framework):
        chosen = _derived(facts, framework, requires)
    else:
        chosen = refusing(contracts.load, framework, version, variant, installed)
        meant = installed is not None and (version is None or contracts.covers(version, installed))
        if chosen.says and requires and meant:
            chosen = contracts.with_pins(chosen, installed, *_metadata(facts, requires))
    if version is None:
        return chosen
    from gpuready.contracts.pins import exactly

    return exactly(chosen, version, installed)


def given(facts: Facts, contract: Contract) -> Contract:
    """Add a note to a user's contract where another version is installed than it is for."""
    name = contract.distribution or contract.framework
    installed = facts.known(f"package.{name}")
    if installed is None or contracts.covers(contract.version, installed):
        return contract
    return contract.but(says=f"{name} {installed} is installed, and this contract is for {contract.version}")


def _derived(facts: Facts, framework: str, requires: Mapping[str, Any] | None) -> Contract:
    """Derive the contract of an installed package that has none; Refused where there is no such package."""
    installed = facts.known(f"package.{framework}")
    if requires is None and installed:
        raise Refused(
            f"there is no contract for {framework!r}, and its metadata was not recorded: check it on the machine"
        )
    if requires is None:
        raise Refused(str(contracts.unknown(framework)))
    from gpuready.contracts.derived import derived

    version = installed or requires["version"] or "0"
    return derived(framework, version, *_metadata(facts, requires))


def _metadata(facts: Facts, requires: Mapping[str, Any]) -> tuple[list[str], str | None, dict[str, str]]:
    """Return a distribution's pins, its Python, and the environment for their markers."""
    from gpuready.contracts.pins import environment

    return list(requires["requires_dist"]), requires["requires_python"], environment(facts)
