"""What a complaint is about, whatever its wording: words in any order that together name a cause, where no pattern matches.

``cudnn + compiled|built|linked + runtime|loaded - warning``: one word of each group, and none after `` - ``. A word matches at its
beginning (``kill``: killed, killing), or with a dot at its end as a whole (``ram.``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_patterns import LogPattern
from gpuready.model.record import Record

MIN_GROUPS, MAX_TEXTS, MAX_CHARACTERS = 2, 60, 800
"""Groups of a topic at least, the number of texts that are compared, and how much of each."""


_LONG_PATH = LazyRegex(r"(?:/[\w.@+-]{1,100}){2,40}(?=(?:/[\w.@+-]{1,100}){2})")
"""The folders of a path but the last one: their names say nothing of the error."""


class Topic(Record):
    """One topic of one cause."""

    code: str
    cause: str
    says: str
    groups: tuple[LazyRegex, ...]
    refused: LazyRegex | None = None

    def match_length(self, low: str) -> int:
        """How many letters of a text in lower case are words of the topic; 0 where a group has none."""
        length = 0
        for group in self.groups:
            found = group.search(low)
            if found is None:
                return 0
            length += found.end() - found.start()
        return 0 if self.refused is not None and self.refused.search(low) else length

    @property
    def pattern(self) -> LogPattern:
        """The topic as the pattern that a match names."""
        return LogPattern(self.code, self.says, (), strength="nearest", cause=self.cause)


def parse_topic(code: str, cause: str, text: str) -> Topic:
    """Compile one topic. ValueError says what is wrong with it."""
    wanted, _, refused = text.lower().partition(" - ")
    groups = [group.strip() for group in wanted.split(" + ")]
    if len(groups) < MIN_GROUPS or not all(word.strip() for group in groups for word in group.split("|")):
        raise ValueError(f"the topic {text!r} of {cause} needs {MIN_GROUPS} groups of words, parted by ' + '")
    compiled = tuple(LazyRegex(_group_regex(group)) for group in groups)
    return Topic(code, cause, text, compiled, LazyRegex(_group_regex(refused)) if refused.strip() else None)


def _group_regex(group: str) -> str:
    return rf"(?<![a-z])(?:{'|'.join(_word_regex(word.strip()) for word in group.split('|'))})"


def _word_regex(word: str) -> str:
    plain = re.escape(word.removesuffix("."))
    return rf"{plain}(?![a-z0-9])" if word.endswith(".") else plain


class TopicIndex:
    """All topics, compiled on first use."""

    def __init__(self, rows: Sequence[tuple[str, str, str]]):
        self._topics = [parse_topic(*row) for row in rows]

    def find_topic(self, texts: Sequence[str]) -> tuple[int, LogPattern] | None:
        """Index of the text and the topic with the most groups and the longest words; of equal ones the first text's."""
        best: tuple[tuple[int, int, int], Topic] | None = None
        for index, text in list(enumerate(texts))[-MAX_TEXTS:]:
            low = _LONG_PATH.sub("", text[:MAX_CHARACTERS]).lower()
            for topic in self._topics:
                length = topic.match_length(low)
                weight = len(topic.groups), length, -index
                if length and (best is None or weight > best[0]):
                    best = weight, topic
        return None if best is None else (-best[0][2], best[1].pattern)
