"""Which pins are compatible: within one contract, and of several that are to share an environment."""

from collections.abc import Iterator, Mapping

from gpuready.catalog import images
from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Requirement, versions

Pins = Mapping[str, list[dict[str, str]]]
PinClash = tuple[str, dict[str, str], dict[str, str]]


def required_pins(contract: Contract) -> dict[str, list[dict[str, str]]]:
    """Return what a contract always requires of packages and of Python, with citations."""
    found: dict[str, list[dict[str, str]]] = {}
    for need in (*contract.requirements_for("package.*"), *contract.requirements_for("python.version")):
        if need.level == "required" and not need.when and need.want != "*":
            name = need.key.removeprefix("package.")
            found.setdefault(name, []).append({"want": need.want, "cite": need.cite})
    return found


def conflicts_between(mine: Pins, theirs: Pins) -> Iterator[PinClash]:
    """Yield the packages on which two sets of pins contradict each other, with the two pins."""
    for package in (name for name in mine if name in theirs):
        pairs = ((a, b) for a in mine[package] for b in theirs[package])
        clash = next(((a, b) for a, b in pairs if not can_hold_together(package, a["want"], b["want"])), None)
        if clash:
            yield package, *clash


def contradicting_needs(contract: Contract) -> list[list[tuple[Requirement, Requirement]]]:
    """Return for each package the pairs of required needs that no version satisfies together.

    The pair with the fewest conditions comes first: an unconditional one holds on any machine.
    """
    needs_by_key: dict[str, list[Requirement]] = {}
    for need in (*contract.requirements_for("package.*"), *contract.requirements_for("python.version")):
        if need.level == "required" and need.want != "*":
            needs_by_key.setdefault(need.key, []).append(need)
    found = []
    for name, rows in needs_by_key.items():
        bare = name.removeprefix("package.")
        pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]]
        contradicting = [pair for pair in pairs if not can_hold_together(bare, pair[0].want, pair[1].want)]
        if contradicting:
            found.append(sorted(contradicting, key=lambda pair: len(pair[0].when + pair[1].when)))
    return found


def is_installed_by_image_alone(contract: Contract, arch: object = None) -> bool:
    """Return whether no resolver accepts a contract's pins on any machine, and its project has an image with them.

    ``arch``: that of the machine, where it is known; all of these images are for x86_64.
    """
    if arch not in (None, "x86_64"):
        return False
    if images.find_framework_image(contract.framework, contract.variant) is None:
        return False
    return any(not a.when and not b.when for pairs in contradicting_needs(contract) for a, b in pairs)


def can_hold_together(package: str, a: str, b: str) -> bool:
    """Return whether some version satisfies both. What is no version specifier contradicts nothing."""
    try:
        return any(
            versions.satisfies_specifier(v, a) and versions.satisfies_specifier(v, b)
            for v in _candidate_versions(package, a, b)
        )
    except ValueError:
        return True


def _next_release(version: str) -> str:
    """Return the first release after all of a line: ``3.9`` after ``3.8.*``."""
    *parts, last = versions.parse_release(version)
    return ".".join(map(str, [*parts, last + 1]))


def _candidate_versions(package: str, *wants: str) -> list[str]:
    """Return enough versions to decide: every bound, the next above each, and the lowest."""
    clauses = [c.strip() for want in wants for choice in want.split("|") for c in choice.split(",")]
    bounds = [versions.split_clause(clause)[1].removesuffix(".*") for clause in clauses if clause]
    above = [f"{v}.0.0.1" for v in bounds if versions.parse_plain_release(v) is not None]
    left_out = [versions.split_clause(clause)[1].removesuffix(".*") for clause in clauses if clause.endswith(".*")]
    tried = ["0", *bounds, *above, *(_next_release(v) for v in left_out)]
    if package != "torch":
        return tried
    first, last = catalogue.list_torch_releases()[0], catalogue.newest_torch()
    unknown = [v for v in tried if versions.compare_versions(v, first) < 0 or versions.compare_versions(v, last) > 0]
    return [*catalogue.list_torch_releases(), *unknown]
