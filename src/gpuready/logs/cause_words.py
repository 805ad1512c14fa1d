"""The cause that the words of a complaint speak for, where no pattern matches: learned from the words of all patterns, topics and causes.

A word speaks for a cause as far as it is more frequent in the patterns of that cause than in all. Words are compared by their
beginning (``connect``, ``connection``) and by the parts of a name (``SafetensorError``: safetensor, error).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Any

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_patterns import LogPattern, PatternPiece, PatternRow, plain_words
from gpuready.model.record import Record

MAX_TEXTS, MAX_CHARACTERS, MAX_CONDITIONS = 60, 700, 3
"""Number of texts that are compared, how much of each, and the conditions of a pattern whose words belong to it."""

LENGTH, MIN_WORDS = 6, 2
"""Letters by which words are compared, and how many of them must speak for a cause."""

LEAST, LIKELY, CLEAR, MIN_LEAD = 8.0, 11.0, 16.0, 3.0
"""Votes without which the words are no answer, with which they are likely and clearly right, and how many more than for the next cause
make them better than a topic."""

SMOOTHING, BACKGROUND = 8.0, 50.0
"""Patterns without a word that every cause, and all of them together, are taken to have besides their own."""

_NAME = LazyRegex(r"[A-Za-z_][A-Za-z_]{1,60}")
_PART = LazyRegex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PATH = LazyRegex(r"https?://\S{1,400}|(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]{1,100}){1,40}(?=[\\/][\w.@+~-])")
"""Addresses, and the folders of a path: their names say nothing of the error."""
_COMMON = frozenset((
    "the", "and", "for", "with", "from", "not", "this", "that", "are", "was", "has", "have", "you", "your", "can", "may", "will", "all", "any",
    "one", "its", "but", "use", "using", "used", "when", "which", "then", "than", "also", "please", "make", "sure", "see", "more", "line", "file",
    "most", "recent", "call", "last", "traceback", "error", "exception", "runtime", "value", "environment", "variable", "variables", "set"))  # fmt: skip


class CauseVote(Record):
    """How clearly a text speaks for a cause, and by which words."""

    votes: float
    lead: float  # over the next cause
    index: int
    code: str
    cause: str
    words: tuple[str, ...]

    @property
    def beats_topic(self) -> bool:
        return self.votes >= CLEAR and self.lead >= MIN_LEAD

    @property
    def pattern(self) -> LogPattern:
        """The words as the pattern that a match names."""
        strength = "strong" if self.votes >= CLEAR else "likely" if self.votes >= LIKELY else "nearest"
        pieces = tuple(PatternPiece(word) for word in self.words)
        return LogPattern(self.code, " ".join(self.words), pieces, strength=strength, cause=self.cause)


class CauseWords:
    """How much every word speaks for every cause."""

    def __init__(
        self,
        rows: Sequence[PatternRow],
        topics: Sequence[tuple[str, str, str]] = (),
        descriptions: Sequence[tuple[str, str, str]] = (),
    ):
        self._counts: dict[str, dict[str, float]] = {}
        self._sizes: dict[str, float] = {}
        self._codes: dict[str, str] = {}
        for code, row in rows:
            if code and not isinstance(row, str) and _speaks_of_cause(row):
                self._add_text(code, str(row.get("cause", code)), _pattern_words(row), 1.0)
        for code, cause, text in topics:
            self._add_text(code, cause, text.partition(" - ")[0], 1.0)
        for code, cause, text in descriptions:
            self._add_text(code, cause, f"{text} {cause.replace('-', ' ')}", 2.0)
        self._total = sum(self._sizes.values()) + BACKGROUND

    def _add_text(self, code: str, cause: str, text: str, weight: float) -> None:
        self._codes.setdefault(cause, code)
        self._sizes[cause] = self._sizes.get(cause, 0.0) + weight
        for word in split_words(text):
            counts = self._counts.setdefault(word, {})
            counts[cause] = counts.get(cause, 0.0) + weight

    def find_cause(self, texts: Sequence[str]) -> CauseVote | None:
        """The cause that one of the texts speaks for most clearly."""
        counted: dict[str, tuple[float, int, tuple[str, ...]]] = {}
        for index, text in list(enumerate(texts))[-MAX_TEXTS:]:
            for cause, voices in self._collect_votes(split_words(text[:MAX_CHARACTERS])).items():
                votes = sum(vote for vote, _ in voices)
                if len(voices) >= MIN_WORDS and votes > counted.get(cause, (0.0,))[0]:
                    counted[cause] = votes, index, tuple(word for _, word in sorted(voices, reverse=True))
        ranked = sorted(counted, key=lambda cause: counted[cause][0], reverse=True)
        if not ranked or counted[ranked[0]][0] < LEAST:
            return None
        votes, index, words = counted[ranked[0]]
        lead = votes - (counted[ranked[1]][0] if ranked[1:] else 0.0)
        return CauseVote(votes, lead, index, self._codes[ranked[0]], ranked[0], words)

    def _collect_votes(self, words: Iterable[str]) -> dict[str, list[tuple[float, str]]]:
        """The words that speak for each cause, with how much each does."""
        found: dict[str, list[tuple[float, str]]] = {}
        for word in words:
            counts = self._counts.get(word, {})
            usual = (sum(counts.values()) + 1.0) / self._total
            for cause, count in counts.items():
                share = count / (self._sizes[cause] + SMOOTHING)
                if share > usual:
                    found.setdefault(cause, []).append((log(share / usual), word))
        return found


def split_words(text: str) -> frozenset[str]:
    """The beginnings of all words of a text and of the parts of its names, and whole names with underscores."""
    found = set()
    for name in _NAME.compiled.findall(_PATH.sub(" ", text)):
        if "_" in name.strip("_"):
            found.add(name.lower())
        parts = (part.lower() for part in _PART.compiled.findall(name))
        found.update(part[:LENGTH] for part in parts if len(part) > 2 and part not in _COMMON)
    return frozenset(found)


def _speaks_of_cause(row: Mapping[str, Any]) -> bool:
    """Whether the words of a pattern are those of a log: not of a statement of our own, nor of what only lies beside a cause."""
    return row.get("as") != "trace" and row.get("in") != "derived"


def _pattern_words(row: Mapping[str, Any]) -> str:
    conditions = row.get("with", ())
    return " ".join((plain_words(row), *(conditions if len(conditions) <= MAX_CONDITIONS else ())))
