"""Bad input: Refused, in one sentence."""

from __future__ import annotations

from gpuready import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from gpuready.system.fence import Fence

    Answer = TypeVar("Answer")

LIMIT = 64 << 20
"""Largest file that is read."""
_FENCES: list[Fence] = []
"""At most one: in a server, the fence for files named by clients or inside other files."""


class Refused(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do."""


def refusing(do: Callable[..., Answer], *args: Any) -> Answer:
    """Call a function, and convert its error about bad input to Refused."""
    try:
        return do(*args)
    except (ValueError, system.Blind) as bad:
        raise Refused(str(bad)) from None


def fence(within: Fence | None) -> None:
    """Restrict files read by name to those inside; None removes the restriction."""
    _FENCES[:] = [] if within is None else [within]


def named() -> system.Live:
    """Return the host access for files named by a person or inside another file; fenced in a server."""
    if not _FENCES:
        return system.Live()
    from gpuready.system.fence import Fenced

    return Fenced(_FENCES[0])


def text_of(path: str) -> str:
    try:
        text = named().read(path, LIMIT)
    except system.Blind as blind:
        raise Refused(f"cannot read {path}: {blind}") from None
    if text is None:
        raise Refused(f"{path} does not exist")
    return text


def nearest(word: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), [k.lower() for k in known], 3, 0.5)
    by_lower = {k.lower(): k for k in known}
    return f" (nearest: {', '.join(by_lower[n] for n in near)})" if near else ""
