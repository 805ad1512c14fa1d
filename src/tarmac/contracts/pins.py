"""The pins of an installed distribution's own metadata, in the place of a contract's.

A version without a contract of its own is still exact about its dependencies: its metadata is. What the
metadata cannot say (gates on hardware, on a job, on what is only an extra) stays as the contract has it.
"""

from __future__ import annotations

from tarmac.model import Need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.requirements import Requirement

    from tarmac.model import Contract


def merged(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """The contract with the metadata's pins; markers are read for ``environment``, else for this Python."""
    cite = f"{contract.distribution or contract.framework} {version} METADATA"
    wanted = [r for r in map(_requirement, requires_dist) if r is not None]
    pins = [_need(r, cite) for r in wanted if _holds(r, environment)]
    if requires_python:
        pins.insert(0, Need("python.version", _specifier(requires_python), "", "required", cite))
    replaced = {pin.key for pin in pins} | (_stale(contract, wanted) if wanted else set())
    kept = [
        need for need in contract.needs if need.when or need.key not in replaced or need.level != "required"
    ]
    says = f"its package pins come from its own metadata ({cite})"
    return contract.but(
        version=version, needs=(*pins, *kept), says=f"{contract.says}; {says}" if contract.says else says
    )


def _requirement(text: str) -> Requirement | None:
    """One line of metadata; None where it is not a requirement, which pip would have refused as well."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _holds(requirement: Requirement, environment: Mapping[str, str] | None) -> bool:
    """Whether it is asked for here, no extra being chosen."""
    if requirement.marker is None:
        return True
    return requirement.marker.evaluate({**(environment or {}), "extra": ""})


def _need(requirement: Requirement, cite: str) -> Need:
    return Need(_key(requirement), _specifier(str(requirement.specifier)), "", "required", cite)


def _key(requirement: Requirement) -> str:
    from packaging.utils import canonicalize_name

    return f"package.{canonicalize_name(requirement.name)}"


def _specifier(text: str) -> str:
    """Clauses in a steady order, lower bounds first; nothing asked is ``*``."""
    clauses = sorted((c.strip() for c in text.split(",") if c.strip()), key=lambda c: (c[0] != ">", c))
    return ",".join(clauses) or "*"


def _stale(contract: Contract, wanted: Iterable[Requirement]) -> set[str]:
    """Pins of the contract that the metadata no longer has; what is behind an extra is still a gate."""
    named = {_key(r) for r in wanted}
    return {n.key for n in contract.needs if n.key.startswith("package.") and n.key not in named}
