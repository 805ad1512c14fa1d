"""Replace a contract's pins with those of an installed distribution's metadata.

A version without a contract of its own has exact dependencies in its metadata. What metadata cannot express
(gates on hardware, on a job, on extras) stays as in the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuready.catalog.packages import canonical_package_name
from gpuready.contracts import list_line_contracts
from gpuready.contracts.when import wanted_words
from gpuready.model import Contract, Facts, Record, Requirement
from gpuready.model.contract import BORROWED_NEED
from gpuready.model.metadata import marker_applies, parse_requirement
from gpuready.model.metadata import marker_environment as usual_environment
from gpuready.model.versions import is_satisfied, parse_plain_release, satisfies_specifier

MARKER_SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "darwin": ("darwin", "Darwin", "posix"),
    "windows": ("win32", "Windows", "nt"),
}
"""Names of the systems in requirement markers: sys_platform, platform_system, os_name."""


USUAL_MACHINE = usual_environment("3.12.0", "x86_64", "")
"""What markers read where a machine does not say."""


class MetadataPin(Record):
    """One requirement: the package, its versions, and whether it applies here without an extra."""

    name: str
    specifier: str
    applies: bool
    extra: str = ""  # it applies where this extra is asked for


def merge_metadata_pins(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract with the metadata's pins; markers are evaluated for ``environment``, and else for the usual machine.

    An extra's pins hold where the job asks for it. Of a borrowed contract nothing is left that metadata can tell,
    and the rest advises.
    """
    cite = f"METADATA of {contract.distribution or contract.framework} {version}"
    parsed = [pin for pin in (_parse_requirement(text, environment) for text in requires_dist) if pin is not None]
    pins = _unique_needs([_pin_need(pin, cite) for pin in parsed if pin.applies])
    if requires_python and requires_python.strip() and _is_specifier(requires_python):
        pins.insert(0, Requirement("python.version", normalize_specifier(requires_python), "", "required", cite))
    pins += _pins_behind_extras(contract, pins)
    pinned = {pin.key for pin in pins if not pin.when and pin.key.startswith("package.")}
    replaced = {pin.key for pin in pins if not pin.when} | (_stale_pins(contract, parsed) if parsed else set())
    own_torch = {pin.want for pin in pins if pin.key == "package.torch"}
    is_other_torch = bool(own_torch - {need.want for need in contract.requirements_for("package.torch")})
    extras = {pin.extra for pin in parsed}
    kept = [
        need
        for need in contract.needs
        if not _is_in_metadata(need, replaced, extras if parsed else None)
        and (need.when or need.key not in pinned)
        and not (is_other_torch and need.key == "torch.cuda" and need.when in ("", "platform=cuda"))
    ]
    says = f"its package pins come from its own metadata ({cite})"
    return contract.replace(
        version=version,
        needs=(*pins, *(borrow_need(need, contract) for need in kept)),
        says=f"{contract.says}; {says}" if contract.says else says,
    )


