"""The screen: width, marks and colours, and text that never exceeds the width.

Every method of a Screen that takes text escapes its control characters, so that untrusted text cannot reach a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuready.model import Record
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.escape import quote_command_words

TableRows = Sequence[Sequence[str]]


_MARKS = {"error": "✗", "warning": "!", "undecided": "?", "ok": "✓"}
_ASCII_MARKS = {"error": "x ", "warning": "! ", "undecided": "? ", "ok": "ok"}
_COLOUR_CODES = {"error": "1;31", "warning": "33", "undecided": "36", "ok": "32", "info": "36"}
_COLOUR_CODES |= {"dim": "2", "bold": "1"}


def join_sections(sections: Iterable[Sequence[str]]) -> str:
    """The text of a screen: its sections with a blank line between them, without the empty ones."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


class Screen(Record):
    """The output device."""

    width: int = 80
    colour: bool = False
    ascii: bool = False
    program: tuple[str, ...] = ("gpuready",)  # the words that start gpuready where the screen is read
    environment: str = ".venv"  # the folder there that ``gpuready install`` may take
    new_environment: str = ".venv"  # the one that the steps of a plan can make

    def status_mark(self, kind: str) -> str:
        return self.apply_style((_ASCII_MARKS if self.ascii else _MARKS)[kind], kind)

    @property
    def ellipsis(self) -> str:
        return "..." if self.ascii else "…"

    def apply_style(self, text: str, role: str) -> str:
        text = escape_unprintable(text)
        return f"\x1b[{_COLOUR_CODES[role]}m{text}\x1b[0m" if self.colour and text else text

    # -- lines --------------------------------------------------------------------------------------

    def truncate_text(self, text: str, width: int) -> str:
        """Truncate to this many columns; a path keeps its end, anything else its beginning."""
        text = escape_unprintable(text)
        if display_width(text) <= width:
            return text
        keep = max(width - len(self.ellipsis), 0)
        if "/" in text and " " not in text:
            return self.ellipsis[: max(width, 0)] + _take_columns(text[::-1], keep)[::-1]
        return _take_columns(text, keep) + self.ellipsis[: max(width, 0)]

    def wrap_text(self, text: str, width: int) -> list[str]:
        """Break at spaces into lines of this many columns; a longer word is truncated."""
        lines, line = [], ""
        for word in escape_unprintable(text).split():
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

    def format_paragraphs(self, texts: Iterable[str], indent: int = 0, hang: int = 0) -> list[str]:
        return [line for text in texts for line in self.format_paragraph(text, indent, hang)]

    def dim_paragraph(self, text: str, indent: int, hang: int = 0) -> list[str]:
        return [self.apply_style(line, "dim") for line in self.format_paragraph(text, indent, hang)]

    def lead_paragraph(self, lead: str, text: str, role: str) -> list[str]:
        """A paragraph whose first words, the lead, are coloured."""
        return self._style_start(self.format_paragraph(f"{lead} {text}", 0, 2), lead, role)

    def lead_paragraphs(self, lead: str, texts: Iterable[str], role: str) -> list[str]:
        return [line for text in texts for line in self.lead_paragraph(lead, text, role)]

    def mark_paragraph(self, kind: str, text: str) -> list[str]:
        """A paragraph behind a status mark."""
        first, *rest = self.format_paragraph(text, 2, 2)
        return [f"{self.status_mark(kind)} {first[2:]}", *rest]

    def format_command(self, words: tuple[str, ...], indent: int, lead: str = "$ ") -> list[str]:
        """A command that can be pasted: quoted, broken only between words, with ``\\`` at the end of the line.

        A word is never shortened: one that is wider than the screen leaves it.
        """
        width = self.width - indent - display_width(lead) - 2
        if words[:1] == ("gpuready",):
            words = self._command_from_here(words)
        lines: list[str] = []
        for word in quote_command_words(words):
            if lines and display_width(lines[-1]) + 1 + display_width(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        starts = [" " * indent + lead, *[" " * (indent + display_width(lead))] * len(lines)]
        return [f"{start}{line}" for start, line in zip(starts, _continue_lines(lines), strict=False)]

    def _command_from_here(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """A command of ours that works from where the screen is read."""
        if words[1:2] == ("install",):
            pairs = zip(("", *words), words, strict=False)
            words = tuple(self.environment if pair == ("-e", ".venv") else pair[1] for pair in pairs)
        return (*self.program, *words[1:])

    def format_labelled_commands(self, rows: Sequence[tuple[str, tuple[str, ...]]]) -> list[str]:
        """``fix it:   gpuready fix axolotl``: commands in a column behind their labels."""
        width = max((display_width(label) for label, _ in rows), default=0) + 3
        return [line for label, words in rows for line in self.format_command(words, 0, pad_text(f"{label}:", width))]

    def _style_start(self, lines: list[str], start: str, role: str) -> list[str]:
        """Colour the words that the first line starts with."""
        start = escape_unprintable(start)
        if self.colour and lines[0].startswith(start):
            return [self.apply_style(start, role) + lines[0][len(start) :], *lines[1:]]
        return lines

    def label_lines(self, label: str, lines: Sequence[str], width: int = 7) -> list[str]:
        """Indent lines behind a label, which stands on the first line: right-aligned, or with a negative width left-aligned."""
        first, width = f"{label:>{width}}" if width > 0 else f"{label:<{-width}}", abs(width)
        first = self.apply_style(first, "dim") if label else first
        return [(" " * width if i else first) + "  " + line for i, line in enumerate(lines)]

    def align_ends(self, left: str, right: str, start: int = 0) -> list[str]:
        """Text with ``right`` at the right edge of its first line. ``start`` columns are already in use.

        Where both do not fit on one line, ``right`` goes on a line of its own.
        """
        room, left = self.width - start, escape_unprintable(left)
        right = self.truncate_text(right, room)
        beside = room - display_width(right) - 2
        if not right:
            return self.wrap_text(left, room)
        if display_width(left) > beside and beside < max(20, room * 2 // 3):
            return [*self.wrap_text(left, room), " " * (room - display_width(right)) + right]
        first, *rest = self.wrap_text(left, beside)
        return [pad_text(first, beside + 2) + right, *rest]

    def format_header(self, left: str, right: str, role: str = "bold", start: str = "") -> list[str]:
        """``left`` and ``right`` at the two edges, with ``left``, or only its ``start``, coloured."""
        return self._style_start(self.align_ends(left, right), start or left, role)

    def indent_table(self, rows: TableRows) -> list[str]:
        """Rows of cells in aligned columns, indented by two."""
        return ["  " + line for row in self.format_table(rows, 2) for line in row]

    def format_table(self, rows: TableRows, start: int = 0, gaps: Sequence[int] = ()) -> list[list[str]]:
        """Rows of cells in aligned columns: for each row its lines. The last column takes the rest of the width."""
        if not rows or not rows[0]:
            return [[] for _ in rows]
        rows = [[escape_unprintable(cell) for cell in row] for row in rows]
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


PLAIN_SCREEN = Screen()


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


def _continue_lines(lines: list[str]) -> list[str]:
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


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
