"""Match messages that a terminal, a formatter or a web page broke over lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuready.logs.log_lines import LogLine
from gpuready.logs.log_patterns import LogPattern
from gpuready.logs.tracebacks import begins_exception

MIN_BROKEN_LENGTH, MAX_LINES_CHECKED = 36, 6000
"""Length of the shortest line that may have been broken, and number of lines of the longest log that is checked."""

JOIN_CONTEXT = 160
"""Characters on either side of a break that are searched."""

_NEVER_JOINED = ('File "', "Traceback ", "During handling", "The above exception")


def match_across_lines(
    pattern: LogPattern, lines: Sequence[LogLine], texts: Sequence[str], index: int
) -> dict[str, str] | None:
    """The captures of a pattern whose text is broken over this line and its neighbours, between words or within one."""
    first = last = index
    while first and index - first < 2 and _may_continue_line(lines, texts, first - 1):
        first -= 1
    while last - index < 3 and _may_continue_line(lines, texts, last):
        last += 1
    parts = texts[first : last + 1]
    if len(parts) < 2 or any(pattern.match_text(part) is not None for part in parts):
        return None  # complete in one of them: it is found there
    captures = pattern.match_text(" ".join(parts))
    return pattern.match_text("".join(parts)) if captures is None else captures


def iterate_line_joins(lines: Sequence[LogLine], texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Around every possible break, joined with and without a space: index of the first line and the text."""
    for i in range(len(lines) - 1 if len(lines) <= MAX_LINES_CHECKED else 0):
        if _may_continue_line(lines, texts, i):
            yield i, f"{texts[i][-JOIN_CONTEXT:]} {texts[i + 1][:JOIN_CONTEXT]}"
            yield i, f"{texts[i][-JOIN_CONTEXT:]}{texts[i + 1][:JOIN_CONTEXT]}"


def _is_same_speaker(this: LogLine, after: LogLine) -> bool:
    """Whether the next line has no prefix, or exactly the same one."""
    bare = not (after.level or after.seconds is not None)
    if bare and after.rank is None and after.pid is None and not after.role:
        return True
    one, other = ((line.rank, line.pid, line.role, line.level, line.seconds) for line in (this, after))
    return one == other


def _may_continue_line(lines: Sequence[LogLine], texts: Sequence[str], i: int) -> bool:
    """Whether the next line may be the rest of this one: same process, directly after it, and not a beginning of its own."""
    if i + 1 >= len(lines) or len(texts[i]) < MIN_BROKEN_LENGTH or not texts[i + 1]:
        return False
    this, after = lines[i], lines[i + 1]
    return (
        after.number == this.number + 1
        and this.source == after.source
        and _is_same_speaker(this, after)
        and not after.place
        and this.place != "derived"
        and not texts[i].startswith(_NEVER_JOINED)
        and not texts[i + 1].startswith(_NEVER_JOINED)
        and not begins_exception(texts[i + 1])
    )
