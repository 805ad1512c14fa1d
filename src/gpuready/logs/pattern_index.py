"""All patterns, indexed by the literals that their matches contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.logs.cause_words import CauseWords
from gpuready.logs.excerpt import MAX_LINES
from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.log_patterns import (
    LogPattern,
    PatternRow,
    compile_patterns,
    lower_ascii,
    pattern_literals,
    validate_pattern,
)
from gpuready.logs.topics import TopicIndex

STRUCTURE_LITERALS = (
    "Traceback (most recent call last)", '", line ', "Error: ", "Exception: ", "terminate called after", "NCCL WARN",
    "Root Cause (first observed failure)", "failed (exitcode:", "exits with return code", "srun: error", "slurmstepd: error",
    "Segmentation fault", "Fatal Python error", "Watchdog caught collective operation timeout", " nranks ", "NVRM: Xid", "NCCL INFO Trees [",
)  # fmt: skip
"""Literals that belong to no cause and are always needed: kept without a quota."""

REMARK_QUOTA = 4
"""How many hits are kept of a text that only has to occur somewhere."""

MIN_CUT = 30
"""Characters of a known text by which a line that is cut is recognised."""


class PatternIndex:
    """All patterns, including those of consequences (with an empty code), indexed by literal; each is compiled on first use."""

    def __init__(self, table: Mapping[str, Any]):
        self.rows: Sequence[PatternRow] = table["rows"]
        self._index: Mapping[str, Sequence[int]] = table["index"]
        self._compiled: dict[int, LogPattern] = {}
        self.remarks = frozenset(table["remarks"])
        structure = [literal.lower() for literal in STRUCTURE_LITERALS]
        self.literals = list(dict.fromkeys([*structure, *self._index, *sorted(self.remarks)]))
        self._words: CauseWords | None = None
        self._topic_rows: Sequence[tuple[str, str, str]] = table.get("topics", ())
        self._descriptions: Sequence[tuple[str, str, str]] = table.get("descriptions", ())
        self._topics: TopicIndex | None = None
        self.search = LiteralSearch(self.literals)
        remarks = {n: REMARK_QUOTA for n, literal in enumerate(self.literals) if literal not in self._index}
        self.quotas = remarks | dict.fromkeys(range(len(STRUCTURE_LITERALS)), MAX_LINES)

    def patterns_for(self, literal: str) -> list[tuple[int, LogPattern]]:
        """The patterns that are searched for by this literal."""
        return [(number, self.pattern_at(number)) for number in self._index.get(literal, ())]

    def pattern_at(self, number: int) -> LogPattern:
        if number not in self._compiled:
            code, row = self.rows[number]
            self._compiled[number] = compile_patterns(code, [row])[0]
        return self._compiled[number]

    def find_cut(self, texts: Sequence[str]) -> list[tuple[int, LogPattern]]:
        """The patterns whose text the end or the beginning of a line is cut in, with the index of each line."""
        lowered = [(i, lower_ascii(text).rstrip(" $>…")) for i, text in enumerate(texts)]
        literals = [literal for literal in self._index if len(literal) >= MIN_CUT]
        found = [(i, literal) for i, text in lowered for literal in literals if _is_cut_in(text, literal)]
        patterns = ((i, pattern) for i, literal in found for _, pattern in self.patterns_for(literal))
        return [(i, pattern.replace(strength="strong")) for i, pattern in patterns if pattern.code and pattern.strength in ("root", "symptom")]  # fmt: skip

    def find_nearest(self, texts: Sequence[str]) -> list[tuple[int, LogPattern]]:
        """Guesses with the text of each, the best first: words that speak clearly for a cause, a known topic, fewer words of a cause."""
        self._topics = self._topics or TopicIndex(self._topic_rows)  # indexed on first use
        self._words = self._words or CauseWords(self.rows, self._topic_rows, self._descriptions)
        vote, topic = self._words.find_cause(texts), self._topics.find_topic(texts)
        by_words = [(vote.index, vote.pattern)] if vote is not None else []
        by_topic = [topic] if topic is not None else []
        return by_words + by_topic if vote is not None and vote.beats_topic else by_topic + by_words


def _is_cut_in(text: str, literal: str) -> bool:
    """Whether a text ends, or begins, with a long part of a literal, and the rest is missing."""
    at = text.find(literal[:MIN_CUT])
    if at >= 0:
        return len(text) - at < len(literal) and literal.startswith(text[at:])
    end = text.find(literal[-MIN_CUT:])
    return 0 <= end < len(literal) - MIN_CUT and literal.endswith(text[: end + MIN_CUT])


def build_pattern_table(
    rows: Sequence[PatternRow],
    topics: Sequence[tuple[str, str, str]] = (),
    descriptions: Sequence[tuple[str, str, str]] = (),
) -> dict[str, Any]:
    """Precompute the table for a PatternIndex, so that reading a log compiles nothing; stored by tools/compile_catalog.py."""
    index: dict[str, list[int]] = {}
    remarks: dict[str, None] = {}
    for number, (code, row) in enumerate(rows):
        pattern = compile_patterns(code, [row])[0]
        validate_pattern(code, row)
        for literal in pattern_literals(row):
            index.setdefault(literal, []).append(number)
        remarks |= dict.fromkeys((*pattern.also, *pattern.unless))
    TopicIndex(topics)  # refuses what cannot be compiled
    return {
        "rows": list(rows), "index": index, "remarks": list(remarks), "topics": list(topics), "descriptions": list(descriptions),
    }  # fmt: skip
