"""The screen: width, marks and colours, and text that never exceeds the width."""

from __future__ import annotations

from gpuready.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    TableRows = Sequence[Sequence[str]]

_MARKS = {"error": "✗", "warning": "!", "undecided": "?", "ok": "✓"}
_ASCII_MARKS = {"error": "x ", "warning": "! ", "undecided": "? ", "ok": "ok"}
_COLOUR_CODES = {"error": "1;31", "warning": "33", "undecided": "36", "ok": "32", "info": "36"}
_COLOUR_CODES |= {"dim": "2", "bold": "1"}


class Screen(Record):
    """The output device."""

    width: int = 80
    colour: bool = False
    ascii: bool = False

    def status_mark(self, kind: str) -> str:
        return self.apply_style((_ASCII_MARKS if self.ascii else _MARKS)[kind], kind)

    @property
    def ellipsis(self) -> str:
        return "..." if self.ascii else "…"

    def apply_style(self, text: str, role: str) -> str:
        return f"\x1b[{_COLOUR_CODES[role]}m{text}\x1b[0m" if self.colour and text else text

    # -- lines --------------------------------------------------------------------------------------

    def truncate_text(self, text: str, width: int) -> str:
        """Truncate to this many columns; a path keeps its end, anything else its beginning."""
        if display_width(text) <= width:
            return text
        keep = max(width - len(self.ellipsis), 0)
        if "/" in text and " " not in text:
            return self.ellipsis[: max(width, 0)] + _take_columns(text[::-1], keep)[::-1]
        return _take_columns(text, keep) + self.ellipsis[: max(width, 0)]

    def wrap_text(self, text: str, width: int) -> list[str]:
        """Break at spaces into lines of this many columns; a longer word is truncated."""
        lines, line = [], ""
        for word in text.split():
            word = self.truncate_text(word, width)
            if line and display_width(line) + 1 + display_width(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        return [*lines, line] if line or not lines else lines

    def format_paragraph(self, text: str, indent: int = 0, hang: int = 0) -> list[str]:
        """Wrap behind an indent; lines after the first are indented ``hang`` columns more."""
        lines = self.wrap_text(text, self.width - indent - hang)
        return [" " * (indent + (hang if i else 0)) + line for i, line in enumerate(lines)]

    def lead_paragraph(self, lead: str, text: str, role: str, indent: int = 0) -> list[str]:
        """A paragraph whose first words, the lead, are coloured."""
        first, *rest = self.format_paragraph(f"{lead} {text}", indent, 2)
        if not self.colour or not first[indent:].startswith(lead):
            return [first, *rest]
        return [" " * indent + self.apply_style(lead, role) + first[indent + len(lead) :], *rest]

    def align_ends(self, left: str, right: str, start: int = 0) -> list[str]:
        """Text with ``right`` at the right edge of its first line. ``start`` columns are already in use.

        Where both do not fit on one line, ``right`` goes on a line of its own.
        """
        room = self.width - start
        right = self.truncate_text(right, room)
        beside = room - display_width(right) - 2
        if not right:
            return self.wrap_text(left, room)
        if display_width(left) > beside and beside < max(20, room // 2):
            return [*self.wrap_text(left, room), " " * (room - display_width(right)) + right]
        first, *rest = self.wrap_text(left, beside)
        return [pad_text(first, beside + 2) + right, *rest]

    def format_table(self, rows: TableRows, start: int = 0, gaps: Sequence[int] = ()) -> list[list[str]]:
        """Rows of cells in aligned columns: for each row its lines. The last column takes the rest of the width."""
        if not rows or not rows[0]:
            return [[] for _ in rows]
        cells = list(zip(*rows, strict=True))
        natural = [max(display_width(cell) for cell in column) for column in cells]
        longest = [max(display_width(word) for cell in column for word in cell.split() or [""]) for column in cells]
        widths = _fit_column_widths(natural, longest, self.width - start, gaps)
        return [self._format_table_row(row, widths) for row in rows]

    def _format_table_row(self, row: Sequence[str], widths: list[int]) -> list[str]:
        last = len(widths) - 1
        cells = [self.wrap_text(cell, widths[i] - (0 if i == last else 2)) for i, cell in enumerate(row)]
        lines = []
        for i in range(max(len(cell) for cell in cells)):
            parts = [cell[i] if i < len(cell) else "" for cell in cells]
            lines.append("".join(map(pad_text, parts, widths)).rstrip())
        return lines


def _fit_column_widths(natural: list[int], longest: list[int], total_width: int, gaps: Sequence[int]) -> list[int]:
    """The width of each column with its gap. The last column is narrowed first, then the widest of the others.

    None becomes narrower than its longest word, which would be truncated, while another can still shrink.
    """
    *inner, last = natural
    if not gaps or sum(natural) + sum(gaps) > total_width:
        gaps = (2,) * len(inner)
    spare = total_width - sum(gaps) - min(last, max(12, total_width // 3))
    while inner and sum(inner) > spare and max(inner) > 1:
        shrinkable = [n if n > longest[i] else 0 for i, n in enumerate(inner)]
        widest = shrinkable.index(max(shrinkable)) if any(shrinkable) else inner.index(max(inner))
        inner[widest] -= 1
    inner_widths = [width + gap for width, gap in zip(inner, gaps, strict=True)]
    return [*inner_widths, max(total_width - sum(inner_widths), 1)]


_OWN_MARKS = dict.fromkeys(map(ord, "✓✗…×"), "x")
"""Our own marks are one column wide: no need to load ``unicodedata`` for them."""


def display_width(text: str) -> int:
    """The most columns a terminal needs for text without control characters.

    Combining marks count as one: a name made of ten thousand of them must not measure as empty.
    """
    if text.isascii() or text.translate(_OWN_MARKS).isascii():
        return len(text)
    from unicodedata import east_asian_width

    return len(text) + sum(east_asian_width(c) in "WF" for c in text)


def pad_text(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _take_columns(text: str, width: int) -> str:
    """The longest beginning that fits."""
    kept, used = [], 0
    for char in text:
        used += display_width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept)
