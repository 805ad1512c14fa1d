"""Cache of uv's resolutions in the user's cache folder.

The key covers everything that decides the result: the request, flags, uv's version and configuration, and the
wheels in local folders. An entry is valid for a day; then uv is asked again, whose own cache makes that cheap.
"""

from __future__ import annotations

from gpuready.system import Blind, save
from gpuready.system.follow import variables
from gpuready.system.scratch import cache, oldest, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.apply.uv import Settings
    from gpuready.system import Door

DAY = 24 * 3600.0
MOST = 200
"""How many results are kept."""

_SCHEMA = 1


def key(door: Door, question: Sequence[str], told: Settings) -> str:
    """Return the digest of everything that decides a result. Secrets in it cannot be recovered."""
    from hashlib import sha256

    ours = variables(door)
    uvs = sorted(f"{name}={value}" for name, value in ours.items() if name.startswith(("UV_", "SSL_")))
    env = sorted(f"{name}={value}" for name, value in told.env.items())
    parts = [
        *question,
        *told.flags,
        *env,
        *uvs,
        *told.extra,
        *_files(door, ours),
        *_wheels(door, told.folders),
    ]
    return sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _files(door: Door, ours: dict[str, str]) -> list[str]:
    """Read uv's configuration files that apply to this request."""
    home = ours.get("XDG_CONFIG_HOME") or ours.get("HOME", "") + "/.config"
    places = [ours.get("UV_CONFIG_FILE", ""), f"{door.cwd()}/uv.toml", f"{door.cwd()}/pyproject.toml"]
    places += [f"{home}/uv/uv.toml", "/etc/uv/uv.toml"]
    found = []
    for place in places:
        try:
            found.append((door.read(place) or "") if place else "")
        except Blind:
            found.append("")
    return found


def _wheels(door: Door, folders: Sequence[str]) -> list[str]:
    found = []
    for folder in folders:
        for name in door.list(folder) or ():
            if name.endswith((".whl", ".tar.gz", ".zip")):
                facts = door.stat(f"{folder}/{name}") or {}
                found.append(f"{folder}/{name} {facts.get('size')} {facts.get('mtime')}")
    return found


def known(door: Door, name: str) -> dict[str, Any] | None:
    """Return the cached result if it is intact and younger than a day. A damaged one is removed."""
    try:
        path = f"{cache(variables(door), 'answers')}/{name}.json"
        text = door.read(path, 64 << 20)
    except Blind:
        return None
    if text is None:
        return None
    found = _read(text)
    if found is None:
        remove(path)
        return None
    age = door.wall() - found["at"]
    return found["answer"] if 0 <= age < DAY else None


def _read(text: str) -> dict[str, Any] | None:
    import json

    try:
        found = json.loads(text)
        whole = found["schema"] == _SCHEMA and found["digest"] == _digest(found["answer"])
        return found if whole and isinstance(found["at"], (int, float)) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def keep(door: Door, name: str, answer: dict[str, Any]) -> None:
    """Store a result. If that fails, the next request only takes longer."""
    import json

    try:
        folder = cache(variables(door), "answers")
        body = {"schema": _SCHEMA, "at": door.wall(), "digest": _digest(answer), "answer": answer}
        save(f"{folder}/{name}.json", json.dumps(body))
    except Blind:
        return
    for path in oldest(folder, MOST):
        remove(path)


def _digest(answer: object) -> str:
    import json
    from hashlib import sha256

    return sha256(json.dumps(answer, sort_keys=True).encode()).hexdigest()
