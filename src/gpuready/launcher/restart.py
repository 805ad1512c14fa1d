"""Decide whether a restart can help. Pure: the attempts so far and the diagnosis of the last."""

from collections.abc import Sequence

from gpuready.model.last_error import last_error_line
from gpuready.model.run import CRASHED, LaunchAttempt

MAX_SAME_FAILURES = 3
"""Stop after this many equal failures without progress."""
LONG_ATTEMPT_SECONDS = 1800.0
"""An attempt that ran this many seconds made progress, whatever it wrote."""
_LASTING_FAMILIES = ("PKG", "BLD", "DRV", "CAP")
"""Rule families whose causes last until the environment is changed."""
_STEP_WORDS = ("step", "iter", "iteration", "epoch", "batch", "global_step")


def failure_signature(attempt: LaunchAttempt) -> tuple[object, ...]:
    """Identify a failure by how the first rank ended and its last error line, without numbers."""
    end = attempt.end(attempt.first[0]) if attempt.first else None
    if end is None:
        return (attempt.why, attempt.code)
    line = last_error_line(end.last) or next((text for text in reversed(end.last) if text.strip()), "")
    return (end.code, end.signal, "".join("0" if c.isdigit() else c for c in line)[:300])


def attempt_progress(attempt: LaunchAttempt) -> float:
    """Return the highest step in the last lines, or the seconds of a long attempt."""
    steps = [highest_step(line) for end in attempt.ends for line in end.last]
    return max([*steps, attempt.seconds if attempt.seconds >= LONG_ATTEMPT_SECONDS else -1.0])


def highest_step(line: str) -> float:
    words = line.lower().replace("=", " ").replace(":", " ").replace("/", " ").replace("[", " ").split()
    highest = -1.0
    for word, after in zip(words, words[1:], strict=False):  # noqa: RUF007 (itertools costs an import)
        if word.strip("',\"{}") in _STEP_WORDS:
            number = after.strip("',\"{}()[]")
            if number.replace(".", "", 1).isdigit():
                highest = max(highest, float(number))
    return highest


def why_restart_is_useless(attempts: Sequence[LaunchAttempt], code: str = "", cause_text: str = "") -> str:
    """Return why no restart can help; empty if one may."""
    last = attempts[-1]
    if last.why == CRASHED:
        return "every script had ended well, and a restart would do its work again"
    if last.why in ("missing", "claimed"):
        return "the ranks did not come together, and would not the next time"
    if last.why == "unfit":
        return "the nodes are as they were until somebody changes them"
    if code[:3] in _LASTING_FAMILIES:
        return f"{code} stays until the environment is changed: {cause_text}"
    same_failures = [a for a in attempts[-MAX_SAME_FAILURES:] if failure_signature(a) == failure_signature(last)]
    progress = [attempt_progress(attempt) for attempt in same_failures]
    if len(progress) == MAX_SAME_FAILURES and max(progress[1:]) <= progress[0]:
        return f"it failed {MAX_SAME_FAILURES} times in the same way without any progress"
    return ""
