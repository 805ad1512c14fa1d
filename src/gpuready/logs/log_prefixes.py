"""Prefixes induced from what repeats: what the lines of one log have in front of their text, whatever wrote it there.

A prefix is a sequence of parts (times, levels, numbers, brackets, names before a colon or a bar, settings) of the same shape in
most lines; digits do not count. What it says of rank, host and process is read from the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.line_forms import sample_lines, undo_line_forms
from gpuready.logs.log_lines import LogLine, decode_line, parse_line, strip_prefixes, visible_lines

MAX_DEPTH, MIN_LINES, MAX_NAMES = 8, 4, 512
"""Parts that a prefix may have, lines that it takes, and hosts that it may name."""

MIN_SHARE, MIN_SHARE_OF_RANKS = 0.8, 0.4
"""Share of the lines that has the prefix: of any, and of one that names several ranks, which the launcher's own lines lack."""

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?: ?[AP]M)?"
_PART = LazyRegex(
    r" {0,4}(?:(?P<time>\d{4}[-/.]\d\d[-/.]\d\d[T _]" + _CLOCK + r"(?:Z|[+-]\d\d:?\d\d)?|\d{1,2}[-/.]\d{1,2}(?:[-/.]\d{2,4})?[ T]" + _CLOCK
    + r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?" + _MONTH + r" {1,2}\d{1,2},?(?: \d{4})? " + _CLOCK + r"(?: [A-Z]{3,4})?(?: \d{4})?"
    r"|\d{1,2}[ -]" + _MONTH + r"[ -]\d{4} " + _CLOCK + r"|" + _CLOCK + r"|\d{10}(?:\.\d{1,9})?|\d{13}|(?:#\d{1,4} )?\d{1,5}\.\d{1,3}(?= |$))(?=[\s:|\],;-]|$)"
    r"|(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE)(?=[\s:|\],-]|$)"
    r"|(?P<number>\d{1,7})(?=[:|>)]| -)"
    r"|(?P<bracket>\[[^\[\]\n]{0,80}\]|\([A-Za-z_][^()\n]{0,100}\)|<[\w.:/ -]{1,40}>)"
    r"|(?P<setting>[A-Za-z_]\w{0,30}=[^\s|,;]{1,80})"
    r"|(?P<name>[A-Za-z][\w.@/-]{0,90}(?:\[\d{1,12}\])?)(?=: ?|:$| {0,40}\|| >)"
    r"|(?P<word>[A-Za-z][\w.-]{0,63})(?= [\w./-]{1,40}(?:\[\d{1,12}\])?: )"
    r"|(?P<quote>[>|]))(?P<after>[ \t]?[:|,;>-]{0,2}(?:[ \t]{1,40}\|)?)"
)  # fmt: skip
_SPACE = LazyRegex(r"[ \t]?")
_RANK = LazyRegex(r"(?:^|[\[( ,/_-])(?:global_?)?(?:rank|RANK|Rank)[ :=_-]?(\d{1,6})\b|^\[(\d{1,5})\]$|^(\d{1,5})$")
_PID = LazyRegex(r"\bpid[ :=]{1,2}(\d{1,12})|\[(\d{3,12})\]$", 2)
_TOOLS = ("python3", "python", "srun", "slurmstepd", "pip", "uv", "nvcc", "ninja", "make", "gmake", "cmake", "collect2", "cc1plus", "ld", "gcc",
          "docker", "error", "warning", "note", "bash", "sh", "NVRM", "kernel", "torchrun", "mpirun", "E", "W", "I", "OMP")  # fmt: skip
_NCCL_LINE = LazyRegex(r"\S{1,80}:\d{1,12}:\d{1,12} \[\d{1,5}\] ")
_DIGITS = str.maketrans("123456789", "000000000")


class PrefixPart:
    """One part of a prefix: its kind, its shape and its text."""

    __slots__ = ("end", "kind", "shape", "start", "text")

    def __init__(self, match: re.Match[str]):
        self.kind = next(kind for kind, value in match.groupdict().items() if value is not None)
        self.text = match[self.kind]
        self.start, self.end = match.start(), match.end()
        after = match["after"].strip()
        self.shape = (
            f"{self.kind}{after}"
            if self.kind in ("time", "level", "number")
            else f"{_shape_of(self.kind, self.text)}{after}"
        )


