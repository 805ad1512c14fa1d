"""The view of one Report: the same text as the terminal, in the same order."""

from typing import Any

from gpuready.model import NOT_STATED, Facts, Finding, FixStep, Report, UndecidedRule
from gpuready.model.facts import verdict_words
from gpuready.render import check_report, facts_summary, units
from gpuready.render import finding as findings
from gpuready.render.escape import quote_command_words

MARK_SYMBOLS = {"error": "✗", "warning": "!", "undecided": "?", "ok": "✓", "info": "i"}
MARK_WORDS = {"error": "error", "warning": "warning", "undecided": "can't tell", "ok": "passed", "info": "note"}


def mark_view(kind: str) -> dict[str, str]:
    """A symbol, its colour and its word: never the colour alone."""
    return {"kind": kind, "sign": MARK_SYMBOLS[kind], "says": MARK_WORDS[kind]}


def build_check_view(report: Report) -> dict[str, Any]:
    serious = [f for f in report.findings if f.severity != "info"]
    return {
        "name": report.contract.name,
        "title": report.contract.title,
        "says": "" if report.contract.basis == "release" else report.contract.says,
        "host": report.facts.host,
        "machine": facts_summary.summarize_hardware(report.facts),
        "verdict": verdict_words(report.verdict),
        "mark": mark_view(check_report.VERDICT_ROLES[report.verdict]),
        "counts": check_report.count_phrases(report),
        "ladder": [
            {"mark": mark_view(kind), "name": name, "says": says}
            for kind, name, says in check_report.build_family_rows(report)
        ],
        "findings": [finding_view(one) for one in serious],
        "infos": [finding_view(one) for one in report.findings if one.severity == "info"],
        "undecided": [_undecided_view(several) for several in findings.group_undecided(report)],
        "unstated": list(findings.codes_by_missing_fact(report.unstated).items()),
        "ignored": [{"finding": finding_view(one.finding), "reason": one.reason} for one in report.ignored],
        "held": _passed_rules_view(report),
        "ways": [
            (" ".join(quote_command_words(words)), label) for label, words in check_report.list_next_commands(report)
        ],
        "catalog": report.catalog,
        "strict": report.strict,
    }


def finding_view(one: Finding) -> dict[str, Any]:
    kind = one.severity if one.severity in MARK_SYMBOLS else "info"
    return {
        "code": one.code,
        "severity": one.severity,
        "mark": mark_view(kind),
        "says": one.says,
        "evidence": findings.list_evidence(one.found, one.needs),
        "so": one.so,
        "fix": [step_view(each) for each in one.fix],
    }


def step_view(one: FixStep) -> dict[str, Any]:
    return {"does": one.does, "run": one.run, "safety": findings.describe_safety(one)}


def _undecided_view(several: list[UndecidedRule]) -> dict[str, Any]:
    """Rules that are undecided for the same reason."""
    missing = {fact.key: fact.gap for one in several for fact in one.missing}
    return {
        "rules": [(one.code, findings.lowercase_opener(one.says), one.severity) for one in several],
        "keys": list(missing),
        "why": list(dict.fromkeys(missing.values())),
    }


def _passed_rules_view(report: Report) -> list[dict[str, Any]]:
    facts = report.facts.without_tracking()
    return [
        {"code": one.code, "read": [(key, units.format_fact_value(facts.fact(key))) for key in one.read]}
        for one in report.judged
    ]


# -- fact table -------------------------------------------------------------------------------------------------

FACT_GROUPS = {"env": "environment", "package": "packages", "can": "proofs", "bench": "bench", "job": "job"}


def build_fact_table(facts: Facts) -> list[dict[str, str]]:
    """All facts by group: the machine first, then the job, the environment and the packages."""
    rows = []
    for fact in facts:
        if fact.gap == NOT_STATED:
            continue
        family, _, rest = fact.key.partition(".")
        group = FACT_GROUPS.get(family, "machine")
        if fact.key in ("env.names", "proof.results"):
            continue
        short_key = group in ("environment", "packages")
        state = "unknown" if fact.gap else "absent" if fact.value is None else ""
        source = f"{fact.gap} ({fact.source})" if fact.gap and fact.source else fact.gap or fact.source
        rows.append(
            {
                "group": group,
                "key": rest if short_key else fact.key,
                "value": units.format_fact_value(fact),
                "state": state,
                "source": source,
                "how": fact.how,
            }
        )
    order = ["machine", "job", "environment", "packages", "proofs", "bench"]
    return sorted(rows, key=lambda row: order.index(row["group"]))
