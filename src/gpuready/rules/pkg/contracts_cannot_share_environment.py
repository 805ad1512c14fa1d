"""The frameworks that were asked for cannot share one environment.

## What it checks
Whether the package pins of the requested frameworks have a version in common. Only unconditional pins are
compared, and for torch only releases that exist. The finding names the first conflicts and counts the rest.

## Why it matters
An installer refuses both together. Installed one after the other, the second changes the packages of the
first, which then fails at import or during a run.

## How to fix
Give each framework its own environment. GPUs and drivers can be shared.

## References
- The frameworks' requirements, with their citations in the finding
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuready.contracts.pin_conflicts import PinClash, Pins, conflicts_between, required_pins
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import visible_gpus

CODE = "PKG008"
SEVERITY = "error"
READS = ("requirements.*", "package.*", "python.version")
REQUIRED_FACTS = ("requirements.others",)
CONTRACT = {"needs": ({"key": "package.transformers", "want": "==4.51.3", "cite": "requirements.txt:19"},)}
BROKEN = {
    "package.transformers": "5.20.1",
    "requirements.others": {"axolotl 0.21": {"transformers": [{"want": "==5.20.1", "cite": "METADATA:40"}]}},
}
MAX_SHOWN = 3
HEALTHY = {"requirements.others": {"axolotl 0.21": {"transformers": [{"want": ">=4.50", "cite": "METADATA:40"}]}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "requirements.others" not in facts:
        return None  # no other framework was requested
    own_pins = required_pins(contract)
    other_pins: Mapping[str, Pins] = facts.value("requirements.others") or {}
    clashes = [(name, clash) for name, theirs in other_pins.items() for clash in conflicts_between(own_pins, theirs)]
    if not clashes:
        return None
    frameworks = list(dict.fromkeys(name for name, _ in clashes))
    packages = list(dict.fromkeys(clash[0] for _, clash in clashes))
    displayed = [(name, clash) for name, clash in clashes if clash[0] in packages[:MAX_SHOWN]][:MAX_SHOWN]
    return make_finding(
        f"no environment can have both {contract.name} and {visible_gpus.join_names(frameworks)}: "
        f"{visible_gpus.join_names(packages, MAX_SHOWN)}",
        found=tuple(_conflicting_fact(facts, name, clash) for name, clash in displayed),
        needs=tuple(need for name, clash in displayed for need in _conflicting_needs(facts, name, clash)),
        so="the framework installed second breaks the first",
        fix=(FixStep("give each framework its own environment", safety="elsewhere"),),
    )


def _conflicting_fact(facts: Facts, theirs: str, clash: PinClash) -> Fact:
    """Return what is installed or, if unknown, what the other framework would install."""
    package, _, pin = clash
    if facts.value_if_known(pinned_fact_key(package)) is not None:
        return facts.fact(pinned_fact_key(package))
    return Fact(pinned_fact_key(package), f"{theirs}: {pin['want']}", pin["cite"], "stated")


def _conflicting_needs(facts: Facts, theirs: str, clash: PinClash) -> Iterator[Requirement]:
    package, a, b = clash
    yield Requirement(pinned_fact_key(package), a["want"], cite=a["cite"])
    if facts.value_if_known(pinned_fact_key(package)) is not None:
        yield Requirement(pinned_fact_key(package), b["want"], cite=f"{theirs}: {b['cite']}")


def pins_of_others(contract: Contract, contracts: Iterable[Contract]) -> dict[str, Any]:
    """Return the value of ``requirements.others`` for one of several contracts: the pins of the others, by name."""
    return {one.name: required_pins(one) for one in contracts if one.name != contract.name}


def pinned_fact_key(package: str) -> str:
    """Return the fact key that pins of this name refer to."""
    return package if "." in package else f"package.{package}"
