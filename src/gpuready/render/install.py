"""The screen of ``gpuready install``: the result, or what would run."""

from typing import Any

from gpuready.model.facts import verdict_words
from gpuready.model.plan import InstallResult, Plan
from gpuready.render import finding, json_document, units
from gpuready.render.layout import Screen, join_sections
from gpuready.render.plan import list_next_commands
from gpuready.render.problem_list import format_open_question

_MAX_FAULTS = 40
"""Further faults are only counted; the JSON has all."""

_VERDICT_HEADLINES = {
    "installed": "installed",
    "unchanged": "unchanged: this plan is already installed",
    "failed": "failed: the environment was not changed",
    "dry-run": "dry run: nothing was run or changed",
    "rolled-back": "rolled back",
    "intact": "intact: no file is missing or changed",
    "damaged": "damaged: files are missing or changed",
    "undecided": "can't tell: the environment was not installed by your gpuready",
}
_AFTER_INSTALL = (
    "then every file is verified, the framework is imported and gpuready check must find no problems; the new "
    "environment becomes current by one atomic switch of a link"
)
_GOOD_VERDICTS = ("installed", "unchanged", "rolled-back", "intact")


def render_install_screen(result: InstallResult, screen: Screen) -> str:
    sections = [_format_install_header(result, screen), _format_install_plan(result, screen)]
    if result.verdict == "dry-run":
        sections.append(_format_install_steps(result, screen))
    if result.says:
        sections.append(screen.format_paragraph(result.says, 0, 2))
    sections += [_format_fault_table(result, screen), *_format_install_findings(result, screen)]
    sections.append(screen.lead_paragraphs("note:", result.notes, "dim"))
    return join_sections([*sections, _format_activate_hint(result, screen)])


def render_install_proposal(result: InstallResult, screen: Screen) -> str:
    """What would be installed, for a person to confirm."""
    head = screen.format_paragraph(f"{_installed_name(result.plan)} into {result.environment}")
    notes = screen.lead_paragraphs("note:", result.notes, "info")
    return "\n".join([*head, "", *_format_install_plan(result, screen), *notes])


def _format_install_header(result: InstallResult, screen: Screen) -> list[str]:
    word = _VERDICT_HEADLINES[result.verdict]
    right = units.format_seconds(result.seconds) if result.seconds else ""
    role = "ok" if result.verdict in _GOOD_VERDICTS else "info" if result.verdict == "dry-run" else "error"
    where = screen.wrap_text(result.environment, screen.width - 15)
    return [*screen.format_header(word, right, role), *screen.label_lines("  environment", where, -13)]


def _installed_name(plan: Plan) -> str:
    named = f"{plan.framework} {plan.packages.get(plan.framework, plan.version)}".strip()
    return named or f"a lock of {units.format_count(len(plan.lock), 'package')}"


def _format_install_plan(result: InstallResult, screen: Screen) -> list[str]:
    rows = [("stored as", result.stored_as)] if result.stored_as else []
    if result.previous:
        rows.append(("previous", result.previous))
    if result.plan is not None:
        rows += _installed_content_rows(result.plan)
    elif result.need.get("packages"):
        rows.append(("packages", str(result.need["packages"])))
    if result.need.get("size"):
        how = result.need.get("how", "")
        files = result.need.get("files", 0)
        rows.append(("size", f"about {units.format_bytes(result.need['size'])} and {files} files ({how})"))
    return screen.indent_table(rows)


def _installed_content_rows(plan: Plan) -> list[tuple[str, str]]:
    rows = [("content", _installed_name(plan))]
    if plan.python:
        rows.append(("python", plan.python))
    if plan.torch:
        rows.append(("torch", plan.torch))
    if plan.contract_note:
        rows.append(("requirements", plan.contract_note))
    return [*rows, ("packages", str(len(plan.lock)))]


def _format_install_steps(result: InstallResult, screen: Screen) -> list[str]:
    lines: list[str] = []
    for step in result.steps:
        lines += screen.format_paragraph(step.does + (f" ({step.note})" if step.note else ""), 2)
        lines += screen.format_command(step.run, 2)
    return [*lines, "", *screen.format_paragraph(_AFTER_INSTALL, 2)] if lines else lines


def _format_fault_table(result: InstallResult, screen: Screen) -> list[str]:
    shown = result.faults[:_MAX_FAULTS]
    rows = [(fault.kind, fault.path, ": ".join(filter(None, (fault.package, fault.says)))) for fault in shown]
    left = len(result.faults) - len(rows)
    return screen.indent_table(rows) + ([f"  and {left} more: --json lists them all"] if left > 0 else [])


def _format_install_findings(result: InstallResult, screen: Screen) -> list[list[str]]:
    report = result.report
    if report is None:
        return []
    if result.verdict == "failed":
        blocks = [finding.format_finding(f, screen) for f in report.findings if f.severity == "error"]
        return [*blocks, [line for u in report.undecided for line in format_open_question([u], screen)]]
    warnings = sum(f.severity == "warning" for f in report.findings)
    warning_suffix = f", {units.format_count(warnings, 'warning')}" if warnings else ""
    ignored = [f"{one.finding.code} set aside: {one.reason}" for one in report.ignored]
    text = "; ".join([f"checked: {verdict_words(report.verdict)}{warning_suffix}", *ignored])
    return [screen.format_paragraph(text, 2)] if report.judged or report.findings else []


def _format_activate_hint(result: InstallResult, screen: Screen) -> list[str]:
    if result.verdict in ("installed", "unchanged", "rolled-back"):
        start = result.plan.start if result.plan is not None else ()
        return screen.format_labelled_commands(list_next_commands(start, result.environment))
    if result.verdict == "damaged":
        return screen.format_paragraph("install the same plan again to repair it, or go back with --rollback", 2)
    return []


def install_json_fields(result: InstallResult) -> dict[str, Any]:
    result_json = result.to_json()
    if result.report is not None:
        result_json["report"] = json_document.report_json_fields(result.report)
    return result_json