def require_extras(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    extras: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract with what a release adds for these extras; ValueError for one that it does not have."""
    name = contract.distribution or contract.framework
    parsed = [pin for pin in (_parse_requirement(text, environment) for text in requires_dist) if pin is not None]
    known = sorted({extra for text in requires_dist if (extra := named_extra(text))})
    for extra in extras:
        if extra not in known:
            raise ValueError(f"{name} {version} has no extra {extra!r}; it has {', '.join(known) or 'none'}")
    asked = [pin for pin in parsed if pin.applies and pin.extra in extras and pin.name != canonical_package_name(name)]
    own = [_pin_need(pin, f"METADATA of {name} {version}, extra {pin.extra}").replace(when="") for pin in asked]
    kept = [need for need in contract.needs if need.when not in {f"wants={extra}" for extra in extras}]
    return contract.replace(needs=(*kept, *own))


def add_metadata_pins(
    contract: Contract, version: str, requires_dist: Sequence[str], environment: Mapping[str, str] | None = None
) -> Contract:
    """Return a version's own contract with the pins of its metadata in place of its unconditional ones."""
    cite = f"METADATA of {contract.distribution or contract.framework} {version}"
    parsed = [pin for pin in (_parse_requirement(text, environment) for text in requires_dist) if pin is not None]
    pins = _unique_needs([_pin_need(pin, cite) for pin in parsed if pin.applies and not pin.extra])
    pinned = {pin.key for pin in pins}
    kept = [need for need in contract.needs if need.when or need.level != "required" or need.key not in pinned]
    return contract.replace(needs=(*pins, *kept))


def replace_patch_pins(
    contract: Contract, version: str, requires_dist: Sequence[str], environment: Mapping[str, str] | None = None
) -> Contract:
    """Return a line's contract with the installed patch's pins where the contract has those of another patch's metadata."""
    cite = f"METADATA of {contract.distribution or contract.framework} {version}"
    found: dict[str, list[str]] = {}
    for pin in (_parse_requirement(text, environment) for text in requires_dist):
        if pin is not None and pin.applies and not pin.extra:
            found.setdefault(f"package.{pin.name}", []).append(pin.specifier)
    own = {key: normalize_specifier(",".join(dict.fromkeys(specifiers))) for key, specifiers in found.items()}
    needs = [
        need.replace(want=own[need.key], cite=cite)
        if need.key in own
        and not need.when
        and "METADATA" in need.cite
        and own[need.key] != normalize_specifier(need.want)
        else need
        for need in contract.needs
    ]
    return contract.replace(needs=tuple(needs))


def _pins_behind_extras(contract: Contract, pins: Sequence[Requirement]) -> list[Requirement]:
    """Return pins behind an extra as unconditional ones, for packages that the contract always requires (torch).

    Where extras differ (torch of any kind, and that of one accelerator), the one of the package's own name counts.
    """
    always = {n.key for n in contract.needs if n.level == "required" and not n.when}
    plain = {pin.key for pin in pins if not pin.when}
    behind: dict[str, list[Requirement]] = {}
    for pin in pins:
        if pin.when and pin.key in always - plain:
            behind.setdefault(pin.key, []).append(pin)
    chosen = []
    for key, found in behind.items():
        own = [pin for pin in found if wanted_words(pin.when) == [key.removeprefix("package.")]]
        if len({pin.want for pin in own or found}) == 1:
            pin = (own or found)[0].replace(when="")
            chosen += loosen_pin(pin) if own else [pin]
    return chosen


def loosen_pin(pin: Requirement) -> list[Requirement]:
    """Return a pin behind the extra of its own package as a floor, and its upper bound as advice: an install without the extra is not held to it."""
    clauses = pin.want.split(",")
    upper = ",".join(one for one in clauses if one.startswith("<"))
    floor = ",".join(one for one in clauses if not one.startswith("<")) or "*"
    return [pin.replace(want=floor), *([pin.replace(want=upper, level="optional")] if upper else [])]


def _is_in_metadata(need: Requirement, replaced: set[str], extras: set[str] | None) -> bool:
    """Whether the metadata says what a need of another version's contract says of a package or of Python.

    ``extras``: those of the metadata; None where it states no package.
    """
    if need.level != "required" or (not need.when and need.key not in replaced):
        return False
    if not need.when:
        return True
    return extras is not None and need.key.startswith("package.") and set(wanted_words(need.when)) <= extras


def soften_borrowed_needs(contract: Contract) -> Contract:
    """Return a contract of another version, of which no metadata is known: what it requires only advises."""
    return contract.replace(needs=tuple(borrow_need(need, contract) for need in contract.needs))


def borrow_need(need: Requirement, contract: Contract) -> Requirement:
    """Return a need of another version as advice that says so."""
    if need.level != "required" or _is_of_every_line(need, contract):
        return need
    line = contract.origin.partition(",")[0]
    return need.replace(level="recommended", cite=f"{need.cite}; {BORROWED_NEED} ({line})".lstrip("; "))


def _is_of_every_line(need: Requirement, contract: Contract) -> bool:
    """Whether a need on the system is required by every contract of the framework, so that no version between them runs elsewhere."""
    if need.key != "os.system" or need.when:
        return False
    rows = (line.requirements_for(need.key) for line in list_line_contracts(contract.framework))
    return all(any(one.level == "required" and one.want == need.want for one in row) for row in rows)


def pin_exact_version(contract: Contract, version: str, installed: str | None) -> Contract:
    """Return the contract with a need for exactly the requested version of the framework."""
    distribution = contract.distribution or contract.framework
    public = version.partition("+")[0]
    is_short = len(parse_plain_release(public) or (0, 0, 0)) < 3  # 5.22 includes all of its patches
    want = f"=={public}.*" if is_short else f"=={public}"
    cite = f"{contract.framework}=={version} was asked for"
    own_need = Requirement(f"package.{distribution}", want, "", "required", cite)
    says = contract.says
    if installed is not None and not satisfies_specifier(installed, want):
        difference = f"{distribution} {installed} is installed, {version} was asked for"
        says = f"{says}; {difference}" if says else difference
    return contract.replace(needs=(own_need, *contract.needs), says=says)


def marker_environment(facts: Facts) -> dict[str, str]:
    """Return the known marker values of the target."""
    python, system = facts.value_if_known("python.version"), facts.value_if_known("os.system")
    found = {"platform_machine": facts.value_if_known("os.arch")}
    if python:
        found |= {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    if system in MARKER_SYSTEMS:
        found |= dict(zip(("sys_platform", "platform_system", "os_name"), MARKER_SYSTEMS[system], strict=True))
    return {name: str(value) for name, value in found.items() if value}


def _parse_requirement(text: str, environment: Mapping[str, str] | None) -> MetadataPin | None:
    """Parse one line of metadata; None where it is not a requirement, which pip would reject too."""
    name, _, specifier, marker = parse_requirement(text)
    if not (name.isascii() and name.replace("-", "").isalnum() and _is_specifier(specifier)):
        return None
    here = USUAL_MACHINE | dict(environment or {})
    if marker_applies(marker, here, frozenset()):
        return MetadataPin(name, specifier, True)
    extra = named_extra(text)
    return MetadataPin(name, specifier, bool(extra) and marker_applies(marker, here, frozenset([extra])), extra)


def named_extra(text: str) -> str:
    """Return the extra that a marker names: ``extra == "deepspeed"``."""
    after = text.partition(";")[2].partition("extra ==")[2].strip()
    name = canonical_package_name(after[1:].partition(after[0])[0]) if after[:1] in ("'", '"') and after else ""
    return name if name.isascii() and name.replace("-", "").isalnum() else ""


def _is_specifier(text: str) -> bool:
    return "|" not in text and is_satisfied("1", text) is not None


def _pin_need(pin: MetadataPin, cite: str) -> Requirement:
    when = f"wants={pin.extra}" if pin.extra else ""
    return Requirement(f"package.{pin.name}", normalize_specifier(pin.specifier), when, "required", cite)


def _unique_needs(needs: Sequence[Requirement]) -> list[Requirement]:
    """Return pins of one source without repetitions."""
    return list({(need.key, need.want, need.when): need for need in needs}.values())


def normalize_specifier(text: str) -> str:
    """Sort clauses, lower bounds first; ``*`` where there are none."""
    clauses = sorted((c.strip() for c in text.split(",") if c.strip()), key=lambda c: (c[0] != ">", c))
    return ",".join(clauses) or "*"


def _stale_pins(contract: Contract, wanted: Iterable[MetadataPin]) -> set[str]:
    """Return the contract's pins that the metadata no longer has; a pin behind an extra stays."""
    named = {f"package.{pin.name}" for pin in wanted}
    return {n.key for n in contract.needs if n.key.startswith("package.") and n.key not in named}
