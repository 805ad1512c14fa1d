"""Bad input, in one sentence."""

from __future__ import annotations

from tarmac import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Answer = TypeVar("Answer")

LIMIT = 64 << 20
"""The largest file that is read, in bytes."""


class Refused(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do."""


def refusing(do: Callable[..., Answer], *args: Any) -> Answer:
    """Call, and turn what a room says about bad input into a refusal."""
    try:
        return do(*args)
    except (ValueError, system.Blind) as bad:
        raise Refused(str(bad)) from None


def text_of(path: str) -> str:
    try:
        text = system.Live().read(path, LIMIT)
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
