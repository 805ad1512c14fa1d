"""Count the parameters that a model's config.json describes."""

from __future__ import annotations

from gpuready.jobs import model_size
from gpuready.system import AccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.system import HostAccess

MAX_CONFIG_BYTES = 1 << 20
"""The largest config.json that is read, in bytes."""


def count_parameters_at_path(host: HostAccess, path: str, flag: str) -> int | None:
    """Count by the config.json at a path; None if there is no such file or folder."""
    try:
        status = host.stat_path(path)
        if status is None:
            return None
        file = f"{path.rstrip('/')}/config.json" if status["kind"] == "dir" else path
        text = host.read_text(file, MAX_CONFIG_BYTES)
    except AccessError as error:
        raise ValueError(f"{flag} {path} cannot be read: {error}") from None
    if text is None:
        raise ValueError(f"{flag} {path} has no config.json; give the folder of a model or its size, such as 7b")
    return count_config_parameters(parse_json_object(text, file, flag), file, flag)


def parse_json_object(text: str, file: str, flag: str) -> dict[str, Any]:
    """Parse a JSON object. ValueError names file and line if it is not one."""
    import json

    try:
        decoded_value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{flag} {file} is nested too deeply") from None
    except ValueError as error:
        where = f" line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else f": {error}"
        raise ValueError(f"{flag} {file}{where}; it must be JSON") from None
    if not isinstance(decoded_value, dict):
        raise ValueError(f"{flag} {file} line 1: it must be an object, in braces")
    return decoded_value


def count_config_parameters(config: dict[str, Any], file: str, flag: str) -> int:
    """Count the parameters that a config.json describes. ValueError if it cannot be counted."""
    kind = config.get("model_type")
    try:
        count = model_size.count_model_parameters(config)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{flag} {file}: {error} is missing or no number; give the size, such as --model 7b") from None
    if count is None:
        raise ValueError(f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b")
    return count
