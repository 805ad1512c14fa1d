"""Parse a Dockerfile into stages and instructions. Nothing is executed.

Continuations, comments between them, the escape directive, here-documents and variables follow Docker's
rules. UNKNOWN stands for a value that is not known (an ARG without a default, the output of a command);
readers derive no fact from it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import reduce

from gpuready.model import Record

UNKNOWN = "\0"
MAX_FILE_BYTES = 1 << 20
MAX_INSTRUCTIONS = 5000
MAX_LINE_LENGTH = 1 << 16
"""Docker's limit for one line."""
MAX_EXPANDED_CHARS = 1 << 20
"""How much text all variables of a file may expand to."""


class BuildValues(dict[str, str]):
    """Variables of a build. All copies share one limit of what they expand to."""

    def __init__(self, values: Mapping[str, str] | None = None, parent: BuildValues | None = None):
        super().__init__(values or {})
        self.expanded: list[int] = parent.expanded if parent is not None else [0]

    def expand_name(self, name: str) -> str | None:
        """Return a variable's value; ValueError if all expansions together are too long."""
        value = self.get(name)
        self.expanded[0] += len(value or "")
        if self.expanded[0] > MAX_EXPANDED_CHARS:
            raise ValueError(f"its variables expand to more than {MAX_EXPANDED_CHARS >> 20} MiB, as in no Dockerfile")
        return value


class DockerInstruction(Record):
    """One instruction, without its here-documents."""

    word: str
    text: str
    line: int


class BuildStage(Record):
    """The instructions between one FROM and the next."""

    base: str
    name: str
    line: int
    steps: tuple[DockerInstruction, ...] = ()
    global_args: tuple[tuple[str, str], ...] = ()  # before the first FROM: seen only where it is declared again


def parse_stages(text: str, build_args: BuildValues) -> list[BuildStage]:
    """Parse the stages, with ARGs expanded in FROM lines. ValueError if it is not a Dockerfile."""
    parsed: list[tuple[BuildStage, list[DockerInstruction]]] = []
    global_args = BuildValues(build_args, build_args)
    for instruction in parse_instructions(text):
        if instruction.word == "FROM":
            parsed.append((_parse_from_line(instruction, global_args), []))
        elif parsed:
            parsed[-1][1].append(instruction)
        elif instruction.word == "ARG":
            declare_argument(instruction, global_args, build_args, {})
        else:
            raise ValueError(f"line {instruction.line}: {instruction.word[:20]!r} stands before any FROM")
    if not parsed:
        raise ValueError("it has no FROM, so it is not a Dockerfile")
    return [stage.replace(steps=tuple(steps), global_args=tuple(global_args.items())) for stage, steps in parsed]


def _parse_from_line(instruction: DockerInstruction, values: BuildValues) -> BuildStage:
    words = [expand_variables(word, values) for word in instruction.text.split()]
    plain = [word for word in words if not word.startswith("--")]
    if not plain:
        raise ValueError(f"line {instruction.line}: FROM names no image")
    name = plain[2].lower() if len(plain) > 2 and plain[1].lower() == "as" else ""
    return BuildStage(plain[0], name, instruction.line)


def declare_argument(
    instruction: DockerInstruction, values: BuildValues, build_args: Mapping[str, str], global_args: Mapping[str, str]
) -> None:
    """Apply ARG: a build argument overrides the default; without either the value is unknown."""
    for name, default in parse_assignments(instruction.text, values):
        inherited = global_args.get(name, UNKNOWN)
        values[name] = build_args.get(name, inherited if default is None else default)


def parse_instructions(text: str) -> Iterator[DockerInstruction]:
    """Yield every instruction in order. ValueError if it cannot be a Dockerfile."""
    if len(text) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB, which no Dockerfile is")
    lines = text.removeprefix("\ufeff").splitlines()
    escape, at, count = _find_escape_character(lines), 0, 0
    while at < len(lines):
        start, (whole, at) = at, _join_continuations(lines, at, escape)
        word, _, rest = whole.partition(" ")
        if not word:
            continue
        if not word.isalpha():
            raise ValueError(f"line {start + 1}: {word[:20]!r} is not a Dockerfile instruction")
        count += 1
        if count > MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {MAX_INSTRUCTIONS} instructions")
        at = _skip_here_documents(word.upper(), rest, lines, at)
        yield DockerInstruction(word.upper(), rest.strip(), start + 1)


