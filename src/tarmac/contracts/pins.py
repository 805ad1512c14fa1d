"""The pins of an installed distribution's own metadata, in the place of a contract's.

A version without a contract of its own is still exact about its dependencies: its metadata is. What the
metadata cannot say (gates on hardware, on a job, on what is only an extra) stays as the contract has it.
"""

from __future__ import annotations

from tarmac.model import Need
from tarmac.versions import plain, satisfies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.requirements import Requirement

    from tarmac.model import Contract, Facts

SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "darwin": ("darwin", "Darwin", "posix"),
    "windows": ("win32", "Windows", "nt"),
}
"""How the markers of requirements name the systems: sys_platform, platform_system, os_name."""


def merged(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """The contract with the metadata's pins; markers are read for ``environment``, else for this Python."""
    cite = f"METADATA of {contract.distribution or contract.framework} {version}"
    wanted = [r for r in map(_requirement, requires_dist) if r is not None]
    pins = list(dict.fromkeys(_need(r, cite) for r in wanted if _holds(r, environment)))
    if requires_python and _is_specifier(requires_python):
        pins.insert(0, Need("python.version", _specifier(requires_python), "", "required", cite))
    replaced = {pin.key for pin in pins} | (_stale(contract, wanted) if wanted else set())
    kept = [
        need for need in contract.needs if need.when or need.key not in replaced or need.level != "required"
    ]
    says = f"its package pins come from its own metadata ({cite})"
    return contract.but(
        version=version, needs=(*pins, *kept), says=f"{contract.says}; {says}" if contract.says else says
    )


def exactly(contract: Contract, version: str, installed: str | None) -> Contract:
    """The contract of a version that was asked for by name: no other one of the framework will do."""
    distribution = contract.distribution or contract.framework
    public = version.partition("+")[0]
    short = len(plain(public) or (0, 0, 0)) < 3  # 5.22 means all of its patches
    want = f"=={public}.*" if short else f"=={public}"
    cite = f"{contract.framework}=={version} was asked for"
    own = Need(f"package.{distribution}", want, "", "required", cite)
    says = contract.says
    if installed is not None and not satisfies(installed, want):
        differs = f"{distribution} {installed} is installed, {version} was asked for"
        says = f"{says}; {differs}" if says else differs
    return contract.but(needs=(own, *contract.needs), says=says)


def environment(facts: Facts) -> dict[str, str]:
    """What markers ask of the patient, as far as it is known; the rest they read of this Python."""
    python, system = facts.known("python.version"), facts.known("os.system")
    found = {"platform_machine": facts.known("os.arch")}
    if python:
        found |= {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    if system in SYSTEMS:
        found |= dict(zip(("sys_platform", "platform_system", "os_name"), SYSTEMS[system], strict=True))
    return {name: str(value) for name, value in found.items() if value}


def _requirement(text: str) -> Requirement | None:
    """One line of metadata; None where it is not a requirement, which pip would have refused as well."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _is_specifier(text: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return bool(text.strip())


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
