"""Find the smallest change that clears the findings of an environment: ``gpuready plan --fix``.

A cheapest-first search over sets of changes. Each set is applied to the facts and judged again by the judge
function that is passed in, so that no change is proposed which breaks another rule. First the errors; then each
warning that can be cleared without raising another finding. Unneeded changes are dropped at the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from gpuready.catalog.packages import list_positional_words
from gpuready.contracts import foreign_note
from gpuready.model import Facts, Finding, FixStep, Record, Report
from gpuready.model.plan import Plan, PlanAlternative, PlanConflict, PlanReason
from gpuready.plan import change as changing
from gpuready.plan.change import FixChange, apply_changes
from gpuready.plan.fix_changes import list_fix_changes

JudgeFunction = Callable[[Facts], Report]


MAX_JUDGED_SETS = 600
"""Number of change sets judged before the search gives up."""


class FixResult(Record):
    """The plan, and the facts and report after its changes."""

    plan: Plan
    facts: Facts
    changes: tuple[FixChange, ...]
    report: Report


def plan_fix(report: Report, judge: JudgeFunction) -> FixResult:
    """Return the plan that clears as many findings of a report as possible."""
    search = _FixSearch(report, judge)
    chosen = search.cheapest_fix(())
    best = search.drop_unneeded(chosen if chosen is not None else search.best_partial_fix())
    for finding in search.report_after(best).findings:
        if finding.severity == "warning":
            best = search.fix_warning_too(best, finding)
    best = tuple(sorted(best, key=_execution_order))
    return FixResult(_make_fix_plan(report, search, best), search.facts_after(best), best, search.report_after(best))


class _FixSearch:
    """A search over sets of changes, each judged once."""

    def __init__(self, report: Report, judge: JudgeFunction):
        self.initial_report, self.judge = report, judge
        self.judged: dict[frozenset[FixChange], Report] = {frozenset(): report}
        self.unfixable: set[str] = set()
        self.undecided_before = {u.code for u in report.undecided}

    def facts_after(self, changes: Iterable[FixChange]) -> Facts:
        return apply_changes(self.initial_report.facts, sorted(changes, key=_execution_order))

    def report_after(self, changes: Iterable[FixChange]) -> Report:
        key = frozenset(changes)
        if key not in self.judged:
            self.judged[key] = self.judge(self.facts_after(key))
        return self.judged[key]

    def open_errors(self, changes: Iterable[FixChange], extra_code: str = "") -> list[Finding]:
        """Return the remaining errors (and one warning to clear), without those assumed cleared."""
        change_list = list(changes)
        trusted = {code for change in change_list for code in change.trusts}
        findings = [f for f in self.report_after(change_list).findings if f.severity == "error" or f.code == extra_code]
        return [f for f in findings if f.code not in trusted and not ("*packages" in trusted and _is_about_packages(f))]

    def hides_errors(self, changes: Iterable[FixChange]) -> bool:
        """Whether a rule that could be decided before no longer can."""
        return any(
            u.severity == "error" and u.code not in self.undecided_before for u in self.report_after(changes).undecided
        )

    def cheapest_fix(self, start: tuple[FixChange, ...], extra_code: str = "") -> tuple[FixChange, ...] | None:
        """Return the cheapest additional changes that leave no clearable finding open.

        None: every path leaves something open. Findings that no change clears at the start are ignored.
        """
        first = frozenset(start)
        self.unfixable = self._unfixable_codes(first, extra_code)
        waiting: list[tuple[int, int, frozenset[FixChange]]] = [(0, 0, first)]
        seen, count, limit = {first}, 0, len(self.judged) + MAX_JUDGED_SETS
        while waiting and len(self.judged) < limit:
            _, _, current = heapq.heappop(waiting)
            left = [f for f in self.open_errors(current, extra_code) if f.code not in self.unfixable]
            if not left and not self.hides_errors(current):
                return tuple(current)
            for extended in self._next_change_sets(current, left, extra_code):
                if extended not in seen:
                    seen.add(extended)
                    count += 1
                    heapq.heappush(waiting, (_total_cost(extended), count, extended))
        return None

    def _unfixable_codes(self, current: frozenset[FixChange], extra_code: str) -> set[str]:
        """Return the codes of open findings that no change clears, alone or as a first step."""
        return {
            f.code
            for f in self.open_errors(current, extra_code)
            if not self._next_change_sets(current, [f], extra_code)
        }

    def _next_change_sets(
        self, current: frozenset[FixChange], left: list[Finding], extra_code: str
    ) -> list[frozenset[FixChange]]:
        """Return sets with one more change, which clears the first open finding that any change clears."""
        facts, contract = self.facts_after(current), self.initial_report.contract
        candidates = {change: None for finding in left for change in list_fix_changes(finding, facts, contract)}
        for finding in left:
            change_sets = [
                extended
                for change in candidates
                if (extended := self._add_change(current, change, finding, extra_code))
            ]
            if change_sets:
                return change_sets
        return []

    def _add_change(
        self, current: frozenset[FixChange], change: FixChange, finding: Finding, extra_code: str
    ) -> frozenset[FixChange] | None:
        """Return the set with a change if it clears the finding, or if the finding's own change altered it."""
        extended = frozenset(c for c in current if not c.touched_subjects & change.touched_subjects) | {change}
        if extended == current:
            return None
        after = next((f for f in self.open_errors(extended, extra_code) if f.code == finding.code), None)
        moved = change.code == finding.code and after != finding and extended > current
        return extended if after is None or moved else None

    def fix_warning_too(self, best: tuple[FixChange, ...], warning: Finding) -> tuple[FixChange, ...]:
        """Add the changes that clear a warning too, if that raises nothing new."""
        more = self.cheapest_fix(best, warning.code)
        if more is None or warning.code in self.unfixable:
            return best
        before = {f.code for f in self.report_after(best).findings if f.severity != "info"}
        after = {f.code for f in self.report_after(more).findings if f.severity != "info"}
        return self.drop_unneeded(more, warning.code) if after <= before else best

    def drop_unneeded(self, changes: tuple[FixChange, ...], extra_code: str = "") -> tuple[FixChange, ...]:
        """Drop unneeded changes, the most expensive first."""
        kept = list(changes)
        was = _finding_codes(self.open_errors(kept, extra_code))
        warned = self.warning_codes(kept)
        for change in sorted(changes, key=lambda c: -c.cost):
            rest = [c for c in kept if c is not change]
            if (
                _finding_codes(self.open_errors(rest, extra_code)) <= was
                and self.warning_codes(rest) <= warned
                and not self.hides_errors(rest)
            ):
                kept = rest
        return tuple(kept)

    def warning_codes(self, changes: Iterable[FixChange]) -> set[str]:
        return {f.code for f in self.report_after(changes).findings if f.severity == "warning"}

    def remaining_codes(self, changes: Iterable[FixChange]) -> set[str]:
        """Return the codes of remaining errors and warnings, without those assumed cleared."""
        change_list = list(changes)
        return {*_finding_codes(self.open_errors(change_list)), *self.warning_codes(change_list)} - {
            c for one in change_list for c in one.trusts
        }

    def findings_without(self, changes: Iterable[FixChange], one: FixChange) -> list[Finding]:
        """Return the errors and warnings if one of the changes is not made."""
        rest = [change for change in changes if change is not one]
        warnings = [f for f in self.report_after(rest).findings if f.severity == "warning"]
        return [*self.open_errors(rest), *warnings]

    def best_partial_fix(self) -> tuple[FixChange, ...]:
        """Return the changes that leave the fewest errors, at the lowest cost."""
        sets = [s for s in self.judged if not self.hides_errors(s)]
        return tuple(
            min(sets, key=lambda s: (len(self.open_errors(s)), _total_cost(s), sorted(c.step.does for c in s)))
        )


