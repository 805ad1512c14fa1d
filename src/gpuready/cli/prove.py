"""``gpuready prove``: execute capabilities on this machine."""

from __future__ import annotations

import sys
import time

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.proven import Proof
    from gpuready.render.layout import Screen
    from gpuready.workflow.proving import Proved

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
    Command(
        "prove",
        "run it and see: capabilities executed on this machine, with their numbers",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK|CAPABILITY ...]",
        most=999,
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    from gpuready.workflow import proving

    if flags.get("list"):
        return _listed(proving.listed(), flags, screen), 0
    from gpuready.model import EXIT, worst

    proved = proving.prove(
        list(told.arguments),
        **{name: flags.get(name) for name in ("python", "wants", "model", "config", "contract")},
        strict=bool(flags.get("strict")),
        deadline=_number(flags, "deadline", float),
        jobs=int(_number(flags, "jobs", int)),
        into=flags.get("o"),
        tell=_teller(flags, screen),
    )
    verdict = worst(report.verdict for report in proved.reports)
    return _answer(proved, flags, screen, time.perf_counter() - started), EXIT[verdict]


def _number(flags: Mapping[str, Any], name: str, kind: type) -> float:
    word = flags.get(name)
    if word is None:
        return 0
    try:
        found = kind(word)
    except ValueError:
        found = 0
    if not 0 < found < 86400:
        raise Usage(f"--{name} takes a number above 0, not {word!r}")
    return float(found)


def _teller(flags: Mapping[str, Any], screen: Screen) -> Any:
    """Return a callback that prints one line per finished proof; None off a terminal."""
    if flags.get("q") or sys.stderr is None or not sys.stderr.isatty():
        return None
    from gpuready.cli import terminal
    from gpuready.render import prove

    def tell(proof: Proof, done: int, count: int) -> None:
        terminal.note(prove.progress(proof, done, count, screen))

    return tell


def _answer(proved: Proved, flags: Mapping[str, Any], screen: Screen, elapsed: float) -> str:
    from gpuready.render import answers, prove, text

    if flags.get("json"):
        return answers.prove(proved)
    if flags.get("q"):
        return "".join(text.line(report) for report in proved.reports)
    return prove.page(
        proved.reports,
        proved.evidence,
        screen,
        elapsed=elapsed,
        verbose=bool(flags.get("v")),
        kept=proved.saved,
        note=proved.note,
    )


def _listed(rows: list[Any], flags: Mapping[str, Any], screen: Screen) -> str:
    from gpuready.render import answers, prove

    if flags.get("json"):
        return answers.proofs(rows)
    return prove.listing(rows, screen)
