"""``gpuready check``: is this machine clear for a framework?"""

from __future__ import annotations

import time

from gpuready.cli.words import EVERYWHERE, PATIENT, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.model import Report
    from gpuready.render.layout import Screen

    Answer = tuple[str, int]

_FLAGS = (
    *PATIENT,
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
    *WHAT_IF,
)
_PASSED = ("on", "python", "wants", "model", "config", "contract", "dockerfile")
COMMANDS = (
    Command(
        "check",
        "is this machine clear for a framework?",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK ...]",
        most=999,
    ),
)


def run(told: Told, screen: Screen, started: float) -> Answer:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    ignore = _reasons(flags.get("ignore", []))
    from gpuready import workflow
    from gpuready.model import EXIT, worst

    seconds: dict[str, float] = {}
    reports = workflow.check(
        list(told.arguments),
        **{name: flags.get(name) for name in _PASSED},
        ignore=ignore,
        strict=bool(flags.get("strict")),
        what_if=what_if(flags),
        seconds=seconds,
        partial=True,
    )
    form = _format(flags)
    if form in ("sarif", "junit"):
        text = _for_tools(form, reports)
    elif form == "json":
        text = _json(reports, told)
    elif flags.get("q"):
        text = _lines(reports)
    else:
        text = _screens(reports, screen, started, bool(flags.get("v")), seconds)
        text += _since(flags.get("since"), reports, screen)
    return text, EXIT[worst(report.verdict for report in reports)]


def _format(flags: Mapping[str, Any]) -> str:
    asked = str(flags.get("format", "json" if flags.get("json") else "text"))
    if flags.get("json") and asked != "json":
        raise Usage(f"--json and --format {asked} do not go together: choose one")
    return asked


def _for_tools(form: str, reports: list[Report]) -> str:
    if form == "junit":
        from gpuready.render import junit

        return junit.document(reports)
    from gpuready import workflow
    from gpuready.render import sarif

    return sarif.document(reports, {code: workflow.explain(code) for code in workflow.codes()})


def _since(path: str | None, reports: list[Report], screen: Screen) -> str:
    if path is None:
        return ""
    from gpuready import workflow
    from gpuready.render import changes

    return f"\nsince {path}:\n\n" + changes.listing(workflow.since(path, reports[0]), screen)


def _reasons(given: list[str]) -> dict[str, str]:
    reasons = {}
    for text in given:
        code, _, reason = text.partition("=")
        if not code.strip() or not reason.strip():
            asked = code.strip() or "CODE"
            raise Usage(f'--ignore {asked} needs a reason: --ignore {asked}="why it does not matter here"')
        reasons[code.strip().upper()] = reason.strip()
    return reasons


def _json(reports: list[Report], told: Told) -> str:
    """Return one Report for one named framework; a list otherwise, of any length."""
    from gpuready.render import answers

    return answers.check(reports, len(told.arguments) + ("contract" in told.flags) == 1)


def _lines(reports: list[Report]) -> str:
    from gpuready.render import text

    return "".join(text.line(report) for report in reports)


def _screens(
    reports: list[Report], screen: Screen, started: float, verbose: bool, seconds: Mapping[str, float]
) -> str:
    from gpuready.render import text

    last = len(reports) - 1
    parts = []
    for i, report in enumerate(reports):
        elapsed = time.perf_counter() - started if i == last else None
        told = seconds if i == last else {}
        parts.append(text.render(report, screen, elapsed=elapsed, verbose=verbose, seconds=told))
    return "\n".join(parts)
