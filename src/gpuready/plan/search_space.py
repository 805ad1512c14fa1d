"""All choices of one contract on one machine, and the limits that each one fails."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from gpuready.catalog import catalog_date
from gpuready.catalog.torch import TorchBuild, find_torch_release
from gpuready.model import Contract, Facts, Finding, versions
from gpuready.model.plan import KernelPlan, PlanConflict
from gpuready.plan.candidates import PYTHONS, list_selectable_builds
from gpuready.plan.limits import list_limits, no_build_limit
from gpuready.plan.platform import Limit, PlanPlatform, PlanRequest, plan_device


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


Choice = tuple[TorchBuild, str]
OLD_DAYS = 365
"""A release that was this old when the catalogue was made is planned with the packages of its time."""
DAYS_AFTER_RELEASE = 90


def find_last_day(released: str) -> str:
    """Return the day until which packages are taken for an old release; empty for any other."""
    is_old = bool(released) and add_days(released, OLD_DAYS) < catalog_date()
    return add_days(released, DAYS_AFTER_RELEASE) if is_old else ""


def add_days(day: str, count: int) -> str:
    """``2024-02-01`` and 30 -> ``2024-03-02``."""
    return (date.fromisoformat(day) + timedelta(count)).isoformat()


def release_day(build: TorchBuild) -> str:
    return str((find_torch_release(build.version) or {}).get("date", "9999-01-01"))


class SearchSpace:
    """All choices of one contract on one machine, and the limits that each one fails."""

    def __init__(self, facts: Facts, contract: Contract, request: PlanRequest):
        device, system = plan_device(facts, contract), str(facts.value_if_known("os.system") or "linux")
        self.contract, self.request = contract, request
        self.platform = PlanPlatform(facts, device)
        machine = str(facts.value_if_known("os.arch") or "x86_64")
        self.builds = list_selectable_builds(machine, device, system)
        if device == "cpu" and "+cu" in request.torch:  # a build for CUDA computes on the CPU too, if somebody has it
            self.builds = [one.replace(cuda="", arch=()) for one in list_selectable_builds(machine, "cuda", system)]
        self.pythons = [_full_python_version(python, request) for python in reversed(PYTHONS)]
        self.limits = list_limits(self.platform, contract, request)
        if not self.builds:
            self.builds = list_selectable_builds("x86_64", device)[:1]  # something for the limits to fail on
            self.limits.append(no_build_limit(facts, f"torch has no build for {device} on {system}, {machine}"))
        self.masks = self._failure_masks()
        self.until = find_last_day(contract.released)
        self.kernels: dict[tuple[str, str, str], tuple[KernelPlan, ...]] = {}

    def _failure_masks(self) -> dict[tuple[int, str], int]:
        """Return a bit mask of failed limits per choice. A limit is evaluated once per value it depends on."""
        by_torch, by_python = [0] * len(self.builds), dict.fromkeys(self.pythons, 0)
        both: dict[tuple[int, str], int] = {}
        for number, limit in enumerate(self.limits):
            bit = 1 << number
            if limit.axes == "python" and self.builds:
                for python in self.pythons:
                    by_python[python] |= bit if limit.fails(self.builds[0], python) else 0
            elif limit.axes == "torch":
                for i, build in enumerate(self.builds):
                    by_torch[i] |= bit if limit.fails(build, self.pythons[0]) else 0
            else:
                for i, build in enumerate(self.builds):
                    for python in self.pythons:
                        if limit.fails(build, python):
                            both[i, python] = both.get((i, python), 0) | bit
        return {
            (i, p): by_torch[i] | by_python[p] | both.get((i, p), 0)
            for i in range(len(self.builds))
            for p in self.pythons
        }

    def open_choices(self) -> list[Choice]:
        """Return the choices that fail no limit, the newest torch first."""
        return [(self.builds[i], python) for (i, python), mask in self.masks.items() if not mask]

    def first_failed_limit(self, index: int, pythons: Sequence[str]) -> Limit | None:
        """Return the first limit that rules out a build with every Python; None if one is open."""
        least = min((self.masks[index, p] for p in pythons), key=lambda m: (m != 0, (m & -m).bit_length() * -1))
        return None if not least else self.limits[(least & -least).bit_length() - 1]

    def smallest_conflict(self) -> PlanConflict:
        numbers = smallest_failing_set(self.masks.values(), len(self.limits))
        return describe_conflict([self.limits[n] for n in numbers])


def _full_python_version(python: str, request: PlanRequest) -> str:
    """Return the full version of a Python if the requested or installed one has this minor."""
    for full in (request.python, request.prefer):
        if full and versions.major_minor(full) == versions.major_minor(python):
            return full
    return python