def _shape_of(kind: str, text: str) -> str:
    """A part without its digits; of a bracket only its ends and words, of a name only whether it is a host's or a program's."""
    if kind == "bracket":
        return text[0] + " ".join(word for word in _squeeze(text[1:-1]).split()[:2] if word.isalpha())
    if kind == "name":
        return "host" if any(c.isdigit() for c in text) else f"name {text}"
    if kind == "word":
        return f"word {_squeeze(text)}"
    return _squeeze(text.partition("=")[0])


def _squeeze(text: str) -> str:
    zeros = text.translate(_DIGITS)
    while "00" in zeros:
        zeros = zeros.replace("00", "0")
    return zeros


def split_prefix(text: str, depth: int = MAX_DEPTH) -> list[PrefixPart]:
    """The parts with which a line begins, as many as there are."""
    parts: list[PrefixPart] = []
    at = 0
    while len(parts) < depth and at < 200 and (match := _PART.match(text, at)) and match.end() > at:
        part = PrefixPart(match)
        if part.kind == "word" and (not parts or parts[-1].kind != "time"):
            break  # a host without a colon stands only between a time and a program
        parts.append(part)
        space = _SPACE.match(text, part.end)
        at = part.end = space.end() if space else part.end
    return parts


class LogPrefix:
    """The prefix of one log."""

    def __init__(self, shape: tuple[str, ...], has_rank: bool, is_level_constant: bool, is_on_every_line: bool):
        self.shape, self.has_rank, self.is_level_constant = shape, has_rank, is_level_constant
        self.is_on_every_line = is_on_every_line  # then its clock and level do not tell where a message begins

    def parse_line(self, text: str, number: int, source: int) -> LogLine:
        """Parse a line: what the prefix says, and what each line says for itself."""
        whole = parse_line(text, number, source)
        parts = list(self._own_parts(text))
        if not parts:
            return whole
        end = parts[-1].end
        rest = parse_line(text[end:], number, source)
        fields: dict[str, object] = {}
        for part in parts:
            fields.update(strip_prefixes(text[part.start : part.end])[1])
            self._read_part(part, fields)
        if self.is_on_every_line:
            fields.pop("seconds", None)
            if self.is_level_constant:
                fields.pop("level", None)
        if len(whole.text) < len(rest.text):  # it knows more of the prefix by itself
            keeps_level = not (self.is_on_every_line and self.is_level_constant and whole.level in ("I", "D"))
            rest = whole.replace(seconds=rest.seconds, level=whole.level if keeps_level else rest.level)
        return fill_fields(rest, fields).replace(raw=text)

    def _own_parts(self, text: str) -> Iterator[PrefixPart]:
        """The parts of a line that are as in most lines, from the left."""
        for part, shape in zip(split_prefix(text, len(self.shape)), self.shape, strict=False):
            if part.shape != shape:
                return
            yield part

    def _read_part(self, part: PrefixPart, fields: dict[str, object]) -> None:
        rank = _RANK.search(part.text) if self.has_rank or part.kind != "number" else None
        if rank and "rank" not in fields and part.kind in ("bracket", "setting", "number"):
            fields["rank"] = int(next(group for group in rank.groups() if group))
        if part.kind in ("bracket", "setting", "name") and (pid := _PID.search(part.text)):
            fields.setdefault("pid", int(next(group for group in pid.groups() if group)))
        if part.kind == "word" or (part.kind == "name" and not (part.text.endswith("]") and "host" in fields)):
            fields.setdefault("host", part.text.partition("[")[0])
        elif part.kind == "setting" and part.text.partition("=")[0] in ("host", "node", "ip", "hostname", "pod"):
            fields["host"] = part.text.partition("=")[2]


