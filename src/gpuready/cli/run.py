"""``gpuready run``: start a script on every GPU of every node, show what the ranks write, and diagnose a failure."""

from __future__ import annotations

import sys
import time

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.diagnosed import Diagnosis
    from gpuready.render.layout import Screen


_FLAGS = (
    Flag("--nproc", "ranks on each node: a number, or gpu (default: one for each GPU)", "N"),
    Flag("--nnodes", "how many nodes", "N"),
    Flag("--node-rank", "which of them this is, from 0 on", "R"),
    Flag("--master", "where rank 0 listens; without it a free port is chosen", "HOST:PORT"),
    Flag(
        "--engine", "what starts the ranks underneath", "ENGINE", ("local", "torchrun", "slurm", "mpi", "ray")
    ),
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
    Command(
        "run",
        "start a script on every GPU, and say why it died",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK]",
        0,
        1,
        "SCRIPT [ARGS ...]",
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    if not told.rest:
        raise Usage("gpuready run needs a SCRIPT after --: gpuready run --nproc 2 -- train.py --lr 1e-4")
    from gpuready.workflow import running

    flags = told.flags
    ready = running.prepare(told.rest, told.arguments[0] if told.arguments else None, flags=flags)
    if flags.get("dry-run"):
        return _planned(running.planned(ready), flags, screen), ready.refused
    if ready.refused:
        return _refused(ready, flags, screen), ready.refused
    _warnings(ready, flags, screen)
    outcome, found = running.run(ready, lambda job, book: Teller(job, book, flags, screen))
    return _told(outcome, found, flags, screen), outcome.code


def _planned(plan: dict[str, Any], flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import answers
    from gpuready.render import run as shown

    return answers.start(plan) if flags.get("json") else shown.plan(plan, screen)


def _refused(ready: Any, flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import answers
    from gpuready.render import run as shown

    if flags.get("json"):
        return answers.refused(ready.refused, ready.sights)
    return shown.refusal(ready.sights, screen)


def _warnings(ready: Any, flags: dict[str, Any], screen: Screen) -> None:
    from gpuready.cli import terminal
    from gpuready.render import run as shown

    rows = [sight for sight in ready.sights if sight.severity == "warning"]
    if rows and not flags.get("q"):
        terminal.note(shown.sights(rows, screen.but(colour=False)))


def _told(outcome: Any, found: Diagnosis | None, flags: dict[str, Any], screen: Screen) -> str:
    from gpuready.render import answers, diagnosis
    from gpuready.render import run as shown

    if flags.get("json"):
        return answers.run(outcome, found)
    if flags.get("q"):
        return shown.summary(outcome)
    text = shown.post_mortem(outcome, screen)
    if outcome.verdict in ("done", "interrupted"):
        return text if outcome.last.notes or "warning" in text else shown.summary(outcome)
    if found is not None and found.verdict == "cause":
        return "\n" + text + "\n" + diagnosis.page(found, screen)
    return "\n" + text


class Teller:
    """Show a running job: the ranks' lines, notes, and on a terminal a status line for each node."""

    def __init__(self, job: Any, book: Any, flags: dict[str, Any], screen: Screen):
        from gpuready.cli import terminal

        self.job, self.book, self.screen = job, book, screen
        self.quiet, self.json = bool(flags.get("q")), bool(flags.get("json"))
        self.write = terminal.note if self.json else terminal.answer
        self.note_line = terminal.note
        self.live = sys.stderr is not None and sys.stderr.isatty() and not self.json and not self.quiet
        self.drawn = 0
        self.began = time.monotonic()

    def line(self, rank: int, host: str, text: str) -> None:
        from gpuready.render import run as shown

        self.book.write(f"rank-{rank}", text)
        self._clear()
        if self.json:
            self.write(shown.line(rank, text, False))
        elif self.job.world == 1:
            self.write(shown.line(rank, text, False).partition(" ")[2])
        else:
            self.write(shown.line(rank, text, self.screen.colour))

    def engine(self, text: str) -> None:
        self.book.write("engine", text)
        self._clear()
        if not self.quiet:
            self.note_line(f"[{self.job.engine}] {text}")

    def note(self, note: Any) -> None:
        from gpuready.render import run as shown

        self._clear()
        for text in shown.note(note):
            self.note_line(text)

    def alive(self, ledger: Any, now: float) -> None:
        """Redraw one status line for each node."""
        if not self.live:
            return
        self._clear()
        nodes: dict[str, list[Any]] = {}
        for life in ledger.lives.values():
            nodes.setdefault(life.host or "starting", []).append(life)
        rows = [self._row(host, lives, now) for host, lives in nodes.items()][:16]
        sys.stderr.write("".join(f"{row}\n" for row in rows))
        sys.stderr.flush()
        self.drawn = len(rows)

    def _row(self, host: str, lives: list[Any], now: float) -> str:
        from gpuready.render.escape import visible

        alive = sum(life.alive for life in lives)
        busy = sum(bool(life.beats) and life.beats[-1][1] == "R" for life in lives if life.alive)
        quiet = now - max(life.heard for life in lives) if alive else 0.0
        text = (
            f"{visible(host)}: {alive} of {len(lives)} ranks, {busy} on a processor, {now - self.began:.0f} s"
        )
        return self.screen.cut(
            text + (f", quiet for {quiet:.0f} s" if quiet > 5 else ""), self.screen.width - 1
        )

    def _clear(self) -> None:
        if self.drawn:
            sys.stderr.write(f"\x1b[{self.drawn}A\x1b[J")
            sys.stderr.flush()
            self.drawn = 0
