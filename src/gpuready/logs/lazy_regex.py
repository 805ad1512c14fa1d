"""Regular expressions compiled on first use: all of them take 100 ms or more to compile, and a log needs few."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


class LazyRegex:
    """A regular expression. Every one of ours is anchored or has bounded repeats, so that no text makes it slow."""

    if TYPE_CHECKING:
        compiled: re.Pattern[str]

        def match(self, text: str, start: int = 0) -> re.Match[str] | None: ...
        def search(self, text: str, start: int = 0) -> re.Match[str] | None: ...
        def sub(self, new: str, text: str) -> str: ...

    def __init__(self, source: str, flags: int = 0):
        self.source, self.flags = source, flags

    def __getattr__(self, name: str) -> Any:
        """Compile it, and from then on call the compiled one directly."""
        if name not in ("compiled", "match", "search", "sub"):
            raise AttributeError(name)
        compiled = re.compile(self.source, self.flags)
        self.__dict__.update(compiled=compiled, match=compiled.match, search=compiled.search, sub=compiled.sub)
        return self.__dict__[name]
