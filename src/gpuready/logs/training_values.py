"""Losses and loss scales over a whole log: one NaN is a step, NaN to the end is a run that diverged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuready.logs.conditions import parse_number
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

MIN_STREAK, MAX_TEXT = 3, 600
"""Last lines that must tell the same, and how much of each is read."""

_LOSS = LazyRegex(r"(?i)(?:^|[^a-z])loss(?:es)?['\"]{0,2}(?: is)?[ :=|>]{1,6}['\"]?(?:tensor\()?(nan|-?inf|-?\d)")
_SCALE = LazyRegex(r"(?i)(?:reduc|sett|decreas|lower|halv)ing[^\n]{0,40}? to:? ?(\d[\d.e+-]{0,24})")


def find_divergence(lines: Sequence[LogLine]) -> Iterator[tuple[LogLine, str]]:
    """The line from which every loss is NaN or infinite, and the one from which the loss scale cannot fall any more."""
    for values, words in (
        (_read_losses(lines), "the loss is not finite to the end of the log"),
        (_read_scales(lines), "the loss scale stays at its minimum to the end of the log"),
    ):
        streak = _last_streak(values)
        if len(streak) >= MIN_STREAK:
            yield streak[0], words


def _read_losses(lines: Sequence[LogLine]) -> list[tuple[LogLine, bool]]:
    """Every line that tells a loss, and whether one in it is not finite."""
    found = []
    for line in lines:
        if "loss" in line.text or "Loss" in line.text or "LOSS" in line.text:
            values = _LOSS.compiled.findall(line.text[:MAX_TEXT])
            if values:
                found.append((line, any("n" in value.lower() for value in values)))
    return found


def _read_scales(lines: Sequence[LogLine]) -> list[tuple[LogLine, bool]]:
    """Every line in which a loss scale is reduced, and whether to 1 or less: ``loss scale: 1, reducing to 1``."""
    found = []
    for line in lines:
        if "scale" in line.text and (match := _SCALE.search(line.text[:MAX_TEXT])):
            value = parse_number(match[1])
            if value is not None:
                found.append((line, value <= 1))
    return found


def _last_streak(values: Sequence[tuple[LogLine, bool]]) -> list[LogLine]:
    """The last lines, of one log, of which all are bad."""
    streak: list[LogLine] = []
    for line, is_bad in reversed(values):
        if not is_bad or (streak and line.source != streak[-1].source):
            break
        streak.append(line)
    return streak[::-1]
