"""Find the smallest change that clears the findings of an environment: ``gpuready plan --fix``.

A cheapest-first search over sets of changes. Each set is applied to the facts and judged again by the judge
function that is passed in, so that no change is proposed which breaks another rule. First the errors; then each
warning that can be cleared without raising another finding. Unneeded changes are dropped at the end.
"""

from __future__ import annotations

from gpuready.model import Noun, Report, Step
from gpuready.plan import change as changing
from gpuready.plan.change import Change, applied
from gpuready.plan.offers import is_elsewhere, offers
from gpuready.planned import Because, Conflict, Opening, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuready.model import Facts, Finding

    Judge = Callable[[Facts], Report]

MOST = 600
"""Number of change sets judged before the search gives up."""


class Mended(Noun):
    """The plan, and the facts and report after its changes."""

    plan: Plan
    facts: Facts
    changes: tuple[Change, ...]
    report: Report


def mend(report: Report, judge: Judge) -> Mended:
    """Return the plan that clears as many findings of a report as possible."""
    search = _Search(report, judge)
    chosen = search.least(())
    best = search.pruned(chosen if chosen is not None else search.furthest())
    for finding in search.report(best).findings:
        if finding.severity == "warning":
            best = search.also(best, finding)
    best = tuple(sorted(best, key=_order))
    return Mended(_plan(report, search, best), search.facts(best), best, search.report(best))


class _Search:
    """A search over sets of changes, each judged once."""

    def __init__(self, report: Report, judge: Judge):
        self.start, self.judge = report, judge
        self.judged: dict[frozenset[Change], Report] = {frozenset(): report}
        self.hopeless: set[str] = set()
        self.dark = {u.code for u in report.undecided}

    def facts(self, changes: Iterable[Change]) -> Facts:
        return applied(self.start.facts, sorted(changes, key=_order))

    def report(self, changes: Iterable[Change]) -> Report:
        key = frozenset(changes)
        if key not in self.judged:
            self.judged[key] = self.judge(self.facts(key))
        return self.judged[key]

    def open(self, changes: Iterable[Change], also: str = "") -> list[Finding]:
        """Return the remaining errors (and one warning to clear), without those assumed cleared."""
        some = list(changes)
        trusted = {code for change in some for code in change.trusts}
        found = [f for f in self.report(some).findings if f.severity == "error" or f.code == also]
        return [f for f in found if f.code not in trusted and not ("*packages" in trusted and _packaged(f))]

    def blinds(self, changes: Iterable[Change]) -> bool:
        """Whether a rule that could be decided before no longer can."""
        return any(u.severity == "error" and u.code not in self.dark for u in self.report(changes).undecided)

    def least(self, start: tuple[Change, ...], also: str = "") -> tuple[Change, ...] | None:
        """Return the cheapest additional changes that leave no clearable finding open.

        None: every path leaves something open. Findings that no change clears at the start are ignored.
        """
        import heapq

        first = frozenset(start)
        self.hopeless = self._hopeless(first, also)
        waiting: list[tuple[int, int, frozenset[Change]]] = [(0, 0, first)]
        seen, count, limit = {first}, 0, len(self.judged) + MOST
        while waiting and len(self.judged) < limit:
            _, _, here = heapq.heappop(waiting)
            left = [f for f in self.open(here, also) if f.code not in self.hopeless]
            if not left and not self.blinds(here):
                return tuple(here)
            for there in self._steps_from(here, left, also):
                if there not in seen:
                    seen.add(there)
                    count += 1
                    heapq.heappush(waiting, (_cost(there), count, there))
        return None

    def _hopeless(self, here: frozenset[Change], also: str) -> set[str]:
        """Return the codes of open findings that no change clears, alone or as a first step."""
        return {f.code for f in self.open(here, also) if not self._steps_from(here, [f], also)}

    def _steps_from(self, here: frozenset[Change], left: list[Finding], also: str) -> list[frozenset[Change]]:
        """Return sets with one more change, which clears the first open finding that any change clears."""
        facts, contract = self.facts(here), self.start.contract
        mine = {change: None for finding in left for change in offers(finding, facts, contract)}
        for finding in left:
            found = [there for change in mine if (there := self._with(here, change, finding, also))]
            if found:
                return found
        return []

    def _with(
        self, here: frozenset[Change], change: Change, finding: Finding, also: str
    ) -> frozenset[Change] | None:
        """Return the set with a change if it clears the finding, or if the finding's own change altered it."""
        there = frozenset(c for c in here if not c.subjects & change.subjects) | {change}
        if there == here:
            return None
        after = next((f for f in self.open(there, also) if f.code == finding.code), None)
        moved = change.code == finding.code and after != finding and there > here
        return there if after is None or moved else None

    def also(self, best: tuple[Change, ...], warning: Finding) -> tuple[Change, ...]:
        """Add the changes that clear a warning too, if that raises nothing new."""
        more = self.least(best, warning.code)
        if more is None or warning.code in self.hopeless:
            return best
        before = {f.code for f in self.report(best).findings if f.severity != "info"}
        after = {f.code for f in self.report(more).findings if f.severity != "info"}
        return self.pruned(more, warning.code) if after <= before else best

    def pruned(self, changes: tuple[Change, ...], also: str = "") -> tuple[Change, ...]:
        """Drop unneeded changes, the most expensive first."""
        kept = list(changes)
        was = _codes(self.open(kept, also))
        warned = self.warned(kept)
        for change in sorted(changes, key=lambda c: -c.cost):
            rest = [c for c in kept if c is not change]
            if _codes(self.open(rest, also)) <= was and self.warned(rest) <= warned and not self.blinds(rest):
                kept = rest
        return tuple(kept)

    def warned(self, changes: Iterable[Change]) -> set[str]:
        return {f.code for f in self.report(changes).findings if f.severity == "warning"}

    def left(self, changes: Iterable[Change]) -> set[str]:
        """Return the codes of remaining errors and warnings, without those assumed cleared."""
        some = list(changes)
        return {*_codes(self.open(some)), *self.warned(some)} - {c for one in some for c in one.trusts}

    def without(self, changes: Iterable[Change], one: Change) -> list[Finding]:
        """Return the errors and warnings if one of the changes is not made."""
        rest = [change for change in changes if change is not one]
        warnings = [f for f in self.report(rest).findings if f.severity == "warning"]
        return [*self.open(rest), *warnings]

    def furthest(self) -> tuple[Change, ...]:
        """Return the changes that leave the fewest errors, at the lowest cost."""
        sets = [s for s in self.judged if not self.blinds(s)]
        return tuple(min(sets, key=lambda s: (len(self.open(s)), _cost(s), sorted(c.step.does for c in s))))