def induce_prefix(sample: Sequence[str]) -> LogPrefix | None:
    """The longest prefix that most lines share in its shape."""
    lines = [text for text in sample if text.strip() and not _NCCL_LINE.match(text)]
    if len(lines) < MIN_LINES:
        return None
    rows = [split_prefix(text) for text in lines]
    best: LogPrefix | None = None
    for depth in range(1, MAX_DEPTH + 1):
        counts: dict[tuple[str, ...], int] = {}
        for row in rows:
            if len(row) >= depth:
                key = tuple(part.shape for part in row[:depth])
                counts[key] = counts.get(key, 0) + 1
        shape = max(counts, key=lambda key: counts[key], default=())
        if not shape or (best is not None and shape[:-1] != best.shape):
            break
        found = _judge_prefix(shape, [row for row in rows if tuple(p.shape for p in row[:depth]) == shape], lines)
        if found is None or not _is_worth_stripping(found, lines):
            break
        best = found
    return best if best is not None and _adds_anything(best, lines) else None


def _adds_anything(prefix: LogPrefix, lines: Sequence[str]) -> bool:
    """Whether lines are not understood as well without the prefix."""
    sample = lines[:: max(len(lines) // 40, 1)]
    alone = (parse_line(text) for text in sample)
    return prefix.is_on_every_line or any(
        prefix.parse_line(text, 0, 0) != line.replace(raw=text) for text, line in zip(sample, alone, strict=True)
    )


def _judge_prefix(shape: tuple[str, ...], rows: Sequence[list[PrefixPart]], lines: Sequence[str]) -> LogPrefix | None:
    depth = len(shape)
    share = len(rows) / len(lines)
    numbers = [row[depth - 1].text.strip("[]") for row in rows]
    is_number = all(text.isdecimal() and len(text) < 6 for text in numbers)
    counts_up = is_number and [int(n) for n in numbers] == list(range(int(numbers[0]), int(numbers[0]) + len(numbers)))
    ranks = is_number and not counts_up
    if share < (MIN_SHARE_OF_RANKS if ranks and len(set(numbers)) > 1 else MIN_SHARE):
        return None
    levels = {part.text[0] for row in rows for part in row[:depth] if part.kind == "level"}
    continued = [text for text in lines if "Traceback (most" in text or ' File "' in text]
    is_everywhere = bool(continued) and all(
        [p.shape for p in split_prefix(text, 1)] == [shape[0]] for text in continued
    )
    has_rank = ranks or (depth > 1 and not counts_up and not is_number)
    return LogPrefix(shape, has_rank, levels in ({"I"}, {"D"}), is_everywhere)


def _is_worth_stripping(prefix: LogPrefix, lines: Sequence[str]) -> bool:
    """Whether names in a prefix are those of hosts, or of something that relays a program; not of a program that speaks for itself."""
    if not any(shape.startswith(("host", "name")) for shape in prefix.shape):
        return True
    names = {part.text for text in lines for part in split_prefix(text, len(prefix.shape)) if part.kind == "name"}
    if any(name in _TOOLS for name in names) or len(names) > MAX_NAMES:
        return False
    relayed = any("Traceback (most" in text or '  File "' in text for text in lines)
    return relayed or not any(shape.startswith("name") and "|" not in shape for shape in prefix.shape)


def parse_lines(rows: list[tuple[int, bytes]], source: int = 0) -> Iterator[LogLine]:
    """Parse the numbered raw lines of one source."""
    plain = undo_line_forms([(number, text) for number, line in rows for text in visible_lines(decode_line(line))])
    prefix = induce_prefix(sample_lines([text for _, text, _ in plain]))
    levels = {fields["level"] for _, _, fields in plain if "level" in fields}
    for number, text, stated in plain:
        line = prefix.parse_line(text, number, source) if prefix else parse_line(text, number, source)
        if stated:
            known = stated if len(levels) > 1 else {key: value for key, value in stated.items() if key != "level"}
            line = fill_fields(line, known)
        yield line


def fill_fields(line: LogLine, fields: dict[str, object]) -> LogLine:
    """Add what is known of a line where the line itself does not say it."""
    missing = {key: value for key, value in fields.items() if getattr(line, key) in (None, "")}
    return line.replace(**missing) if missing else line
