"""Count the parameters that a model's config.json describes."""

from __future__ import annotations

from gpuready.jobs import job_files, model_size
from gpuready.system import AccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.system import HostAccess


def count_parameters_at_path(host: HostAccess, path: str, flag: str) -> int | None:
    """Count by the config.json at a path; None if there is no such file or folder."""
    try:
        status = host.stat_path(path)
        if status is None:
            return None
        file = f"{path.rstrip('/')}/config.json" if status["kind"] == "dir" else path
        text = host.read_text(file, job_files.MAX_FILE_BYTES)
    except AccessError as error:
        raise ValueError(f"{flag} {path} cannot be read: {error}") from None
    if text is None:
        raise ValueError(f"{flag} {path} has no config.json; give the folder of a model or its size, such as 7b")
    return count_config_parameters(job_files.decode_json_object(text, f"{flag} {file}"), file, flag)


def count_config_parameters(config: Mapping[str, Any], file: str, flag: str) -> int:
    """Count the parameters that a config.json describes. ValueError if it cannot be counted."""
    kind = config.get("model_type")
    try:
        count = model_size.count_model_parameters(config)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{flag} {file}: {error} is missing or no number; give the size, such as --model 7b") from None
    if count is None:
        raise ValueError(f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b")
    return count