def _codes(findings: Iterable[Finding]) -> set[str]:
    return {finding.code for finding in findings}


def _cost(changes: Iterable[Change]) -> int:
    return sum(change.cost for change in changes)


def _packaged(finding: Finding) -> bool:
    """Whether a finding is only about the environment's packages, and so ends with the environment."""
    return bool(finding.found) and all(fact.key.startswith(changing.PACKAGED) for fact in finding.found)


def _order(change: Change) -> tuple[int, int, str]:
    """Sort key: removals, then packages, then the rest; manual steps last."""
    verbs = [act[0] for act in change.acts]
    removes = bool(verbs) and all(act[0] == "package" and act[2] is None for act in change.acts)
    kinds = (removes, "torch" in verbs, "package" in verbs, change.step.safety != "manual")
    return next((i for i, kind in enumerate(kinds) if kind), len(kinds)), change.cost, change.step.does


# -- the plan -------------------------------------------------------------------------------------------


def _plan(report: Report, search: _Search, best: tuple[Change, ...]) -> Plan:
    contract, after, facts = report.contract, search.report(best), search.facts(best)
    errors = search.open(best)
    setting, unset = changing.variables(best)
    return Plan(
        framework=contract.framework,
        version=contract.version,
        variant=contract.variant,
        verdict="impossible" if errors else "plan",
        machine=report.facts.host,
        python=str(facts.known("python.version") or ""),
        torch=str(facts.known("torch.version") or ""),
        cuda=str(facts.known("torch.cuda") or ""),
        packages=changing.packages(best),
        steps=tuple(step for step, _ in _steps(best)),
        because=tuple(_because(search, best)),
        conflicts=tuple(_conflict(finding) for finding in errors),
        opens=tuple(_openings(errors)),
        resolved="not resolved here: the installer settles it with the packages that are there",
        variables=setting,
        unset=unset,
        catalog=report.catalog,
        notes=tuple(_notes(report, after, best)),
        options={"fix": True},
    )


