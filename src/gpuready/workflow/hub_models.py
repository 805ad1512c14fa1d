"""A model's config.json by its hub id: from the local hub cache, or fetched where the user asks for it."""

from __future__ import annotations

from json import loads
from typing import Any

from gpuready import system
from gpuready.jobs import job_files
from gpuready.probe.hub import find_hub_cache
from gpuready.system.download import fetch_text
from gpuready.workflow.refusal import Refused, host_for_named_files

MAX_CONFIG_BYTES = 1 << 20
DEFAULT_ENDPOINT = "https://huggingface.co"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
FETCH_SECONDS = 20.0


def is_hub_id(name: str) -> bool:
    """``org/name`` or ``name``, as the hub spells them."""
    parts = name.split("/")
    return len(parts) <= 2 and all(
        part and part[0] not in ".-" and all(c.isalnum() or c in "._-" for c in part) for part in parts
    )


def find_cached_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return path and content of a model's config in the local hub cache; None if it is not there."""
    host = host_for_named_files()
    try:
        folder = f"{find_hub_cache(host)}/models--{name.replace('/', '--')}" if is_hub_id(name) else ""
        if not folder or host.stat_path(folder) is None:
            return None
        revision = (host.read_text(f"{folder}/refs/main", 200) or "").strip()
        others = host.list_directory(f"{folder}/snapshots") or ()
        for snapshot in dict.fromkeys((revision, *sorted(others))):
            path = f"{folder}/snapshots/{snapshot}/config.json"
            if snapshot in others:
                config = job_files.read_mapping(path, lambda one: host.read_text(one, MAX_CONFIG_BYTES + 1))
                if config is not None:
                    return path, config
    except system.AccessError:
        return None
    return None


def download_config(name: str) -> tuple[str, dict[str, Any]]:
    """Fetch a model's config.json from the hub, and nothing else; refused where that cannot be."""
    host = system.LiveHost()
    if not is_hub_id(name):
        raise Refused(f"--download fetches a model by its hub id, such as openai/gpt-oss-20b, not {name!r}")
    if any((host.get_env_var(one) or "").strip().lower() in ("1", "on", "yes", "true") for one in OFFLINE_VARIABLES):
        raise Refused("--download asks the hub, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids it")
    endpoint = (host.get_env_var("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    url, token = f"{endpoint}/{name}/resolve/main/config.json", host.get_env_var("HF_TOKEN")
    try:
        text = fetch_text(url, MAX_CONFIG_BYTES, f"Bearer {token}" if token else "", FETCH_SECONDS)
        config = loads(text)
    except system.AccessError as error:
        raise Refused(f"the config of {name} could not be fetched from {endpoint}: {error}") from None
    except (ValueError, RecursionError):
        raise Refused(f"what {endpoint} gave for the config of {name} is no JSON") from None
    if not isinstance(config, dict):
        raise Refused(f"the config of {name} must be an object with fields such as hidden_size")
    return url, config
