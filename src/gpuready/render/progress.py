"""One line about work that is under way: what, how far, how long."""

from __future__ import annotations


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
