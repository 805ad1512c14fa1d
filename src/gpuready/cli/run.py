"""``gpuready run``: start a script on every GPU of every node, show what the ranks write, and diagnose a failure."""

from __future__ import annotations

import sys
import time

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.diagnosis import Diagnosis
    from gpuready.render.layout import Screen


_FLAGS = (
    Flag("--nproc", "ranks on each node: a number, or gpu (default: one for each GPU)", "N"),
    Flag("--nnodes", "how many nodes", "N"),
    Flag("--node-rank", "which of them this is, from 0 on", "R"),
    Flag("--master", "where rank 0 listens; without it a free port is chosen", "HOST:PORT"),
    Flag("--engine", "what starts the ranks underneath", "ENGINE", ("local", "torchrun", "slurm", "mpi", "ray")),
    Flag("--python", "the environment that the script runs in", "PATH"),
    Flag("--log-dir", "where each rank's log is kept (default gpuready-logs/RUN)", "DIR"),
    Flag("--restarts", "start again after a failure, where that can help", "N"),
    Flag("--hang-timeout", "end the run when no rank has written for so long", "SECONDS"),
    Flag("--window", "how long to wait for every rank to begin (default 60)", "SECONDS"),
    Flag("--check-collectives", "name collectives that differ between ranks, with their shapes; slower"),
    Flag("--fork", "import torch once and fork the ranks, or refuse"),
    Flag("--reap", "first end ranks of yours that outlived their launcher"),
    Flag("--no-preflight", "start without looking first"),
    Flag("--dry-run", "show what would start where, with every variable"),
    Flag("-q", "only what the ranks write, and one line at the end"),
)
COMMANDS = (
    CommandSpec(
        "run",
        "start a script on every GPU, and say why it died",
        _FLAGS + COMMON_FLAGS,
        "[FRAMEWORK]",
        0,
        1,
        "SCRIPT [ARGS ...]",
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    if not parsed.rest:
        raise UsageError("gpuready run needs a SCRIPT after --: gpuready run --nproc 2 -- train.py --lr 1e-4")
    from gpuready.workflow import run as running

    flags = parsed.flags
    ready = running.prepare_run(parsed.rest, parsed.arguments[0] if parsed.arguments else None, flags=flags)
    if flags.get("dry-run"):
        return _format_dry_run(running.describe_start(ready), flags, screen), ready.refused
    if ready.refused:
        return _format_refusal(ready, flags, screen), ready.refused
    _print_warnings(ready, flags, screen)
    outcome, found = running.run_job(ready, lambda job, book: TerminalRunReporter(job, book, flags, screen))
    return _format_outcome(outcome, found, flags, screen), outcome.code


def _format_dry_run(plan: dict[str, Any], flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import json_results
    from gpuready.render import run as shown

    return json_results.render_start_json(plan) if flags.get("json") else shown.render_run_plan(plan, screen)


def _format_refusal(ready: Any, flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import json_results
    from gpuready.render import run as shown

    if flags.get("json"):
        return json_results.render_refused_json(ready.refused, ready.sights)
    return shown.render_run_refusal(ready.sights, screen)


def _print_warnings(ready: Any, flags: dict[str, Any], screen: Screen) -> None:
    from gpuready.cli import terminal
    from gpuready.render import run as shown

    rows = [sight for sight in ready.sights if sight.severity == "warning"]
    if rows and not flags.get("q"):
        terminal.write_note(shown.render_preflight(rows, screen.replace(colour=False)))


def _format_outcome(outcome: Any, found: Diagnosis | None, flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import diagnosis, json_results
    from gpuready.render import run as shown

    if flags.get("json"):
        return json_results.render_run_json(outcome, found)
    if flags.get("q"):
        return shown.format_outcome_line(outcome)
    text = shown.render_post_mortem(outcome, screen)
    if outcome.verdict in ("done", "interrupted"):
        return text if outcome.last.notes or "warning" in text else shown.format_outcome_line(outcome)
    if found is not None and found.verdict == "cause":
        return "\n" + text + "\n" + diagnosis.render_diagnosis_screen(found, screen)
    return "\n" + text


class TerminalRunReporter:
    """Show a running job: the ranks' lines, notes, and on a terminal a status line for each node."""

    def __init__(self, job: Any, book: Any, flags: dict[str, Any], screen: Screen):
        from gpuready.cli import terminal

        self.job, self.book, self.screen = job, book, screen
        self.quiet, self.json = bool(flags.get("q")), bool(flags.get("json"))
        self.write = terminal.write_note if self.json else terminal.write_answer
        self.note_line = terminal.write_note
        self.is_live = sys.stderr is not None and sys.stderr.isatty() and not self.json and not self.quiet
        self.drawn_lines = 0
        self.started = time.monotonic()

    def write_line(self, rank: int, host: str, text: str) -> None:
        from gpuready.render import run as shown

        self.book.write_line(f"rank-{rank}", text)
        self._clear_status()
        if self.json:
            self.write(shown.format_rank_line(rank, text, False))
        elif self.job.world == 1:
            self.write(shown.format_rank_line(rank, text, False).partition(" ")[2])
        else:
            self.write(shown.format_rank_line(rank, text, self.screen.colour))

    def write_engine_line(self, text: str) -> None:
        self.book.write_line("engine", text)
        self._clear_status()
        if not self.quiet:
            self.note_line(f"[{self.job.engine}] {text}")

    def write_note(self, note: Any) -> None:
        from gpuready.render import run as shown

        self._clear_status()
        for text in shown.format_run_note(note):
            self.note_line(text)

    def show_progress(self, ledger: Any, now: float) -> None:
        """Redraw one status line for each node."""
        if not self.is_live:
            return
        self._clear_status()
        nodes: dict[str, list[Any]] = {}
        for life in ledger.ranks.values():
            nodes.setdefault(life.host or "starting", []).append(life)
        rows = [self._node_status_row(host, lives, now) for host, lives in nodes.items()][:16]
        sys.stderr.write("".join(f"{row}\n" for row in rows))
        sys.stderr.flush()
        self.drawn_lines = len(rows)

    def _node_status_row(self, host: str, lives: list[Any], now: float) -> str:
        from gpuready.render.escape import escape_unprintable

        alive = sum(life.is_alive for life in lives)
        busy = sum(bool(life.beats) and life.beats[-1][1] == "R" for life in lives if life.is_alive)
        quiet = now - max(life.last_output for life in lives) if alive else 0.0
        text = f"{escape_unprintable(host)}: {alive} of {len(lives)} ranks, {busy} on a processor, {now - self.started:.0f} s"
        return self.screen.truncate_text(
            text + (f", quiet for {quiet:.0f} s" if quiet > 5 else ""), self.screen.width - 1
        )

    def _clear_status(self) -> None:
        if self.drawn_lines:
            sys.stderr.write(f"\x1b[{self.drawn_lines}A\x1b[J")
            sys.stderr.flush()
            self.drawn_lines = 0
