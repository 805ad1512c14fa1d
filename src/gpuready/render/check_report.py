"""The screen of ``gpuready check``: one row per rule family, findings, undecided rules, verdict."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import facts_summary, units
from gpuready.render import finding as findings
from gpuready.render.escape import escape_unprintable
from gpuready.render.layout import Screen, display_width, join_sections, pad_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.model import Contract, PassedRule, Report, UndecidedRule

FAMILY_NAMES = {
    "GPU": "gpu",
    "DRV": "driver",
    "BLD": "toolchain",
    "PKG": "packages",
    "MEM": "memory",
    "CAP": "capability",
    "SYS": "system",
    "NET": "network",
    "FLT": "fleet",
    "RUN": "run",
}
"""Rows in order, by the letters of their codes."""

_SERIOUS_SEVERITIES = ("error", "warning")
VERDICT_ROLES = {"not-ready": "error", "undecided": "undecided", "ready": "ok", "clear": "ok"}


def render_check_screen(
    report: Report,
    screen: Screen | None = None,
    *,
    elapsed: float | None = None,
    verbose: bool = False,
    seconds: Mapping[str, float] | None = None,
) -> str:
    display = screen or Screen()
    sections = [_format_check_header(report, display), _format_family_rows(report, display)]
    infos = [f for f in report.findings if f.severity == "info"]
    sections += [findings.format_finding(f, display) for f in report.findings if f.severity != "info"]
    sections.append([line for f in infos for line in findings.format_finding(f, display)])
    undecided = group_undecided(report)
    sections.append([line for several in undecided for line in findings.format_undecided(several, display)])
    if report.unstated:
        sections.append(findings.format_unstated(report, display, _plan_command(report)))
    sections.append([line for i in report.ignored for line in findings.format_ignored(i, display)])
    if verbose:
        sections += [_format_job_placement(report, display), _format_passed_rules(report, display)]
        sections.append(_format_timings(seconds or {}, display))
    sections += [_format_check_verdict(report, display, elapsed, verbose), _format_next_commands(report, display)]
    return join_sections(sections)


def group_undecided(report: Report) -> list[list[UndecidedRule]]:
    """The undecided rules, grouped by the reason."""
    groups: dict[str, list[UndecidedRule]] = {}
    for item in report.undecided:
        groups.setdefault("; ".join(fact.gap for fact in item.missing), []).append(item)
    return list(groups.values())


def format_check_line(report: Report) -> str:
    """``transformers 5.22: not ready (GPU001, PKG002)``"""
    serious = _SERIOUS_SEVERITIES if report.strict else ("error",)
    codes = [f.code for f in report.findings if f.severity in serious]
    if report.verdict == "undecided":
        codes = [u.code for u in report.undecided if u.severity == "error" or report.strict]
    code_suffix = f" ({', '.join(codes)})" if codes else ""
    return escape_unprintable(f"{report.contract.name}: {verdict_words(report)}{code_suffix}") + "\n"


# -- header and rows ------------------------------------------------------------------------------------


def _format_check_header(report: Report, screen: Screen) -> list[str]:
    host = report.facts.host
    left = report.contract.name + (f" on {host}" if host else "")
    says = screen.format_paragraph(report.contract.says, 2) if report.contract.says else []
    return [*screen.format_header(left, facts_summary.summarize_machine(report.facts)), *says]


def build_family_rows(report: Report) -> list[tuple[str, str, str, str]]:
    """One row per family and one for proofs: mark, name, summary, rule counts."""
    rows = []
    for letters, name in FAMILY_NAMES.items():
        tally = _count_family_results(report, letters)
        if any(tally.values()):
            text = facts_summary.summarize_family(name, report.facts, report.contract)
            rows.append((_family_mark(tally, text), name, text, _format_family_counts(tally)))
    return [*rows, _proof_family_row(report)]


def _format_family_rows(report: Report, screen: Screen) -> list[str]:
    rows = build_family_rows(report)
    names = max(9, *(len(name) for _, name, _, _ in rows)) + 2
    return [line for row in rows for line in _format_family_row(*row, names, screen)]


def _count_family_results(report: Report, letters: str) -> dict[str, int]:
    """The rules of one family by outcome."""
    severities = [f.severity for f in report.findings if f.code.startswith(letters)]
    return {
        "error": severities.count("error"),
        "warning": severities.count("warning"),
        "info": severities.count("info"),
        "undecided": sum(u.code.startswith(letters) for u in report.undecided),
        "unstated": sum(u.code.startswith(letters) for u in report.unstated),
        "ignored": sum(i.finding.code.startswith(letters) for i in report.ignored),
        "holds": sum(j.code.startswith(letters) for j in report.judged),
    }


def _family_mark(tally: dict[str, int], text: str) -> str:
    for kind in ("error", "warning", "undecided"):
        if tally[kind]:
            return kind
    # A family with nothing stated is not ok, even if a few of its rules hold.
    is_open = tally["unstated"] and (text == NOT_STATED or not (tally["holds"] or tally["info"]))
    return "undecided" if is_open else "ok"


def _format_family_counts(tally: dict[str, int]) -> str:
    """``1 error, 5 rules``: problems first, then all judged rules of the family."""
    rules = sum(count for kind, count in tally.items() if kind != "unstated")
    parts = [units.format_count(tally[kind], kind) for kind in _SERIOUS_SEVERITIES if tally[kind]]
    words = {"undecided": "undecided", "unstated": "not stated", "ignored": "ignored"}
    parts += [f"{tally[kind]} {word}" for kind, word in words.items() if tally[kind]]
    return ", ".join([*parts, units.format_count(rules, "rule")] if rules else parts)


def _format_family_row(mark: str, name: str, text: str, right: str, names: int, screen: Screen) -> list[str]:
    start = 2 + (2 if screen.ascii else 1) + 1 + names
    first, *rest = screen.align_ends(text, right, start)
    return [f"  {screen.status_mark(mark)} {pad_text(name, names)}{first}", *(" " * start + line for line in rest)]


def _proof_family_row(report: Report) -> tuple[str, str, str, str]:
    """The row of executed proofs: facts whose keys begin with ``can.``. A rule decides how serious a failure is."""
    ran = [f for f in report.facts if f.key.startswith("can.")]
    if ran:
        failed = any(f.value is not True and not f.gap for f in ran)
        mark = "warning" if failed else "undecided" if any(f.gap for f in ran) else "ok"
        return mark, "proof", facts_summary.summarize_proofs(ran), f"{len(ran)} executed"
    if report.facts.otherwise == NOT_STATED:
        return "undecided", "proof", "nothing is executed on a machine that is only stated", ""
    return "undecided", "proof", "nothing executed yet", f"gpuready prove {_contract_spec(report.contract)}"


# -- passed rules ---------------------------------------------------------------------------------------


def _format_job_placement(report: Report, screen: Screen) -> list[str]:
    """Where and in which precision the framework will run the job of a configuration file, and why."""
    lines: list[str] = []
    for key in ("job.device", "job.precision", "job.attention"):
        if key in report.facts:
            fact = report.facts.fact(key)
            text = f"not known ({fact.gap})" if fact.gap else f"{fact.value} ({fact.source})"
            lines += screen.lead_paragraph(f"{key.removeprefix('job.')}:", escape_unprintable(text), "dim")
    return lines


def _format_passed_rules(report: Report, screen: Screen) -> list[str]:
    rows = [row for judged in report.judged for row in _passed_rule_rows(report, judged)]
    return ["rules that hold, and what they read", *screen.indent_table(rows)] if rows else []


def _passed_rule_rows(report: Report, judged: PassedRule) -> list[tuple[str, str, str, str]]:
    facts = [report.facts.fact(key) for key in judged.read]
    return [
        ("" if i else judged.code, f.key, units.format_fact_value(f), f.gap or f.source) for i, f in enumerate(facts)
    ]


def _format_timings(seconds: Mapping[str, float], screen: Screen) -> list[str]:
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    timings = ", ".join(f"{name} {units.format_seconds(count, exact=True)}" for name, count in slowest)
    return screen.lead_paragraph("timings:", timings, "dim") if timings else []


# -- verdict --------------------------------------------------------------------------------------------


def verdict_words(report: Report) -> str:
    return report.verdict.replace("-", " ")


def _format_check_verdict(report: Report, screen: Screen, elapsed: float | None, verbose: bool) -> list[str]:
    word = verdict_words(report)
    right = "" if elapsed is None else units.format_seconds(elapsed, exact=verbose)
    return screen.format_header(
        f"{word}: {', '.join(count_phrases(report))}", right, VERDICT_ROLES[report.verdict], word
    )


def count_phrases(report: Report) -> list[str]:
    severities = [f.severity for f in report.findings]
    parts = [units.format_count(severities.count(kind), kind) for kind in _SERIOUS_SEVERITIES if severities.count(kind)]
    parts += [units.format_count(len(report.judged), "rule") + (" holds" if len(report.judged) == 1 else " hold")]
    parts += [f"{len(report.undecided)} undecided"]
    parts += [f"{len(report.unstated)} not stated"] if report.unstated else []
    parts += [f"{len(report.ignored)} ignored"] if report.ignored else []
    return [*parts, "strict"] if report.strict else parts


def list_next_commands(report: Report) -> list[tuple[str, str]]:
    """Suggested next commands, each with its purpose."""
    rows = []
    codes = [f.code for f in report.findings if f.severity != "info"] or [u.code for u in report.undecided]
    if any(f.severity == "error" for f in report.findings):
        file = _judges_container_file(report)
        rows.append((_plan_command(report), "one that fits" if file else "put the fixes in order; changes nothing"))
    if codes:
        rows.append((f"gpuready explain {codes[0]}", "the long story"))
    return rows


def _format_next_commands(report: Report, screen: Screen) -> list[str]:
    """The next commands, and the catalogue date."""
    rows = [(escape_unprintable(command), why) for command, why in list_next_commands(report)]
    width = max([display_width(command) for command, _ in rows], default=0) + 4
    lines = [line for row in rows for line in _format_suggestion(row, width, screen)]
    if report.catalog:
        lines += screen.format_paragraph(f"judged by the catalogue of {report.catalog}", 2)
    if report.facts.value_if_known("user.root"):
        lines += screen.format_paragraph("looked at as root: what another user may not open or write was not seen", 2)
    return lines


def _plan_command(report: Report) -> str:
    """The plan command for this framework and machine, as far as the Report knows how they were named."""
    name = _contract_spec(report.contract)
    if _judges_container_file(report):
        return f"gpuready plan {name} --format dockerfile"
    on_flag = f" --on {report.facts.host}" if report.facts.otherwise == NOT_STATED and report.facts.host else ""
    return f"gpuready plan {name}{on_flag}"


def _judges_container_file(report: Report) -> bool:
    """Whether a container file was judged: nothing else states ``os.container``."""
    return report.facts.fact("os.container").how == "stated"


def _contract_spec(contract: Contract) -> str:
    """``FRAMEWORK:VARIANT``, as a command takes it."""
    return contract.framework + (f":{contract.variant}" if contract.variant else "")


def _format_suggestion(row: tuple[str, str], width: int, screen: Screen) -> list[str]:
    command, why = row
    if 2 + width + display_width(why) > screen.width:
        return screen.format_paragraph(f"{command}  {why}", 2, 4)
    return ["  " + pad_text(command, width) + screen.apply_style(why, "dim")]
