"""``gpuready check``: is this machine clear for a framework?"""

from __future__ import annotations

import time

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model import Report
    from gpuready.render.layout import Screen

    CommandOutput = tuple[str, int]

_FLAGS = (
    *TARGET_FLAGS,
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--model", "the job's model: a size such as 7b, or its config.json", "MODEL"),
    Flag("--config", "the job's own configuration file", "FILE"),
    Flag("--contract", "judge by this contract too, or by it alone", "FILE"),
    Flag("--dockerfile", "a Dockerfile or compose file, on the host of --on and --driver", "FILE"),
    Flag("--strict", "count warnings and everything undecided as errors"),
    Flag("--ignore", "set a finding aside; the reason shows in the report", "CODE=REASON", many=True),
    Flag("--since", "a recording from when it worked: also what changed since", "FILE"),
    Flag("--format", "the answer for other tools", "FORMAT", ("text", "json", "sarif", "junit")),
    Flag("-q", "one line for each framework"),
    Flag("-v", "also the facts that held, and the timings"),
    *WHAT_IF_FLAGS,
)
_PASSED_FLAGS = ("on", "python", "wants", "model", "config", "contract", "dockerfile")
COMMANDS = (
    CommandSpec("check", "is this machine clear for a framework?", _FLAGS + COMMON_FLAGS, "[FRAMEWORK ...]", most=999),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    ignore = _parse_ignore_reasons(flags.get("ignore", []))
    from gpuready import workflow
    from gpuready.model import EXIT_CODES, worst_verdict

    seconds: dict[str, float] = {}
    reports = workflow.check_machine(
        list(parsed.arguments),
        **{name: flags.get(name) for name in _PASSED_FLAGS},
        ignore=ignore,
        strict=bool(flags.get("strict")),
        what_if=what_if_values(flags),
        seconds=seconds,
        partial=True,
    )
    form = _choose_check_format(flags)
    if form in ("sarif", "junit"):
        text = _format_for_tools(form, reports)
    elif form == "json":
        text = _format_json(reports, parsed)
    elif flags.get("q"):
        text = _format_summary_lines(reports)
    else:
        text = _format_screens(reports, screen, started, bool(flags.get("v")), seconds)
        text += _format_changes_since(flags.get("since"), reports, screen)
    return text, EXIT_CODES[worst_verdict(report.verdict for report in reports)]


def _choose_check_format(flags: Mapping[str, Any]) -> str:
    requested = str(flags.get("format", "json" if flags.get("json") else "text"))
    if flags.get("json") and requested != "json":
        raise UsageError(f"--json and --format {requested} do not go together: choose one")
    return requested


def _format_for_tools(form: str, reports: list[Report]) -> str:
    if form == "junit":
        from gpuready.render import junit

        return junit.render_junit_xml(reports)
    from gpuready import workflow
    from gpuready.render import sarif

    return sarif.render_sarif(reports, {code: workflow.explain_rule(code) for code in workflow.list_rule_codes()})


def _format_changes_since(path: str | None, reports: list[Report], screen: Screen) -> str:
    if path is None:
        return ""
    from gpuready import workflow
    from gpuready.render import changes

    return f"\nsince {path}:\n\n" + changes.render_fact_changes(
        workflow.changes_since_recording(path, reports[0]), screen
    )


def _parse_ignore_reasons(ignored: list[str]) -> dict[str, str]:
    reasons = {}
    for text in ignored:
        code, _, reason = text.partition("=")
        if not code.strip() or not reason.strip():
            shown_code = code.strip() or "CODE"
            raise UsageError(
                f'--ignore {shown_code} needs a reason: --ignore {shown_code}="why it does not matter here"'
            )
        reasons[code.strip().upper()] = reason.strip()
    return reasons


def _format_json(reports: list[Report], parsed: ParsedCommand) -> str:
    """Return one Report for one named framework; a list otherwise, of any length."""
    from gpuready.render import json_results

    return json_results.render_check_json(reports, len(parsed.arguments) + ("contract" in parsed.flags) == 1)


def _format_summary_lines(reports: list[Report]) -> str:
    from gpuready.render import check_report

    return "".join(check_report.format_check_line(report) for report in reports)


def _format_screens(
    reports: list[Report], screen: Screen, started: float, verbose: bool, seconds: Mapping[str, float]
) -> str:
    from gpuready.render import check_report

    last = len(reports) - 1
    parts = []
    for i, report in enumerate(reports):
        elapsed = time.perf_counter() - started if i == last else None
        timings = seconds if i == last else {}
        parts.append(
            check_report.render_check_screen(report, screen, elapsed=elapsed, verbose=verbose, seconds=timings)
        )
    return "\n".join(parts)
