"""Changes to a TOML file as text: comments, order and everything that is not touched stay as they are."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from refresh.web import Trouble

WIDTH = 130
HEADER = re.compile(r"\[\[?([A-Za-z0-9_.-]+)\]\]?\s*(#.*)?\Z")
KEY = re.compile(r"([A-Za-z0-9_-]+)\s*=")


def loads(text: str) -> dict[str, Any]:
    """A TOML text as data; ValueError where it is none."""
    found: dict[str, Any] = tomllib.loads(text)
    return found


class Block:
    """A table: its header, its own keys, and the lines of both; comments above a header belong to it."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.lines = name, lines

    def spans(self) -> dict[str, tuple[int, int]]:
        """Each key with the first line of its value and the line after the last."""
        found: dict[str, tuple[int, int]] = {}
        at = 0
        while at < len(self.lines):
            key = KEY.match(self.lines[at])
            end = at + 1
            if key:
                while not _whole("\n".join(self.lines[at:end])):
                    end += 1
                    if end > len(self.lines):
                        raise Trouble(f"the value of {key[1]} has no end")
                found[key[1]] = (at, end)
            at = end
        return found

    @property
    def values(self) -> dict[str, Any]:
        body = "\n".join(line for a, b in self.spans().values() for line in self.lines[a:b])
        return loads(body)

    def set(self, key: str, value: Any, before: tuple[str, ...] = ("confirmed", "source")) -> None:
        """Give a key a value, in its place where it has one, else in front of the first of ``before``."""
        spans = self.spans()
        new = assignment(key, value).split("\n")
        if key in spans:
            first, end = spans[key]
            self.lines[first:end] = new
            return
        at = next((spans[k][0] for k in before if k in spans), max((b for _, b in spans.values()), default=1))
        self.lines[at:at] = new


class Document:
    """A TOML file as blocks, in order."""

    def __init__(self, text: str) -> None:
        self.blocks = [Block("", [])]
        waiting: list[str] = []  # comments and empty lines, which go with what follows them
        for line in text.split("\n"):
            header = HEADER.match(line)
            if header and _whole("\n".join(self.blocks[-1].lines[_start(self.blocks[-1].lines) :])):
                self.blocks.append(Block(header[1], [*waiting, line]))
                waiting = []
            elif not line.strip() or line.startswith("#"):
                waiting.append(line)
            else:
                self.blocks[-1].lines += [*waiting, line]
                waiting = []
        self._end = waiting

    @property
    def text(self) -> str:
        return "\n".join([line for block in self.blocks for line in block.lines] + self._end)

    def family(self, at: int) -> int:
        """The index after the block at ``at`` and the tables under it (``torch.build`` under ``torch``)."""
        under = self.blocks[at].name + "."
        end = at + 1
        while end < len(self.blocks) and self.blocks[end].name.startswith(under):
            end += 1
        return end

    def find(self, name: str, key: str, value: str, first: int = 0, end: int | None = None) -> int | None:
        """The block of a name in which a key has a value."""
        for at in range(first, len(self.blocks) if end is None else end):
            if self.blocks[at].name == name and self.blocks[at].values.get(key) == value:
                return at
        return None

    def insert(self, at: int, name: str, row: dict[str, Any]) -> None:
        lines = ["", f"[[{name}]]", *(line for k, v in row.items() for line in assignment(k, v).split("\n"))]
        self.blocks.insert(at, Block(name, lines))


def assignment(key: str, value: Any) -> str:
    """``key = value`` in the style of the catalogue: a list on one line, or one entry a line where it is long."""
    line = f"{key} = {literal(value)}"
    if not isinstance(value, list) or (len(line) <= WIDTH and not any(isinstance(v, dict) for v in value)):
        return line
    return "\n".join([f"{key} = [", *(f"  {literal(entry)}," for entry in value), "]"])


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(literal(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {literal(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _start(lines: list[str]) -> int:
    """The last line on which an assignment begins."""
    return max((i for i, line in enumerate(lines) if KEY.match(line)), default=0)


def _whole(text: str) -> bool:
    """Whether these lines are a value that has ended."""
    if "=" not in text:
        return True
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return not _open(text)
    return True


def _open(text: str) -> bool:
    """Whether brackets are still open, outside of strings."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"|#.*', "", text)
    return bare.count("[") + bare.count("{") > bare.count("]") + bare.count("}")
