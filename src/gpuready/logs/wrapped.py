"""Match messages that a terminal, a formatter or a web page broke over lines."""

from __future__ import annotations

from gpuready.logs.tracebacks import begins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.logs.lines import Line
    from gpuready.logs.sign import Sign

NARROW, MANY = 36, 6000
"""Length of the shortest line that may have been broken, and number of lines of the longest log that is checked."""

SEAM = 160
"""Characters on either side of a break that are searched."""

_NEVER = ('File "', "Traceback ", "During handling", "The above exception")


def matched(sign: Sign, told: Sequence[Line], texts: Sequence[str], index: int) -> dict[str, str] | None:
    """The captures of a pattern whose text is broken over this line and its neighbours, between words or within one."""
    first = last = index
    while first and index - first < 2 and _goes_on(told, texts, first - 1):
        first -= 1
    while last - index < 3 and _goes_on(told, texts, last):
        last += 1
    parts = texts[first : last + 1]
    if len(parts) < 2 or any(sign.match(part) is not None for part in parts):
        return None  # complete in one of them: it is found there
    found = sign.match(" ".join(parts))
    return sign.match("".join(parts)) if found is None else found


def seams(told: Sequence[Line], texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Around every possible break, joined with and without a space: index of the first line and the text."""
    for i in range(len(told) - 1 if len(told) <= MANY else 0):
        if _goes_on(told, texts, i):
            yield i, f"{texts[i][-SEAM:]} {texts[i + 1][:SEAM]}"
            yield i, f"{texts[i][-SEAM:]}{texts[i + 1][:SEAM]}"


def _same_speaker(this: Line, after: Line) -> bool:
    """Whether the next line has no prefix, or exactly the same one."""
    bare = not (after.level or after.seconds is not None)
    if bare and after.rank is None and after.pid is None and not after.role:
        return True
    one, other = ((line.rank, line.pid, line.role, line.level, line.seconds) for line in (this, after))
    return one == other


def _goes_on(told: Sequence[Line], texts: Sequence[str], i: int) -> bool:
    """Whether the next line may be the rest of this one: same process, directly after it, and not a beginning of its own."""
    if i + 1 >= len(told) or len(texts[i]) < NARROW or not texts[i + 1]:
        return False
    this, after = told[i], told[i + 1]
    return (
        after.number == this.number + 1
        and this.source == after.source
        and _same_speaker(this, after)
        and not after.place
        and this.place != "derived"
        and not texts[i].startswith(_NEVER)
        and not texts[i + 1].startswith(_NEVER)
        and not begins(texts[i + 1])
    )
