"""The needs of a contract on one fact: which apply, which are not met, and how much that weighs.

A required need that nobody can judge leaves its rule undecided, unless another one is seen to fail: what is
wrong does not hide behind what is dark. A lesser need must not leave it undecided: the rule is an error by
name, and a recommendation that cannot be seen would then hold back the whole verdict.
"""

from __future__ import annotations

from gpuready.contracts import want as wanting
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Facts, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.model import Contract, Need

    Read = Callable[[Facts, Need], Any]

READS = ("job.*", "gpu.*", "package.*", "os.*", "platform.name", "python.version", "driver.version")
"""What the conditions of needs may ask."""

SEVERITIES = {"required": "error", "recommended": "warning", "optional": "info"}


def own_value(facts: Facts, need: Need) -> Any:
    """The value of the fact that a need is about."""
    return facts.value(need.key)


def unmet(facts: Facts, needs: Iterable[Need], read: Read = own_value) -> list[Need]:
    """The needs that apply and are not met, the gravest first."""
    failed, dark = [], None
    for need in _judgeable(facts, needs, read):
        try:
            failed += [need] if _fails(facts, need, read) else []
        except Unknown as unknown:
            dark = dark or unknown
    # What is only not stated hides nothing that was found; what could not be seen may be worse than that.
    if dark is not None and severity(failed) != "error" and not (failed and dark.fact.gap == NOT_STATED):
        raise dark
    return failed


def in_force(facts: Facts, needs: Iterable[Need]) -> list[Need]:
    """The needs whose condition holds, the gravest first."""
    return [n for n in _judgeable(facts, needs, _nothing) if _fails(facts, n, _nothing)]


def _judgeable(facts: Facts, needs: Iterable[Need], read: Read) -> list[Need]:
    """The needs without the lesser ones that nobody can judge, the gravest first."""
    unwatched = facts.unwatched()
    asked = sorted(needs, key=lambda need: list(SEVERITIES).index(need.level))
    return [need for need in asked if not _dim(unwatched, need, read)]


def _nothing(facts: Facts, need: Need) -> None:
    """What meets no need: then each one fails whose condition holds."""


def glimpse(facts: Facts, key: str) -> Any:
    """A value where it is known, without having read it: who only informs must not claim to have looked."""
    fact = Facts.fact(facts, key)
    return None if fact.gap else fact.value


def surely(facts: Facts, need: Need) -> bool:
    """Whether a condition is seen to hold: for advice, which is better short than withheld."""
    try:
        return conditions.applies(need.when, facts)
    except Unknown:
        return False


def _dim(unwatched: Facts, need: Need, read: Read) -> bool:
    """Whether a lesser need cannot be judged. Facts that are asked for here do not count as read."""
    if need.level == "required":
        return False
    try:
        _fails(unwatched, need, read)
    except Unknown as unknown:
        return unknown.fact.gap != NOT_STATED
    return False


def _fails(facts: Facts, need: Need, read: Read) -> bool:
    return conditions.applies(need.when, facts) and not holds(facts, need, read(facts, need))


def stated(facts: Facts, contract: Contract, key: str) -> tuple[Need, ...]:
    """What a contract says of one fact here, to be shown as it stands."""
    return tuple(need for need in contract.wants(key) if surely(facts, need))


def holds(facts: Facts, need: Need, value: Any) -> bool:
    """Whether a value meets a need. A value that the want cannot be asked of is unknown, not wrong."""
    try:
        return wanting.holds(need.want, value)
    except ValueError as bad:
        raise Unknown(facts.fact(need.key).but(value=None, gap=str(bad))) from None


def severity(needs: Iterable[Need]) -> str:
    """What the gravest of some unmet needs weighs."""
    weights = {SEVERITIES[need.level] for need in needs}
    return next((s for s in SEVERITIES.values() if s in weights), "info")


def words(need: Need) -> frozenset[str]:
    """What the job must ask for to bring a need into force: ``wants=bf16|fp16`` -> bf16, fp16."""
    found: set[str] = set()
    for atom in need.when.split(","):
        name, _, asked = atom.partition("=")
        if name.strip() == "wants":
            found.update(word.strip() for word in asked.split("|"))
    return frozenset(found)
