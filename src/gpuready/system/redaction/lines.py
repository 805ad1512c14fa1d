"""Redact lines one at a time; secrets that began on an earlier line are still recognised."""

from collections.abc import Iterable

from gpuready.system.redaction.secret_names import NONE, REDACTED, WEAK, secret_kind
from gpuready.system.redaction.secret_patterns import TOKEN_LENGTHS
from gpuready.system.redaction.text import redact_text

_MAX_REMEMBERED = 1024
"""How much of an earlier line is remembered."""

_OPEN_ENDINGS = " \t\"'`:=,[({|>+-"
"""What may end a line between a name and the value on the next."""

_MAX_KEY_LINES = 400
"""The most lines a private key has; after that many without an end marker, it is considered over."""


class LineRedactor:
    """Redact a stream of lines, each passed once and in order; as many come out as go in."""

    def __init__(self) -> None:
        self.previous_lines: list[str] = []
        self.key_lines_left = 0

    def __call__(self, line: str) -> str:
        if self.key_lines_left:
            return self._redact_key_line(line)
        redacted = self._redact_with_previous(line) if self.previous_lines else redact_text(line)
        if "PRIVATE KEY" in line and "-----BEGIN " in line and "-----END " not in line:
            self.key_lines_left = _MAX_KEY_LINES
        if (
            self.previous_lines and redacted != line and redact_text(line) == line
        ):  # one of several values: the next line may be another
            self.previous_lines = [self.previous_lines[0], line[-_MAX_REMEMBERED:]]
        else:
            self.previous_lines = [*self.previous_lines, line[-_MAX_REMEMBERED:]][-2:] if _may_continue(line) else []
        return redacted

    def redact_block(self, lines: list[str]) -> list[str]:
        """Redact many lines as one by one, at the speed of one: what has no secret as a whole has none in a line."""
        if len(lines) < 4 or self.key_lines_left or self.previous_lines:
            return [self(line) for line in lines]
        adjacent = dict.fromkeys(zip(lines, lines[1:], lines[2:]))  # noqa: B905
        repeats = 4 * len(adjacent) < len(lines)  # a flood of the same lines: a secret spans three of them at most
        block = "\n".join([line for three in adjacent for line in three] if repeats else lines)
        if redact_text(block) != block:
            half = len(lines) // 2
            return [*self.redact_block(lines[:half]), *self.redact_block(lines[half:])]
        return [*lines[:-2], *(self(line) for line in lines[-2:])]  # the last ones may continue on the next

    def _redact_key_line(self, line: str) -> str:
        ended = "-----END " in line
        self.key_lines_left = 0 if ended else self.key_lines_left - 1
        return f"{REDACTED}{line[line.index('-----END ') :]}" if ended else REDACTED

    def _redact_with_previous(self, line: str) -> str:
        """Redact the line together with those before it; hide all of it where lines were merged."""
        lines = redact_text("\n".join([*self.previous_lines, line])).split("\n")
        return lines[-1] if len(lines) == len(self.previous_lines) + 1 else REDACTED


def redact_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Redact consecutive lines."""
    flow = LineRedactor()
    return tuple(flow(line) for line in lines)


def _may_continue(line: str) -> bool:
    """Whether a secret named here may stand on the next line: a netrc, a Kubernetes variable, a broken line."""
    if not line or line.isspace():
        return False
    bare = line.rstrip()
    if bare.endswith(("\\", "^", "`")) or "machine " in line or bare.lstrip().startswith(("login ", "account ")):
        return True
    if bare.lstrip(" -\"'").startswith(("name", "Private-Lines:")):
        return True
    last = bare[-48:].rpartition(" ")[2]
    if any(hint in last for hint in TOKEN_LENGTHS):
        return True
    name = (
        bare[-96:].rstrip(_OPEN_ENDINGS).rpartition(" ")[2].lstrip("-\"'")
    )  # an option, or a name before a list or block
    return bool(name) and secret_kind(name) not in (NONE, WEAK)
