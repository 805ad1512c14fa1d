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

from gpuready.contracts.sharing import between, pins
from gpuready.model import Fact, Finding, Need, Step
from gpuready.rules import cards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpuready.contracts.sharing import Clash, Pins
    from gpuready.model import Contract, Facts

CODE = "PKG008"
SEVERITY = "error"
READS = ("contract.*", "package.*", "python.version")
SIGNS = (
    {
        "says": "because these package versions have conflicting dependencies",
        "as": "clue",
        "cause": "missing-python-package",
    },
)
CONTRACT = {"needs": ({"key": "package.transformers", "want": "==4.51.3", "cite": "requirements.txt:19"},)}
BROKEN = {
    "package.transformers": "5.20.1",
    "contract.others": {"axolotl 0.21": {"transformers": [{"want": "==5.20.1", "cite": "METADATA:40"}]}},
}
MOST = 3
HEALTHY = {"contract.others": {"axolotl 0.21": {"transformers": [{"want": ">=4.50", "cite": "METADATA:40"}]}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "contract.others" not in facts:
        return None  # no other framework was requested
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
    """Return what is installed or, if unknown, what the other framework would install."""
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
    """Return the value of ``contract.others`` for one of several contracts: the pins of the others, by name."""
    return {one.name: pins(one) for one in every if one.name != contract.name}


def key(package: str) -> str:
    """Return the fact key that pins of this name refer to."""
    return package if "." in package else f"package.{package}"
