"""Find the smallest sets of limits that nothing satisfies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuready.model import Finding
from gpuready.model.plan import PlanConflict
from gpuready.plan.platform import Limit


def smallest_failing_set(masks: Iterable[int], count: int) -> tuple[int, ...]:
    """Return the smallest set of limits (by number) of which every choice fails at least one; the first such set.

    ``masks`` has a bit for each limit that a choice fails. The set is minimal: without any one of them some choice
    would remain. Empty if some choice fails nothing.
    """
    wanted = _minimal_masks(set(masks))
    if not wanted or 0 in wanted:
        return ()
    for size in range(1, count + 1):
        hitting_set = _find_hitting_set(wanted, (), size, count)
        if hitting_set is not None:
            return hitting_set
    return ()


def _minimal_masks(masks: set[int]) -> list[int]:
    """Drop masks that contain another one: a choice failing that one also fails these."""
    kept: list[int] = []
    for mask in sorted(masks, key=lambda m: (bin(m).count("1"), m)):
        if not any(one & mask == one for one in kept):
            kept.append(mask)
    return kept


def _find_hitting_set(left: list[int], taken: tuple[int, ...], size: int, count: int) -> tuple[int, ...] | None:
    """Return at most ``size`` more limits that hit every remaining mask; branches on the narrowest mask."""
    if not left:
        return tuple(sorted(taken))
    if size == 0:
        return None
    narrow = left[0]
    for number in (n for n in range(count) if narrow >> n & 1):
        hitting_set = _find_hitting_set([m for m in left if not m >> number & 1], (*taken, number), size - 1, count)
        if hitting_set is not None:
            return hitting_set
    return None


def describe_conflict(limits: Sequence[Limit]) -> PlanConflict:
    """Describe a set of limits with their facts and needs."""
    facts = tuple({fact.key: fact for limit in limits for fact in limit.facts}.values())
    needs = tuple(dict.fromkeys(need for limit in limits for need in limit.needs))
    return PlanConflict("; ".join(limit.says for limit in limits), facts, needs)


def describe_objections(findings: Sequence[Finding]) -> PlanConflict:
    """Describe what a check holds against the environment of a plan."""
    facts = {fact.key: fact for finding in findings for fact in finding.found}
    needs = dict.fromkeys(need for finding in findings for need in finding.needs)
    return PlanConflict("; ".join(f"{f.says} ({f.code})" for f in findings), tuple(facts.values()), tuple(needs))