def _finding_codes(findings: Iterable[Finding]) -> set[str]:
    return {finding.code for finding in findings}


def _total_cost(changes: Iterable[FixChange]) -> int:
    return sum(change.cost for change in changes)


def _is_about_packages(finding: Finding) -> bool:
    """Whether a finding is only about the environment's packages, and so ends with the environment."""
    return bool(finding.found) and all(fact.key.startswith(changing.ENVIRONMENT_FACTS) for fact in finding.found)


def _execution_order(change: FixChange) -> tuple[int, int, str]:
    """Sort key: removals, then packages, then the rest; manual steps last."""
    verbs = [act[0] for act in change.acts]
    removes = bool(verbs) and all(act[0] == "package" and act[2] is None for act in change.acts)
    kinds = (removes, "torch" in verbs, "package" in verbs, change.step.safety != "manual")
    return next((i for i, kind in enumerate(kinds) if kind), len(kinds)), change.cost, change.step.does


# -- the plan -------------------------------------------------------------------------------------------


def _make_fix_plan(report: Report, search: _FixSearch, best: tuple[FixChange, ...]) -> Plan:
    contract, after, facts = report.contract, search.report_after(best), search.facts_after(best)
    errors = search.open_errors(best)
    is_open = after.verdict == "undecided" and (not best or bool(after.lacking))
    setting, unset = changing.changed_variables(best)
    return Plan(
        framework=contract.framework,
        version=contract.version,
        variant=contract.variant,
        verdict="impossible" if errors else "undecided" if is_open else "plan",
        undecided=after.open_words if is_open else "",
        machine=report.facts.host,
        python=str(facts.value_if_known("python.version") or ""),
        torch=str(facts.value_if_known("torch.version") or ""),
        cuda=str(facts.value_if_known("torch.cuda") or ""),
        packages=changing.pinned_packages(best),
        steps=tuple(step for step, _ in merge_fix_steps(best)),
        because=tuple(_fix_reasons(search, best)),
        conflicts=tuple(_finding_conflict(finding) for finding in errors),
        opens=tuple(_fix_alternatives(errors)),
        resolved="not resolved here: the installer settles it with the packages that are there",
        variables=setting,
        unset=unset,
        catalog=report.catalog,
        notes=tuple(_fix_notes(report, after, best)),
        options={"fix": True},
        contract_note=foreign_note(contract),
    )


