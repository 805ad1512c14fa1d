"""The short list of a check: what is wrong, one numbered line each with its code at the right; the rest in ``-v``."""

from collections.abc import Sequence

from gpuready.model import Finding, Report, UndecidedRule
from gpuready.model.contract import describe_want
from gpuready.model.facts import UNSTATED_TEXT
from gpuready.render import units
from gpuready.render.finding import group_undecided, lowercase_opener
from gpuready.render.layout import Screen

_TEXT_COLUMN = 5
_ROW_COLUMN = 9
MAX_ROWS = 3
"""Rows of a finding's table; where there are more, one less and how many."""

_SUBJECTS = {
    "gpu": "GPU", "toolkit": "CUDA toolkit", "cache": "caches", "python": "Python", "package": "packages",
    "extension": "packages", "env": "environment variables", "os": "operating system", "system": "system settings",
    "memory": "RAM", "limit": "limits", "net": "network", "nccl": "NCCL", "cudnn": "cuDNN", "library": "libraries",
    "hub": "model cache", "cpu": "CPU", "can": "proofs",
}  # fmt: skip
"""What a fact is about, by the first part of its key; the others are called as their key begins."""
_MAIN_FACTS = ("gpu.count", "driver.version", "torch.version", "python.version", "os.system")
"""The fact that says what it is; where it was stated, only details are missing."""


def format_problem_list(report: Report, screen: Screen) -> list[str]:
    """Errors and warnings by number, findings set aside, and what could not be decided."""
    lines: list[str] = []
    for number, finding in enumerate((f for f in report.findings if f.severity != "info"), 1):
        lines += _format_problem(str(number), finding, screen)
    for item in report.ignored:
        text = f"ignored: {item.finding.says} (reason: {item.reason})"
        lines += format_list_item("-", text, item.finding.code, screen, "dim")
    return lines + _format_open_questions(report, screen) + _format_notes(report, screen)


def format_list_item(mark: str, text: str, right: str, screen: Screen, role: str) -> list[str]:
    """``  1  text      CODE``"""
    first, *rest = screen.align_ends(text, right, _TEXT_COLUMN)
    return [
        f"  {screen.apply_style(mark, role)}{' ' * (3 - len(mark))}{first}",
        *(" " * _TEXT_COLUMN + r for r in rest),
    ]


def _format_problem(number: str, finding: Finding, screen: Screen) -> list[str]:
    is_error = finding.severity == "error"
    code = finding.code if is_error else f"{finding.severity} {finding.code}"
    role = "error" if is_error else "warning"
    fix = f"fix: {finding.fix[0].does}" if finding.fix else ""
    return [
        *format_list_item(number, finding.says, code, screen, role),
        *_format_mismatches(finding, screen),
        *(screen.format_paragraph(fix, _ROW_COLUMN, 5) if fix else []),
    ]


def _format_mismatches(finding: Finding, screen: Screen) -> list[str]:
    """What was found beside what is needed, for the values that are compared."""
    rows = list_mismatches(finding)
    shown = rows if len(rows) <= MAX_ROWS else rows[: MAX_ROWS - 1]
    lines = [" " * _ROW_COLUMN + line for row in screen.format_table(shown, _ROW_COLUMN) for line in row]
    rest = len(rows) - len(shown)
    return [*lines, f"{' ' * _ROW_COLUMN}{screen.ellipsis} {rest} more (-v)"] if rest else lines


def list_mismatches(finding: Finding) -> list[tuple[str, str, str]]:
    """``("torch", "2.11.0", "needs >= 2.13.0, < 2.15.0")`` for each value that is there and outside a bound."""
    found = {fact.key: fact for fact in finding.found if fact.value and fact.value is not True and not fact.gap}
    wants: dict[str, list[str]] = {}
    for need in finding.needs:
        if need.key in found and need.want[:1] in "<>=!~":
            wants.setdefault(need.key, []).append(describe_want(need.want))
    return [
        (key.removeprefix("package."), units.format_fact_value(found[key]), f"needs {', '.join(several)}")
        for key, several in wants.items()
    ]


# -- what is open ---------------------------------------------------------------------------------------------


def _format_open_questions(report: Report, screen: Screen) -> list[str]:
    """One line for each reason why something could not be decided; few of them where they do not decide the verdict."""
    groups = group_undecided(report)
    most = 5 if report.verdict == "undecided" else 1
    shown = groups if len(groups) <= most + 1 else groups[:most]
    lines = [line for several in shown for line in format_open_question(several, screen)]
    rest = sum(len(several) for several in groups[len(shown) :])
    return (
        [*lines, *format_list_item("?", f"can't tell for {rest} more checks (-v)", "", screen, "undecided")]
        if rest
        else lines
    )


def format_open_question(several: Sequence[UndecidedRule], screen: Screen, verbose: bool = False) -> list[str]:
    """Rules that are undecided for the same reason: the reason once; with ``verbose`` every fact and code."""
    keys = list(dict.fromkeys(fact.key for item in several for fact in item.missing))
    reasons = "; ".join(dict.fromkeys(fact.gap for fact in several[0].missing))
    most = len(keys) if verbose else 2
    unknown = (
        f"{', '.join(keys[:most])}{f' and {len(keys) - most} more' if len(keys) > most else ''} unknown ({reasons})"
    )
    if len(several) == 1:
        text, code = f"can't tell whether {lowercase_opener(several[0].says)}", several[0].code
    else:
        text, code = f"can't tell for {len(several)} checks", f"{several[0].code} +{len(several) - 1}"
    if verbose and len(several) > 1:
        text, code = f"{text} ({', '.join(item.code for item in several)})", ""
    return format_list_item("?", f"{text}: {unknown}" if keys else text, code, screen, "undecided")


_STATED_EXAMPLES = {"driver": "580.95.05", "torch": "2.13.0"}
"""Versions that are written as --as takes them."""


def _format_notes(report: Report, screen: Screen) -> list[str]:
    """What a what-if was not given, and how many notes there are."""
    lines: list[str] = []
    if report.unstated:
        if flags := [f"{name}={_STATED_EXAMPLES[name]}" for name in report.lacking if name in _STATED_EXAMPLES]:
            text = f"state what is missing, such as --as {','.join(flags)}"
            lines += format_list_item("-", text, "", screen, "dim")
        lines += format_list_item("?", f"{UNSTATED_TEXT}: {describe_missing(report)} (-v)", "", screen, "undecided")
    if infos := [f.code for f in report.findings if f.severity == "info"]:
        text = f"{units.format_count(len(infos), 'note')} (-v)"
        lines += format_list_item("-", text, " ".join(infos[:3]), screen, "dim")
    return lines


def describe_missing(report: Report) -> str:
    """``packages, disk; details of driver, GPU``: what the missing facts are about."""
    families = dict.fromkeys(fact.key.partition(".")[0] for rule in report.unstated for fact in rule.missing)
    stated = {key.partition(".")[0] for key in _MAIN_FACTS if not report.facts.fact(key).gap}
    missing = dict.fromkeys(_SUBJECTS.get(family, family) for family in families if family not in stated)
    named = ", ".join(_SUBJECTS.get(family, family) for family in families if family in stated)
    return "; ".join(part for part in (", ".join(missing), f"details of {named}" if named else "") if part)
