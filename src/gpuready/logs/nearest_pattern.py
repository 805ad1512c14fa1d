"""The pattern that shares most words with what a log complains of, where no pattern matches: a guess, weighted by rarity."""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_patterns import plain_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.logs.pattern_index import PatternIndex

MIN_SHARED, MIN_COVERAGE, MAX_PATTERNS = 3, 0.85, 10
"""Words that must be shared, the part of a pattern's words, by their weight, that a line must have, and the number of patterns
that have one of the shared words at most: ``No such file or directory`` alone says nothing."""

MAX_TEXTS, MAX_CHARACTERS = 60, 600
"""Number of texts that are compared, and how much of each."""

_COMMON = frozenset((
    "environment", "variable", "variables", "set", "expected", "please", "unset", "required", "requires", "value", "values", "argument",
    "arguments", "option", "options", "used", "using", "make", "sure", "run", "running", "message", "call", "called", "does", "support", "supported",
    "directory", "path", "name", "following", "because", "want", "issue", "comment", "added", "current", "currently", "temporary", "feature"))  # fmt: skip
"""Words of any message: however few patterns have them, they are no sign of a cause."""

_WORDS = LazyRegex(r"[a-z_]{3,40}")


class WordIndex:
    """The words of all patterns of causes, with the weight of each: the rarer, the heavier."""

    def __init__(self, wording: PatternIndex):
        self._texts: dict[int, frozenset[str]] = {}
        self._by_word: dict[str, list[int]] = {}
        for number, (code, row) in enumerate(wording.rows):
            words = _words_of(plain_words(row))
            if code and len(words) >= MIN_SHARED and _names_cause(row):
                self._texts[number] = words
                for word in words:
                    self._by_word.setdefault(word, []).append(number)
        self._names = {number: frozenset(w for w in words if "_" in w) for number, words in self._texts.items()}
        """Names of variables and functions, without which the rest says nothing: ``CUDA_HOME`` environment variable is not set."""
        self._weights = {word: self._weigh_word(len(numbers)) for word, numbers in self._by_word.items()}

    def _weigh_word(self, count: int) -> float:
        from math import log

        return log(1 + len(self._texts) / count)

    def find_nearest(self, texts: Sequence[str]) -> tuple[int, int] | None:
        """Index of the text and number of the pattern that share most, where they share enough."""
        best: tuple[float, int, int] | None = None
        for index, text in list(enumerate(texts))[-MAX_TEXTS:]:
            for number, shared in self._shared_weights(_words_of(text[:MAX_CHARACTERS])).items():
                if best is None or shared > best[0]:
                    best = shared, index, number
        return None if best is None else best[1:]

    def _shared_weights(self, words: frozenset[str]) -> dict[int, float]:
        """The weight that each pattern shares with some words, where that is most of its own."""
        shared: dict[int, list[float]] = {}
        telling: set[int] = set()
        for word in words:
            for number in self._by_word.get(word, ()):
                shared.setdefault(number, []).append(self._weights[word])
            if word not in _COMMON and len(self._by_word.get(word, ())) <= MAX_PATTERNS:
                telling.update(self._by_word.get(word, ()))
        enough = {
            number: sum(weights)
            for number, weights in shared.items()
            if len(weights) >= MIN_SHARED and number in telling and self._names[number] <= words
        }
        return {number: sum_ for number, sum_ in enough.items() if sum_ >= MIN_COVERAGE * self._weight_of(number)}

    def _weight_of(self, number: int) -> float:
        return sum(self._weights[word] for word in self._texts[number])


def _names_cause(row: str | Mapping[str, Any]) -> bool:
    """Whether the words of a pattern alone name its cause: no condition is needed beside them."""
    if isinstance(row, str):
        return True
    is_conditional = any(row.get(key) for key in ("with", "also", "when"))
    return row.get("as", "root") in ("root", "symptom") and row.get("in") != "derived" and not is_conditional


def _words_of(text: str) -> frozenset[str]:
    return frozenset(_WORDS.compiled.findall(text.lower()))