def merge_fix_steps(best: tuple[FixChange, ...]) -> list[tuple[FixStep, list[FixChange]]]:
    """Return the ordered steps with their changes; installs into one environment are merged, so that they
    are resolved together, and a step that several findings have is one.
    """
    steps: list[tuple[FixStep, list[FixChange]]] = []
    for change in best:
        same = [changes for step, changes in steps if (step.does, step.run) == (change.step.does, change.step.run)]
        if same:
            same[0].append(change)
            continue
        last, step_changes = steps[-1] if steps else (None, [])
        joined = _join_installs(last, change.step) if last else None
        if joined is not None:
            steps[-1] = (joined, [*step_changes, change])
        else:
            steps.append((change.step, [change]))
    return steps


def _join_installs(first: FixStep, second: FixStep) -> FixStep | None:
    """Merge two plain installs; None if their flags differ."""
    a, b = first.run, second.run
    if a[:3] != ("uv", "pip", "install") or b[:3] != a[:3] or {"--reinstall", "--no-deps"} & {*a, *b}:
        return None
    flags = dict(_option_pairs(a)) | dict(_option_pairs(b))
    if any(dict(_option_pairs(run)).get(name, value) != value for run in (a, b) for name, value in flags.items()):
        return None
    words = list(dict.fromkeys([*list_positional_words(a[3:]), *list_positional_words(b[3:])]))
    names = [word.partition("=")[0].partition("<")[0].partition(">")[0] for word in words]
    if len(names) != len(set(names)):
        return None
    run = (*a[:3], *(w for pair in flags.items() for w in pair), *words)
    return first.replace(does=f"{first.does}, {second.does.removeprefix('install ')}", run=run)


def _option_pairs(run: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(run[i], run[i + 1]) for i in range(3, len(run) - 1) if run[i].startswith("--")]


def _fix_reasons(search: _FixSearch, best: tuple[FixChange, ...]) -> Iterable[PlanReason]:
    """Yield, for each step, the findings that come back without its changes."""
    known, left = {f.code: f.says for f in search.initial_report.findings}, search.remaining_codes(best)
    for number, (_, changes) in enumerate(merge_fix_steps(best), 1):
        returned: dict[str, str] = {}
        for change in changes:
            returned |= {f.code: f.says for f in search.findings_without(best, change) if f.code not in left}
        turned_off = {code: known[code] for code in known if code in returned} or returned
        trusted = {code for change in changes for code in change.trusts}
        for code, says in (turned_off or {c.code: known.get(c.code, "") for c in changes}).items():
            verb = "should fix" if code in trusted else "fixes" if code in known else "prevents"
            text = f"step {number} {verb} {code}" + (f": {says}" if says else "")
            yield PlanReason(code, text, f"gpuready explain {code}", number, verb)


def _finding_conflict(finding: Finding) -> PlanConflict:
    says = f"{finding.code} cannot be fixed here: {finding.says}"
    return PlanConflict(says, finding.found, finding.needs, about=finding.code)


def _fix_alternatives(errors: list[Finding]) -> Iterable[PlanAlternative]:
    for finding in errors:
        for step in finding.fix:
            is_gpu = step.safety == "elsewhere" and any(fact.key.startswith("gpu.") for fact in finding.found)
            kind = "gpu" if is_gpu else "system"
            yield PlanAlternative(kind, step.does, f"fixes {finding.code}", about=finding.code)


def _fix_notes(before: Report, after: Report, best: tuple[FixChange, ...]) -> Iterable[str]:
    if before.verdict == "clear" and not before.findings:
        yield "no problems found: nothing to change"
    for change in best:
        if change.trusts and change.trusts != ("*packages",):
            yield f"the outcome cannot be predicted: {change.step.does}; check again afterwards"
    trusted = {code for change in best for code in change.trusts}
    for finding in after.findings:
        if finding.severity == "warning" and finding.code not in trusted:
            yield f"{finding.code} stays; it is only a warning: {finding.says}"
    for undecided in before.undecided:
        if undecided.severity == "error":
            yield f"{undecided.code} could not be checked and may still apply: {undecided.says}"
