"""A log pattern: the text by which a cause is recognised in a log, with gaps, captures and conditions.

A row has its text under ``says`` (literal) or under ``regex`` (a regular expression); both may have gaps. Letter case makes
no difference. Matching goes from piece to piece and never back over a gap, so that it takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gpuready.logs import conditions
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.regex_pieces import literal_sets, parse_regex, required_literals
from gpuready.model.record import Record

PatternRow = tuple[str, str | Mapping[str, Any]]


STRENGTHS = ("root", "symptom", "clue", "trace")
PLACES = ("", "exception", "nccl", "kernel", "launcher", "derived")
KEYS = {"says", "regex", "in", "as", "with", "without", "also", "unless", "when", "cause", "or"}

MAX_GAP = 400
"""How many characters a gap may take within one line."""

_AROUND = " \t\n'\"`"  # of a capture: not part of a name
MIN_LITERAL = 6
"""Minimum length of the literal by which a pattern is searched for."""

MAX_START = 1 << 14
"""No real message is that late in its line; bounds the time on hostile text."""

_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_GAP = LazyRegex(r"(?<!\\)\{(\.\.\.|[a-z_]{0,40})\}")
_NAMED = LazyRegex(r"\(\?P<(\w{1,40})>")
_WORD = LazyRegex(r"[A-Za-z]{2,}|\d+")


class PatternPiece(Record):
    """One literal or regular expression of a pattern, and what precedes it: nothing, a gap, a capture, or a gap over lines."""

    text: str
    before: str = ""  # "" at the beginning, "gap", "lines"
    name: str = ""  # of the capture before it
    regex: LazyRegex | None = None

    def find_in(self, text: str, low: str, start: int, end: int) -> tuple[int, int, dict[str, str]] | None:
        """Where the piece begins and ends, and its captures. ``low`` is the text in lower case."""
        if self.regex is None:
            at = low.find(self.text, start, end)
            return None if at < 0 else (at, at + len(self.text), {})
        found: re.Match[str] | None = self.regex.compiled.search(text, start, end)
        if found is None:
            return None
        return found.start(), found.end(), {k: v.strip(_AROUND) for k, v in found.groupdict().items() if v is not None}


class LogPattern(Record):
    """One pattern of one cause."""

    code: str
    says: str
    pieces: tuple[PatternPiece, ...]
    place: str = ""
    strength: str = "root"
    near: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    when: str = ""
    cause: str = ""
    others: tuple[str, ...] = ()  # causes that show themselves in the same words
    is_proof: bool = False  # a root that states this cause by itself, where other words of the cause may mean more

    @property
    def specificity(self) -> int:
        """How specific it is: of two patterns that match the same line, the one with more conditions or text wins."""
        conditions = (self.near, self.near, self.also, self.also, self.when, self.place)
        return 1000 * sum(bool(condition) for condition in conditions) + min(sum(map(_sure_length, self.pieces)), 999)

    @property
    def spans_lines(self) -> bool:
        return any(piece.before == "lines" for piece in self.pieces)

    def match_text(self, text: str) -> dict[str, str] | None:
        """The captures where the text matches, else None. White space must be folded already."""
        start, low = 0, lower_ascii(text)
        while start <= MAX_START:
            first = self.pieces[0].find_in(text, low, start, len(text))
            if first is None:
                return None
            found = self._match_rest(text, low, first[1])
            if found is not None:
                found = first[2] | found
                return found if conditions.condition_holds(self.when, found) else None
            start = first[0] + 1
        return None

    def _match_rest(self, text: str, low: str, end: int) -> dict[str, str] | None:
        captures: dict[str, str] = {}
        for piece in self.pieces[1:]:
            if piece.text:
                room = MAX_GAP + (len(piece.text) if piece.regex is None else MAX_GAP)
                limit = len(text) if piece.before == "lines" else min(_line_end(text, end), end + room)
                found = piece.find_in(text, low, end, limit)
                if found is None:
                    return None
                begin, stop, inner = found
                captures |= inner
            else:
                begin = stop = _line_end(text, end)
            if piece.name:
                captures[piece.name] = text[end:begin].strip(_AROUND)
            end = stop
        return captures


def _sure_length(piece: PatternPiece) -> int:
    """How many letters of a piece are in every match."""
    return len(piece.text) if piece.regex is None else _least_letters(piece.text)


@cache
def _least_letters(source: str) -> int:
    return min(map(len, required_literals(source)), default=0)


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    return len(text) if at < 0 else at


def compile_patterns(code: str, patterns: Iterable[str | Mapping[str, Any]]) -> list[LogPattern]:
    """Compile the patterns of one rule. ValueError says what is wrong with one of them."""
    return [_compile_pattern(code, {"says": pattern} if isinstance(pattern, str) else pattern) for pattern in patterns]


def pattern_text(pattern: str | Mapping[str, Any]) -> str:
    """The text of a pattern."""
    return pattern if isinstance(pattern, str) else str(pattern.get("says") or pattern.get("regex", ""))


def pattern_literals(row: str | Mapping[str, Any]) -> tuple[str, ...]:
    """Literals, in lower case, of which every match of a pattern has one."""
    wording = pattern_text(row)
    if is_regex(row):
        sets = [required_literals(piece.text) for piece in _split_regex(wording) if piece.text]
        return max(sets, key=lambda texts: (min(map(len, texts), default=0), -len(texts)), default=())
    literal = lower_ascii(max((piece.text for piece in _split_pieces(wording)), key=len))
    return tuple(dict.fromkeys((literal, fold_whitespace(literal))))


def is_regex(row: str | Mapping[str, Any]) -> bool:
    return not isinstance(row, str) and "regex" in row


def _compile_pattern(code: str, row: Mapping[str, Any]) -> LogPattern:
    wording = pattern_text(row)
    extra = set(row) - KEYS
    if extra or ("says" in row) == ("regex" in row):
        raise ValueError(f"a pattern of {code} has the keys {', '.join(row)}; it may have {', '.join(sorted(KEYS))}")
    pieces = _split_regex(wording) if is_regex(row) else _split_pieces(wording)
    place, strength = row.get("in", ""), row.get("as", "root").replace("proof", "root")
    if place not in PLACES or strength not in STRENGTHS:
        raise ValueError(f"the pattern {wording!r} of {code} says in={place!r} as={strength!r}")
    names = [piece.name for piece in pieces] + [
        n for piece in pieces if piece.regex for n in _NAMED.compiled.findall(piece.text)
    ]
    conditions.validate_condition(row.get("when", ""), [name for name in names if name])
    near, without, also, unless = (
        tuple(lower_ascii(fold_whitespace(text)) for text in row.get(key, ()))
        for key in ("with", "without", "also", "unless")
    )
    conditioned = (near, without, also, unless, row.get("when", ""), row.get("cause", ""), tuple(row.get("or", ())))
    return LogPattern(code, wording, tuple(pieces), place, strength, *conditioned, row.get("as") == "proof")


def validate_pattern(code: str, row: str | Mapping[str, Any]) -> None:
    """ValueError where a pattern is too short to search for, or one word without any condition."""
    wording = pattern_text(row)
    if min(map(len, pattern_literals(row)), default=0) < MIN_LITERAL:
        raise ValueError(f"the pattern {wording!r} of {code} has no literal of {MIN_LITERAL} letters")
    suffices = isinstance(row, str) or not any(row.get(key) for key in ("in", "with", "also", "when"))
    suffices &= isinstance(row, str) or row.get("as", "root") in ("root", "symptom", "proof")
    if code and suffices and _count_words(row) < 2:
        raise ValueError(f"the pattern {wording!r} of {code} is one word: it needs a second, or a condition")


def _count_words(row: str | Mapping[str, Any]) -> int:
    """How many words every match has, at least."""
    if not is_regex(row):
        return len(_WORD.compiled.findall(_GAP.sub(" ", pattern_text(row))))
    pieces = [piece.text for piece in _split_regex(pattern_text(row)) if piece.text]
    return sum(max(map(_fewest_words, literal_sets(piece)), default=0) for piece in pieces)


def _fewest_words(texts: Iterable[str]) -> int:
    return min(len(_WORD.compiled.findall(text)) for text in texts)


def _split_regex(wording: str) -> list[PatternPiece]:
    """Split a regular expression at its gaps: ``a{1,3} {x} b`` -> a{1,3}, (x) b."""
    pieces, at, before, name = list[PatternPiece](), 0, "", ""
    for gap in [*_GAP.compiled.finditer(wording), None]:
        source = wording[at : gap.start()] if gap else wording[at:]
        parse_regex(source)
        pieces.append(PatternPiece(source, before, name, LazyRegex(source, _IGNORE_CASE)))
        if gap:
            at, before, name = gap.end(), "lines" if gap[1] == "..." else "gap", gap[1].strip(".")
    if not pieces[0].text:
        raise ValueError(f"the pattern {wording!r} begins with a gap")
    return pieces


_IGNORE_CASE = 2  # re.IGNORECASE


def _split_pieces(wording: str) -> list[PatternPiece]:
    """Split the text: ``a {x} b`` -> a, (x) b. A literal brace is doubled."""
    pieces, text, before, name = list[PatternPiece](), "", "", ""
    i = 0
    while i < len(wording):
        if wording[i : i + 2] in ("{{", "}}"):
            text, i = text + wording[i], i + 2
            continue
        if wording[i] == "{":
            close = wording.find("}", i)
            if close < 0:
                raise ValueError(f"the pattern {wording!r} has an open brace")
            pieces.append(PatternPiece(text, before, name))
            inner, text = wording[i + 1 : close], ""
            before, name = ("lines", "") if inner == "..." else ("gap", inner)
            i = close + 1
            continue
        text, i = text + wording[i], i + 1
    pieces.append(PatternPiece(text, before, name))
    if not pieces[0].text:
        raise ValueError(f"the pattern {wording!r} begins with a gap")
    return [piece.replace(text=lower_ascii(_fold_keeping_ends(piece.text))) for piece in pieces]


def _fold_keeping_ends(text: str) -> str:
    """Fold white space, but keep a space at either end: it is part of the literal."""
    folded = fold_whitespace(text)
    return " " * text[:1].isspace() + folded + " " * bool(folded and text[-1].isspace())


def fold_whitespace(text: str) -> str:
    """Replace every run of white space by one space."""
    return " ".join(text.split())


def lower_ascii(text: str) -> str:
    """The text in lower case, with every character in its place."""
    return text.lower() if text.isascii() else text.translate(_ASCII_LOWER)
