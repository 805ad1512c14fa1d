"""The screen: width, marks and colours, and text that never exceeds the width."""

from __future__ import annotations

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = Sequence[Sequence[str]]

_MARKS = {"error": "✗", "warning": "!", "undecided": "?", "ok": "✓"}
_PLAIN_MARKS = {"error": "x ", "warning": "! ", "undecided": "? ", "ok": "ok"}
_COLOURS = {"error": "1;31", "warning": "33", "undecided": "36", "ok": "32", "info": "36"}
_COLOURS |= {"dim": "2", "bold": "1"}


class Screen(Noun):
    """The output device."""

    width: int = 80
    colour: bool = False
    ascii: bool = False

    def mark(self, kind: str) -> str:
        return self.paint((_PLAIN_MARKS if self.ascii else _MARKS)[kind], kind)

    @property
    def ellipsis(self) -> str:
        return "..." if self.ascii else "…"

    def paint(self, text: str, role: str) -> str:
        return f"\x1b[{_COLOURS[role]}m{text}\x1b[0m" if self.colour and text else text

    # -- lines --------------------------------------------------------------------------------------

    def cut(self, text: str, room: int) -> str:
        """Truncate to this many columns; a path keeps its end, anything else its beginning."""
        if columns(text) <= room:
            return text
        keep = max(room - len(self.ellipsis), 0)
        if "/" in text and " " not in text:
            return self.ellipsis[: max(room, 0)] + _first(text[::-1], keep)[::-1]
        return _first(text, keep) + self.ellipsis[: max(room, 0)]

    def wrap(self, text: str, room: int) -> list[str]:
        """Break at spaces into lines of this many columns; a longer word is truncated."""
        lines, line = [], ""
        for word in text.split():
            word = self.cut(word, room)
            if line and columns(line) + 1 + columns(word) > room:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        return [*lines, line] if line or not lines else lines

    def paragraph(self, text: str, indent: int = 0, hang: int = 0) -> list[str]:
        """Wrap behind an indent; lines after the first are indented ``hang`` columns more."""
        lines = self.wrap(text, self.width - indent - hang)
        return [" " * (indent + (hang if i else 0)) + line for i, line in enumerate(lines)]

    def led(self, lead: str, text: str, role: str, indent: int = 0) -> list[str]:
        """A paragraph whose first words, the lead, are coloured."""
        first, *rest = self.paragraph(f"{lead} {text}", indent, 2)
        if not self.colour or not first[indent:].startswith(lead):
            return [first, *rest]
        return [" " * indent + self.paint(lead, role) + first[indent + len(lead) :], *rest]

    def ends(self, left: str, right: str, start: int = 0) -> list[str]:
        """Text with ``right`` at the right edge of its first line. ``start`` columns are already in use.

        Where both do not fit on one line, ``right`` goes on a line of its own.
        """
        room = self.width - start
        right = self.cut(right, room)
        beside = room - columns(right) - 2
        if not right:
            return self.wrap(left, room)
        if columns(left) > beside and beside < max(20, room // 2):
            return [*self.wrap(left, room), " " * (room - columns(right)) + right]
        first, *rest = self.wrap(left, beside)
        return [pad(first, beside + 2) + right, *rest]

    def table(self, rows: Rows, start: int = 0, gaps: Sequence[int] = ()) -> list[list[str]]:
        """Rows of cells in aligned columns: for each row its lines. The last column takes the rest of the width."""
        if not rows or not rows[0]:
            return [[] for _ in rows]
        cells = list(zip(*rows, strict=True))
        natural = [max(columns(cell) for cell in column) for column in cells]
        longest = [max(columns(word) for cell in column for word in cell.split() or [""]) for column in cells]
        widths = _fitted(natural, longest, self.width - start, gaps)
        return [self._row(row, widths) for row in rows]

    def _row(self, row: Sequence[str], widths: list[int]) -> list[str]:
        last = len(widths) - 1
        cells = [self.wrap(cell, widths[i] - (0 if i == last else 2)) for i, cell in enumerate(row)]
        lines = []
        for i in range(max(len(cell) for cell in cells)):
            parts = [cell[i] if i < len(cell) else "" for cell in cells]
            lines.append("".join(map(pad, parts, widths)).rstrip())
        return lines


def _fitted(natural: list[int], longest: list[int], room: int, gaps: Sequence[int]) -> list[int]:
    """The width of each column with its gap. The last column is narrowed first, then the widest of the others.

    None becomes narrower than its longest word, which would be truncated, while another can still shrink.
    """
    *inner, last = natural
    if not gaps or sum(natural) + sum(gaps) > room:
        gaps = (2,) * len(inner)
    spare = room - sum(gaps) - min(last, max(12, room // 3))
    while inner and sum(inner) > spare and max(inner) > 1:
        yielding = [n if n > longest[i] else 0 for i, n in enumerate(inner)]
        widest = yielding.index(max(yielding)) if any(yielding) else inner.index(max(inner))
        inner[widest] -= 1
    taken = [width + gap for width, gap in zip(inner, gaps, strict=True)]
    return [*taken, max(room - sum(taken), 1)]


_OURS = dict.fromkeys(map(ord, "✓✗…×"), "x")
"""Our own marks are one column wide: no need to load ``unicodedata`` for them."""


def columns(text: str) -> int:
    """The most columns a terminal needs for text without control characters.

    Combining marks count as one: a name made of ten thousand of them must not measure as empty.
    """
    if text.isascii() or text.translate(_OURS).isascii():
        return len(text)
    from unicodedata import east_asian_width

    return len(text) + sum(east_asian_width(c) in "WF" for c in text)


def pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def _first(text: str, room: int) -> str:
    """The longest beginning that fits."""
    kept, used = [], 0
    for char in text:
        used += columns(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept)
