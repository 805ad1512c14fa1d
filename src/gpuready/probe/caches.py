"""torch's caches of compiled code: folders, owners, and stale locks."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.keys import CACHES as KEYS
from gpuready.probe.sight import seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.system import Door

__all__ = ["KEYS", "look"]

LOCK = "lock"
"""torch creates this file while it builds an extension; other processes wait for it."""

MOST = 200
"""How many folders are searched for locks."""

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Variables that getpass.getuser() tries before the password file."""


def look(door: Door) -> list[Fact]:
    """Return the extension cache with its locks, and the cache of torch.compile."""
    return [
        seen("cache.extensions", "TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME, HOME", _extensions, door),
        seen("cache.locks", "the caches of torch and colossalai", lambda: tuple(_locks(door))[:MOST]),
        _inductor(door),
    ]


def _home(door: Door) -> str:
    user = door.env("HOME")
    if not user:
        raise Blind("HOME is not set")
    return user


def _extensions(door: Door) -> str:
    own = door.env("TORCH_EXTENSIONS_DIR")
    return own or f"{door.env('XDG_CACHE_HOME') or f'{_home(door)}/.cache'}/torch_extensions"


def _locks(door: Door) -> Iterator[str]:
    """Yield lock files one or two folders down: the default cache has a folder per Python and CUDA."""
    left = MOST
    for root in (_extensions(door), f"{_home(door)}/.cache/colossalai/torch_extensions"):
        for name in door.list(root) or ():
            inside = [f"{root}/{name}", *(f"{root}/{name}/{n}" for n in door.list(f"{root}/{name}") or ())]
            for folder in inside[:left]:
                if door.stat(f"{folder}/{LOCK}"):
                    yield f"{folder}/{LOCK}"
            left -= min(left, len(inside))


def _inductor(door: Door) -> Fact:
    """The cache of torch.compile. Its name in /tmp is predictable, so another user may own it."""
    try:
        path = door.env("TORCHINDUCTOR_CACHE_DIR") or _foreseen(door)
        status = door.stat(path)
        if status is None:
            return Fact("cache.inductor", None, path)
        return Fact("cache.inductor", _owned(path, status, door.user().get("uid")), path)
    except Blind as blind:
        return Fact("cache.inductor", None, "TORCHINDUCTOR_CACHE_DIR, TMPDIR", gap=str(blind))


def _foreseen(door: Door) -> str:
    user = next((name for key in NAMES if (name := door.env(key))), None) or door.user().get("name")
    if not user:
        raise Blind("nobody says how this user is called")
    plain = "".join("_" if c in '\\/:*?"<>|' else c for c in user)
    return f"{(door.env('TMPDIR') or '/tmp').rstrip('/')}/torchinductor_{plain}"


def _owned(path: str, status: dict[str, Any], uid: Any) -> dict[str, Any]:
    if uid is None:
        raise Blind("nobody says who this user is")
    return {"path": path, "uid": status["uid"], "mine": status["uid"] == uid}
