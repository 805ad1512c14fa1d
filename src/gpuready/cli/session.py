"""What a command may use of the terminal: notes, the progress display, a question, and the lines of a running job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuready.cli import terminal
from gpuready.commands.declaration import Request, Session
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.layout import Screen

if TYPE_CHECKING:
    from gpuready.cli.progress import ProgressDisplay


class TerminalSession(Session):
    is_command_line = may_start_python = True

    def __init__(self, screen: Screen, started: float):
        self.screen, self.started = screen, started
        self.is_live = sys.stderr is not None and sys.stderr.isatty()
        self._progress: ProgressDisplay | None = None

    def write_answer(self, text: str) -> None:
        self.clear_progress()
        terminal.write_answer(text)

    def write_note(self, text: str, *, confided: bool = False) -> None:
        self.clear_progress()
        terminal.write_note(text, confided=confided)

    def write_sentence(self, text: str) -> None:
        self.clear_progress()
        terminal.write_sentence(text)

    def show_progress(self, what: str, done: int = 0, total: int = 0, *, at_once: bool = False) -> None:
        if self._progress is None:
            from gpuready.cli.progress import ProgressDisplay

            self._progress = ProgressDisplay(self.screen, self.is_live)
        self._progress.show(what, done, total, at_once=at_once)

    def clear_progress(self) -> None:
        if self._progress is not None:
            self._progress.clear()

    def ask_person(self, note: Callable[[], str], question: str) -> bool:
        if not self.is_live or sys.stdin is None or not sys.stdin.isatty():
            return True
        self.write_note(note())  # which clears the progress
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def make_run_reporter(self, job: Any, book: Any, request: Request) -> TerminalRunReporter:
        quiet, json = request.has_switch("quiet"), request.has_switch("json")
        return TerminalRunReporter(job, book, self.screen, quiet=quiet, json=json)


class TerminalRunReporter:
    """Show a running job: the ranks' lines, notes, and on a terminal a status line for each node."""

    def __init__(self, job: Any, book: Any, screen: Screen, *, quiet: bool, json: bool):
        self.job, self.book, self.screen, self.quiet, self.json = job, book, screen, quiet, json
        self.write: Callable[[str], None] = _write_note_as_it_is if self.json else terminal.write_answer
        self.note_line = terminal.write_note
        self.is_live = sys.stderr is not None and sys.stderr.isatty() and not self.json and not self.quiet
        self.drawn_lines = 0
        self.started = time.monotonic()

    def write_lines(self, rank: int, host: str, texts: list[str]) -> None:
        from gpuready.render import run as shown

        self._tell_lost_logs(self.book.write_lines(f"rank-{rank}", texts))
        self._clear_status()
        colour, tagged = self.screen.colour and not self.json, self.job.world > 1 or self.json
        self._write_output(shown.format_rank_lines(rank, texts, colour, tagged))

    def _write_output(self, text: str) -> None:
        """Write what ranks wrote, which is redacted already. Nothing that fails here may end the run."""
        try:
            self.write(text)
        except OSError as error:
            self.write = _write_nothing
            self._tell_lost_logs(f"the output can no longer be written: {error.strerror}")

    def _tell_lost_logs(self, reason: str) -> None:
        if reason:
            self.note_line(f"gpuready: {reason}; the run goes on")

    def write_engine_line(self, text: str) -> None:
        self._tell_lost_logs(self.book.write_lines("engine", [text]))
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
        rows = [self._format_node_status(row, now) for row in ledger.count_node_ranks(now)[:16]]
        self._draw("".join(f"{row}\n" for row in rows))
        self.drawn_lines = len(rows)

    def _format_node_status(self, row: tuple[str, int, int, int, float], now: float) -> str:
        host, ranks, alive, busy, quiet = row
        text = (
            f"{escape_unprintable(host)}: {alive} of {ranks} ranks, {busy} on a processor, {now - self.started:.0f} s"
        )
        return self.screen.truncate_text(
            text + (f", quiet for {quiet:.0f} s" if quiet > 5 else ""), self.screen.width - 1
        )

    def _clear_status(self) -> None:
        if self.drawn_lines:
            self._draw(f"\x1b[{self.drawn_lines}A\x1b[J")
            self.drawn_lines = 0

    def _draw(self, text: str) -> None:
        """Draw on the terminal; one that is closed gets no more, and the run goes on."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self.is_live = False


def _write_note_as_it_is(text: str) -> None:
    terminal.write_note(text, confided=True)


def _write_nothing(text: str) -> None:
    """After the output is lost."""
