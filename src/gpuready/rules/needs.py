"""The needs of a contract on one fact: which apply, which are not met, and how severe that is.

A required need that cannot be judged leaves its rule undecided, unless another need is known to fail: a known problem
is reported even if something else is unknown. A lesser need must not leave the rule undecided: the rule has severity
error, so an unknown recommendation would make the whole verdict undecided.
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
"""Facts that the conditions of needs may read."""

SEVERITIES = {"required": "error", "recommended": "warning", "optional": "info"}


def own_value(facts: Facts, need: Need) -> Any:
    return facts.value(need.key)


def unmet(facts: Facts, needs: Iterable[Need], read: Read = own_value) -> list[Need]:
    """Return the needs that apply and are not met, most severe first."""
    failed, dark = [], None
    for need in _judgeable(facts, needs, read):
        try:
            failed += [need] if _fails(facts, need, read) else []
        except Unknown as unknown:
            dark = dark or unknown
    # A fact that is merely not stated does not outweigh a failure; one that could not be read may be worse.
    if dark is not None and severity(failed) != "error" and not (failed and dark.fact.gap == NOT_STATED):
        raise dark
    return failed


def in_force(facts: Facts, needs: Iterable[Need]) -> list[Need]:
    """Return the needs whose condition holds, most severe first."""
    return [n for n in _judgeable(facts, needs, _nothing) if _fails(facts, n, _nothing)]


def _judgeable(facts: Facts, needs: Iterable[Need], read: Read) -> list[Need]:
    """Return the needs without the lesser ones that cannot be judged, most severe first."""
    unwatched = facts.unwatched()
    asked = sorted(needs, key=lambda need: list(SEVERITIES).index(need.level))
    return [need for need in asked if not _dim(unwatched, need, read)]


def _nothing(facts: Facts, need: Need) -> None:
    """Return None, which meets no need, so that every need whose condition holds fails."""


def glimpse(facts: Facts, key: str) -> Any:
    """Return a value if known, without recording it as read: information must not claim to have checked it."""
    fact = Facts.fact(facts, key)
    return None if fact.gap else fact.value


def surely(facts: Facts, need: Need) -> bool:
    """Return whether a condition is known to hold. For advice, which is better incomplete than omitted."""
    try:
        return conditions.applies(need.when, facts)
    except Unknown:
        return False


def _dim(unwatched: Facts, need: Need, read: Read) -> bool:
    """Return whether a lesser need cannot be judged, without recording facts as read."""
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
    """Return what a contract says about one fact here, unchanged."""
    return tuple(need for need in contract.wants(key) if surely(facts, need))


def holds(facts: Facts, need: Need, value: Any) -> bool:
    """Return whether a value meets a need; raise Unknown if the want cannot be applied to the value."""
    try:
        return wanting.holds(need.want, value)
    except ValueError as bad:
        raise Unknown(facts.fact(need.key).but(value=None, gap=str(bad))) from None


def severity(needs: Iterable[Need]) -> str:
    """Return the severity of the gravest of these unmet needs."""
    weights = {SEVERITIES[need.level] for need in needs}
    return next((s for s in SEVERITIES.values() if s in weights), "info")


def words(need: Need) -> frozenset[str]:
    """Return the wants that make a need apply: ``wants=bf16|fp16`` -> bf16, fp16."""
    found: set[str] = set()
    for atom in need.when.split(","):
        name, _, asked = atom.partition("=")
        if name.strip() == "wants":
            found.update(word.strip() for word in asked.split("|"))
    return frozenset(found)
