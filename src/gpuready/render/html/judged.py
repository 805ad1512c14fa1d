"""The view of one Report: the same text as the terminal, in the same order."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import finding as findings
from gpuready.render import summary, text, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.model import Fact, Facts, Finding, Need, Report, Step, Undecided

MARKS = {"error": "✗", "warning": "!", "undecided": "?", "ok": "✓", "info": "i"}
SAYS = {"error": "error", "warning": "warning", "undecided": "open", "ok": "holds", "info": "note"}
ROLES = {"not-ready": "error", "undecided": "undecided", "ready": "ok", "clear": "ok"}


def mark(kind: str) -> dict[str, str]:
    """A symbol, its colour and its word: never the colour alone."""
    return {"kind": kind, "sign": MARKS[kind], "says": SAYS[kind]}


def view(report: Report) -> dict[str, Any]:
    grave = [f for f in report.findings if f.severity != "info"]
    return {
        "name": report.contract.name,
        "title": report.contract.title,
        "says": report.contract.says,
        "host": report.facts.host,
        "machine": summary.machine(report.facts),
        "verdict": text.word(report),
        "mark": mark(ROLES[report.verdict]),
        "counts": text.counts(report),
        "ladder": [
            {"mark": mark(kind), "name": name, "says": says, "count": count}
            for kind, name, says, count in text.ladder(report)
        ],
        "findings": [finding(one) for one in grave],
        "infos": [finding(one) for one in report.findings if one.severity == "info"],
        "undecided": [_open(several) for several in text._by_reason(report)],
        "unstated": _waiting(report.unstated),
        "ignored": [{"finding": finding(one.finding), "reason": one.reason} for one in report.ignored],
        "held": _held(report),
        "ways": text.ways_on(report),
        "catalog": report.catalog,
        "strict": report.strict,
    }


def finding(one: Finding) -> dict[str, Any]:
    kind = one.severity if one.severity in MARKS else "info"
    rows = [("found", *_found(fact)) for fact in one.found]
    rows += [("needs", *_needed(need)) for need in one.needs]
    return {
        "code": one.code,
        "severity": one.severity,
        "mark": mark(kind),
        "says": one.says,
        "evidence": rows,
        "so": one.so,
        "fix": [step(each) for each in one.fix],
    }


def step(one: Step) -> dict[str, Any]:
    return {"does": one.does, "run": one.run, "safety": findings.safety(one)}


def _found(fact: Fact) -> tuple[str, str, str]:
    source = fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source
    return fact.key, units.value(fact), source


def _needed(need: Need) -> tuple[str, str, str]:
    when = findings.condition(need.when) if need.when else ""
    return need.key, findings.want(need.want), "; ".join(part for part in (need.cite, when) if part)


def _open(several: list[Undecided]) -> dict[str, Any]:
    """Rules that are undecided for the same reason."""
    missing = {fact.key: fact.gap for one in several for fact in one.missing}
    return {
        "rules": [(one.code, findings.continued(one.says), one.severity) for one in several],
        "keys": list(missing),
        "why": list(dict.fromkeys(missing.values())),
    }


def _waiting(several: Iterable[Undecided]) -> list[tuple[str, list[str]]]:
    """Facts that are not stated, with the rules that need them."""
    found: dict[str, list[str]] = {}
    for one in several:
        for fact in one.missing:
            found.setdefault(fact.key, []).append(one.code)
    return list(found.items())


def _held(report: Report) -> list[dict[str, Any]]:
    known = report.facts.unwatched()
    return [
        {"code": one.code, "read": [(key, units.value(known.fact(key))) for key in one.read]}
        for one in report.judged
    ]


# -- fact table -------------------------------------------------------------------------------------------------

GROUPS = {"env": "environment", "package": "packages", "can": "proofs", "bench": "bench", "job": "job"}


def table(facts: Facts) -> list[dict[str, str]]:
    """All facts by group: the machine first, then the job, the environment and the packages."""
    rows = []
    for fact in facts:
        if fact.gap == NOT_STATED:
            continue
        family, _, rest = fact.key.partition(".")
        group = GROUPS.get(family, "machine")
        if fact.key in ("env.names", "proof.results"):
            continue
        plain = group in ("environment", "packages")
        state = "unknown" if fact.gap else "absent" if fact.value is None else ""
        source = f"{fact.gap} ({fact.source})" if fact.gap and fact.source else fact.gap or fact.source
        rows.append(
            {
                "group": group,
                "key": rest if plain else fact.key,
                "value": units.value(fact),
                "state": state,
                "source": source,
                "how": fact.how,
            }
        )
    order = ["machine", "job", "environment", "packages", "proofs", "bench"]
    return sorted(rows, key=lambda row: order.index(row["group"]))
