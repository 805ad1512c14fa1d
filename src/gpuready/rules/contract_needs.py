"""The needs of a contract on one fact: which apply, which are not met, and how severe that is.

A required need that cannot be judged leaves its rule undecided, unless another need is known to fail: a known problem
is reported even if something else is unknown. A lesser need must not leave the rule undecided: the rule has severity
error, so an unknown recommendation would make the whole verdict undecided.
"""

from collections.abc import Callable, Iterable
from typing import Any

from gpuready.contracts import want as wanting
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Contract, Facts, Requirement, UnknownFactError

NeedReader = Callable[[Facts, Requirement], Any]


READS = ("job.*", "gpu.*", "package.*", "os.*", "platform.name", "python.version", "driver.version")
"""Facts that the conditions of needs may read."""

SEVERITIES = {"required": "error", "recommended": "warning", "optional": "info"}


def read_need_value(facts: Facts, need: Requirement) -> Any:
    return facts.value(need.key)


def unmet_needs(facts: Facts, needs: Iterable[Requirement], read: NeedReader = read_need_value) -> list[Requirement]:
    """Return the needs that apply and are not met, most severe first."""
    failed, undecided = [], None
    for need in _judgeable_needs(facts, needs, read):
        try:
            failed += [need] if _need_fails(facts, need, read) else []
        except UnknownFactError as unknown:
            undecided = undecided or unknown
    # A fact that is merely not stated does not outweigh a failure; one that could not be read may be worse.
    if (
        undecided is not None
        and worst_need_severity(failed) != "error"
        and not (failed and undecided.fact.gap == NOT_STATED)
    ):
        raise undecided
    return failed


def needs_in_force(facts: Facts, needs: Iterable[Requirement]) -> list[Requirement]:
    """Return the needs whose condition holds, most severe first."""
    return [n for n in _judgeable_needs(facts, needs, _read_no_value) if _need_fails(facts, n, _read_no_value)]


def _judgeable_needs(facts: Facts, needs: Iterable[Requirement], read: NeedReader) -> list[Requirement]:
    """Return the needs without the lesser ones that cannot be judged, most severe first."""
    unwatched = facts.without_tracking()
    ordered = sorted(needs, key=lambda need: list(SEVERITIES).index(need.level))
    return [need for need in ordered if not _cannot_judge(unwatched, need, read)]


def _read_no_value(facts: Facts, need: Requirement) -> None:
    """Return None, which meets no need, so that every need whose condition holds fails."""


def peek_fact(facts: Facts, key: str) -> Any:
    """Return a value if known, without recording it as read: information must not claim to have checked it."""
    fact = Facts.fact(facts, key)
    return None if fact.gap else fact.value


def _cannot_judge(unwatched: Facts, need: Requirement, read: NeedReader) -> bool:
    """Return whether a lesser need cannot be judged, without recording facts as read."""
    if need.level == "required":
        return False
    try:
        _need_fails(unwatched, need, read)
    except UnknownFactError as unknown:
        return unknown.fact.gap != NOT_STATED
    return False


def _need_fails(facts: Facts, need: Requirement, read: NeedReader) -> bool:
    return conditions.condition_applies(need.when, facts) and not value_meets_need(facts, need, read(facts, need))


def stated_needs(facts: Facts, contract: Contract, key: str) -> tuple[Requirement, ...]:
    """Return what a contract says about one fact here, unchanged."""
    return tuple(need for need in contract.requirements_for(key) if conditions.certainly_applies(need.when, facts))


def value_meets_need(facts: Facts, need: Requirement, value: Any) -> bool:
    """Return whether a value meets a need; raise Unknown if the want cannot be applied to the value."""
    try:
        return wanting.value_meets_want(need.want, value)
    except ValueError as bad:
        raise UnknownFactError(facts.fact(need.key).replace(value=None, gap=str(bad))) from None


def worst_need_severity(needs: Iterable[Requirement]) -> str:
    """Return the severity of the gravest of these unmet needs."""
    weights = {SEVERITIES[need.level] for need in needs}
    return next((s for s in SEVERITIES.values() if s in weights), "info")


def wants_of_need(need: Requirement) -> frozenset[str]:
    """Return the wants that make a need apply: ``wants=bf16|fp16`` -> bf16, fp16."""
    collected: set[str] = set()
    for atom in need.when.split(","):
        name, _, values = atom.partition("=")
        if name.strip() == "wants":
            collected.update(word.strip() for word in values.split("|"))
    return frozenset(collected)