def _find_escape_character(lines: list[str]) -> str:
    """Return the continuation character, which an escape directive at the top may change."""
    for line in lines:
        if not line.startswith("#"):
            break
        name, _, value = line[1:].partition("=")
        if name.strip().lower() == "escape" and value.strip() in ("`", "\\"):
            return value.strip()
    return "\\"


def _join_continuations(lines: list[str], at: int, escape: str) -> tuple[str, int]:
    """Join a line with its continuations, skipping comments, and return the next line number."""
    parts: list[str] = []
    while at < len(lines):
        line, at = lines[at], at + 1
        if line.lstrip().startswith("#"):
            if not parts:
                return "", at
            continue
        bare = line.strip().replace("\t", " ") if not parts else line.rstrip()
        if parts and not bare:
            continue
        if bare.endswith(escape):
            parts.append(bare[:-1])
            continue
        parts.append(bare)
        break
    whole = "\n".join(parts) if len(parts) > 1 else "".join(parts)
    if len(whole) > MAX_LINE_LENGTH:
        raise ValueError(f"line {at}: an instruction is longer than {MAX_LINE_LENGTH >> 10} KiB")
    return whole.replace("\n", " ").strip(), at


def _skip_here_documents(word: str, rest: str, lines: list[str], at: int) -> int:
    """Return the line after the here-documents of an instruction: RUN <<EOF, COPY <<'END' /path."""
    names = re.findall(r"(?<!<)<<(-?)([\"']?)([A-Za-z_]\w{0,63})\2", rest) if word in ("RUN", "COPY", "ADD") else []
    for dash, _, name in names:
        ends = (i for i in range(at, len(lines)) if (lines[i].lstrip("\t") if dash else lines[i]) == name)
        end = next(ends, None)
        if end is None:
            raise ValueError(f"the here-document {name} is never closed")
        at = end + 1
    return at


def parse_assignments(text: str, values: BuildValues) -> list[tuple[str, str | None]]:
    """Parse ``A=1 B="x y"`` or the old form ``A value``; None for a name without a value."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} has a quote that is never closed") from None
    if len(words) > 1 and not any("=" in word for word in words):
        return [(words[0], expand_variables(" ".join(words[1:]), values))]
    pairs = [word.partition("=") for word in words]
    return [(name, expand_variables(value, values) if equals else None) for name, equals, value in pairs]


_NESTED = reduce(lambda inner, _: rf"(?:[^{{}}]|\{{{inner}\}})*", range(6), "[^{}]*")
_VARIABLE = re.compile(rf"\\\$|\$(?:\{{(\w*)(?!\w)({_NESTED})\}}|(\w+)|(\s|$)|.)", re.ASCII | re.DOTALL)
"""``\\$``, ``${A:-x}`` (braces some deep), ``$A``, a plain ``$``, and what is none of these."""


def expand_variables(text: str, values: BuildValues, depth: int = 0) -> str:
    """Expand $A, ${A}, ${A:-x}, ${A:+x}. Unknown values become UNKNOWN."""

    def expand_one(found: re.Match[str]) -> str:
        braced, rest, name, blank = found.groups()
        if found[0] == "\\$" or blank is not None:
            return f"${blank or ''}"
        if braced is None and name is None:
            return UNKNOWN
        known = values.expand_name(braced if name is None else name)
        if not rest:
            return UNKNOWN if known is None else known
        operator, word = (rest[:2], rest[2:]) if rest[0] == ":" else (rest[:1], rest[1:])
        if operator not in (":-", "-", ":+", "+") or depth > 8 or known == UNKNOWN:
            return UNKNOWN
        if operator[-1] == "-":
            return known or expand_variables(word, values, depth + 1)
        return expand_variables(word, values, depth + 1) if known else ""

    return _VARIABLE.sub(expand_one, text)
