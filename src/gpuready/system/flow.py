"""Redact lines one at a time; secrets that began on an earlier line are still recognised."""

from __future__ import annotations

from gpuready.system.redact import redact
from gpuready.system.shapes import LENGTHS
from gpuready.system.telling import HIDDEN, NONE, WEAK, telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 1024
"""How much of an earlier line is remembered."""

_OPEN = " \t\"'`:=,[({|>+-"
"""What may end a line between a name and the value on the next."""

_KEY = 400
"""The most lines a private key has; after that many without an end marker, it is considered over."""


class Flow:
    """Redact a stream of lines, each passed once and in order; as many come out as go in."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.inside = 0

    def __call__(self, line: str) -> str:
        if self.inside:
            return self._in_key(line)
        shown = self._together(line) if self.before else redact(line)
        if "PRIVATE KEY" in line and "-----BEGIN " in line and "-----END " not in line:
            self.inside = _KEY
        if (
            self.before and shown != line and redact(line) == line
        ):  # one of several values: the next line may be another
            self.before = [self.before[0], line[-_LONGEST:]]
        else:
            self.before = [*self.before, line[-_LONGEST:]][-2:] if _goes_on(line) else []
        return shown

    def _in_key(self, line: str) -> str:
        ended = "-----END " in line
        self.inside = 0 if ended else self.inside - 1
        return f"{HIDDEN}{line[line.index('-----END ') :]}" if ended else HIDDEN

    def _together(self, line: str) -> str:
        """Redact the line together with those before it; hide all of it where lines were merged."""
        lines = redact("\n".join([*self.before, line])).split("\n")
        return lines[-1] if len(lines) == len(self.before) + 1 else HIDDEN


def redact_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Redact consecutive lines."""
    flow = Flow()
    return tuple(flow(line) for line in lines)


def _goes_on(line: str) -> bool:
    """Whether a secret named here may stand on the next line: a netrc, a Kubernetes variable, a broken line."""
    if not line or line.isspace():
        return False
    bare = line.rstrip()
    if (
        bare.endswith(("\\", "^", "`"))
        or "machine " in line
        or bare.lstrip().startswith(("login ", "account "))
    ):
        return True
    if bare.lstrip(" -\"'").startswith(("name", "Private-Lines:")):
        return True
    last = bare[-48:].rpartition(" ")[2]
    if any(hint in last for hint in LENGTHS):
        return True
    name = (
        bare[-96:].rstrip(_OPEN).rpartition(" ")[2].lstrip("-\"'")
    )  # an option, or a name before a list or block
    return bool(name) and telling(name) not in (NONE, WEAK)
