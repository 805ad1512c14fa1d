"""Find the smallest sets of limits that nothing satisfies."""

from __future__ import annotations

from gpuready.planned import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuready.plan.ground import Limit


def smallest(masks: Iterable[int], count: int) -> tuple[int, ...]:
    """Return the smallest set of limits (by number) of which every choice fails at least one; the first such set.

    ``masks`` has a bit for each limit that a choice fails. The set is minimal: without any one of them some choice
    would remain. Empty if some choice fails nothing.
    """
    wanted = _least(set(masks))
    if not wanted or 0 in wanted:
        return ()
    for size in range(1, count + 1):
        found = _hit(wanted, (), size, count)
        if found is not None:
            return found
    return ()


def _least(masks: set[int]) -> list[int]:
    """Drop masks that contain another one: a choice failing that one also fails these."""
    kept: list[int] = []
    for mask in sorted(masks, key=lambda m: (bin(m).count("1"), m)):
        if not any(one & mask == one for one in kept):
            kept.append(mask)
    return kept


def _hit(left: list[int], taken: tuple[int, ...], size: int, count: int) -> tuple[int, ...] | None:
    """Return at most ``size`` more limits that hit every remaining mask; branches on the narrowest mask."""
    if not left:
        return tuple(sorted(taken))
    if size == 0:
        return None
    narrow = left[0]
    for number in (n for n in range(count) if narrow >> n & 1):
        found = _hit([m for m in left if not m >> number & 1], (*taken, number), size - 1, count)
        if found is not None:
            return found
    return None


def told(limits: Sequence[Limit]) -> Conflict:
    """Describe a set of limits with their facts and needs."""
    facts = tuple({fact.key: fact for limit in limits for fact in limit.facts}.values())
    needs = tuple(dict.fromkeys(need for limit in limits for need in limit.needs))
    if len(limits) == 1:
        return Conflict(limits[0].says, facts, needs)
    return Conflict("these cannot hold together: " + "; ".join(limit.says for limit in limits), facts, needs)
