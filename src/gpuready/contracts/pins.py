"""Replace a contract's pins with those of an installed distribution's metadata.

A version without a contract of its own has exact dependencies in its metadata. What metadata cannot express
(gates on hardware, on a job, on extras) stays as in the contract.
"""

from __future__ import annotations

from gpuready.catalog.packages import canonical
from gpuready.model import Need, Noun
from gpuready.versions import plain, satisfies, split_clause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuready.model import Contract, Facts

SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "darwin": ("darwin", "Darwin", "posix"),
    "windows": ("win32", "Windows", "nt"),
}
"""Names of the systems in requirement markers: sys_platform, platform_system, os_name."""


class Pin(Noun):
    """One requirement: the package, its versions, and whether it applies here without an extra."""

    name: str
    specifier: str
    held: bool


def merged(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract with the metadata's pins; markers are evaluated for ``environment``, else for this Python."""
    cite = f"METADATA of {contract.distribution or contract.framework} {version}"
    wanted = [pin for pin in (_pin(text, environment) for text in requires_dist) if pin is not None]
    pins = list(dict.fromkeys(_need(pin, cite) for pin in wanted if pin.held))
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
    """Return the contract with a need for exactly the requested version of the framework."""
    distribution = contract.distribution or contract.framework
    public = version.partition("+")[0]
    short = len(plain(public) or (0, 0, 0)) < 3  # 5.22 includes all of its patches
    want = f"=={public}.*" if short else f"=={public}"
    cite = f"{contract.framework}=={version} was asked for"
    own = Need(f"package.{distribution}", want, "", "required", cite)
    says = contract.says
    if installed is not None and not satisfies(installed, want):
        differs = f"{distribution} {installed} is installed, {version} was asked for"
        says = f"{says}; {differs}" if says else differs
    return contract.but(needs=(own, *contract.needs), says=says)


def environment(facts: Facts) -> dict[str, str]:
    """Return the known marker values of the target; markers read the others from this Python."""
    python, system = facts.known("python.version"), facts.known("os.system")
    found = {"platform_machine": facts.known("os.arch")}
    if python:
        found |= {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    if system in SYSTEMS:
        found |= dict(zip(("sys_platform", "platform_system", "os_name"), SYSTEMS[system], strict=True))
    return {name: str(value) for name, value in found.items() if value}


def _pin(text: str, environment: Mapping[str, str] | None) -> Pin | None:
    """Parse one line of metadata; None where it is not a requirement, which pip would reject too."""
    found = _plainly(text)
    if found is not None:
        return found
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        asked = Requirement(text)
    except InvalidRequirement:
        return None
    held = asked.marker is None or asked.marker.evaluate({**(environment or {}), "extra": ""})
    return Pin(canonical(asked.name), str(asked.specifier), held)


def _plainly(text: str) -> Pin | None:
    """Parse a simple requirement by hand; None where it needs ``packaging``, whose import takes as long as a check."""
    left, _, marker = (part.strip() for part in text.partition(";"))
    at = min((i for i, letter in enumerate(left) if letter in "<>=!~[(@ "), default=len(left))
    name, rest = left[:at], left[at:].strip()
    if not name.isascii() or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return None
    if marker.startswith("extra ==") and " or " not in marker:
        return Pin(canonical(name), rest, False)  # extras are not requested, so the specifier does not matter
    return Pin(canonical(name), rest, True) if not marker and (not rest or _is_plain(rest)) else None


def _is_plain(specifier: str) -> bool:
    """Return whether each clause is an operator and a plain version, or one that ends in ``.*``."""
    try:
        bounds = [split_clause(clause.strip()) for clause in specifier.split(",")]
    except ValueError:
        return False
    return all(
        plain(b.removesuffix(".*") if o in ("==", "!=") else b) is not None
        and "+" not in b
        and not b.startswith("=")
        for o, b in bounds
    )


def _is_specifier(text: str) -> bool:
    if not text.strip() or _is_plain(text):
        return bool(text.strip())
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def _need(pin: Pin, cite: str) -> Need:
    return Need(f"package.{pin.name}", _specifier(pin.specifier), "", "required", cite)


def _specifier(text: str) -> str:
    """Sort clauses, lower bounds first; ``*`` where there are none."""
    clauses = sorted((c.strip() for c in text.split(",") if c.strip()), key=lambda c: (c[0] != ">", c))
    return ",".join(clauses) or "*"


def _stale(contract: Contract, wanted: Iterable[Pin]) -> set[str]:
    """Return the contract's pins that the metadata no longer has; a pin behind an extra stays."""
    named = {f"package.{pin.name}" for pin in wanted}
    return {n.key for n in contract.needs if n.key.startswith("package.") and n.key not in named}
