"""Count a model's parameters: from its name, or from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.job.records import FitUndecided
from gpuready.jobs import job_files
from gpuready.jobs.model_config import language_model_config
from gpuready.model.sizes import parse_count
from gpuready.system import AccessError, HostAccess

MIXTURE_SIZES = {"8x7b": 46_702_792_704, "8x22b": 140_620_634_112}
"""Names whose product is not the size: the experts share everything but their MLP."""


def find_size_in_name(name: str) -> int | None:
    """Return the size in a model's name: ``meta-llama/Llama-3.1-8B-Instruct`` -> 8e9."""
    words = name.rpartition("/")[2].lower().replace("_", "-").split("-")
    for word in words:
        if word in MIXTURE_SIZES:
            return MIXTURE_SIZES[word]
        count = parse_count(word) if word[-1:] in ("b", "m") else None
        if count is not None and count >= 10_000_000:  # 1M in a name is a context length
            return count
    return None


def count_model_parameters(config: Mapping[str, Any]) -> int | None:
    """Count the parameters of the language model of a config.json; None for an unknown architecture.

    ValueError if a number is missing or invalid.
    """
    text_config = {"model_type": config.get("model_type")} | language_model_config(config)
    try:
        return count_parameters(parse_model_config(text_config))
    except FitUndecided:
        declared = config.get("num_parameters")
        return declared if isinstance(declared, int) and declared > 0 else None


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
        count = count_model_parameters(config)
    except ValueError as error:
        raise ValueError(f"{flag} {file}: {error}; give the size, such as --model 7b") from None
    if count is None:
        raise ValueError(f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b")
    return count
