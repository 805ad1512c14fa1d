"""The frameworks that were asked for cannot share one environment.

Each framework pins packages, and the pins of two may have no version in common: ColossalAI takes torch up
to 2.5.1 and transformers 4.51.3, Axolotl much newer ones of both. An installer that is given both refuses,
or, asked one after the other, changes the packages below the first to please the second; the first then
fails at import or in the middle of a run.

Only pins that always hold are compared, not those for a feature or a machine, and of torch only releases
that exist. The error names both pins with who states them, for the first packages, and counts the rest. Give each framework an environment of its own;
GPUs and drivers can be shared.
"""

from __future__ import annotations

from tarmac import versions
from tarmac.catalog import torch as catalogue
from tarmac.model import Fact, Finding, Need, Step
from tarmac.rules import cards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from tarmac.model import Contract, Facts

    Pins = Mapping[str, list[dict[str, str]]]
    Clash = tuple[str, dict[str, str], dict[str, str]]

CODE = "PKG008"
SEVERITY = "error"
READS = ("contract.*", "package.*", "python.version")
SIGNS = ("because these package versions have conflicting dependencies",)
CONTRACT = {"needs": ({"key": "package.transformers", "want": "==4.51.3", "cite": "requirements.txt:19"},)}
BROKEN = {
    "package.transformers": "5.20.1",
    "contract.others": {"axolotl 0.21": {"transformers": [{"want": "==5.20.1", "cite": "METADATA:40"}]}},
}
MOST = 3
HEALTHY = {"contract.others": {"axolotl 0.21": {"transformers": [{"want": ">=4.50", "cite": "METADATA:40"}]}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "contract.others" not in facts:
        return None  # nothing else was asked for
    mine = pins(contract)
    rest: Mapping[str, Pins] = facts.value("contract.others") or {}
    found = [(name, clash) for name, theirs in rest.items() for clash in between(mine, theirs)]
    if not found:
        return None
    frameworks = list(dict.fromkeys(name for name, _ in found))
    packages = list(dict.fromkeys(clash[0] for _, clash in found))
    shown = [(name, clash) for name, clash in found if clash[0] in packages[:MOST]][:MOST]
    return Finding(
        CODE,
        SEVERITY,
        f"no environment holds both {contract.name} and {cards.listed(frameworks)}: "
        f"{cards.listed(packages, MOST)}",
        found=tuple(_found(facts, name, clash) for name, clash in shown),
        needs=tuple(need for name, clash in shown for need in _needs(facts, name, clash)),
        so="whichever is installed second breaks the first",
        fix=(Step("give each framework an environment of its own"),),
    )


def _found(facts: Facts, theirs: str, clash: Clash) -> Fact:
    """What is installed, or, where that is not known, what the other framework would install."""
    package, _, pin = clash
    if facts.known(key(package)) is not None:
        return facts.fact(key(package))
    return Fact(key(package), f"{theirs}: {pin['want']}", pin["cite"], "stated")


def _needs(facts: Facts, theirs: str, clash: Clash) -> Iterator[Need]:
    package, a, b = clash
    yield Need(key(package), a["want"], cite=a["cite"])
    if facts.known(key(package)) is not None:
        yield Need(key(package), b["want"], cite=f"{theirs}: {b['cite']}")


def others(contract: Contract, every: Iterable[Contract]) -> dict[str, Any]:
    """The value of ``contract.others`` for one of several contracts: the pins of the rest, by name."""
    return {one.name: pins(one) for one in every if one.name != contract.name}


def pins(contract: Contract) -> dict[str, list[dict[str, str]]]:
    """What a contract always requires of packages and of Python, with who says so."""
    found: dict[str, list[dict[str, str]]] = {}
    for need in (*contract.wants("package.*"), *contract.wants("python.version")):
        if need.level == "required" and not need.when and need.want != "*":
            name = need.key.removeprefix("package.")
            found.setdefault(name, []).append({"want": need.want, "cite": need.cite})
    return found


def between(mine: Pins, theirs: Pins) -> Iterator[Clash]:
    """The packages on which two sets of pins contradict each other, with the two pins that do."""
    for package in (name for name in mine if name in theirs):
        pairs = ((a, b) for a in mine[package] for b in theirs[package])
        clash = next(((a, b) for a, b in pairs if not together(package, a["want"], b["want"])), None)
        if clash:
            yield package, *clash


def clashes(contracts: Iterable[Contract]) -> list[tuple[str, str, Clash]]:
    """Every contradiction between these contracts: two names, and the package with its two pins."""
    rest, found = list(contracts), []
    while rest:
        one = rest.pop(0)
        for other in rest:
            found += [(one.name, other.name, clash) for clash in between(pins(one), pins(other))]
    return found


def together(package: str, a: str, b: str) -> bool:
    """Whether some version is inside both. What is no specifier of versions contradicts nothing."""
    try:
        return any(versions.satisfies(v, a) and versions.satisfies(v, b) for v in _tried(package, a, b))
    except ValueError:
        return True


def _tried(package: str, *wants: str) -> list[str]:
    """Versions of which one is inside whenever any is: every bound, the next above each, and the lowest."""
    clauses = [c.strip() for want in wants for choice in want.split("|") for c in choice.split(",")]
    bounds = [versions.split_clause(clause)[1].removesuffix(".*") for clause in clauses if clause]
    above = [f"{v}.0.0.1" for v in bounds if versions.plain(v) is not None]
    tried = ["0", *bounds, *above]
    if package != "torch":
        return tried
    first, last = catalogue.releases()[0], catalogue.newest()
    unknown = [v for v in tried if versions.compare(v, first) < 0 or versions.compare(v, last) > 0]
    return [*catalogue.releases(), *unknown]


def key(package: str) -> str:
    """The key of the fact that pins of this name are about."""
    return package if "." in package else f"package.{package}"
