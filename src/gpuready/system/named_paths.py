"""Files that a command line names: a disk that does not answer is found out in a child, which no kill may reach."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from gpuready.system.host_access import AccessError
from gpuready.system.process.isolation import call_within

ANSWER_SECONDS = 5.0


def require_answering_disks(argv: Sequence[str]) -> None:
    """AccessError, in a sentence, if a disk with a file of this command line does not answer."""
    for path in dict.fromkeys(_named_paths(argv)):
        try:
            call_within(lambda path=path: _touch_file(path), ANSWER_SECONDS, path)  # type: ignore[misc]
        except AccessError:
            raise AccessError(f"{path} cannot be looked at: no answer within {ANSWER_SECONDS:g} s; is its disk there?") from None  # fmt: skip


def _named_paths(argv: Sequence[str]) -> Iterator[str]:
    """Every word that may be a path of another disk, until the words of the user's own script."""
    for word in argv:
        if word == "--":
            return
        value = word.partition("=")[2] if word.startswith("-") else word
        if "/" in value and "://" not in value and "\0" not in value:
            yield value


def _touch_file(path: str) -> str:
    """Ask for what any reader asks for first: the kind, and the first byte or entry. A pipe is left alone."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            with os.scandir(path) as entries:
                next(entries, None)
        elif stat.S_ISREG(kind):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.pread(fd, 1, 0)
            os.close(fd)
    except OSError:
        pass  # it answers; what the answer means is for its reader
    return "answered"
