"""``gpuready prove``: execute capabilities on this machine."""

from __future__ import annotations

import sys
import time

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.proof import ProofResult
    from gpuready.render.layout import Screen
    from gpuready.workflow.prove import ProveResult

_FLAGS = (
    Flag("--python", "the environment to prove: a Python, a venv or a conda prefix", "PATH"),
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--model", "the job's model: a size such as 7b, or its config.json", "MODEL"),
    Flag("--config", "the job's own configuration file", "FILE"),
    Flag("--contract", "prove what this contract needs", "FILE"),
    Flag("--deadline", "seconds for each proof, in place of its own", "SECONDS"),
    Flag("--jobs", "processes beside each other", "N"),
    Flag("--list", "show every proof there is, and run none"),
    Flag("--strict", "count warnings and everything undecided as errors"),
    Flag("-o", "write the evidence to this file", "FILE"),
    Flag("-q", "one line for each framework"),
    Flag("-v", "also every number, and the output of what failed"),
)
COMMANDS = (
    CommandSpec(
        "prove",
        "run it and see: capabilities executed on this machine, with their numbers",
        _FLAGS + COMMON_FLAGS,
        "[FRAMEWORK|CAPABILITY ...]",
        most=999,
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    from gpuready.workflow import prove

    if flags.get("list"):
        return _format_proof_list(prove.list_proofs(), flags, screen), 0
    from gpuready.model import EXIT_CODES, worst_verdict

    proved = prove.run_proofs(
        list(parsed.arguments),
        **{name: flags.get(name) for name in ("python", "wants", "model", "config", "contract")},
        strict=bool(flags.get("strict")),
        deadline=_parse_prove_number(flags, "deadline", float),
        jobs=int(_parse_prove_number(flags, "jobs", int)),
        into=flags.get("o"),
        tell=_make_proof_reporter(flags, screen),
    )
    verdict = worst_verdict(report.verdict for report in proved.reports)
    return _format_proofs(proved, flags, screen, time.perf_counter() - started), EXIT_CODES[verdict]


def _parse_prove_number(flags: Mapping[str, Any], name: str, kind: type) -> float:
    word = flags.get(name)
    if word is None:
        return 0
    try:
        found = kind(word)
    except ValueError:
        found = 0
    if not 0 < found < 86400:
        raise UsageError(f"--{name} takes a number above 0, not {word!r}")
    return float(found)


def _make_proof_reporter(flags: Mapping[str, Any], screen: Screen) -> Any:
    """Return a callback that prints one line per finished proof; None off a terminal."""
    if flags.get("q") or sys.stderr is None or not sys.stderr.isatty():
        return None
    from gpuready.cli import terminal
    from gpuready.render import prove

    def report_proof(proof: ProofResult, done: int, count: int) -> None:
        terminal.write_note(prove.format_proof_progress(proof, done, count, screen))

    return report_proof


def _format_proofs(proved: ProveResult, flags: Mapping[str, Any], screen: Screen, elapsed: float) -> str:
    from gpuready.render import check_report, json_results, prove

    if flags.get("json"):
        return json_results.render_prove_json(proved)
    if flags.get("q"):
        return "".join(check_report.format_check_line(report) for report in proved.reports)
    return prove.render_proof_screen(
        proved.reports,
        proved.evidence,
        screen,
        elapsed=elapsed,
        verbose=bool(flags.get("v")),
        saved_path=proved.saved,
        note=proved.note,
    )


def _format_proof_list(rows: list[Any], flags: Mapping[str, Any], screen: Screen) -> str:
    from gpuready.render import json_results, prove

    if flags.get("json"):
        return json_results.render_proofs_json(rows)
    return prove.render_proof_list(rows, screen)
