"""The progress display of every command: one line that is redrawn on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Callable
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any

from gpuready.cli import terminal
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.layout import Screen
from gpuready.system.redaction.text import redact_text

PLAIN_PATIENCE, PLAIN_INTERVAL, REDRAW_INTERVAL, TICK = 3.0, 10.0, 0.1, 1.0
"""Seconds: before the first plain line, between two of one step, between two drawings, and of the clock of the line."""


class ProgressDisplay:
    """Shows what is under way on stderr. ``clock`` is for tests."""

    def __init__(self, screen: Screen, is_live: bool, clock: Callable[[], float] = time.monotonic):
        self.screen, self.is_live, self.clock = screen, is_live, clock
        self.what, self.done, self.total = "", 0, 0
        self.begun = self.step_begun = clock()
        self.last_shown = float("-inf")
        self._is_drawn = False
        self._ticker_before: Any = None

    def show(self, what: str, done: int = 0, total: int = 0, *, at_once: bool = False) -> None:
        """Show one state. A line off a terminal waits, so that short work is silent; ``at_once`` does not wait."""
        now, is_new = self.clock(), what != self.what
        if is_new and not (total and total == self.total):  # the parts of one total are one step
            self.step_begun = now
        self.what, self.done, self.total = what, done, total
        if self.is_live:
            self._start_ticking()
            if is_new or done == total or now - self.last_shown >= REDRAW_INTERVAL:
                self._draw_line(now)
        elif (at_once or now - self.begun >= PLAIN_PATIENCE) and (is_new or now - self.last_shown >= PLAIN_INTERVAL):
            self.last_shown = now
            terminal.write_sentence(f"gpuready: {self._format_line(now)}")

    def clear(self) -> None:
        """Remove the line; the next state draws it again."""
        if self._ticker_before is not None:
            setitimer(ITIMER_REAL, 0)
            signal(SIGALRM, self._ticker_before)
            self._ticker_before = None
        if self._is_drawn:
            self._is_drawn = False
            _write_to_terminal("\r\x1b[K")

    def _format_line(self, now: float) -> str:
        return format_progress(self.what, self.done, self.total, now - self.step_begun)

    def _draw_line(self, now: float) -> None:
        self.last_shown, self._is_drawn = now, True
        text = escape_unprintable(redact_text(self._format_line(now)))
        _write_to_terminal(f"\r\x1b[K{self.screen.truncate_text(text, self.screen.width - 1)}")

    def _start_ticking(self) -> None:
        """Redraw each second while a step takes long. A timer's signal, not a thread: gpuready forks."""
        if self._ticker_before is not None:
            return
        try:
            self._ticker_before = signal(SIGALRM, lambda number, frame: self._draw_line(self.clock()))
        except ValueError:  # outside the main thread there are no signals
            return
        setitimer(ITIMER_REAL, TICK, TICK)


def _write_to_terminal(text: str) -> None:
    """Write past Python's buffers, which a signal handler may not enter twice."""
    try:
        os.write(sys.stderr.fileno(), text.encode(sys.stderr.encoding or "utf-8", "replace"))
    except (OSError, ValueError):
        return


def format_progress(what: str, done: int, total: int, elapsed: float) -> str:
    """Format ``installing torch: 3 of 12 (25 %), 1:04, about 3:10 left``; without a total, how many so far."""
    text = what
    if total:
        text += f": {done:,} of {total:,} ({100 * done // total} %)"
    elif done:
        text += f": {done:,} so far"
    return f"{text}, {format_duration(elapsed)}{_format_time_left(done, total, elapsed)}" if elapsed >= 1 else text


def _format_time_left(done: int, total: int, elapsed: float) -> str:
    """An estimate by the pace so far, once there is one."""
    if not 0 < done < total or elapsed < 2:
        return ""
    return f", about {format_duration(elapsed / done * (total - done))} left"


def format_duration(seconds: float) -> str:
    """Format ``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
