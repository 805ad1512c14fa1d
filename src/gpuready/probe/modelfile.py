"""Count the parameters that a model's config.json describes."""

from __future__ import annotations

from gpuready.probe import size
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.system import Door

SMALL = 1 << 20
"""The largest config.json that is read, in bytes."""


def of_path(door: Door, path: str, flag: str) -> int | None:
    """Count by the config.json at a path; None if there is no such file or folder."""
    try:
        status = door.stat(path)
        if status is None:
            return None
        file = f"{path.rstrip('/')}/config.json" if status["kind"] == "dir" else path
        text = door.read(file, SMALL)
    except Blind as blind:
        raise ValueError(f"{flag} {path} cannot be read: {blind}") from None
    if text is None:
        raise ValueError(
            f"{flag} {path} has no config.json; give the folder of a model or its size, such as 7b"
        )
    return parameters(decoded(text, file, flag), file, flag)


def decoded(text: str, file: str, flag: str) -> dict[str, Any]:
    """Parse a JSON object. ValueError names file and line if it is not one."""
    import json

    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"{flag} {file} is nested too deeply") from None
    except ValueError as bad:
        where = f" line {bad.lineno}: {bad.msg}" if isinstance(bad, json.JSONDecodeError) else f": {bad}"
        raise ValueError(f"{flag} {file}{where}; it must be JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{flag} {file} line 1: it must be an object, in braces")
    return found


def parameters(config: dict[str, Any], file: str, flag: str) -> int:
    """Count the parameters that a config.json describes. ValueError if it cannot be counted."""
    kind = config.get("model_type")
    try:
        count = size.counted(config)
    except (KeyError, TypeError, ValueError) as bad:
        raise ValueError(
            f"{flag} {file}: {bad} is missing or no number; give the size, such as --model 7b"
        ) from None
    if count is None:
        raise ValueError(
            f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b"
        )
    return count
