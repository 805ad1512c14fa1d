"""Secrets recognised by their form: a hint to search for, and the pattern that follows it.

Each pattern is tried only at its hint, and either takes the whole run it is in or gives up within a few
characters: the time stays linear in the text. Group 1 is what is hidden.
"""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from re import Pattern
from typing import Any

Phrases = Sequence[tuple[str, str, tuple[str, ...]]]


def _load_table() -> Any:
    try:
        return import_module("gpuready.system.data.secrets").DATA
    except ModuleNotFoundError:  # without it no text may be shown, not even that of an error
        sys.stderr.write(
            "gpuready: the table of secrets is not compiled: run python tools/compile_catalog.py in the source tree\n"
        )
        raise SystemExit(2) from None


_TABLE: dict[str, Any] = _load_table()
"""Compiled from ``secrets.toml``, where each form has its source."""

_TOKENS: dict[str, str] = _TABLE["tokens"]
"""Hint and pattern of tokens with at least sixteen letters, digits, _ and - in a row."""
TOKENS_BY_MIDDLE: dict[str, tuple[int, str]] = _TABLE["inside"]
"""Hint in the middle of a token, how much of the token stands before it, and the pattern of the whole."""
TOKEN_LENGTHS: dict[str, int] = _TABLE["lengths"]
"""Number of characters after the hint, for tokens of one length: used to rejoin what a terminal broke."""
ADDRESSES: Phrases = _TABLE["address"]
"""URLs that anybody who knows them may write to."""
PHRASES: Phrases = _TABLE["phrase"]
"""Hint, the name hint that must be present too, and case-insensitive patterns."""
CERTAIN_HINTS = frozenset(_TABLE["certain"])
"""What follows these is a secret whatever it looks like."""

_LONG_WORD = b"a" * 16
_ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_WORD = frozenset(_ALNUM.encode() + b"_-")
_FLATTEN_TABLE = bytes(97 if byte in _WORD else 32 for byte in range(256))

_ESCAPE_SIGNS = frozenset("./\\%[;")

_hints_by_head: dict[str, list[str]] = {}
_compiled: dict[str, Pattern[str]] = {}


def find_token_patterns(text: str) -> list[tuple[str, str]]:
    """Hint and pattern of every token this text may contain.

    Searching for each of sixty hints would cost more than everything else. So the text is first flattened to words
    and gaps, where long words are found at once, and only the beginnings of their parts are compared.
    """
    flat = text.encode("ascii", "replace").translate(_FLATTEN_TABLE)
    if _LONG_WORD not in flat:
        return []
    if not _hints_by_head:
        for hint in _TOKENS:
            _hints_by_head.setdefault(_hint_head(hint), []).append(hint)
    spans = _long_words(flat)
    words = [text[begin:end] for begin, end in spans]
    for begin, end in spans:
        separator = text[begin - 1] if begin else " "
        if separator in _ESCAPE_SIGNS:
            # A hint with a full stop ends before the word; an escape is not part of the word.
            words.append(
                _hint_before_word(text, begin) if separator in "./" else text[begin + escape_length(text, begin) : end]
            )
    parts = set("_".join(set(words)).replace("-", "_").split("_"))
    found = _hints_by_head.keys() & (parts | {part[:3] for part in parts})
    return [(hint, _TOKENS[hint]) for head in sorted(found) for hint in _hints_by_head[head]]


def escape_length(text: str, begin: int) -> int:
    """How much of the word that begins here belongs to an escape before it: \\n, %20, a terminal colour."""
    separator = text[begin - 1]
    if separator == "\\":
        return 5 if text[begin : begin + 3] == "u00" else 3 if text[begin] == "x" else text[begin] in "nrtbf"
    if separator == "%":
        return 2
    tail = text[begin : begin + 4]
    colour = tail.lstrip("0123456789")
    return len(tail) - len(colour) + 1 if colour[:1] == "m" else 0


def has_long_word(text: str) -> bool:
    """Whether there are sixteen letters, digits, _ and - in a row, as in every token."""
    return _LONG_WORD in text.encode("ascii", "replace").translate(_FLATTEN_TABLE)


def _long_words(flat: bytes) -> list[tuple[int, int]]:
    found, find = [], flat.find
    at = find(_LONG_WORD)
    while at >= 0:
        end = find(b" ", at)
        if end < 0:
            end = len(flat)
        found.append((at, end))
        at = find(_LONG_WORD, end)
    return found


def _hint_before_word(text: str, begin: int) -> str:
    """The short word and the full stop, or the slashes, before a long word."""
    if text[begin - 2 : begin] == "//":
        return "//"
    short = text[max(begin - 10, 0) : begin - 1]
    at = begin - 1 - len(short) + len(short.rstrip(_ALNUM))
    if at and text[at - 1] in _ESCAPE_SIGNS:
        at += escape_length(text, at)
    return text[at : begin - 1] + "."


def _hint_head(hint: str) -> str:
    if "." in hint or "/" in hint:
        return "//" if "/" in hint else hint[:-1].rpartition(".")[2] + "."
    first, separator, rest = hint.replace("-", "_").partition("_")
    if first in ("api", "lin"):  # too common to begin with
        first = rest.partition("_")[0]
    return first if separator else hint[:3]


def compile_cached(source: str) -> Pattern[str]:
    """Compile a pattern on first use: most texts need none."""
    found = _compiled.get(source)
    if found is None:
        found = _compiled[source] = re.compile(source)
    return found
