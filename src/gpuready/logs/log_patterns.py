"""A log pattern: the text by which a cause is recognised in a log, with gaps, captures and conditions.

Rules have patterns as plain constants (strings, or dicts where there are conditions); they are compiled here. Matching
goes from literal to literal with ``str.find``, in time proportional to the text.
"""

from __future__ import annotations

from gpuready.logs import conditions
from gpuready.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

STRENGTHS = ("root", "symptom", "clue", "trace")
PLACES = ("", "exception", "nccl", "kernel", "launcher", "derived")
KEYS = {"says", "in", "as", "with", "without", "also", "unless", "when", "cause"}

MAX_GAP = 400
"""How many characters a gap may take within one line."""

MIN_LITERAL = 8
"""Minimum length of the literal by which a pattern is searched for."""


class PatternPiece(Record):
    """One literal of a pattern, and what precedes it: nothing, a gap, a capture, or a gap over lines."""

    text: str
    before: str = ""  # "" directly after the previous piece, "gap", "lines"
    name: str = ""  # of the capture before it


class LogPattern(Record):
    """One pattern of one cause."""

    code: str
    says: str
    pieces: tuple[PatternPiece, ...]
    literal: str  # what is searched for: the longest piece
    place: str = ""
    strength: str = "root"
    near: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    when: str = ""
    cause: str = ""

    @property
    def specificity(self) -> int:
        """How specific it is: of two patterns that match the same line, the one with more conditions or text wins."""
        conditions = (self.near, self.near, self.also, self.also, self.when, self.place)
        return 1000 * sum(bool(condition) for condition in conditions) + min(len(self.says), 999)

    @property
    def spans_lines(self) -> bool:
        return any(piece.before == "lines" for piece in self.pieces)

    def match_text(self, text: str) -> dict[str, str] | None:
        """The captures where the text matches, else None. White space must be folded already."""
        start = 0
        while True:
            at = text.find(self.pieces[0].text, start)
            if at < 0:
                return None
            found = self._match_from(text, at)
            if found is not None:
                return found if conditions.condition_holds(self.when, found) else None
            start = at + 1
            if start > 1 << 14:  # no real message is that late; bounds the time on hostile text
                return None

    def _match_from(self, text: str, at: int) -> dict[str, str] | None:
        captures: dict[str, str] = {}
        end = at + len(self.pieces[0].text)
        for piece in self.pieces[1:]:
            if piece.text:
                limit = (
                    len(text) if piece.before == "lines" else min(_line_end(text, end), end + MAX_GAP + len(piece.text))
                )
                here = text.find(piece.text, end, limit)
            else:
                here = _line_end(text, end) if piece.before else end
            if here < 0 or (not piece.before and here != end):
                return None
            if piece.name:
                captures[piece.name] = text[end:here].strip()
            end = here + len(piece.text)
        return captures


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    return len(text) if at < 0 else at


def compile_patterns(code: str, patterns: Iterable[str | Mapping[str, Any]]) -> list[LogPattern]:
    """Compile the patterns of one rule. ValueError says what is wrong with one of them."""
    return [_compile_pattern(code, {"says": pattern} if isinstance(pattern, str) else pattern) for pattern in patterns]


def pattern_text(pattern: str | Mapping[str, Any]) -> str:
    """The text of a pattern."""
    return pattern if isinstance(pattern, str) else str(pattern["says"])


def _compile_pattern(code: str, row: Mapping[str, Any]) -> LogPattern:
    wording = str(row.get("says", ""))
    extra = set(row) - KEYS
    if extra:
        raise ValueError(f"a sign of {code} has the key {min(extra)!r}; it may have {', '.join(sorted(KEYS))}")
    pieces = _folded_pieces(wording)
    literal = max((piece.text for piece in _split_pieces(wording)), key=len, default="")
    if len(literal) < MIN_LITERAL:
        raise ValueError(f"the sign {wording!r} of {code} has no literal of {MIN_LITERAL} letters")
    place, strength = row.get("in", ""), row.get("as", "root")
    if place not in PLACES or strength not in STRENGTHS:
        raise ValueError(f"the sign {wording!r} of {code} says in={place!r} as={strength!r}")
    conditions.validate_condition(row.get("when", ""), [p.name for p in pieces if p.name])
    near, without, also, unless = (
        tuple(fold_whitespace(text) for text in row.get(key, ())) for key in ("with", "without", "also", "unless")
    )
    when, cause = row.get("when", ""), row.get("cause", "")
    return LogPattern(code, wording, tuple(pieces), literal, place, strength, near, without, also, unless, when, cause)


def _folded_pieces(wording: str) -> list[PatternPiece]:
    return [piece.replace(text=_fold_keeping_ends(piece.text)) for piece in _split_pieces(wording)]


def _split_pieces(wording: str) -> list[PatternPiece]:
    """Split the text: ``a {x} b`` -> a, (x) b. A literal brace is doubled."""
    pieces, text, before, name = [], "", "", ""
    i = 0
    while i < len(wording):
        if wording[i : i + 2] in ("{{", "}}"):
            text, i = text + wording[i], i + 2
            continue
        if wording[i] == "{":
            close = wording.find("}", i)
            if close < 0:
                raise ValueError(f"the sign {wording!r} has an open brace")
            pieces.append(PatternPiece(text, before, name))
            inner, text = wording[i + 1 : close], ""
            before, name = ("lines", "") if inner == "..." else ("gap", inner)
            i = close + 1
            continue
        text, i = text + wording[i], i + 1
    pieces.append(PatternPiece(text, before, name))
    if not pieces[0].text:
        raise ValueError(f"the sign {wording!r} begins with a gap")
    return pieces


def _fold_keeping_ends(text: str) -> str:
    """Fold white space, but keep a space at either end: it is part of the literal."""
    folded = fold_whitespace(text)
    if not folded:
        return " " if text else ""
    return (" " if text[0].isspace() else "") + folded + (" " if text[-1].isspace() else "")


def fold_whitespace(text: str) -> str:
    """Replace every run of white space by one space."""
    return " ".join(text.split())
