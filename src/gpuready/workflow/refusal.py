"""Bad input, in one sentence."""

from __future__ import annotations

from gpuready import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from gpuready.system.fence import Fence

    Answer = TypeVar("Answer")

LIMIT = 64 << 20
"""The largest file that is read, in bytes."""
_FENCES: list[Fence] = []
"""At most one: where a server reads files for strangers, what is named by name or inside a file is held to it."""


class Refused(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do."""


def refusing(do: Callable[..., Answer], *args: Any) -> Answer:
    """Call, and turn what a room says about bad input into a refusal."""
    try:
        return do(*args)
    except (ValueError, system.Blind) as bad:
        raise Refused(str(bad)) from None


def fence(within: Fence | None) -> None:
    """From here on only files inside are read by name; None takes the fence away."""
    _FENCES[:] = [] if within is None else [within]


def named() -> system.Live:
    """The door for files that were named, by a person or inside another file; a fence lets it see only what is inside."""
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