def _steps(best: tuple[Change, ...]) -> list[tuple[Step, list[Change]]]:
    """Return the ordered steps with their changes; installs into one environment are merged, so that they
    are resolved together.
    """
    steps: list[tuple[Step, list[Change]]] = []
    for change in best:
        last, mine = steps[-1] if steps else (None, [])
        joined = _joined(last, change.step) if last else None
        if joined is not None:
            steps[-1] = (joined, [*mine, change])
        else:
            steps.append((change.step, [change]))
    return steps


def _joined(first: Step, second: Step) -> Step | None:
    """Merge two plain installs; None if their flags differ."""
    a, b = first.run, second.run
    if a[:3] != ("uv", "pip", "install") or b[:3] != a[:3] or {"--reinstall", "--no-deps"} & {*a, *b}:
        return None
    flags = dict(_flags(a)) | dict(_flags(b))
    if any(dict(_flags(run)).get(name, value) != value for run in (a, b) for name, value in flags.items()):
        return None
    words = list(dict.fromkeys([*_words(a), *_words(b)]))
    names = [word.partition("=")[0].partition("<")[0].partition(">")[0] for word in words]
    if len(names) != len(set(names)):
        return None
    run = (*a[:3], *(w for pair in flags.items() for w in pair), *words)
    return first.but(does=f"{first.does}, {second.does.removeprefix('install ')}", run=run)


def _flags(run: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(run[i], run[i + 1]) for i in range(3, len(run) - 1) if run[i].startswith("--")]


def _words(run: tuple[str, ...]) -> list[str]:
    values = {value for _, value in _flags(run)}
    return [word for word in run[3:] if not word.startswith("-") and word not in values]


def _because(search: _Search, best: tuple[Change, ...]) -> Iterable[Because]:
    """Yield, for each step, the findings that come back without its changes."""
    known, left = {f.code: f.says for f in search.start.findings}, search.left(best)
    for number, (_, changes) in enumerate(_steps(best), 1):
        back: dict[str, str] = {}
        for change in changes:
            back |= {f.code: f.says for f in search.without(best, change) if f.code not in left}
        mine = {code: known[code] for code in known if code in back} or back
        hoped = {code for change in changes for code in change.trusts}
        for code, says in (mine or {c.code: known.get(c.code, "") for c in changes}).items():
            verb = "should turn off" if code in hoped else "turns off" if code in known else "keeps off"
            said = f"step {number} {verb} {code}" + (f": {says}" if says else "")
            yield Because(code, said, f"gpuready explain {code}")


def _conflict(finding: Finding) -> Conflict:
    says = f"{finding.code} cannot be turned off here: {finding.says}"
    return Conflict(says, finding.found, finding.needs)


def _openings(errors: list[Finding]) -> Iterable[Opening]:
    for finding in errors:
        for step in finding.fix:
            kind = "gpu" if is_elsewhere(step) and "gpu" in step.does.lower() else "system"
            yield Opening(kind, step.does, f"turns off {finding.code}")


def _notes(before: Report, after: Report, best: tuple[Change, ...]) -> Iterable[str]:
    if not before.findings:
        yield "nothing is found wrong: there is nothing to change"
    for change in best:
        if change.trusts and change.trusts != ("*packages",):
            yield f"nobody can tell beforehand what comes of it: {change.step.does}; check again afterwards"
    trusted = {code for change in best for code in change.trusts}
    for finding in after.findings:
        if finding.severity == "warning" and finding.code not in trusted:
            yield f"{finding.code} stays, and is a warning only: {finding.says}"
    for undecided in before.undecided:
        if undecided.severity == "error":
            yield f"{undecided.code} could not be judged, and may yet be found: {undecided.says}"
