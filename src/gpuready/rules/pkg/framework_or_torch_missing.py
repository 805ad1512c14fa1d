"""A package that the framework cannot do without is not installed.

The framework itself, torch, or another package that the contract requires is absent from the environment
that was looked at. Look first whether it is the right one: ``gpuready check --python PATH`` names another, and
a virtual environment that is not activated is the usual reason.

Installing the framework brings most of what it needs; torch is the exception worth a thought, because some
frameworks leave it to you, and because its build must fit the driver and the GPUs; the fix
names one that does. Packages that the contract only recommends are named in a line of information.
"""

from __future__ import annotations

from gpuready.model import Finding, Need
from gpuready.rules import cards, job, needs, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Step

CODE = "PKG002"
SEVERITY = "error"
READS = (*remedy.READS, "python.duplicates")
SIGNS = (
    {
        "says": "None of PyTorch, TensorFlow >= 2.0, or Flax have been found",
        "as": "clue",
        "cause": "missing-python-package",
    },
    {
        "says": "requires the PyTorch library but it was not found in your environment",
        "in": "exception",
        "cause": "missing-python-package",
    },
)
CONTRACT = {
    "distribution": "demo",
    "needs": ({"key": "package.torch", "want": ">=2.2", "cite": "setup.py:9"},),
}
BROKEN = {"package.demo": None, "package.torch": None, "python.path": "/venv/bin/python"}
HEALTHY = {"package.demo": "1.0", "package.torch": "2.8.0+cu128", "python.path": "/venv/bin/python"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    own, required = _own(contract), _asked(facts, contract, "required")
    absent = [n for n in [*own, *needs.in_force(facts, required)] if _is_absent(facts, n.key)]
    if not absent:
        return _recommended(facts, contract)
    shown = _worth_showing(contract, absent)
    names = list(dict.fromkeys(_package(need) for need in shown))
    rest = len({need.key for need in absent}) - len(names)
    return Finding(
        CODE,
        SEVERITY,
        f"not installed: {cards.listed(names)}" + (f", and {rest} more that it needs" if rest else ""),
        found=tuple(facts.fact(f"package.{name}") for name in names),
        needs=tuple(shown),
        so=f"{contract.framework} does not start, or fails where it imports them",
        fix=_ways_out(facts, contract, absent),
    )


def _is_absent(facts: Facts, key: str) -> bool:
    """Return whether a package is absent, also under the name it has on another platform."""
    twice = facts.known("python.duplicates") or ()
    if any(row["name"] == key[8:] for row in twice) or facts.value(key) is not None:
        return False
    if key != "package.triton":
        return True
    from gpuready.rules.pkg.triton_differs_from_torch import OTHER_NAMES

    return not any(facts.known(f"package.{name}") for name in OTHER_NAMES)


def _own(contract: Contract) -> list[Need]:
    """Return the framework's distribution, and torch, which every GPU contract needs even if it does not say so."""
    torch = "torch" if cards.platforms(contract) else ""
    names = [name for name in (contract.distribution, torch) if name]
    stated = {need.key for need in contract.needs if need.level == "required" and not need.when}
    return [Need(f"package.{n}", "*", cite=contract.name) for n in names if f"package.{n}" not in stated]


def _asked(facts: Facts, contract: Contract, level: str) -> list[Need]:
    # PKG005 reports what a device map needs.
    told = {"package.accelerate"} if job.maps_devices(facts) else set()
    return [n for n in contract.wants("package.*") if n.level == level and n.key not in told]


def _worth_showing(contract: Contract, absent: list[Need]) -> list[Need]:
    """Omit dependencies if the framework itself is missing; keep torch, which comes in many builds."""
    headline = [n for n in absent if n.key in (f"package.{contract.distribution}", "package.torch")]
    return headline if any(n.key != "package.torch" for n in headline) else absent


def _package(need: Need) -> str:
    return need.key.removeprefix("package.")


def _ways_out(facts: Facts, contract: Contract, absent: list[Need]) -> tuple[Step, ...]:
    """Install the framework by version, which brings the rest; follow the contract if no index has it."""
    wants: dict[str, str] = {}
    for need in absent:
        name = _package(need)
        wants[name] = ",".join(w for w in (wants.get(name, "*"), need.want) if w != "*") or "*"
    if contract.distribution not in wants:
        return (remedy.packages(facts, contract, wants),)
    own = [step for step in contract.steps if "install" in step.run]
    if own and not any(_names(step, contract.distribution) for step in own):
        return tuple(own)
    pin = f"=={contract.version}.*" if contract.version.count(".") < 2 else f"=={contract.version}"
    torch = {"torch": wants["torch"]} if "torch" in wants else {}
    return (remedy.packages(facts, contract, torch | {contract.distribution: pin}),)


def _names(step: Step, distribution: str) -> bool:
    for word in step.run:
        name = word
        for mark in "[=<>~! ":
            name = name.partition(mark)[0]
        if name == distribution:
            return True
    return False


def _recommended(facts: Facts, contract: Contract) -> Finding | None:
    asked = _asked(facts, contract, "recommended")
    absent = [n for n in needs.in_force(facts, asked) if needs.glimpse(facts, n.key) is None]
    if not absent:
        return None
    names = list(dict.fromkeys(_package(need) for need in absent))
    return Finding(
        CODE,
        "info",
        f"recommended by {contract.framework} and not installed: {cards.listed(names)}",
        found=tuple(facts.fact(need.key) for need in absent),
        needs=tuple(absent),
        so="what uses them is slower or not there",
        fix=(remedy.packages(facts, contract, {_package(need): need.want for need in absent}),),
    )
