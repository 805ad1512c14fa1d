"""How to fix a cause: the catalogue's text, the rule's fix for this machine, and the framework's contract."""

from __future__ import annotations

from gpuready import contracts, rules, system
from gpuready.catalog import causes
from gpuready.model import Contract, Fact, Facts, Step
from gpuready.workflow import choosing, looking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.diagnosed import Alternative, Diagnosis
    from gpuready.logs.story import Story
    from gpuready.model import Finding


def mended(found: Diagnosis, story: Story, on: str | None, look: bool) -> Diagnosis:
    """Add the cause's sentence, its fixes, and what the machine adds to it."""
    if found.verdict != "cause":
        return found
    found = _worded(found)
    contract = _contract(found.framework)
    here = on is None and look and _is_here(story)
    if on is not None or here:
        found = _judged_here(found, looking.recording(on) if on is not None else _this(), contract, here)
    return found.but(fix=tuple(dict.fromkeys((*found.fix, *_known_errors(contract, story)))))


def _worded(found: Diagnosis) -> Diagnosis:
    found = found.but(alternatives=tuple(_named(a) for a in found.alternatives))
    from gpuready.rules import told

    finding = told.finding(Facts([heard(found)]), Contract("log", ""), found.code, "error", found.cause)
    if finding is None:
        return found.but(says=found.says or rules.name(found.code).replace("-", " "))
    fix = tuple(_for_framework(step, found.framework) for step in finding.fix)
    return found.but(says=finding.says, so=finding.so, fix=fix)


def heard(found: Diagnosis) -> Fact:
    """Return the matches of a log as a fact, for rules that read only logs."""
    rows = [
        {"code": found.code, "cause": found.cause, "rank": e.rank, "host": e.host, "source": e.source, "line": e.line, "text": e.text,
         "captures": found.captures}
        for e in found.evidence
    ]  # fmt: skip
    return Fact("log.signs", tuple(rows), ", ".join(dict.fromkeys(e.source for e in found.evidence)), "log")


def _named(alternative: Alternative) -> Alternative:
    return alternative.but(
        says=causes.filled(alternative.says, {}) or rules.name(alternative.code).replace("-", " ")
    )


def _for_framework(step: Step, framework: str) -> Step:
    """Replace FRAMEWORK in a step (``gpuready plan FRAMEWORK``) with the framework's name, where it is known."""
    name = framework.partition("=")[0].partition(":")[0]
    if not name:
        return step
    words = tuple(name if word == "FRAMEWORK" else word for word in step.run)
    return step.but(does=step.does.replace("FRAMEWORK", name), run=words)


# -- the machine ------------------------------------------------------------------------------------


def _is_here(story: Story) -> bool:
    """Return whether the log names this machine as one on which it ran."""
    name = system.Live().hostname()
    hosts = {line.host for line in story.lines if line.host}
    return bool(name) and any(host in (name, name.partition(".")[0]) for host in hosts)


def _this() -> Facts:
    return looking.start(None, None, {}, None)[0]()


def _judged_here(found: Diagnosis, facts: Facts, contract: Contract | None, here: bool) -> Diagnosis:
    """Apply the rules to this machine now: a fix for it, and findings that support one cause or another."""
    if contract is None:
        contract = contracts.load(choosing.DEFAULT_FRAMEWORK)
    fires = {
        code: finding
        for code in (found.code, *(a.code for a in found.alternatives))
        if (finding := _fires(code, facts, contract))
    }
    if found.code in fires:
        finding = fires[found.code]
        note = f"the same is wrong on {'this machine' if here else 'that machine'} now: {finding.says}"
        return found.but(
            here=here,
            fix=tuple(dict.fromkeys((*finding.fix, *found.fix))),
            confidence=0.99,
            notes=(*found.notes, note),
        )
    others = [f"{code}: {finding.says}" for code, finding in fires.items()]
    return found.but(here=here, notes=(*found.notes, *(f"on the machine now, {text}" for text in others)))


def _fires(code: str, facts: Facts, contract: Contract) -> Finding | None:
    from gpuready.check import judge

    if code not in rules.LEDGER or code in rules.LOGGED:
        return None
    report = judge([rules.rule(code)], facts, contract)
    return report.findings[0] if report.findings else None


# -- the framework --------------------------------------------------------------------------------------------


def framework_of(story: Story) -> str:
    """Return the framework whose files are most frequent in the tracebacks."""
    names = {name: name.replace("-", "").replace("_", "") for name in contracts.frameworks()}
    counts = dict.fromkeys(names, 0)
    for failure in story.failures:
        for frame in failure.frames:
            parts = frame.file.replace("\\", "/").lower().replace("-", "").replace("_", "").split("/")
            for name, folded in names.items():
                counts[name] += folded in parts
    for name in ("torch", "transformers"):  # every framework uses these: they identify none
        counts.pop(name, None)
    best = max(counts, key=lambda name: counts[name], default="")
    return best if best and counts[best] else ""


def _contract(framework: str) -> Contract | None:
    if not framework:
        return None
    try:
        return contracts.load(*choosing.asked(framework))
    except Exception:  # an unknown framework adds no fix, and hides none
        return None


def _known_errors(contract: Contract | None, story: Story) -> Sequence[Step]:
    """Return the steps that the framework's documentation gives for an error in the log."""
    if contract is None:
        return ()
    texts = [failure.message for failure in story.failures]
    said = [
        error
        for error in contract.errors
        if len(error.message) > 15 and any(error.message in text for text in texts)
    ]
    return [
        Step(error.fix, note=f"{contract.name}, {error.cite}" if error.cite else contract.name)
        for error in said[:2]
    ]
