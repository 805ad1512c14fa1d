"""Which pins are compatible: within one contract, and of several that are to share an environment."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import torch as catalogue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuready.model import Contract, Need

    Pins = Mapping[str, list[dict[str, str]]]
    Clash = tuple[str, dict[str, str], dict[str, str]]


def pins(contract: Contract) -> dict[str, list[dict[str, str]]]:
    """Return what a contract always requires of packages and of Python, with citations."""
    found: dict[str, list[dict[str, str]]] = {}
    for need in (*contract.wants("package.*"), *contract.wants("python.version")):
        if need.level == "required" and not need.when and need.want != "*":
            name = need.key.removeprefix("package.")
            found.setdefault(name, []).append({"want": need.want, "cite": need.cite})
    return found


def between(mine: Pins, theirs: Pins) -> Iterator[Clash]:
    """Yield the packages on which two sets of pins contradict each other, with the two pins."""
    for package in (name for name in mine if name in theirs):
        pairs = ((a, b) for a in mine[package] for b in theirs[package])
        clash = next(((a, b) for a, b in pairs if not together(package, a["want"], b["want"])), None)
        if clash:
            yield package, *clash


def apart(contract: Contract) -> list[list[tuple[Need, Need]]]:
    """Return for each package the pairs of required needs that no version satisfies together.

    The pair with the fewest conditions comes first: an unconditional one holds on any machine.
    """
    asked: dict[str, list[Need]] = {}
    for need in (*contract.wants("package.*"), *contract.wants("python.version")):
        if need.level == "required" and need.want != "*":
            asked.setdefault(need.key, []).append(need)
    found = []
    for name, rows in asked.items():
        bare = name.removeprefix("package.")
        pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]]
        contrary = [pair for pair in pairs if not together(bare, pair[0].want, pair[1].want)]
        if contrary:
            found.append(sorted(contrary, key=lambda pair: len(pair[0].when + pair[1].when)))
    return found


def together(package: str, a: str, b: str) -> bool:
    """Return whether some version satisfies both. What is no version specifier contradicts nothing."""
    try:
        return any(versions.satisfies(v, a) and versions.satisfies(v, b) for v in _tried(package, a, b))
    except ValueError:
        return True


def _tried(package: str, *wants: str) -> list[str]:
    """Return enough versions to decide: every bound, the next above each, and the lowest."""
    clauses = [c.strip() for want in wants for choice in want.split("|") for c in choice.split(",")]
    bounds = [versions.split_clause(clause)[1].removesuffix(".*") for clause in clauses if clause]
    above = [f"{v}.0.0.1" for v in bounds if versions.plain(v) is not None]
    tried = ["0", *bounds, *above]
    if package != "torch":
        return tried
    first, last = catalogue.releases()[0], catalogue.newest()
    unknown = [v for v in tried if versions.compare(v, first) < 0 or versions.compare(v, last) > 0]
    return [*catalogue.releases(), *unknown]
