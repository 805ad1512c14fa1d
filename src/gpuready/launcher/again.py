"""Decide whether a restart can help. Pure: the attempts so far and the diagnosis of the last."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.launcher.job import Attempt, End

SAME = 3
"""Stop after this many equal failures without progress."""
LONG = 1800.0
"""An attempt that ran this many seconds made progress, whatever it wrote."""
_LASTING = ("PKG", "BLD", "DRV", "CAP")
"""Rule families whose causes last until the environment is changed."""
_COUNTERS = ("step", "iter", "iteration", "epoch", "batch", "global_step")


def mark(attempt: Attempt) -> tuple[object, ...]:
    """Identify a failure by how the first rank ended and its last error line, without numbers."""
    end = attempt.end(attempt.first[0]) if attempt.first else None
    if end is None:
        return (attempt.why, attempt.code)
    return (end.code, end.signal, _last_error(end))


def _last_error(end: End) -> str:
    lines = [line for line in end.last if line.strip() and not line.startswith(" ")]
    told = next(
        (line for line in reversed(lines) if "Error" in line or "Exception" in line),
        lines[-1] if lines else "",
    )
    return "".join("0" if c.isdigit() else c for c in told)[:300]


def progress(attempt: Attempt) -> float:
    """Return the highest step in the last lines, or the seconds of a long attempt."""
    reached = -1.0
    for end in attempt.ends:
        for line in end.last:
            reached = max(reached, _counted(line))
    return max(reached, attempt.seconds if attempt.seconds >= LONG else -1.0)


def _counted(line: str) -> float:
    words = line.lower().replace("=", " ").replace(":", " ").replace("/", " ").replace("[", " ").split()
    found = -1.0
    for word, after in zip(words, words[1:], strict=False):  # noqa: RUF007 (itertools costs an import)
        if word.strip("',\"{}") in _COUNTERS:
            number = after.strip("',\"{}()[]")
            if number.replace(".", "", 1).isdigit():
                found = max(found, float(number))
    return found


def useless(attempts: Sequence[Attempt], code: str = "", says: str = "") -> str:
    """Return why no restart can help; empty if one may."""
    last = attempts[-1]
    if last.why in ("missing", "claimed"):
        return "the ranks did not come together, and would not the next time"
    if last.why == "unfit":
        return "the nodes are as they were until somebody changes them"
    if code[:3] in _LASTING:
        return f"{code} stays until the environment is changed: {says}"
    alike = [a for a in attempts[-SAME:] if mark(a) == mark(last)]
    if len(alike) == SAME and max(progress(a) for a in alike[1:]) <= progress(alike[0]):
        return f"it failed {SAME} times in the same way without any progress"
    return ""
